//! `mgp/audit/replay` (MGP §6.3): events that an audit server missed, read from the files.

use std::io;

use mgp_protocol::mgp::Audit;
use mgp_protocol::mgp::audit::{Replay, Replayed};
use mgp_protocol::refusal::Refusal;
use serde_json::value::RawValue;

use super::AuditHandle;
use super::tail::Tail;

/// Maximum number of events in one answer of `mgp/audit/replay`; also the default.
const REPLAY_MAX: u64 = 1_000;
const REPLAY: u64 = 100;
/// Maximum bytes of events in one answer, so that a peer can read it in one message. The first event is included
/// whatever its size.
const REPLAY_BYTES: usize = 1 << 20;

impl AuditHandle {
    /// `mgp/audit/replay`: the events after a given one.
    ///
    /// # Errors
    /// When no log is written or it cannot be read.
    pub async fn replay(&self, asked: &Replay) -> Result<Replayed, Refusal> {
        let Some(queue) = &self.queue else {
            return Err(Refusal::BadRequest("no audit log is kept".into()));
        };
        let (end, folder) = (queue.written.borrow().sequence, queue.folder.clone());
        let limit = asked.limit.unwrap_or(REPLAY).min(REPLAY_MAX);
        let max_events = usize::try_from(limit).unwrap_or(usize::MAX);
        let since = asked.since_seq.unwrap_or(0).min(end);
        let moment = asked
            .since_timestamp
            .clone()
            .filter(|_| asked.since_seq.is_none());
        let read = run_blocking(move || {
            let mut tail = Tail::open_after(folder, since)?;
            let mut out = Vec::new();
            loop {
                let events = tail.next(max_events.max(1))?;
                let done = events.is_empty();
                out.extend(events.into_iter().filter(|(_, event)| {
                    moment
                        .as_deref()
                        .is_none_or(|moment| is_later(event, moment))
                }));
                if done || out.len() > max_events || moment.is_none() {
                    return Ok(out);
                }
            }
        });
        let mut events = read
            .await
            .map_err(|e| Refusal::Internal(format!("the audit log: {e}")))?;
        events.truncate(max_events);
        let mut bytes = 0;
        let mut fits = |(_, event): &(u64, String)| {
            bytes += event.len();
            bytes <= REPLAY_BYTES
        };
        let count = events.iter().take_while(|event| fits(event)).count();
        events.truncate(count.max(1));
        let next_seq = events.last().map_or(since, |(seq, _)| *seq);
        let numbered = events
            .iter()
            .filter_map(|(seq, event)| with_sequence(*seq, event));
        Ok(Replayed {
            events: numbered
                .filter_map(|params| RawValue::from_string(params).ok())
                .collect(),
            has_more: next_seq < end,
            next_seq,
        })
    }
}

/// Whether an event is later than a time. Both are texts in the same format, so they compare as texts.
fn is_later(event: &str, moment: &str) -> bool {
    mgp_json::member(event, "timestamp").is_some_and(|at| at.trim_matches('"') > moment)
}

pub(crate) fn with_sequence(seq: u64, event: &str) -> Option<String> {
    let event: &RawValue = serde_json::from_str(event).ok()?;
    Some(Audit { seq, event }.params())
}

pub(super) async fn run_blocking<T: Send + 'static>(
    read: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    let done = mgp_runtime::task::run_blocking("audit.replay", read).await;
    done.unwrap_or_else(|e| Err(io::Error::other(e)))
}
