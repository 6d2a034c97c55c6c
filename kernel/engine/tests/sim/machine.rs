//! One machine: a key, a disk, a wall clock, and the replica that runs on it, if one does.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use mgp_engine::clock::MonotonicTime;
use mgp_engine::node_key::{NodeKey, PublicKey, Signature, find_invalid_signature};
use mgp_engine::policy::grants::{ClusterId, LogKey, Operation, SignedOperation};
use mgp_engine::replication::lease::Nonce;
use mgp_engine::replication::local_log::PendingRevoke;
use mgp_engine::replication::replica::{Replica, ReplicaConfig, ReplicaContext, ReplicaEffect};
use mgp_protocol::federation::hello::LifeId;
use mgp_protocol::ids::NodeId;

use crate::chance::Chance;

/// Signs with a key, or writes something down that only this simulation takes for a signature: real ones take
/// most of the time of a run.
#[derive(Clone, Debug)]
pub(crate) struct Pen {
    key: NodeKey,
    public: PublicKey,
    node: NodeId,
    real: bool,
}

impl Pen {
    pub(crate) fn new(bytes: &[u8; 32], real: bool) -> Self {
        let key = NodeKey::new(bytes);
        Self {
            public: key.public_key(),
            node: key.node_id(),
            key,
            real,
        }
    }

    pub(crate) fn public(&self) -> PublicKey {
        self.public
    }

    pub(crate) fn node(&self) -> NodeId {
        self.node
    }

    pub(crate) fn sign(&self, operation: Operation) -> SignedOperation {
        let key = self.public;
        SignedOperation::with_signature(operation, key, |bytes| {
            if self.real {
                self.key.sign(bytes)
            } else {
                scribble(&key, bytes)
            }
        })
    }
}

fn scribble(key: &PublicKey, bytes: &[u8]) -> Signature {
    let hash = blake3::keyed_hash(&key.0, bytes);
    let mut out = [0; 64];
    out[..32].copy_from_slice(hash.as_bytes());
    Signature(out)
}

/// Reads entries and judges their signatures, each once: most of the time of a run is spent here otherwise.
#[derive(Debug)]
pub(crate) struct Reader {
    real: bool,
    /// By where their bytes are, which are kept beside: nothing else comes to lie there.
    read: HashMap<*const u8, (Arc<[u8]>, Option<SignedOperation>)>,
}

impl Reader {
    /// Of real signatures, or of those of this simulation.
    pub(crate) fn new(real: bool) -> Self {
        let read = HashMap::new();
        Self { real, read }
    }

    /// The entry, when its signature holds.
    pub(crate) fn read(&mut self, entry: &Arc<[u8]>) -> Option<&SignedOperation> {
        if !self.read.contains_key(&entry.as_ptr()) {
            let read = SignedOperation::from_bytes(entry).ok();
            let read = read.filter(|it| holds(it, self.real));
            if let Some(signed) = &read {
                // What is passed on is a copy of the same.
                let copy = signed.entry_bytes();
                self.read.insert(copy.as_ptr(), (copy, read.clone()));
            }
            self.read.insert(entry.as_ptr(), (entry.clone(), read));
        }
        self.read.get(&entry.as_ptr())?.1.as_ref()
    }

    /// The entries of a message whose signatures hold.
    pub(crate) fn verified(&mut self, entries: &[Arc<[u8]>]) -> Vec<SignedOperation> {
        let read = entries.iter();
        read.filter_map(|entry| self.read(entry).cloned()).collect()
    }
}

fn holds(signed: &SignedOperation, real: bool) -> bool {
    signed.signature_claim().is_some_and(|claim| {
        if real {
            find_invalid_signature(&[claim]).is_none()
        } else {
            scribble(&claim.key, &claim.bytes) == claim.signature
        }
    })
}

