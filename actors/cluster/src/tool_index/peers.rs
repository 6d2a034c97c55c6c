//! The state of each peer beside its index.

use std::sync::Arc;
use std::time::Duration;

use mgp_engine::clock::MonotonicTime;
use mgp_protocol::federation::tool_index::{IndexDigest, IndexReport};
use mgp_runtime::task::SupervisedTask;

use crate::links::PeerLink;

/// The minimum interval between log messages about the same node's index.
const LOG_INTERVAL: Duration = Duration::from_secs(60);

/// One peer: linked, a member of the cluster, or both.
#[derive(Debug, Default)]
pub(super) struct IndexPeer {
    pub(super) link: Option<Arc<PeerLink>>,
    /// Its digest received over this link. It may arrive before the peer is known to be a member.
    pub(super) digest: Option<IndexDigest>,
    /// The digest sent to it over this link.
    pub(super) sent_digest: Option<IndexDigest>,
    /// The running pull.
    pub(super) pull: Option<SupervisedTask<()>>,
    /// What it rejected of this node's index.
    pub(super) report: Option<IndexReport>,
    /// When its index was last logged.
    pub(super) logged_at: Option<MonotonicTime>,
}

impl IndexPeer {
    /// True while there is a link that has not ended.
    pub(super) fn is_linked(&self) -> bool {
        let link = self.link.as_ref();
        link.is_some_and(|link| link.link.end_reason().is_none())
    }

    /// True if its index is to be logged now: limited to a rate that people can read.
    pub(super) fn should_log(&mut self, now: MonotonicTime) -> bool {
        let is_due = self
            .logged_at
            .is_none_or(|logged_at| now >= logged_at + LOG_INTERVAL);
        if is_due {
            self.logged_at = Some(now);
        }
        is_due
    }

    pub(super) fn unlink(&mut self) {
        *self = Self {
            report: self.report.take(),
            logged_at: self.logged_at,
            ..Self::default()
        };
    }
}
