//! The nodes, and what is on its way between them.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, LazyLock};

use mgp_engine::node_key::PublicKey;
use mgp_engine::policy::grants::{
    CausalContext, ClusterId, Grant, GrantChange, GrantId, GrantResource, GrantStatus, LogChange,
    LogPosition, MemberChange, MemberRole, Operation, OperationId, Revoke, SignedOperation,
    Subject,
};
use mgp_engine::replication::lease::{DEFAULT_LEASE, Nonce};
use mgp_engine::replication::local_log::PendingRevoke;
use mgp_engine::replication::replica::{
    AllowEnd, LogMessage, ProposalOutcome, Replica, ReplicaConfig, ReplicaContext, ReplicaEffect,
};
use mgp_protocol::federation::hello::LifeId;
use mgp_protocol::ids::{NodeAgent, NodeId};
use mgp_protocol::mgp::access::Permission;

use crate::machine::{Pen, moment};
use crate::world::{agent, server};

pub(super) const TWO_ADMINS: [usize; 2] = [0, 1];
pub(super) const OWNER: usize = 2;
const NODES: [usize; 3] = [0, 1, 2];
/// A leaf whose agent calls. It takes no part in the logs, so no machine plays it.
const CALLER: usize = 3;
/// So long is waited at a time: twice is a lease.
const WAIT_S: u64 = 15;

#[derive(Clone, Debug, Default, Hash)]
struct SmallDisk {
    entries: Vec<Arc<[u8]>>,
    owed: Vec<PendingRevoke>,
}

/// A node and its disk, which confirms at once.
#[derive(Clone, Debug)]
pub(super) struct SmallNode {
    pub(super) replica: Arc<Replica>,
    disk: Arc<SmallDisk>,
    starts: u8,
    /// Questions of this moment.
    asked: u8,
    /// It has known that the grant was taken back.
    pub(super) knew: bool,
    /// Of all above: made once for each change, not for each state it is a part of.
    hash: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Kind {
    Ask,
    Answer,
    Tell,
    Entries,
}

/// Where a message is: from, to, and of which kind.
pub(super) type Way = (usize, usize, u8);

#[derive(Clone, Debug)]
pub(super) struct OnTheWay {
    sent_s: u64,
    message: Arc<LogMessage>,
    hash: u64,
}

/// All of it. What the properties need of the past is a part of it.
#[derive(Clone, Debug)]
pub(super) struct SmallCluster {
    cluster: ClusterId,
    pub(super) now_s: u64,
    /// The two admins do not reach each other.
    pub(super) admins_apart: bool,
    /// The owner and the second admin do not.
    pub(super) owner_apart: bool,
    pub(super) nodes: [SmallNode; 3],
    pub(super) on_the_way: BTreeMap<Way, OnTheWay>,
    /// When the last answer of each admin that reached the owner was sent, since the owner's start.
    pub(super) heard_s: [Option<u64>; 2],
    /// Who was told that the grant is taken back, by a signature, and by when it is over at the owner, if the answer
    /// said so.
    pub(super) revoked: Option<(usize, Option<u64>)>,
}

impl Hash for SmallCluster {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.now_s.hash(state);
        self.heard_s.hash(state);
        self.revoked.hash(state);
        self.nodes.iter().for_each(|node| node.hash.hash(state));
        for (way, sent) in &self.on_the_way {
            (way, sent.sent_s, sent.hash).hash(state);
        }
    }
}

/// As they are told apart by what is hashed of them.
impl PartialEq for SmallCluster {
    fn eq(&self, other: &Self) -> bool {
        hashed(self) == hashed(other)
    }
}

fn pen(n: usize) -> &'static Pen {
    static PENS: LazyLock<Vec<Pen>> =
        LazyLock::new(|| (1..=10).map(|n| Pen::new(&[n; 32], false)).collect());
    &PENS[n]
}

pub(super) fn key(n: usize) -> PublicKey {
    pen(n).public()
}

pub(super) fn node(n: usize) -> NodeId {
    key(n).node_id()
}

/// The one grant that all is about.
pub(super) const GRANT: GrantId = GrantId([7; 16]);

pub(super) fn caller() -> NodeAgent {
    node(CALLER).agent(agent(0))
}

fn hashed(of: impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    of.hash(&mut hasher);
    hasher.finish()
}

fn founding() -> SignedOperation {
    pen(0).sign(Operation {
        cluster: None,
        place: LogPosition {
            issuer: node(0),
            sequence: 0,
        },
        previous: OperationId::START,
        author: "operator".into(),
        told_at_ms: 0,
        change: LogChange::Members(MemberChange::Found {
            key: key(0),
            recovery: key(9),
            name: "first".into(),
        }),
        context: CausalContext::default(),
    })
}

