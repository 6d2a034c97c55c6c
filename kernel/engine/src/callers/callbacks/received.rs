//! The callbacks received on one connection to a server: each is handled once, however often it is sent.
//!
//! They are forgotten with their call, so that memory is bounded on a connection that never closes.

use std::collections::{HashMap, VecDeque};

use mgp_protocol::jsonrpc::RequestId;

/// Unanswered callbacks of all calls, including answers not delivered to the server yet. A person answers one at a
/// time, and an immediate denial waits only for the server.
const OPEN_MAX: usize = 64;
/// The same limit for one call, including callbacks that expired: after sixteen of them no more are sent.
const OPEN_PER_CALL_MAX: usize = 16;
/// Bytes of all open callbacks.
const OPEN_BYTES: usize = 8 << 20;
/// Longest id, in bytes.
const ID_MAX: usize = 256;
/// Answers stored for retries. The oldest is forgotten, and its retry would be asked again; but servers retry the
/// newest.
const SETTLED_MAX: usize = 256;
/// Bytes of all stored answers.
const SETTLED_BYTES: usize = 1 << 20;

/// Distinguishes two callbacks that use the same id one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CallbackTicket(u64);

/// What to do with a callback that arrives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CallbackArrival {
    /// Forward it.
    New(CallbackTicket),
    /// It is already pending.
    Pending,
    /// Send this answer again.
    Answered(String),
    /// It ended without an answer.
    Ended,
    /// Another in-flight call has a callback with this id, so an answer could not be assigned.
    OtherCall,
    /// A limit is reached.
    TooMany,
}

#[derive(Debug)]
struct TrackedCallback {
    call: u64,
    ticket: CallbackTicket,
    bytes: usize,
    /// `None` while it is open.
    outcome: Option<CallbackOutcome>,
}

/// How a callback ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CallbackOutcome {
    /// The server got this answer, and gets it again on a retry.
    Answered(String),
    /// Nobody answered in time.
    Unanswered,
    /// It needed no answer.
    Displayed,
}

/// The callbacks a server has sent in its in-flight calls.
#[derive(Debug, Default)]
pub struct ReceivedCallbacks {
    tracked: HashMap<RequestId, TrackedCallback>,
    /// Settled callbacks, oldest first.
    settled: VecDeque<(RequestId, CallbackTicket)>,
    /// Answers not delivered to the server yet, whether or not their calls have ended.
    undelivered: usize,
    last_ticket: u64,
}

impl ReceivedCallbacks {
    /// Registers a callback of this size in bytes that arrives in this call.
    pub fn receive(&mut self, id: &RequestId, call: u64, bytes: usize) -> CallbackArrival {
        if let Some(known) = self.tracked.get(id) {
            return match &known.outcome {
                _ if known.call != call => CallbackArrival::OtherCall,
                None => CallbackArrival::Pending,
                Some(CallbackOutcome::Answered(answer)) => {
                    CallbackArrival::Answered(answer.clone())
                }
                Some(CallbackOutcome::Unanswered | CallbackOutcome::Displayed) => {
                    CallbackArrival::Ended
                }
            };
        }
        if id.as_json().len() > ID_MAX || !self.has_capacity(call, bytes) {
            return CallbackArrival::TooMany;
        }
        self.last_ticket += 1;
        let ticket = CallbackTicket(self.last_ticket);
        let known = TrackedCallback {
            call,
            ticket,
            bytes,
            outcome: None,
        };
        self.tracked.insert(id.clone(), known);
        CallbackArrival::New(ticket)
    }

    fn has_capacity(&self, call: u64, bytes: usize) -> bool {
        let (mut open_count, mut call_count, mut open_bytes) = (self.undelivered, 0, bytes);
        for known in self.tracked.values() {
            let is_open = known.outcome.is_none();
            let is_unanswered = is_open || known.outcome == Some(CallbackOutcome::Unanswered);
            open_count += usize::from(is_open);
            call_count += usize::from(known.call == call && is_unanswered);
            open_bytes += known.bytes * usize::from(is_open);
        }
        open_count < OPEN_MAX && call_count < OPEN_PER_CALL_MAX && open_bytes <= OPEN_BYTES
    }

    /// Settles a callback. False when it was not open any more: then nothing is sent. An answer counts as undelivered
    /// until [`Self::confirm_delivery`].
    pub fn settle(&mut self, id: &RequestId, ticket: CallbackTicket, end: CallbackOutcome) -> bool {
        let known = self.tracked.get_mut(id);
        let open = known.filter(|known| known.ticket == ticket && known.outcome.is_none());
        let Some(known) = open else {
            return false;
        };
        known.bytes = match &end {
            CallbackOutcome::Answered(answer) => answer.len(),
            CallbackOutcome::Unanswered | CallbackOutcome::Displayed => 0,
        };
        self.undelivered += usize::from(matches!(end, CallbackOutcome::Answered(_)));
        known.outcome = Some(end);
        self.settled.push_back((id.clone(), ticket));
        self.evict_settled();
        true
    }

    /// An answer was delivered to the server, or cannot be.
    pub fn confirm_delivery(&mut self) {
        self.undelivered = self.undelivered.saturating_sub(1);
    }

