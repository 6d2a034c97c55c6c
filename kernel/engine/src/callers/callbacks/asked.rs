//! The callbacks of one connection to a server: each is asked once, however often it is sent.
//!
//! They are forgotten with their call, so that nothing is kept for a server that goes on for ever.

use std::collections::{HashMap, VecDeque};

use mgp_protocol::jsonrpc::RequestId;

/// Callbacks without an answer, of all calls, with those whose answer the server was not told yet; a person
/// answers one at a time, and what is declined at once waits for the server itself.
const OPEN_MAX: usize = 64;
/// The same of one call, with those that nobody answered in time: whom sixteen questions of a call did not
/// move is not asked on.
const OF_CALL_MAX: usize = 16;
/// Bytes of all that wait.
const OPEN_BYTES: usize = 8 << 20;
/// Longest id, in bytes.
const ID_MAX: usize = 256;
/// Answers kept for retries. The oldest is forgotten; its retry would be asked anew, but servers retry
/// the newest.
const SETTLED_MAX: usize = 256;
/// Bytes of all that are kept.
const SETTLED_BYTES: usize = 1 << 20;

/// Tells one asking of an id from another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CallbackTicket(u64);

/// What is to be done about a callback that arrives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Arrived {
    /// Ask it.
    New(CallbackTicket),
    /// It is being asked.
    Waits,
    /// Say this again: it was answered.
    Answered(String),
    /// It ended without an answer.
    Over,
    /// Another call that is under way has a callback of this id: to whom an answer belonged could not be
    /// told.
    OfAnother,
    /// A bound is reached.
    TooMany,
}

#[derive(Debug)]
struct KnownCallback {
    call: u64,
    ticket: CallbackTicket,
    bytes: usize,
    /// `None` while it is open.
    end: Option<CallbackEnd>,
}

/// How a callback ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CallbackEnd {
    /// Its server was told this, and is told again.
    Answered(String),
    /// Nobody answered in time.
    Unanswered,
    /// It needed no answer.
    Shown,
}

/// What a server has asked in the calls that are under way.
#[derive(Debug, Default)]
pub struct AskedCallbacks {
    known: HashMap<RequestId, KnownCallback>,
    /// Those that are settled, the oldest first.
    settled: VecDeque<(RequestId, CallbackTicket)>,
    /// Answers that are there and that the server was not told yet, whatever became of their calls.
    untold: usize,
    tickets: u64,
}

impl AskedCallbacks {
    /// A callback of so many bytes arrives, from this call.
    pub fn arrives(&mut self, id: &RequestId, call: u64, bytes: usize) -> Arrived {
        if let Some(known) = self.known.get(id) {
            return match &known.end {
                _ if known.call != call => Arrived::OfAnother,
                None => Arrived::Waits,
                Some(CallbackEnd::Answered(answer)) => Arrived::Answered(answer.clone()),
                Some(CallbackEnd::Unanswered | CallbackEnd::Shown) => Arrived::Over,
            };
        }
        if id.as_json().len() > ID_MAX || !self.has_room(call, bytes) {
            return Arrived::TooMany;
        }
        self.tickets += 1;
        let ticket = CallbackTicket(self.tickets);
        let known = KnownCallback {
            call,
            ticket,
            bytes,
            end: None,
        };
        self.known.insert(id.clone(), known);
        Arrived::New(ticket)
    }

    fn has_room(&self, call: u64, bytes: usize) -> bool {
        let (mut all, mut of_call, mut held) = (self.untold, 0, bytes);
        for known in self.known.values() {
            let is_open = known.end.is_none();
            let unanswered = is_open || known.end == Some(CallbackEnd::Unanswered);
            all += usize::from(is_open);
            of_call += usize::from(known.call == call && unanswered);
            held += known.bytes * usize::from(is_open);
        }
        all < OPEN_MAX && of_call < OF_CALL_MAX && held <= OPEN_BYTES
    }

    /// It has ended. False when it was not open any more: then nothing is to be said. An answer is on its
    /// way to the server until [`Self::told`].
    pub fn settle(&mut self, id: &RequestId, ticket: CallbackTicket, end: CallbackEnd) -> bool {
        let known = self.known.get_mut(id);
        let open = known.filter(|known| known.ticket == ticket && known.end.is_none());
        let Some(known) = open else {
            return false;
        };
        known.bytes = match &end {
            CallbackEnd::Answered(answer) => answer.len(),
            CallbackEnd::Unanswered | CallbackEnd::Shown => 0,
        };
        self.untold += usize::from(matches!(end, CallbackEnd::Answered(_)));
        known.end = Some(end);
        self.settled.push_back((id.clone(), ticket));
        self.forget();
        true
    }

