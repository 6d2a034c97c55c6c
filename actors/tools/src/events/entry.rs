//! One stored event, encoded once for all subscriptions that receive it.

use std::sync::Arc;

use bytes::Bytes;
use mgp_engine::policy::access::{GrantTable, Principal};
use mgp_engine::store::audit::record::EVENT_MAX;
use mgp_engine::timestamps::render_rfc3339_ms;
use mgp_engine::tools::catalog::CatalogView;
use mgp_engine::tools::events::channels::{EventScope, KernelEvent};
use mgp_engine::tools::events::rate_limit::EVENT_BYTES_MAX;
use mgp_engine::tools::events::{Topic, UPSTREAM_TOTAL_MAX};
use mgp_json::quote;
use mgp_protocol::ids::ServerId;
use mgp_protocol::mgp::events::Severity;
use mgp_sync::{Feed, FeedLimits};

use super::push_channel::PushedEvent;
use mgp_callers::Directory;
use mgp_callers::request::Caller;
use mgp_runtime::time::unix_ms;
use mgp_servers::link::ReportedEvent;

/// Longest timestamp of a server that is forwarded, in bytes of JSON; a longer one is replaced by the kernel's.
const TIMESTAMP_MAX: usize = 64;
/// Events of one channel that are stored for replay (MGP §13, later drafts).
const CHANNEL_EVENTS_MAX: usize = 1_000;
const CHANNEL_BYTES_MAX: usize = 8 << 20;
/// Bytes of all channels together, as long as each has [`CHANNEL_BYTES_MIN`].
const TOTAL_BYTES_MAX: usize = 64 << 20;
/// Bytes of each channel, however many there are: more than any event, so that none is lost before it was read.
/// An event of a server has at most [`EVENT_BYTES_MAX`] bytes; one of the log has its record and the agents' version
/// of it. There are [`UPSTREAM_TOTAL_MAX`] feeds and the kernel's own, so all hold some 131 MiB at most.
const CHANNEL_BYTES_MIN: usize = 128 << 10;
const _: () =
    assert!(CHANNEL_BYTES_MIN > EVENT_BYTES_MAX + (8 << 10) && CHANNEL_BYTES_MIN > 3 * EVENT_MAX);
const _: () = assert!(CHANNEL_BYTES_MIN * UPSTREAM_TOTAL_MAX <= 2 * TOTAL_BYTES_MAX);

/// The last events of one channel.
pub(super) type EventFeed = Feed<Arc<EventEntry>>;

/// The limits of each feed for this number of channels.
pub(super) fn feed_limits(channels: usize) -> FeedLimits {
    FeedLimits {
        events: CHANNEL_EVENTS_MAX,
        bytes: (TOTAL_BYTES_MAX / channels.max(1)).clamp(CHANNEL_BYTES_MIN, CHANNEL_BYTES_MAX),
    }
}

/// An event, encoded except for the id of the subscription and the event's number there.
#[derive(Debug)]
pub(super) struct EventEntry {
    /// The kernel's severity; servers filter their own events.
    pub(super) severity: Option<Severity>,
    scope: EventScope,
    channel: Box<str>,
    /// The members of `params` from `channel` on, with a comma before and the brace after them.
    tail: Bytes,
    /// The agents' version, if it differs.
    for_agents: Option<Bytes>,
}

