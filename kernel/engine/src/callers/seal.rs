//! Seals small records that the kernel hands out and gets back: encrypted, authenticated and bound to the principal
//! they are issued to. The `requestState` of suspended calls and the ids of tasks are sealed this way.
//!
//! The nonce is derived from the record, so that the same record always has the same text and a task keeps
//! its id. This reveals only whether two texts hold the same record.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use chacha20poly1305::aead::{Aead, Payload};
use chacha20poly1305::{Key, KeyInit, XChaCha20Poly1305, XNonce};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Longest text that is opened, in bytes. A record holds at most one name chosen by a server, which is bounded where
/// it is parsed.
pub(crate) const SEALED_MAX: usize = 16 << 10;
/// The prefix of all sealed texts: the version of the format.
const PREFIX: &str = "mgp1.";
/// Bytes after the prefix that identify the key: a kernel may be the upstream of another one. They are whole
/// characters of the text.
const KEY_ID_LEN: usize = 6;
const NONCE_LEN: usize = 24;

/// The kernel's secret for sealed records. A new one makes all earlier texts invalid.
#[derive(Clone)]
pub struct SealKey {
    cipher: [u8; blake3::KEY_LEN],
    nonce: [u8; blake3::KEY_LEN],
    key_id: [u8; KEY_ID_LEN],
}

/// The purpose of a text; a text for one purpose cannot be opened for another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// `requestState` of a call.
    RequestState,
    /// The id of a task.
    Task,
    /// A promise of MCP-lite.
    Promise,
    /// The cursor of an event.
    Event,
    /// The id of a client that registered at the broker.
    BrokerClient,
    /// A sign-in under way, stored by the browser.
    BrokerSignIn,
    /// An access token of the broker.
    BrokerAccess,
    /// A refresh token of the broker.
    BrokerRefresh,
}

/// The text was not sealed by this kernel for this caller and purpose. The message is the same for every cause, so
/// that probing reveals nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it was not given to this caller by this kernel, or is not valid any more")]
pub struct BadSeal;

impl SealKey {
    /// Takes 32 bytes of good randomness.
    #[must_use]
    pub fn new(bytes: [u8; blake3::KEY_LEN]) -> Self {
        let mark = blake3::derive_key("mgp 2026-11 sealed records: mark", &bytes);
        let (mark, _) = mark.split_first_chunk().expect("a key is longer");
        Self {
            cipher: blake3::derive_key("mgp 2026-11 sealed records: cipher", &bytes),
            nonce: blake3::derive_key("mgp 2026-11 sealed records: nonce", &bytes),
            key_id: *mark,
        }
    }

    /// True when a text looks as if it was sealed with this key; only [`SealKey::open`] proves it. False for a text
    /// of another kernel.
    #[must_use]
    pub fn is_ours(&self, text: &str) -> bool {
        let coded = text.strip_prefix(PREFIX);
        coded.is_some_and(|coded| coded.starts_with(&URL_SAFE_NO_PAD.encode(self.key_id)))
    }

    /// The text for a record: visible ASCII, the same for the same record, purpose and principal. `bound_to` is the
    /// principal it is issued to.
    ///
    /// # Panics
    /// When the record cannot be written as JSON; records are plain structs.
    #[must_use]
    pub fn seal<T: Serialize>(&self, purpose: Purpose, bound_to: &str, record: &T) -> String {
        let plain = serde_json::to_vec(record).expect("a record is always JSON");
        let bound = associated_data(purpose, bound_to);
        let nonce = self.nonce(&bound, &plain);
        let payload = Payload {
            msg: &plain,
            aad: &bound,
        };
        let sealed = self
            .cipher()
            .encrypt(&XNonce::from(nonce), payload)
            .expect("a record is far shorter than the cipher's limit");
        let mut text = PREFIX.to_owned();
        URL_SAFE_NO_PAD.encode_string([&self.key_id[..], &nonce, &sealed].concat(), &mut text);
        text
    }

    /// Opens a text that comes from a client and returns its record.
    ///
    /// # Errors
    /// [`BadSeal`] for a text that [`SealKey::seal`] did not make with the same key, purpose and principal, and for
    /// texts of more than [`SEALED_MAX`] bytes.
    pub fn open<T: DeserializeOwned>(
        &self,
        purpose: Purpose,
        bound_to: &str,
        text: &str,
    ) -> Result<T, BadSeal> {
        if text.len() > SEALED_MAX {
            return Err(BadSeal);
        }
        let coded = text.strip_prefix(PREFIX).ok_or(BadSeal)?;
        let bytes = URL_SAFE_NO_PAD.decode(coded).map_err(|_| BadSeal)?;
        let bytes = bytes.strip_prefix(&self.key_id).ok_or(BadSeal)?;
        let (nonce, sealed) = bytes.split_first_chunk::<NONCE_LEN>().ok_or(BadSeal)?;
        let payload = Payload {
            msg: sealed,
            aad: &associated_data(purpose, bound_to),
        };
        let plain = self
            .cipher()
            .decrypt(&XNonce::from(*nonce), payload)
            .map_err(|_| BadSeal)?;
        serde_json::from_slice(&plain).map_err(|_| BadSeal)
    }

    fn cipher(&self) -> XChaCha20Poly1305 {
        XChaCha20Poly1305::new(&Key::from(self.cipher))
    }

    fn nonce(&self, bound: &[u8], plain: &[u8]) -> [u8; NONCE_LEN] {
        let mut hasher = blake3::Hasher::new_keyed(&self.nonce);
        // The length separates the two fields.
        hasher.update(&(bound.len() as u64).to_le_bytes());
        hasher.update(bound);
        hasher.update(plain);
        let mut nonce = [0; NONCE_LEN];
        hasher.finalize_xof().fill(&mut nonce);
        nonce
    }
}

