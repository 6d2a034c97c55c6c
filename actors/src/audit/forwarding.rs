//! Events go on to servers that keep audit logs of their own (MGP §6.3): from the files, so that they are
//! written before they are told, and a slow server is behind instead of in the way.

use std::fs;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use mgp_protocol::dialect::Era;
use mgp_protocol::mcp::Method;
use mgp_protocol::mgp::Audit;
use mgp_protocol::mgp::audit::{Replay, Replayed};
use mgp_protocol::mgp::negotiation::Features;
use mgp_protocol::refusal::Refusal;
use serde_json::value::RawValue;

use super::AuditHandle;
use super::files::Folder;
use super::queue::Ledger;
use super::tail::Tail;
use crate::link::Link;

/// Told at once; then the server must have read them before it is told more.
const BATCH: usize = 256;
/// Events are gathered for this long, so that the server is not asked after each of them.
const GATHER: Duration = Duration::from_millis(20);
/// Events in one answer of `mgp/audit/replay`, and where nobody says how many.
const REPLAY_MAX: u64 = 1_000;
const REPLAY: u64 = 100;
/// Bytes of events in one answer: what a peer can read in one message. The first is in it whatever its size.
const REPLAY_BYTES: usize = 1 << 20;

impl AuditHandle {
    /// Tells a server every event from where it was told last, for as long as its connection stands.
    /// Nothing when it did not negotiate `audit`.
    pub fn forward(&self, link: &Arc<Link>) {
        let wants = link.mgp().features().contains(Features::AUDIT);
        if let (true, Some(ledger)) = (wants, &self.0) {
            let (ledger, link) = (ledger.clone(), link.clone());
            tokio::spawn(async move {
                let told = tokio::select! {
                    told = forwarded(&ledger, &link) => told,
                    () = link.over() => return,
                };
                if let Err(error) = told {
                    link.log.note(&format!("audit: {error}"));
                }
            });
        }
    }

    /// `mgp/audit/replay`: events after one.
    ///
    /// # Errors
    /// When no log is kept or it cannot be read.
    pub async fn replay(&self, asked: &Replay) -> Result<Replayed, Refusal> {
        let Some(ledger) = &self.0 else {
            return Err(Refusal::BadRequest("no audit log is kept".into()));
        };
        let (end, folder) = (ledger.written.borrow().sequence, ledger.folder.clone());
        let limit = asked.limit.unwrap_or(REPLAY).min(REPLAY_MAX);
        let most = usize::try_from(limit).unwrap_or(usize::MAX);
        let since = asked.since_seq.unwrap_or(0).min(end);
        let moment = asked
            .since_timestamp
            .clone()
            .filter(|_| asked.since_seq.is_none());
        let read = read(move || {
            let mut tail = Tail::after(folder, since)?;
            let mut out = Vec::new();
            loop {
                let events = tail.next(most.max(1))?;
                let done = events.is_empty();
                out.extend(events.into_iter().filter(|(_, event)| {
                    moment.as_deref().is_none_or(|moment| later(event, moment))
                }));
                if done || out.len() > most || moment.is_none() {
                    return Ok(out);
                }
            }
        });
        let mut events = read
            .await
            .map_err(|e| Refusal::Broken(format!("the audit log: {e}")))?;
        events.truncate(most);
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
            .filter_map(|(seq, event)| numbered(*seq, event));
        Ok(Replayed {
            events: numbered
                .filter_map(|params| RawValue::from_string(params).ok())
                .collect(),
            has_more: next_seq < end,
            next_seq,
        })
    }
}

/// Goes on until the connection or the log ends.
async fn forwarded(ledger: &Ledger, link: &Arc<Link>) -> io::Result<()> {
    let mut written = ledger.written.subscribe();
    let told = Told::of(&ledger.folder, link);
    let newest = written.borrow().sequence;
    let (folder, kept) = (ledger.folder.clone(), told.clone());
    let (mut last, mut tail) = read(move || {
        let from = kept.last().unwrap_or(newest);
        Ok((from, Tail::after(folder, from)?))
    })
    .await?;
    loop {
        written.borrow_and_update();
        let events;
        (tail, events) = read(move || tail.next(BATCH).map(|events| (tail, events))).await?;
        let Some(end) = events.last().map(|(end, _)| *end) else {
            if written.changed().await.is_err() {
                return Ok(());
            }
            tokio::time::sleep(GATHER).await;
            continue;
        };
        tell(link, last, &events);
        if !has_read(link).await {
            return Ok(());
        }
        last = end;
        let told = told.clone();
        if let Err(error) = read(move || told.keep(end)).await {
            tracing::warn!(%error, "how far an audit server was told is not kept");
        }
    }
}

/// Whether an event is of after a moment. Both are written the same way, and so compare as texts.
fn later(event: &str, moment: &str) -> bool {
    mgp_protocol::splice::member(event, "timestamp").is_some_and(|at| at.trim_matches('"') > moment)
}

fn numbered(seq: u64, event: &str) -> Option<String> {
    let event: &RawValue = serde_json::from_str(event).ok()?;
    Some(Audit { seq, event }.params())
}

async fn read<T: Send + 'static>(
    read: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    let done = tokio::task::spawn_blocking(read).await;
    done.unwrap_or_else(|e| Err(io::Error::other(e)))
}

fn tell(link: &Arc<Link>, last: u64, events: &[(u64, String)]) {
    let first = events.first().map_or(last, |(first, _)| *first);
    if first > last + 1 {
        let (from, to) = (last + 1, first - 1);
        let words = format!("audit: events {from} to {to} were trimmed before it was told them");
        tracing::warn!(server = %link.server, "{words}");
        link.log.note(&words);
    }
    for (seq, event) in events {
        // What it said itself it knows; saying it back might have no end.
        if let Some(params) = numbered(*seq, event).filter(|_| !super::is_by(event, &link.server)) {
            link.notify(Audit::METHOD, Some(&params));
        }
    }
}

/// What it was told last, it has read when it answers a request that came after.
async fn has_read(link: &Arc<Link>) -> bool {
    let answer = match link.peer_in(Era::Legacy) {
        Some(_) => link.ask_in(Era::Legacy, "ping", None).await,
        None => {
            link.ask_in(Era::Modern, "server/discover", Some("{}"))
                .await
        }
    };
    matches!(answer, Ok(_) | Err(Refusal::Peer(_)))
}

/// How far a server was told, kept beside the log for the next connection.
#[derive(Clone)]
struct Told(PathBuf);

impl Told {
    fn of(folder: &Folder, link: &Link) -> Self {
        Self(folder.told(&link.server))
    }

    fn last(&self) -> Option<u64> {
        fs::read_to_string(&self.0).ok()?.trim().parse().ok()
    }

    /// Not synced: what a power cut takes of it is told once more.
    fn keep(&self, sequence: u64) -> io::Result<()> {
        fs::write(&self.0, format!("{sequence}\n"))
    }
}
