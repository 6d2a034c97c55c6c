//! Limits and order of hooks (MCPL §10).

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
/// Default bytes that one server may add to one inference: some 16,000 tokens.
pub(crate) const SERVER_BYTES: usize = 64 << 10;
/// Default bytes that all servers may add to one inference.
pub(crate) const TOTAL_BYTES: usize = 256 << 10;

/// `[mcpl.hooks]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HookPolicy {
    /// Time of all servers together before an inference.
    pub before: Duration,
    /// Time of all servers together after it.
    pub after: Duration,
    /// Bytes that one server may add.
    pub server_bytes: usize,
    /// Bytes that all of them may add.
    pub bytes: usize,
    /// Servers that come first, in this order.
    pub order: Vec<ServerId>,
    /// Hooks before an inference name the server's own channels (§14.4).
    pub channels: bool,
    /// An answer of a model passes only if all of these let it through (§13.3).
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
    /// The order of servers (MCPL-100): those in `order` first, then the others by id. Injections at each position
    /// and the chain after an inference follow it.
    pub fn sort<T>(&self, servers: &mut [T], id: impl Fn(&T) -> &ServerId) {
        servers.sort_by(|a, b| {
            let rank = |server: &ServerId| {
                let named = self.order.iter().position(|id| *id == server.server());
                named.unwrap_or(usize::MAX)
            };
            let (a, b) = (id(a), id(b));
            rank(a).cmp(&rank(b)).then_with(|| a.cmp(b))
        });
    }

    /// True when the server has to answer.
    #[must_use]
    pub fn is_fail_closed(&self, server: &ServerId) -> bool {
        self.fail_closed.contains(&server.server())
    }

    /// The time limit of the next server of the chain. Each later fail-closed server keeps an equal share, which a
    /// silent one before it cannot use up.
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

    /// MCPL-095, MCPL-096: those that §10.6 recommends.
    #[test]
    fn default_timeouts_are_five_seconds_before_and_ten_after() {
        let policy = HookPolicy::default();
        assert_eq!(policy.before, Duration::from_secs(5));
        assert_eq!(policy.after, Duration::from_secs(10));
    }

    /// MCPL-100: the operator's order, then that of the ids, whatever the order of arrival.
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
        for index in 0..ids.len() {
            let share = policy.time_share(left, ids[index + 1..].iter());
            shares.push(share.as_millis());
            // Each uses its whole share.
            left -= share;
        }
        assert_eq!(shares, [3000, 3000, 1500, 1500]);
        let open = HookPolicy::default();
        assert_eq!(open.time_share(left, ids.iter()), left);
    }
}
