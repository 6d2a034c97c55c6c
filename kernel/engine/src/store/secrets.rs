//! Secrets by name: what may be a name and a value, how many there may be, and the sealed text in which all of
//! one namespace are kept.
//!
//! The whole file is one message of XChaCha20-Poly1305 under a key of its namespace: who has no key sees
//! neither values nor names, and a file that was changed, or moved to another namespace, does not open.

use std::collections::BTreeMap;
use std::fmt;

use chacha20poly1305::aead::{Aead, Payload};
use chacha20poly1305::{Key, KeyInit, XChaCha20Poly1305, XNonce};
use serde::{Deserialize, Serialize};

/// Longest value, in bytes: a private key or a token of many claims.
pub const VALUE_MAX: usize = 64 << 10;
/// Longest name, in bytes: it may hold an address.
pub const NAME_MAX: usize = 2 << 10;
/// Longest name that a person gives, in bytes.
pub(crate) const TYPED_NAME_MAX: usize = 128;
/// Secrets of one namespace: more than a machine has servers.
pub(crate) const SECRETS_MAX: usize = 1000;
/// Longest sealed text, in bytes: all of it is read and written for each change.
pub const SEALED_MAX: usize = 4 << 20;
/// Bytes of a nonce. It is chosen at random for each writing, and of 24 bytes none comes twice.
pub(crate) const NONCE_LEN: usize = 24;
/// Begins every sealed text, and names its format.
const PREFIX: &[u8] = b"mgp-secrets-1\n";

/// A set of names. None is seen from another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Namespace {
    /// What a person keeps with `mgp secrets set`, and the configuration refers to as `secret:NAME`.
    Named,
    /// Tokens that the kernel was given by authorization servers: no configuration refers to them.
    Oauth,
}

impl Namespace {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::Named, Self::Oauth];

    /// The word it is kept under.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Named => "named",
            Self::Oauth => "oauth",
        }
    }
}

/// Why something cannot be kept. Never shows a value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SecretError {
    /// No name.
    #[error("a secret has a name of 1 to {NAME_MAX} bytes without control characters")]
    InvalidName,
    /// An empty or too long value, or one with a NUL, which no variable can hold.
    #[error("the value of a secret has 1 to {VALUE_MAX} bytes and no NUL")]
    InvalidValue,
    /// The bound on the number.
    #[error("{SECRETS_MAX} secrets are kept, and no more can be; remove one")]
    TooMany,
    /// The bound on the file.
    #[error("all secrets together would have more than {SEALED_MAX} bytes; remove one")]
    TooLong,
}

/// A text that this key did not seal, or that was changed since.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it was not written with this key, or was changed since")]
pub struct UnsealError;

/// What is kept of one secret.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SecretRecord {
    /// Its value; `None` where the keyring of the desktop has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    /// When it was set, in milliseconds since 1970.
    pub set_ms: u64,
}

impl fmt::Debug for SecretRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretRecord(…)")
    }
}

/// All secrets of one namespace, by their names.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct SecretRecords(BTreeMap<String, SecretRecord>);

impl SecretRecords {
    /// The record of this name, letter by letter.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&SecretRecord> {
        self.0.get(name)
    }

    /// All names with their records, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &SecretRecord)> {
        self.0.iter().map(|(name, record)| (name.as_str(), record))
    }

    /// Keeps a record in the place of an earlier one of this name.
    ///
    /// # Errors
    /// [`SecretError`]; nothing is changed then.
    pub fn set(&mut self, name: &str, record: SecretRecord) -> Result<(), SecretError> {
        check_name(name)?;
        record.value.as_deref().map_or(Ok(()), check_value)?;
        if self.0.len() >= SECRETS_MAX && !self.0.contains_key(name) {
            return Err(SecretError::TooMany);
        }
        self.0.insert(name.to_owned(), record);
        Ok(())
    }

    /// Takes a record out.
    pub fn remove(&mut self, name: &str) -> Option<SecretRecord> {
        self.0.remove(name)
    }
}

/// Whether this can be the name of a secret.
///
/// # Errors
/// [`SecretError::InvalidName`].
pub fn check_name(name: &str) -> Result<(), SecretError> {
    let good = (1..=NAME_MAX).contains(&name.len()) && !name.contains(char::is_control);
    good.then_some(()).ok_or(SecretError::InvalidName)
}

/// Whether a person may give a secret this name: what can be typed in every shell, and looks like no other.
#[must_use]
pub fn is_typed_name(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-./@".contains(c);
    let begins = name.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_');
    begins && name.len() <= TYPED_NAME_MAX && name.chars().all(plain)
}

/// Whether this can be the value of a secret.
///
/// # Errors
/// [`SecretError::InvalidValue`].
pub fn check_value(value: &str) -> Result<(), SecretError> {
    let good = (1..=VALUE_MAX).contains(&value.len()) && !value.contains('\0');
    good.then_some(()).ok_or(SecretError::InvalidValue)
}

/// The key of a store of secrets.
pub struct SecretsKey([u8; blake3::KEY_LEN]);

impl SecretsKey {
    /// Takes 32 bytes of good randomness.
    #[must_use]
    pub fn new(bytes: [u8; blake3::KEY_LEN]) -> Self {
        Self(bytes)
    }

