//! Opens the log at the kernel's start: a torn end is cut off, any other damage is reported, recorded and
//! left in place.

use std::collections::VecDeque;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::sync::Arc;

use mgp_engine::store::audit::chain::{Chain, Head};
use mgp_engine::store::audit::commit::{CallAuditing, Commit};
use mgp_engine::store::audit::reader::LogReader;
use mgp_engine::store::audit::redact::Redaction;
use mgp_engine::store::audit::repeats::Repeats;
use mgp_engine::store::audit::segments::{Retention, Segment, Segments};
use mgp_engine::store::audit::verify::{LogFault, Repair, Report, Verifier};
use mgp_protocol::mgp::audit::{EventType, Outcome};
use mgp_sync::snapshot::Snapshot;
use serde_json::json;

use super::AuditHandle;
use super::examine::known;
use super::files::Folder;
use super::head::Heads;
use super::queue::LogQueue;
use super::writer::{OpenLogFile, Timers, Writer, own};
use crate::regular_file;
use crate::trouble::explained;
use mgp_runtime::task::{self, NoThread};
use mgp_runtime::time::{moment, unix_ms};

/// Faults that are recorded one by one; of further ones only the number is recorded.
const NAMED_MAX: usize = 16;

/// What a missing end of the kernel before means for its calls.
const INTERRUPTED: &str =
    "the kernel before did not close the log: calls that were under way have no record";

/// `[audit]` of the settings, and what else a log needs.
pub struct LogOptions {
    /// Where it is.
    pub folder: Folder,
    /// When records of calls are synced.
    pub calls: CallAuditing,
    /// How much is kept.
    pub retention: Retention,
    /// Bytes of records of one agent or one server a day, beyond which its actions are only counted; 0 for
    /// no limit.
    pub per_day: u64,
    /// Masks secrets.
    pub redaction: Redaction,
}

/// The result.
struct LogAsFound {
    segments: Vec<Segment>,
    head: Head,
    /// What is, or was, wrong with the end of the log.
    faults: Vec<LogFault>,
    /// What is wrong with the files beside the log.
    beside: Vec<String>,
    /// The last file is damaged and left in place.
    leave: bool,
}

