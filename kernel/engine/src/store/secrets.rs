//! Secrets by name: valid names and values, limits, and the encrypted file of each namespace.
//!
//! The whole file is one message of XChaCha20-Poly1305 under a key of its namespace: without the key, neither values nor
//! names are readable, and a file that was changed, or moved to another namespace, does not open.

use std::collections::BTreeMap;
use std::fmt;

use chacha20poly1305::aead::{Aead, Payload};
use chacha20poly1305::{Key, KeyInit, XChaCha20Poly1305, XNonce};
use mgp_protocol::ids::AgentId;
use serde::{Deserialize, Serialize};

/// Longest value, in bytes: a private key or a token of many claims.
pub const VALUE_MAX: usize = 64 << 10;
/// Longest name, in bytes: it may hold an address.
pub(crate) const NAME_MAX: usize = 2 << 10;
/// Longest name given by a person, in bytes.
pub(crate) const TYPED_NAME_MAX: usize = 128;
/// Most secrets of one namespace: more than a machine has servers.
pub(crate) const SECRETS_MAX: usize = 1000;
/// Largest file, in bytes: each change reads and writes all of it.
pub const SEALED_MAX: usize = 4 << 20;
/// Bytes of a nonce: random for each write, and long enough never to repeat.
pub(crate) const NONCE_LEN: usize = 24;
/// The first bytes of every file, with the version of the format.
const PREFIX: &[u8] = b"mgp-secrets-1\n";

/// An isolated set of names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Namespace {
    /// Secrets that a person stores with `mgp secrets set`, and the configuration references as `secret:NAME`.
    Named,
    /// Tokens from authorization servers: the configuration cannot reference them.
    Oauth,
}

impl Namespace {
    /// All namespaces.
    pub const ALL: [Self; 2] = [Self::Named, Self::Oauth];

    /// The name in file names and keys.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Named => "named",
            Self::Oauth => "oauth",
        }
    }
}

/// Why a secret cannot be stored. Never contains a value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SecretError {
    /// The name is not valid.
    #[error("a secret has a name of 1 to {NAME_MAX} bytes without control characters")]
    InvalidName,
    /// An empty or too long value, or one with a NUL, which no variable can hold.
    #[error("the value of a secret has 1 to {VALUE_MAX} bytes and no NUL")]
    InvalidValue,
    /// [`SECRETS_MAX`] is reached.
    #[error("{SECRETS_MAX} secrets are kept, and no more can be; remove one")]
    TooMany,
    /// [`SEALED_MAX`] is reached.
    #[error("all secrets together would have more than {SEALED_MAX} bytes; remove one")]
    TooLong,
}

/// The text was not sealed with this key, or was changed since.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it was not written with this key, or was changed since")]
pub struct UnsealError;

/// One stored secret.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SecretRecord {
    /// The value; `None` if it is in the keyring of the desktop.
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
    /// The record with exactly this name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&SecretRecord> {
        self.0.get(name)
    }

    /// All names with their records, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &SecretRecord)> {
        self.0.iter().map(|(name, record)| (name.as_str(), record))
    }

    /// Stores a record, and replaces an earlier one of this name.
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

    /// Removes a record.
    pub fn remove(&mut self, name: &str) -> Option<SecretRecord> {
        self.0.remove(name)
    }
}

/// Validates the name of a secret.
///
/// # Errors
/// [`SecretError::InvalidName`].
pub fn check_name(name: &str) -> Result<(), SecretError> {
    let is_valid = (1..=NAME_MAX).contains(&name.len()) && !name.contains(char::is_control);
    is_valid.then_some(()).ok_or(SecretError::InvalidName)
}

/// The name under which a secret of one agent is stored. No typed name has a colon.
#[must_use]
pub fn agent_secret_name(agent: &AgentId, name: &str) -> String {
    format!("{agent}:{name}")
}

/// The agent and the name of a stored secret that is one agent's.
#[must_use]
pub fn split_agent_secret(stored: &str) -> Option<(&str, &str)> {
    stored.split_once(':')
}

/// Whether a person may use this name: easy to type in every shell, and not confusable with another.
#[must_use]
pub fn is_typed_name(name: &str) -> bool {
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || "_-./@".contains(c);
    let has_valid_start = name.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_');
    has_valid_start && name.len() <= TYPED_NAME_MAX && name.chars().all(is_allowed)
}

/// Validates the value of a secret.
///
/// # Errors
/// [`SecretError::InvalidValue`].
pub fn check_value(value: &str) -> Result<(), SecretError> {
    let is_valid = (1..=VALUE_MAX).contains(&value.len()) && !value.contains('\0');
    is_valid.then_some(()).ok_or(SecretError::InvalidValue)
}

/// The key of a store of secrets.
pub struct SecretsKey([u8; blake3::KEY_LEN]);

impl SecretsKey {
    /// Takes 32 random bytes.
    #[must_use]
    pub fn new(bytes: [u8; blake3::KEY_LEN]) -> Self {
        Self(bytes)
    }

    /// Identifies the store; reveals nothing about the key.
    #[must_use]
    pub fn fingerprint(&self) -> String {
        let digest = blake3::derive_key("mgp 2026-11 secrets: mark", &self.0);
        digest[..8]
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect()
    }

    /// Encrypts all secrets of a namespace.
    ///
    /// # Errors
    /// [`SecretError::TooLong`].
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
        let sealed = sealed.expect("shorter than the cipher's limit");
        Ok([PREFIX, &nonce, &sealed].concat())
    }

    /// Decrypts a text that [`SecretsKey::seal`] made for this namespace.
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
    fn a_rejected_secret_changes_nothing() {
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
    fn the_file_size_is_bounded() {
        let mut records = SecretRecords::default();
        for n in 0..70 {
            let value = "x".repeat(VALUE_MAX);
            records.set(&format!("n{n}"), record(&value)).unwrap();
        }
        let sealed = SecretsKey::new([1; 32]).seal(Namespace::Named, [2; 24], &records);
        assert_eq!(sealed, Err(SecretError::TooLong));
    }

    #[test]
    fn a_typed_name_has_only_plain_characters() {
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
    fn debug_output_contains_no_secret() {
        let shown = format!("{:?} {:?}", record("s3cret"), SecretsKey::new([7; 32]));
        assert_eq!(shown, "SecretRecord(…) SecretsKey(…)");
    }
}
