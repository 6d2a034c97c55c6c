//! Records of the audit log as events. Read from the files, so that each has its record number.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use mgp_engine::callers::seal::{Purpose, SealKey};
use mgp_engine::tools::events::channels::{KernelChannel, KernelEvent};
use mgp_protocol::mgp::audit::Event;
use mgp_protocol::refusal::Refusal;

use super::EventsMsg;
use super::entry::EventEntry;
use super::subscription::EarlierEvents;
use mgp_runtime::task::SupervisedTask;
use mgp_runtime::{Mailbox, Reply, task};
use mgp_store::audit::AuditHandle;

/// Records that are read for a subscriber that resumes, at most: a second of reading.
pub(super) const RECORDS_MAX: u64 = 100_000;
/// Events of them that are stored: as many as can be replayed.
const REPLAY_MAX: usize = 1_000;
/// The wait before an unreadable log is read again: the first one, and the longest.
const RETRY_DELAY: Duration = Duration::from_secs(1);
const RETRY_DELAY_MAX: Duration = Duration::from_secs(30);

/// The audit log as a source of events. A record's number discloses how much all agents do, so it leaves the kernel
/// sealed.
#[derive(Clone, Debug)]
pub struct AuditEvents {
    /// The log.
    pub audit: AuditHandle,
    /// Seals the numbers of its records.
    pub seal: SealKey,
}

impl AuditEvents {
    /// The event of a record, with its channel.
    pub(super) fn to_entry(
        &self,
        sequence: u64,
        record: &str,
    ) -> Option<(KernelChannel, Arc<EventEntry>)> {
        let record: Event = serde_json::from_str(record).ok()?;
        let event = KernelEvent::from_record(&record)?;
        let cursor = self.seal.seal(Purpose::Event, "", &sequence);
        Some((
            event.channel,
            EventEntry::from_kernel_event(&event, Some(&cursor)),
        ))
    }

    /// The record number of a cursor. The number 0, which precedes all records, is no secret. The operator sees the
    /// numbers elsewhere, and may use them.
    pub(super) fn open_cursor(&self, cursor: &str, by_operator: bool) -> Result<u64, Refusal> {
        if let Ok(number) = cursor.parse()
            && (by_operator || number == 0)
        {
            return Ok(number);
        }
        let invalid =
            |_| Refusal::BadParams("`_mgp.cursor` is not one that an event carried".to_owned());
        self.seal.open(Purpose::Event, "", cursor).map_err(invalid)
    }
}

/// Sends every record after this one to the events actor; ends when dropped. A failed read is retried; if that fails
/// too, it continues with later records, and the gap in the record numbers shows the loss.
pub(super) fn spawn_follower(
    audit: &AuditHandle,
    from: u64,
    events_actor: Mailbox<EventsMsg>,
) -> SupervisedTask<()> {
    let (audit, mut from) = (audit.clone(), from);
    task::spawn_supervised("events.log", async move {
        let mut pause = RETRY_DELAY;
        loop {
            let before = from;
            let Err(error) = forward_records(&audit, &mut from, &events_actor).await else {
                return;
            };
            let should_skip = from == before && pause > RETRY_DELAY;
            if from > before {
                pause = RETRY_DELAY;
            }
            tracing::warn!(%error, "events of the audit log wait until it can be read again");
            tokio::time::sleep(pause).await;
            pause = RETRY_DELAY_MAX.min(pause * 2);
            if should_skip {
                from = from.max(audit.newest_sequence());
            }
        }
    })
}

async fn forward_records(
    audit: &AuditHandle,
    from: &mut u64,
    events_actor: &Mailbox<EventsMsg>,
) -> io::Result<()> {
    let Some(mut records) = audit.read_after(*from).await? else {
        return Ok(());
    };
    loop {
        let read = records.next().await?;
        let Some((last, _)) = read.last() else {
            return Ok(());
        };
        let last = *last;
        // Backpressure: read the next records once these are published.
        let (reply, done) = Reply::new();
        if events_actor
            .send_to_self(EventsMsg::Recorded(read, reply))
            .is_err()
            || done.await.is_err()
        {
            return Ok(());
        }
        *from = last;
    }
}

/// The last events in this range of records that match `is_wanted`; reads at most `max_records` records.
pub(super) async fn read_earlier(
    audit_events: &AuditEvents,
    (after, until): (u64, u64),
    max_records: u64,
    is_wanted: impl Fn(KernelChannel, &EventEntry) -> bool + Send,
) -> io::Result<EarlierEvents> {
    let start = after.max(until.saturating_sub(max_records));
    // The number of missed records is unknown, and other agents' activity is not disclosed: the gap counts as one.
    let mut missed = u64::from(start > after);
    let mut events = VecDeque::new();
    let Some(mut records) = audit_events.audit.read_after(start).await? else {
        return Ok(EarlierEvents::default());
    };
    'all: loop {
        let read = records.read_available().await?;
        if read.is_empty() {
            break;
        }
        for (sequence, record) in read {
            if sequence > until {
                break 'all;
            }
            let event = audit_events.to_entry(sequence, &record);
            let event = event.filter(|(channel, event)| is_wanted(*channel, event));
            events.extend(event.map(|(_, event)| event));
            if events.len() > REPLAY_MAX {
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
