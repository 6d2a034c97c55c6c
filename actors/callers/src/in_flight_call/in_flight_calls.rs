//! Registry of in-flight calls, by which callers cancel a call or control its stream.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use mgp_protocol::ids::ConnectionId;
use mgp_protocol::jsonrpc::RequestId;

use super::InFlightCall;

/// The in-flight calls by the connection of their caller. Bounded by the limit of in-flight calls.
#[derive(Debug, Default)]
pub struct InFlightCalls(Mutex<HashMap<ConnectionId, Vec<Weak<InFlightCall>>>>);

/// Registers an in-flight call until dropped.
#[derive(Debug)]
pub struct InFlightCallGuard {
    calls: Arc<InFlightCalls>,
    connection: ConnectionId,
    call: Arc<InFlightCall>,
}

impl InFlightCalls {
    /// Registers a call; `None` when it is registered already, as for a call nested in it.
    #[must_use]
    pub fn register(
        self: &Arc<Self>,
        connection: ConnectionId,
        call: &Arc<InFlightCall>,
    ) -> Option<InFlightCallGuard> {
        let mut calls = self.lock_calls();
        let calls_of_connection = calls.entry(connection).or_default();
        if calls_of_connection
            .iter()
            .any(|it| it.as_ptr() == Arc::as_ptr(call))
        {
            return None;
        }
        calls_of_connection.push(Arc::downgrade(call));
        Some(InFlightCallGuard {
            calls: self.clone(),
            connection,
            call: call.clone(),
        })
    }

    /// Finds the call with this id of this caller. Stateless clients that share a connection may use an id
    /// twice: then neither is found.
    #[must_use]
    pub fn find(&self, connection: ConnectionId, id: &RequestId) -> Option<Arc<InFlightCall>> {
        let calls = self.lock_calls();
        let candidates = calls.get(&connection)?.iter().filter_map(Weak::upgrade);
        let mut matches = candidates.filter(|call| call.request_id().as_ref() == Some(id));
        let found = matches.next()?;
        matches.next().is_none().then_some(found)
    }

    fn lock_calls(&self) -> MutexGuard<'_, HashMap<ConnectionId, Vec<Weak<InFlightCall>>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for InFlightCallGuard {
    fn drop(&mut self) {
        {
            let mut calls = self.calls.lock_calls();
            if let Some(own) = calls.get_mut(&self.connection) {
                own.retain(|it| it.as_ptr() != Arc::as_ptr(&self.call));
                if own.is_empty() {
                    calls.remove(&self.connection);
                }
            }
        }
        if let Some(stream) = self.call.stream() {
            stream.stop();
        }
        self.call.end_stream();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::in_flight_call::ReplyPath;

    fn id(text: &str) -> RequestId {
        RequestId::from_json(text).unwrap()
    }

    /// MGP-158: `"7"` and 7 are two ids, and ids are scoped to a connection.
    #[test]
    fn call_is_found_only_by_its_connection_and_id() {
        let calls = Arc::new(InFlightCalls::default());
        let (here, there) = (ConnectionId(1), ConnectionId(2));
        let call = InFlightCall::with_id(id("7"), ReplyPath::Discard);
        let entered = calls.register(here, &call);
        assert!(entered.is_some() && calls.register(here, &call).is_none());
        assert!(calls.find(here, &id("7")).is_some());
        assert!(calls.find(here, &id("\"7\"")).is_none());
        assert!(calls.find(there, &id("7")).is_none());
        let other = InFlightCall::with_id(id("7"), ReplyPath::Discard);
        let twice = calls.register(here, &other);
        assert!(calls.find(here, &id("7")).is_none(), "neither is meant");
        drop(twice);
        assert!(calls.find(here, &id("7")).is_some());
        drop(entered);
        assert!(calls.lock_calls().is_empty());
    }
}
