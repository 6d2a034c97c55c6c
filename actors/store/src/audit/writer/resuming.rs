//! Continues the log after a disk failure: in a new file, with all entries that were pending and a record of
//! what was refused meanwhile.

use std::fs::File;
use std::io;
use std::mem;
use std::time::Duration;

use mgp_engine::clock::MonotonicTime;
use mgp_engine::store::audit::commit::{CommitRefusal, RecordKind};
use mgp_engine::timestamps::rfc3339_ms;
use mgp_protocol::mgp::audit::{Event, EventType, Outcome};
use serde_json::json;

use super::{OpenLogFile, Writer, own};
use crate::audit::queue::QueuedNote;
use crate::trouble::explained;
use mgp_runtime::time::{moment, unix_ms};

/// How often a failed disk is tried again.
const RETRY: Duration = Duration::from_secs(1);
/// Refused records that are named one by one in the record of the gap; of further ones only the number.
const NAMED_MAX: usize = 64;

/// A time in which the log could not be written.
pub(in crate::audit) struct LogGap {
    since_ms: u64,
    tried: MonotonicTime,
    why: String,
    /// Records in the log whose senders were told that they failed.
    refused: Vec<u64>,
    more_refused: u64,
    /// Events dropped for lack of room.
    lost: u64,
    /// Entries that came meanwhile and could not be refused: calls under way, and events. Each holds its
    /// place within the bound of its kind.
    held: Vec<QueuedNote>,
}

impl LogGap {
    pub(super) fn since(why: String) -> Self {
        Self {
            since_ms: unix_ms(),
            tried: moment(),
            why,
            refused: Vec::new(),
            more_refused: 0,
            lost: 0,
            held: Vec::new(),
        }
    }

    pub(super) fn refused(&mut self, sequence: u64) {
        match self.refused.len() < NAMED_MAX {
            true => self.refused.push(sequence),
            false => self.more_refused += 1,
        }
    }

    pub(super) fn lost(&mut self, events: u64) {
        self.lost += events;
    }

    fn event(&self) -> Event {
        let mut details = json!({"since": rfc3339_ms(self.since_ms), "reason": self.why});
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
        own(EventType::LOG_RESUMED, Outcome::Success, details)
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
    pub(super) fn wake(&self, due: [Option<MonotonicTime>; 2]) -> Option<MonotonicTime> {
        next(self.gap.as_ref(), due)
    }

    /// When the disk is to be tried again.
    pub(super) fn retry(&self) -> Option<MonotonicTime> {
        self.gap.as_ref().map(|gap| gap.tried + RETRY)
    }

    /// An entry that cannot be written now. A decision is refused; what has happened is kept until it can
    /// be written.
    pub(super) fn hold(&mut self, entry: QueuedNote) {
        if let Some(written) = entry.written {
            let why = match entry.kind {
                RecordKind::Decision => CommitRefusal::Broken,
                RecordKind::Call => CommitRefusal::Late,
            };
            let _ = written.send(Err(why.into()));
        }
        if let (RecordKind::Call, Some(gap)) = (entry.kind, &mut self.gap) {
            gap.held.push(QueuedNote {
                written: None,
                ..entry
            });
        }
    }

    pub(super) fn resume_when_due(&mut self, at_once: bool) {
        let now = moment();
        if self.retry().is_none_or(|due| due > now && !at_once) {
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
                self.ledger.recover();
                held.into_iter().for_each(|entry| self.enter(entry));
                self.attempt(Self::settle);
            }
            Err(error) => self.ledger.fail(&explained(self.folder.folder(), &error)),
        }
    }

    /// The pending entries are on disk in a new file, followed by a record of the gap; their remains in the
    /// old file were cut off before.
    fn resume(&mut self) -> io::Result<()> {
        let Some(gap) = &self.gap else { return Ok(()) };
        let mut chain = self.chain.clone();
        let mut lines = self.open.lines.clone();
        lines.extend(chain.append(gap.event()).text);
        let number = self.open.number + 1;
        let old = self.folder.path(self.open.number);
        let cut = || {
            // Somebody who freed room may have removed it.
            let old = match File::options().write(true).open(&old) {
                Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
                old => old?,
            };
            old.set_len(self.open.synced)?;
            old.sync_all()
        };
        let file = self.folder.begin(number, &lines, cut)?;
        let open = OpenLogFile {
            number,
            file,
            lines: Vec::new(),
            written: 0,
            synced: lines.len() as u64,
            last: chain.head(),
            end: chain.head(),
            grown: true,
        };
        let before = mem::replace(&mut self.open, open);
        self.segments
            .go_on(before.number, before.last, before.synced);
        let last = chain.head();
        self.segments.written(last, lines.len() as u64, unix_ms());
        self.chain = chain;
        self.commit.recovered(last.sequence);
        self.ledger.written.send_replace(last);
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
        let gap = LogGap::since("full".into());
        let tried = gap.tried + RETRY;
        for due in [None, Some(long_ago)] {
            assert_eq!(next(Some(&gap), [due, due]), Some(tried));
        }
    }
}