/// Why there is no log.
#[derive(Debug, thiserror::Error)]
enum UnopenedLog {
    #[error(transparent)]
    Disk(#[from] io::Error),
    #[error(transparent)]
    Thread(#[from] NoThread),
}

impl LogOptions {
    /// Opens the log. Damage of its last file is repaired or reported before this returns; the earlier
    /// files are verified in the background.
    ///
    /// # Errors
    /// Why there can be no log, in words. The kernel does not start without it.
    pub fn open(self) -> Result<AuditHandle, String> {
        let place = self.folder.path(0);
        self.start().map_err(|failed| match failed {
            UnopenedLog::Disk(e) => {
                let folder = place.parent().unwrap_or(&place);
                format!("the audit log cannot be opened: {}", explained(folder, &e))
            }
            UnopenedLog::Thread(e) => e.to_string(),
        })
    }

    fn start(self) -> Result<AuditHandle, UnopenedLog> {
        self.folder.make()?;
        let found = self.find()?;
        let interrupted = !self.folder.was_closed(found.head)? && found.head.sequence > 0;
        let files: Vec<(u64, u64)> = found.segments.iter().map(|s| (s.number, s.bytes)).collect();
        let mut segments = found.segments;
        if found.leave {
            segments.push(Segment {
                number: segments.last().map_or(1, |s| s.number + 1),
                last: found.head,
                bytes: 0,
                newest_ms: unix_ms(),
            });
        }
        let number = segments.last().map_or(1, |s| s.number);
        // Before the first file is made: a file that is then missing beside it was removed.
        let head = Heads::open(&self.folder)?;
        let ledger = LogQueue::new(
            self.calls == CallAuditing::BeforeReply,
            self.redaction.keeping().clone(),
            self.folder.clone(),
            found.head,
        );
        let masks = Arc::new(Snapshot::new(self.redaction.masks().clone()));
        let handle = AuditHandle {
            ledger: Some(ledger.clone()),
            masks: masks.clone(),
        };
        let writer = Writer {
            open: OpenLogFile {
                number,
                file: self.folder.append(number)?,
                lines: Vec::new(),
                written: 0,
                synced: segments.last().map_or(0, |s| s.bytes),
                last: found.head,
                end: found.head,
                grown: true,
            },
            head,
            folder: self.folder.clone(),
            ledger: ledger.clone(),
            chain: Chain::new(found.head),
            segments: Segments::new(self.retention, segments),
            commit: Commit::new(self.calls, found.head.sequence),
            masks,
            redaction: self.redaction,
            repeats: Repeats::new(self.per_day),
            waiting: VecDeque::new(),
            gap: None,
            timers: Timers {
                head_synced: moment(),
                trimmed: moment(),
            },
        };
        for why in found.beside {
            tell(&handle, &json!({"head": why}), &why);
        }
        name(&handle, &found.faults);
        if interrupted {
            let details = json!({"after": found.head.sequence, "reason": INTERRUPTED});
            handle.tell(own(EventType::LOG_INTERRUPTED, Outcome::Failure, details));
        }
        task::thread("audit", move || writer.run())?;
        if files.len() < 2 {
            ledger.examined();
            return Ok(handle);
        }
        let (folder, head, known, answer) = (self.folder, found.head, found.faults, handle.clone());
        let examine = move || examine(&folder, head, &known, &files, &answer, &ledger);
        task::thread("audit-examine", examine)?;
        Ok(handle)
    }

    fn find(&self) -> io::Result<LogAsFound> {
        let folder = &self.folder;
        let numbers = folder.numbers()?;
        let (known, beside) = known(folder)?;
        let mut segments: Vec<Segment> = Vec::with_capacity(numbers.len());
        for number in &numbers {
            let file = fs::metadata(folder.path(*number))?;
            let before = segments.last().map_or(Head::START, |s| s.last);
            segments.push(Segment {
                number: *number,
                // What this hides is found when the whole file is verified.
                last: folder.last(*number)?.unwrap_or(before),
                bytes: file.len(),
                newest_ms: file.modified().map_or(0, mgp_runtime::time::unix_ms_of),
            });
        }
        let report = self.look_at_the_end(&segments, known)?;
        let repair = report.repair();
        let anchor = segments.iter().rev().nth(1).map_or(Head::START, |s| s.last);
        // A number is given once, even if its record was lost.
        let heads = [report.head, anchor, known.unwrap_or(Head::START)];
        let head = heads.into_iter().max_by_key(|h| h.sequence);
        let head = head.unwrap_or(Head::START);
        let leave = self.mend(&mut segments, repair)?;
        if let Some(last) = segments.last_mut() {
            last.last = head;
        }
        Ok(LogAsFound {
            segments,
            head,
            faults: report.faults,
            beside,
            leave,
        })
    }

    /// Verifies the last file, against the end of the previous one and against the head.
    fn look_at_the_end(&self, segments: &[Segment], known: Option<Head>) -> io::Result<Report> {
        let mut verifier = match segments {
            [.., before, _] => Verifier::after(before.last, known),
            [_] | [] => Verifier::new(known),
        };
        if let Some(last) = segments.last() {
            let bytes = regular_file::read(&self.folder.path(last.number))?;
            LogReader::new(&bytes).for_each(|item| verifier.take(last.number, &item));
        }
        Ok(verifier.finish())
    }

    /// Repairs the last file if that is allowed. True when it must be left in place and the log continues
    /// in a new file.
    fn mend(&self, segments: &mut [Segment], repair: Repair) -> io::Result<bool> {
        let Some(last) = segments.last_mut() else {
            return Ok(false);
        };
        let path = self.folder.path(last.number);
        match repair {
            Repair::Nothing => Ok(false),
            Repair::Stop(_) => Ok(true),
            Repair::Cut(place) => {
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

/// Verifies the whole log as it was at the start, and reports faults that were not reported yet.
fn examine(
    folder: &Folder,
    head: Head,
    known: &[LogFault],
    files: &[(u64, u64)],
    audit: &AuditHandle,
    ledger: &Arc<LogQueue>,
) {
    // Where the end is damaged, its faults were found with what was known then.
    let expected = known.is_empty().then_some(head);
    match folder.verify(expected, Some(files)) {
        Ok(report) => {
            let new: Vec<LogFault> = report
                .faults
                .into_iter()
                .filter(|f| !known.contains(f))
                .collect();
            name(audit, &new);
        }
        Err(error) => {
            let why = format!("the log could not be looked at: {error}");
            tell(audit, &json!({"error": why}), &why);
        }
    }
    ledger.examined();
}

/// Reports damage in the kernel's own log and in this one.
fn name(audit: &AuditHandle, faults: &[LogFault]) {
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
    audit.tell(own(EventType::LOG_DAMAGED, Outcome::Failure, details));
}

fn tell(audit: &AuditHandle, details: &serde_json::Value, why: &str) {
    tracing::error!("the audit log is damaged: {why}");
    audit.tell(own(
        EventType::LOG_DAMAGED,
        Outcome::Failure,
        details.clone(),
    ));
}
