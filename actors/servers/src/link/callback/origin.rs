//! Finds the call that caused a message of a server.

use std::sync::Arc;

use mgp_engine::servers::attribution::{CallOrigin, CallbackTarget, resolve_target};
use mgp_protocol::dialect::ProtocolFamily;

use crate::link::call_queue::call_origin;
use crate::link::{InFlight, Link};
use mgp_callers::InFlightCall;
use mgp_callers::request::Caller;

/// The call that caused a message of a server.
pub(in crate::link) enum Origin {
    /// The only client with in-flight calls.
    Call(Arc<Caller>, Arc<InFlightCall>),
    /// The only client with a call that is not suspended; the suspended calls of others.
    Likely(Arc<Caller>, Arc<InFlightCall>, Vec<Arc<InFlightCall>>),
    /// No call is in flight.
    NoCall,
    /// Several clients have in-flight calls.
    Several,
}

impl Link {
    /// The call that caused a message of the server.
    pub(in crate::link) fn origin(&self, via: Option<u64>) -> Origin {
        self.origin_among(via, |_| true, client_party)
    }

    /// The call with this number, or a candidate among the families that `may` match; candidates with the same
    /// `party` count as one client.
    pub(in crate::link) fn origin_among(
        &self,
        via: Option<u64>,
        may: impl Fn(ProtocolFamily) -> bool,
        call_origin: fn(&Caller) -> CallOrigin,
    ) -> Origin {
        let of = |call: &InFlight| {
            let caller = call.caller.clone().filter(|_| may(call.family));
            caller.map(|c| (c, call.call.clone()))
        };
        if let Some(id) = via {
            return match self.pending.inspect(id, of).flatten() {
                Some((caller, in_flight)) => Origin::Call(caller, in_flight),
                None => Origin::NoCall,
            };
        }
        let mut calls = Vec::new();
        self.pending.for_each(|id, call| {
            if let Some((caller, in_flight)) = of(call) {
                calls.push((id, caller, in_flight));
            }
        });
        attribute(calls, call_origin)
    }

    /// True if all calls of a client are suspended until the client answers.
    pub(in crate::link) fn is_waiting_for_client(&self, origin: CallOrigin) -> bool {
        let mut all_suspended = true;
        self.pending.for_each(|_, call| {
            if call
                .caller
                .as_ref()
                .is_some_and(|c| call_origin(c) == origin)
            {
                all_suspended &= call.call.has_open_callback();
            }
        });
        all_suspended
    }
}

type Calls = Vec<(u64, Arc<Caller>, Arc<InFlightCall>)>;

/// A party for each client.
fn client_party(caller: &Caller) -> CallOrigin {
    CallOrigin::Client(caller.connection)
}

/// A suspended call is most likely not the cause of a new message.
fn attribute(mut calls: Calls, call_origin: fn(&Caller) -> CallOrigin) -> Origin {
    let clients =
        |calls: &Calls| resolve_target(calls.iter().map(|(_, caller, _)| call_origin(caller)));
    let latest = |calls: Calls| calls.into_iter().max_by_key(|(id, ..)| *id);
    let all = clients(&calls);
    let (waiting, active): (Calls, Calls) = calls
        .drain(..)
        .partition(|(_, _, in_flight)| in_flight.has_open_callback());
    match (all, clients(&active)) {
        (CallbackTarget::None, _) => Origin::NoCall,
        (CallbackTarget::One(_), _) => {
            let latest = latest(active).or_else(|| latest(waiting));
            latest.map_or(Origin::NoCall, |(_, caller, in_flight)| {
                Origin::Call(caller, in_flight)
            })
        }
        (CallbackTarget::Ambiguous, CallbackTarget::One(active_client)) => {
            let others = waiting.into_iter();
            let others = others.filter(|(_, caller, _)| call_origin(caller) != active_client);
            let others = others.map(|(_, _, in_flight)| in_flight).collect();
            match latest(active) {
                Some((_, caller, in_flight)) => Origin::Likely(caller, in_flight, others),
                None => Origin::Several,
            }
        }
        (CallbackTarget::Ambiguous, CallbackTarget::None | CallbackTarget::Ambiguous) => {
            Origin::Several
        }
    }
}
