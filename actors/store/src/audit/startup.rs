//! Opens the log at startup: a torn end is truncated; other damage is reported, recorded and left in
//! place.

use std::collections::VecDeque;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::sync::Arc;

use mgp_engine::store::audit::chain::{Chain, Head};
use mgp_engine::store::audit::commit::{CallAuditing, CommitScheduler};
use mgp_engine::store::audit::reader::LogReader;
use mgp_engine::store::audit::redact::Redaction;
use mgp_engine::store::audit::repeats::RepeatCounter;
use mgp_engine::store::audit::segments::{Retention, Segment, Segments};
use mgp_engine::store::audit::verify::{LogFault, Repair, Report, Verifier};
use mgp_protocol::mgp::audit::{EventType, Outcome};
use mgp_sync::Snapshot;
use serde_json::json;

use super::AuditHandle;
use super::files::LogFolder;
use super::head::HeadFiles;
use super::queue::LogQueue;
use super::verification::known_head;
use super::writer::{OpenLogFile, Timers, Writer, log_event};
use crate::health::explain_io_error;
use crate::regular_file;
use mgp_runtime::task::{self, SpawnThreadError};
use mgp_runtime::time::{monotonic_now, unix_ms};

/// Maximum number of faults that are recorded individually; further ones are only counted.
const NAMED_MAX: usize = 16;

/// Explains what a missing end of the previous run means for its calls.
const UNCLEAN_END: &str =
    "the kernel before did not close the log: calls that were under way have no record";

/// `[audit]` of the settings, and the other inputs of a log.
pub struct LogOptions {
    /// The folder of the log.
    pub folder: LogFolder,
    /// When records of calls are synced.
    pub calls: CallAuditing,
    /// How much of the log is retained.
    pub retention: Retention,
    /// Daily limit of record bytes per agent or server, beyond which actions are only counted; 0 for
    /// no limit.
    pub per_day: u64,
    /// Masks secrets.
    pub redaction: Redaction,
}

/// The state found at startup.
struct DetectedLogState {
    segments: Vec<Segment>,
    head: Head,
    /// Description of damage at the end of the log.
    faults: Vec<LogFault>,
    /// Faults of the files beside the log.
    file_faults: Vec<String>,
    /// Whether the last file is damaged and left in place.
    leave_last_file: bool,
}

