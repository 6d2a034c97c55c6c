//! Ids as newtypes, so that an agent cannot be passed in place of a server.

mod group_name;
pub mod hex;
mod node_scoped_names;
mod set_name;

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

pub use self::group_name::{BadGroupName, GroupName};
pub use self::node_scoped_names::{NodeAgent, NodeId, NodeServer};
pub use self::set_name::SetName;

macro_rules! text_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(Arc<str>);

        impl $name {
            /// Wraps a text that was validated before.
            #[must_use]
            pub fn new(text: impl Into<Arc<str>>) -> Self {
                Self(text.into())
            }

            /// The text.
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
    /// A client that calls tools, as authenticated by the endpoint. Never read from a body.
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

/// One connection of one agent, to which calls, subscriptions and callbacks are attributed.
///
/// Assigned by the kernel, never sent on a wire and never reused while the kernel runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ConnectionId(pub u64);

impl ServerId {
    /// The longest id, in bytes: leaves capacity for a tool's name within the 64 characters that most model
    /// APIs allow.
    pub const MAX_LEN: usize = 48;

    /// Validates an id given by a person or a program.
    ///
    /// # Errors
    /// [`BadServerId`]: empty, too long, or a character outside `[A-Za-z0-9._-]`.
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
            // In a path it would be another folder.
            None if text.bytes().all(|byte| byte == b'.') => Err(BadServerId::Dots),
            None => Ok(Self::new(text)),
        }
    }

    /// The separator between a server's id and the key of an instance; not allowed in ids.
    const INSTANCE: char = '~';

    /// The id of the instance of this server with the key `whose`.
    #[must_use]
    pub fn instance(&self, whose: &str) -> Self {
        Self::new(format!("{self}{}{whose}", Self::INSTANCE))
    }

    /// The id of the server of an instance, or the id itself.
    #[must_use]
    pub fn server(&self) -> Self {
        match self.0.split_once(Self::INSTANCE) {
            Some((server, _)) => Self::new(server),
            None => self.clone(),
        }
    }

    /// The separator between a node's name and the id of its server; not allowed in ids.
    const NODE: char = '/';

    /// The id of a server of the node with the local name `node`.
    #[must_use]
    pub fn new_remote(node: &str, server: &Self) -> Self {
        Self::new(format!("{node}{}{server}", Self::NODE))
    }

    /// Validates the id of a server of this node, or of another one after its node's name: `demo`,
    /// `nas/demo`.
    ///
    /// # Errors
    /// [`BadServerId`] of the invalid part.
    pub fn parse_local_or_remote(text: &str) -> Result<Self, BadServerId> {
        match text.split_once(Self::NODE) {
            None => Self::parse(text),
            Some((node, server)) => {
                let node = Self::parse(node)?;
                Ok(Self::new_remote(node.as_str(), &Self::parse(server)?))
            }
        }
    }

    /// The local name of the node that runs the server, and the server's id there; `None` for a server of
    /// this node.
    #[must_use]
    pub fn remote_parts(&self) -> Option<(&str, Self)> {
        let (node, server) = self.0.split_once(Self::NODE)?;
        Some((node, Self::new(server)))
    }

    /// True for a server of another node.
    #[must_use]
    pub fn is_remote(&self) -> bool {
        self.0.contains(Self::NODE)
    }

    /// True for the id of an instance.
    #[must_use]
    pub fn is_instance(&self) -> bool {
        self.0.contains(Self::INSTANCE)
    }
}

/// An invalid server id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadServerId {
    /// It is empty.
    #[error("a server id may not be empty")]
    Empty,
    /// More than [`ServerId::MAX_LEN`] bytes.
    #[error("a server id has at most {max} characters, this one has {0}", max = ServerId::MAX_LEN)]
    TooLong(usize),
    /// A character that is not allowed in a tool's name or a path.
    #[error("a server id is made of letters, digits, '.', '_' and '-'; {} is none of them", describe_char(*.0))]
    Character(char),
    /// Only dots.
    #[error("a server id is not made of dots alone")]
    Dots,
}

/// Describes a character in an error; a look-alike with its code point.
#[must_use]
pub fn describe_char(c: char) -> String {
    if c.is_ascii() {
        format!("{c:?}")
    } else {
        format!("{c:?} (U+{:04X})", u32::from(c))
    }
}

