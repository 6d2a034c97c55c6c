//! Byte ids, formatted and parsed as hexadecimal digits.

/// Invalid hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it is not made of the right number of hexadecimal digits")]
pub struct BadDigits;

/// Defines an id type with a number of bytes.
#[macro_export]
macro_rules! hex_id {
    ($(#[$doc:meta])* $name:ident, $bytes:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
        #[serde(into = "String", try_from = "String")]
        pub struct $name(pub [u8; $bytes]);

        impl $name {
            /// Parses the hexadecimal form.
            #[must_use]
            pub fn parse(text: &str) -> Option<Self> {
                let text = text.as_bytes();
                let mut bytes = [0; $bytes];
                if text.len() != 2 * bytes.len() {
                    return None;
                }
                for (byte, pair) in bytes.iter_mut().zip(text.chunks_exact(2)) {
                    *byte = $crate::ids::hex::digit(pair[0])? << 4 | $crate::ids::hex::digit(pair[1])?;
                }
                Some(Self(bytes))
            }
        }

        /// Ordered by bytes. The first ones nearly always decide, and take one comparison.
        impl Ord for $name {
            #[inline]
            fn cmp(&self, other: &Self) -> std::cmp::Ordering {
                let first = |id: &Self| id.0.first_chunk().map(|first| u64::from_be_bytes(*first));
                let by_first = first(self).cmp(&first(other));
                by_first.then_with(|| self.0.cmp(&other.0))
            }
        }

        impl PartialOrd for $name {
            #[inline]
            fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
                Some(self.cmp(other))
            }
        }

        impl From<$name> for String {
            fn from(digest: $name) -> Self {
                digest.to_string()
            }
        }

        impl TryFrom<String> for $name {
            type Error = $crate::ids::hex::BadDigits;

            fn try_from(text: String) -> Result<Self, Self::Error> {
                Self::parse(&text).ok_or($crate::ids::hex::BadDigits)
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                let mut digits = [0; 2 * $bytes];
                for (pair, byte) in digits.chunks_exact_mut(2).zip(self.0) {
                    pair.copy_from_slice(&$crate::ids::hex::digits(byte));
                }
                f.write_str(std::str::from_utf8(&digits).map_err(|_| std::fmt::Error)?)
            }
        }

        impl std::fmt::Debug for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                write!(f, "{}({self})", stringify!($name))
            }
        }
    };
}

/// The two digits of a byte.
#[must_use]
pub fn digits(byte: u8) -> [u8; 2] {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    [byte >> 4, byte & 15].map(|half| DIGITS[usize::from(half)])
}

/// The value of one digit.
#[must_use]
pub fn digit(value: u8) -> Option<u8> {
    match value {
        b'0'..=b'9' => Some(value - b'0'),
        b'a'..=b'f' => Some(value - b'a' + 10),
        _ => None,
    }
}
