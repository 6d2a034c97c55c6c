//! Finds decisions that were on disk, but not in the audit log, when the kernel ended.

use std::fs;

use mgp_engine::policy::grants::Operation;
use mgp_engine::store::audit::reader::{LogItem, LogReader};
use mgp_protocol::mgp::audit::{Event, EventType};

use super::GrantStore;
use mgp_store::audit::LogFolder;

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
        let (end, _) = self.grants.next_position(self.key.node_id());
        if let Some(lost) = last.filter(|last| *last >= end) {
            let (path, log) = (self.journal.path().display(), log.file_path(0));
            let log = log.parent().unwrap_or(&log).display();
            return Err(format!(
                "{path} has been shortened: the audit log knows of operation {lost}, and the last one there is operation {}. What is missing was acknowledged, denials perhaps: put a copy of the file back that is whole; or, to go on without it, move {log} away and run `mgp accept grants.journal`",
                end.saturating_sub(1)
            ));
        }
        Ok(match last {
            Some(last) => self.take_operations(last + 1),
            None if trimmed => self.take_operations(u64::MAX),
            None => self.take_operations(0),
        })
    }
}

/// The sequence number of the last decision in the bytes of a log.
fn find_last_decision(bytes: &[u8]) -> Option<u64> {
    memchr::memmem::find(bytes, b"\"operation\":")?;
    let mut last = None;
    for item in LogReader::new(bytes) {
        let LogItem::Record(_, record) = item else {
            continue;
        };
        if memchr::memmem::find(record.event.as_bytes(), b"\"operation\":").is_none() {
            continue;
        }
        let event = serde_json::from_str::<Event>(record.event).ok();
        let decided = event.filter(|event| is_decision(&event.event_type));
        let sequence = decided.and_then(|event| event.details.get("operation")?.as_u64());
        last = last.max(sequence);
    }
    last
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