impl fmt::Debug for SealKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SealKey(…)")
    }
}

/// Purpose and principal as the associated data. No purpose contains a NUL.
fn associated_data(purpose: Purpose, bound_to: &str) -> Vec<u8> {
    let purpose = match purpose {
        Purpose::RequestState => "state",
        Purpose::Task => "task",
        Purpose::Promise => "promise",
        Purpose::Event => "event",
        Purpose::BrokerClient => "broker client",
        Purpose::BrokerSignIn => "broker sign-in",
        Purpose::BrokerAccess => "broker access",
        Purpose::BrokerRefresh => "broker refresh",
    };
    [purpose.as_bytes(), b"\0", bound_to.as_bytes()].concat()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde::Deserialize;

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct SealedRecord {
        call: u64,
        words: String,
    }

    fn key() -> SealKey {
        SealKey::new([7; 32])
    }

    fn record() -> SealedRecord {
        SealedRecord {
            call: u64::MAX,
            words: "file:///ü \"x\"".into(),
        }
    }

    fn open(
        key: &SealKey,
        purpose: Purpose,
        principal: &str,
        text: &str,
    ) -> Result<SealedRecord, BadSeal> {
        key.open(purpose, principal, text)
    }

    /// So a task keeps its id, which reveals nothing.
    #[test]
    fn the_same_record_has_the_same_text() {
        let text = key().seal(Purpose::Task, "ann", &record());
        assert_eq!(text, key().seal(Purpose::Task, "ann", &record()));
        assert_eq!(open(&key(), Purpose::Task, "ann", &text), Ok(record()));
        assert!(key().is_ours(&text) && !key().is_ours("786512e2-9e0d"));
        assert!(
            !SealKey::new([8; 32]).is_ours(&text),
            "that of another kernel"
        );
        let clean = |b: u8| b.is_ascii_alphanumeric() || b"-_.".contains(&b);
        assert!(text.bytes().all(clean), "{text}");
        let other = SealedRecord {
            call: 1,
            ..record()
        };
        assert_ne!(text, key().seal(Purpose::Task, "ann", &other));
        assert_ne!(text, key().seal(Purpose::Task, "bob", &record()));
    }

    /// A reused nonce would reveal both.
    #[test]
    fn no_two_records_share_a_nonce() {
        let nonce = |purpose, principal: &str, call| {
            let words = String::new();
            let text = key().seal(purpose, principal, &SealedRecord { call, words });
            let bytes = URL_SAFE_NO_PAD.decode(&text[PREFIX.len()..]).unwrap();
            bytes[KEY_ID_LEN..][..NONCE_LEN].to_vec()
        };
        let nonces = [
            nonce(Purpose::Task, "ann", 1),
            nonce(Purpose::Task, "ann", 2),
            nonce(Purpose::Task, "bob", 1),
            nonce(Purpose::RequestState, "ann", 1),
        ];
        let different: std::collections::BTreeSet<_> = nonces.iter().collect();
        assert_eq!(different.len(), nonces.len());
    }

    #[test]
    fn a_text_is_for_one_key_one_principal_and_one_purpose() {
        let text = key().seal(Purpose::RequestState, "ann", &record());
        assert_eq!(
            open(&key(), Purpose::RequestState, "ann", &text),
            Ok(record())
        );
        for (key, purpose, principal) in [
            (SealKey::new([8; 32]), Purpose::RequestState, "ann"),
            (key(), Purpose::Task, "ann"),
            (key(), Purpose::RequestState, "bob"),
            (key(), Purpose::RequestState, ""),
            (key(), Purpose::RequestState, "ann\0"),
        ] {
            assert_eq!(open(&key, purpose, principal, &text), Err(BadSeal));
        }
        #[derive(Debug, PartialEq, Deserialize)]
        struct Another {
            #[serde(rename = "else")]
            _other: bool,
        }
        let another = key().open::<Another>(Purpose::RequestState, "ann", &text);
        assert_eq!(another, Err(BadSeal));
    }

    /// Or a truncated one.
    #[test]
    fn a_changed_text_is_refused() {
        let text = key().seal(Purpose::RequestState, "ann", &record());
        for at in 0..text.len() {
            for to in ["A", "B", "-"] {
                let mut changed = text.clone();
                changed.replace_range(at..=at, to);
                let opened = open(&key(), Purpose::RequestState, "ann", &changed);
                assert_eq!(opened.is_ok(), changed == text, "{at} {to}");
            }
            let opened = open(&key(), Purpose::RequestState, "ann", &text[..at]);
            assert_eq!(opened, Err(BadSeal), "cut at {at}");
        }
        let longer = format!("{text}A");
        assert_eq!(
            open(&key(), Purpose::RequestState, "ann", &longer),
            Err(BadSeal)
        );
    }

    #[test]
    fn a_text_over_the_bound_is_not_opened() {
        let of = |size: usize| SealedRecord {
            call: 0,
            words: "x".repeat(size),
        };
        let fits = key().seal(Purpose::RequestState, "ann", &of(11_000));
        assert!(fits.len() < SEALED_MAX);
        assert!(open(&key(), Purpose::RequestState, "ann", &fits).is_ok());
        let large = key().seal(Purpose::RequestState, "ann", &of(13_000));
        assert!(large.len() > SEALED_MAX);
        assert_eq!(
            open(&key(), Purpose::RequestState, "ann", &large),
            Err(BadSeal)
        );
    }

    proptest! {
        #[test]
        fn opening_arbitrary_text_does_not_panic(text in "(mgp1\\.)?\\PC{0,80}") {
            prop_assert_eq!(open(&key(), Purpose::Task, "ann", &text), Err(BadSeal));
        }
    }
}
