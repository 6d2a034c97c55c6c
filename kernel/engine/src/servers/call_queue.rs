//! For servers that send callbacks: admits calls of one client at a time, so that the target of a callback is
//! unambiguous.

use std::collections::{HashMap, HashSet, VecDeque};

use super::attribution::CallOrigin;

/// Most calls queued at one server; more are rejected as overloaded.
pub(crate) const QUEUED_MAX: usize = 1_024;

/// In-flight calls of one client at a server that sends callbacks. A server may have 64 pending callbacks and each
/// call may cause one, so this leaves a quarter to other clients.
pub(crate) const PER_CLIENT_MAX: usize = 48;

/// Identifies a queued call; unique within a [`CallQueue`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Ticket(u64);

/// Whether a call is admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueAdmission {
    /// At once.
    Admitted,
    /// Admitted when its ticket is returned.
    Queued(Ticket),
    /// Never: [`QUEUED_MAX`] calls wait already.
    Rejected,
}

/// Admits calls to one server, of one client at a time once the server is known to send callbacks.
#[derive(Clone, Debug, Default)]
pub struct CallQueue {
    is_serialized: bool,
    /// In-flight calls by client, unlimited until the server sends a callback.
    in_flight: HashMap<CallOrigin, usize>,
    /// Clients whose calls all wait for the client's answer; they block no other client.
    suspended: HashSet<CallOrigin>,
    queued: VecDeque<(Ticket, CallOrigin)>,
    next_ticket: u64,
}

impl CallQueue {
    /// The server has sent a callback: from now on calls of one client at a time.
    pub fn serialize_clients(&mut self) {
        self.is_serialized = true;
    }

    /// Admits or queues a call. Queued calls go first, so that one client cannot starve the others; but no call
    /// waits behind a client that has [`PER_CLIENT_MAX`] in-flight calls.
    pub fn enter(&mut self, origin: CallOrigin) -> QueueAdmission {
        let mut queued = self.queued.iter();
        if queued.all(|(_, other)| self.is_full(*other)) && self.can_enter(origin) {
            self.admit(origin);
            return QueueAdmission::Admitted;
        }
        if self.queued.len() >= QUEUED_MAX {
            return QueueAdmission::Rejected;
        }
        let ticket = Ticket(self.next_ticket);
        self.next_ticket += 1;
        self.queued.push_back((ticket, origin));
        QueueAdmission::Queued(ticket)
    }

    /// Sets whether all calls of a client wait for its answer. Returns the admitted tickets.
    pub fn set_suspended(&mut self, origin: CallOrigin, suspended: bool) -> Vec<Ticket> {
        if suspended && self.in_flight.contains_key(&origin) {
            self.suspended.insert(origin);
        } else {
            self.suspended.remove(&origin);
        }
        self.admit_queued()
    }

    /// An admitted call has ended. Returns the admitted tickets, in order.
    pub fn leave(&mut self, origin: CallOrigin) -> Vec<Ticket> {
        if let Some(calls) = self.in_flight.get_mut(&origin) {
            *calls -= 1;
            if *calls == 0 {
                self.in_flight.remove(&origin);
                self.suspended.remove(&origin);
            }
        }
        self.admit_queued()
    }

    /// Cancels a queued call. Returns the admitted tickets; `None` if the call was admitted already and must
    /// [`CallQueue::leave`].
    pub fn cancel(&mut self, ticket: Ticket) -> Option<Vec<Ticket>> {
        let index = self.queued.iter().position(|(t, _)| *t == ticket)?;
        self.queued.remove(index);
        Some(self.admit_queued())
    }

    /// The number of queued calls.
    #[must_use]
    pub fn queued_count(&self) -> usize {
        self.queued.len()
    }

    fn can_enter(&self, origin: CallOrigin) -> bool {
        let mut others = self.in_flight.keys().filter(|other| **other != origin);
        let is_unblocked =
            !self.is_serialized || others.all(|other| self.suspended.contains(other));
        is_unblocked && !self.is_full(origin)
    }

    fn is_full(&self, origin: CallOrigin) -> bool {
        let calls = self.in_flight.get(&origin).copied().unwrap_or(0);
        self.is_serialized && origin != CallOrigin::NonInteractive && calls >= PER_CLIENT_MAX
    }

    fn admit(&mut self, origin: CallOrigin) {
        *self.in_flight.entry(origin).or_default() += 1;
        self.suspended.remove(&origin);
    }

