//! `[mcpl.state]` and `[mcpl.channels]`: checkpoints and channels.

use mgp_mcpl_engine::channels::moderation::{MessageDirection, ModerationRule, RULES_MAX};
use mgp_mcpl_engine::channels::rules::ChannelRules;
use mgp_mcpl_engine::names;
use mgp_mcpl_engine::state::rules::{SharedBy, StateRules};

use crate::config::parsing::Section;

const SHARED_BY: [(&str, SharedBy); 4] = [
    ("nobody", SharedBy::Nobody),
    ("session", SharedBy::Session),
    ("agent", SharedBy::Agent),
    ("everyone", SharedBy::Everyone),
];
const MESSAGE_DIRECTIONS: [(&str, Option<MessageDirection>); 3] = [
    ("both", None),
    ("in", Some(MessageDirection::In)),
    ("out", Some(MessageDirection::Out)),
];
/// A year.
const KEEP_MAX_SECS: u64 = 366 * 24 * 60 * 60;

/// `[mcpl.state]`.
pub(crate) fn read_state(section: &mut Section<'_, '_, '_>, rules: &mut StateRules) {
    section.choice("shared_by", &SHARED_BY, &mut rules.shared_by);
    section.secs("keep_ended_secs", 1..=KEEP_MAX_SECS, &mut rules.keep_ended);
    section.strings("tool_for", &mut rules.tool_for);
    for (set, word) in section.text_map("sets") {
        let by = SharedBy::parse(word.get_ref());
        let known = SHARED_BY.map(|(word, _)| word).join("\", \"");
        match (names::parse_set(set), by) {
            (Some(_), Some(by)) => {
                rules.sets.insert(set.to_owned(), by);
            }
            (None, _) => section.reject(
                word.span(),
                format!("`sets` in [mcpl.state] wants \"SERVER.SET\" = …; {set:?} is none"),
            ),
            (Some(_), None) => section.reject(
                word.span(),
                format!("`sets.{set}` in [mcpl.state] is one of \"{known}\""),
            ),
        }
    }
}

/// `[mcpl.channels]`.
pub(crate) fn read_channels(section: &mut Section<'_, '_, '_>, rules: &mut ChannelRules) {
    let parse = |name: &str| match names::parse_channel(name) {
        Some(_) => Ok(name.to_owned()),
        None => Err(format!("{name:?} is no \"SERVER:CHANNEL\"")),
    };
    section.parse("default_outgoing", parse, &mut rules.default_outgoing);
    section.strings("incoming_to", &mut rules.incoming_to);
    section.strings("tool_for", &mut rules.tool_for);
    let mut read = Vec::new();
    section.for_each_table("moderation", |_, rule| {
        let channels = rule.text("channels");
        let pattern = rule.text("pattern");
        let mut with = None;
        rule.string("with", &mut with);
        let mut way: Option<MessageDirection> = None;
        rule.choice("way", &MESSAGE_DIRECTIONS, &mut way);
        if !rule.is_present() {
            return;
        }
        let channels = channels
            .as_ref()
            .map_or("**", |channels| channels.get_ref());
        let Some(pattern) = pattern else {
            let whole = rule.start_span();
            return rule.reject(whole, format!("`pattern` is missing in {}", rule.name()));
        };
        match ModerationRule::parse(channels, way, pattern.get_ref(), with) {
            Ok(one) => read.push(one),
            Err(why) => {
                let words = format!("{}: {why}", rule.name());
                rule.reject(pattern.span(), words);
            }
        }
    });
    if read.len() > RULES_MAX {
        let whole = section.start_span();
        section.reject(
            whole,
            format!("[mcpl.channels] has more than {RULES_MAX} rules of moderation"),
        );
    }
    if !read.is_empty() {
        rules.moderation = read;
    }
}
