//! Continues the log after a disk failure: in a new file, with all entries that were pending and a record of
//! what was refused meanwhile.

use std::fs::File;
use std::io;
use std::mem;
use std::time::Duration;

use mgp_engine::clock::MonotonicTime;
use mgp_engine::store::audit::commit::{CommitError, RecordKind};
use mgp_engine::timestamps::render_rfc3339_ms;
use mgp_protocol::mgp::audit::{Event, EventType, Outcome};
use serde_json::json;

use super::{OpenLogFile, Writer, log_event};
use crate::audit::queue::QueuedEntry;
use crate::health::explain_io_error;
use mgp_runtime::time::{monotonic_now, unix_ms};

/// How often a failed disk is tried again.
const RETRY: Duration = Duration::from_secs(1);
/// Refused records that are named one by one in the record of the gap; of further ones only the number.
const NAMED_MAX: usize = 64;

/// A time in which the log could not be written.
pub(in crate::audit) struct LogGap {
    since_ms: u64,
    tried: MonotonicTime,
    why: String,
    /// Records in the log whose senders received a failure.
    refused: Vec<u64>,
    more_refused: u64,
    /// Events dropped for lack of capacity.
    lost: u64,
    /// Entries that came meanwhile and could not be refused: calls in flight, and events. Each holds its
    /// place within the bound of its kind.
    held: Vec<QueuedEntry>,
}

impl LogGap {
    pub(super) fn new(why: String) -> Self {
        Self {
            since_ms: unix_ms(),
            tried: monotonic_now(),
            why,
            refused: Vec::new(),
            more_refused: 0,
            lost: 0,
            held: Vec::new(),
        }
    }

    pub(super) fn add_refused(&mut self, sequence: u64) {
        if self.refused.len() < NAMED_MAX {
            self.refused.push(sequence)
        } else {
            self.more_refused += 1
        }
    }

    pub(super) fn add_lost(&mut self, events: u64) {
        self.lost += events;
    }

    fn to_event(&self) -> Event {
        let mut details = json!({"since": render_rfc3339_ms(self.since_ms), "reason": self.why});
        if !self.refused.is_empty() {
            details["refused"] = json!(self.refused);
        }
        for (name, count) in [
            ("more_refused", self.more_refused),
            ("not_written", self.lost),
        ] {
            if count > 0 {
                details[name] = count.into();
            }
        }
        log_event(EventType::LOG_RESUMED, Outcome::Success, details)
    }
}

/// When there is something to do without an entry: what falls due, or while nothing can be written only the next try
/// of the disk. A count that is due and cannot be written would keep the thread busy until there is room.
fn next(gap: Option<&LogGap>, due: [Option<MonotonicTime>; 2]) -> Option<MonotonicTime> {
    match gap {
        Some(gap) => Some(gap.tried + RETRY),
        None => due.into_iter().flatten().min(),
    }
}

impl Writer {
    /// [`next`] of this one.
    pub(super) fn next_wakeup(&self, due: [Option<MonotonicTime>; 2]) -> Option<MonotonicTime> {
        next(self.gap.as_ref(), due)
    }

    /// When the disk is to be tried again.
    pub(super) fn retry_at(&self) -> Option<MonotonicTime> {
        self.gap.as_ref().map(|gap| gap.tried + RETRY)
    }

    /// An entry that cannot be written now. A decision is rejected; a past event is buffered until it can be written.
    pub(super) fn buffer_entry(&mut self, entry: QueuedEntry) {
        if let Some(written) = entry.reply {
            let why = match entry.kind {
                RecordKind::Decision => CommitError::Failed,
                RecordKind::Call => CommitError::FailedDuringWrite,
            };
            let _ = written.send(Err(why.into()));
        }
        if let (RecordKind::Call, Some(gap)) = (entry.kind, &mut self.gap) {
            gap.held.push(QueuedEntry {
                reply: None,
                ..entry
            });
        }
    }

    pub(super) fn resume_when_due(&mut self, at_once: bool) {
        let now = monotonic_now();
        if self.retry_at().is_none_or(|due| due > now && !at_once) {
            return;
        }
        let resumed = self.resume();
        let Some(gap) = &mut self.gap else { return };
        gap.tried = now;
        match resumed {
            Ok(()) => {
                tracing::info!("the audit log is written again");
                let held = mem::take(&mut gap.held);
                self.gap = None;
                self.queue.recover();
                held.into_iter().for_each(|entry| self.write_entry(entry));
                self.attempt(Self::sync_all);
            }
            Err(error) => self
                .queue
                .fail(&explain_io_error(self.folder.folder(), &error)),
        }
    }

    /// The pending entries are on disk in a new file, followed by a record of the gap; their remains in the
    /// old file were cut off before.
    fn resume(&mut self) -> io::Result<()> {
        let Some(gap) = &self.gap else { return Ok(()) };
        let mut chain = self.chain.clone();
        let mut lines = self.open.lines.clone();
        lines.extend(chain.append(gap.to_event()).text);
        let number = self.open.number + 1;
        let old = self.folder.file_path(self.open.number);
        let cut = || {
            // Somebody who freed room may have removed it.
            let old = match File::options().write(true).open(&old) {
                Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
                old => old?,
            };
            old.set_len(self.open.synced)?;
            old.sync_all()
        };
        let file = self.folder.create_file(number, &lines, cut)?;
        let open = OpenLogFile {
            number,
            file,
            lines: Vec::new(),
            bytes_written: 0,
            synced: lines.len() as u64,
            last: chain.head(),
            end: chain.head(),
            grown: true,
        };
        let before = mem::replace(&mut self.open, open);
        self.segments
            .continue_after(before.number, before.last, before.synced);
        let last = chain.head();
        self.segments
            .record_written(last, lines.len() as u64, unix_ms());
        self.chain = chain;
        self.commit.recover(last.sequence);
        self.queue.written.send_replace(last);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_due_while_nothing_can_be_written_wakes_nobody() {
        let (long_ago, later) = (MonotonicTime::START, MonotonicTime::START + RETRY);
        assert_eq!(next(None, [Some(later), Some(long_ago)]), Some(long_ago));
        assert_eq!(next(None, [None, None]), None);
        let gap = LogGap::new("full".into());
        let tried = gap.tried + RETRY;
        for due in [None, Some(long_ago)] {
            assert_eq!(next(Some(&gap), [due, due]), Some(tried));
        }
    }
}
