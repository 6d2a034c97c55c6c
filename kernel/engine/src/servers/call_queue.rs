//! For servers that ask questions: calls of one client at a time, so that it is known whom to ask.

use std::collections::{HashMap, HashSet, VecDeque};

use super::attribution::CallOrigin;

/// Most calls that wait for their turn at one server; more are refused as overloaded.
pub(crate) const QUEUED_MAX: usize = 1_024;

/// Calls of one client under way at once, at a server that asks: each of them may ask, and there is room for 64
/// questions of a server. So one client leaves a quarter of it to the others.
pub(crate) const PER_CLIENT_MAX: usize = 48;

/// The ticket of a waiting call; never given twice by the same [`CallQueue`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Ticket(u64);

/// Whether a call may enter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueAdmission {
    /// At once.
    Admitted,
    /// When its ticket is called.
    Queued(Ticket),
    /// Never: [`QUEUED_MAX`] calls wait already.
    Rejected,
}

/// Lets calls into one server; one client's at a time once the server is known to ask.
#[derive(Clone, Debug, Default)]
pub struct CallQueue {
    is_serialized: bool,
    /// Calls under way, by client. Any number until the server asks.
    in_flight: HashMap<CallOrigin, usize>,
    /// Clients all of whose calls wait for the client's answer; they block nobody.
    suspended: HashSet<CallOrigin>,
    queued: VecDeque<(Ticket, CallOrigin)>,
    next_ticket: u64,
}

impl CallQueue {
    /// The server has asked something: from now on calls of one client at a time.
    pub fn serialize_clients(&mut self) {
        self.is_serialized = true;
    }

    /// A call wants to enter. Those that wait go first, so that one client cannot keep the others out by
    /// calling again and again; but nobody waits for a client that has [`PER_CLIENT_MAX`] calls under way.
    pub fn enter(&mut self, party: CallOrigin) -> QueueAdmission {
        let mut waiting = self.queued.iter();
        if waiting.all(|(_, waits)| self.is_full(*waits)) && self.can_enter(party) {
            self.admit(party);
            return QueueAdmission::Admitted;
        }
        if self.queued.len() >= QUEUED_MAX {
            return QueueAdmission::Rejected;
        }
        let ticket = Ticket(self.next_ticket);
        self.next_ticket += 1;
        self.queued.push_back((ticket, party));
        QueueAdmission::Queued(ticket)
    }

    /// Notes whether all calls of a client wait for its answer. Answers whose turn it is.
    pub fn set_suspended(&mut self, party: CallOrigin, rests: bool) -> Vec<Ticket> {
        if rests && self.in_flight.contains_key(&party) {
            self.suspended.insert(party);
        } else {
            self.suspended.remove(&party);
        }
        self.admit_queued()
    }

    /// A call that had entered is over. Answers whose turn it is, in order.
    pub fn leave(&mut self, party: CallOrigin) -> Vec<Ticket> {
        if let Some(calls) = self.in_flight.get_mut(&party) {
            *calls -= 1;
            if *calls == 0 {
                self.in_flight.remove(&party);
                self.suspended.remove(&party);
            }
        }
        self.admit_queued()
    }

    /// A waiting call is cancelled. Answers whose turn it is; `None` when its ticket was called already, so
    /// that the call must [`CallQueue::leave`].
    pub fn cancel(&mut self, ticket: Ticket) -> Option<Vec<Ticket>> {
        let at = self.queued.iter().position(|(t, _)| *t == ticket)?;
        self.queued.remove(at);
        Some(self.admit_queued())
    }

    /// Calls that wait.
    #[must_use]
    pub fn queued_count(&self) -> usize {
        self.queued.len()
    }

    fn can_enter(&self, party: CallOrigin) -> bool {
        let mut others = self.in_flight.keys().filter(|inside| **inside != party);
        let turn = !self.is_serialized || others.all(|inside| self.suspended.contains(inside));
        turn && !self.is_full(party)
    }

    fn is_full(&self, party: CallOrigin) -> bool {
        let calls = self.in_flight.get(&party).copied().unwrap_or(0);
        self.is_serialized && party != CallOrigin::NonInteractive && calls >= PER_CLIENT_MAX
    }

    fn admit(&mut self, party: CallOrigin) {
        *self.in_flight.entry(party).or_default() += 1;
        self.suspended.remove(&party);
    }

    fn admit_queued(&mut self) -> Vec<Ticket> {
        let mut called = Vec::new();
        loop {
            let mut waiting = self.queued.iter();
            let next = waiting.position(|(_, party)| !self.is_full(*party));
            let next = next.and_then(|at| Some((at, *self.queued.get(at)?)));
            let Some((at, (ticket, party))) = next.filter(|(_, (_, party))| self.can_enter(*party))
            else {
                return called;
            };
            self.queued.remove(at);
            self.admit(party);
            called.push(ticket);
        }
    }
}

#[cfg(test)]
mod tests {
    use mgp_protocol::ids::ConnectionId;

    use super::*;
    use crate::servers::attribution::{CallbackTarget, resolve_target};
    use proptest::prelude::*;

    const A: CallOrigin = CallOrigin::Client(ConnectionId(1));
    const B: CallOrigin = CallOrigin::Client(ConnectionId(2));

