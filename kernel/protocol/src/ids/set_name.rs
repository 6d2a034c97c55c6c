//! The name of a set of servers and tools.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::describe_char;

/// A set of servers and tools: `[sets.NAME]` of `mgp.toml`. It is a part of a URL, so each name has one
/// spelling.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SetName(Arc<str>);

impl SetName {
    /// The longest name, in bytes: like a server's id.
    pub(crate) const MAX_LEN: usize = 48;

    /// Validates a name given by a person, or a segment of a URL, which is not decoded before.
    ///
    /// # Errors
    /// [`BadSetName`]: empty, too long, a character outside `[a-z0-9_-]`, or an unsafe start.
    pub fn parse(text: &str) -> Result<Self, BadSetName> {
        if text.is_empty() {
            return Err(BadSetName::Empty);
        }
        if text.len() > Self::MAX_LEN {
            return Err(BadSetName::TooLong(text.len()));
        }
        let plain = |c: &char| c.is_ascii_lowercase() || c.is_ascii_digit() || "_-".contains(*c);
        match text.chars().find(|c| !plain(c)) {
            Some(c) => Err(BadSetName::Character(c)),
            // On a command line it would be an option.
            None if text.starts_with('-') => Err(BadSetName::Option),
            None => Ok(Self(text.into())),
        }
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for SetName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// An invalid set name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadSetName {
    /// It is empty.
    #[error("the name of a set may not be empty")]
    Empty,
    /// More than [`SetName::MAX_LEN`] bytes.
    #[error("the name of a set has at most {max} characters, this one has {0}", max = SetName::MAX_LEN)]
    TooLong(usize),
    /// A character that has a second spelling in a URL, or a look-alike.
    #[error("the name of a set is made of small letters, digits, '_' and '-'; {} is none of them", describe_char(*.0))]
    Character(char),
    /// A dash at its start.
    #[error("the name of a set does not begin with '-'")]
    Option,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// With two spellings a set would have two URLs, or two sets one URL.
    #[test]
    fn set_name_has_one_spelling() {
        for name in ["reading", "a", "0", "x_y-z", "_x"] {
            assert_eq!(SetName::parse(name).unwrap().as_str(), name);
        }
        for none in [
            "",
            "Reading",
            "READING",
            "re\u{0430}ding",
            "reading\u{200b}",
            "..",
            ".",
            "a.b",
            "a/b",
            "%72eading",
            "a%2e%2e",
            "a b",
            " a",
            "a\n",
            "-a",
            "ｒeading",
        ] {
            assert!(SetName::parse(none).is_err(), "{none:?}");
        }
        assert!(SetName::parse(&"a".repeat(48)).is_ok());
        assert_eq!(
            SetName::parse(&"a".repeat(49)),
            Err(BadSetName::TooLong(49))
        );
    }
}
