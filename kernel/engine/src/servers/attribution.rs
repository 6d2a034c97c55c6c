//! Whose call a server means when it asks back.
//!
//! A shared stdio server says `sampling/createMessage` without saying for whom. As long as only one
//! client has calls under way, there is no doubt. [`CallQueue`](super::call_queue::CallQueue) keeps it so.

use mgp_protocol::ids::ConnectionId;

/// Whom a call counts for when a server asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Party {
    /// A client that can be asked something.
    Client(ConnectionId),
    /// All clients that cannot be asked. A question to any of them is refused in the same way, so they need
    /// not be told apart.
    Unaskable,
}

/// Who is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whom {
    /// No call is under way: the question has no origin and is refused.
    Nobody,
    /// Certainly this one.
    One(Party),
    /// It cannot be told; from now on clients take turns.
    Several,
}

/// Who is asked, given the party of each call under way.
#[must_use]
pub fn whom(in_flight: impl IntoIterator<Item = Party>) -> Whom {
    let mut calls = in_flight.into_iter();
    match calls.next() {
        None => Whom::Nobody,
        Some(first) if calls.all(|other| other == first) => Whom::One(first),
        Some(_) => Whom::Several,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Party = Party::Client(ConnectionId(1));
    const B: Party = Party::Client(ConnectionId(2));

    #[test]
    fn there_is_no_doubt_while_one_connection_calls() {
        assert_eq!(whom([]), Whom::Nobody);
        assert_eq!(whom([A]), Whom::One(A));
        assert_eq!(whom([A, A, A]), Whom::One(A));
        assert_eq!(whom([A, A, B]), Whom::Several);
    }
}
