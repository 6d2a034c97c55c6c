//! The state of the actor: asks the engines, and carries out what they say.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use mgp_engine::clock::MonotonicTime;
use mgp_engine::cluster::node_names::NodeNames;
use mgp_engine::cluster::shares::Shares;
use mgp_engine::cluster::tool_index::{
    HeldIndexes, IndexEffect, NODES_MAX, OfferedServer, OwnIndex, empty_root,
};
use mgp_protocol::federation::control::Control;
use mgp_protocol::federation::hello::NodeName;
use mgp_protocol::federation::tool_index::{
    IndexDigest, IndexPage, IndexReport, NotBrought, PullIndex,
};
use mgp_protocol::ids::{NodeId, ServerId};
use mgp_runtime::mailbox::Mailbox;
use mgp_runtime::randomness;
use mgp_runtime::task::{self, SupervisedTask};
use ractor::ActorProcessingErr;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::copies::{self, CopyOrders, KeptChange, WrittenCopy};
use super::node_handles::{self, NamedNodes};
use super::peers::IndexPeer;
use super::showing::ShownServers;
use super::{ToolIndexEvent, ToolIndexMsg, ToolIndexStart, streams};
use crate::links::PeerLink;

/// How often each peer is told its digest though it has not changed: one that was lost on the way is made up
/// for.
const TELL_AGAIN: Duration = Duration::from_secs(60);
/// How long what changed waits for more before it is written: a copy of many pages is written once.
const KEEP: Duration = Duration::from_secs(1);
/// The same of this node's own: it changes seldom, and what is not written is missing after a restart.
const OWN_KEEP: Duration = Duration::from_millis(100);

/// The state of the actor.
#[derive(Debug)]
pub(super) struct ToolIndexState {
    me: Mailbox<ToolIndexMsg>,
    pub(super) start: ToolIndexStart,
    begun: Instant,
    pub(super) own: OwnIndex,
    /// None until they are told: peers are told nothing before.
    offered: Option<BTreeMap<ServerId, Arc<OfferedServer>>>,
    /// What they offer is on disk, or on its way there.
    stored: bool,
    pub(super) held: HeldIndexes,
    /// None until they are told: what was kept is neither shown nor given up before.
    members: Option<BTreeMap<NodeId, NodeName>>,
    /// Members that may only call.
    leaves: BTreeSet<NodeId>,
    /// Linked ones and those of the cluster, at most [`NODES_MAX`].
    pub(super) peers: BTreeMap<NodeId, IndexPeer>,
    pub(super) names: NodeNames,
    shown: ShownServers,
    tell_again: MonotonicTime,
    /// What is to be kept, and when. Bounded by the nodes that are held.
    keep: BTreeMap<NodeId, KeptChange>,
    keep_at: Option<MonotonicTime>,
    keeping: bool,
    timer: Option<(MonotonicTime, SupervisedTask<()>)>,
}

impl ToolIndexState {
    /// With what was kept before this start.
    pub(super) async fn restored(
        me: Mailbox<ToolIndexMsg>,
        start: ToolIndexStart,
    ) -> Result<Self, ActorProcessingErr> {
        let (folder, here) = (start.folder.clone(), start.here);
        let reading = task::blocking("tool_index.read", move || {
            let own = copies::read_own(&folder, here);
            (node_handles::read(&folder), copies::read(&folder), own)
        });
        let (names, copies, own) = reading.await?;
        let mut state = Self {
            me,
            begun: Instant::now(),
            own: OwnIndex::new(u64::from_le_bytes(randomness::bytes())),
            offered: None,
            stored: false,
            held: HeldIndexes::default(),
            members: None,
            leaves: BTreeSet::new(),
            peers: BTreeMap::new(),
            names: names?,
            shown: ShownServers::default(),
            tell_again: MonotonicTime::START + TELL_AGAIN,
            keep: BTreeMap::new(),
            keep_at: None,
            keeping: false,
            timer: None,
            start,
        };
        let now = state.now();
        for (node, index, age) in copies.into_iter().take(NODES_MAX) {
            state.held.restore(node, index, age, now);
        }
        if let Some(own) = own {
            state.own.remember(&own);
        }
        Ok(state)
    }

    /// The time since the actor began, on the clock of its timers.
    pub(super) fn now(&self) -> MonotonicTime {
        MonotonicTime::new(self.begun.elapsed())
    }

