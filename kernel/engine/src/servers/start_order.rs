//! Start order of servers: what a server still waits for, and detection of cycles.

pub mod start_diagnostics;

use std::collections::{BTreeMap, BTreeSet};

use mgp_protocol::ids::ServerId;

use crate::servers::lifecycle::LifecycleState;

/// The state of a server that another one waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AwaitedStart {
    /// Not seen yet.
    Unknown,
    /// Its published state.
    Known {
        /// The lifecycle state.
        state: LifecycleState,
        /// It starts without an order.
        will_start: bool,
        /// It waits for the operator's approval.
        awaits_approval: bool,
    },
}

impl AwaitedStart {
    /// True while it is not connected and may start without an order or after an approval.
    #[must_use]
    pub fn is_pending(self) -> bool {
        match self {
            Self::Unknown => true,
            Self::Known {
                state,
                will_start,
                awaits_approval,
            } => {
                state != LifecycleState::Connected
                    && (awaits_approval || state.can_accept_calls_soon(will_start))
            }
        }
    }
}

/// Describes what a server waits for.
#[must_use]
pub fn describe_waiting(others: &[ServerId]) -> String {
    let names: Vec<_> = others.iter().map(ServerId::as_str).collect();
    format!("waits for {}", names.join(", "))
}

/// The cycle that contains this server, starting with it.
#[must_use]
pub fn find_cycle(
    server: &ServerId,
    after: &BTreeMap<ServerId, Vec<ServerId>>,
) -> Option<Vec<ServerId>> {
    let mut seen = BTreeSet::new();
    let mut paths = vec![vec![server.clone()]];
    while let Some(path) = paths.pop() {
        let last = path.last().expect("a path begins with the server itself");
        for next in after.get(last).into_iter().flatten() {
            if next == server {
                return Some(path);
            }
            if seen.insert(next.clone()) {
                let mut longer = path.clone();
                longer.push(next.clone());
                paths.push(longer);
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn only_a_server_that_may_start_is_waited_for() {
        let seen = |state, will_start, awaits_approval| AwaitedStart::Known {
            state,
            will_start,
            awaits_approval,
        };
        assert!(AwaitedStart::Unknown.is_pending());
        for (state, due, held, waits) in [
            (LifecycleState::Registered, true, false, true),
            (LifecycleState::Registered, false, false, false),
            (LifecycleState::Registered, false, true, true),
            (LifecycleState::Connecting, false, false, true),
            (LifecycleState::Connected, false, false, false),
            (LifecycleState::Restarting, false, false, true),
            (LifecycleState::Error, false, false, false),
            (LifecycleState::Disconnected, false, false, false),
        ] {
            assert_eq!(
                seen(state, due, held).is_pending(),
                waits,
                "{state} {due} {held}"
            );
        }
        let names = [ServerId::new("db"), ServerId::new("files")];
        assert_eq!(describe_waiting(&names), "waits for db, files");
    }

    fn orders() -> impl Strategy<Value = Vec<(usize, usize)>> {
        prop::collection::vec((0usize..7, 0usize..7), 0..14)
    }

    proptest! {
        #[test]
        fn a_cycle_is_found_from_exactly_its_members(edges in orders()) {
            let id = |n: usize| ServerId::new(format!("s{n}"));
            let mut after = BTreeMap::<ServerId, Vec<ServerId>>::new();
            for (from, to) in &edges {
                after.entry(id(*from)).or_default().push(id(*to));
            }
            let mut reaches = [[false; 7]; 7];
            for (from, to) in &edges {
                reaches[*from][*to] = true;
            }
            for by in 0..7 {
                for from in 0..7 {
                    for to in 0..7 {
                        reaches[from][to] |= reaches[from][by] && reaches[by][to];
                    }
                }
            }
            for (n, reached) in reaches.iter().enumerate() {
                let found = find_cycle(&id(n), &after);
                prop_assert_eq!(found.is_some(), reached[n]);
                let Some(path) = found else { continue };
                prop_assert_eq!(&path[0], &id(n));
                for (index, member) in path.iter().enumerate() {
                    let next = path.get(index + 1).unwrap_or(&path[0]);
                    prop_assert!(after[member].contains(next));
                }
            }
        }
    }
}
