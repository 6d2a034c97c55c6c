//! The encoding of header values: plain if possible, otherwise base64 between two markers.

use std::borrow::Cow;

use base64::prelude::{BASE64_STANDARD, Engine as _};

const BEGIN: &str = "=?base64?";
const END: &str = "?=";

/// A value with the base64 markers and invalid content.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("is not base64 of a text")]
pub(crate) struct BadValue;

/// True for bytes that a header's value may contain: visible ASCII, space and tab.
pub(super) fn is_header_byte(byte: u8) -> bool {
    matches!(byte, b' '..=b'~' | b'\t')
}

/// Encodes a text as a header's value.
#[must_use]
pub(crate) fn encode(text: &str) -> Cow<'_, str> {
    let padded = text.starts_with([' ', '\t']) || text.ends_with([' ', '\t']);
    // A text that looks encoded would be decoded.
    let marked = text.starts_with(BEGIN) && text.ends_with(END);
    if text.bytes().all(is_header_byte) && !padded && !marked {
        return Cow::Borrowed(text);
    }
    Cow::Owned(format!("{BEGIN}{}{END}", BASE64_STANDARD.encode(text)))
}

/// Decodes a header's value.
///
/// # Errors
/// It has the markers, and invalid base64 or UTF-8 between them.
pub(crate) fn decode(value: &str) -> Result<Cow<'_, str>, BadValue> {
    let coded = value
        .strip_prefix(BEGIN)
        .and_then(|rest| rest.strip_suffix(END));
    let Some(coded) = coded else {
        return Ok(Cow::Borrowed(value));
    };
    let bytes = BASE64_STANDARD.decode(coded).map_err(|_| BadValue)?;
    String::from_utf8(bytes)
        .map(Cow::Owned)
        .map_err(|_| BadValue)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The examples of the specification.
    #[test]
    fn values_are_encoded_as_in_the_specification() {
        for (text, value) in [
            ("us-west1", "us-west1"),
            ("Hello, 世界", "=?base64?SGVsbG8sIOS4lueVjA==?="),
            (" padded ", "=?base64?IHBhZGRlZCA=?="),
            ("line1\nline2", "=?base64?bGluZTEKbGluZTI=?="),
            ("=?base64?literal?=", "=?base64?PT9iYXNlNjQ/bGl0ZXJhbD89?="),
        ] {
            assert_eq!(encode(text), value);
            assert_eq!(decode(value).unwrap(), text);
        }
    }

    #[test]
    fn invalid_base64_is_rejected_and_other_markers_are_plain() {
        for broken in ["=?base64?w6k?=", "=?base64?!?=", "=?base64?/w==?="] {
            assert_eq!(decode(broken), Err(BadValue), "{broken}");
        }
        for plain in ["=?BASE64?w6k=?=", "=?base64?w6k=", "=?base64?="] {
            assert_eq!(decode(plain).unwrap(), plain);
        }
    }

    proptest! {
        #[test]
        fn encoded_value_is_a_valid_header_and_round_trips(text in "(=\\?base64\\?)?\\PC*[ \t]?(\\?=)?") {
            let value = encode(&text);
            prop_assert!(value.bytes().all(is_header_byte));
            prop_assert_eq!(value.trim_matches([' ', '\t']), &*value);
            prop_assert_eq!(&*decode(&value).unwrap(), &*text);
        }
    }
}
