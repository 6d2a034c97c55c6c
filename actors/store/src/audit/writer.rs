//! The log's thread: chains, writes and syncs records in groups.

mod gap;

use std::collections::VecDeque;
use std::fs::{self, File};
use std::io::{self, Write};
use std::sync::Arc;
use std::time::Duration;

use mgp_engine::clock::MonotonicTime;
use mgp_engine::store::audit::chain::{AuditLine, Chain, Head};
use mgp_engine::store::audit::commit::{CommitError, CommitOutcome, CommitScheduler, RecordKind};
use mgp_engine::store::audit::redact::Redaction;
use mgp_engine::store::audit::repeats::RepeatCounter;
use mgp_engine::store::audit::segments::{Segments, Trim};
use mgp_protocol::mgp::audit::{Actor, Event, EventType, Outcome, Target, TraceId};
use mgp_screening::masks::Masks;
use mgp_sync::Snapshot;
use serde_json::{Value, json};
use tokio::sync::oneshot;

use self::gap::LogGap;
use super::files::LogFolder;
use super::head::HeadFiles;
use super::queue::{LogQueue, QueuedEntry};
use super::{AuditWriteError, kernel_actor, new_event};
use crate::health::explain_io_error;
use mgp_runtime::time::{monotonic_now, unix_ms};
use mgp_runtime::{LatencyRecorder, randomness};

/// How long unawaited records are gathered, so that the thread is not woken for each. A kernel that is killed
/// loses those of this time and of the sync before.
const GATHER: Duration = Duration::from_millis(2);
/// The delay after a sync of the log until the head files are synced.
const HEAD_SYNC: Duration = Duration::from_secs(1);
/// The interval between checks for old files.
const TRIM_INTERVAL: Duration = Duration::from_secs(60);
/// Unsynced lines are kept in memory, to be written elsewhere if the disk fails. More bytes than this are
/// synced early.
const LINES_MAX: usize = 8 << 20;

/// Durations of the log's syncs.
pub(super) static SYNCS: LatencyRecorder = LatencyRecorder::new();

type ResultSender = oneshot::Sender<Result<(), AuditWriteError>>;

pub(super) struct Writer {
    pub(super) queue: Arc<LogQueue>,
    pub(super) folder: LogFolder,
    pub(super) chain: Chain,
    pub(super) segments: Segments,
    pub(super) commit: CommitScheduler,
    pub(super) masks: Arc<Snapshot<Masks>>,
    pub(super) redaction: Redaction,
    pub(super) repeats: RepeatCounter,
    pub(super) head: HeadFiles,
    pub(super) open: OpenLogFile,
    /// The reply channels by record sequence. Bounded by [`CommitScheduler`].
    pub(super) waiters: VecDeque<(u64, ResultSender)>,
    /// The current disk failure, if any.
    pub(super) gap: Option<LogGap>,
    pub(super) timers: Timers,
}

/// The current file.
pub(super) struct OpenLogFile {
    pub(super) number: u64,
    pub(super) file: File,
    /// Unsynced lines: at most [`LINES_MAX`] bytes and one group.
    pub(super) lines: Vec<u8>,
    /// How many bytes of `lines` are in the file.
    pub(super) bytes_written: usize,
    /// The length of the file without the unsynced lines.
    pub(super) synced: u64,
    /// The last record before the unsynced lines.
    pub(super) last: Head,
    /// The last record of the unsynced lines.
    pub(super) end: Head,
    /// Whether a file was opened since the last check for old files.
    pub(super) grown: bool,
}

#[derive(Default)]
pub(super) struct Timers {
    pub(super) head_synced: MonotonicTime,
    pub(super) trimmed: MonotonicTime,
}

impl Drop for Writer {
    /// However the thread ends, no waiter hangs and no action continues unrecorded.
    fn drop(&mut self) {
        self.queue.shut_down();
    }
}

impl Writer {
    pub(super) fn run(mut self) {
        let mut gather = Duration::ZERO;
        loop {
            let now = monotonic_now();
            let until = self.next_wakeup([self.commit.next_timeout(), self.repeats.next_timeout()]);
            let until = until.map(|due| due.duration_since(now));
            let batch = self
                .queue
                .next_batch(until.map_or(gather, |u| u.min(gather)), until);
            gather = GATHER;
            // Secrets registered before these entries were taken are masked in them.
            self.redaction.set_masks(self.masks.load());
            for entry in batch.entries {
                self.write_entry(entry);
            }
            self.record_dropped(batch.dropped);
            self.record_counts(|repeats| repeats.take_due(monotonic_now()));
            self.attempt(Self::flush);
            for waiter in batch.flush_waiters {
                let _ = waiter.send(());
            }
            self.sync_when_due();
            self.attempt(Self::trim);
            self.resume_when_due(batch.closing.is_some());
            if let Some(closing) = batch.closing {
                self.record_counts(RepeatCounter::take_all);
                self.attempt(Self::sync_all);
                self.attempt(|writer| writer.folder.mark_closed(writer.open.last));
                let _ = closing.send(());
                return;
            }
        }
    }

