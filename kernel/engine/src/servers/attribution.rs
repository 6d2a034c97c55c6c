//! Whose call a server means when it asks back.
//!
//! A shared stdio server says `sampling/createMessage` without saying for whom. As long as only one
//! client has calls inside, there is no doubt; servers that ask therefore get the clients one after the
//! other.

use std::collections::{HashMap, HashSet, VecDeque};

use mgp_protocol::ids::ConnectionId;

/// Most calls that wait for their turn at one server; more are refused as overloaded.
pub const WAITING_MAX: usize = 1_024;

/// Who takes turns at a server that asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Party {
    /// A client that can be asked something.
    Client(ConnectionId),
    /// All that can be asked nothing: whichever of them is meant, the question is refused alike, so that
    /// they need not be told apart.
    Unaskable,
}

/// Who is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whom {
    /// No call is under way: the server asks out of the blue and is refused.
    Nobody,
    /// Without doubt this one.
    One(Party),
    /// It cannot be told: refused, and from now on they take turns.
    Several,
}

/// Who is asked, given whose calls are in flight, each as often as it has calls.
#[must_use]
pub fn whom(in_flight: impl IntoIterator<Item = Party>) -> Whom {
    let mut calls = in_flight.into_iter();
    match calls.next() {
        None => Whom::Nobody,
        Some(first) if calls.all(|other| other == first) => Whom::One(first),
        Some(_) => Whom::Several,
    }
}

/// A call that waits; never given twice by the same [`CallTurns`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Ticket(u64);

/// Whether a call may go in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Enter {
    /// At once.
    Now,
    /// When its ticket is called.
    Wait(Ticket),
    /// Never: [`WAITING_MAX`] calls wait already.
    Refused,
}

/// Lets calls into one server; one client's at a time once the server is known to ask.
#[derive(Clone, Debug, Default)]
pub struct CallTurns {
    asks: bool,
    /// Calls inside, by client. Before the server asks there may be any number.
    inside: HashMap<Party, usize>,
    /// Clients all of whose calls inside wait for what they say: they keep nobody out.
    resting: HashSet<Party>,
    waiting: VecDeque<(Ticket, Party)>,
    tickets: u64,
}

impl CallTurns {
    /// The server has asked something: from now on one client at a time.
    pub fn set_asks(&mut self) {
        self.asks = true;
    }

    /// A call wants in. Whoever waits is served first, so that no client can keep the others out
    /// by calling on and on.
    pub fn enter(&mut self, party: Party) -> Enter {
        if self.waiting.is_empty() && self.fits(party) {
            self.let_in(party);
            return Enter::Now;
        }
        if self.waiting.len() >= WAITING_MAX {
            return Enter::Refused;
        }
        let ticket = Ticket(self.tickets);
        self.tickets += 1;
        self.waiting.push_back((ticket, party));
        Enter::Wait(ticket)
    }

    /// Every call of a client waits for its client now, or not any more. Answers whose turn it is.
    pub fn rest(&mut self, party: Party, rests: bool) -> Vec<Ticket> {
        if rests && self.inside.contains_key(&party) {
            self.resting.insert(party);
        } else {
            self.resting.remove(&party);
        }
        self.call_up()
    }

    /// A call that was let in is over. Answers whose turn it is now, in their order.
    pub fn leave(&mut self, party: Party) -> Vec<Ticket> {
        if let Some(calls) = self.inside.get_mut(&party) {
            *calls -= 1;
            if *calls == 0 {
                self.inside.remove(&party);
                self.resting.remove(&party);
            }
        }
        self.call_up()
    }

    /// A waiting call is taken back. Answers whose turn it is now; `None` when the ticket is not
    /// waiting: it was called already, and the call must [`CallTurns::leave`].
    pub fn cancel(&mut self, ticket: Ticket) -> Option<Vec<Ticket>> {
        let at = self.waiting.iter().position(|(t, _)| *t == ticket)?;
        self.waiting.remove(at);
        Some(self.call_up())
    }

