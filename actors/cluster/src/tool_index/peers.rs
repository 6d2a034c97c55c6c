//! What is known of each peer beside its index.

use std::sync::Arc;

use mgp_engine::clock::MonotonicTime;
use mgp_protocol::federation::tool_index::{IndexDigest, IndexReport};
use mgp_runtime::task::SupervisedTask;

use crate::links::PeerLink;

/// One peer: linked, of the cluster, or both.
#[derive(Debug, Default)]
pub(super) struct IndexPeer {
    pub(super) link: Option<Arc<PeerLink>>,
    /// What it told over this link. It may have come before it was known to be of the cluster.
    pub(super) told: Option<IndexDigest>,
    /// What it was told over this link.
    pub(super) sent: Option<IndexDigest>,
    /// Its pull under way.
    pub(super) pull: Option<SupervisedTask<()>>,
    /// What it did not take of this node's index.
    pub(super) report: Option<IndexReport>,
    /// When it was last news what it does.
    pub(super) news: Option<MonotonicTime>,
}

impl IndexPeer {
    /// True while there is a link that has not ended.
    pub(super) fn is_linked(&self) -> bool {
        let link = self.link.as_ref();
        link.is_some_and(|link| link.link.gone().is_none())
    }

    pub(super) fn unlink(&mut self) {
        *self = Self {
            report: self.report.take(),
            news: self.news,
            ..Self::default()
        };
    }
}
