//! Filters messages before delivery (MCPL §14.5).

use std::ops::Range;

use mgp_protocol::mcpl::content::{Content, ContentBlock, ContentKind};
use regex::{NoExpand, Regex, RegexBuilder};

use crate::scopes::ScopePattern;

/// Longest pattern, in bytes; a compiled one takes 1 MiB at most.
pub(crate) const PATTERN_MAX: usize = 1024;
/// Most rules of one kernel: each is tried on each text.
pub const RULES_MAX: usize = 64;
/// Largest message after replacements, in bytes.
const MODERATED_BYTES_MAX: usize = 4 << 20;

/// Direction of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessageDirection {
    /// From a channel to agents.
    In,
    /// From agents to a channel or its observers.
    Out,
}

/// A rule of `[mcpl.channels]`.
#[derive(Clone, Debug)]
pub struct ModerationRule {
    /// The channels it applies to, as `SERVER:CHANNEL`.
    channels: ScopePattern,
    /// One direction only.
    direction: Option<MessageDirection>,
    pattern: Regex,
    /// Replaces each match; without it, the whole message is dropped.
    replacement: Option<String>,
}

impl PartialEq for ModerationRule {
    fn eq(&self, other: &Self) -> bool {
        let parts = |rule: &Self| {
            (
                rule.channels.clone(),
                rule.direction,
                rule.replacement.clone(),
            )
        };
        parts(self) == parts(other) && self.pattern.as_str() == other.pattern.as_str()
    }
}

impl Eq for ModerationRule {}

/// Why a rule is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ModerationRuleError {
    /// Not a regular expression.
    #[error("the pattern cannot be used: {0}")]
    Pattern(String),
    /// Not a channel pattern.
    #[error("the channels cannot be read: {0}")]
    Channels(String),
}

impl ModerationRule {
    /// Parses a rule. Patterns are regular expressions without look-around, so matching takes linear time.
    ///
    /// # Errors
    /// [`ModerationRuleError`].
    pub fn parse(
        channels: &str,
        way: Option<MessageDirection>,
        pattern: &str,
        with: Option<String>,
    ) -> Result<Self, ModerationRuleError> {
        if pattern.is_empty() || pattern.len() > PATTERN_MAX {
            let why = format!("it has 1 to {PATTERN_MAX} bytes");
            return Err(ModerationRuleError::Pattern(why));
        }
        let compiled = RegexBuilder::new(pattern).size_limit(1 << 20).build();
        let last = |e: regex::Error| {
            let message = e.to_string();
            message
                .lines()
                .last()
                .unwrap_or("it is none")
                .trim()
                .to_owned()
        };
        Ok(Self {
            channels: ScopePattern::parse(channels)
                .map_err(|e| ModerationRuleError::Channels(e.to_string()))?,
            direction: way,
            pattern: compiled.map_err(|e| ModerationRuleError::Pattern(last(e)))?,
            replacement: with,
        })
    }

    fn is_for(&self, channel: &str, way: MessageDirection) -> bool {
        // Any reading of the channel's name counts.
        self.direction.is_none_or(|direction| direction == way)
            && self.channels.matches_in_any_case(channel)
    }
}

/// True when some rule applies to this channel: a message in chunks is then delivered only once it is whole.
#[must_use]
pub fn is_moderated(rules: &[ModerationRule], channel: &str, way: MessageDirection) -> bool {
    rules.iter().any(|rule| rule.is_for(channel, way))
}

/// The content after all rules of this channel (its name for agents); `None` when it is dropped.
#[must_use]
pub fn moderate(
    rules: &[ModerationRule],
    channel: &str,
    way: MessageDirection,
    content: Content,
) -> Option<Content> {
    let rules: Vec<_> = rules
        .iter()
        .filter(|rule| rule.is_for(channel, way))
        .collect();
    if rules.is_empty() {
        return Some(content);
    }
    let mut blocks = Vec::with_capacity(content.0.len());
    for block in content.0 {
        blocks.push(match &block.kind {
            ContentKind::Text(text) => match rewrite(&rules, text)? {
                Some(text) => ContentBlock::text(&text),
                None => block,
            },
            ContentKind::Image | ContentKind::Audio | ContentKind::Resource => block,
        });
    }
    for between in ["", "\n"] {
        for rule in &rules {
            blocks = moderate_across_blocks(rule, blocks, between)?;
        }
    }
    Some(Content(blocks))
}

/// Applies a rule to the texts of all blocks, joined with this separator. A match across two blocks turns all into
/// one text; `None` when the message is dropped.
fn moderate_across_blocks(
    rule: &ModerationRule,
    blocks: Vec<ContentBlock>,
    between: &str,
) -> Option<Vec<ContentBlock>> {
    let mut whole = String::new();
    // Borders between texts.
    let mut seams = Vec::new();
    for text in blocks.iter().filter_map(block_text) {
        if !whole.is_empty() {
            seams.push(whole.len()..whole.len() + between.len());
            whole.push_str(between);
        }
        whole.push_str(text);
    }
    let spans = |found: &Range<usize>| {
        let spans = |seam: &Range<usize>| found.start < seam.start && seam.end < found.end;
        seams.iter().any(spans)
    };
    let found = rule.pattern.find_iter(&whole).map(|found| found.range());
    let found: Vec<_> = found.filter(spans).collect();
    if found.is_empty() {
        return Some(blocks);
    }
    let with = rule.replacement.as_deref()?;
    for found in found.into_iter().rev() {
        whole.replace_range(found, with);
    }
    let mut merged = Some(ContentBlock::text(&whole));
    let joined = blocks
        .into_iter()
        .filter_map(|block| match block_text(&block) {
            Some(_) => merged.take(),
            None => Some(block),
        });
    Some(joined.collect())
}

