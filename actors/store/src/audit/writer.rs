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
use mgp_protocol::mgp::audit::{Event, EventType, Outcome, Target, TraceId};
use serde_json::{Value, json};
use tokio::sync::oneshot;

use self::resuming::LogGap;
use super::files::Folder;
use super::head::Heads;
use super::queue::{LogQueue, QueuedNote};
use super::{NotWritten, by_kernel, event};
use crate::trouble::explained;
use mgp_runtime::randomness;
use mgp_runtime::time::{moment, unix_ms};

/// Records that nobody waits for are gathered for this long, so that the thread is not woken for each of
/// them. What a killed kernel can lose is what came in this time, and while the sync before it took.
const GATHER: Duration = Duration::from_millis(2);
/// The head files are synced at most this much later than the log.
const HEAD_SYNC: Duration = Duration::from_secs(1);
/// How often it is checked whether records are too old.
const TRIM_LOOK: Duration = Duration::from_secs(60);
/// Lines that are not known to be on disk are kept, to be written elsewhere when it fails. Of more bytes
/// than this they are synced before their time.
const LINES_MAX: usize = 8 << 20;

type Written = oneshot::Sender<Result<(), NotWritten>>;

pub(super) struct Writer {
    pub(super) ledger: Arc<LogQueue>,
    pub(super) folder: Folder,
    pub(super) chain: Chain,
    pub(super) segments: Segments,
    pub(super) commit: Commit,
    pub(super) redaction: Redaction,
    pub(super) repeats: Repeats,
    pub(super) head: Heads,
    pub(super) open: OpenLogFile,
    /// Who waits, by the number of the record. As many as [`Commit`] knows of.
    pub(super) waiting: VecDeque<(u64, Written)>,
    /// What the disk does not take at the moment.
    pub(super) gap: Option<LogGap>,
    pub(super) timers: Timers,
}

/// The file at hand.
pub(super) struct OpenLogFile {
    pub(super) number: u64,
    pub(super) file: File,
    /// Lines that are not known to be on disk. At most [`LINES_MAX`] bytes and one group.
    pub(super) lines: Vec<u8>,
    /// As many bytes of them are in the file.
    pub(super) written: usize,
    /// How long the file is without them.
    pub(super) synced: u64,
    /// The last record without them.
    pub(super) last: Head,
    /// The last record of them.
    pub(super) end: Head,
    /// More files than when it was last looked whether some are to go.
    pub(super) grown: bool,
}

#[derive(Default)]
pub(super) struct Timers {
    pub(super) head_synced: MonotonicTime,
    pub(super) trimmed: MonotonicTime,
}

impl Drop for Writer {
    /// Whatever the end is, nobody waits for it for ever, and nothing more is done unwritten.
    fn drop(&mut self) {
        self.ledger.end();
    }
}

impl Writer {
    pub(super) fn run(mut self) {
        let mut gather = Duration::ZERO;
        loop {
            let now = moment();
            let wakes = [self.commit.wake(), self.repeats.wake(), self.retry()];
            let until = wakes.into_iter().flatten().min();
            let until = until.map(|due| due.since(now));
            let taken = self
                .ledger
                .take(until.map_or(gather, |u| u.min(gather)), until);
            gather = GATHER;
            if let Some(secrets) = taken.secrets {
                self.redaction.learn(secrets);
            }
            for entry in taken.entries {
                self.enter(entry);
            }
            self.confess(taken.dropped);
            self.count(|repeats| repeats.due(moment()));
            self.attempt(Self::flush);
            self.sync_when_due();
            self.attempt(Self::trim);
            self.resume_when_due(taken.closing.is_some());
            if let Some(closing) = taken.closing {
                self.count(Repeats::rest);
                self.attempt(Self::settle);
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
        // What a caller takes for the name of a tool may be anything.
        if let Some(asked) = &mut event.target.tool_name {
            self.redaction.text(asked);
        }
        if event.event_type == EventType::LOG_ACKNOWLEDGED {
            // What is acknowledged is mended: it is not found a second time.
            self.attempt(|writer| writer.miss_heads(writer.open.last));
            event
                .details
                .insert("through".into(), self.chain.head().sequence.into());
        }
        if entry.kind == RecordKind::Call && self.repeats.counts(&event, moment()) {
            // Its count is written with that of the others.
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
            // So many wait that the disk comes first.
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

    /// Chains an event and puts its line with those that are written next.
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
        // A record that has its number is written, here or where the log goes on.
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

    /// Writes down how often something happened that was only counted.
    fn count(&mut self, counts: impl FnOnce(&mut Repeats) -> Vec<Event>) {
        if self.gap.is_none() {
            for event in counts(&mut self.repeats) {
                let _ = self.write(event, RecordKind::Call);
            }
        }
    }

    /// Closes the file at hand, all of it on disk, and opens another.
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
        for sequence in self.commit.synced() {
            // What was only told has a number, and nobody who waits.
            if let Some((_, written)) = self.waiting.pop_front_if(|(next, _)| *next == sequence) {
                let _ = written.send(Ok(()));
            }
        }
        let last = self.open.last;
        self.head.write(last)?;
        let now = moment();
        if now.since(self.timers.head_synced) >= HEAD_SYNC {
            self.timers.head_synced = now;
            self.head.sync()?;
            self.miss_heads(last)?;
        }
        Ok(())
    }

    /// Who removes what names the end of the log is found out while the kernel runs.
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

    /// Puts on disk what is in the file.
    fn keep(&mut self) -> io::Result<()> {
        let open = &mut self.open;
        open.file.sync_data()?;
        open.synced += open.written as u64;
        open.lines.drain(..open.written);
        open.written = 0;
        // One large group does not keep its memory for good.
        open.lines.shrink_to(1 << 20);
        open.last = open.end;
        Ok(())
    }

    /// Everything is on disk afterwards, the head included.
    pub(super) fn settle(&mut self) -> io::Result<()> {
        self.flush()?;
        self.keep()?;
        self.head.write(self.open.last)?;
        self.head.sync_all()
    }

    /// Removes files that are to go, after a record of it is on disk.
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