    fn ticket(enter: QueueAdmission) -> Ticket {
        match enter {
            QueueAdmission::Queued(ticket) => ticket,
            QueueAdmission::Admitted | QueueAdmission::Rejected => panic!("{enter:?}"),
        }
    }

    fn asking() -> CallQueue {
        let mut queue = CallQueue::default();
        queue.serialize_clients();
        queue
    }

    /// A client with as many calls as there may be waits, and nobody else for it.
    #[test]
    fn a_client_with_many_calls_leaves_room_for_the_others() {
        let mut queue = asking();
        for _ in 0..PER_CLIENT_MAX {
            assert_eq!(queue.enter(A), QueueAdmission::Admitted);
        }
        let beyond = ticket(queue.enter(A));
        let waits = ticket(queue.enter(B));
        // All calls of A wait for its answers: B is next, though the call beyond came before.
        assert_eq!(queue.set_suspended(A, true), [waits]);
        assert_eq!(queue.enter(B), QueueAdmission::Admitted);
        assert_eq!(queue.leave(B), []);
        assert_eq!(queue.leave(B), []);
        assert_eq!(queue.leave(A), [beyond]);
        let mut unaskable = asking();
        for _ in 0..2 * PER_CLIENT_MAX {
            assert_eq!(
                unaskable.enter(CallOrigin::NonInteractive),
                QueueAdmission::Admitted
            );
        }
    }

    /// Who can be asked nothing need not be told from others of that kind, only from who can.
    #[test]
    fn those_who_can_be_asked_nothing_go_in_together() {
        let mut queue = asking();
        assert_eq!(
            queue.enter(CallOrigin::NonInteractive),
            QueueAdmission::Admitted
        );
        assert_eq!(
            queue.enter(CallOrigin::NonInteractive),
            QueueAdmission::Admitted
        );
        let waits = ticket(queue.enter(A));
        assert_eq!(queue.leave(CallOrigin::NonInteractive), []);
        assert_eq!(queue.leave(CallOrigin::NonInteractive), [waits]);
    }

    #[test]
    fn a_connection_that_only_waits_keeps_nobody_out() {
        let mut queue = asking();
        assert_eq!(queue.enter(A), QueueAdmission::Admitted);
        let second = ticket(queue.enter(B));
        assert_eq!(queue.set_suspended(A, true), [second]);
        // A comes back for its call, and calls again: it is B that must be waited for now.
        assert_eq!(queue.set_suspended(A, false), []);
        let third = ticket(queue.enter(A));
        assert_eq!(queue.leave(B), [third]);
        assert_eq!(queue.leave(A), []);
        assert_eq!(queue.leave(A), []);
        assert_eq!(queue.set_suspended(A, true), []);
        assert_eq!(queue.enter(B), QueueAdmission::Admitted);
        assert!(matches!(queue.enter(A), QueueAdmission::Queued(_)));
    }

    #[test]
    fn a_server_that_never_asks_takes_everybody_at_once() {
        let mut queue = CallQueue::default();
        assert_eq!(queue.enter(A), QueueAdmission::Admitted);
        assert_eq!(queue.enter(B), QueueAdmission::Admitted);
        queue.serialize_clients();
        let waits = ticket(queue.enter(A));
        assert_eq!(queue.leave(A), []);
        assert_eq!(queue.leave(B), [waits]);
    }

    #[test]
    fn nobody_is_kept_out_by_one_who_calls_on() {
        let mut queue = asking();
        assert_eq!(queue.enter(A), QueueAdmission::Admitted);
        assert_eq!(queue.enter(A), QueueAdmission::Admitted);
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
        for _ in 0..QUEUED_MAX {
            ticket(queue.enter(B));
        }
        assert_eq!(queue.enter(B), QueueAdmission::Rejected);
        assert_eq!(queue.queued_count(), QUEUED_MAX);
        assert_eq!(queue.leave(A).len(), PER_CLIENT_MAX);
    }

    proptest! {
        /// At most one connection is inside, tickets are called in their order, and when all calls
        /// are over nobody waits.
        #[test]
        fn turns_are_exclusive_and_everyone_gets_one(
            steps in proptest::collection::vec((0u8..3, 0u64..3, 0usize..6), 0..100)
        ) {
            let mut queue = asking();
            let (mut inside, mut waiting): (Vec<CallOrigin>, Vec<_>) = (vec![], vec![]);
            for (step, connection, pick) in steps {
                let connection = CallOrigin::Client(ConnectionId(connection));
                let called = match step {
                    0 => {
                        match queue.enter(connection) {
                            QueueAdmission::Admitted => inside.push(connection),
                            QueueAdmission::Queued(ticket) => waiting.push((ticket, connection)),
                            QueueAdmission::Rejected => panic!("far below the bound"),
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
                prop_assert!(!matches!(resolve_target(inside.iter().copied()), CallbackTarget::Ambiguous));
            }
            while let Some(gone) = inside.pop() {
                for _ in queue.leave(gone) {
                    inside.push(waiting.remove(0).1);
                }
            }
            prop_assert!(waiting.is_empty() && queue.queued_count() == 0);
        }
    }
}
