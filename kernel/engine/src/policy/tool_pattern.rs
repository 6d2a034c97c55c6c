//! Which tools of a server are meant: one by its name, or all whose names begin alike.

use std::fmt;
use std::sync::Arc;

use mgp_protocol::ids::{ServerId, describe_char};
use mgp_protocol::lookalike::are_alike;
use serde::{Deserialize, Serialize};

use crate::tool_names::canonical_name;

/// Longest pattern, in bytes: as long as a tool's name may be.
const PATTERN_LEN_MAX: usize = 1024;

/// `read_file`, `read_*` or `*`: the server's own names, never those that agents are shown.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct ToolPattern(Arc<str>);

/// Why a text is no pattern.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadToolPattern {
    /// It is empty.
    #[error("no tool has an empty name; '*' stands for all of a server")]
    Empty,
    /// More bytes than a name may have.
    #[error("a tool's name has at most {PATTERN_LEN_MAX} bytes, this has {0}")]
    TooLong(usize),
    /// A star that does not stand at the end.
    #[error("'*' stands at the end only: {0:?} would be read in two ways")]
    MisplacedStar(String),
    /// A character that may only look like one of the name that is meant.
    #[error("{} may only look like a character that is meant, and no listed tool is called so", describe_char(*.0))]
    Character(char),
}

impl ToolPattern {
    /// All tools of a server.
    #[must_use]
    pub fn all() -> Self {
        Self("*".into())
    }

    /// Reads what was typed. `listed` are the server's tools: their names are taken as they are.
    ///
    /// # Errors
    /// [`BadToolPattern`] says what is wrong.
    pub fn parse(
        text: &str,
        listed: impl IntoIterator<Item = impl AsRef<str>>,
    ) -> Result<Self, BadToolPattern> {
        if text.is_empty() {
            return Err(BadToolPattern::Empty);
        }
        if text.len() > PATTERN_LEN_MAX {
            return Err(BadToolPattern::TooLong(text.len()));
        }
        let name = text.strip_suffix('*').unwrap_or(text);
        if name.contains('*') {
            return Err(BadToolPattern::MisplacedStar(text.to_owned()));
        }
        if let Some(odd) = name.chars().find(|c| !c.is_ascii_graphic()) {
            let mut listed = listed.into_iter();
            if !listed.any(|tool| tool.as_ref() == text) {
                return Err(BadToolPattern::Character(odd));
            }
        }
        Ok(Self(text.into()))
    }

    /// Whether it means this tool. Letters of another case are other letters.
    #[must_use]
    pub fn matches(&self, tool: &str) -> bool {
        match self.0.strip_suffix('*') {
            Some(beginning) => tool.starts_with(beginning),
            None => &*self.0 == tool,
        }
    }

    /// True when it stands for all tools of the server.
    #[must_use]
    pub fn is_all(&self) -> bool {
        &*self.0 == "*"
    }

    /// How the names begin that it means, where it does not mean one by its whole name.
    #[must_use]
    pub fn prefix(&self) -> Option<&str> {
        self.0.strip_suffix('*')
    }

    /// Whether there can be a tool that both mean.
    #[must_use]
    pub fn overlaps(&self, other: &Self) -> bool {
        match (self.prefix(), other.prefix()) {
            (Some(one), Some(other)) => one.starts_with(other) || other.starts_with(one),
            (Some(_), None) => self.matches(&other.0),
            (None, _) => other.matches(&self.0),
        }
    }

    /// Before all others in their order: it means none.
    pub(crate) fn empty() -> Self {
        Self("".into())
    }

    /// What was probably meant where it means no tool: the same in another case, or without the server.
    pub(crate) fn suggest<'a>(
        &self,
        server: &ServerId,
        listed: impl Iterator<Item = &'a str> + Clone,
    ) -> Option<String> {
        let (text, star) = match self.0.strip_suffix('*') {
            Some(beginning) => (beginning, "*"),
            None => (&*self.0, ""),
        };
        let prefixes = [
            canonical_name(server, ""),
            format!("{server}/"),
            format!("{server}__"),
        ];
        let bare = prefixes
            .iter()
            .find_map(|prefix| text.strip_prefix(prefix.as_str()));
        let text = bare.unwrap_or(text);
        let begins = |tool: &'a str| {
            let end = tool.char_indices().nth(text.chars().count());
            let start = tool.get(..end.map_or(tool.len(), |(at, _)| at))?;
            let whole = star == "*" || start.len() == tool.len();
            (whole && are_alike(start, text)).then_some(start)
        };
        let start = listed
            .clone()
            .find(|tool| begins(tool) == Some(text))
            .and(Some(text));
        let start = start.or_else(|| listed.clone().find_map(begins));
        start.map(|start| format!("{start}{star}"))
    }
}

impl fmt::Display for ToolPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<ToolPattern> for String {
    fn from(pattern: ToolPattern) -> Self {
        pattern.to_string()
    }
}

impl TryFrom<String> for ToolPattern {
    type Error = BadToolPattern;

    /// As it was kept: it was judged when it was typed.
    fn try_from(text: String) -> Result<Self, Self::Error> {
        Self::parse(&text, [&text])
    }
}