    /// Calls that wait.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    fn fits(&self, party: Party) -> bool {
        let mut others = self.inside.keys().filter(|inside| **inside != party);
        !self.asks || others.all(|inside| self.resting.contains(inside))
    }

    fn let_in(&mut self, party: Party) {
        *self.inside.entry(party).or_default() += 1;
        self.resting.remove(&party);
    }

    fn call_up(&mut self) -> Vec<Ticket> {
        let mut called = Vec::new();
        while let Some(&(ticket, party)) = self.waiting.front() {
            if !self.fits(party) {
                break;
            }
            self.waiting.pop_front();
            self.let_in(party);
            called.push(ticket);
        }
        called
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const A: Party = Party::Client(ConnectionId(1));
    const B: Party = Party::Client(ConnectionId(2));

    fn ticket(enter: Enter) -> Ticket {
        match enter {
            Enter::Wait(ticket) => ticket,
            Enter::Now | Enter::Refused => panic!("{enter:?}"),
        }
    }

    fn asking() -> CallTurns {
        let mut turns = CallTurns::default();
        turns.set_asks();
        turns
    }

    #[test]
    fn there_is_no_doubt_while_one_connection_calls() {
        assert_eq!(whom([]), Whom::Nobody);
        assert_eq!(whom([A]), Whom::One(A));
        assert_eq!(whom([A, A, A]), Whom::One(A));
        assert_eq!(whom([A, A, B]), Whom::Several);
    }

    /// Who can be asked nothing need not be told from others of that kind, only from who can.
    #[test]
    fn those_who_can_be_asked_nothing_go_in_together() {
        let mut turns = asking();
        assert_eq!(turns.enter(Party::Unaskable), Enter::Now);
        assert_eq!(turns.enter(Party::Unaskable), Enter::Now);
        let waits = ticket(turns.enter(A));
        assert_eq!(turns.leave(Party::Unaskable), []);
        assert_eq!(turns.leave(Party::Unaskable), [waits]);
    }

    #[test]
    fn a_connection_that_only_waits_keeps_nobody_out() {
        let mut turns = asking();
        assert_eq!(turns.enter(A), Enter::Now);
        let second = ticket(turns.enter(B));
        assert_eq!(turns.rest(A, true), [second]);
        // A comes back for its call, and calls again: it is B that must be waited for now.
        assert_eq!(turns.rest(A, false), []);
        let third = ticket(turns.enter(A));
        assert_eq!(turns.leave(B), [third]);
        assert_eq!(turns.leave(A), []);
        assert_eq!(turns.leave(A), []);
        assert_eq!(turns.rest(A, true), []);
        assert_eq!(turns.enter(B), Enter::Now);
        assert!(matches!(turns.enter(A), Enter::Wait(_)));
    }

    #[test]
    fn a_server_that_never_asks_takes_everybody_at_once() {
        let mut turns = CallTurns::default();
        assert_eq!(turns.enter(A), Enter::Now);
        assert_eq!(turns.enter(B), Enter::Now);
        turns.set_asks();
        let waits = ticket(turns.enter(A));
        assert_eq!(turns.leave(A), []);
        assert_eq!(turns.leave(B), [waits]);
    }

    #[test]
    fn nobody_is_kept_out_by_one_who_calls_on() {
        let mut turns = asking();
        assert_eq!(turns.enter(A), Enter::Now);
        assert_eq!(turns.enter(A), Enter::Now);
        let b = ticket(turns.enter(B));
        let again = ticket(turns.enter(A));
        assert_eq!(turns.leave(A), []);
        assert_eq!(turns.leave(A), [b]);
        assert_eq!(turns.leave(B), [again]);
    }

    #[test]
    fn a_cancelled_call_makes_way() {
        let mut turns = asking();
        turns.enter(A);
        let b = ticket(turns.enter(B));
        let a = ticket(turns.enter(A));
        assert_eq!(turns.cancel(b), Some(vec![a]));
        assert_eq!(turns.cancel(a), None);
        assert_eq!(turns.cancel(b), None);
    }

    #[test]
    fn the_queue_has_an_end() {
        let mut turns = asking();
        turns.enter(A);
        for _ in 0..WAITING_MAX {
            ticket(turns.enter(B));
        }
        assert_eq!(turns.enter(B), Enter::Refused);
        assert_eq!(turns.waiting(), WAITING_MAX);
        assert_eq!(turns.leave(A).len(), WAITING_MAX);
    }

    proptest! {
        /// At most one connection is inside, tickets are called in their order, and when all calls
        /// are over nobody waits.
        #[test]
        fn turns_are_exclusive_and_everyone_gets_one(
            steps in proptest::collection::vec((0u8..3, 0u64..3, 0usize..6), 0..100)
        ) {
            let mut turns = asking();
            let (mut inside, mut waiting): (Vec<Party>, Vec<_>) = (vec![], vec![]);
            for (step, connection, pick) in steps {
                let connection = Party::Client(ConnectionId(connection));
                let called = match step {
                    0 => {
                        match turns.enter(connection) {
                            Enter::Now => inside.push(connection),
                            Enter::Wait(ticket) => waiting.push((ticket, connection)),
                            Enter::Refused => panic!("far below the bound"),
                        }
                        vec![]
                    }
                    1 if !inside.is_empty() => {
                        let gone = inside.swap_remove(pick % inside.len());
                        turns.leave(gone)
                    }
                    2 if !waiting.is_empty() => {
                        let (ticket, _) = waiting.remove(pick % waiting.len());
                        turns.cancel(ticket).unwrap()
                    }
                    _ => vec![],
                };
                for ticket in called {
                    let (first, connection) = waiting.remove(0);
                    prop_assert_eq!(ticket, first);
                    inside.push(connection);
                }
                prop_assert!(!matches!(whom(inside.iter().copied()), Whom::Several));
            }
            while let Some(gone) = inside.pop() {
                for _ in turns.leave(gone) {
                    inside.push(waiting.remove(0).1);
                }
            }
            prop_assert!(waiting.is_empty() && turns.waiting() == 0);
        }
    }
}
