//! Names of things, as types: an agent can never be passed where a server is meant.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

macro_rules! text_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(Arc<str>);

        impl $name {
            /// Wraps a text that its maker has already judged.
            #[must_use]
            pub fn new(text: impl Into<Arc<str>>) -> Self {
                Self(text.into())
            }

            /// The text itself.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl std::borrow::Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }
    };
}

text_id! {
    /// A client that calls tools, as the door knows it. Never taken from a body.
    AgentId
}
text_id! {
    /// A configured or registered server: `[[servers]] id` of `mgp.toml`.
    ServerId
}
text_id! {
    /// A legacy HTTP session (`Mcp-Session-Id`): visible ASCII, unguessable.
    SessionId
}

/// One connection of one agent: what calls, subscriptions and questions are attributed to.
///
/// Minted by the kernel, never shown on a wire and never reused while the kernel runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ConnectionId(pub u64);

impl ServerId {
    /// Longest id accepted, in bytes: leaves room for a tool's name within the 64 characters that
    /// most model APIs allow.
    pub const MAX_LEN: usize = 48;

    /// Judges an id given by a person or a program.
    ///
    /// # Errors
    /// [`BadServerId`] says what is wrong: empty, too long, or a character outside
    /// `[A-Za-z0-9._-]`.
    pub fn parse(text: &str) -> Result<Self, BadServerId> {
        if text.is_empty() {
            return Err(BadServerId::Empty);
        }
        if text.len() > Self::MAX_LEN {
            return Err(BadServerId::TooLong(text.len()));
        }
        match text
            .chars()
            .find(|c| !(c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-')))
        {
            Some(c) => Err(BadServerId::Character(c)),
            None => Ok(Self::new(text)),
        }
    }
}

/// Why a text is no server id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadServerId {
    /// Nothing there.
    #[error("a server id may not be empty")]
    Empty,
    /// More than [`ServerId::MAX_LEN`] bytes.
    #[error("a server id has at most {max} characters, this one has {0}", max = ServerId::MAX_LEN)]
    TooLong(usize),
    /// A character that would not survive in a tool's name or a path.
    #[error("a server id is made of letters, digits, '.', '_' and '-'; {0:?} is none of them")]
    Character(char),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn server_ids_are_judged_by_length_and_alphabet() {
        assert!(ServerId::parse("mind.cerebras").is_ok());
        assert_eq!(ServerId::parse(""), Err(BadServerId::Empty));
        assert_eq!(ServerId::parse("../x"), Err(BadServerId::Character('/')));
        assert_eq!(
            ServerId::parse(&"a".repeat(49)),
            Err(BadServerId::TooLong(49))
        );
    }
}