/// Why the log cannot be opened.
#[derive(Debug, thiserror::Error)]
enum LogOpenError {
    #[error(transparent)]
    Disk(#[from] io::Error),
    #[error(transparent)]
    Thread(#[from] SpawnThreadError),
}

impl LogOptions {
    /// Opens the log. Damage of its last file is repaired or reported before this returns; the earlier
    /// files are verified in the background.
    ///
    /// A description of why the log cannot be opened; the kernel does not start without it.
    /// Why there can be no log, in words. The kernel does not start without it.
    pub fn open(self) -> Result<AuditHandle, String> {
        let place = self.folder.file_path(0);
        self.start().map_err(|failed| match failed {
            LogOpenError::Disk(e) => {
                let folder = place.parent().unwrap_or(&place);
                format!(
                    "the audit log cannot be opened: {}",
                    explain_io_error(folder, &e)
                )
            }
            LogOpenError::Thread(e) => e.to_string(),
        })
    }

    fn start(self) -> Result<AuditHandle, LogOpenError> {
        self.folder.create()?;
        let found = self.inspect()?;
        let interrupted = !self.folder.take_closed_mark(found.head)? && found.head.sequence > 0;
        let files: Vec<(u64, u64)> = found.segments.iter().map(|s| (s.number, s.bytes)).collect();
        let mut segments = found.segments;
        if found.leave_last_file {
            segments.push(Segment {
                number: segments.last().map_or(1, |s| s.number + 1),
                last: found.head,
                bytes: 0,
                newest_ms: unix_ms(),
            });
        }
        let number = segments.last().map_or(1, |s| s.number);
        // Done before the first file is created: a file that is missing beside it later was removed.
        let head = HeadFiles::open(&self.folder)?;
        let queue = LogQueue::new(
            self.calls == CallAuditing::BeforeReply,
            self.redaction.argument_recorder().clone(),
            self.folder.clone(),
            found.head,
        );
        let masks = Arc::new(Snapshot::new(self.redaction.masks().clone()));
        let handle = AuditHandle {
            queue: Some(queue.clone()),
            masks: masks.clone(),
        };
        let writer = Writer {
            open: OpenLogFile {
                number,
                file: self.folder.append(number)?,
                lines: Vec::new(),
                bytes_written: 0,
                synced: segments.last().map_or(0, |s| s.bytes),
                last: found.head,
                end: found.head,
                grown: true,
            },
            head,
            folder: self.folder.clone(),
            queue: queue.clone(),
            chain: Chain::new(found.head),
            segments: Segments::new(self.retention, segments),
            commit: CommitScheduler::new(self.calls, found.head.sequence),
            masks,
            redaction: self.redaction,
            repeats: RepeatCounter::new(self.per_day),
            waiters: VecDeque::new(),
            gap: None,
            timers: Timers {
                head_synced: monotonic_now(),
                trimmed: monotonic_now(),
            },
        };
        for why in found.file_faults {
            report_damage(&handle, &json!({"head": why}), &why);
        }
        report_faults(&handle, &found.faults);
        if interrupted {
            let details = json!({"after": found.head.sequence, "reason": UNCLEAN_END});
            handle.record(log_event(
                EventType::LOG_INTERRUPTED,
                Outcome::Failure,
                details,
            ));
        }
        task::spawn_thread("audit", move || writer.run())?;
        if files.len() < 2 {
            queue.mark_verified();
            return Ok(handle);
        }
        let (folder, head, known, answer) = (self.folder, found.head, found.faults, handle.clone());
        let verify = move || verify_in_background(&folder, head, &known, &files, &answer, &queue);
        task::spawn_thread("audit-examine", verify)?;
        Ok(handle)
    }

    fn inspect(&self) -> io::Result<DetectedLogState> {
        let folder = &self.folder;
        let numbers = folder.numbers()?;
        let (known, file_faults) = known_head(folder)?;
        let mut segments: Vec<Segment> = Vec::with_capacity(numbers.len());
        for number in &numbers {
            let file = fs::metadata(folder.file_path(*number))?;
            let before = segments.last().map_or(Head::START, |s| s.last);
            segments.push(Segment {
                number: *number,
                // Damage that this hides is found when the whole file is verified.
                last: folder.last_record(*number)?.unwrap_or(before),
                bytes: file.len(),
                newest_ms: file.modified().map_or(0, mgp_runtime::time::to_unix_ms),
            });
        }
        let report = self.verify_end(&segments, known)?;
        let repair = report.required_repair();
        let anchor = segments.iter().rev().nth(1).map_or(Head::START, |s| s.last);
        // Sequences are never reused, even if their record was lost.
        let heads = [report.head, anchor, known.unwrap_or(Head::START)];
        let head = heads.into_iter().max_by_key(|h| h.sequence);
        let head = head.unwrap_or(Head::START);
        let leave = self.repair(&mut segments, repair)?;
        if let Some(last) = segments.last_mut() {
            last.last = head;
        }
        Ok(DetectedLogState {
            segments,
            head,
            faults: report.faults,
            file_faults,
            leave_last_file: leave,
        })
    }

    /// Verifies the last file, against the end of the previous one and against the head.
    fn verify_end(&self, segments: &[Segment], known: Option<Head>) -> io::Result<Report> {
        let mut verifier = match segments {
            [.., before, _] => Verifier::from_anchor(before.last, known),
            [_] | [] => Verifier::new(known),
        };
        if let Some(last) = segments.last() {
            let bytes = regular_file::read(&self.folder.file_path(last.number))?;
            LogReader::new(&bytes).for_each(|item| verifier.add_item(last.number, &item));
        }
        Ok(verifier.finish())
    }

    /// Repairs the last file if that is allowed. True if it must be left in place and the log continues
    /// in a new file.
    fn repair(&self, segments: &mut [Segment], repair: Repair) -> io::Result<bool> {
        let Some(last) = segments.last_mut() else {
            return Ok(false);
        };
        let path = self.folder.file_path(last.number);
        match repair {
            Repair::Nothing => Ok(false),
            Repair::Stop(_) => Ok(true),
            Repair::Truncate(place) => {
                let file = File::options().write(true).open(path)?;
                file.set_len(place.offset)?;
                last.bytes = place.offset;
                file.sync_all().map(|()| false)
            }
            Repair::Terminate(_) => {
                let mut file = OpenOptions::new().append(true).open(path)?;
                file.write_all(b"\n")?;
                last.bytes += 1;
                file.sync_all().map(|()| false)
            }
        }
    }
}

/// Verifies the whole log as of startup, and reports new faults.
fn verify_in_background(
    folder: &LogFolder,
    head: Head,
    known: &[LogFault],
    files: &[(u64, u64)],
    audit: &AuditHandle,
    queue: &Arc<LogQueue>,
) {
    // If the end is damaged, its faults were found with the head known at that time.
    let expected = known.is_empty().then_some(head);
    match folder.verify(expected, Some(files)) {
        Ok(report) => {
            let new: Vec<LogFault> = report
                .faults
                .into_iter()
                .filter(|f| !known.contains(f))
                .collect();
            report_faults(audit, &new);
        }
        Err(error) => {
            let why = format!("the log could not be looked at: {error}");
            report_damage(audit, &json!({"error": why}), &why);
        }
    }
    queue.mark_verified();
}

/// Reports damage in the kernel's own log and in the audit log.
fn report_faults(audit: &AuditHandle, faults: &[LogFault]) {
    if faults.is_empty() {
        return;
    }
    for fault in faults.iter().take(NAMED_MAX) {
        tracing::error!("the audit log is damaged: {fault}");
    }
    let named: Vec<_> = faults
        .iter()
        .take(NAMED_MAX)
        .map(LogFault::to_json)
        .collect();
    let details = json!({"found": faults.len(), "faults": named});
    audit.record(log_event(EventType::LOG_DAMAGED, Outcome::Failure, details));
}

fn report_damage(audit: &AuditHandle, details: &serde_json::Value, why: &str) {
    tracing::error!("the audit log is damaged: {why}");
    audit.record(log_event(
        EventType::LOG_DAMAGED,
        Outcome::Failure,
        details.clone(),
    ));
}
