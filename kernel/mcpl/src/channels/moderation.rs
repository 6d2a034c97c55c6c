//! What is taken out of messages before anybody is given them (MCPL §14.5).

use std::ops::Range;

use mgp_protocol::mcpl::content::{Content, ContentBlock, ContentKind};
use regex::{NoExpand, Regex, RegexBuilder};

use crate::scopes::ScopePattern;

/// Longest pattern, in bytes; a compiled one takes 1 MiB at most.
pub(crate) const PATTERN_MAX: usize = 1024;
/// Rules of one kernel: each is tried on each text.
pub const RULES_MAX: usize = 64;
/// What a message may grow to by replacing, in bytes.
const MODERATED_BYTES_MAX: usize = 4 << 20;

/// Which way a message goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessageDirection {
    /// From a channel to agents.
    In,
    /// From agents to a channel, or to who observes it.
    Out,
}

/// One rule.
#[derive(Clone, Debug)]
pub struct ModerationRule {
    /// The channels it is for, as `SERVER:CHANNEL`.
    channels: ScopePattern,
    /// One way alone.
    direction: Option<MessageDirection>,
    pattern: Regex,
    /// What stands in place of what it finds; without it, the whole message is dropped.
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

/// Why a rule cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ModerationRuleError {
    /// The pattern is no regular expression.
    #[error("the pattern cannot be used: {0}")]
    Pattern(String),
    /// It names no channels.
    #[error("the channels cannot be read: {0}")]
    Channels(String),
}

impl ModerationRule {
    /// Reads a rule. Patterns are regular expressions without look-around, so that none takes for ever.
    ///
    /// # Errors
    /// [`ModerationRuleError`], in words.
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
            let told = e.to_string();
            told.lines()
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
        // A channel that may be read as one that is named is meant.
        self.direction.is_none_or(|one| one == way) && self.channels.matches_in_any_case(channel)
    }
}

/// True when some rule is for this channel: what is written there in parts is not shown before it is whole.
#[must_use]
pub fn is_moderated(rules: &[ModerationRule], channel: &str, way: MessageDirection) -> bool {
    rules.iter().any(|rule| rule.is_for(channel, way))
}

/// The content after all rules for this channel, as it is named for agents; `None` when it is dropped.
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

/// The blocks after a rule has seen their texts as a reader shows them, with this between two of them. Where it finds
/// something that stands across two, all become one text; `None` when the message is dropped.
fn moderate_across_blocks(
    rule: &ModerationRule,
    blocks: Vec<ContentBlock>,
    between: &str,
) -> Option<Vec<ContentBlock>> {
    let mut whole = String::new();
    // Where one text ends and the next one begins.
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
    let mut one = Some(ContentBlock::text(&whole));
    let joined = blocks
        .into_iter()
        .filter_map(|block| match block_text(&block) {
            Some(_) => one.take(),
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

/// The text after the rules; `Some(None)` when it stays, `None` when its message is dropped.
fn rewrite(rules: &[&ModerationRule], text: &str) -> Option<Option<String>> {
    let mut now: Option<String> = None;
    for rule in rules {
        let seen = now.as_deref().unwrap_or(text);
        if !rule.pattern.is_match(seen) {
            continue;
        }
        let with = rule.replacement.as_deref()?;
        let replaced = rule.pattern.replace_all(seen, NoExpand(with)).into_owned();
        // What grows without measure is dropped as what must not be seen.
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

    /// MCPL-132: texts are replaced or their message dropped, on the channels and the way a rule is for.
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
        // Replacing is by the text itself: no `$1` is anything else.
        let literal = [rule("**", None, "(a)", Some("$1$0"))];
        let content = moderate(&literal, "x:y", MessageDirection::In, Content::text("a")).unwrap();
        assert_eq!(content, Content::text("$1$0"));
    }

    /// MCPL-132: what a rule finds is not seen when it stands across two blocks either, however a reader joins them.
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
        // What is no text stays where it is.
        assert_eq!(says(&["sk-a", "bc"]).unwrap().0.len(), 2);
    }

    /// What cannot be a rule, and what would take for ever, is none.
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