impl AgentId {
    /// The prefix of every agent's id.
    pub const PREFIX: &str = "agent.";
    /// The longest name after the prefix, in bytes.
    pub(crate) const MAX_NAME: usize = 128;
    /// The caller with the kernel's own token.
    pub const LOCAL: &str = "agent.local";
    /// Every caller at an endpoint without authentication.
    pub const ANONYMOUS: &str = "agent.anonymous";

    /// Reserved names of built-in identities.
    const RESERVED: [&str; 4] = ["local", "anonymous", "operator", "kernel"];

    /// Validates a name given by a person, with or without the prefix.
    ///
    /// # Errors
    /// [`BadAgentName`].
    pub fn parse(text: &str) -> Result<Self, BadAgentName> {
        let name = text.strip_prefix(Self::PREFIX).unwrap_or(text);
        if name.starts_with(Self::PREFIX) {
            return Err(BadAgentName::DoublePrefix);
        }
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
        match name.chars().find(|c| !plain(*c)) {
            Some(c) => Err(BadAgentName::Character(c)),
            None => Self::from_subject(name),
        }
    }

    /// Parses a configured name: like [`Self::parse`], but a name with other characters, such as
    /// `alice@corp`, is a subject of another authority, also in its printed form (`alice%40corp`).
    ///
    /// # Errors
    /// As [`Self::parse`], except for characters.
    pub fn parse_or_from_subject(text: &str) -> Result<Self, BadAgentName> {
        match Self::parse(text) {
            Err(BadAgentName::Character(_)) => {}
            read => return read,
        }
        let name = text.strip_prefix(Self::PREFIX).unwrap_or(text);
        let mut subject = Vec::with_capacity(name.len());
        let mut rest = name.as_bytes();
        while let [first, after @ ..] = rest {
            let hex = |at: usize| {
                after
                    .get(at)
                    .and_then(|byte| char::from(*byte).to_digit(16))
            };
            let pair = hex(0).zip(hex(1)).filter(|_| *first == b'%');
            let byte = pair.and_then(|(high, low)| u8::try_from(high * 16 + low).ok());
            subject.push(byte.unwrap_or(*first));
            rest = if byte.is_some() { &after[2..] } else { after };
        }
        // The printed form is decoded; any other text with a `%` is not.
        let printed = String::from_utf8(subject)
            .ok()
            .and_then(|it| Self::from_subject(&it).ok());
        match printed.filter(|it| it.as_str()[Self::PREFIX.len()..] == *name) {
            Some(printed) => Ok(printed),
            None => Self::from_subject(name),
        }
    }

    /// The agent id of another authority's subject. Letters, digits, `.`, `_` and `-` are unchanged, every
    /// other byte becomes `%` and two digits, so that distinct subjects have distinct ids.
    ///
    /// # Errors
    /// [`BadAgentName`] for an empty, overlong or reserved name.
    pub fn from_subject(subject: &str) -> Result<Self, BadAgentName> {
        let mut id = String::from(Self::PREFIX);
        for byte in subject.bytes() {
            match byte {
                b'.' | b'_' | b'-' => id.push(char::from(byte)),
                _ if byte.is_ascii_alphanumeric() => id.push(char::from(byte)),
                _ => id.push_str(&format!("%{byte:02X}")),
            }
        }
        let name = &id[Self::PREFIX.len()..];
        if name.is_empty() {
            return Err(BadAgentName::Empty);
        }
        if name.len() > Self::MAX_NAME {
            return Err(BadAgentName::TooLong(name.len()));
        }
        let begin = name.get(..Self::GROUP_PREFIX.len());
        if begin.is_some_and(|begin| begin.eq_ignore_ascii_case(Self::GROUP_PREFIX)) {
            return Err(BadAgentName::Group);
        }
        match Self::RESERVED
            .iter()
            .find(|taken| name.eq_ignore_ascii_case(taken))
        {
            Some(taken) => Err(BadAgentName::Reserved(taken)),
            None => Ok(Self::new(id)),
        }
    }
}

