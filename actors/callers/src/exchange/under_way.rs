//! The calls that are under way, where their own callers find them: to cancel one, or to say something of its
//! stream.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use mgp_protocol::ids::ConnectionId;
use mgp_protocol::jsonrpc::RequestId;

use super::Exchange;

/// Calls by the connection of their caller. Bounded by the calls that may be under way.
#[derive(Debug, Default)]
pub struct CallsUnderWay(Mutex<HashMap<ConnectionId, Vec<Weak<Exchange>>>>);

/// A call that is under way until this is dropped.
#[derive(Debug)]
pub struct CallUnderWay {
    calls: Arc<CallsUnderWay>,
    connection: ConnectionId,
    exchange: Arc<Exchange>,
}

impl CallsUnderWay {
    /// Enters a call; `None` when it is there already: a call that was begun within it.
    #[must_use]
    pub fn enter(
        self: &Arc<Self>,
        connection: ConnectionId,
        exchange: &Arc<Exchange>,
    ) -> Option<CallUnderWay> {
        let mut calls = self.calls();
        let own = calls.entry(connection).or_default();
        if own.iter().any(|it| it.as_ptr() == Arc::as_ptr(exchange)) {
            return None;
        }
        own.push(Arc::downgrade(exchange));
        Some(CallUnderWay {
            calls: self.clone(),
            connection,
            exchange: exchange.clone(),
        })
    }

    /// The call with this id of this caller. Stateless clients that share a connection may use an id
    /// twice: then neither is meant.
    #[must_use]
    pub fn find(&self, connection: ConnectionId, id: &RequestId) -> Option<Arc<Exchange>> {
        let calls = self.calls();
        let own = calls.get(&connection)?.iter().filter_map(Weak::upgrade);
        let mut meant = own.filter(|exchange| exchange.request_id().as_ref() == Some(id));
        let found = meant.next()?;
        meant.next().is_none().then_some(found)
    }

    fn calls(&self) -> MutexGuard<'_, HashMap<ConnectionId, Vec<Weak<Exchange>>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for CallUnderWay {
    fn drop(&mut self) {
        {
            let mut calls = self.calls.calls();
            if let Some(own) = calls.get_mut(&self.connection) {
                own.retain(|it| it.as_ptr() != Arc::as_ptr(&self.exchange));
                if own.is_empty() {
                    calls.remove(&self.connection);
                }
            }
        }
        if let Some(stream) = self.exchange.stream() {
            stream.stop();
        }
        self.exchange.over();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exchange::ReplyPath;

    fn id(text: &str) -> RequestId {
        RequestId::from_json(text).unwrap()
    }

    /// MGP-158: `"7"` and 7 are two ids, and an id is its connection's own.
    #[test]
    fn a_call_is_found_by_its_own_caller_under_its_own_id() {
        let calls = Arc::new(CallsUnderWay::default());
        let (here, there) = (ConnectionId(1), ConnectionId(2));
        let exchange = Exchange::of(id("7"), ReplyPath::Nowhere);
        let entered = calls.enter(here, &exchange);
        assert!(entered.is_some() && calls.enter(here, &exchange).is_none());
        assert!(calls.find(here, &id("7")).is_some());
        assert!(calls.find(here, &id("\"7\"")).is_none());
        assert!(calls.find(there, &id("7")).is_none());
        let other = Exchange::of(id("7"), ReplyPath::Nowhere);
        let twice = calls.enter(here, &other);
        assert!(calls.find(here, &id("7")).is_none(), "neither is meant");
        drop(twice);
        assert!(calls.find(here, &id("7")).is_some());
        drop(entered);
        assert!(calls.calls().is_empty());
    }
}
