//! The keys below `[tuning]`: bounds and intervals that have a good default for everybody.
//!
//! A section `[x]` has them in `[tuning.x]`. They are also read in their old place, in the section itself, with a
//! warning.

use std::collections::BTreeSet;

use toml::de::DeTable;

use super::context::FileContext;
use super::problem::Severity;
use super::suggestions::{nearest, render_list};

/// As `section.key`.
const TUNING_KEYS: [&str; 36] = [
    "audit.agent_bytes_per_day",
    "audit.file_bytes",
    "discovery.budget.cache_limit",
    "discovery.budget.discovery_reserve",
    "discovery.budget.max_tokens",
    "discovery.budget.pinned_reserve",
    "discovery.model_idle_secs",
    "discovery.provider.batch",
    "discovery.provider.timeout_secs",
    "discovery.registered_max",
    "health.misses",
    "http.max_bodies_bytes",
    "http.max_sessions",
    "http.session_idle_secs",
    "limits.agent_refusals_per_second",
    "lists.page_size",
    "lite.heartbeat_ms",
    "lite.promise_after_ms",
    "lite.promise_ttl_secs",
    "mcpl.hooks.after_timeout_ms",
    "mcpl.hooks.before_timeout_ms",
    "mcpl.hooks.bytes",
    "mcpl.hooks.server_bytes",
    "mcpl.inference.agent_timeout_secs",
    "mcpl.push.agent_timeout_ms",
    "mcpl.push.server_per_minute",
    "mcpl.state.keep_ended_secs",
    "metrics.tools_max",
    "questions.answer_timeout_secs",
    "streams.poll_after_ms",
    "streams.replay_events",
    "streams.stream_after_ms",
    "telemetry.interval_ms",
    "telemetry.metrics_interval_secs",
    "telemetry.queue",
    "telemetry.timeout_ms",
];

/// Keys of earlier versions that are constants now.
const CONSTANT_KEYS: [&str; 1] = ["audit.window_ms"];

/// Where a key of `[tuning]` is now, as `tuning.section.key`; `None` for all other keys.
pub(crate) fn tuning_path(path: &str) -> Option<String> {
    TUNING_KEYS
        .contains(&path)
        .then(|| format!("tuning.{path}"))
}

/// Whether a key had a meaning in earlier versions.
pub(super) fn is_constant(path: &str) -> bool {
    CONSTANT_KEYS.contains(&path)
}

/// A table inside a table.
pub(super) fn inner_table<'t>(table: &'t DeTable<'t>, key: &str) -> Option<&'t DeTable<'t>> {
    table.get(key)?.get_ref().as_table()
}

/// Rejects unknown keys below `[tuning]`.
pub(super) fn check_tuning(context: &mut FileContext<'_>, table: &DeTable<'_>) {
    check_table(context, table, &TUNING_KEYS, "[tuning]");
}

fn check_table(
    context: &mut FileContext<'_>,
    table: &DeTable<'_>,
    keys: &[&'static str],
    name: &str,
) {
    for (key, value) in table {
        let (word, span) = (key.get_ref().as_ref(), key.span());
        if keys.contains(&word) {
            continue;
        }
        let below = keys.iter().filter_map(|path| path.split_once('.'));
        let below: Vec<_> = below
            .filter_map(|(head, rest)| (head == word).then_some(rest))
            .collect();
        let inner = value.get_ref().as_table();
        let message = match inner {
            _ if below.is_empty() => format!("unknown key `{word}` in {name}"),
            Some(inner) => {
                let name = format!("{}.{word}]", name.trim_end_matches(']'));
                check_table(context, inner, &below, &name);
                continue;
            }
            None => {
                let message = format!("`{word}` in {name} wants a table");
                context.add(Severity::Fatal, span, message);
                continue;
            }
        };
        let known: BTreeSet<_> = keys
            .iter()
            .filter_map(|key| key.split('.').next())
            .collect();
        let near = nearest(word, known.iter().copied()).map(str::to_owned);
        let message = match near {
            Some(_) => message,
            None => {
                let known: Vec<_> = known.into_iter().collect();
                format!("{message}; known are {}", render_list(&known))
            }
        };
        context.add(Severity::Fatal, span, message).nearest = near;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_tuning_key_is_read() {
        let known = crate::config::file::known_keys();
        for key in TUNING_KEYS.map(|key| format!("tuning.{key}")) {
            assert!(known.contains(&key), "{key}");
        }
        for key in CONSTANT_KEYS {
            assert!(!known.contains(&key.to_owned()), "{key}");
        }
    }
}