impl SmallNode {
    fn start(n: usize, cluster: ClusterId, before: Option<&Self>) -> Self {
        let disk = before.map(|before| before.disk.clone()).unwrap_or_default();
        let starts = before.map_or(1, |before| before.starts + 1);
        let mut life = [0; 16];
        life[..2].copy_from_slice(&[u8::try_from(n).unwrap(), starts]);
        let start = ReplicaConfig {
            node: node(n),
            cluster,
            instance: LifeId(life),
            lease: DEFAULT_LEASE,
            hints: TWO_ADMINS.map(node).into(),
            pending_revokes: disk.owed.clone(),
            duplicates: BTreeSet::new(),
        };
        let stored: Vec<SignedOperation> = disk.entries.iter().map(read).collect();
        let mut node = Self {
            replica: Arc::new(Replica::new(start, &stored)),
            disk,
            starts,
            asked: 0,
            knew: before.is_some_and(|before| before.knew),
            hash: 0,
        };
        node.settle();
        node
    }

    fn act(
        &mut self,
        n: usize,
        now_s: u64,
        act: impl FnOnce(&mut Replica, &mut ReplicaContext<'_>) -> Vec<ReplicaEffect>,
    ) -> Vec<ReplicaEffect> {
        let (pen, starts, asked) = (pen(n), self.starts, &mut self.asked);
        let mut means = ReplicaContext {
            now: moment(1000 * now_s),
            now_ms: 0,
            nonce: &mut || {
                *asked += 1;
                Nonce(question(n, starts, now_s, *asked))
            },
            sign: &|operation| pen.sign(operation),
        };
        act(Arc::make_mut(&mut self.replica), &mut means)
    }

    /// What is kept about it is brought up to what it is.
    fn settle(&mut self) {
        self.knew |= self.force() == Some(true);
        self.hash = hashed((
            &*self.replica,
            &*self.disk,
            self.starts,
            self.asked,
            self.knew,
        ));
    }

    /// Whether the grant is known here, and taken back.
    fn force(&self) -> Option<bool> {
        let granted = self.replica.logs().find_grant(GRANT)?;
        let force = self.replica.grant_status(&granted, 0);
        Some(matches!(force, GrantStatus::Revoked(_)))
    }
}

/// Each is read once: the same few entries are in all states, at another place in each.
pub(super) fn read(entry: &Arc<[u8]>) -> SignedOperation {
    thread_local! {
        static READ: RefCell<HashMap<Arc<[u8]>, SignedOperation>> = RefCell::default();
    }
    READ.with_borrow_mut(|read| {
        let read = read.entry(entry.clone());
        read.or_insert_with(|| SignedOperation::from_bytes(entry).unwrap())
            .clone()
    })
}

impl SmallCluster {
    /// All are in, know everything and were heard just now.
    pub(super) fn settled() -> Self {
        let cluster = ClusterId(founding().encoded().id().0);
        let nodes = NODES.map(|n| SmallNode::start(n, cluster, None));
        let mut all = Self {
            cluster,
            now_s: 0,
            admins_apart: false,
            owner_apart: false,
            nodes,
            on_the_way: BTreeMap::new(),
            heard_s: [None; 2],
            revoked: None,
        };
        all.act(0, |replica, means| {
            replica.handle_entries(&[founding()], means)
        });
        all.act(0, Replica::handle_timeout);
        for (n, role) in [
            (1, MemberRole::Admin),
            (OWNER, MemberRole::Member),
            (CALLER, MemberRole::Leaf),
        ] {
            let (key, name) = (key(n), format!("node-{n}"));
            all.propose(
                0,
                LogChange::Members(MemberChange::Admit { key, role, name }),
            );
        }
        for _ in 0..3 {
            all.waits();
            all.delivers_all();
        }
        assert!(NODES.iter().all(|n| all.nodes[*n].replica.is_confirmed()));
        all
    }

    /// Everything arrives, and what comes of it.
    pub(super) fn delivers_all(&mut self) {
        while let Some(way) = self.on_the_way.keys().next().copied() {
            self.delivers(way);
        }
    }

    pub(super) fn delivers(&mut self, way: Way) {
        let Some(sent) = self.on_the_way.remove(&way) else {
            return;
        };
        let (from, to, _) = way;
        if to == OWNER && from != OWNER && matches!(*sent.message, LogMessage::Response { .. }) {
            let last = &mut self.heard_s[from];
            *last = Some(sent.sent_s).max(*last);
        }
        match (*sent.message).clone() {
            LogMessage::Entries(entries) => {
                let signed: Vec<SignedOperation> = entries.iter().map(read).collect();
                self.act(to, |replica, means| replica.handle_entries(&signed, means));
            }
            message @ (LogMessage::Request { .. }
            | LogMessage::Response { .. }
            | LogMessage::Announce { .. }) => {
                self.act(to, |replica, means| {
                    replica.handle_message(node(from), message, means)
                });
            }
        }
    }

    /// Time passes; everybody asks who was not asked for a while.
    pub(super) fn waits(&mut self) {
        self.now_s += WAIT_S;
        for n in NODES {
            self.nodes[n].asked = 0;
            self.act(n, Replica::handle_timeout);
        }
    }

    /// A node ends at once, and begins anew with what is on its disk.
    pub(super) fn crashes(&mut self, n: usize) {
        self.nodes[n] = SmallNode::start(n, self.cluster, Some(&self.nodes[n]));
        if n == OWNER {
            self.heard_s = [None; 2];
        }
        self.act(n, Replica::handle_timeout);
    }

