//! Which call a message of a server belongs to.

use std::sync::Arc;

use mgp_engine::servers::attribution::{CallOrigin, CallbackTarget, resolve_target};
use mgp_protocol::dialect::ProtocolFamily;

use crate::link::call_queue::party;
use crate::link::{InFlight, Link};
use mgp_callers::InFlightCall;
use mgp_callers::request::Caller;

/// Whose call caused a message of a server.
pub(in crate::link) enum Origin {
    /// The only client with calls under way.
    Call(Arc<Caller>, Arc<InFlightCall>),
    /// The only client with calls that do not wait for their clients; these calls of others do.
    Likely(Arc<Caller>, Arc<InFlightCall>, Vec<Arc<InFlightCall>>),
    /// No call is under way.
    Nobody,
    /// Calls of several clients are.
    Several,
}

impl Link {
    /// Whose call a message of the server belongs to.
    pub(in crate::link) fn origin(&self, via: Option<u64>) -> Origin {
        self.origin_among(via, |_| true, client_party)
    }

    /// The call with this number, or one of those that `may` be meant, told apart by their `party`.
    pub(in crate::link) fn origin_among(
        &self,
        via: Option<u64>,
        may: impl Fn(ProtocolFamily) -> bool,
        party: fn(&Caller) -> CallOrigin,
    ) -> Origin {
        let of = |call: &InFlight| {
            let caller = call.caller.clone().filter(|_| may(call.family));
            caller.map(|c| (c, call.call.clone()))
        };
        if let Some(id) = via {
            return match self.pending.inspect(id, of).flatten() {
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

    /// True when every call of a client waits for what the client says.
    pub(in crate::link) fn is_waiting_for_client(&self, who: CallOrigin) -> bool {
        let mut rests = true;
        self.pending.for_each(|_, call| {
            if call.caller.as_ref().is_some_and(|c| party(c) == who) {
                rests &= call.call.has_open_callback();
            }
        });
        rests
    }
}

type Calls = Vec<(u64, Arc<Caller>, Arc<InFlightCall>)>;

/// Each client by itself.
fn client_party(caller: &Caller) -> CallOrigin {
    CallOrigin::Client(caller.connection)
}

/// A call that waits for its client's answer is most likely not the one that speaks now.
fn attribute(mut calls: Calls, party: fn(&Caller) -> CallOrigin) -> Origin {
    let clients = |calls: &Calls| resolve_target(calls.iter().map(|(_, caller, _)| party(caller)));
    let latest = |calls: Calls| calls.into_iter().max_by_key(|(id, ..)| *id);
    let all = clients(&calls);
    let (waiting, active): (Calls, Calls) = calls
        .drain(..)
        .partition(|(_, _, exchange)| exchange.has_open_callback());
    match (all, clients(&active)) {
        (CallbackTarget::None, _) => Origin::Nobody,
        (CallbackTarget::One(_), _) => {
            let latest = latest(active).or_else(|| latest(waiting));
            latest.map_or(Origin::Nobody, |(_, caller, exchange)| {
                Origin::Call(caller, exchange)
            })
        }
        (CallbackTarget::Ambiguous, CallbackTarget::One(asked)) => {
            let others = waiting.into_iter();
            let others = others.filter(|(_, caller, _)| party(caller) != asked);
            let others = others.map(|(_, _, exchange)| exchange).collect();
            match latest(active) {
                Some((_, caller, exchange)) => Origin::Likely(caller, exchange, others),
                None => Origin::Several,
            }
        }
        (CallbackTarget::Ambiguous, CallbackTarget::None | CallbackTarget::Ambiguous) => {
            Origin::Several
        }
    }
}
