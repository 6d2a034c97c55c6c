//! The last events of a channel, for clients that read them as a resource.

use std::sync::Arc;

use mgp_engine::tools::events::channels::KernelChannel;
use mgp_protocol::mgp::events::{ChannelPattern, RESOURCES};
use mgp_protocol::refusal::Refusal;

use super::entry::{EventAccess, EventEntry, EventFeed};
use super::log::{self, AuditEvents};
use mgp_callers::directory::Directory;
use mgp_callers::request::Caller;

/// Events of one channel that are read, at most.
const READ_MAX: usize = 100;
/// Bytes of them: what a client reads in one message. The last is among them whatever its size.
const READ_BYTES_MAX: usize = 1 << 20;
/// Records of the audit log that are looked through for them: a tenth of a second of reading.
const RECORDS_MAX: u64 = 10_000;

/// Where the last events of a channel are: in the log, and in feeds that somebody follows.
#[derive(Debug)]
pub struct LastEvents {
    pub(super) channel: ChannelPattern,
    pub(super) logged_channels: Vec<KernelChannel>,
    pub(super) feeds: Vec<Arc<EventFeed>>,
}

impl LastEvents {
    /// Those that a caller may hear of, oldest first of each channel, as JSON text.
    pub(super) async fn render(
        self,
        caller: &Caller,
        directory: &Directory,
        recorded: &AuditEvents,
    ) -> String {
        let newest = recorded.audit.newest_sequence();
        let records = (newest.saturating_sub(RECORDS_MAX), newest);
        let access = EventAccess::new(caller, directory);
        let wanted = |channel: KernelChannel, event: &EventEntry| {
            self.logged_channels.contains(&channel) && access.can_see(event)
        };
        let logged = if self.logged_channels.is_empty() {
            Vec::new()
        } else {
            let read = log::read_earlier(recorded, records, RECORDS_MAX, wanted).await;
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
