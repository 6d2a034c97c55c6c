//! The state of the actor: calls the engines, and executes their effects.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use mgp_engine::clock::MonotonicTime;
use mgp_engine::cluster::shares::Shares;
use mgp_engine::cluster::tool_index::{
    IndexEffect, LocalIndex, NODES_MAX, OfferedServer, RemoteIndexes, empty_root,
};
use mgp_engine::node_names::NodeNames;
use mgp_protocol::federation::control::Control;
use mgp_protocol::federation::hello::NodeName;
use mgp_protocol::federation::tool_index::{
    IndexDigest, IndexPage, IndexReport, PullFailure, PullIndex,
};
use mgp_protocol::ids::{NodeId, ServerId};
use mgp_runtime::task::SupervisedTask;
use mgp_runtime::{Mailbox, randomness, task};
use ractor::ActorProcessingErr;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::copies::{self, CopyToWrite, CopyUpdate, CopyWrites};
use super::node_handles::{self, PublishedNames};
use super::peers::IndexPeer;
use super::publication::PublishedServers;
use super::{ToolIndexEvent, ToolIndexMsg, ToolIndexStart, streams};
use crate::links::PeerLink;

/// How often each peer is sent an unchanged digest, in case one was lost.
const RESEND_INTERVAL: Duration = Duration::from_secs(60);
/// How long a change waits for more before it is saved: a copy of many pages is saved once.
const SAVE_DELAY: Duration = Duration::from_secs(1);
/// The save delay for this node's own index: it changes rarely, and unsaved changes are missing after a
/// restart.
const OWN_SAVE_DELAY: Duration = Duration::from_millis(100);

/// The state of the actor.
#[derive(Debug)]
pub(super) struct ToolIndexState {
    mailbox: Mailbox<ToolIndexMsg>,
    pub(super) start: ToolIndexStart,
    started_at: Instant,
    pub(super) local: LocalIndex,
    /// None until they are set: peers get no digest before.
    offered: Option<BTreeMap<ServerId, Arc<OfferedServer>>>,
    /// True if their index is on disk, or being written.
    stored: bool,
    pub(super) remote: RemoteIndexes,
    /// None until they are set: stored copies are neither published nor dropped before.
    members: Option<BTreeMap<NodeId, NodeName>>,
    /// Members that may only call.
    leaves: BTreeSet<NodeId>,
    /// Linked nodes and members, at most [`NODES_MAX`].
    pub(super) peers: BTreeMap<NodeId, IndexPeer>,
    pub(super) names: NodeNames,
    published: PublishedServers,
    next_resend: MonotonicTime,
    /// The copies to save, and when. Bounded by the stored nodes.
    unsaved: BTreeMap<NodeId, CopyUpdate>,
    save_at: Option<MonotonicTime>,
    is_saving: bool,
    timer: Option<(MonotonicTime, SupervisedTask<()>)>,
}

impl ToolIndexState {
    /// Loads the stored state.
    pub(super) async fn load(
        me: Mailbox<ToolIndexMsg>,
        start: ToolIndexStart,
    ) -> Result<Self, ActorProcessingErr> {
        let (folder, local) = (start.folder.clone(), start.node);
        let reading = task::run_blocking("tool_index.read", move || {
            let own = copies::read_own(&folder, local);
            (
                node_handles::read(&folder),
                copies::read_copies(&folder),
                own,
            )
        });
        let (names, copies, own) = reading.await?;
        let mut state = Self {
            mailbox: me,
            started_at: Instant::now(),
            local: LocalIndex::new(u64::from_le_bytes(randomness::random_bytes())),
            offered: None,
            stored: false,
            remote: RemoteIndexes::default(),
            members: None,
            leaves: BTreeSet::new(),
            peers: BTreeMap::new(),
            names: names?,
            published: PublishedServers::default(),
            next_resend: MonotonicTime::START + RESEND_INTERVAL,
            unsaved: BTreeMap::new(),
            save_at: None,
            is_saving: false,
            timer: None,
            start,
        };
        let now = state.elapsed();
        for (node, index, age) in copies.into_iter().take(NODES_MAX) {
            state.remote.restore(node, index, age, now);
        }
        if let Some(own) = own {
            state.local.restore(&own);
        }
        Ok(state)
    }

    /// The time since the actor started, on the clock of its timers.
    pub(super) fn elapsed(&self) -> MonotonicTime {
        MonotonicTime::new(self.started_at.elapsed())
    }

    /// The other nodes of the cluster.
    pub(super) fn other_members(&self) -> impl Iterator<Item = (NodeId, &NodeName)> + Clone {
        let members = self.members.iter().flatten();
        let members = members.map(|(node, name)| (*node, name));
        members.filter(|(node, _)| *node != self.start.node)
    }

