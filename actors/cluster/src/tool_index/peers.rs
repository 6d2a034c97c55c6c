//! What is known of each peer beside its index.

use std::sync::Arc;
use std::time::Duration;

use mgp_engine::clock::MonotonicTime;
use mgp_protocol::federation::tool_index::{IndexDigest, IndexReport};
use mgp_runtime::task::SupervisedTask;

use crate::links::PeerLink;

/// How often the log tells of the same node's index.
const LOG_INTERVAL: Duration = Duration::from_secs(60);

/// One peer: linked, of the cluster, or both.
#[derive(Debug, Default)]
pub(super) struct IndexPeer {
    pub(super) link: Option<Arc<PeerLink>>,
    /// What it told over this link. It may have come before it was known to be of the cluster.
    pub(super) digest: Option<IndexDigest>,
    /// What it was told over this link.
    pub(super) sent_digest: Option<IndexDigest>,
    /// Its pull under way.
    pub(super) pull: Option<SupervisedTask<()>>,
    /// What it did not take of this node's index.
    pub(super) report: Option<IndexReport>,
    /// When it was last news what it does.
    pub(super) logged_at: Option<MonotonicTime>,
}

impl IndexPeer {
    /// True while there is a link that has not ended.
    pub(super) fn is_linked(&self) -> bool {
        let link = self.link.as_ref();
        link.is_some_and(|link| link.link.end_reason().is_none())
    }

    /// Whether the log is to be told of it: not more often than people read it.
    pub(super) fn should_log(&mut self, now: MonotonicTime) -> bool {
        let news = self.logged_at.is_none_or(|told| now >= told + LOG_INTERVAL);
        if news {
            self.logged_at = Some(now);
        }
        news
    }

    pub(super) fn unlink(&mut self) {
        *self = Self {
            report: self.report.take(),
            logged_at: self.logged_at,
            ..Self::default()
        };
    }
}