    /// Ends a call and forgets its callbacks; returns those that were open.
    pub fn end_call(&mut self, call: u64) -> Vec<CallbackTicket> {
        let of_call = self.tracked.extract_if(|_, known| known.call == call);
        let open = of_call.filter(|(_, known)| known.outcome.is_none());
        let open = open.map(|(_, known)| known.ticket).collect();
        let known = &self.tracked;
        self.settled
            .retain(|(id, ticket)| known.get(id).is_some_and(|it| it.ticket == *ticket));
        open
    }

    /// The call that a callback of this id belongs to.
    #[must_use]
    pub fn call_for(&self, id: &RequestId) -> Option<u64> {
        self.tracked.get(id).map(|known| known.call)
    }

    /// True while no call has callbacks.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.tracked.is_empty()
    }

    fn evict_settled(&mut self) {
        let bytes = |known: &HashMap<RequestId, TrackedCallback>| -> usize {
            let settled = known.values().filter(|it| it.outcome.is_some());
            settled.map(|it| it.bytes).sum()
        };
        while self.settled.len() > SETTLED_MAX || bytes(&self.tracked) > SETTLED_BYTES {
            let Some((id, _)) = self.settled.pop_front() else {
                return;
            };
            self.tracked.remove(&id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn id(text: &str) -> RequestId {
        RequestId::from_json(&format!("{text:?}")).unwrap()
    }

    fn ticket(arrived: CallbackArrival) -> CallbackTicket {
        match arrived {
            CallbackArrival::New(ticket) => ticket,
            CallbackArrival::Pending
            | CallbackArrival::Answered(_)
            | CallbackArrival::Ended
            | CallbackArrival::OtherCall
            | CallbackArrival::TooMany => panic!("{arrived:?}"),
        }
    }

    fn said(text: &str) -> CallbackOutcome {
        CallbackOutcome::Answered(text.into())
    }

    #[test]
    fn unanswered_callbacks_of_a_call_are_bounded() {
        let mut asked = ReceivedCallbacks::default();
        for n in 0..3 * OPEN_PER_CALL_MAX {
            let it = id(&n.to_string());
            let arrived = asked.receive(&it, 1, 0);
            if n >= 2 * OPEN_PER_CALL_MAX {
                assert_eq!(arrived, CallbackArrival::TooMany);
                continue;
            }
            let end = if n < OPEN_PER_CALL_MAX {
                CallbackOutcome::Displayed
            } else {
                CallbackOutcome::Unanswered
            };
            assert!(asked.settle(&it, ticket(arrived), end));
        }
        assert!(matches!(
            asked.receive(&id("x"), 2, 0),
            CallbackArrival::New(_)
        ));
    }

    /// MGP-183: a retry gets the same answer.
    #[test]
    fn a_callback_is_forwarded_once() {
        let mut asked = ReceivedCallbacks::default();
        let first = ticket(asked.receive(&id("a"), 1, 10));
        assert_eq!(asked.receive(&id("a"), 1, 10), CallbackArrival::Pending);
        assert_eq!(asked.receive(&id("a"), 2, 10), CallbackArrival::OtherCall);
        assert!(asked.settle(&id("a"), first, said("yes")));
        assert!(!asked.settle(&id("a"), first, said("no")));
        assert_eq!(
            asked.receive(&id("a"), 1, 10),
            CallbackArrival::Answered("yes".into())
        );
        assert_eq!(asked.receive(&id("a"), 2, 10), CallbackArrival::OtherCall);
        let second = ticket(asked.receive(&id("b"), 1, 10));
        assert!(asked.settle(&id("b"), second, CallbackOutcome::Unanswered));
        assert_eq!(asked.receive(&id("b"), 1, 10), CallbackArrival::Ended);
    }

    /// Their ids may be used again.
    #[test]
    fn callbacks_end_with_their_call() {
        let mut asked = ReceivedCallbacks::default();
        let first = ticket(asked.receive(&id("a"), 1, 0));
        let other = ticket(asked.receive(&id("b"), 2, 0));
        assert_eq!(asked.end_call(1), [first]);
        assert!(asked.end_call(1).is_empty());
        let again = ticket(asked.receive(&id("a"), 3, 0));
        assert!(!asked.settle(&id("a"), first, said("")));
        assert!(asked.settle(&id("a"), again, CallbackOutcome::Displayed));
        assert!(asked.end_call(3).is_empty());
        assert_eq!(asked.end_call(2), [other]);
        assert!(asked.is_empty() && asked.settled.is_empty());
    }

    /// For each call, in total, and in bytes; stored answers are bounded, too.
    #[test]
    fn a_flood_of_callbacks_is_bounded() {
        let mut asked = ReceivedCallbacks::default();
        let mut taken = Vec::new();
        for n in 0..2 * OPEN_MAX {
            let call = u64::try_from(n / (2 * OPEN_PER_CALL_MAX)).unwrap();
            if let CallbackArrival::New(ticket) = asked.receive(&id(&n.to_string()), call, 0) {
                taken.push((n, ticket));
            }
        }
        assert_eq!(taken.len(), OPEN_MAX);
        assert_eq!(asked.receive(&id("x"), 99, 0), CallbackArrival::TooMany);
        let (n, first) = taken[0];
        asked.settle(&id(&n.to_string()), first, said(""));
        asked.confirm_delivery();
        assert_eq!(
            asked.receive(&id("x"), 99, OPEN_BYTES + 1),
            CallbackArrival::TooMany
        );
        assert!(matches!(
            asked.receive(&id("x"), 99, OPEN_BYTES),
            CallbackArrival::New(_)
        ));
        let mut asked = ReceivedCallbacks::default();
        assert_eq!(
            asked.receive(&id(&"x".repeat(ID_MAX)), 1, 0),
            CallbackArrival::TooMany
        );
        for n in 0..=SETTLED_MAX {
            let it = id(&n.to_string());
            let new = ticket(asked.receive(&it, 1, 0));
            asked.settle(&it, new, said("ok"));
            asked.confirm_delivery();
        }
        assert!(matches!(
            asked.receive(&id("0"), 1, 0),
            CallbackArrival::New(_)
        ));
        assert_eq!(
            asked.receive(&id("1"), 1, 0),
            CallbackArrival::Answered("ok".into())
        );
        let it = id("large");
        let new = ticket(asked.receive(&it, 1, 0));
        asked.settle(&it, new, said(&"x".repeat(SETTLED_BYTES - 1)));
        assert_eq!(asked.settled.len(), 1);
    }

    /// They count as open, also after their calls have ended.
    #[test]
    fn undelivered_answers_are_bounded() {
        let mut asked = ReceivedCallbacks::default();
        for n in 0..OPEN_MAX {
            let (it, call) = (id("a"), u64::try_from(n).unwrap());
            let new = ticket(asked.receive(&it, call, 0));
            assert!(asked.settle(&it, new, said("null")));
            assert!(asked.end_call(call).is_empty());
        }
        assert!(asked.is_empty());
        assert_eq!(asked.receive(&id("b"), 99, 0), CallbackArrival::TooMany);
        asked.confirm_delivery();
        let shown = ticket(asked.receive(&id("b"), 99, 0));
        assert_eq!(asked.receive(&id("c"), 99, 0), CallbackArrival::TooMany);
        assert!(asked.settle(&id("b"), shown, CallbackOutcome::Displayed));
        assert!(matches!(
            asked.receive(&id("c"), 99, 0),
            CallbackArrival::New(_)
        ));
    }

    proptest! {
        /// Until the end of its call, a callback is forwarded once, and retries get its answer.
        #[test]
        fn received_callbacks_behave_like_a_simple_model(
            steps in proptest::collection::vec((0u8..3, 0usize..4, 0u64..3, any::<bool>()), 0..60)
        ) {
            #[derive(Clone, PartialEq)]
            enum Model { Open, Answered(String), Dead }
            let mut asked = ReceivedCallbacks::default();
            let mut model: HashMap<usize, (u64, CallbackTicket, Model)> = HashMap::new();
            for (step, n, call, answered) in steps {
                let it = id(&n.to_string());
                match step {
                    0 => {
                        let arrived = asked.receive(&it, call, 1);
                        match model.get(&n) {
                            None => {
                                let new = ticket(arrived);
                                model.insert(n, (call, new, Model::Open));
                            }
                            Some((of, ..)) if *of != call => {
                                prop_assert_eq!(arrived, CallbackArrival::OtherCall);
                            }
                            Some((_, _, Model::Open)) => prop_assert_eq!(arrived, CallbackArrival::Pending),
                            Some((_, _, Model::Answered(text))) => {
                                prop_assert_eq!(arrived, CallbackArrival::Answered(text.clone()));
                            }
                            Some((_, _, Model::Dead)) => prop_assert_eq!(arrived, CallbackArrival::Ended),
                        }
                    }
                    1 => {
                        let end = match answered {
                            true => said(&format!("{n} {call}")),
                            false => CallbackOutcome::Displayed,
                        };
                        if let Some((_, ticket, state)) = model.get_mut(&n) {
                            let open = *state == Model::Open;
                            prop_assert_eq!(asked.settle(&it, *ticket, end.clone()), open);
                            if open {
                                *state = match end {
                                    CallbackOutcome::Answered(text) => Model::Answered(text),
                                    CallbackOutcome::Unanswered | CallbackOutcome::Displayed => Model::Dead,
                                };
                            }
                        }
                    }
                    _ => {
                        let mut open: Vec<CallbackTicket> = model
                            .values()
                            .filter(|(of, _, state)| *of == call && *state == Model::Open)
                            .map(|(_, ticket, _)| *ticket)
                            .collect();
                        model.retain(|_, (of, ..)| *of != call);
                        let mut ended = asked.end_call(call);
                        open.sort_by_key(|ticket| ticket.0);
                        ended.sort_by_key(|ticket| ticket.0);
                        prop_assert_eq!(ended, open);
                    }
                }
                prop_assert_eq!(asked.is_empty(), model.is_empty());
            }
        }
    }
}
