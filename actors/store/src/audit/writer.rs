//! The log's thread: chains, writes and syncs records in groups.

mod resuming;

use std::collections::VecDeque;
use std::fs::{self, File};
use std::io::{self, Write};
use std::sync::Arc;
use std::time::Duration;

use mgp_engine::clock::MonotonicTime;
use mgp_engine::store::audit::chain::{Chain, Head};
use mgp_engine::store::audit::commit::{Commit, CommitAnswer, CommitRefusal, RecordKind};
use mgp_engine::store::audit::redact::Redaction;
use mgp_engine::store::audit::repeats::Repeats;
use mgp_engine::store::audit::segments::{Segments, Trim};
use mgp_engine::store::masks::Masks;
use mgp_protocol::mgp::audit::{Event, EventType, Outcome, Target, TraceId};
use mgp_sync::snapshot::Snapshot;
use serde_json::{Value, json};
use tokio::sync::oneshot;

use self::resuming::LogGap;
use super::files::Folder;
use super::head::Heads;
use super::queue::{LogQueue, QueuedNote};
use super::{NotWritten, by_kernel, event};
use crate::trouble::explained;
use mgp_runtime::metrics::Latencies;
use mgp_runtime::randomness;
use mgp_runtime::time::{moment, unix_ms};

/// How long records that nobody waits for are gathered, so that the thread is not woken for each. A kernel
/// that is killed loses those of this time and of the sync before.
const GATHER: Duration = Duration::from_millis(2);
/// How much later than the log the head files may be synced.
const HEAD_SYNC: Duration = Duration::from_secs(1);
/// How often old files are looked for.
const TRIM_LOOK: Duration = Duration::from_secs(60);
/// Lines not yet synced are kept in memory, to be written elsewhere if the disk fails. More bytes than this
/// are synced early.
const LINES_MAX: usize = 8 << 20;

/// How long the log's syncs took.
pub(super) static SYNCS: Latencies = Latencies::new();

type Written = oneshot::Sender<Result<(), NotWritten>>;

pub(super) struct Writer {
    pub(super) ledger: Arc<LogQueue>,
    pub(super) folder: Folder,
    pub(super) chain: Chain,
    pub(super) segments: Segments,
    pub(super) commit: Commit,
    pub(super) masks: Arc<Snapshot<Masks>>,
    pub(super) redaction: Redaction,
    pub(super) repeats: Repeats,
    pub(super) head: Heads,
    pub(super) open: OpenLogFile,
    /// Those who wait, by the number of their record. Bounded by [`Commit`].
    pub(super) waiting: VecDeque<(u64, Written)>,
    /// What the disk has not accepted.
    pub(super) gap: Option<LogGap>,
    pub(super) timers: Timers,
}

/// The current file.
pub(super) struct OpenLogFile {
    pub(super) number: u64,
    pub(super) file: File,
    /// Lines that are not known to be on disk: at most [`LINES_MAX`] bytes and one group.
    pub(super) lines: Vec<u8>,
    /// How many of their bytes are in the file.
    pub(super) written: usize,
    /// The length of the file without them.
    pub(super) synced: u64,
    /// The last record before them.
    pub(super) last: Head,
    /// The last of their records.
    pub(super) end: Head,
    /// A file was opened since old files were last looked for.
    pub(super) grown: bool,
}

#[derive(Default)]
pub(super) struct Timers {
    pub(super) head_synced: MonotonicTime,
    pub(super) trimmed: MonotonicTime,
}

impl Drop for Writer {
    /// However the thread ends, nobody waits for ever, and no action goes on unrecorded.
    fn drop(&mut self) {
        self.ledger.end();
    }
}

impl Writer {
    pub(super) fn run(mut self) {
        let mut gather = Duration::ZERO;
        loop {
            let now = moment();
            let until = self.wake([self.commit.wake(), self.repeats.wake()]);
            let until = until.map(|due| due.since(now));
            let taken = self
                .ledger
                .take(until.map_or(gather, |u| u.min(gather)), until);
            gather = GATHER;
            // What became a secret before these entries were taken is masked in them.
            self.redaction.mask_with(self.masks.load());
            for entry in taken.entries {
                self.enter(entry);
            }
            self.confess(taken.dropped);
            self.count(|repeats| repeats.due(moment()));
            self.attempt(Self::flush);
            for told in taken.flushed {
                let _ = told.send(());
            }
            self.sync_when_due();
            self.attempt(Self::trim);
            self.resume_when_due(taken.closing.is_some());
            if let Some(closing) = taken.closing {
                self.count(Repeats::rest);
                self.attempt(Self::settle);
                self.attempt(|writer| writer.folder.mark_closed(writer.open.last));
                let _ = closing.send(());
                return;
            }
        }
    }