/// An invalid agent name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadAgentName {
    /// It is empty.
    #[error("an agent's name may not be empty")]
    Empty,
    /// More than [`AgentId::MAX_NAME`] bytes.
    #[error("an agent's name has at most {max} characters, this one has {0}", max = AgentId::MAX_NAME)]
    TooLong(usize),
    /// A character that is not allowed in a log line or a list.
    #[error("an agent's name is made of letters, digits, '.', '_' and '-'; {} is none of them", describe_char(*.0))]
    Character(char),
    /// A built-in identity, which no token or certificate can name.
    #[error("{0:?} is a name of the kernel's own; choose another one")]
    Reserved(&'static str),
    /// It would be read as another agent's id.
    #[error(
        "an agent's name does not begin with \"agent.\" again: it would be taken for that of another"
    )]
    DoublePrefix,
    /// It would be read as the name of a group.
    #[error("an agent's name does not begin with \"group.\": it would be taken for a group")]
    Group,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn server_ids_are_validated_by_length_and_alphabet() {
        assert!(ServerId::parse("mind.cerebras").is_ok());
        assert_eq!(ServerId::parse(""), Err(BadServerId::Empty));
        assert_eq!(ServerId::parse("../x"), Err(BadServerId::Character('/')));
        assert_eq!(ServerId::parse(".."), Err(BadServerId::Dots));
        assert_eq!(
            ServerId::parse(&"a".repeat(49)),
            Err(BadServerId::TooLong(49))
        );
    }

    #[test]
    fn remote_server_id_has_its_node_as_prefix() {
        let parse = ServerId::parse_local_or_remote;
        assert_eq!(parse("demo"), Ok(ServerId::new("demo")));
        let there = parse("nas/demo").unwrap();
        assert_eq!(there.remote_parts(), Some(("nas", ServerId::new("demo"))));
        assert_eq!(parse("nas/"), Err(BadServerId::Empty));
        assert_eq!(parse("/demo"), Err(BadServerId::Empty));
        for other in ["nas/demo/x", "nas//demo", "nas/demo~0a", "na s/demo"] {
            assert!(
                matches!(parse(other), Err(BadServerId::Character(_))),
                "{other}"
            );
        }
    }

    /// No server can have the id of another server's instance.
    #[test]
    fn instance_ids_are_distinct_from_server_ids() {
        let server = ServerId::new("files");
        let instance = server.instance("0a");
        assert_eq!(instance.server(), server);
        assert_eq!(server.server(), server);
        assert!(instance.is_instance() && !server.is_instance());
        assert_eq!(
            ServerId::parse(instance.as_str()),
            Err(BadServerId::Character('~'))
        );
    }

    /// Ids of one authority cannot be imitated by another.
    #[test]
    fn subjects_of_other_authorities_have_distinct_ids() {
        let of = |name: &str| AgentId::from_subject(name).unwrap().to_string();
        assert_eq!(AgentId::parse("alice").unwrap().as_str(), "agent.alice");
        assert_eq!(AgentId::parse("agent.alice"), AgentId::parse("alice"));
        assert_eq!(of("alice"), "agent.alice");
        assert_eq!(of("auth0|7@b"), "agent.auth0%7C7%40b");
        assert_eq!(of("auth0%7C7"), "agent.auth0%257C7");
        assert_eq!(of("agent.alice"), "agent.agent.alice");
        for taken in ["local", "LOCAL", "anonymous", "operator", "kernel"] {
            assert!(matches!(
                AgentId::from_subject(taken),
                Err(BadAgentName::Reserved(_))
            ));
        }
        assert_eq!(AgentId::parse("a b"), Err(BadAgentName::Character(' ')));
        let alice = AgentId::from_subject("alice@corp").unwrap();
        for written in [
            "alice@corp",
            "agent.alice@corp",
            "alice%40corp",
            "agent.alice%40corp",
        ] {
            assert_eq!(
                AgentId::parse_or_from_subject(written),
                Ok(alice.clone()),
                "{written}"
            );
        }
        assert_eq!(AgentId::parse_or_from_subject("bob"), AgentId::parse("bob"));
        assert_eq!(
            AgentId::parse_or_from_subject("100%"),
            AgentId::from_subject("100%")
        );
        assert_eq!(
            AgentId::parse_or_from_subject("a%62"),
            AgentId::from_subject("a%62")
        );
        assert!(
            AgentId::parse_or_from_subject("local").is_err()
                && AgentId::parse_or_from_subject("agent.agent.x").is_err()
        );
        assert_eq!(AgentId::parse("agent."), Err(BadAgentName::Empty));
        assert_eq!(
            AgentId::parse("agent.agent.alice"),
            Err(BadAgentName::DoublePrefix)
        );
        assert_eq!(
            AgentId::from_subject(&"|".repeat(43)),
            Err(BadAgentName::TooLong(129))
        );
    }
}