impl EventEntry {
    /// An event of the kernel; `cursor` is its position in the audit log.
    pub(super) fn from_kernel_event(event: &KernelEvent, cursor: Option<&str>) -> Arc<Self> {
        let timestamp = quote(&event.timestamp);
        let severity = serde_json::to_string(&event.severity).expect("a word is always JSON");
        let mut extra = format!(r#","_mgp.severity":{severity}"#);
        if let Some(cursor) = cursor {
            extra.push_str(&format!(r#","_mgp.cursor":"{cursor}""#));
        }
        let encode = |data: &serde_json::Value| {
            let name = event.channel.name();
            render_tail(&quote(name), &timestamp, &data.to_string(), &extra)
        };
        Arc::new(Self {
            severity: Some(event.severity),
            scope: event.scope.clone(),
            channel: event.channel.name().into(),
            tail: encode(&event.data),
            for_agents: event.for_agents.as_ref().map(encode),
        })
    }

    /// An event of a server: its data unchanged, with the server's name added.
    pub(super) fn from_server_event(server: &ServerId, event: &ReportedEvent) -> Arc<Self> {
        let server = server.server();
        let timestamp = event.timestamp.as_deref();
        let timestamp =
            timestamp.filter(|text| text.starts_with('"') && text.len() <= TIMESTAMP_MAX);
        let timestamp =
            timestamp.map_or_else(|| quote(&render_rfc3339_ms(unix_ms())), str::to_owned);
        let extra = format!(r#","_mgp.server_id":{}"#, quote(server.as_str()));
        Arc::new(Self {
            severity: None,
            channel: event.channel.as_str().into(),
            tail: render_tail(&quote(&event.channel), &timestamp, &event.data, &extra),
            scope: EventScope::for_server(server),
            for_agents: None,
        })
    }

    /// A push event of an MCPL server.
    pub(super) fn from_push(event: &PushedEvent) -> Arc<Self> {
        let server = event.server.server();
        let extra = format!(r#","_mgp.server_id":{}"#, quote(server.as_str()));
        let timestamp = quote(&event.timestamp);
        Arc::new(Self {
            severity: None,
            channel: event.channel.as_str().into(),
            tail: render_tail(&quote(&event.channel), &timestamp, &event.data, &extra),
            scope: EventScope::for_server(server),
            for_agents: None,
        })
    }

    /// The notice that events of a topic of a server of another node may be lost.
    pub(super) fn gap_notice(server: &ServerId, topic: &Topic) -> Arc<Self> {
        const CHANNEL: &str = "system.subscription_gap";
        let server = server.server();
        let (name, now) = (quote(server.as_str()), quote(&render_rfc3339_ms(unix_ms())));
        let data = format!(
            r#"{{"channel":{},"message":"the server, or the way to it, was lost for a while; events of that time may be missing"}}"#,
            quote(topic.channels.as_str())
        );
        let extra = format!(r#","_mgp.server_id":{name}"#);
        Arc::new(Self {
            severity: None,
            channel: CHANNEL.into(),
            tail: render_tail(&quote(CHANNEL), &now, &data, &extra),
            scope: EventScope::for_server(server),
            for_agents: None,
        })
    }

    pub(super) fn channel(&self) -> &str {
        &self.channel
    }

    /// The event's size in memory, in bytes.
    pub(super) fn memory_size(&self) -> usize {
        let agents = self.for_agents.as_ref().map_or(0, Bytes::len);
        size_of::<Self>() + self.channel.len() + self.tail.len() + agents
    }

    /// `params` as text, without the id of a subscription.
    pub(super) fn render_params(&self, seq: u64, operator: bool) -> String {
        let tail = String::from_utf8_lossy(self.tail(operator)).into_owned();
        format!(r#"{{"_mgp.seq":{seq}{tail}"#)
    }

    /// The event's JSON without a subscription.
    pub(super) fn render_standalone(&self, operator: bool) -> String {
        let tail = String::from_utf8_lossy(self.tail(operator)).into_owned();
        format!("{{{}", tail.trim_start_matches(','))
    }

    /// The whole notification; `head` is that of its subscription.
    pub(super) fn render_frame(&self, head: &str, seq: u64, operator: bool) -> Bytes {
        let (tail, seq) = (self.tail(operator), seq.to_string());
        let mut frame = Vec::with_capacity(head.len() + seq.len() + tail.len() + 1);
        frame.extend_from_slice(head.as_bytes());
        frame.extend_from_slice(seq.as_bytes());
        frame.extend_from_slice(tail);
        frame.push(b'}');
        frame.into()
    }

    fn tail(&self, operator: bool) -> &Bytes {
        match &self.for_agents {
            Some(tail) if !operator => tail,
            Some(_) | None => &self.tail,
        }
    }
}

fn render_tail(channel: &str, timestamp: &str, data: &str, extra: &str) -> Bytes {
    format!(r#","channel":{channel},"timestamp":{timestamp},"data":{data}{extra}}}"#).into()
}

/// The start of each notification of a subscription.
pub(super) fn render_head(id: &str) -> String {
    let id = quote(id);
    format!(
        r#"{{"jsonrpc":"2.0","method":"notifications/mgp.event","params":{{"subscription_id":{id},"_mgp.seq":"#
    )
}

/// Decides which events a caller may receive right now.
pub(super) struct EventAccess<'a> {
    caller: &'a Caller,
    principal: Principal,
    table: Arc<GrantTable>,
    now_ms: u64,
}

impl<'a> EventAccess<'a> {
    pub(super) fn new(caller: &'a Caller, directory: &Directory) -> Self {
        Self {
            caller,
            principal: caller.identity(),
            table: directory.access(),
            now_ms: unix_ms(),
        }
    }

    /// Whether the caller may receive the event.
    pub(super) fn can_see(&self, event: &EventEntry) -> bool {
        let EventScope {
            server,
            agent,
            operator_only,
        } = &event.scope;
        let in_view = match &self.caller.view {
            CatalogView::All | CatalogView::Set(_) => true,
            CatalogView::One(viewed) => server.as_ref() == Some(viewed),
        };
        if !in_view || self.caller.operator {
            return in_view;
        }
        let is_for_caller = agent
            .as_ref()
            .is_none_or(|agent| *agent == self.caller.agent);
        let is_open = |server| match agent {
            // It may receive events of its own calls if it may call at least one of several tools.
            Some(_) => self
                .table
                .is_server_visible(&self.principal, server, self.now_ms),
            None => self.is_open(server),
        };
        is_for_caller && !operator_only && server.as_ref().is_none_or(is_open)
    }

    /// Whether the caller may receive events of this server.
    pub(super) fn can_reach(&self, server: &ServerId) -> bool {
        self.caller.view.includes(server) && self.is_open(server)
    }

    fn is_open(&self, server: &ServerId) -> bool {
        self.table
            .is_server_open(&self.principal, server, self.now_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// However many channels are followed, the largest event of each is stored until it was read.
    #[test]
    fn a_feed_stores_the_largest_event_with_any_number_of_feeds() {
        let event = ReportedEvent {
            link: 1,
            subscription: "u".into(),
            channel: "a.b".into(),
            timestamp: None,
            data: format!("\"{}\"", "x".repeat(EVENT_BYTES_MAX)).into(),
            missed: 0,
        };
        let entry = EventEntry::from_server_event(&ServerId::new("it"), &event);
        for channels in [1, UPSTREAM_TOTAL_MAX, 100 * UPSTREAM_TOTAL_MAX] {
            let (feed, limits) = (EventFeed::new(), feed_limits(channels));
            feed.push(entry.clone(), entry.memory_size(), 0, limits);
            let read = feed.read(0, 9);
            assert_eq!((read.events.len(), read.has_gap), (1, false), "{channels}");
        }
    }
}
