//! Finds the call that a message of a server belongs to.

use std::sync::Arc;

use mgp_engine::servers::attribution::{Party, Whom, whom};
use mgp_protocol::dialect::Era;

use crate::link::call_queue::party;
use crate::link::{InFlight, Link};
use mgp_callers::exchange::Exchange;
use mgp_callers::request::Caller;

/// The call a message belongs to.
pub(in crate::link) enum Origin {
    /// A call of the only client with calls under way.
    Call(Arc<Caller>, Arc<Exchange>),
    /// A call of the only client not waiting for an answer of its own; these calls of others are.
    Likely(Arc<Caller>, Arc<Exchange>, Vec<Arc<Exchange>>),
    /// No call is under way.
    Nobody,
    /// Calls of several clients are under way.
    Several,
}

impl Link {
    /// Finds the call that a message belongs to.
    pub(in crate::link) fn origin(&self, via: Option<u64>) -> Origin {
        self.origin_among(via, |_| true, client)
    }

    /// The call with this number, or else one of those that `may` be meant, grouped by `party`.
    pub(in crate::link) fn origin_among(
        &self,
        via: Option<u64>,
        may: impl Fn(Era) -> bool,
        party: fn(&Caller) -> Party,
    ) -> Origin {
        let of = |call: &InFlight| {
            let caller = call.caller.clone().filter(|_| may(call.era));
            caller.map(|c| (c, call.exchange.clone()))
        };
        if let Some(id) = via {
            return match self.pending.with(id, of).flatten() {
                Some((caller, exchange)) => Origin::Call(caller, exchange),
                None => Origin::Nobody,
            };
        }
        let mut calls = Vec::new();
        self.pending.for_each(|id, call| {
            if let Some((caller, exchange)) = of(call) {
                calls.push((id, caller, exchange));
            }
        });
        attribute(calls, party)
    }

    /// True when every call of a client waits for the client to answer.
    pub(in crate::link) fn rests(&self, who: Party) -> bool {
        let mut rests = true;
        self.pending.for_each(|_, call| {
            if call.caller.as_ref().is_some_and(|c| party(c) == who) {
                rests &= call.exchange.is_asked();
            }
        });
        rests
    }
}

type Calls = Vec<(u64, Arc<Caller>, Arc<Exchange>)>;

/// Groups calls by client.
fn client(caller: &Caller) -> Party {
    Party::Client(caller.connection)
}

/// A call that waits for its client's answer is probably not the one that sends now.
fn attribute(mut calls: Calls, party: fn(&Caller) -> Party) -> Origin {
    let clients = |calls: &Calls| whom(calls.iter().map(|(_, caller, _)| party(caller)));
    let latest = |calls: Calls| calls.into_iter().max_by_key(|(id, ..)| *id);
    let all = clients(&calls);
    let (waiting, active): (Calls, Calls) = calls
        .drain(..)
        .partition(|(_, _, exchange)| exchange.is_asked());
    match (all, clients(&active)) {
        (Whom::Nobody, _) => Origin::Nobody,
        (Whom::One(_), _) => {
            let latest = latest(active).or_else(|| latest(waiting));
            latest.map_or(Origin::Nobody, |(_, caller, exchange)| {
                Origin::Call(caller, exchange)
            })
        }
        (Whom::Several, Whom::One(asked)) => {
            let others = waiting.into_iter();
            let others = others.filter(|(_, caller, _)| party(caller) != asked);
            let others = others.map(|(_, _, exchange)| exchange).collect();
            match latest(active) {
                Some((_, caller, exchange)) => Origin::Likely(caller, exchange, others),
                None => Origin::Several,
            }
        }
        (Whom::Several, Whom::Nobody | Whom::Several) => Origin::Several,
    }
}
