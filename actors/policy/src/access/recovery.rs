//! Finds decisions that were on disk, but not in the audit log, when the kernel ended.

use std::fs;

use mgp_engine::policy::grants::Operation;
use mgp_engine::store::audit::reader::{LogItem, LogReader};
use mgp_protocol::mgp::audit::{Event, EventType, Outcome};

use super::GrantStore;
use mgp_store::audit::{LogFolder, state_accepted_event};

impl GrantStore {
    /// The operations without an audit record, in order. Decisions are recorded in their order, so these follow the last
    /// one in the log; the newest files are read as far back as needed. If a trimmed log holds no decision, none count as
    /// missing.
    ///
    /// # Errors
    /// The log has a decision that the journal lacks: it was acknowledged and is lost, and may have been a denial.
    pub fn find_unaudited(&mut self, log: &LogFolder) -> Result<Vec<Operation>, String> {
        let mut numbers = log.numbers().unwrap_or_default();
        numbers.sort_unstable();
        let trimmed = numbers.first().is_some_and(|first| *first > 1);
        let newest_first = numbers.iter().rev();
        let last = newest_first
            .filter_map(|number| fs::read(log.file_path(*number)).ok())
            .find_map(|bytes| find_last_decision(&bytes));
        let end = self.operation_count();
        if let Some(LastDecision(Some(lost))) = last
            && lost >= end
        {
            return Err(format!(
                "{} has been shortened: it has {end} operations, and the audit log knows of {}. What is missing was acknowledged, denials perhaps: put a whole copy of the file back; or, to go on without it, run `mgp accept grants.journal`",
                self.journal.path().display(),
                lost + 1
            ));
        }
        Ok(match last {
            Some(LastDecision(Some(last))) => self.take_operations(last + 1),
            None if trimmed => self.take_operations(u64::MAX),
            Some(LastDecision(None)) | None => self.take_operations(0),
        })
    }

    /// The event for a journal that the operator accepted as it is. Later starts compare the journal with this event, and
    /// not with the decisions before it.
    #[must_use]
    pub fn accepted_event(&self) -> Event {
        let count = self.operation_count();
        let mut event = state_accepted_event(&format!(
            "grants.journal was accepted with {count} operations"
        ));
        let last = count.checked_sub(1);
        event.details.insert("operation".into(), last.into());
        event
    }

    /// How many operations this node has signed.
    fn operation_count(&self) -> u64 {
        self.grants.next_position(self.key.node_id()).0
    }
}

/// The operation that the journal has at least, by the log; none where it was accepted without any.
#[derive(Clone, Copy)]
struct LastDecision(Option<u64>);

/// What the bytes of a log say last about the end of the journal.
fn find_last_decision(bytes: &[u8]) -> Option<LastDecision> {
    memchr::memmem::find(bytes, b"\"operation\":")?;
    let mut last = None;
    for item in LogReader::new(bytes) {
        let LogItem::Record(_, record) = item else {
            continue;
        };
        if memchr::memmem::find(record.event.as_bytes(), b"\"operation\":").is_none() {
            continue;
        }
        let Ok(event) = serde_json::from_str::<Event>(record.event) else {
            continue;
        };
        let Some(operation) = event.details.get("operation") else {
            continue;
        };
        let sequence = operation.as_u64();
        if is_acceptance(&event) {
            last = Some(LastDecision(sequence));
        } else if sequence.is_some() && is_decision(&event.event_type) {
            let known = last.and_then(|LastDecision(known)| known);
            last = Some(LastDecision(known.max(sequence)));
        }
    }
    last
}

fn is_acceptance(event: &Event) -> bool {
    event.event_type == EventType::STATE_DAMAGED && event.result == Outcome::Success
}

fn is_decision(event: &EventType) -> bool {
    [
        EventType::AccessGranted,
        EventType::AccessRevoked,
        EventType::PermissionGranted,
        EventType::PermissionDenied,
        EventType::PermissionRevoked,
    ]
    .contains(event)
}
