//! Events of a server (MGP §13.3). Servers may send any number, so the kernel limits how many it reads.

use std::sync::{Arc, PoisonError};

use mgp_protocol::mcp;
use mgp_protocol::mgp::Event;
use serde_json::value::RawValue;

use crate::link::{Link, LinkEvent, ReportedEvent, Wire};
use mgp_runtime::time::monotonic_now;

impl Link {
    /// Handles an event. `via` is the request that follows the channel at another node, which identifies the
    /// subscriber.
    pub(in crate::link) fn handle_event(self: &Arc<Self>, params: Option<&str>, via: Option<u64>) {
        let event = params.and_then(|params| {
            let event = mcp::parse_params::<Event<'_>>(Some(params)).ok()?;
            Some((params.len(), event))
        });
        let Some((bytes, event)) = event else {
            return self.count_dropped();
        };
        let channel = self.followed_channel(via);
        if channel.is_none() && matches!(self.wire, Wire::Node(_)) {
            return self.count_dropped();
        }
        let subscription = match &channel {
            Some(channel) => channel.id.to_string(),
            None => event.subscription_id.into_owned(),
        };
        let taken = {
            let flow = self.event_flow.lock();
            let mut flow = flow.unwrap_or_else(PoisonError::into_inner);
            flow.admit(&subscription, bytes, monotonic_now())
        };
        let Some(missed) = taken else {
            return self.count_dropped();
        };
        self.emit(LinkEvent::EventReported(Box::new(ReportedEvent {
            link: self.number,
            subscription,
            channel: event.channel.into_owned(),
            timestamp: event.timestamp.map(|raw| raw.get().into()),
            data: event.data.map_or("null", RawValue::get).into(),
            // The sequence numbers of another kernel also cover what was dropped here.
            missed: channel.map_or(missed, |channel| channel.count_missed_before(event.seq)),
        })));
    }
}
