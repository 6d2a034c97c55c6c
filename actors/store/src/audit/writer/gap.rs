//! Continues the log after a disk failure: in a new file, with all pending entries and a record of the entries
//! that were refused meanwhile.

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

/// The interval between attempts on a failed disk.
const RETRY: Duration = Duration::from_secs(1);
/// Maximum number of refused records that are listed in the record of the gap; further ones are only counted.
const NAMED_MAX: usize = 64;

/// A period in which the log could not be written.
pub(in crate::audit) struct LogGap {
    since_ms: u64,
    tried: MonotonicTime,
    why: String,
    /// Sequences of logged records whose senders received a failure.
    refused: Vec<u64>,
    more_refused: u64,
    /// Events dropped for lack of capacity.
    lost: u64,
    /// Entries that arrived meanwhile and could not be refused: calls in flight, and events. Each keeps its charge
    /// against the limit of its kind.
    buffered_entries: Vec<QueuedEntry>,
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
            buffered_entries: Vec::new(),
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

/// The next time to wake without an entry: when a count is due, or during a gap only when the disk is retried, because
/// a due count that cannot be written would keep the thread busy.
fn next(gap: Option<&LogGap>, due: [Option<MonotonicTime>; 2]) -> Option<MonotonicTime> {
    match gap {
        Some(gap) => Some(gap.tried + RETRY),
        None => due.into_iter().flatten().min(),
    }
}

impl Writer {
    /// As [`next`], for this writer.
    pub(super) fn next_wakeup(&self, due: [Option<MonotonicTime>; 2]) -> Option<MonotonicTime> {
        next(self.gap.as_ref(), due)
    }

    /// When the disk is tried again.
    pub(super) fn retry_at(&self) -> Option<MonotonicTime> {
        self.gap.as_ref().map(|gap| gap.tried + RETRY)
    }

    /// Handles an entry that cannot be written now: a decision is rejected, a past event is buffered.
    pub(super) fn buffer_entry(&mut self, entry: QueuedEntry) {
        if let Some(written) = entry.reply {
            let why = match entry.kind {
                RecordKind::Decision => CommitError::Failed,
                RecordKind::Call => CommitError::FailedDuringWrite,
            };
            let _ = written.send(Err(why.into()));
        }
        if let (RecordKind::Call, Some(gap)) = (entry.kind, &mut self.gap) {
            gap.buffered_entries.push(QueuedEntry {
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
                let buffered_entries = mem::take(&mut gap.buffered_entries);
                self.gap = None;
                self.queue.recover();
                buffered_entries
                    .into_iter()
                    .for_each(|entry| self.write_entry(entry));
                self.attempt(Self::sync_all);
            }
            Err(error) => self
                .queue
                .fail(&explain_io_error(self.folder.folder(), &error)),
        }
    }

    /// Writes the pending entries to a new file, followed by a record of the gap. Their remains in the old file were
    /// truncated before.
    fn resume(&mut self) -> io::Result<()> {
        let Some(gap) = &self.gap else { return Ok(()) };
        let mut chain = self.chain.clone();
        let mut lines = self.open.lines.clone();
        lines.extend(chain.append(gap.to_event()).text);
        let number = self.open.number + 1;
        let old = self.folder.file_path(self.open.number);
        let truncate_old_file = || {
            // It may have been removed to free space.
            let old = match File::options().write(true).open(&old) {
                Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
                old => old?,
            };
            old.set_len(self.open.synced)?;
            old.sync_all()
        };
        let file = self.folder.create_file(number, &lines, truncate_old_file)?;
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
    fn due_counts_do_not_wake_the_writer_during_a_gap() {
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
