//! What the log says of one call, read from the files.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, BufRead, BufReader, ErrorKind, Read};
use std::time::Duration;

use mgp_engine::calls::outcome::{FoundCalls, recorded};
use mgp_engine::store::audit::record::{AuditRecord, EVENT_MAX};
use mgp_protocol::mgp::audit::{Event, EventType, TraceId};
use mgp_protocol::mgp::calls::CallRecord;
use mgp_protocol::refusal::Refusal;
use mgp_protocol::splice::mention::may_mention;

use super::AuditHandle;
use super::examine::none_kept;
use super::files::Folder;
use super::replay::read;

/// Most records of one id that are told, the newest.
const RECORDS_MAX: usize = 100;
/// How long the record of a call that has just ended is waited for. A disk takes its time.
const PATIENCE: Duration = Duration::from_secs(2);
/// Bytes read at once.
const CHUNK: usize = 256 << 10;
/// Longer than any line.
const LINE_MAX: u64 = 2 * EVENT_MAX as u64;

impl AuditHandle {
    /// What the log says of the calls with this id: of all, or of those of this agent. All of the log is
    /// read, so that it takes as long whether there is one or not, and one at a time.
    ///
    /// # Errors
    /// When no log is kept or it cannot be read.
    pub async fn calls_of(
        &self,
        call: &TraceId,
        whose: Option<String>,
    ) -> Result<FoundCalls, Refusal> {
        let ledger = self.ledger.as_ref().ok_or_else(none_kept)?;
        let _one = ledger.readers.acquire().await;
        let _ = tokio::time::timeout(PATIENCE, ledger.flushed()).await;
        let (folder, call) = (ledger.folder.clone(), call.clone());
        let found = read(move || look(&folder, &call, whose.as_deref())).await;
        let found = found.map_err(|e| Refusal::Broken(format!("the audit log: {e}")))?;
        Ok(FoundCalls {
            before_reply: ledger.calls_wait,
            ..found
        })
    }
}

fn look(folder: &Folder, call: &TraceId, whose: Option<&str>) -> io::Result<FoundCalls> {
    let mut found = FoundCalls::default();
    let mut records = VecDeque::new();
    for number in folder.numbers()? {
        let file = match File::open(folder.path(number)) {
            // Trimmed meanwhile.
            Err(e) if e.kind() == ErrorKind::NotFound => continue,
            file => file?,
        };
        each_line(file, |line| {
            let said = |text| may_mention(line, text);
            if found.oldest.is_some()
                && !said(call.as_str())
                && !said(EventType::LOG_INTERRUPTED.as_str())
            {
                return;
            }
            let Some((seq, event)) = event(line) else {
                return;
            };
            found.oldest.get_or_insert_with(|| event.timestamp.clone());
            if event.event_type == EventType::LOG_INTERRUPTED {
                found.interrupted = Some(event.timestamp);
            } else if event.trace_id == *call && whose.is_none_or(|agent| event.actor.id == agent) {
                keep(&mut records, recorded(seq, event));
            }
        })?;
    }
    found.records = records.into();
    Ok(found)
}

fn keep(records: &mut VecDeque<CallRecord>, record: Option<CallRecord>) {
    records.extend(record);
    if records.len() > RECORDS_MAX {
        records.pop_front();
    }
}

fn event(line: &[u8]) -> Option<(u64, Event)> {
    let record = AuditRecord::parse(line.strip_suffix(b"\n")?)?;
    Some((record.sequence, serde_json::from_str(record.event).ok()?))
}

fn each_line(file: File, mut on: impl FnMut(&[u8])) -> io::Result<()> {
    let mut reader = BufReader::with_capacity(CHUNK, file);
    let mut line = Vec::new();
    loop {
        line.clear();
        if (&mut reader).take(LINE_MAX).read_until(b'\n', &mut line)? == 0 {
            return Ok(());
        }
        on(&line);
    }
}