    /// A node shuts down gracefully, and begins anew.
    pub(super) fn restarts(&mut self, n: usize) {
        self.propose(n, Replica::shutdown_change());
        self.delivers_all();
        self.crashes(n);
    }

    pub(super) fn grants_at(&mut self, n: usize) {
        let grant = Grant {
            id: GRANT,
            subject: Subject::Agent(caller()),
            resource: GrantResource::Server(node(OWNER).server(server(0))),
            permission: Permission::Allow,
            not_after_ms: None,
            told_by: None,
            justification: None,
            replaces: Vec::new(),
            when: None,
        };
        self.propose(n, LogChange::Grants(GrantChange::Grant(grant)));
    }

    pub(super) fn revokes_at(&mut self, n: usize) {
        let revoke = GrantChange::Revoke(Revoke::Ids(vec![GRANT]));
        let proposed = self.propose(n, LogChange::Grants(revoke));
        if let Some(ProposalOutcome::Signed(place)) = proposed {
            self.revoked = Some((n, self.over_s(n, place.sequence)));
        }
    }

    /// When it is over at the owner, as this node answers.
    fn over_s(&self, n: usize, sequence: u64) -> Option<u64> {
        let missing = self.nodes[n].replica.confirmation(sequence).missing;
        match missing.into_iter().find(|(of, _)| *of == node(OWNER)) {
            Some((_, AllowEnd::NoLaterThan(end))) => Some(end.duration_since(moment(0)).as_secs()),
            Some((_, AllowEnd::UnknownLease | AllowEnd::Unbounded)) => None,
            None => Some(self.now_s),
        }
    }

    pub(super) fn cuts(&mut self, n: usize, other: usize) {
        let at = self.nodes[n].replica.logs().grants().tip(node(other));
        let node = node(other);
        self.propose(
            n,
            LogChange::Members(MemberChange::Cut {
                node,
                at,
                stays_as: None,
            }),
        );
    }

    fn propose(&mut self, n: usize, change: LogChange) -> Option<ProposalOutcome> {
        let mut done = None;
        self.act(n, |replica, means| {
            match replica.propose(change, "operator", 0, means) {
                Ok((proposed, effects)) => {
                    done = Some(proposed);
                    effects
                }
                Err(_) => Vec::new(),
            }
        });
        done
    }

    /// Whether the caller is let in there.
    pub(super) fn allows(&self, n: usize) -> bool {
        let now = moment(1000 * self.now_s);
        let replica = &self.nodes[n].replica;
        replica
            .authorize(&caller(), &server(0), Some("tool"), 0, now)
            .is_ok()
    }

    fn act(
        &mut self,
        n: usize,
        act: impl FnOnce(&mut Replica, &mut ReplicaContext<'_>) -> Vec<ReplicaEffect>,
    ) {
        let mut effects = VecDeque::from(self.nodes[n].act(n, self.now_s, act));
        let mut sends = Vec::new();
        while let Some(effect) = effects.pop_front() {
            match effect {
                ReplicaEffect::Store {
                    ticket,
                    entries,
                    pending_revokes: owed,
                } => {
                    let node = &mut self.nodes[n];
                    let disk = Arc::make_mut(&mut node.disk);
                    disk.entries.extend(entries);
                    disk.owed = owed.unwrap_or(std::mem::take(&mut disk.owed));
                    let stored = |replica: &mut Replica, means: &mut ReplicaContext<'_>| {
                        replica.handle_stored(ticket, means)
                    };
                    effects.extend(node.act(n, self.now_s, stored));
                }
                ReplicaEffect::Send(to, message) => sends.push((to, message)),
                ReplicaEffect::Changed | ReplicaEffect::DuplicateKey(..) => {}
            }
        }
        self.nodes[n].settle();
        for (to, message) in sends {
            self.sends(n, to, message);
        }
    }

    fn sends(&mut self, from: usize, to: NodeId, message: LogMessage) {
        let Some(to) = NODES.into_iter().find(|n| node(*n) == to) else {
            return;
        };
        let is_between =
            |one: usize, other: usize| [from, to] == [one, other] || [to, from] == [one, other];
        if self.admins_apart && is_between(TWO_ADMINS[0], TWO_ADMINS[1])
            || self.owner_apart && is_between(TWO_ADMINS[1], OWNER)
        {
            return;
        }
        let kind = match message {
            LogMessage::Request { .. } => Kind::Ask,
            LogMessage::Response { .. } => Kind::Answer,
            LogMessage::Announce { .. } => Kind::Tell,
            LogMessage::Entries(_) => Kind::Entries,
        };
        let sent = OnTheWay {
            sent_s: self.now_s,
            hash: hashed(&message),
            message: Arc::new(message),
        };
        self.on_the_way.insert((from, to, kind as u8), sent);
    }
}

fn question(n: usize, starts: u8, now_s: u64, count: u8) -> [u8; 16] {
    let mut nonce = [0; 16];
    nonce[..8].copy_from_slice(&now_s.to_le_bytes());
    nonce[8..11].copy_from_slice(&[u8::try_from(n).unwrap(), starts, count]);
    nonce
}