    pub(super) fn enter(&mut self, entry: QueuedNote) {
        if self.gap.is_some() {
            return self.hold(entry);
        }
        let (mut event, kept) = entry.note.event();
        self.redaction.scrub(&mut event.details);
        // A caller may send anything as the name of a tool.
        if let Some(asked) = &mut event.target.tool_name {
            self.redaction.text(asked);
        }
        if event.event_type == EventType::LOG_ACKNOWLEDGED {
            // An acknowledged fault is not reported again.
            self.attempt(|writer| writer.miss_heads(writer.open.last));
            event
                .details
                .insert("through".into(), self.chain.head().sequence.into());
        }
        if entry.kind == RecordKind::Call && self.repeats.counts(&event, moment()) {
            // Its count is recorded with the others.
            if let Some(written) = entry.written {
                let _ = written.send(Ok(()));
            }
            return;
        }
        if let Some(kept) = kept {
            let mut details = self.redaction.arguments(&kept);
            details.append(&mut event.details);
            event.details = details;
        }
        if self.commit.room() == Err(CommitRefusal::Full) {
            // So many wait that a sync comes first.
            self.attempt(Self::flush);
            self.sync_when_due();
        }
        if self.gap.is_some() {
            return self.hold(QueuedNote {
                note: Box::new(event),
                ..entry
            });
        }
        match (self.write(event, entry.kind), entry.written) {
            (Ok((sequence, CommitAnswer::Wait)), Some(written)) => {
                self.waiting.push_back((sequence, written));
            }
            (Ok((_, CommitAnswer::Now)), Some(written)) => {
                let _ = written.send(Ok(()));
            }
            (Err(refused), Some(written)) => {
                let _ = written.send(Err(refused.into()));
            }
            (Ok(_) | Err(_), None) => {}
        }
    }

    /// Chains an event and adds its line to the next group.
    pub(super) fn write(
        &mut self,
        event: Event,
        kind: RecordKind,
    ) -> Result<(u64, CommitAnswer), CommitRefusal> {
        self.commit.room()?;
        let (actor, now) = (event.actor.clone(), moment());
        let line = self.chain.append(event);
        let len = line.text.len() as u64;
        self.repeats.wrote(&actor, len, now);
        let number = self.segments.place(len);
        if number != self.open.number {
            self.attempt(|writer| writer.turn_to(number));
        }
        // A record that has its number is written, in this file or in the next one.
        self.open.lines.extend_from_slice(&line.text);
        self.open.end = line.head;
        self.segments.written(line.head, len, unix_ms());
        if let Some(gap) = &mut self.gap {
            gap.refused(line.head.sequence);
            return Err(CommitRefusal::Late);
        }
        let answer = self.commit.written(line.head.sequence, kind, now);
        Ok((line.head.sequence, answer))
    }

    /// Records how often events occurred that were only counted.
    fn count(&mut self, counts: impl FnOnce(&mut Repeats) -> Vec<Event>) {
        if self.gap.is_none() {
            for event in counts(&mut self.repeats) {
                let _ = self.write(event, RecordKind::Call);
            }
        }
    }

    /// Closes the current file, synced, and opens the next.
    fn turn_to(&mut self, number: u64) -> io::Result<()> {
        self.flush()?;
        self.open.file.sync_data()?;
        let file = self.folder.append(number)?;
        self.open = OpenLogFile {
            number,
            file,
            lines: std::mem::take(&mut self.open.lines),
            written: 0,
            synced: 0,
            last: self.open.end,
            end: self.open.end,
            grown: true,
        };
        self.open.lines.clear();
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        let open = &mut self.open;
        if open.written < open.lines.len() {
            open.file.write_all(&open.lines[open.written..])?;
            open.written = open.lines.len();
            self.ledger.written.send_replace(open.end);
        }
        match self.open.lines.len() > LINES_MAX {
            true => self.keep(),
            false => Ok(()),
        }
    }

    fn sync_when_due(&mut self) {
        if self.commit.begin(moment()) {
            self.attempt(Self::sync);
        }
    }

