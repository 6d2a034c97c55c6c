//! `[mcpl.push]` and `[mcpl.hooks]`: push events and hooks.

use mgp_mcpl_engine::hooks::HookPolicy;
use mgp_mcpl_engine::policy::SetPattern;
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
pub(super) fn read_push(mut section: Section<'_, '_, '_>, policy: &mut PushPolicy) {
    read_rule(&mut section, &mut policy.default_rule);
    section.count(
        "server_per_minute",
        0..=PER_MINUTE_MAX,
        &mut policy.server_per_minute,
    );
    section.millis("agent_timeout_ms", 1..=HOOK_MAX_MS, &mut policy.agent);
    let usual = policy.default_rule.clone();
    section.for_each_table("sets", "mcpl.push.sets.*", |name, section| {
        let mut rule = usual.clone();
        read_rule(section, &mut rule);
        // `SERVER.SET`; the server's part may have a `~`.
        match SetPattern::parse(name) {
            Ok(_) => drop(policy.set_rules.insert(name.to_owned(), rule)),
            // `each` reads an absent table, so that its keys are known.
            Err(_) if name.is_empty() => {}
            Err(why) => {
                let whole = section.start_span();
                section.reject(whole, format!("[mcpl.push.sets]: {why}"));
            }
        }
    });
    section.finish();
}

fn read_rule(section: &mut Section<'_, '_, '_>, rule: &mut PushRule) {
    section.count("per_minute", 0..=PER_MINUTE_MAX, &mut rule.per_minute);
    section.flag("inference", &mut rule.inference);
    if let Some(text) = section.text("quiet_hours") {
        match QuietHours::parse(text.get_ref()) {
            Ok(quiet) => rule.quiet = Some(quiet),
            Err(_) if text.get_ref().is_empty() => rule.quiet = None,
            Err(why) => {
                let words = format!("`quiet_hours` in {}: {why}", section.name());
                section.reject(text.span(), words);
            }
        }
    }
}

/// Reads `[mcpl.hooks]`.
pub(super) fn read_hooks(mut section: Section<'_, '_, '_>, policy: &mut HookPolicy) {
    section.millis("before_timeout_ms", 1..=HOOK_MAX_MS, &mut policy.before);
    section.millis("after_timeout_ms", 1..=HOOK_MAX_MS, &mut policy.after);
    section.count(
        "server_bytes",
        0..=ADDED_BYTES_MAX,
        &mut policy.server_bytes,
    );
    section.count("bytes", 0..=ADDED_BYTES_MAX, &mut policy.bytes);
    section.flag("channels", &mut policy.channels);
    if let Some(order) = read_servers(&mut section, "order") {
        policy.order = order;
    }
    if let Some(closed) = read_servers(&mut section, "fail_closed") {
        policy.fail_closed = closed.into_iter().collect();
    }
    section.finish();
}

fn read_servers(section: &mut Section<'_, '_, '_>, key: &'static str) -> Option<Vec<ServerId>> {
    let mut servers = Vec::new();
    for text in section.texts(key)? {
        match ServerId::parse(text.get_ref()) {
            Ok(server) => servers.push(server),
            Err(why) => {
                let words = format!("`{key}` in {}: {why}", section.name());
                section.reject(text.span(), words);
            }
        }
    }
    Some(servers)
}
