//! This node's own index: what its servers offer, as each peer may see it.
//!
//! Peers that no rule names share one view. Servers of other nodes cannot get in: an offer must have the plain id of
//! a local server.

use std::collections::BTreeMap;
use std::sync::Arc;

use mgp_protocol::federation::tool_index::{
    IndexDigest, IndexPage, PullIndex, ServerRecord, ToolRecord,
};
use mgp_protocol::ids::NodeId;
use mgp_protocol::ids::ServerId;

use super::index_view::{IndexView, LocalRecord};
use super::{
    BYTES_MAX, IndexKey, OmissionReason, RemoteEntry, RemoteIndex, SERVERS_MAX, TOOLS_MAX,
    root_hash,
};
use crate::cluster::shares::{ShareAudience, Shares};

/// What a server offers.
#[derive(Clone, Debug, PartialEq)]
pub struct OfferedServer {
    /// The server.
    pub record: ServerRecord,
    /// Its tools, by its own names for them.
    pub tools: BTreeMap<Arc<str>, ToolRecord>,
}

/// The records of one server.
type ServerRecords = BTreeMap<IndexKey, Arc<LocalRecord>>;

/// The index of this node.
#[derive(Debug)]
pub struct LocalIndex {
    seed: u64,
    epoch_count: u64,
    shares: Shares,
    offers: BTreeMap<ServerId, ServerRecords>,
    /// Tools that servers had before this kernel's start, until each server makes its offer.
    restored: BTreeMap<ServerId, ServerRecords>,
    views: BTreeMap<ShareAudience, IndexView>,
}

impl LocalIndex {
    /// An index that is shared with nobody. `seed` is random and new at each start: copies from an earlier run have
    /// another epoch.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let mut index = Self {
            seed,
            epoch_count: 0,
            shares: Shares::default(),
            offers: BTreeMap::new(),
            restored: BTreeMap::new(),
            views: BTreeMap::new(),
        };
        let epoch = index.next_epoch();
        let view = IndexView::new(epoch);
        index.views.insert(ShareAudience::Cluster, view);
        index
    }

    /// Restores what was stored before this kernel's start ([`Self::snapshot`]): the tools of servers that are still
    /// starting.
    pub fn restore(&mut self, stored: &RemoteIndex) {
        for (key, entry) in stored.entries() {
            if let RemoteEntry::Tool(tool) = entry {
                let record = LocalRecord::new(key, tool.to_record().encode());
                let tools = self.restored.entry(key.server.clone()).or_default();
                tools.insert(key.clone(), record);
            }
        }
    }

    /// All servers that are shared with some peer, as one page. What exceeds the limits of an index is omitted: it is
    /// published again when its server lists it.
    #[must_use]
    pub fn snapshot(&self) -> IndexPage {
        let (mut changes, mut leaves) = (Vec::new(), Vec::new());
        let (mut servers, mut bytes) = (0, 0);
        for (server, records) in &self.offers {
            let size: usize = records.values().map(|record| record.len()).sum();
            let fits = servers < SERVERS_MAX
                && changes.len() + records.len() <= TOOLS_MAX
                && bytes + size <= BYTES_MAX;
            if !fits || !self.views.values().any(|view| view.contains_server(server)) {
                continue;
            }
            (servers, bytes) = (servers + 1, bytes + size);
            leaves.extend(records.values().map(|record| record.hash()));
            changes.extend(records.iter().map(|(key, record)| record.to_change(key)));
        }
        let version = changes.len() as u64;
        let digest = IndexDigest {
            epoch: 0,
            version,
            root: root_hash(leaves.into_iter()),
        };
        IndexPage {
            number: 0,
            epoch: 0,
            after: 0,
            upto: version,
            digest,
            changes,
        }
    }

    /// Sets the offer of a server; `None` when it is removed. A server of another node is ignored. A starting server
    /// lists nothing and keeps the tools that it had before.
    pub fn offer(&mut self, server: &ServerId, offered: Option<&OfferedServer>) {
        let own = ServerId::parse(server.as_str()).is_ok();
        let remembered = self.restored.remove(server);
        match offered.filter(|_| own) {
            Some(offered) => {
                let before = self.offers.remove(server).or(remembered);
                let records = build_records(server, offered, before.unwrap_or_default());
                self.offers.insert(server.clone(), records);
            }
            None => {
                self.offers.remove(server);
            }
        }
        for (audience, view) in &mut self.views {
            update_view(view, *audience, server, &self.offers, &self.shares);
            retry_omitted(view, *audience, &self.offers, &self.shares);
        }
    }

    /// Replaces the sharing rules.
    pub fn set_shares(&mut self, shares: Shares) {
        self.shares = shares;
        let named = self.shares.named_nodes();
        let stands = |audience: &ShareAudience| match audience {
            ShareAudience::Cluster => true,
            ShareAudience::Node(node) => named.contains(node),
        };
        self.views.retain(|audience, _| stands(audience));
        for node in &named {
            if !self.views.contains_key(&ShareAudience::Node(*node)) {
                let view = IndexView::new(self.next_epoch());
                self.views.insert(ShareAudience::Node(*node), view);
            }
        }
        for (audience, view) in &mut self.views {
            for server in self.offers.keys() {
                update_view(view, *audience, server, &self.offers, &self.shares);
            }
            retry_omitted(view, *audience, &self.offers, &self.shares);
        }
    }

    /// Removes a node that left the cluster.
    pub fn forget(&mut self, node: NodeId) {
        self.views.values_mut().for_each(|view| view.forget(node));
    }

    /// The digest for a peer.
    #[must_use]
    pub fn digest(&self, peer: NodeId) -> IndexDigest {
        self.view_for(peer).digest()
    }

    /// The page that a peer requests.
    pub fn page(&mut self, peer: NodeId, pull: &PullIndex) -> IndexPage {
        let audience = self.shares.audience_for(peer);
        let view = self.views.get_mut(&audience);
        view.expect("each audience has a view").page(peer, pull)
    }

    /// The entries that are shared with a peer and omitted, and why.
    pub fn omitted_entries(
        &self,
        peer: NodeId,
    ) -> impl Iterator<Item = (&IndexKey, OmissionReason)> {
        self.view_for(peer).omitted_entries()
    }

    fn view_for(&self, peer: NodeId) -> &IndexView {
        let view = self.views.get(&self.shares.audience_for(peer));
        view.expect("each audience has a view")
    }

    fn next_epoch(&mut self) -> u64 {
        self.epoch_count += 1;
        let mut hasher = blake3::Hasher::new_derive_key("mgp 2026-11 index epoch");
        hasher.update(&self.seed.to_le_bytes());
        hasher.update(&self.epoch_count.to_le_bytes());
        let [a, b, c, d, e, f, g, h, ..] = *hasher.finalize().as_bytes();
        // 0 is the epoch of an empty copy.
        u64::from_le_bytes([a, b, c, d, e, f, g, h]).max(1)
    }
}

