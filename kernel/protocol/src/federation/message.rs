//! Messages as bytes.

use serde::Serialize;
use serde::de::DeserializeOwned;

/// Deepest nesting of a message. The deepest of ours has four levels; what is passed over may have more.
const DEPTH_MAX: usize = 16;

/// Not a message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a message of this protocol: {0}")]
pub struct BadMessage(pub String);

/// Longest text of what is wrong with a message, in bytes: errors of the decoder quote what they found, and who
/// sent it chose that.
const ERROR_TEXT_MAX: usize = 200;

impl BadMessage {
    /// What a reader found, cut short and without anything that looks like something else.
    pub(crate) fn from_error(error: &dyn std::fmt::Display) -> Self {
        Self(to_printable(&error.to_string(), ERROR_TEXT_MAX))
    }
}

/// A text as it may be shown to people: visible ASCII and spaces, all else escaped, and not endless.
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

/// The message as a map by name.
pub(super) fn encode<T: Serialize>(message: &T) -> Vec<u8> {
    rmp_serde::to_vec_named(message).expect("a message of this crate can always be written")
}

/// Reads exactly one map.
pub(super) fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, BadMessage> {
    // A list of values would be read by position, and mean another thing to another version.
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
    struct Told {
        id: u8,
        of: u8,
    }

    const TOLD: Told = Told { id: 1, of: 2 };

    /// FED-011: another version may have its members in another order.
    #[test]
    fn a_list_of_the_same_values_is_no_message() {
        let list = rmp_serde::to_vec(&TOLD).unwrap();
        assert_eq!(rmp_serde::from_slice::<Told>(&list).unwrap(), TOLD);
        assert!(decode::<Told>(&list).is_err());
        assert_eq!(decode(&encode(&TOLD)), Ok(TOLD));
    }

    /// A member that is passed over takes no more of the stack than those that are read.
    #[test]
    fn a_message_is_as_deep_as_it_may_be_and_no_deeper() {
        let with_member_of = |depth: usize| {
            let mut bytes = encode(&TOLD);
            // One member more: so many lists, one in the other.
            bytes[0] += 1;
            bytes.extend(b"\xa4more");
            bytes.extend(vec![0x91; depth]);
            bytes.push(0xc0);
            bytes
        };
        assert_eq!(decode(&with_member_of(4)), Ok(TOLD));
        assert!(decode::<Told>(&with_member_of(DEPTH_MAX)).is_err());
    }
}
