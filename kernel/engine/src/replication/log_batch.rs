//! What one node sends another one of its logs, by what the other said it has.

use std::sync::Arc;

use mgp_protocol::ids::NodeId;

use super::logs::{ClusterLogs, LogHead, LogHeads, UnstoredEntries};
use crate::policy::grants::LogKey;

/// Most entries in one message; the next ones follow when the other has stored these.
pub const BATCH_ENTRIES: usize = 256;
/// Most bytes of entries in one message, a first one aside: it takes no longer than a call to send.
pub(crate) const BATCH_BYTES: usize = 512 << 10;
/// How far behind the end of two logs that differ the difference is looked for at a time.
const LOOKBACK_ENTRIES: u64 = 64;

/// Where the entries behind the certain end go on, the next time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct UncertainCursor {
    issuer: NodeId,
    key: LogKey,
}

/// Entries to send.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct LogBatch {
    /// In the order in which they are best taken.
    pub(crate) entries: Vec<Arc<[u8]>>,
    /// Where to go on behind the certain ends; None when all of that was sent.
    pub(crate) cursor: Option<UncertainCursor>,
    bytes: usize,
}

impl LogBatch {
    /// True when it has taken it.
    fn try_add(&mut self, entry: &Arc<[u8]>) -> bool {
        let fits = self.bytes + entry.len() <= BATCH_BYTES && self.entries.len() < BATCH_ENTRIES;
        let fits = fits || self.entries.is_empty();
        if fits {
            self.bytes += entry.len();
            self.entries.push(entry.clone());
        }
        fits
    }
}

/// What this node has.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LocalLogs<'a> {
    /// All that it knows.
    pub logs: &'a ClusterLogs,
    /// What of it is not on disk yet.
    pub(crate) unstored: &'a UnstoredEntries,
    /// The heads of the rest.
    pub(crate) heads: &'a LogHeads,
}

/// What somebody who told these heads lacks, as far as it is on disk here and fits a message. What is certain
/// comes first; what lies behind it goes on at the cursor.
#[must_use]
pub(crate) fn build_batch(
    mine: LocalLogs<'_>,
    theirs: &LogHeads,
    cursor: Option<UncertainCursor>,
) -> LogBatch {
    let mut batch = LogBatch::default();
    let LocalLogs {
        logs,
        unstored,
        heads: mine,
    } = mine;
    if theirs == mine {
        return batch;
    }
    for (issuer, mine) in mine {
        let theirs = theirs.get(issuer).copied().unwrap_or(LogHead::EMPTY);
        let Some(from) = first_missing(logs, *issuer, *mine, theirs) else {
            continue;
        };
        let certain = logs.entries_from(*issuer, from);
        for (_, entry) in certain.take_while(|(key, _)| key.0 < mine.tip.next) {
            if !batch.try_add(&entry) {
                return with_cursor(batch, cursor);
            }
        }
    }
    let lacks_behind = |(issuer, mine): &(&NodeId, &LogHead)| {
        let theirs = theirs.get(issuer).copied().unwrap_or(LogHead::EMPTY);
        mine.behind.is_some() && theirs.behind != mine.behind
    };
    for (issuer, mine) in mine.iter().filter(lacks_behind) {
        if cursor.is_some_and(|cursor| *issuer < cursor.issuer) {
            continue;
        }
        for (key, entry) in logs.entries_from(*issuer, mine.tip.next) {
            let at = UncertainCursor {
                issuer: *issuer,
                key,
            };
            let sent = cursor.is_some_and(|cursor| *issuer == cursor.issuer && key < cursor.key);
            let not_stored = unstored.get(issuer).is_some_and(|keys| keys.contains(&key));
            if !sent && !not_stored && !batch.try_add(&entry) {
                return with_cursor(batch, Some(at));
            }
        }
    }
    batch
}

fn with_cursor(batch: LogBatch, cursor: Option<UncertainCursor>) -> LogBatch {
    LogBatch { cursor, ..batch }
}

/// The first certain operation that the other one lacks, or that shows it a fork.
fn first_missing(
    logs: &ClusterLogs,
    issuer: NodeId,
    mine: LogHead,
    theirs: LogHead,
) -> Option<u64> {
    if theirs.tip == mine.tip {
        return None;
    }
    let shared = theirs.tip.next.min(mine.tip.next);
    let here = logs.grants().tip_at(issuer, shared);
    if shared == theirs.tip.next && here != Some(theirs.tip) {
        return Some(shared.saturating_sub(LOOKBACK_ENTRIES));
    }
    // Who has more of it sends back what shows a fork, if there is one.
    (theirs.tip.next < mine.tip.next).then_some(shared)
}

/// True when the other one has something of a log that is not known here.
#[must_use]
pub(crate) fn has_unknown_entries(logs: &ClusterLogs, theirs: &LogHeads, mine: &LogHeads) -> bool {
    if theirs == mine {
        return false;
    }
    theirs.iter().any(|(issuer, theirs)| {
        let mine = mine.get(issuer).copied().unwrap_or(LogHead::EMPTY);
        let known = logs.grants().tip_at(*issuer, theirs.tip.next) == Some(theirs.tip);
        !known || (theirs.behind.is_some() && theirs.behind != mine.behind)
    })
}