    fn sync(&mut self) -> io::Result<()> {
        self.flush()?;
        self.keep()?;
        // The witness of the group, before anything in it is acknowledged.
        let last = self.open.last;
        self.head.write(last)?;
        for sequence in self.commit.synced() {
            // An entry that nobody waits for has a number, but no sender to wake.
            if let Some((_, written)) = self.waiting.pop_front_if(|(next, _)| *next == sequence) {
                let _ = written.send(Ok(()));
            }
        }
        let now = moment();
        if now.since(self.timers.head_synced) >= HEAD_SYNC {
            self.timers.head_synced = now;
            self.head.sync()?;
            self.miss_heads(last)?;
        }
        Ok(())
    }

    /// Removal of the head files is noticed while the kernel runs.
    fn miss_heads(&mut self, last: Head) -> io::Result<()> {
        while let Some(gone) = self.head.replaced(last)? {
            let why = format!("{} was removed while the kernel ran", gone.display());
            tracing::error!("the audit log is damaged: {why}");
            let details = json!({"head": why});
            let said = own(EventType::LOG_DAMAGED, Outcome::Failure, details);
            let _ = self.write(said, RecordKind::Call);
        }
        Ok(())
    }

    /// Syncs the file.
    fn keep(&mut self) -> io::Result<()> {
        let open = &mut self.open;
        let began = moment();
        open.file.sync_data()?;
        SYNCS.record(moment().since(began));
        open.synced += open.written as u64;
        open.lines.drain(..open.written);
        open.written = 0;
        // The memory of one large group is not kept.
        open.lines.shrink_to(1 << 20);
        open.last = open.end;
        Ok(())
    }

    /// Afterwards everything is on disk, the head included.
    pub(super) fn settle(&mut self) -> io::Result<()> {
        self.flush()?;
        self.keep()?;
        self.head.write(self.open.last)?;
        self.head.sync_all()
    }

    /// Removes old files, after a record of that is on disk.
    fn trim(&mut self) -> io::Result<()> {
        let now = moment();
        let look = self.open.grown || now.since(self.timers.trimmed) >= TRIM_LOOK;
        if !look || !self.ledger.is_examined() {
            return Ok(());
        }
        self.open.grown = false;
        self.timers.trimmed = now;
        let Some(trim) = self.segments.due(unix_ms()) else {
            return Ok(());
        };
        self.count(Repeats::rest);
        self.announce(&trim)?;
        for number in &trim.segments {
            fs::remove_file(self.folder.path(*number))?;
        }
        self.segments.removed(&trim);
        self.folder.sync()
    }

    fn announce(&mut self, trim: &Trim) -> io::Result<()> {
        let details = Value::Object(trim.details());
        let said = own(EventType::LOG_TRIMMED, Outcome::Success, details);
        let broken = |_| io::Error::other("the log is broken");
        self.write(said, RecordKind::Call).map_err(broken)?;
        self.settle()
    }

    /// Logs how many events were dropped for lack of room.
    fn confess(&mut self, dropped: u64) {
        if dropped == 0 {
            return;
        }
        tracing::error!(dropped, "events found no room in the audit log");
        if let Some(gap) = &mut self.gap {
            return gap.lost(dropped);
        }
        let details = json!({"not_written": dropped});
        let said = own(EventType::LOG_DAMAGED, Outcome::Failure, details);
        let _ = self.write(said, RecordKind::Call);
    }

    /// Runs a disk operation. After a failure nothing more is written to this file: a retry may report
    /// success for lost bytes; the log continues in a new file.
    pub(super) fn attempt(&mut self, what: impl FnOnce(&mut Self) -> io::Result<()>) {
        if self.gap.is_some() {
            return;
        }
        if let Err(error) = what(self) {
            let why = explained(self.folder.folder(), &error);
            tracing::error!(%why, "the audit log cannot be written; calls and decisions are refused until it can");
            self.ledger.fail(&why);
            let _ = self.commit.failed();
            let mut gap = LogGap::since(why);
            for (sequence, written) in self.waiting.drain(..) {
                gap.refused(sequence);
                let _ = written.send(Err(CommitRefusal::Late.into()));
            }
            self.gap = Some(gap);
        }
    }
}

/// An event of the log itself.
pub(super) fn own(event_type: EventType, result: Outcome, details: Value) -> Event {
    event(
        event_type,
        by_kernel(),
        Target::default(),
        &TraceId::mint(randomness::bytes()),
        result,
        details,
    )
}
