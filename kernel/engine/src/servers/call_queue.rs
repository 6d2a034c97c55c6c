//! For servers that ask questions: calls of one client at a time, so that it is known whom to ask.

use std::collections::{HashMap, HashSet, VecDeque};

use super::attribution::Party;

/// Most calls that wait for their turn at one server; more are refused as overloaded.
pub const WAITING_MAX: usize = 1_024;

/// Calls of one client under way at once, at a server that asks: each of them may ask, and there is room for 64
/// questions of a server. So one client leaves a quarter of it to the others.
pub const ASKABLE_MAX: usize = 48;

/// The ticket of a waiting call; never given twice by the same [`CallQueue`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Ticket(u64);

/// Whether a call may enter.
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
pub struct CallQueue {
    asks: bool,
    /// Calls under way, by client. Any number until the server asks.
    inside: HashMap<Party, usize>,
    /// Clients all of whose calls wait for the client's answer; they block nobody.
    resting: HashSet<Party>,
    waiting: VecDeque<(Ticket, Party)>,
    tickets: u64,
}

impl CallQueue {
    /// The server has asked something: from now on calls of one client at a time.
    pub fn set_asks(&mut self) {
        self.asks = true;
    }

    /// A call wants to enter. Those that wait go first, so that one client cannot keep the others out by
    /// calling again and again; but nobody waits for a client that has [`ASKABLE_MAX`] calls under way.
    pub fn enter(&mut self, party: Party) -> Enter {
        let mut waiting = self.waiting.iter();
        if waiting.all(|(_, waits)| self.is_full(*waits)) && self.fits(party) {
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

    /// Notes whether all calls of a client wait for its answer. Answers whose turn it is.
    pub fn rest(&mut self, party: Party, rests: bool) -> Vec<Ticket> {
        if rests && self.inside.contains_key(&party) {
            self.resting.insert(party);
        } else {
            self.resting.remove(&party);
        }
        self.call_up()
    }

    /// A call that had entered is over. Answers whose turn it is, in order.
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

    /// A waiting call is cancelled. Answers whose turn it is; `None` when its ticket was called already, so
    /// that the call must [`CallQueue::leave`].
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
        let turn = !self.asks || others.all(|inside| self.resting.contains(inside));
        turn && !self.is_full(party)
    }

    fn is_full(&self, party: Party) -> bool {
        let calls = self.inside.get(&party).copied().unwrap_or(0);
        self.asks && party != Party::Unaskable && calls >= ASKABLE_MAX
    }

    fn let_in(&mut self, party: Party) {
        *self.inside.entry(party).or_default() += 1;
        self.resting.remove(&party);
    }

    fn call_up(&mut self) -> Vec<Ticket> {
        let mut called = Vec::new();
        loop {
            let mut waiting = self.waiting.iter();
            let next = waiting.position(|(_, party)| !self.is_full(*party));
            let next = next.and_then(|at| Some((at, *self.waiting.get(at)?)));
            let Some((at, (ticket, party))) = next.filter(|(_, (_, party))| self.fits(*party))
            else {
                return called;
            };
            self.waiting.remove(at);
            self.let_in(party);
            called.push(ticket);
        }
    }
}

#[cfg(test)]
mod tests {
    use mgp_protocol::ids::ConnectionId;

    use super::*;
    use crate::servers::attribution::{Whom, whom};
    use proptest::prelude::*;

    const A: Party = Party::Client(ConnectionId(1));
    const B: Party = Party::Client(ConnectionId(2));

    fn ticket(enter: Enter) -> Ticket {
        match enter {
            Enter::Wait(ticket) => ticket,
            Enter::Now | Enter::Refused => panic!("{enter:?}"),
        }
    }

    fn asking() -> CallQueue {
        let mut queue = CallQueue::default();
        queue.set_asks();
        queue
    }

    /// A client with as many calls as there may be waits, and nobody else for it.
    #[test]
    fn a_client_with_many_calls_leaves_room_for_the_others() {
        let mut queue = asking();
        for _ in 0..ASKABLE_MAX {
            assert_eq!(queue.enter(A), Enter::Now);
        }
        let beyond = ticket(queue.enter(A));
        let waits = ticket(queue.enter(B));
        // All calls of A wait for its answers: B is next, though the call beyond came before.
        assert_eq!(queue.rest(A, true), [waits]);
        assert_eq!(queue.enter(B), Enter::Now);
        assert_eq!(queue.leave(B), []);
        assert_eq!(queue.leave(B), []);
        assert_eq!(queue.leave(A), [beyond]);
        let mut unaskable = asking();
        for _ in 0..2 * ASKABLE_MAX {
            assert_eq!(unaskable.enter(Party::Unaskable), Enter::Now);
        }
    }