    pub(super) fn write_entry(&mut self, entry: QueuedEntry) {
        if self.gap.is_some() {
            return self.buffer_entry(entry);
        }
        let Some(entry) = self.write_successful_call(entry) else {
            return;
        };
        let (mut event, kept) = entry.entry.into_event();
        self.redaction.scrub(&mut event.details);
        // Callers may send anything as a tool name.
        if let Some(asked) = &mut event.target.tool_name {
            self.redaction.mask_text(asked);
        }
        if event.event_type == EventType::LOG_ACKNOWLEDGED {
            // An acknowledged fault is not reported again.
            self.attempt(|writer| writer.check_heads(writer.open.last));
            event
                .details
                .insert("through".into(), self.chain.head().sequence.into());
        }
        if entry.kind == RecordKind::Call && self.repeats.try_count(&event, monotonic_now()) {
            // Counted events are recorded later.
            if let Some(written) = entry.reply {
                let _ = written.send(Ok(()));
            }
            return;
        }
        if let Some(kept) = kept {
            let mut details = self.redaction.render_arguments(&kept);
            details.append(&mut event.details);
            event.details = details;
        }
        self.make_capacity();
        if self.gap.is_some() {
            return self.buffer_entry(QueuedEntry {
                entry: Box::new(event),
                ..entry
            });
        }
        let outcome = self.write(event, entry.kind);
        self.reply(outcome, entry.reply);
    }

    /// Writes the entry if it is a successful call of an agent within its quota, the usual one. Otherwise returns it.
    fn write_successful_call(&mut self, entry: QueuedEntry) -> Option<QueuedEntry> {
        let Some(call) = entry.entry.as_successful_call() else {
            return Some(entry);
        };
        let now = monotonic_now();
        self.make_capacity();
        if self.gap.is_some()
            || self.commit.check_capacity().is_err()
            || self.repeats.is_over_quota(&call.actor, now)
        {
            drop(call);
            return Some(entry);
        }
        let line = self.chain.append_call(&call, &self.redaction);
        let outcome = self.write_line(&line, &call.actor, entry.kind, now);
        drop(call);
        self.reply(outcome, entry.reply);
        None
    }

    /// With many waiters, syncs first.
    fn make_capacity(&mut self) {
        if self.commit.check_capacity() == Err(CommitError::Full) {
            self.attempt(Self::flush);
            self.sync_when_due();
        }
    }

