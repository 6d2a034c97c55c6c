//! The name of a group of agents.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{AgentId, describe_char};

/// A group of agents, which grants name in place of one: `group.NAME`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct GroupName(Arc<str>);

impl GroupName {
    /// The longest name, in bytes: like that of a set.
    pub(crate) const MAX_LEN: usize = 48;

    /// Validates a name given by a person, with or without the prefix.
    ///
    /// # Errors
    /// [`BadGroupName`]: empty, too long, a character outside `[a-z0-9_-]`, or an unsafe start.
    pub fn parse(text: &str) -> Result<Self, BadGroupName> {
        let name = text.strip_prefix(AgentId::GROUP_PREFIX).unwrap_or(text);
        if name.is_empty() {
            return Err(BadGroupName::Empty);
        }
        if name.len() > Self::MAX_LEN {
            return Err(BadGroupName::TooLong(name.len()));
        }
        let plain = |c: &char| c.is_ascii_lowercase() || c.is_ascii_digit() || "_-".contains(*c);
        match name.chars().find(|c| !plain(c)) {
            Some(c) => Err(BadGroupName::Character(c)),
            // On a command line it would be an option.
            None if name.starts_with('-') => Err(BadGroupName::Option),
            None => Ok(Self(name.into())),
        }
    }

    /// The name without the prefix.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The id that stands in place of an agent's: `group.NAME`. No agent has such an id.
    #[must_use]
    pub fn id(&self) -> AgentId {
        AgentId::new(self.to_string())
    }
}

impl AgentId {
    /// The prefix of the id of every group.
    pub const GROUP_PREFIX: &str = "group.";

    /// True for a group, of this node or of the cluster (`group.NAME@*`).
    #[must_use]
    pub fn is_group(&self) -> bool {
        self.as_str().starts_with(Self::GROUP_PREFIX)
    }

    /// The group with this id, whether of this node or of the cluster.
    #[must_use]
    pub fn group(&self) -> Option<GroupName> {
        let id = self.pattern_agent().unwrap_or_else(|| self.clone());
        let name = id.as_str().strip_prefix(Self::GROUP_PREFIX)?;
        GroupName::parse(name).ok()
    }
}

impl fmt::Display for GroupName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", AgentId::GROUP_PREFIX, self.0)
    }
}

impl TryFrom<String> for GroupName {
    type Error = BadGroupName;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        Self::parse(&text)
    }
}

impl From<GroupName> for String {
    fn from(group: GroupName) -> Self {
        group.0.as_ref().to_owned()
    }
}

/// An invalid group name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadGroupName {
    /// It is empty.
    #[error("the name of a group may not be empty")]
    Empty,
    /// More than [`GroupName::MAX_LEN`] bytes.
    #[error("the name of a group has at most {max} characters, this one has {0}", max = GroupName::MAX_LEN)]
    TooLong(usize),
    /// A look-alike, or a sign with a meaning of its own.
    #[error("the name of a group is made of small letters, digits, '_' and '-'; {} is none of them", describe_char(*.0))]
    Character(char),
    /// A dash at its start.
    #[error("the name of a group does not begin with '-'")]
    Option,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// EXT-210: a group has one spelling, and no agent has the id of one.
    #[test]
    fn group_name_has_one_spelling_and_is_the_name_of_no_agent() {
        for name in ["readers", "group.readers"] {
            let group = GroupName::parse(name).unwrap();
            assert_eq!(
                (group.as_str(), group.to_string()),
                ("readers", "group.readers".into())
            );
            assert_eq!(group.id().group(), Some(group.clone()));
            let everywhere = group.id().pattern_for_all_nodes();
            assert!(everywhere.is_group() && everywhere.group() == Some(group));
        }
        for none in [
            "",
            "Readers",
            "re\u{0430}ders",
            "a.b",
            "a@b",
            "a b",
            "-a",
            "group.",
            "group.group.a",
            "*",
        ] {
            assert!(GroupName::parse(none).is_err(), "{none:?}");
        }
        assert!(GroupName::parse(&"a".repeat(48)).is_ok());
        assert_eq!(
            GroupName::parse(&"a".repeat(49)),
            Err(BadGroupName::TooLong(49))
        );
        for taken in ["group.readers", "GROUP.x", "agent.group.readers", "group."] {
            assert!(AgentId::parse(taken).is_err(), "{taken}");
            assert!(AgentId::parse_or_from_subject(taken).is_err(), "{taken}");
        }
        assert!(AgentId::from_subject("group.readers").is_err());
        assert!(AgentId::from_subject("groups").is_ok() && !AgentId::new("agent.group").is_group());
        assert!(serde_json::from_str::<GroupName>("\"a b\"").is_err());
    }
}
