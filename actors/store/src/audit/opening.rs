//! The log at the kernel's start: a torn end is cut, any other damage is named, written down and left as
//! it is.

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
use serde_json::json;

use super::AuditHandle;
use super::examine::known;
use super::files::Folder;
use super::head::Heads;
use super::queue::LogQueue;
use super::writer::{OpenLogFile, Timers, Writer, own};
use crate::trouble::explained;
use mgp_runtime::time::{moment, unix_ms};

/// Faults that are written down one by one; of more, only how many.
const NAMED_MAX: usize = 16;

/// `[audit]` of the settings, and what else a log needs.
pub struct LogOptions {
    /// Where it is.
    pub folder: Folder,
    /// When records of calls are on disk.
    pub calls: CallAuditing,
    /// How much is kept.
    pub retention: Retention,
    /// Bytes one agent or one server may fill in a day before what it does is only counted; 0 for any
    /// number.
    pub per_day: u64,
    /// What keeps secrets out.
    pub redaction: Redaction,
}

/// What was found.
struct LogAsFound {
    segments: Vec<Segment>,
    head: Head,
    /// What is wrong with the end of the log, or was.
    faults: Vec<LogFault>,
    /// What is wrong with what stands beside the log.
    beside: Vec<String>,
    /// The last file is left as it is.
    leave: bool,
}

impl LogOptions {
    /// Opens the log. What is broken in its last file is mended or named before this returns; the
    /// files before it are looked at meanwhile.
    ///
    /// # Errors
    /// In words, why there can be no log: then there can be no kernel.
    pub fn open(self) -> Result<AuditHandle, String> {
        let place = self.folder.path(0);
        let explain = |e: io::Error| {
            let folder = place.parent().unwrap_or(&place);
            format!("the audit log cannot be opened: {}", explained(folder, &e))
        };
        self.start().map_err(explain)
    }

    fn start(self) -> io::Result<AuditHandle> {
        self.folder.make()?;
        let found = self.find()?;
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
        // Before the first file: what is missing beside one was removed.
        let head = Heads::open(&self.folder)?;
        let ledger = LogQueue::new(
            self.calls == CallAuditing::BeforeReply,
            self.redaction.keeping().clone(),
            self.folder.clone(),
            found.head,
        );
        let handle = AuditHandle(Some(ledger.clone()));
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
        spawn("audit", move || writer.run())?;
        if files.len() < 2 {
            ledger.examined();
            return Ok(handle);
        }
        let (folder, head, known, answer) = (self.folder, found.head, found.faults, handle.clone());
        let examine = move || examine(&folder, head, &known, &files, &answer, &ledger);
        spawn("audit-examine", examine)?;
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
                // What hides it is found when the whole file is looked at.
                last: folder.last(*number)?.unwrap_or(before),
                bytes: file.len(),
                newest_ms: file.modified().map_or(0, mgp_runtime::time::unix_ms_of),
            });
        }
        let report = self.look_at_the_end(&segments, known)?;
        let repair = report.repair();
        let anchor = segments.iter().rev().nth(1).map_or(Head::START, |s| s.last);
        // Numbers are given once, whatever became of their records.
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

    /// The last file, held against the end of the one before and against what is known from elsewhere.
    fn look_at_the_end(&self, segments: &[Segment], known: Option<Head>) -> io::Result<Report> {
        let mut verifier = match segments {
            [.., before, _] => Verifier::after(before.last, known),
            [_] | [] => Verifier::new(known),
        };
        if let Some(last) = segments.last() {
            let bytes = fs::read(self.folder.path(last.number))?;
            LogReader::new(&bytes).for_each(|item| verifier.take(last.number, &item));
        }
        Ok(verifier.finish())
    }

    /// Does what may be done to the last file. True when it is to be left as it is, and the log goes on
    /// in another one.
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

fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> io::Result<()> {
    let thread = std::thread::Builder::new().name(name.into());
    thread.spawn(run).map(drop)
}

/// Looks at the whole log as it was at the start, and names what was not yet named.
fn examine(
    folder: &Folder,
    head: Head,
    known: &[LogFault],
    files: &[(u64, u64)],
    audit: &AuditHandle,
    ledger: &Arc<LogQueue>,
) {
    // Where the end is damaged, its own faults were found with what was known then.
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

/// Writes damage down, in the log of the kernel and in this one.
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