    /// The other nodes of the cluster.
    pub(super) fn others(&self) -> impl Iterator<Item = (NodeId, &NodeName)> + Clone {
        let members = self.members.iter().flatten();
        let members = members.map(|(node, name)| (*node, name));
        members.filter(|(node, _)| *node != self.start.here)
    }

    /// Whether it is another node of the cluster.
    fn is_member(&self, node: NodeId) -> bool {
        let members = self.members.as_ref();
        node != self.start.here && members.is_some_and(|members| members.contains_key(&node))
    }

    pub(super) async fn offer(&mut self, servers: BTreeMap<ServerId, Arc<OfferedServer>>) {
        let before = self.offered.take().unwrap_or_default();
        for server in before.keys() {
            if !servers.contains_key(server) {
                self.own.offer(server, None);
            }
        }
        for (server, offered) in &servers {
            let same =
                |before: &Arc<OfferedServer>| Arc::ptr_eq(before, offered) || before == offered;
            if !before.get(server).is_some_and(same) {
                self.own.offer(server, Some(offered));
            }
        }
        let same_names = before.keys().eq(servers.keys());
        self.offered = Some(servers);
        if !same_names {
            self.rename().await;
        }
        self.stored = false;
        self.store_own();
        self.tell_all(false);
    }

    /// What this node's servers offer is stored for its next start, once there is somebody to share with.
    fn store_own(&mut self) {
        if !self.stored && self.offered.is_some() && self.others().next().is_some() {
            self.stored = true;
            self.keep(self.start.here, KeptChange::Changed);
        }
    }

    pub(super) fn share(&mut self, shares: &Shares) {
        self.own.reshare(shares.clone());
        self.stored = false;
        self.store_own();
        self.tell_all(false);
    }

    /// Whether what it tells of its own tools is taken.
    fn may_share(&self, node: NodeId) -> bool {
        self.is_member(node) && !self.leaves.contains(&node)
    }

    pub(super) fn leaves(&mut self, leaves: BTreeSet<NodeId>) {
        for node in &leaves {
            self.held.forget(*node);
            self.keep(*node, KeptChange::Changed);
        }
        self.leaves = leaves;
    }

    pub(super) async fn members(&mut self, members: BTreeMap<NodeId, NodeName>) {
        self.members = Some(members);
        let held: Vec<NodeId> = self.held.all(self.now()).map(|(node, ..)| node).collect();
        let here = self.start.here;
        let known = held.into_iter().chain(self.peers.keys().copied());
        let left: Vec<NodeId> = known
            .filter(|node| *node == here || !self.is_member(*node))
            .collect();
        for node in left {
            self.own.forget(node);
            self.held.forget(node);
            self.keep(node, KeptChange::Changed);
            if let Some(peer) = self.peers.get_mut(&node) {
                peer.pull = None;
                peer.report = None;
                if !peer.is_linked() {
                    self.peers.remove(&node);
                }
            }
        }
        self.rename().await;
        self.store_own();
        let linked = self.peers.iter().filter(|(_, peer)| peer.is_linked());
        for node in linked.map(|(node, _)| *node).collect::<Vec<_>>() {
            self.meet(node);
        }
    }

    pub(super) fn link_up(&mut self, link: Arc<PeerLink>) {
        let node = link.link.peer();
        let room = self.peers.len() < NODES_MAX || self.peers.contains_key(&node);
        if !room || node == self.start.here {
            return;
        }
        let peer = self.peers.entry(node).or_default();
        peer.link = Some(link);
        peer.sent = None;
        self.meet(node);
    }

    pub(super) fn link_down(&mut self, node: NodeId) {
        let peer = self.peers.get(&node);
        // The link that ended was another one than the one there is now.
        if !peer.is_some_and(IndexPeer::is_linked) {
            self.unlink(node);
        }
    }

    pub(super) fn heard(&mut self, node: NodeId, digest: IndexDigest) {
        let (member, may_share) = (self.is_member(node), self.may_share(node));
        let Some(peer) = self.peers.get_mut(&node) else {
            return;
        };
        peer.told = Some(digest);
        if peer.link.is_none() || !member {
            return;
        }
        if may_share {
            let effects = self.held.told(node, digest, self.now());
            self.carry_out(node, effects);
        } else if digest.root != empty_root() {
            self.refused_as_leaf(node);
        }
    }