    /// Who can be asked nothing need not be told from others of that kind, only from who can.
    #[test]
    fn those_who_can_be_asked_nothing_go_in_together() {
        let mut queue = asking();
        assert_eq!(queue.enter(Party::Unaskable), Enter::Now);
        assert_eq!(queue.enter(Party::Unaskable), Enter::Now);
        let waits = ticket(queue.enter(A));
        assert_eq!(queue.leave(Party::Unaskable), []);
        assert_eq!(queue.leave(Party::Unaskable), [waits]);
    }

    #[test]
    fn a_connection_that_only_waits_keeps_nobody_out() {
        let mut queue = asking();
        assert_eq!(queue.enter(A), Enter::Now);
        let second = ticket(queue.enter(B));
        assert_eq!(queue.rest(A, true), [second]);
        // A comes back for its call, and calls again: it is B that must be waited for now.
        assert_eq!(queue.rest(A, false), []);
        let third = ticket(queue.enter(A));
        assert_eq!(queue.leave(B), [third]);
        assert_eq!(queue.leave(A), []);
        assert_eq!(queue.leave(A), []);
        assert_eq!(queue.rest(A, true), []);
        assert_eq!(queue.enter(B), Enter::Now);
        assert!(matches!(queue.enter(A), Enter::Wait(_)));
    }

    #[test]
    fn a_server_that_never_asks_takes_everybody_at_once() {
        let mut queue = CallQueue::default();
        assert_eq!(queue.enter(A), Enter::Now);
        assert_eq!(queue.enter(B), Enter::Now);
        queue.set_asks();
        let waits = ticket(queue.enter(A));
        assert_eq!(queue.leave(A), []);
        assert_eq!(queue.leave(B), [waits]);
    }

    #[test]
    fn nobody_is_kept_out_by_one_who_calls_on() {
        let mut queue = asking();
        assert_eq!(queue.enter(A), Enter::Now);
        assert_eq!(queue.enter(A), Enter::Now);
        let b = ticket(queue.enter(B));
        let again = ticket(queue.enter(A));
        assert_eq!(queue.leave(A), []);
        assert_eq!(queue.leave(A), [b]);
        assert_eq!(queue.leave(B), [again]);
    }

    #[test]
    fn a_cancelled_call_makes_way() {
        let mut queue = asking();
        queue.enter(A);
        let b = ticket(queue.enter(B));
        let a = ticket(queue.enter(A));
        assert_eq!(queue.cancel(b), Some(vec![a]));
        assert_eq!(queue.cancel(a), None);
        assert_eq!(queue.cancel(b), None);
    }

    #[test]
    fn the_queue_has_an_end() {
        let mut queue = asking();
        queue.enter(A);
        for _ in 0..WAITING_MAX {
            ticket(queue.enter(B));
        }
        assert_eq!(queue.enter(B), Enter::Refused);
        assert_eq!(queue.waiting(), WAITING_MAX);
        assert_eq!(queue.leave(A).len(), ASKABLE_MAX);
    }

    proptest! {
        /// At most one connection is inside, tickets are called in their order, and when all calls
        /// are over nobody waits.
        #[test]
        fn turns_are_exclusive_and_everyone_gets_one(
            steps in proptest::collection::vec((0u8..3, 0u64..3, 0usize..6), 0..100)
        ) {
            let mut queue = asking();
            let (mut inside, mut waiting): (Vec<Party>, Vec<_>) = (vec![], vec![]);
            for (step, connection, pick) in steps {
                let connection = Party::Client(ConnectionId(connection));
                let called = match step {
                    0 => {
                        match queue.enter(connection) {
                            Enter::Now => inside.push(connection),
                            Enter::Wait(ticket) => waiting.push((ticket, connection)),
                            Enter::Refused => panic!("far below the bound"),
                        }
                        vec![]
                    }
                    1 if !inside.is_empty() => {
                        let gone = inside.swap_remove(pick % inside.len());
                        queue.leave(gone)
                    }
                    2 if !waiting.is_empty() => {
                        let (ticket, _) = waiting.remove(pick % waiting.len());
                        queue.cancel(ticket).unwrap()
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
                for _ in queue.leave(gone) {
                    inside.push(waiting.remove(0).1);
                }
            }
            prop_assert!(waiting.is_empty() && queue.waiting() == 0);
        }
    }
}
