//! Batches of log entries for another node, according to its heads.

use std::sync::Arc;

use mgp_protocol::ids::NodeId;

use super::logs::{ClusterLogs, LogHead, LogHeads, UnstoredEntries};
use crate::policy::grants::LogKey;

/// Most entries in one message; the next ones follow when the receiver has stored these.
pub const BATCH_ENTRIES: usize = 256;
/// Most bytes in one message, unless its first entry is larger: sending it takes no longer than a call.
pub(crate) const BATCH_BYTES: usize = 512 << 10;
/// How many entries before the end of two different logs are sent at a time to find the fork.
const LOOKBACK_ENTRIES: u64 = 64;

/// Where the next batch of uncertain entries starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct UncertainCursor {
    issuer: NodeId,
    key: LogKey,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct LogBatch {
    /// In the best order to merge them.
    pub(crate) entries: Vec<Arc<[u8]>>,
    /// Where the next batch of uncertain entries starts; None if all were sent.
    pub(crate) cursor: Option<UncertainCursor>,
    bytes: usize,
}

impl LogBatch {
    /// Adds the entry if it fits.
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

/// The logs of this node.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LocalLogs<'a> {
    /// All known entries.
    pub(crate) logs: &'a ClusterLogs,
    /// The ones that are not on disk yet.
    pub(crate) unstored: &'a UnstoredEntries,
    /// The heads of the stored ones.
    pub(crate) heads: &'a LogHeads,
}

/// Builds a batch of stored entries that a node with these heads lacks. Certain entries come first; uncertain ones
/// continue at the cursor.
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
    let lacks_uncertain = |(issuer, mine): &(&NodeId, &LogHead)| {
        let theirs = theirs.get(issuer).copied().unwrap_or(LogHead::EMPTY);
        mine.behind.is_some() && theirs.behind != mine.behind
    };
    for (issuer, mine) in mine.iter().filter(lacks_uncertain) {
        if cursor.is_some_and(|cursor| *issuer < cursor.issuer) {
            continue;
        }
        for (key, entry) in logs.entries_from(*issuer, mine.tip.next) {
            let next = UncertainCursor {
                issuer: *issuer,
                key,
            };
            let is_sent = cursor.is_some_and(|cursor| *issuer == cursor.issuer && key < cursor.key);
            let is_unstored = unstored.get(issuer).is_some_and(|keys| keys.contains(&key));
            if !is_sent && !is_unstored && !batch.try_add(&entry) {
                return with_cursor(batch, Some(next));
            }
        }
    }
    batch
}

fn with_cursor(batch: LogBatch, cursor: Option<UncertainCursor>) -> LogBatch {
    LogBatch { cursor, ..batch }
}

/// The first certain operation that the other node lacks, or that may prove a fork to it.
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
    // The node with the longer log sends the entries that prove a fork.
    (theirs.tip.next < mine.tip.next).then_some(shared)
}

/// True if the other node has entries that are not known here.
#[must_use]
pub(crate) fn has_unknown_entries(logs: &ClusterLogs, theirs: &LogHeads, mine: &LogHeads) -> bool {
    if theirs == mine {
        return false;
    }
    theirs.iter().any(|(issuer, theirs)| {
        let mine = mine.get(issuer).copied().unwrap_or(LogHead::EMPTY);
        let is_known = logs.grants().tip_at(*issuer, theirs.tip.next) == Some(theirs.tip);
        !is_known || (theirs.behind.is_some() && theirs.behind != mine.behind)
    })
}