    pub(super) fn reported(&mut self, node: NodeId, report: IndexReport) {
        let now = self.now();
        let Some(peer) = self.peers.get_mut(&node) else {
            return;
        };
        if peer.report.as_ref() == Some(&report) {
            return;
        }
        peer.report = Some(report.clone()).filter(|report| !report.examples.is_empty());
        if peer.is_news(now)
            && let Some(example) = report.examples.first()
        {
            let (node, refused) = (node.short(), report.refused);
            let (entry, reason) = (&example.entry, &example.reason);
            tracing::warn!(
                node,
                refused,
                entry,
                reason,
                "another node does not take all that this one shares"
            );
        }
        let event = ToolIndexEvent::Reported(node, report);
        self.start.events.send(event);
    }

    /// The page that a node of the cluster asks for.
    pub(super) fn page(&mut self, node: NodeId, pull: &PullIndex) -> Option<IndexPage> {
        self.is_member(node).then(|| self.own.page(node, pull))
    }

    pub(super) fn pulled(
        &mut self,
        node: NodeId,
        number: u64,
        page: Result<Box<IndexPage>, NotBrought>,
    ) {
        let now = self.now();
        let effects = match page {
            // What answers another question than the one that was asked is no answer.
            Ok(page) if page.number == number => self.held.brought(node, *page, now),
            Ok(_) => self.held.not_brought(node, number, NotBrought::Lost, now),
            Err(why) => self.held.not_brought(node, number, why, now),
        };
        self.carry_out(node, effects);
    }

    pub(super) fn kept(&mut self, kept: Result<(), String>) {
        self.keeping = false;
        if let Err(error) = kept {
            tracing::warn!(%error, "what other nodes share is not on disk; it is copied again after a restart");
        }
    }

    pub(super) fn due(&mut self) {
        self.timer = None;
        let now = self.now();
        self.look_at_links();
        for (node, effect) in self.held.due(now) {
            self.carry_out(node, vec![effect]);
            if self.held.get(node, now).is_none() {
                self.keep(node, KeptChange::Changed);
            }
        }
        if now >= self.tell_again {
            self.tell_again = now + TELL_AGAIN;
            self.tell_all(true);
            let linked = self.peers.iter().filter(|(_, peer)| peer.is_linked());
            for node in linked.map(|(node, _)| *node).collect::<Vec<_>>() {
                self.keep(node, KeptChange::Heard);
            }
        }
        if self.keep_at.is_some_and(|at| now >= at) && !self.keeping {
            self.write_copies();
        }
    }

    /// After each message: publishes what has changed, and sets the timer.
    pub(super) fn settle(&mut self) {
        self.look_at_links();
        let now = self.now();
        let known = self.members.is_some();
        if known && self.shown.publish(&self.held, &self.start.held, now) {
            self.start.events.send(ToolIndexEvent::Changed);
        }
        let keep_at = self.keep_at.filter(|_| !self.keeping);
        let shown = self.shown.next_due().filter(|_| known);
        let next = [self.held.next_due(now), keep_at, shown];
        let next = next.into_iter().flatten().fold(self.tell_again, Ord::min);
        if self.timer.as_ref().is_some_and(|(at, _)| *at <= next) {
            return;
        }
        let (at, me) = (self.begun + next.since_start(), self.me.clone());
        let timer = task::supervised("tool_index.timer", async move {
            tokio::time::sleep_until(at).await;
            let _ = me.remind(ToolIndexMsg::Due);
        });
        self.timer = Some((next, timer));
    }

    /// A node whose link answers is there, whatever its index; QUIC notices a dead one by itself.
    fn look_at_links(&mut self) {
        let now = self.now();
        let mut lost = Vec::new();
        for (node, peer) in &self.peers {
            match &peer.link {
                Some(_) if peer.is_linked() => self.held.heard(*node, now),
                Some(_) => lost.push(*node),
                None => {}
            }
        }
        for node in lost {
            self.unlink(node);
        }
    }

    fn unlink(&mut self, node: NodeId) {
        let now = self.now();
        self.held.unlinked(node, now);
        let member = self.is_member(node);
        match self.peers.get_mut(&node) {
            Some(peer) if member => peer.unlink(),
            Some(_) => {
                self.peers.remove(&node);
            }
            None => {}
        }
    }

    /// Peer and link are there: each is told what it has to know of the other.
    fn meet(&mut self, node: NodeId) {
        if !self.is_member(node) {
            return;
        }
        self.tell(node, false);
        let told = self.peers.get(&node).and_then(|peer| peer.told);
        if let Some(digest) = told {
            self.heard(node, digest);
        }
    }

    fn tell_all(&mut self, again: bool) {
        for node in self.peers.keys().copied().collect::<Vec<_>>() {
            self.tell(node, again);
        }
    }

