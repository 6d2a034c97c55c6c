//! The token of a promise: its task and its expiry, sealed for its caller. Only this kernel can distinguish
//! it from random data, or open it.

use mgp_engine::callers::seal::{Purpose, SealKey};
use mgp_runtime::time::unix_ms;
use serde::{Deserialize, Serialize};

/// The sealed content of a token.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct PromiseRecord {
    /// The caller's id of the task.
    pub(super) task: String,
    /// The tool that was called, by the caller's name of it.
    #[serde(default)]
    pub(super) tool: String,
    /// The expiry, in milliseconds since 1970.
    pub(super) expires_ms: u64,
}

impl PromiseRecord {
    pub(super) fn seal(&self, key: &SealKey, caller: &str) -> String {
        key.seal(Purpose::Promise, caller, self)
    }

    /// Opens a token; `None` if it belongs to another caller, or has expired.
    pub(super) fn open(key: &SealKey, caller: &str, token: &str) -> Option<Self> {
        let record: Self = key.open(Purpose::Promise, caller, token).ok()?;
        (unix_ms() < record.expires_ms).then_some(record)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    fn key() -> SealKey {
        SealKey::new([3; 32])
    }

    fn record(task: usize) -> PromiseRecord {
        PromiseRecord {
            task: format!("mgp1.{task}"),
            tool: "it__slow".into(),
            expires_ms: u64::MAX,
        }
    }

    /// LITE-019, LITE-020: no two of 20,000 tokens are equal, or begin alike after the kernel's prefix.
    #[test]
    fn tokens_are_unique() {
        let tokens: HashSet<String> = (0..20_000)
            .map(|n| record(n).seal(&key(), "a@all"))
            .collect();
        assert_eq!(tokens.len(), 20_000);
        // The prefix, then 16 bytes of the nonce.
        let begins: HashSet<&str> = tokens.iter().map(|token| &token[13..34]).collect();
        assert_eq!(begins.len(), 20_000);
    }

    /// LITE-021, LITE-022, LITE-024: a token opens for its caller, until it expires, and reveals nothing to
    /// others.
    #[test]
    fn token_is_bound_to_its_caller_and_expires() {
        let token = record(7).seal(&key(), "a@all");
        assert!(!token.contains("mgp1.7"), "{token}");
        assert_eq!(
            PromiseRecord::open(&key(), "a@all", &token),
            Some(record(7))
        );
        for other in ["b@all", "a@set:x", ""] {
            assert_eq!(PromiseRecord::open(&key(), other, &token), None, "{other}");
        }
        let over = PromiseRecord {
            expires_ms: unix_ms(),
            ..record(7)
        };
        assert_eq!(
            PromiseRecord::open(&key(), "a@all", &over.seal(&key(), "a@all")),
            None
        );
        let task = key().seal(Purpose::Task, "a@all", &record(7));
        assert_eq!(
            PromiseRecord::open(&key(), "a@all", &task),
            None,
            "an id of a task"
        );
    }
}
