//! Records of the audit log as events: read from the files, so that each has its number there.

use std::io;
use std::sync::Arc;

use mgp_engine::tools::events::channels::{KernelChannel, KernelEvent};
use mgp_protocol::mgp::audit::Event;
use mgp_protocol::mgp::events::Severity;

use super::EventsMsg;
use super::entry::EventEntry;
use super::subscription::EarlierEvents;
use mgp_runtime::mailbox::{Mailbox, Reply};
use mgp_runtime::task::{self, SupervisedTask};
use mgp_store::audit::AuditHandle;

/// Records that are looked at for one who goes on from before, at most: a second of reading.
const LOOKED_AT: u64 = 100_000;
/// Events that are kept of them: as many as can be replayed.
const KEPT: usize = 1_000;

/// Sends the hub every record that is written after one; ends when dropped.
pub(super) fn follow(
    audit: &AuditHandle,
    from: u64,
    hub: Mailbox<EventsMsg>,
) -> SupervisedTask<()> {
    let audit = audit.clone();
    task::supervised("events.log", async move {
        if let Err(error) = followed(&audit, from, &hub).await {
            tracing::warn!(%error, "events of the audit log are not told");
        }
    })
}

async fn followed(audit: &AuditHandle, from: u64, hub: &Mailbox<EventsMsg>) -> io::Result<()> {
    let Some(mut records) = audit.after(from).await? else {
        return Ok(());
    };
    loop {
        let read = records.next().await?;
        if read.is_empty() {
            return Ok(());
        }
        // The next are read only when these were passed on.
        let (reply, done) = Reply::new();
        if hub.remind(EventsMsg::Recorded(read, reply)).is_err() || done.await.is_err() {
            return Ok(());
        }
    }
}

/// The event of a record, with its channel.
pub(super) fn entry(sequence: u64, record: &str) -> Option<(KernelChannel, Arc<EventEntry>)> {
    let record: Event = serde_json::from_str(record).ok()?;
    let event = KernelEvent::of_record(&record)?;
    Some((event.channel, EventEntry::of_kernel(&event, Some(sequence))))
}

/// The events of some channels that were written down after one record, up to another.
pub(super) async fn earlier(
    audit: &AuditHandle,
    (after, until): (u64, u64),
    channels: &[KernelChannel],
    severity: Severity,
) -> io::Result<EarlierEvents> {
    let begin = after.max(until.saturating_sub(LOOKED_AT));
    let mut missed = begin - after.min(begin);
    let mut events = std::collections::VecDeque::new();
    let Some(mut records) = audit.after(begin).await? else {
        return Ok(EarlierEvents::default());
    };
    'all: loop {
        let read = records.there().await?;
        if read.is_empty() {
            break;
        }
        for (sequence, record) in read {
            if sequence > until {
                break 'all;
            }
            let event = entry(sequence, &record);
            let wanted = event.filter(|(channel, event)| {
                channels.contains(channel) && event.severity.is_none_or(|it| it >= severity)
            });
            events.extend(wanted.map(|(_, event)| event));
            if events.len() > KEPT {
                events.pop_front();
                missed += 1;
            }
        }
    }
    Ok(EarlierEvents {
        events: events.into(),
        missed,
    })
}
