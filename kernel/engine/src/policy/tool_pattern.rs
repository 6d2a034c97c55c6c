//! A pattern for tools of a server: one by its name, or all with a common prefix.

use std::fmt;
use std::sync::Arc;

use mgp_json::lookalike::are_alike;
use mgp_protocol::ids::{ServerId, describe_char};
use serde::{Deserialize, Serialize};

use crate::tool_names::canonical_name;

/// Longest pattern, in bytes: as long as a tool's name may be.
const PATTERN_LEN_MAX: usize = 1024;

/// `read_file`, `read_*` or `*`: matches the server's own names, never the visible ones.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct ToolPattern(Arc<str>);

/// Why a text is no pattern.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadToolPattern {
    /// It is empty.
    #[error("no tool has an empty name; '*' stands for all of a server")]
    Empty,
    /// It has more bytes than a name may have.
    #[error("a tool's name has at most {PATTERN_LEN_MAX} bytes, this has {0}")]
    TooLong(usize),
    /// A star that is not at the end.
    #[error("'*' stands at the end only: {0:?} would be read in two ways")]
    MisplacedStar(String),
    /// A character that may only look like one of the intended name.
    #[error("{} may only look like a character that is meant, and no listed tool is called so", describe_char(*.0))]
    Character(char),
}

impl ToolPattern {
    /// All tools of a server.
    #[must_use]
    pub fn all() -> Self {
        Self("*".into())
    }

    /// Parses a typed pattern. `listed` are the server's tools: their names are accepted unchanged.
    ///
    /// # Errors
    /// [`BadToolPattern`].
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

    /// Whether it matches this tool. Case matters.
    #[must_use]
    pub fn matches(&self, tool: &str) -> bool {
        match self.0.strip_suffix('*') {
            Some(beginning) => tool.starts_with(beginning),
            None => &*self.0 == tool,
        }
    }

    /// True when it matches all tools of the server.
    #[must_use]
    pub(crate) fn is_all(&self) -> bool {
        &*self.0 == "*"
    }

    /// The prefix of the matching names, where it does not match one whole name.
    #[must_use]
    pub(crate) fn prefix(&self) -> Option<&str> {
        self.0.strip_suffix('*')
    }

    /// Whether a tool can match both.
    #[must_use]
    pub(crate) fn overlaps(&self, other: &Self) -> bool {
        match (self.prefix(), other.prefix()) {
            (Some(one), Some(other)) => one.starts_with(other) || other.starts_with(one),
            (Some(_), None) => self.matches(&other.0),
            (None, _) => other.matches(&self.0),
        }
    }

    /// Sorts before all others and matches nothing.
    pub(crate) fn empty() -> Self {
        Self("".into())
    }

    /// A suggestion where it matches no tool: the same in another case, or without the server.
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

    /// A stored pattern: it was validated when it was typed.
    fn try_from(text: String) -> Result<Self, Self::Error> {
        Self::parse(&text, [&text])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONE: [&str; 0] = [];

    fn suggestion(typed: &str) -> Option<String> {
        let pattern = ToolPattern::parse(typed, NONE).unwrap();
        let listed = ["read_file", "Write_File", "café"];
        pattern.suggest(&ServerId::new("files"), listed.into_iter())
    }

    /// What cannot mean one thing is refused when it is typed.
    #[test]
    fn a_typed_pattern_has_one_meaning() {
        let parse = |text: &str| ToolPattern::parse(text, NONE);
        assert_eq!(parse(""), Err(BadToolPattern::Empty));
        assert!(parse(&"x".repeat(1024)).is_ok());
        assert_eq!(
            parse(&"x".repeat(1025)),
            Err(BadToolPattern::TooLong(1025)),
            "the name of no tool is as long"
        );
        assert!(parse("read_*").is_ok() && parse("read").is_ok());
        for two_ways in ["*_file", "a*b*", "**"] {
            assert_eq!(
                parse(two_ways),
                Err(BadToolPattern::MisplacedStar(two_ways.to_owned()))
            );
        }
    }

    /// A name that looks like another one is taken only as a listed tool has it.
    #[test]
    fn an_odd_character_is_taken_from_listed_tools_only() {
        let parse = |text, listed: &[&str]| ToolPattern::parse(text, listed);
        assert!(parse("café", &["other", "café"]).is_ok());
        for listed in [&[][..], &["cafe", "caf\u{e9}s"]] {
            assert_eq!(parse("café", listed), Err(BadToolPattern::Character('é')));
        }
        assert!(parse("read", &["café"]).is_ok());
    }

    /// A name matches itself, a star what begins so; two overlap if one tool can match both.
    #[test]
    fn patterns_match_and_overlap() {
        let pattern = |text| ToolPattern::parse(text, NONE).unwrap();
        for (text, tool, matches) in [
            ("read", "read", true),
            ("read", "reads", false),
            ("read", "Read", false),
            ("read_*", "read_", true),
            ("read_*", "read", false),
            ("*", "read", true),
        ] {
            assert_eq!(pattern(text).matches(tool), matches, "{text} {tool}");
        }
        assert_eq!(String::from(pattern("read_*")), "read_*");
        assert!(ToolPattern::all().is_all() && pattern("*").is_all() && !pattern("a*").is_all());
        for (one, other, overlap) in [
            ("read", "read", true),
            ("read", "write", false),
            ("read*", "reads", true),
            ("read*", "rea", false),
            ("read*", "read_file*", true),
            ("read*", "write*", false),
            ("*", "write", true),
        ] {
            let (one, other) = (pattern(one), pattern(other));
            assert_eq!(one.overlaps(&other), overlap, "{one} {other}");
            assert_eq!(other.overlaps(&one), overlap, "{other} {one}");
        }
    }

    /// The same in another case, or behind the name of the server, is suggested; anything else is not guessed.
    #[test]
    fn a_pattern_that_matches_nothing_has_a_suggestion() {
        for (typed, meant) in [
            ("READ_FILE", Some("read_file")),
            ("write_*", Some("Write_*")),
            ("read_*", Some("read_*")),
            ("files/read_file", Some("read_file")),
            ("files__write_file", Some("Write_File")),
            ("read", None),
            ("read_files", None),
            ("other/read_file", None),
        ] {
            assert_eq!(suggestion(typed).as_deref(), meant, "{typed}");
        }
    }
}