    /// Tells one store from another; says nothing about the key.
    #[must_use]
    pub fn fingerprint(&self) -> String {
        let mark = blake3::derive_key("mgp 2026-11 secrets: mark", &self.0);
        mark[..8].iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// The text of all secrets of a namespace.
    ///
    /// # Errors
    /// [`SecretError::PayloadTooLong`].
    ///
    /// # Panics
    /// Never: records are plain structs, and shorter than the cipher's limit.
    pub fn seal(
        &self,
        space: Namespace,
        nonce: [u8; NONCE_LEN],
        records: &SecretRecords,
    ) -> Result<Vec<u8>, SecretError> {
        let plain = serde_json::to_vec(&records.0).expect("records are always JSON");
        if plain.len() > SEALED_MAX - (1 << 10) {
            return Err(SecretError::TooLong);
        }
        let payload = Payload {
            msg: &plain,
            aad: PREFIX,
        };
        let sealed = self.cipher(space).encrypt(&XNonce::from(nonce), payload);
        let sealed = sealed.expect("it is far shorter than the cipher's limit");
        Ok([PREFIX, &nonce, &sealed].concat())
    }

    /// The secrets in a text that [`SecretsKey::seal`] made for this namespace.
    ///
    /// # Errors
    /// [`UnsealError`] for any other text.
    pub fn open(&self, space: Namespace, text: &[u8]) -> Result<SecretRecords, UnsealError> {
        let rest = text.strip_prefix(PREFIX).ok_or(UnsealError)?;
        let (nonce, sealed) = rest.split_first_chunk::<NONCE_LEN>().ok_or(UnsealError)?;
        let payload = Payload {
            msg: sealed,
            aad: PREFIX,
        };
        let plain = self.cipher(space).decrypt(&XNonce::from(*nonce), payload);
        let plain = plain.map_err(|_| UnsealError)?;
        let records = serde_json::from_slice(&plain).map_err(|_| UnsealError)?;
        Ok(SecretRecords(records))
    }

    fn cipher(&self, space: Namespace) -> XChaCha20Poly1305 {
        let context = match space {
            Namespace::Named => "mgp 2026-11 secrets: named",
            Namespace::Oauth => "mgp 2026-11 secrets: oauth",
        };
        XChaCha20Poly1305::new(&Key::from(blake3::derive_key(context, &self.0)))
    }
}

impl fmt::Debug for SecretsKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretsKey(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(value: &str) -> SecretRecord {
        SecretRecord {
            value: Some(value.to_owned()),
            set_ms: 7,
        }
    }

    fn one() -> SecretRecords {
        let mut records = SecretRecords::default();
        records.set("github", record("s3cret")).unwrap();
        records
    }

    #[test]
    fn only_the_same_key_and_namespace_open_what_was_sealed() {
        let key = SecretsKey::new([1; 32]);
        let text = key.seal(Namespace::Named, [2; 24], &one()).unwrap();
        assert!(key.open(Namespace::Named, &text).unwrap() == one());
        for secret in ["s3cret", "github"] {
            assert!(!text.windows(secret.len()).any(|w| w == secret.as_bytes()));
        }
        assert!(key.open(Namespace::Oauth, &text).is_err());
        assert!(
            SecretsKey::new([3; 32])
                .open(Namespace::Named, &text)
                .is_err()
        );
        for at in 0..text.len() {
            let mut changed = text.clone();
            changed[at] ^= 1;
            assert!(key.open(Namespace::Named, &changed).is_err(), "byte {at}");
            assert!(
                key.open(Namespace::Named, &text[..at]).is_err(),
                "cut at {at}"
            );
        }
    }

    #[test]
    fn what_cannot_be_kept_changes_nothing() {
        let mut records = one();
        let long = "x".repeat(VALUE_MAX + 1);
        for value in ["", "a\0b", &long] {
            assert_eq!(
                records.set("a", record(value)),
                Err(SecretError::InvalidValue)
            );
        }
        let long = "x".repeat(NAME_MAX + 1);
        for name in ["", "a\nb", &long] {
            assert_eq!(
                records.set(name, record("x")),
                Err(SecretError::InvalidName)
            );
        }
        for n in 1..SECRETS_MAX {
            records.set(&format!("n{n}"), record("x")).unwrap();
        }
        assert_eq!(records.set("more", record("x")), Err(SecretError::TooMany));
        records.set("github", record("new")).unwrap();
        assert_eq!(records.iter().count(), SECRETS_MAX);
    }

    #[test]
    fn the_whole_file_has_a_bound() {
        let mut records = SecretRecords::default();
        for n in 0..70 {
            let value = "x".repeat(VALUE_MAX);
            records.set(&format!("n{n}"), record(&value)).unwrap();
        }
        let sealed = SecretsKey::new([1; 32]).seal(Namespace::Named, [2; 24], &records);
        assert_eq!(sealed, Err(SecretError::TooLong));
    }

    #[test]
    fn a_typed_name_is_plain() {
        for good in [
            "github",
            "GITHUB_TOKEN",
            "a.b-c",
            "_x",
            "1",
            "github@1f/TOKEN",
        ] {
            assert!(is_typed_name(good), "{good}");
        }
        let long = "x".repeat(TYPED_NAME_MAX + 1);
        for bad in ["", "-x", ".x", "/x", "a b", "é", "a=b", "a}", &long] {
            assert!(!is_typed_name(bad), "{bad}");
        }
    }

    #[test]
    fn no_debug_shows_a_secret() {
        let shown = format!("{:?} {:?}", record("s3cret"), SecretsKey::new([7; 32]));
        assert_eq!(shown, "SecretRecord(…) SecretsKey(…)");
    }
}