    /// True for another node of the cluster.
    fn is_member(&self, node: NodeId) -> bool {
        let members = self.members.as_ref();
        node != self.start.node && members.is_some_and(|members| members.contains_key(&node))
    }

    pub(super) async fn set_offer(&mut self, servers: BTreeMap<ServerId, Arc<OfferedServer>>) {
        let before = self.offered.take().unwrap_or_default();
        for server in before.keys() {
            if !servers.contains_key(server) {
                self.local.offer(server, None);
            }
        }
        for (server, offered) in &servers {
            let same =
                |before: &Arc<OfferedServer>| Arc::ptr_eq(before, offered) || before == offered;
            if !before.get(server).is_some_and(same) {
                self.local.offer(server, Some(offered));
            }
        }
        let same_names = before.keys().eq(servers.keys());
        self.offered = Some(servers);
        if !same_names {
            self.assign_names().await;
        }
        self.stored = false;
        self.store_own();
        self.send_digests(false);
    }

    /// Saves this node's own index for its next start, once there is a node to share with.
    fn store_own(&mut self) {
        if !self.stored && self.offered.is_some() && self.other_members().next().is_some() {
            self.stored = true;
            self.schedule_save(self.start.node, CopyUpdate::Changed);
        }
    }

    pub(super) fn set_shares(&mut self, shares: &Shares) {
        self.local.set_shares(shares.clone());
        self.stored = false;
        self.store_own();
        self.send_digests(false);
    }

    /// True if the index of this node is accepted.
    fn can_share(&self, node: NodeId) -> bool {
        self.is_member(node) && !self.leaves.contains(&node)
    }

    pub(super) fn set_leaves(&mut self, leaves: BTreeSet<NodeId>) {
        for node in &leaves {
            self.remote.forget(*node);
            self.schedule_save(*node, CopyUpdate::Changed);
        }
        self.leaves = leaves;
    }

    pub(super) async fn set_members(&mut self, members: BTreeMap<NodeId, NodeName>) {
        self.members = Some(members);
        let index: Vec<NodeId> = self
            .remote
            .iter(self.elapsed())
            .map(|(node, ..)| node)
            .collect();
        let local = self.start.node;
        let is_initialized = index.into_iter().chain(self.peers.keys().copied());
        let former: Vec<NodeId> = is_initialized
            .filter(|node| *node == local || !self.is_member(*node))
            .collect();
        for node in former {
            self.local.forget(node);
            self.remote.forget(node);
            self.schedule_save(node, CopyUpdate::Changed);
            if let Some(peer) = self.peers.get_mut(&node) {
                peer.pull = None;
                peer.report = None;
                if !peer.is_linked() {
                    self.peers.remove(&node);
                }
            }
        }
        self.assign_names().await;
        self.store_own();
        let linked = self.peers.iter().filter(|(_, peer)| peer.is_linked());
        for node in linked.map(|(node, _)| *node).collect::<Vec<_>>() {
            self.connect_peer(node);
        }
    }

    pub(super) fn link_up(&mut self, link: Arc<PeerLink>) {
        let node = link.link.peer();
        let has_capacity = self.peers.len() < NODES_MAX || self.peers.contains_key(&node);
        if !has_capacity || node == self.start.node {
            return;
        }
        let peer = self.peers.entry(node).or_default();
        peer.link = Some(link);
        peer.sent_digest = None;
        self.connect_peer(node);
    }

    pub(super) fn link_down(&mut self, node: NodeId) {
        let peer = self.peers.get(&node);
        // The link that ended was an earlier one than the current.
        if !peer.is_some_and(IndexPeer::is_linked) {
            self.unlink(node);
        }
    }

    pub(super) fn receive_digest(&mut self, node: NodeId, digest: IndexDigest) {
        let (member, may_share) = (self.is_member(node), self.can_share(node));
        let Some(peer) = self.peers.get_mut(&node) else {
            return;
        };
        peer.digest = Some(digest);
        if peer.link.is_none() || !member {
            return;
        }
        if may_share {
            let effects = self.remote.handle_digest(node, digest, self.elapsed());
            self.apply_effects(node, effects);
        } else if digest.root != empty_root() {
            self.record_leaf_refusal(node);
        }
    }

