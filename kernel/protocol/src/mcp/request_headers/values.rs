//! The value of a header: plain if a header can hold it, else base64 between two marks.

use std::borrow::Cow;

use base64::prelude::{BASE64_STANDARD, Engine as _};

const BEGIN: &str = "=?base64?";
const END: &str = "?=";

/// A value that has the marks of base64 and is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("is not base64 of a text")]
pub(crate) struct BadValue;

/// True for the bytes a header's value may hold: visible ASCII, space and tab.
pub(super) fn is_header_byte(byte: u8) -> bool {
    matches!(byte, b' '..=b'~' | b'\t')
}

/// A text as a header's value.
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

/// The text of a header's value.
///
/// # Errors
/// It has the marks, and what is between them is no base64 or no UTF-8.
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
    fn values_are_written_as_the_specification_has_them() {
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
    fn broken_base64_is_refused_and_other_marks_are_plain() {
        for broken in ["=?base64?w6k?=", "=?base64?!?=", "=?base64?/w==?="] {
            assert_eq!(decode(broken), Err(BadValue), "{broken}");
        }
        for plain in ["=?BASE64?w6k=?=", "=?base64?w6k=", "=?base64?="] {
            assert_eq!(decode(plain).unwrap(), plain);
        }
    }

    proptest! {
        #[test]
        fn what_is_encoded_is_a_header_and_decodes_to_itself(text in "(=\\?base64\\?)?\\PC*[ \t]?(\\?=)?") {
            let value = encode(&text);
            prop_assert!(value.bytes().all(is_header_byte));
            prop_assert_eq!(value.trim_matches([' ', '\t']), &*value);
            prop_assert_eq!(&*decode(&value).unwrap(), &*text);
        }
    }
}
