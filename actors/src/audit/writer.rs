//! The log's own thread: chains, writes and syncs what waits, in groups.

use std::collections::VecDeque;
use std::fs::{self, File};
use std::io::{self, Write};
use std::sync::Arc;
use std::time::Duration;

use mgp_engine::audit::chain::Chain;
use mgp_engine::audit::commit::{Answer, Commit, Kind, Refused};
use mgp_engine::audit::redact::Redaction;
use mgp_engine::audit::segments::{Segments, Trim};
use mgp_engine::moment::Moment;
use mgp_protocol::mgp::audit::{Event, EventType, Outcome, Target, TraceId};
use serde_json::{Value, json};
use tokio::sync::oneshot;

use super::files::Folder;
use super::head::HeadFile;
use super::queue::{Entry, Ledger};
use super::{NotWritten, by_kernel, event};
use crate::time::{moment, unix_ms};

/// Records that nobody waits for are gathered for this long, so that the thread is not woken for each of
/// them. What a killed kernel can lose is what came in this time, and while the sync before it took.
const GATHER: Duration = Duration::from_millis(2);
/// The head beside the log is on disk at most this much later than the log.
const HEAD_SYNC: Duration = Duration::from_secs(1);
/// How often it is looked whether records have become too old.
const TRIM_LOOK: Duration = Duration::from_secs(60);

type Written = oneshot::Sender<Result<(), NotWritten>>;

pub(super) struct Writer {
    pub(super) ledger: Arc<Ledger>,
    pub(super) folder: Folder,
    pub(super) chain: Chain,
    pub(super) segments: Segments,
    pub(super) commit: Commit,
    pub(super) redaction: Redaction,
    pub(super) head: HeadFile,
    pub(super) open: Open,
    /// Who waits, by the number of the record. As many as [`Commit`] knows of.
    pub(super) waiting: VecDeque<(u64, Written)>,
    pub(super) timers: Timers,
}

/// The file at hand.
pub(super) struct Open {
    pub(super) number: u64,
    pub(super) file: File,
    /// Lines that are not yet written.
    pub(super) lines: Vec<u8>,
    /// More files than when it was last looked whether some are to go.
    pub(super) grown: bool,
}

#[derive(Default)]
pub(super) struct Timers {
    pub(super) head_synced: Moment,
    pub(super) trimmed: Moment,
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
            let until = self.commit.wake().map(|due| due.since(moment()));
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
            self.attempt(Self::flush);
            self.sync_when_due();
            self.attempt(Self::trim);
            if let Some(closing) = taken.closing {
                self.attempt(Self::settle);
                let _ = closing.send(());
                return;
            }
        }
    }

    fn enter(&mut self, entry: Entry) {
        let (mut event, kept) = entry.note.event();
        self.redaction.scrub(&mut event.details);
        // What a caller takes for the name of a tool may be anything.
        if let Some(asked) = &mut event.target.tool_name {
            self.redaction.text(asked);
        }
        if let Some(kept) = kept {
            let mut details = self.redaction.arguments(&kept);
            details.append(&mut event.details);
            event.details = details;
        }
        if self.commit.room() == Err(Refused::Full) {
            // So many wait that the disk comes first.
            self.attempt(Self::flush);
            self.sync_when_due();
        }
        match (self.write(event, entry.kind), entry.written) {
            (Ok((sequence, Answer::Wait)), Some(written)) => {
                self.waiting.push_back((sequence, written));
            }
            (Ok((_, Answer::Now)), Some(written)) => {
                let _ = written.send(Ok(()));
            }
            (Err(refused), Some(written)) => {
                let _ = written.send(Err(refused.into()));
            }
            (Ok(_) | Err(_), None) => {}
        }
    }

    /// Chains an event and puts its line with those that are written next.
    fn write(&mut self, event: Event, kind: Kind) -> Result<(u64, Answer), Refused> {
        self.commit.room()?;
        let line = self.chain.append(event);
        let len = line.text.len() as u64;
        let number = self.segments.place(len);
        if number != self.open.number {
            self.attempt(|writer| writer.turn_to(number));
            self.commit.room()?;
        }
        self.open.lines.extend_from_slice(&line.text);
        self.segments.written(line.head, len, unix_ms());
        let answer = self.commit.written(line.head.sequence, kind, moment());
        Ok((line.head.sequence, answer))
    }

    /// Closes the file at hand, all of it on disk, and opens another.
    fn turn_to(&mut self, number: u64) -> io::Result<()> {
        self.flush()?;
        self.open.file.sync_data()?;
        self.open.file = self.folder.append(number)?;
        self.open.number = number;
        self.open.grown = true;
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        if !self.open.lines.is_empty() {
            self.open.file.write_all(&self.open.lines)?;
            self.open.lines.clear();
            // One large group does not keep its memory for good.
            self.open.lines.shrink_to(1 << 20);
            let last = self.chain.head().sequence;
            self.ledger.written.send_replace(last);
        }
        Ok(())
    }

    fn sync_when_due(&mut self) {
        if self.commit.begin(moment()) {
            self.attempt(Self::sync);
        }
    }

    fn sync(&mut self) -> io::Result<()> {
        self.open.file.sync_data()?;
        for sequence in self.commit.synced() {
            // What was only told has a number, and nobody who waits.
            if let Some((_, written)) = self.waiting.pop_front_if(|(next, _)| *next == sequence) {
                let _ = written.send(Ok(()));
            }
        }
        self.head.write(self.chain.head())?;
        let now = moment();
        if now.since(self.timers.head_synced) >= HEAD_SYNC {
            self.timers.head_synced = now;
            self.head.sync()?;
        }
        Ok(())
    }

    /// Everything is on disk afterwards, the head included.
    fn settle(&mut self) -> io::Result<()> {
        self.flush()?;
        self.open.file.sync_data()?;
        self.head.write(self.chain.head())?;
        self.head.sync()
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
        self.write(said, Kind::Call).map_err(broken)?;
        self.settle()
    }

    /// Events that found no room were not written; that is.
    fn confess(&mut self, dropped: u64) {
        if dropped > 0 {
            tracing::error!(dropped, "events found no room in the audit log");
            let details = json!({"not_written": dropped});
            let said = own(EventType::LOG_DAMAGED, Outcome::Failure, details);
            let _ = self.write(said, Kind::Call);
        }
    }

    /// After one failure nothing is written any more: a second try may report success for bytes that
    /// are gone.
    fn attempt(&mut self, what: impl FnOnce(&mut Self) -> io::Result<()>) {
        if self.commit.room() == Err(Refused::Broken) {
            return;
        }
        if let Err(error) = what(self) {
            tracing::error!(%error, "the audit log cannot be written; calls and decisions are refused from now on");
            self.ledger.fail();
            let _ = self.commit.failed();
            for (_, written) in self.waiting.drain(..) {
                let _ = written.send(Err(Refused::Broken.into()));
            }
        }
    }
}

/// An event of the log itself.
pub(super) fn own(event_type: EventType, result: Outcome, details: Value) -> Event {
    let mut random = [0; 16];
    // A trace that is not random is still a trace.
    let _ = getrandom::fill(&mut random);
    let trace = TraceId::mint(random);
    event(
        event_type,
        by_kernel(),
        Target::default(),
        &trace,
        result,
        details,
    )
}