    pub(super) fn receive_report(&mut self, node: NodeId, report: IndexReport) {
        let now = self.elapsed();
        let Some(peer) = self.peers.get_mut(&node) else {
            return;
        };
        if peer.report.as_ref() == Some(&report) {
            return;
        }
        peer.report = Some(report.clone()).filter(|report| !report.examples.is_empty());
        if peer.should_log(now)
            && let Some(example) = report.examples.first()
        {
            let (node, refused) = (node.short_id(), report.refused);
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

    /// The page that a node of the cluster pulls.
    pub(super) fn answer_pull(&mut self, node: NodeId, pull: &PullIndex) -> Option<IndexPage> {
        self.is_member(node).then(|| self.local.page(node, pull))
    }

    pub(super) fn handle_pulled(
        &mut self,
        node: NodeId,
        number: u64,
        page: Result<Box<IndexPage>, PullFailure>,
    ) {
        let now = self.elapsed();
        let effects = match page {
            // An answer to another pull is ignored.
            Ok(page) if page.number == number => self.remote.handle_page(node, *page, now),
            Ok(_) => self
                .remote
                .handle_pull_failure(node, number, PullFailure::Lost, now),
            Err(error) => self.remote.handle_pull_failure(node, number, error, now),
        };
        self.apply_effects(node, effects);
    }

    pub(super) fn handle_saved(&mut self, result: Result<(), String>) {
        self.is_saving = false;
        if let Err(error) = result {
            tracing::warn!(%error, "the index copies of other nodes could not be stored; they are copied again after a restart");
        }
    }

    pub(super) fn run_due(&mut self) {
        self.timer = None;
        let now = self.elapsed();
        self.refresh_linked();
        for (node, effect) in self.remote.handle_timeout(now) {
            self.apply_effects(node, vec![effect]);
            if self.remote.get(node, now).is_none() {
                self.schedule_save(node, CopyUpdate::Changed);
            }
        }
        if now >= self.next_resend {
            self.next_resend = now + RESEND_INTERVAL;
            self.send_digests(true);
            let linked = self.peers.iter().filter(|(_, peer)| peer.is_linked());
            for node in linked.map(|(node, _)| *node).collect::<Vec<_>>() {
                self.schedule_save(node, CopyUpdate::Heard);
            }
        }
        if self.save_at.is_some_and(|at| now >= at) && !self.is_saving {
            self.write_copies();
        }
    }

    /// After each message: publishes changes, and sets the timer.
    pub(super) fn finish_message(&mut self) {
        self.refresh_linked();
        let now = self.elapsed();
        let is_initialized = self.members.is_some();
        if is_initialized
            && self
                .published
                .publish(&self.remote, &self.start.published, now)
        {
            self.start.events.send(ToolIndexEvent::Changed);
        }
        let keep_at = self.save_at.filter(|_| !self.is_saving);
        let next_publication = self.published.next_due().filter(|_| is_initialized);
        let next = [self.remote.next_timeout(now), keep_at, next_publication];
        let next = next.into_iter().flatten().fold(self.next_resend, Ord::min);
        if self.timer.as_ref().is_some_and(|(at, _)| *at <= next) {
            return;
        }
        let (at, me) = (self.started_at + next.since_start(), self.mailbox.clone());
        let timer = task::spawn_supervised("tool_index.timer", async move {
            tokio::time::sleep_until(at).await;
            let _ = me.send_to_self(ToolIndexMsg::TimerDue);
        });
        self.timer = Some((next, timer));
    }

    /// Refreshes linked nodes: a node whose link is alive is reachable, whatever its index; QUIC detects a
    /// dead link.
    fn refresh_linked(&mut self) {
        let now = self.elapsed();
        let mut dropped = Vec::new();
        for (node, peer) in &self.peers {
            match &peer.link {
                Some(_) if peer.is_linked() => self.remote.record_activity(*node, now),
                Some(_) => dropped.push(*node),
                None => {}
            }
        }
        for node in dropped {
            self.unlink(node);
        }
    }

    fn unlink(&mut self, node: NodeId) {
        let now = self.elapsed();
        self.remote.handle_link_down(node, now);
        let member = self.is_member(node);
        match self.peers.get_mut(&node) {
            Some(peer) if member => peer.unlink(),
            Some(_) => {
                self.peers.remove(&node);
            }
            None => {}
        }
    }

    /// Starts the exchange with a peer that is both a member and linked.
    fn connect_peer(&mut self, node: NodeId) {
        if !self.is_member(node) {
            return;
        }
        self.send_digest(node, false);
        let digest = self.peers.get(&node).and_then(|peer| peer.digest);
        if let Some(digest) = digest {
            self.receive_digest(node, digest);
        }
    }

    fn send_digests(&mut self, again: bool) {
        for node in self.peers.keys().copied().collect::<Vec<_>>() {
            self.send_digest(node, again);
        }
    }

    /// Sends a peer its digest, if it does not have it.
    fn send_digest(&mut self, node: NodeId, again: bool) {
        let member = self.is_member(node) && self.offered.is_some();
        let peer = self.peers.get_mut(&node);
        let Some(peer) = peer.filter(|peer| member && peer.is_linked()) else {
            return;
        };
        let digest = self.local.digest(node);
        if again || peer.sent_digest != Some(digest) {
            peer.sent_digest = Some(digest);
            self.start.control.send((node, Control::Index(digest)));
        }
    }

    fn apply_effects(&mut self, node: NodeId, effects: Vec<IndexEffect>) {
        let mut changed = false;
        for effect in effects {
            match effect {
                IndexEffect::Pull(pull) => self.pull(node, pull),
                IndexEffect::Set(key) | IndexEffect::Removed(key) => {
                    changed = true;
                    let now = self.elapsed();
                    self.published.touch(node.server(key.server), now);
                }
                IndexEffect::Report(report) => self.record_refusals(node, report),
            }
        }
        if changed {
            self.schedule_save(node, CopyUpdate::Changed);
        }
    }

    fn pull(&mut self, node: NodeId, pull: PullIndex) {
        let Some(peer) = self.peers.get_mut(&node) else {
            return;
        };
        let Some(link) = peer.link.clone() else {
            return;
        };
        let (me, number) = (self.mailbox.clone(), pull.number);
        let pulling = task::spawn_supervised("tool_index.pull", async move {
            let page = streams::pull(link, pull).await;
            let _ = me.send_to_self(ToolIndexMsg::Pulled(node, number, page));
        });
        peer.pull = Some(pulling);
    }

    /// Assigns names to all nodes; each keeps its name if possible.
    async fn assign_names(&mut self) {
        if self.members.is_none() {
            return;
        }
        let names = node_handles::assign_names(
            &self.names,
            self.other_members(),
            self.offered.iter().flatten().map(|(server, _)| server),
        );
        let published = self.start.names.load();
        if names != self.names {
            let (folder, result) = (self.start.folder.clone(), names.clone());
            let writing = task::run_blocking("tool_index.names", move || {
                node_handles::write(&folder, &result)
            });
            let written = match writing.await {
                Ok(written) => written.map_err(|error| error.to_string()),
                Err(broken) => Err(broken.to_string()),
            };
            if let Err(error) = written {
                tracing::error!(%error, "the names of nodes could not be stored; they may change after a restart");
            }
            self.names = names;
        }
        if published.names != self.names {
            self.start.names.store(Arc::new(PublishedNames {
                names: self.names.clone(),
                replaced: CancellationToken::new(),
            }));
            published.replaced.cancel();
            self.start.events.send(ToolIndexEvent::Renamed);
        }
    }

    /// Schedules the save of a node's copy.
    fn schedule_save(&mut self, node: NodeId, change: CopyUpdate) {
        let result = self.unsaved.entry(node).or_insert(change);
        *result = (*result).max(change);
        let wait = if node == self.start.node {
            OWN_SAVE_DELAY
        } else {
            SAVE_DELAY
        };
        let at = self.elapsed() + wait;
        self.save_at = Some(self.save_at.map_or(at, |due| due.min(at)));
    }

    fn write_copies(&mut self) {
        let now = self.elapsed();
        let mut orders = CopyWrites::new();
        let mut heard = Vec::new();
        for (node, change) in std::mem::take(&mut self.unsaved) {
            if node == self.start.node {
                orders.insert(node, Some(CopyToWrite::Own(self.local.snapshot())));
                continue;
            }
            let index = self.remote.get(node, now);
            match (
                change,
                index.map(|(index, _)| CopyToWrite::from_index(index)),
            ) {
                (CopyUpdate::Heard, Some(_)) => heard.push(node),
                // The earlier copy stays on disk until the new one is complete.
                (CopyUpdate::Changed, Some(None)) => {}
                (CopyUpdate::Changed, Some(Some(copy))) => {
                    orders.insert(node, Some(copy));
                }
                (CopyUpdate::Heard | CopyUpdate::Changed, None) => {
                    orders.insert(node, None);
                }
            }
        }
        (self.save_at, self.is_saving) = (None, true);
        let (folder, me) = (self.start.folder.clone(), self.mailbox.clone());
        task::spawn_detached("tool_index.keep", async move {
            let writing = task::run_blocking("tool_index.write", move || {
                copies::write_copies(&folder, orders, &heard)
            });
            let result = match writing.await {
                Ok(written) => written.map_err(|error| error.to_string()),
                Err(broken) => Err(broken.to_string()),
            };
            let _ = me.send_to_self(ToolIndexMsg::Saved(result));
        });
    }
}
