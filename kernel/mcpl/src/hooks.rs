//! What hooks may add and change, and in which order (MCPL §10).

pub mod answers;
pub mod channels;
pub mod fence;
pub mod nesting;

use std::collections::BTreeSet;
use std::time::Duration;

use mgp_protocol::ids::ServerId;

/// All answers to `context/beforeInference` of one inference, by default (§10.6).
pub const BEFORE: Duration = Duration::from_secs(5);
/// The whole chain of `context/afterInference`, by default (§10.6).
pub const AFTER: Duration = Duration::from_secs(10);
/// What one server may add to one inference, by default, in bytes: some 16,000 tokens.
pub const SERVER_BYTES: usize = 64 << 10;
/// What all servers may add to one inference, by default, in bytes.
pub const BYTES: usize = 256 << 10;

/// What the operator says of hooks: `[mcpl.hooks]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HookPolicy {
    /// How long all servers together may take before an inference.
    pub before: Duration,
    /// How long all servers together may take after it.
    pub after: Duration,
    /// What one server may add, in bytes.
    pub server_bytes: usize,
    /// What all of them may add, in bytes.
    pub bytes: usize,
    /// These come first, in this order.
    pub order: Vec<ServerId>,
    /// Servers are told of their own channels before an inference (§14.4).
    pub channels: bool,
    /// No answer of a model goes on that one of these has not let through (§13.3).
    pub fail_closed: BTreeSet<ServerId>,
}

impl Default for HookPolicy {
    fn default() -> Self {
        Self {
            before: BEFORE,
            after: AFTER,
            server_bytes: SERVER_BYTES,
            bytes: BYTES,
            order: Vec::new(),
            channels: false,
            fail_closed: BTreeSet::new(),
        }
    }
}

impl HookPolicy {
    /// The order of servers (MCPL-100): those the operator named, as they were named; then the others by their
    /// ids. It is the order of injections at each position, and of the chain behind an inference.
    pub fn sort<T>(&self, servers: &mut [T], id: impl Fn(&T) -> &ServerId) {
        servers.sort_by(|a, b| {
            let place = |server: &ServerId| {
                let named = self.order.iter().position(|of| *of == server.server());
                named.unwrap_or(usize::MAX)
            };
            let (a, b) = (id(a), id(b));
            place(a).cmp(&place(b)).then_with(|| a.cmp(b))
        });
    }

    /// Whether a server has to answer.
    #[must_use]
    pub fn is_closed(&self, server: &ServerId) -> bool {
        self.fail_closed.contains(&server.server())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// MCPL-100: the order is the operator's, then that of the ids, whatever the order they come in.
    #[test]
    fn the_order_of_servers_is_always_the_same() {
        let ids = |names: &[&str]| names.iter().copied().map(ServerId::new).collect::<Vec<_>>();
        let policy = HookPolicy {
            order: ids(&["redact", "away", "memory"]),
            ..HookPolicy::default()
        };
        for came in [
            ["b", "memory", "a", "redact"],
            ["redact", "a", "b", "memory"],
        ] {
            let mut servers = ids(&came);
            policy.sort(&mut servers, |id| id);
            assert_eq!(servers, ids(&["redact", "memory", "a", "b"]));
        }
    }
}