/// A write that the disk has not confirmed.
#[derive(Clone, Debug)]
struct Write {
    ticket: u64,
    entries: Vec<Arc<[u8]>>,
    owed: Option<Vec<PendingRevoke>>,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Disk {
    pub(crate) entries: Vec<Arc<[u8]>>,
    pub(crate) owed: Vec<PendingRevoke>,
    unsynced: VecDeque<Write>,
}

impl Disk {
    fn sync(&mut self, writes: usize) -> Option<u64> {
        let mut last = None;
        for write in self.unsynced.drain(..writes) {
            self.entries.extend(write.entries);
            self.owed = write.owed.unwrap_or(std::mem::take(&mut self.owed));
            last = Some(write.ticket);
        }
        last
    }
}

#[derive(Debug)]
pub(crate) struct Machine {
    pub(crate) pen: Pen,
    pub(crate) disk: Disk,
    pub(crate) replica: Option<Replica>,
    /// How long it believes what others say; the configuration may change it with a start.
    pub(crate) lease: Duration,
    /// How often it was started.
    pub(crate) starts: u64,
    /// How far its wall clock is off, in milliseconds.
    pub(crate) wall_off_ms: i64,
    /// True when another machine has, or had, the same key.
    pub(crate) cloned: bool,
    pub(crate) hints: BTreeSet<NodeId>,
    /// What it acknowledged: entries that were on its disk.
    pub(crate) acknowledged: BTreeSet<(NodeId, LogKey)>,
}

impl Machine {
    pub(crate) fn new(pen: Pen, lease: Duration) -> Self {
        Self {
            pen,
            lease,
            disk: Disk::default(),
            replica: None,
            starts: 0,
            wall_off_ms: 0,
            cloned: false,
            hints: BTreeSet::new(),
            acknowledged: BTreeSet::new(),
        }
    }

    pub(crate) fn node(&self) -> NodeId {
        self.pen.node()
    }

    /// Starts, with what is on the disk.
    pub(crate) fn start(&mut self, cluster: ClusterId, chance: &mut Chance, reader: &mut Reader) {
        let start = ReplicaConfig {
            node: self.node(),
            cluster,
            instance: LifeId(chance.bytes()),
            lease: self.lease,
            hints: self.hints.clone(),
            pending_revokes: self.disk.owed.clone(),
            duplicates: BTreeSet::new(),
        };
        let stored = reader.verified(&self.disk.entries);
        assert_eq!(stored.len(), self.disk.entries.len());
        self.replica = Some(Replica::new(start, &stored));
        self.starts += 1;
    }

    /// Ends at once. Of what the disk had not confirmed, the first so many writes are on it.
    pub(crate) fn crash(&mut self, kept: u64) {
        let kept = usize::try_from(kept).unwrap().min(self.disk.unsynced.len());
        self.disk.sync(kept);
        self.disk.unsynced.clear();
        self.replica = None;
    }

    /// Lets the replica do something. What it wants sent comes back.
    pub(crate) fn act(
        &mut self,
        now_ms: u64,
        chance: &mut Chance,
        act: impl FnOnce(&mut Replica, &mut ReplicaContext<'_>) -> Vec<ReplicaEffect>,
    ) -> Vec<ReplicaEffect> {
        let wall_ms = self.wall_ms(now_ms);
        let Some(replica) = &mut self.replica else {
            return Vec::new();
        };
        let pen = &self.pen;
        let mut means = ReplicaContext {
            now: moment(now_ms),
            now_ms: wall_ms,
            nonce: &mut || Nonce(chance.bytes()),
            sign: &|operation| pen.sign(operation),
        };
        let mut effects = act(replica, &mut means);
        let is_store = |effect: &mut ReplicaEffect| matches!(effect, ReplicaEffect::Store { .. });
        for store in effects.extract_if(.., is_store) {
            if let ReplicaEffect::Store {
                ticket,
                entries,
                pending_revokes: owed,
            } = store
            {
                self.disk.unsynced.push_back(Write {
                    ticket,
                    entries,
                    owed,
                });
            }
        }
        effects
    }

    /// The disk confirms what was written.
    pub(crate) fn sync(
        &mut self,
        now_ms: u64,
        chance: &mut Chance,
        reader: &mut Reader,
    ) -> Vec<ReplicaEffect> {
        let written = self.disk.entries.len();
        let Some(ticket) = self.disk.sync(self.disk.unsynced.len()) else {
            return Vec::new();
        };
        for entry in &self.disk.entries[written..] {
            let written = reader.read(entry).unwrap().encoded();
            let key = (written.position().sequence, written.id());
            self.acknowledged.insert((written.issuer(), key));
        }
        self.act(now_ms, chance, |replica, means| {
            replica.handle_stored(ticket, means)
        })
    }

    /// Writes that the disk has not confirmed.
    pub(crate) fn unsynced(&self) -> usize {
        self.disk.unsynced.len()
    }

    /// True when all it knows is on its disk.
    pub(crate) fn is_synced(&self) -> bool {
        self.disk.unsynced.is_empty()
    }

    pub(crate) fn lease_ms(&self) -> u64 {
        u64::try_from(self.lease.as_millis()).unwrap()
    }

    /// What a person or an expiry date sees as the time, in milliseconds since 1970.
    pub(crate) fn wall_ms(&self, now_ms: u64) -> u64 {
        (1_000_000_000 + now_ms).saturating_add_signed(self.wall_off_ms)
    }
}

pub(crate) fn moment(now_ms: u64) -> MonotonicTime {
    MonotonicTime::new(Duration::from_millis(now_ms))
}