    /// The server was told an answer, or cannot be.
    pub fn told(&mut self) {
        self.untold = self.untold.saturating_sub(1);
    }

    /// The call is over, and its callbacks with it; answers which of them were open.
    pub fn call_over(&mut self, call: u64) -> Vec<CallbackTicket> {
        let of_call = self.known.extract_if(|_, known| known.call == call);
        let open = of_call.filter(|(_, known)| known.end.is_none());
        let open = open.map(|(_, known)| known.ticket).collect();
        let known = &self.known;
        self.settled
            .retain(|(id, ticket)| known.get(id).is_some_and(|it| it.ticket == *ticket));
        open
    }

    /// The call that a callback of this id belongs to.
    #[must_use]
    pub fn call_of(&self, id: &RequestId) -> Option<u64> {
        self.known.get(id).map(|known| known.call)
    }

    /// True while nothing is known of any call.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.known.is_empty()
    }

    fn forget(&mut self) {
        let bytes = |known: &HashMap<RequestId, KnownCallback>| -> usize {
            let settled = known.values().filter(|it| it.end.is_some());
            settled.map(|it| it.bytes).sum()
        };
        while self.settled.len() > SETTLED_MAX || bytes(&self.known) > SETTLED_BYTES {
            let Some((id, _)) = self.settled.pop_front() else {
                return;
            };
            self.known.remove(&id);
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

    fn ticket(arrived: Arrived) -> CallbackTicket {
        match arrived {
            Arrived::New(ticket) => ticket,
            Arrived::Waits
            | Arrived::Answered(_)
            | Arrived::Over
            | Arrived::OfAnother
            | Arrived::TooMany => panic!("{arrived:?}"),
        }
    }

    fn said(text: &str) -> CallbackEnd {
        CallbackEnd::Answered(text.into())
    }

    /// Who does not answer is not asked without end.
    #[test]
    fn a_call_whose_questions_nobody_answers_asks_no_more() {
        let mut asked = AskedCallbacks::default();
        for n in 0..3 * OF_CALL_MAX {
            let it = id(&n.to_string());
            let arrived = asked.arrives(&it, 1, 0);
            if n >= 2 * OF_CALL_MAX {
                assert_eq!(arrived, Arrived::TooMany);
                continue;
            }
            let end = match n < OF_CALL_MAX {
                true => CallbackEnd::Shown,
                false => CallbackEnd::Unanswered,
            };
            assert!(asked.settle(&it, ticket(arrived), end));
        }
        assert!(matches!(asked.arrives(&id("x"), 2, 0), Arrived::New(_)));
    }

    /// MGP-183: one that is sent again is not asked again, and hears the same answer.
    #[test]
    fn a_callback_is_asked_once() {
        let mut asked = AskedCallbacks::default();
        let first = ticket(asked.arrives(&id("a"), 1, 10));
        assert_eq!(asked.arrives(&id("a"), 1, 10), Arrived::Waits);
        assert_eq!(asked.arrives(&id("a"), 2, 10), Arrived::OfAnother);
        assert!(asked.settle(&id("a"), first, said("yes")));
        assert!(!asked.settle(&id("a"), first, said("no")));
        assert_eq!(
            asked.arrives(&id("a"), 1, 10),
            Arrived::Answered("yes".into())
        );
        assert_eq!(asked.arrives(&id("a"), 2, 10), Arrived::OfAnother);
        let second = ticket(asked.arrives(&id("b"), 1, 10));
        assert!(asked.settle(&id("b"), second, CallbackEnd::Unanswered));
        assert_eq!(asked.arrives(&id("b"), 1, 10), Arrived::Over);
    }

    /// A call that is over takes its callbacks along; its ids may be used again.
    #[test]
    fn callbacks_end_with_their_call() {
        let mut asked = AskedCallbacks::default();
        let first = ticket(asked.arrives(&id("a"), 1, 0));
        let other = ticket(asked.arrives(&id("b"), 2, 0));
        assert_eq!(asked.call_over(1), [first]);
        assert!(asked.call_over(1).is_empty());
        let again = ticket(asked.arrives(&id("a"), 3, 0));
        assert!(!asked.settle(&id("a"), first, said("")));
        assert!(asked.settle(&id("a"), again, CallbackEnd::Shown));
        assert!(asked.call_over(3).is_empty());
        assert_eq!(asked.call_over(2), [other]);
        assert!(asked.is_empty() && asked.settled.is_empty());
    }

    /// A flood is bounded for each call, for all of them, and in bytes; so are the answers that are kept.
    #[test]
    fn a_flood_is_bounded() {
        let mut asked = AskedCallbacks::default();
        let mut taken = Vec::new();
        for n in 0..2 * OPEN_MAX {
            let call = u64::try_from(n / (2 * OF_CALL_MAX)).unwrap();
            if let Arrived::New(ticket) = asked.arrives(&id(&n.to_string()), call, 0) {
                taken.push((n, ticket));
            }
        }
        assert_eq!(taken.len(), OPEN_MAX);
        assert_eq!(asked.arrives(&id("x"), 99, 0), Arrived::TooMany);
        let (n, first) = taken[0];
        asked.settle(&id(&n.to_string()), first, said(""));
        asked.told();
        assert_eq!(
            asked.arrives(&id("x"), 99, OPEN_BYTES + 1),
            Arrived::TooMany
        );
        assert!(matches!(
            asked.arrives(&id("x"), 99, OPEN_BYTES),
            Arrived::New(_)
        ));
        let mut asked = AskedCallbacks::default();
        assert_eq!(
            asked.arrives(&id(&"x".repeat(ID_MAX)), 1, 0),
            Arrived::TooMany
        );
        for n in 0..=SETTLED_MAX {
            let it = id(&n.to_string());
            let new = ticket(asked.arrives(&it, 1, 0));
            asked.settle(&it, new, said("ok"));
            asked.told();
        }
        assert!(matches!(asked.arrives(&id("0"), 1, 0), Arrived::New(_)));
        assert_eq!(
            asked.arrives(&id("1"), 1, 0),
            Arrived::Answered("ok".into())
        );
        let it = id("large");
        let new = ticket(asked.arrives(&it, 1, 0));
        asked.settle(&it, new, said(&"x".repeat(SETTLED_BYTES - 1)));
        assert_eq!(asked.settled.len(), 1);
    }

    /// Answers that a server does not take count as open, also when their calls are over: what waits to be
    /// said is bounded.
    #[test]
    fn answers_that_the_server_does_not_take_are_bounded() {
        let mut asked = AskedCallbacks::default();
        for n in 0..OPEN_MAX {
            let (it, call) = (id("a"), u64::try_from(n).unwrap());
            let new = ticket(asked.arrives(&it, call, 0));
            assert!(asked.settle(&it, new, said("null")));
            assert!(asked.call_over(call).is_empty());
        }
        assert!(asked.is_empty());
        assert_eq!(asked.arrives(&id("b"), 99, 0), Arrived::TooMany);
        asked.told();
        let shown = ticket(asked.arrives(&id("b"), 99, 0));
        assert_eq!(asked.arrives(&id("c"), 99, 0), Arrived::TooMany);
        assert!(asked.settle(&id("b"), shown, CallbackEnd::Shown));
        assert!(matches!(asked.arrives(&id("c"), 99, 0), Arrived::New(_)));
    }

    proptest! {
        /// Against a model that forgets nothing: between a first asking and the end of its call a callback
        /// is asked once, and its retries hear what it was answered.
        #[test]
        fn it_behaves_like_a_list_of_all_that_was_asked(
            steps in proptest::collection::vec((0u8..3, 0usize..4, 0u64..3, any::<bool>()), 0..60)
        ) {
            #[derive(Clone, PartialEq)]
            enum Model { Open, Answered(String), Dead }
            let mut asked = AskedCallbacks::default();
            let mut model: HashMap<usize, (u64, CallbackTicket, Model)> = HashMap::new();
            for (step, n, call, answered) in steps {
                let it = id(&n.to_string());
                match step {
                    0 => {
                        let arrived = asked.arrives(&it, call, 1);
                        match model.get(&n) {
                            None => {
                                let new = ticket(arrived);
                                model.insert(n, (call, new, Model::Open));
                            }
                            Some((of, ..)) if *of != call => {
                                prop_assert_eq!(arrived, Arrived::OfAnother);
                            }
                            Some((_, _, Model::Open)) => prop_assert_eq!(arrived, Arrived::Waits),
                            Some((_, _, Model::Answered(text))) => {
                                prop_assert_eq!(arrived, Arrived::Answered(text.clone()));
                            }
                            Some((_, _, Model::Dead)) => prop_assert_eq!(arrived, Arrived::Over),
                        }
                    }
                    1 => {
                        let end = match answered {
                            true => said(&format!("{n} {call}")),
                            false => CallbackEnd::Shown,
                        };
                        if let Some((_, ticket, state)) = model.get_mut(&n) {
                            let open = *state == Model::Open;
                            prop_assert_eq!(asked.settle(&it, *ticket, end.clone()), open);
                            if open {
                                *state = match end {
                                    CallbackEnd::Answered(text) => Model::Answered(text),
                                    CallbackEnd::Unanswered | CallbackEnd::Shown => Model::Dead,
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
                        let mut ended = asked.call_over(call);
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