    /// Answers the sender of an entry, now or after the next sync.
    fn reply(
        &mut self,
        outcome: Result<(u64, CommitOutcome), CommitError>,
        reply: Option<ResultSender>,
    ) {
        match (outcome, reply) {
            (Ok((sequence, CommitOutcome::Wait)), Some(written)) => {
                self.waiters.push_back((sequence, written));
            }
            (Ok((_, CommitOutcome::Proceed)), Some(written)) => {
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
    ) -> Result<(u64, CommitOutcome), CommitError> {
        self.commit.check_capacity()?;
        let (actor, now) = (event.actor.clone(), monotonic_now());
        let line = self.chain.append(event);
        self.write_line(&line, &actor, kind, now)
    }

    /// Adds a line to the next group.
    fn write_line(
        &mut self,
        line: &AuditLine,
        actor: &Actor,
        kind: RecordKind,
        now: MonotonicTime,
    ) -> Result<(u64, CommitOutcome), CommitError> {
        let len = line.text.len() as u64;
        self.repeats.record_written(actor, len, now);
        let number = self.segments.segment_for(len);
        if number != self.open.number {
            self.attempt(|writer| writer.rotate_to(number));
        }
        // The sequence is used up, in this file or in the next one.
        self.open.lines.extend_from_slice(&line.text);
        self.open.end = line.head;
        self.segments.record_written(line.head, len, unix_ms());
        if let Some(gap) = &mut self.gap {
            gap.add_refused(line.head.sequence);
            return Err(CommitError::FailedDuringWrite);
        }
        let answer = self.commit.record_written(line.head.sequence, kind, now);
        Ok((line.head.sequence, answer))
    }

    /// Records the counts of events that were only counted.
    fn record_counts(&mut self, counts: impl FnOnce(&mut RepeatCounter) -> Vec<Event>) {
        if self.gap.is_none() {
            for event in counts(&mut self.repeats) {
                let _ = self.write(event, RecordKind::Call);
            }
        }
    }

    /// Syncs and closes the current file, and opens the next.
    fn rotate_to(&mut self, number: u64) -> io::Result<()> {
        self.flush()?;
        self.open.file.sync_data()?;
        let file = self.folder.append(number)?;
        self.open = OpenLogFile {
            number,
            file,
            lines: std::mem::take(&mut self.open.lines),
            bytes_written: 0,
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
        if open.bytes_written < open.lines.len() {
            open.file.write_all(&open.lines[open.bytes_written..])?;
            open.bytes_written = open.lines.len();
            self.queue.written.send_replace(open.end);
        }
        if self.open.lines.len() > LINES_MAX {
            self.sync_file()
        } else {
            Ok(())
        }
    }

    fn sync_when_due(&mut self) {
        if self.commit.begin_sync(monotonic_now()) {
            self.attempt(Self::sync);
        }
    }

    fn sync(&mut self) -> io::Result<()> {
        self.flush()?;
        self.sync_file()?;
        // The witness of the group, before anything in it is acknowledged.
        let last = self.open.last;
        self.head.write(last)?;
        for sequence in self.commit.finish_sync() {
            // An entry that nobody waits for has a number, but no sender to wake.
            if let Some((_, written)) = self.waiters.pop_front_if(|(next, _)| *next == sequence) {
                let _ = written.send(Ok(()));
            }
        }
        let now = monotonic_now();
        if now.duration_since(self.timers.head_synced) >= HEAD_SYNC {
            self.timers.head_synced = now;
            self.head.sync()?;
            self.check_heads(last)?;
        }
        Ok(())
    }

    /// Detects removal of the head files while the kernel runs.
    fn check_heads(&mut self, last: Head) -> io::Result<()> {
        while let Some(gone) = self.head.restore_missing(last)? {
            let why = format!("{} was removed while the kernel ran", gone.display());
            tracing::error!("the audit log is damaged: {why}");
            let details = json!({"head": why});
            let event = log_event(EventType::LOG_DAMAGED, Outcome::Failure, details);
            let _ = self.write(event, RecordKind::Call);
        }
        Ok(())
    }

    /// Syncs the file.
    fn sync_file(&mut self) -> io::Result<()> {
        let open = &mut self.open;
        let began = monotonic_now();
        open.file.sync_data()?;
        SYNCS.record(monotonic_now().duration_since(began));
        open.synced += open.bytes_written as u64;
        open.lines.drain(..open.bytes_written);
        open.bytes_written = 0;
        // Release the memory of an unusually large group.
        open.lines.shrink_to(1 << 20);
        open.last = open.end;
        Ok(())
    }

    /// Syncs everything, including the head.
    pub(super) fn sync_all(&mut self) -> io::Result<()> {
        self.flush()?;
        self.sync_file()?;
        self.head.write(self.open.last)?;
        self.head.sync_all()
    }

    /// Removes old files after recording that on disk.
    fn trim(&mut self) -> io::Result<()> {
        let now = monotonic_now();
        let is_trim_due =
            self.open.grown || now.duration_since(self.timers.trimmed) >= TRIM_INTERVAL;
        if !is_trim_due || !self.queue.is_verified() {
            return Ok(());
        }
        self.open.grown = false;
        self.timers.trimmed = now;
        let Some(trim) = self.segments.due_trim(unix_ms()) else {
            return Ok(());
        };
        self.record_counts(RepeatCounter::take_all);
        self.record_trim(&trim)?;
        for number in &trim.segments {
            fs::remove_file(self.folder.file_path(*number))?;
        }
        self.segments.apply_trim(&trim);
        self.folder.sync()
    }

    fn record_trim(&mut self, trim: &Trim) -> io::Result<()> {
        let details = Value::Object(trim.details());
        let event = log_event(EventType::LOG_TRIMMED, Outcome::Success, details);
        let broken = |_| io::Error::other("the log is broken");
        self.write(event, RecordKind::Call).map_err(broken)?;
        self.sync_all()
    }

    /// Logs how many events were dropped for lack of capacity.
    fn record_dropped(&mut self, dropped: u64) {
        if dropped == 0 {
            return;
        }
        tracing::error!(dropped, "events found no room in the audit log");
        if let Some(gap) = &mut self.gap {
            return gap.add_lost(dropped);
        }
        let details = json!({"not_written": dropped});
        let event = log_event(EventType::LOG_DAMAGED, Outcome::Failure, details);
        let _ = self.write(event, RecordKind::Call);
    }

    /// Runs a disk operation. After a failure nothing more is written to this file, because a retry may report
    /// success for lost bytes; the log continues in a new file.
    pub(super) fn attempt(&mut self, what: impl FnOnce(&mut Self) -> io::Result<()>) {
        if self.gap.is_some() {
            return;
        }
        if let Err(error) = what(self) {
            let why = explain_io_error(self.folder.folder(), &error);
            tracing::error!(%why, "the audit log cannot be written; calls and decisions are refused until it can");
            self.queue.fail(&why);
            let _ = self.commit.fail_sync();
            let mut gap = LogGap::new(why);
            for (sequence, written) in self.waiters.drain(..) {
                gap.add_refused(sequence);
                let _ = written.send(Err(CommitError::FailedDuringWrite.into()));
            }
            self.gap = Some(gap);
        }
    }
}

/// An event about the log itself.
pub(super) fn log_event(event_type: EventType, result: Outcome, details: Value) -> Event {
    new_event(
        event_type,
        kernel_actor(),
        Target::default(),
        &TraceId::from_random(randomness::random_bytes()),
        result,
        details,
    )
}
