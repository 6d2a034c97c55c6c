//! Which servers are started after which: for whom one still waits, and that nobody waits in a circle.

pub mod start_diagnostics;

use std::collections::{BTreeMap, BTreeSet};

use mgp_protocol::ids::ServerId;

use crate::servers::lifecycle::LifecycleState;

/// What is known of a server that another one waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AwaitedStart {
    /// Nobody has seen it yet.
    Unknown,
    /// It stands there; `due` says that it is to be started without anybody's doing.
    Known {
        /// Where it stands.
        state: LifecycleState,
        /// It comes up without anybody's doing.
        will_start: bool,
        /// It waits for a person.
        awaits_approval: bool,
    },
}

impl AwaitedStart {
    /// True while it may come up by itself, or by a person's answer, and is not there yet.
    #[must_use]
    pub fn is_pending(self) -> bool {
        match self {
            Self::Unknown => true,
            Self::Known {
                state,
                will_start: due,
                awaits_approval: held,
            } => state != LifecycleState::Connected && (held || state.can_accept_calls_soon(due)),
        }
    }
}

/// What a server waits for, in words.
#[must_use]
pub fn describe_waiting(others: &[ServerId]) -> String {
    let names: Vec<_> = others.iter().map(ServerId::as_str).collect();
    format!("waits for {}", names.join(", "))
}

/// The circle this server stands in, from itself on; `None` where it waits in none.
#[must_use]
pub fn find_cycle(
    of: &ServerId,
    after: &BTreeMap<ServerId, Vec<ServerId>>,
) -> Option<Vec<ServerId>> {
    let mut seen = BTreeSet::new();
    let mut ways = vec![vec![of.clone()]];
    while let Some(way) = ways.pop() {
        let last = way.last().expect("a way begins with the server itself");
        for next in after.get(last).into_iter().flatten() {
            if next == of {
                return Some(way);
            }
            if seen.insert(next.clone()) {
                let mut longer = way.clone();
                longer.push(next.clone());
                ways.push(longer);
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
    fn it_is_waited_for_who_comes_and_for_no_other() {
        let seen = |state, due, held| AwaitedStart::Known {
            state,
            will_start: due,
            awaits_approval: held,
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
        /// Who stands in a circle is found with a circle that is one, and nobody else is; those that stand in
        /// none can be started one after the other.
        #[test]
        fn a_circle_is_found_by_each_in_it(edges in orders()) {
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
                let Some(way) = found else { continue };
                prop_assert_eq!(&way[0], &id(n));
                for (place, one) in way.iter().enumerate() {
                    let next = way.get(place + 1).unwrap_or(&way[0]);
                    prop_assert!(after[one].contains(next));
                }
            }
        }
    }
}
