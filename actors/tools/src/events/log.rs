//! Records of the audit log as events: read from the files, so that each has its number there.

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
use mgp_runtime::mailbox::{Mailbox, Reply};
use mgp_runtime::task::{self, SupervisedTask};
use mgp_store::audit::AuditHandle;

/// Records that are read for a subscriber that resumes, at most: a second of reading.
pub(super) const RECORDS_MAX: u64 = 100_000;
/// Events that are kept of them: as many as can be replayed.
const REPLAY_MAX: usize = 1_000;
/// How long it takes until a log that cannot be read is tried again: the first time, and at most.
const RETRY_DELAY: Duration = Duration::from_secs(1);
const RETRY_DELAY_MAX: Duration = Duration::from_secs(30);

/// The audit log as a source of events. A record's number discloses how much all agents do, so it leaves the kernel
/// sealed.
#[derive(Clone, Debug)]
pub struct AuditEvents {
    /// The log.
    pub audit: AuditHandle,
    /// What seals the numbers of its records.
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

    /// The record of a cursor; 0, which is before all of them, is no secret. The operator sees the numbers elsewhere,
    /// and may name one.
    pub(super) fn open_cursor(&self, cursor: &str, by_operator: bool) -> Result<u64, Refusal> {
        if let Ok(number) = cursor.parse()
            && (by_operator || number == 0)
        {
            return Ok(number);
        }
        let unread =
            |_| Refusal::BadParams("`_mgp.cursor` is not one that an event carried".to_owned());
        self.seal.open(Purpose::Event, "", cursor).map_err(unread)
    }
}

/// Sends the hub every record that is written after this one; ends when dropped. A failed read is retried; if that
/// fails too, it continues with what is written then, and the gap in the record numbers shows the loss.
pub(super) fn spawn_follower(
    audit: &AuditHandle,
    from: u64,
    hub: Mailbox<EventsMsg>,
) -> SupervisedTask<()> {
    let (audit, mut from) = (audit.clone(), from);
    task::spawn_supervised("events.log", async move {
        let mut pause = RETRY_DELAY;
        loop {
            let before = from;
            let Err(error) = forward_records(&audit, &mut from, &hub).await else {
                return;
            };
            let in_vain = from == before && pause > RETRY_DELAY;
            if from > before {
                pause = RETRY_DELAY;
            }
            tracing::warn!(%error, "events of the audit log are told when it can be read again");
            tokio::time::sleep(pause).await;
            pause = RETRY_DELAY_MAX.min(pause * 2);
            if in_vain {
                from = from.max(audit.newest_sequence());
            }
        }
    })
}

async fn forward_records(
    audit: &AuditHandle,
    from: &mut u64,
    hub: &Mailbox<EventsMsg>,
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
        // The next are read only when these were passed on.
        let (reply, done) = Reply::new();
        if hub.send_to_self(EventsMsg::Recorded(read, reply)).is_err() || done.await.is_err() {
            return Ok(());
        }
        *from = last;
    }
}

/// The last events after one record and up to another that are wanted; at most so many records are looked
/// through for them.
pub(super) async fn read_earlier(
    recorded: &AuditEvents,
    (after, until): (u64, u64),
    most: u64,
    wanted: impl Fn(KernelChannel, &EventEntry) -> bool + Send,
) -> io::Result<EarlierEvents> {
    let begin = after.max(until.saturating_sub(most));
    // The number of missed records is unknown, and other agents' activity is not disclosed: the gap counts as one.
    let mut missed = u64::from(begin > after);
    let mut events = VecDeque::new();
    let Some(mut records) = recorded.audit.read_after(begin).await? else {
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
            let event = recorded.to_entry(sequence, &record);
            let event = event.filter(|(channel, event)| wanted(*channel, event));
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
