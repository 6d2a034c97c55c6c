//! Encoding and decoding of messages.

use serde::Serialize;
use serde::de::DeserializeOwned;

/// The deepest nesting of a message. The deepest known message has four levels; ignored members may have
/// more.
const DEPTH_MAX: usize = 16;

/// A malformed message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a message of this protocol: {0}")]
pub struct BadMessage(pub String);

/// The longest description of a malformed message, in bytes: errors of the decoder quote the input of the
/// peer.
const ERROR_TEXT_MAX: usize = 200;

impl BadMessage {
    /// The decoder's error, truncated and sanitized.
    pub(crate) fn from_error(error: &dyn std::fmt::Display) -> Self {
        Self(to_printable(&error.to_string(), ERROR_TEXT_MAX))
    }
}

/// Sanitizes a text for people: visible ASCII and spaces, everything else escaped, truncated.
#[must_use]
pub fn to_printable(text: &str, longest: usize) -> String {
    let mut plain = String::new();
    for c in text.chars() {
        if c == ' ' || c.is_ascii_graphic() {
            plain.push(c)
        } else {
            plain.extend(c.escape_unicode())
        }
        if plain.len() > longest {
            plain.push_str("...");
            break;
        }
    }
    plain
}

/// Encodes the message as a map by name.
pub(super) fn encode<T: Serialize>(message: &T) -> Vec<u8> {
    rmp_serde::to_vec_named(message).expect("a message of this crate can always be written")
}

/// Decodes exactly one map.
pub(super) fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, BadMessage> {
    // A list of values would be read by position, with another meaning in another version.
    if !matches!(bytes.first(), Some(0x80..=0x8f | 0xde | 0xdf)) {
        return Err(BadMessage("it is no map".to_owned()));
    }
    let mut rest = bytes;
    let mut reader = rmp_serde::Deserializer::new(&mut rest);
    reader.set_max_depth(DEPTH_MAX);
    let message = T::deserialize(&mut reader).map_err(|error| BadMessage::from_error(&error))?;
    if rest.is_empty() {
        Ok(message)
    } else {
        Err(BadMessage("something follows it".to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
    struct Sample {
        id: u8,
        of: u8,
    }

    const SAMPLE: Sample = Sample { id: 1, of: 2 };

    /// FED-011: another version may have its members in another order.
    #[test]
    fn list_of_the_same_values_is_rejected() {
        let list = rmp_serde::to_vec(&SAMPLE).unwrap();
        assert_eq!(rmp_serde::from_slice::<Sample>(&list).unwrap(), SAMPLE);
        assert!(decode::<Sample>(&list).is_err());
        assert_eq!(decode(&encode(&SAMPLE)), Ok(SAMPLE));
    }

    /// An ignored member uses no more stack than a known one.
    #[test]
    fn nesting_depth_is_limited() {
        let with_member_of = |depth: usize| {
            let mut bytes = encode(&SAMPLE);
            // One more member: nested lists.
            bytes[0] += 1;
            bytes.extend(b"\xa4more");
            bytes.extend(vec![0x91; depth]);
            bytes.push(0xc0);
            bytes
        };
        assert_eq!(decode(&with_member_of(4)), Ok(SAMPLE));
        assert!(decode::<Sample>(&with_member_of(DEPTH_MAX)).is_err());
    }
}