    fn admit_queued(&mut self) -> Vec<Ticket> {
        let mut admitted = Vec::new();
        loop {
            let mut queued = self.queued.iter();
            let next = queued.position(|(_, origin)| !self.is_full(*origin));
            let next = next.and_then(|index| Some((index, *self.queued.get(index)?)));
            let Some((index, (ticket, origin))) =
                next.filter(|(_, (_, origin))| self.can_enter(*origin))
            else {
                return admitted;
            };
            self.queued.remove(index);
            self.admit(origin);
            admitted.push(ticket);
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

    fn serialized() -> CallQueue {
        let mut queue = CallQueue::default();
        queue.serialize_clients();
        queue
    }

    #[test]
    fn a_client_at_its_limit_does_not_block_others() {
        let mut queue = serialized();
        for _ in 0..PER_CLIENT_MAX {
            assert_eq!(queue.enter(A), QueueAdmission::Admitted);
        }
        let excess = ticket(queue.enter(A));
        let waiting = ticket(queue.enter(B));
        // All calls of A wait for its answers: B is next, although the excess call came first.
        assert_eq!(queue.set_suspended(A, true), [waiting]);
        assert_eq!(queue.enter(B), QueueAdmission::Admitted);
        assert_eq!(queue.leave(B), []);
        assert_eq!(queue.leave(B), []);
        assert_eq!(queue.leave(A), [excess]);
        let mut non_interactive = serialized();
        for _ in 0..2 * PER_CLIENT_MAX {
            assert_eq!(
                non_interactive.enter(CallOrigin::NonInteractive),
                QueueAdmission::Admitted
            );
        }
    }

    #[test]
    fn non_interactive_clients_are_admitted_together() {
        let mut queue = serialized();
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
    fn a_suspended_client_blocks_no_other() {
        let mut queue = serialized();
        assert_eq!(queue.enter(A), QueueAdmission::Admitted);
        let second = ticket(queue.enter(B));
        assert_eq!(queue.set_suspended(A, true), [second]);
        // A resumes its call and sends another one, which waits for B.
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
    fn a_server_without_callbacks_admits_all_clients_at_once() {
        let mut queue = CallQueue::default();
        assert_eq!(queue.enter(A), QueueAdmission::Admitted);
        assert_eq!(queue.enter(B), QueueAdmission::Admitted);
        queue.serialize_clients();
        let waits = ticket(queue.enter(A));
        assert_eq!(queue.leave(A), []);
        assert_eq!(queue.leave(B), [waits]);
    }

    #[test]
    fn repeated_calls_of_a_client_do_not_starve_others() {
        let mut queue = serialized();
        assert_eq!(queue.enter(A), QueueAdmission::Admitted);
        assert_eq!(queue.enter(A), QueueAdmission::Admitted);
        let b = ticket(queue.enter(B));
        let again = ticket(queue.enter(A));
        assert_eq!(queue.leave(A), []);
        assert_eq!(queue.leave(A), [b]);
        assert_eq!(queue.leave(B), [again]);
    }

    #[test]
    fn a_cancelled_call_unblocks_the_next() {
        let mut queue = serialized();
        queue.enter(A);
        let b = ticket(queue.enter(B));
        let a = ticket(queue.enter(A));
        assert_eq!(queue.cancel(b), Some(vec![a]));
        assert_eq!(queue.cancel(a), None);
        assert_eq!(queue.cancel(b), None);
    }

    #[test]
    fn the_queue_is_bounded() {
        let mut queue = serialized();
        queue.enter(A);
        for _ in 0..QUEUED_MAX {
            ticket(queue.enter(B));
        }
        assert_eq!(queue.enter(B), QueueAdmission::Rejected);
        assert_eq!(queue.queued_count(), QUEUED_MAX);
        assert_eq!(queue.leave(A).len(), PER_CLIENT_MAX);
    }

    proptest! {
        /// At most one client has in-flight calls, tickets are admitted in order, and no call waits once all have ended.
        #[test]
        fn clients_are_admitted_one_at_a_time_and_none_starves(
            steps in proptest::collection::vec((0u8..3, 0u64..3, 0usize..6), 0..100)
        ) {
            let mut queue = serialized();
            let (mut in_flight, mut queued): (Vec<CallOrigin>, Vec<_>) = (vec![], vec![]);
            for (step, client, pick) in steps {
                let client = CallOrigin::Client(ConnectionId(client));
                let admitted = match step {
                    0 => {
                        match queue.enter(client) {
                            QueueAdmission::Admitted => in_flight.push(client),
                            QueueAdmission::Queued(ticket) => queued.push((ticket, client)),
                            QueueAdmission::Rejected => panic!("far below the bound"),
                        }
                        vec![]
                    }
                    1 if !in_flight.is_empty() => {
                        let ended = in_flight.swap_remove(pick % in_flight.len());
                        queue.leave(ended)
                    }
                    2 if !queued.is_empty() => {
                        let (ticket, _) = queued.remove(pick % queued.len());
                        queue.cancel(ticket).unwrap()
                    }
                    _ => vec![],
                };
                for ticket in admitted {
                    let (first, client) = queued.remove(0);
                    prop_assert_eq!(ticket, first);
                    in_flight.push(client);
                }
                prop_assert!(!matches!(resolve_target(in_flight.iter().copied()), CallbackTarget::Ambiguous));
            }
            while let Some(ended) = in_flight.pop() {
                for _ in queue.leave(ended) {
                    in_flight.push(queued.remove(0).1);
                }
            }
            prop_assert!(queued.is_empty() && queue.queued_count() == 0);
        }
    }
}
