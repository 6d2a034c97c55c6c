//! What hooks may add and change, and in which order (MCPL §10).

pub mod answers;
pub mod channels;
pub mod fence;
pub mod nesting;

use std::collections::BTreeSet;
use std::time::Duration;

use mgp_protocol::ids::ServerId;

/// All answers to `context/beforeInference` of one inference, by default (§10.6).
pub(crate) const BEFORE_TIMEOUT: Duration = Duration::from_secs(5);
/// The whole chain of `context/afterInference`, by default (§10.6).
pub(crate) const AFTER_TIMEOUT: Duration = Duration::from_secs(10);
/// What one server may add to one inference, by default, in bytes: some 16,000 tokens.
pub(crate) const SERVER_BYTES: usize = 64 << 10;
/// What all servers may add to one inference, by default, in bytes.
pub(crate) const TOTAL_BYTES: usize = 256 << 10;

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
            before: BEFORE_TIMEOUT,
            after: AFTER_TIMEOUT,
            server_bytes: SERVER_BYTES,
            bytes: TOTAL_BYTES,
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
    pub fn is_fail_closed(&self, server: &ServerId) -> bool {
        self.fail_closed.contains(&server.server())
    }

    /// How much of the time that is left a server of the chain may take. Each server behind it that has to answer has
    /// an equal share of its own, which a silent one before it cannot use up.
    #[must_use]
    pub fn time_share<'a>(
        &self,
        left: Duration,
        behind: impl Iterator<Item = &'a ServerId>,
    ) -> Duration {
        let closed = behind.filter(|server| self.is_fail_closed(server)).count();
        left / u32::try_from(closed + 1).unwrap_or(u32::MAX)
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

    #[test]
    fn a_silent_server_leaves_its_time_to_each_that_has_to_answer() {
        let ids = ["slow", "guard", "late", "audit"].map(ServerId::new);
        let policy = HookPolicy {
            fail_closed: [ids[1].clone(), ids[3].clone()].into(),
            ..HookPolicy::default()
        };
        let mut left = Duration::from_secs(9);
        let mut shares = Vec::new();
        for place in 0..ids.len() {
            let share = policy.time_share(left, ids[place + 1..].iter());
            shares.push(share.as_millis());
            // Each takes all that it may.
            left -= share;
        }
        assert_eq!(shares, [3000, 3000, 1500, 1500]);
        let open = HookPolicy::default();
        assert_eq!(open.time_share(left, ids.iter()), left);
    }
}
