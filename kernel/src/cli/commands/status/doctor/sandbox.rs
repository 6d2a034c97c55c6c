//! Checks which sandboxing this machine supports, and what its system lacks.

use std::process::Command;
use std::time::Duration;

use mgp_platform::WEAKNESSES;
use mgp_platform::sandbox::NOT_HELD;
use serde_json::Value;

use super::CheckContext;
use super::finding::Finding;
use mgp_runtime::run_bounded;

const AREA: &str = "sandbox";
const SYSTEM_AREA: &str = "system";
/// Limit for the probe.
const TRIAL_TIMEOUT: Duration = Duration::from_secs(15);
/// Longest answer that is read, in bytes.
const ANSWER_MAX: usize = 64 << 10;

/// What this system holds less of than Linux.
pub(super) fn check_system(_: &CheckContext<'_>) -> Vec<Finding> {
    let weaker = WEAKNESSES.iter().map(|weakness| {
        let message = format!("{}: {}", weakness.area, weakness.text);
        Finding::warning(SYSTEM_AREA, message).with_command("docs/platforms.md lists what holds")
    });
    weaker.collect()
}

pub(super) fn check(_: &CheckContext<'_>) -> Vec<Finding> {
    let Ok(exe) = std::env::current_exe() else {
        return Vec::new();
    };
    let tried = run_bounded(
        Command::new(exe).arg("__sandbox"),
        TRIAL_TIMEOUT,
        ANSWER_MAX,
    );
    let answer = tried.ok().map(|output| output.stdout);
    let answer = answer.and_then(|text| serde_json::from_slice::<Value>(&text).ok());
    vec![match answer {
        Some(machine) => sandbox_level(&machine),
        None => Finding::warning(
            AREA,
            "what this machine can hold a server to could not be tried out",
        ),
    }]
}

fn sandbox_level(machine: &Value) -> Finding {
    if let Some(why) = NOT_HELD {
        return Finding::warning(
            AREA,
            format!("servers that are trusted least are not held to {why}"),
        )
        .with_command(
            "`required = true` in [sandbox] keeps them from starting; docs/platforms.md",
        );
    }
    held_parts(machine)
}

fn held_parts(machine: &Value) -> Finding {
    let has = |part: &str| match &machine[part] {
        Value::Bool(has) => *has,
        Value::Number(level) => level.as_u64() != Some(0),
        Value::Null | Value::String(_) | Value::Array(_) | Value::Object(_) => false,
    };
    let parts = ["landlock", "seccomp", "namespaces"];
    let (there, missing): (Vec<_>, Vec<_>) = parts.into_iter().partition(|part| has(part));
    match missing.as_slice() {
        [] => Finding::good(AREA, format!("this machine has all of it: {}", there.join(", "))),
        missing => Finding::warning(
            AREA,
            format!(
                "this machine lacks {}: servers that are trusted least are held to less, or do not start",
                missing.join(", ")
            ),
        )
        .with_command("docs/sandbox.md, Sandbox, says what each needs of the system"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::finding::FindingLevel;
    use super::*;

    #[test]
    fn missing_features_are_named() {
        let whole = json!({"landlock": 6, "seccomp": true, "root": false, "namespaces": true});
        assert_eq!(held_parts(&whole).level, FindingLevel::Ok);
        let less = held_parts(&json!({"landlock": 0, "seccomp": true, "namespaces": false}));
        assert_eq!(less.level, FindingLevel::Warning);
        assert!(less.render().contains("lacks landlock, namespaces"));
    }
}
