//! Finds the records of one call in the log files.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, BufRead, BufReader, ErrorKind, Read};
use std::time::Duration;

use mgp_engine::calls::outcome::{CallLookup, parse_call_record};
use mgp_engine::store::audit::record::{AuditRecord, EVENT_MAX};
use mgp_json::can_contain_string;
use mgp_protocol::mgp::audit::{Event, EventType, TraceId};
use mgp_protocol::mgp::calls::CallRecord;
use mgp_protocol::refusal::Refusal;

use super::AuditHandle;
use super::files::LogFolder;
use super::replay::run_blocking;
use super::verification::log_disabled;

/// Maximum number of records returned for one id; the newest are kept.
const RECORDS_MAX: usize = 100;
/// How long to wait for the record of a call that has just ended.
const RECORD_TIMEOUT: Duration = Duration::from_secs(2);
/// The read buffer size in bytes.
const CHUNK: usize = 256 << 10;
/// Exceeds the maximum line length.
const LINE_MAX: u64 = 2 * EVENT_MAX as u64;

impl AuditHandle {
    /// The log's records of the calls with this id: of all agents, or of one agent. Always reads the whole log, so that
    /// the duration does not disclose a match; one query at a time.
    ///
    /// # Errors
    /// When no log is written or it cannot be read.
    pub async fn find_calls(
        &self,
        call: &TraceId,
        agent_filter: Option<String>,
    ) -> Result<CallLookup, Refusal> {
        let queue = self.queue.as_ref().ok_or_else(log_disabled)?;
        let _permit = queue.readers.acquire().await;
        let _ = tokio::time::timeout(RECORD_TIMEOUT, queue.flush()).await;
        let (folder, call) = (queue.folder.clone(), call.clone());
        let found = run_blocking(move || search_log(&folder, &call, agent_filter.as_deref())).await;
        let found = found.map_err(|e| Refusal::Internal(format!("the audit log: {e}")))?;
        Ok(CallLookup {
            logged_before_reply: queue.calls_wait,
            ..found
        })
    }
}

fn search_log(
    folder: &LogFolder,
    call: &TraceId,
    agent_filter: Option<&str>,
) -> io::Result<CallLookup> {
    let mut found = CallLookup::default();
    let mut records = VecDeque::new();
    for number in folder.numbers()? {
        let file = match File::open(folder.file_path(number)) {
            // The file was trimmed meanwhile.
            Err(e) if e.kind() == ErrorKind::NotFound => continue,
            file => file?,
        };
        for_each_line(file, |line| {
            let contains_text = |text| can_contain_string(line, text);
            if found.log_start.is_some()
                && !contains_text(call.as_str())
                && !contains_text(EventType::LOG_INTERRUPTED.as_str())
            {
                return;
            }
            let Some((seq, event)) = parse_event(line) else {
                return;
            };
            found
                .log_start
                .get_or_insert_with(|| event.timestamp.clone());
            if event.event_type == EventType::LOG_INTERRUPTED {
                found.interrupted_at = Some(event.timestamp);
            } else if event.trace_id == *call
                && agent_filter.is_none_or(|agent| event.actor.id == agent)
            {
                push_bounded(&mut records, parse_call_record(seq, event));
            }
        })?;
    }
    found.records = records.into();
    Ok(found)
}

fn push_bounded(records: &mut VecDeque<CallRecord>, record: Option<CallRecord>) {
    records.extend(record);
    if records.len() > RECORDS_MAX {
        records.pop_front();
    }
}

fn parse_event(line: &[u8]) -> Option<(u64, Event)> {
    let record = AuditRecord::parse(line.strip_suffix(b"\n")?)?;
    Some((record.sequence, serde_json::from_str(record.event).ok()?))
}

fn for_each_line(file: File, mut on: impl FnMut(&[u8])) -> io::Result<()> {
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
