//! The recovery key of a cluster, stored offline by a person.

use std::fmt;

use mgp_engine::node_key::{NodeKey, PublicKey};
use mgp_protocol::ids::hex::digit;
use mgp_runtime::randomness;

/// The prefix of its text, so that it is recognized.
const PREFIX: &str = "mgp-recovery-";

/// Recovers a cluster when no admin is left: it can make a node an admin. Never on the disk of a node.
pub struct RecoveryKey {
    key: NodeKey,
    secret: [u8; 32],
}

impl RecoveryKey {
    pub(super) fn generate() -> Self {
        Self::from_secret(randomness::random_bytes())
    }

    fn from_secret(secret: [u8; 32]) -> Self {
        let key = NodeKey::new(&secret);
        Self { key, secret }
    }

    /// Parses the text, in either case and with white space and `-` anywhere.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let plain = text.chars().filter(char::is_ascii_alphanumeric);
        let plain: String = plain.map(|c| c.to_ascii_lowercase()).collect();
        let digits = plain.strip_prefix("mgprecovery").unwrap_or(&plain);
        let mut secret = [0; 32];
        if digits.len() != 2 * secret.len() {
            return None;
        }
        for (byte, pair) in secret.iter_mut().zip(digits.as_bytes().chunks_exact(2)) {
            *byte = digit(pair[0])? << 4 | digit(pair[1])?;
        }
        Some(Self::from_secret(secret))
    }

    /// Renders the text to write down.
    #[must_use]
    pub fn render(&self) -> String {
        let digits = self.secret.iter().map(|byte| format!("{byte:02x}"));
        let digits: Vec<String> = digits.collect();
        let parts: Vec<String> = digits.chunks(4).map(<[String]>::concat).collect();
        format!("{PREFIX}{}", parts.join("-"))
    }

    pub(super) fn public(&self) -> PublicKey {
        self.key.public_key()
    }

    pub(super) fn key(&self) -> &NodeKey {
        &self.key
    }
}

impl fmt::Debug for RecoveryKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RecoveryKey(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recovery_key_is_parsed_in_any_case_and_spacing() {
        let key = RecoveryKey::generate();
        let text = key.render();
        let typed = text.to_uppercase().replace('-', " ");
        for text in [text.clone(), typed, text.replace(PREFIX, "\n")] {
            let read = RecoveryKey::parse(&text).unwrap();
            assert_eq!(read.public(), key.public(), "{text}");
        }
        assert!(RecoveryKey::parse(&text[1..]).is_none());
        assert!(RecoveryKey::parse(&text[..text.len() - 1]).is_none());
        assert!(RecoveryKey::parse("").is_none());
        assert!(!format!("{key:?}").contains(&text[PREFIX.len()..]));
    }
}