/// The records of a server; unchanged ones are reused.
fn build_records(
    server: &ServerId,
    offered: &OfferedServer,
    mut before: ServerRecords,
) -> ServerRecords {
    let whole = (IndexKey::server(server), offered.record.encode());
    let tools = offered.tools.iter();
    let tools = tools.map(|(name, tool)| (IndexKey::tool(server, Arc::clone(name)), tool.encode()));
    let all = std::iter::once(whole).chain(tools);
    let mut records: ServerRecords = all
        .map(|(key, bytes)| {
            let same = before
                .remove(&key)
                .filter(|record| record.has_bytes(&bytes));
            let record = same.unwrap_or_else(|| LocalRecord::new(&key, bytes));
            (key, record)
        })
        .collect();
    if offered.record.starting && offered.tools.is_empty() {
        records.extend(before.into_iter().filter(|(key, _)| key.tool.is_some()));
    }
    records
}

/// Updates a view with what it may contain of a server.
fn update_view(
    view: &mut IndexView,
    audience: ShareAudience,
    server: &ServerId,
    offers: &BTreeMap<ServerId, ServerRecords>,
    shares: &Shares,
) {
    let offered = offers.get(server).into_iter().flatten();
    let admitted = |key: &IndexKey| match &key.tool {
        Some(tool) => shares.is_tool_shared(audience, server, tool),
        None => shares.is_server_shared(audience, server),
    };
    let entries = offered.filter(|(key, _)| admitted(key));
    let entries = entries.map(|(key, record)| (key.clone(), Arc::clone(record)));
    view.set_entries(server, &entries.collect());
}

/// Adds omitted entries where others have made room.
fn retry_omitted(
    view: &mut IndexView,
    audience: ShareAudience,
    offers: &BTreeMap<ServerId, ServerRecords>,
    shares: &Shares,
) {
    for server in view.servers_with_omissions() {
        update_view(view, audience, &server, offers, shares);
    }
}
