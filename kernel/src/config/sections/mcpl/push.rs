//! `[mcpl.push]` and `[mcpl.hooks]`: push events and hooks.

use mgp_mcpl_engine::hooks::HookPolicy;
use mgp_mcpl_engine::policy::{SetPattern, SetPatternError};
use mgp_mcpl_engine::push::limits::QuietHours;
use mgp_mcpl_engine::push::{PushPolicy, PushRule};
use mgp_protocol::ids::ServerId;

use crate::config::parsing::Section;

/// More than any server sends.
const PER_MINUTE_MAX: u64 = 1_000_000;
/// Longest time to wait for servers before or after an inference, in milliseconds.
const HOOK_MAX_MS: u64 = 120_000;
/// Most that servers may add to one inference, in bytes.
const ADDED_BYTES_MAX: u64 = 16 << 20;

/// Reads `[mcpl.push]`.
pub(super) fn read_push(section: &mut Section<'_, '_, '_>, policy: &mut PushPolicy) {
    read_rule(section, &mut policy.default_rule);
    section.count(
        "server_per_minute",
        0..=PER_MINUTE_MAX,
        &mut policy.server_per_minute,
    );
    section.millis("agent_timeout_ms", 1..=HOOK_MAX_MS, &mut policy.agent);
    let usual = policy.default_rule.clone();
    let sets = section.named_tables("sets", parse_set_pattern, |section| {
        let mut rule = usual.clone();
        read_rule(section, &mut rule);
        rule
    });
    policy.set_rules.extend(sets);
}

/// `SERVER.SET`; the server's part may have a `~`.
fn parse_set_pattern(name: &str) -> Result<String, SetPatternError> {
    SetPattern::parse(name).map(|_| name.to_owned())
}

fn read_rule(section: &mut Section<'_, '_, '_>, rule: &mut PushRule) {
    section.count("per_minute", 0..=PER_MINUTE_MAX, &mut rule.per_minute);
    section.flag("inference", &mut rule.inference);
    let parse = |text: &str| match text {
        "" => Ok(None),
        hours => QuietHours::parse(hours).map(Some),
    };
    section.parse("quiet_hours", parse, &mut rule.quiet);
}

/// Reads `[mcpl.hooks]`.
pub(super) fn read_hooks(section: &mut Section<'_, '_, '_>, policy: &mut HookPolicy) {
    section.millis("before_timeout_ms", 1..=HOOK_MAX_MS, &mut policy.before);
    section.millis("after_timeout_ms", 1..=HOOK_MAX_MS, &mut policy.after);
    section.count(
        "server_bytes",
        0..=ADDED_BYTES_MAX,
        &mut policy.server_bytes,
    );
    section.count("bytes", 0..=ADDED_BYTES_MAX, &mut policy.bytes);
    section.flag("channels", &mut policy.channels);
    section.parse_all("order", ServerId::parse, &mut policy.order);
    section.parse_all("fail_closed", ServerId::parse, &mut policy.fail_closed);
}