    /// Tells a peer its digest, where it does not have it.
    fn tell(&mut self, node: NodeId, again: bool) {
        let member = self.is_member(node) && self.offered.is_some();
        let peer = self.peers.get_mut(&node);
        let Some(peer) = peer.filter(|peer| member && peer.is_linked()) else {
            return;
        };
        let digest = self.own.digest(node);
        if again || peer.sent != Some(digest) {
            peer.sent = Some(digest);
            self.start.control.send((node, Control::Index(digest)));
        }
    }

    fn carry_out(&mut self, node: NodeId, effects: Vec<IndexEffect>) {
        let mut changed = false;
        for effect in effects {
            match effect {
                IndexEffect::Pull(pull) => self.pull(node, pull),
                IndexEffect::Set(key) | IndexEffect::Removed(key) => {
                    changed = true;
                    let now = self.now();
                    self.shown.touch(node.server(key.server), now);
                }
                IndexEffect::Report(report) => self.refused(node, report),
            }
        }
        if changed {
            self.keep(node, KeptChange::Changed);
        }
    }

    fn pull(&mut self, node: NodeId, pull: PullIndex) {
        let Some(peer) = self.peers.get_mut(&node) else {
            return;
        };
        let Some(link) = peer.link.clone() else {
            return;
        };
        let (me, number) = (self.me.clone(), pull.number);
        let pulling = task::supervised("tool_index.pull", async move {
            let page = streams::pull(link, pull).await;
            let _ = me.remind(ToolIndexMsg::Pulled(node, number, page));
        });
        peer.pull = Some(pulling);
    }

    /// Names all nodes anew; each keeps its name where it may.
    async fn rename(&mut self) {
        if self.members.is_none() {
            return;
        }
        let names = node_handles::named(
            &self.names,
            self.others(),
            self.offered.iter().flatten().map(|(server, _)| server),
        );
        let published = self.start.names.load();
        if names != self.names {
            let (folder, kept) = (self.start.folder.clone(), names.clone());
            let writing = task::blocking("tool_index.names", move || {
                node_handles::write(&folder, &kept)
            });
            let written = match writing.await {
                Ok(written) => written.map_err(|error| error.to_string()),
                Err(broken) => Err(broken.to_string()),
            };
            if let Err(error) = written {
                tracing::error!(%error, "the names of nodes are not on disk; after a restart they may be others");
            }
            self.names = names;
        }
        if published.names != self.names {
            self.start.names.store(Arc::new(NamedNodes {
                names: self.names.clone(),
                replaced: CancellationToken::new(),
            }));
            published.replaced.cancel();
            self.start.events.send(ToolIndexEvent::Renamed);
        }
    }

    /// What is kept of a node is to be brought up to date.
    fn keep(&mut self, node: NodeId, change: KeptChange) {
        let kept = self.keep.entry(node).or_insert(change);
        *kept = (*kept).max(change);
        let wait = if node == self.start.here {
            OWN_KEEP
        } else {
            KEEP
        };
        let at = self.now() + wait;
        self.keep_at = Some(self.keep_at.map_or(at, |due| due.min(at)));
    }

    fn write_copies(&mut self) {
        let now = self.now();
        let mut orders = CopyOrders::new();
        let mut heard = Vec::new();
        for (node, change) in std::mem::take(&mut self.keep) {
            if node == self.start.here {
                orders.insert(node, Some(WrittenCopy::Own(self.own.snapshot())));
                continue;
            }
            let held = self.held.get(node, now);
            match (change, held.map(|(index, _)| WrittenCopy::of(index))) {
                (KeptChange::Heard, Some(_)) => heard.push(node),
                // Until it is whole, the one before stays.
                (KeptChange::Changed, Some(None)) => {}
                (KeptChange::Changed, Some(Some(copy))) => {
                    orders.insert(node, Some(copy));
                }
                (KeptChange::Heard | KeptChange::Changed, None) => {
                    orders.insert(node, None);
                }
            }
        }
        (self.keep_at, self.keeping) = (None, true);
        let (folder, me) = (self.start.folder.clone(), self.me.clone());
        task::detached("tool_index.keep", async move {
            let writing = task::blocking("tool_index.write", move || {
                copies::write(&folder, orders, &heard)
            });
            let kept = match writing.await {
                Ok(written) => written.map_err(|error| error.to_string()),
                Err(broken) => Err(broken.to_string()),
            };
            let _ = me.remind(ToolIndexMsg::Kept(kept));
        });
    }
}