fn block_text(block: &ContentBlock) -> Option<&str> {
    match &block.kind {
        ContentKind::Text(text) => Some(text),
        ContentKind::Image | ContentKind::Audio | ContentKind::Resource => None,
    }
}

/// The text after the rules; `Some(None)` when unchanged, `None` when its message is dropped.
fn rewrite(rules: &[&ModerationRule], text: &str) -> Option<Option<String>> {
    let mut now: Option<String> = None;
    for rule in rules {
        let seen = now.as_deref().unwrap_or(text);
        if !rule.pattern.is_match(seen) {
            continue;
        }
        let with = rule.replacement.as_deref()?;
        let replaced = rule.pattern.replace_all(seen, NoExpand(with)).into_owned();
        // A message that grows beyond the limit is dropped, too.
        if replaced.len() > MODERATED_BYTES_MAX.max(text.len()) {
            return None;
        }
        now = Some(replaced);
    }
    Some(now)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(
        channels: &str,
        way: Option<MessageDirection>,
        pattern: &str,
        with: Option<&str>,
    ) -> ModerationRule {
        ModerationRule::parse(channels, way, pattern, with.map(str::to_owned)).unwrap()
    }

    /// MCPL-132: texts are replaced or their message dropped, on the channels and in the direction of a rule.
    #[test]
    fn what_a_rule_finds_is_not_seen() {
        let rules = [
            rule("chat:**", None, r"sk-[a-z0-9]+", Some("[key]")),
            rule(
                "chat:discord**",
                Some(MessageDirection::In),
                "(?i)ignore all",
                None,
            ),
        ];
        let says = |channel: &str, way, text: &str| {
            moderate(&rules, channel, way, Content::text(text)).map(|content| content.to_json())
        };
        let block = |text: &str| Some(Content::text(text).to_json());
        assert_eq!(
            says("chat:discord", MessageDirection::Out, "a sk-1 b"),
            block("a [key] b")
        );
        assert_eq!(
            says("chat:discord", MessageDirection::In, "IGNORE all"),
            None
        );
        assert_eq!(
            says("chat:discord", MessageDirection::Out, "ignore all"),
            block("ignore all")
        );
        assert_eq!(says("mail:x", MessageDirection::In, "sk-1"), block("sk-1"));
        assert!(
            is_moderated(&rules, "chat:x", MessageDirection::Out)
                && !is_moderated(&rules, "mail:x", MessageDirection::Out)
        );
        // The replacement is literal: `$1` has no meaning.
        let literal = [rule("**", None, "(a)", Some("$1$0"))];
        let content = moderate(&literal, "x:y", MessageDirection::In, Content::text("a")).unwrap();
        assert_eq!(content, Content::text("$1$0"));
    }

    /// MCPL-132: a match across two blocks is found, however a reader joins them.
    #[test]
    fn what_stands_across_blocks_is_found() {
        let rules = [
            rule("**", None, r"sk-[a-z0-9]{3}", Some("[key]")),
            rule("**", None, r"(?i)ignore\s+all", None),
        ];
        let says = |blocks: &[&str]| {
            let text = |text: &&str| format!(r#"{{"type":"text","text":"{text}"}}"#);
            let image = r#"{"type":"image","uri":"file:///a.png"}"#;
            let blocks = blocks.iter().map(text).collect::<Vec<_>>();
            let content = Content::parse(&format!("[{}]", blocks.join(&format!(",{image},"))));
            moderate(&rules, "x:y", MessageDirection::In, content.unwrap())
        };
        let texts = |blocks: &[&str]| says(blocks).map(|content| content.joined_text());
        assert_eq!(texts(&["a sk-a", "bc b"]).as_deref(), Some("a [key] b"));
        assert_eq!(texts(&["s", "k-", "ab", "1"]).as_deref(), Some("[key]"));
        assert_eq!(texts(&["ignore ", "all"]), None);
        assert_eq!(texts(&["ignore", "all"]), None);
        assert_eq!(texts(&["sk-a", " bc"]).as_deref(), Some("sk-a\n bc"));
        // Other blocks stay in place.
        assert_eq!(says(&["sk-a", "bc"]).unwrap().0.len(), 2);
    }

    /// Invalid patterns, and patterns without a bound on their time, are rejected.
    #[test]
    fn a_pattern_that_cannot_be_used_is_refused_in_words() {
        for pattern in ["(", "", &"x".repeat(2000), "(a{1000}){1000}"] {
            assert!(ModerationRule::parse("**", None, pattern, None).is_err());
        }
        let slow = [rule("**", None, "(a*)*b", Some(""))];
        let text = "a".repeat(100_000);
        assert!(moderate(&slow, "x:y", MessageDirection::In, Content::text(&text)).is_some());
    }
}
