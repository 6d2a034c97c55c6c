//! The last events of a channel, for clients that read them as a resource.

use std::sync::Arc;

use mgp_engine::tools::events::channels::KernelChannel;
use mgp_protocol::mgp::events::{ChannelPattern, RESOURCES};
use mgp_protocol::refusal::Refusal;

use super::entry::{EventAccess, EventEntry, EventFeed};
use super::log::{self, AuditEvents};
use mgp_callers::Directory;
use mgp_callers::request::Caller;

/// Events of one channel that are read, at most.
const READ_MAX: usize = 100;
/// Bytes of these events: what a client reads in one message. The last one is included whatever its size.
const READ_BYTES_MAX: usize = 1 << 20;
/// Records of the audit log that are searched for these events: a tenth of a second of reading.
const RECORDS_MAX: u64 = 10_000;

/// The sources of a channel's last events: the log, and feeds with subscribers.
#[derive(Debug)]
pub struct LastEvents {
    pub(super) channel: ChannelPattern,
    pub(super) logged_channels: Vec<KernelChannel>,
    pub(super) feeds: Vec<Arc<EventFeed>>,
}

impl LastEvents {
    /// Those that a caller may receive, as JSON text, the oldest of each channel first.
    pub(super) async fn render(
        self,
        caller: &Caller,
        directory: &Directory,
        audit_events: &AuditEvents,
    ) -> String {
        let newest = audit_events.audit.newest_sequence();
        let records = (newest.saturating_sub(RECORDS_MAX), newest);
        let access = EventAccess::new(caller, directory);
        let is_wanted = |channel: KernelChannel, event: &EventEntry| {
            self.logged_channels.contains(&channel) && access.can_see(event)
        };
        let logged = if self.logged_channels.is_empty() {
            Vec::new()
        } else {
            let read = log::read_earlier(audit_events, records, RECORDS_MAX, is_wanted).await;
            read.unwrap_or_default().events
        };
        let live = self
            .feeds
            .iter()
            .flat_map(|feed| feed.read(0, usize::MAX).events);
        let live = live.map(|(_, event)| event);
        let live = live.filter(|event| self.channel.covers(event.channel()));
        let all: Vec<Arc<EventEntry>> = logged.into_iter().chain(live).collect();
        let mut bytes = 0;
        let mut last: Vec<String> = Vec::new();
        for event in all
            .iter()
            .rev()
            .filter(|event| access.can_see(event))
            .take(READ_MAX)
        {
            let text = event.render_standalone(caller.operator);
            bytes += text.len();
            if bytes > READ_BYTES_MAX && !last.is_empty() {
                break;
            }
            last.push(text);
        }
        last.reverse();
        format!(r#"{{"events":[{}]}}"#, last.join(","))
    }
}

/// The channel of a resource.
pub(super) fn parse_channel(uri: &str) -> Result<ChannelPattern, Refusal> {
    let channel = uri.strip_prefix(RESOURCES).and_then(ChannelPattern::parse);
    channel.ok_or_else(|| Refusal::UnknownResource(uri.to_owned()))
}
