//! Whose call a server means when it asks back.
//!
//! A shared stdio server says `sampling/createMessage` without saying for whom. As long as only one
//! client has calls under way, there is no doubt. [`CallQueue`](super::call_queue::CallQueue) keeps it so.

use mgp_protocol::ids::ConnectionId;

/// Whom a call counts for when a server asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CallOrigin {
    /// A client that can be asked something.
    Client(ConnectionId),
    /// All clients that cannot be asked. A question to any of them is refused in the same way, so they need
    /// not be told apart.
    NonInteractive,
}

/// Who is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallbackTarget {
    /// No call is under way: the question has no origin and is refused.
    None,
    /// Certainly this one.
    One(CallOrigin),
    /// It cannot be told; from now on clients take turns.
    Ambiguous,
}

/// Who is asked, given the party of each call under way.
#[must_use]
pub fn resolve_target(in_flight: impl IntoIterator<Item = CallOrigin>) -> CallbackTarget {
    let mut calls = in_flight.into_iter();
    match calls.next() {
        None => CallbackTarget::None,
        Some(first) if calls.all(|other| other == first) => CallbackTarget::One(first),
        Some(_) => CallbackTarget::Ambiguous,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: CallOrigin = CallOrigin::Client(ConnectionId(1));
    const B: CallOrigin = CallOrigin::Client(ConnectionId(2));

    #[test]
    fn there_is_no_doubt_while_one_connection_calls() {
        assert_eq!(resolve_target([]), CallbackTarget::None);
        assert_eq!(resolve_target([A]), CallbackTarget::One(A));
        assert_eq!(resolve_target([A, A, A]), CallbackTarget::One(A));
        assert_eq!(resolve_target([A, A, B]), CallbackTarget::Ambiguous);
    }
}
