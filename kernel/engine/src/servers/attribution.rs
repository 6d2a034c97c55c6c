//! Attributes a server's callback to a call.
//!
//! A shared stdio server sends `sampling/createMessage` without naming the call. While only one client has in-flight
//! calls, the target is unambiguous; [`CallQueue`](super::call_queue::CallQueue) ensures that.

use mgp_protocol::ids::ConnectionId;

/// The origin of a call, as the target of callbacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CallOrigin {
    /// A client that can answer callbacks.
    Client(ConnectionId),
    /// All clients that cannot answer callbacks. They are all rejected in the same way, so they share a variant.
    NonInteractive,
}

/// The client that receives a callback.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallbackTarget {
    /// No call is in flight: the callback has no origin and is rejected.
    None,
    /// This client only.
    One(CallOrigin),
    /// Several clients have calls; from now on calls of one client at a time.
    Ambiguous,
}

/// Determines the target from the origins of all in-flight calls.
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
    fn the_target_is_unambiguous_while_one_client_calls() {
        assert_eq!(resolve_target([]), CallbackTarget::None);
        assert_eq!(resolve_target([A]), CallbackTarget::One(A));
        assert_eq!(resolve_target([A, A, A]), CallbackTarget::One(A));
        assert_eq!(resolve_target([A, A, B]), CallbackTarget::Ambiguous);
    }
}
