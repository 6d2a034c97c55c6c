//! All machines, the network between them and the time; and what an observer who sees everything wrote down.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;

use mgp_engine::cluster::clock_offset::PeerClock;
use mgp_engine::policy::grants::{
    CausalContext, ClusterId, GrantId, LogChange, LogPosition, MemberChange, Operation,
    OperationId, SignedOperation,
};
use mgp_engine::replication::lease::DEFAULT_LEASE;
use mgp_engine::replication::replica::{LogMessage, Replica, ReplicaEffect};
use mgp_protocol::ids::{AgentId, NodeAgent, NodeId, NodeServer, ServerId};

use crate::chance::Chance;
use crate::machine::{Machine, Pen, Reader};
use crate::model::Held;
use crate::network::{Network, Packet};
use crate::seeds::Happened;

/// A call that a machine allowed.
#[derive(Clone, Debug)]
pub(crate) struct AllowedCall {
    pub(crate) at_ms: u64,
    pub(crate) machine: usize,
    pub(crate) caller: NodeAgent,
    pub(crate) server: ServerId,
    pub(crate) grant: GrantId,
    /// Everything the machine knew then.
    pub(crate) held: Rc<Held>,
}

/// Something that was taken away, and acknowledged to who asked.
#[derive(Clone, Debug)]
pub(crate) struct AcknowledgedRevoke {
    pub(crate) at_ms: u64,
    pub(crate) machine: usize,
    pub(crate) by: NodeId,
    /// False where it is owed.
    pub(crate) signed: bool,
    pub(crate) grants: BTreeSet<GrantId>,
    /// What the answer said of each node that had not confirmed it: when all is over there, if that is bounded.
    pub(crate) answer: BTreeMap<NodeId, Option<u64>>,
}

/// The leases of machines that are configured differently.
pub(crate) const LEASES: [Duration; 3] = [
    Duration::from_secs(15),
    DEFAULT_LEASE,
    Duration::from_secs(90),
];

/// In every third run the machines are configured differently.
pub(crate) fn has_unequal_leases(seed: u64) -> bool {
    seed % 3 == 1
}

/// Something that a person asked to take back, and what the node knew then.
#[derive(Clone, Debug)]
pub(crate) struct AskedWithdrawal {
    pub(crate) machine: usize,
    pub(crate) by: NodeId,
    /// True once the person was told that it counts.
    pub(crate) acknowledged: bool,
    pub(crate) grants: BTreeSet<GrantId>,
    pub(crate) known: Rc<Held>,
}

#[derive(Debug)]
pub(crate) struct World {
    pub(crate) seed: u64,
    pub(crate) chance: Chance,
    pub(crate) now_ms: u64,
    pub(crate) machines: Vec<Machine>,
    pub(crate) network: Network,
    pub(crate) cluster: ClusterId,
    pub(crate) recovery: Pen,
    pub(crate) tells: bool,
    pub(crate) grants: Vec<GrantId>,
    /// What each issuer knew when it wrote a grant.
    pub(crate) known_at_grant: BTreeMap<GrantId, Rc<Held>>,
    pub(crate) withdrawals: Vec<AskedWithdrawal>,
    /// Who was granted what, whether it still is or not.
    pub(crate) wanted: Vec<(NodeAgent, NodeServer)>,
    /// What an admin revoked that did not reach the owner: it is called more often.
    pub(crate) watched: Option<(NodeAgent, NodeServer)>,
    /// How many operations the recovery key has signed.
    pub(crate) recovered: u64,
    pub(crate) happened: Happened,
    pub(crate) reader: Reader,
    /// What the machines held when they were last asked, and since when nothing has changed in it: the start, and
    /// how many entries there are. They become more until the next start, which
    /// [`crate::acknowledged_entries_last`] sees to.
    held: BTreeMap<usize, (u64, usize, Rc<Held>)>,
    /// What happened since the invariants were last checked.
    pub(crate) calls: Vec<AllowedCall>,
    pub(crate) revokes: Vec<AcknowledgedRevoke>,
    /// When the last answer that reached this machine was sent by that node.
    pub(crate) answers: BTreeMap<(usize, NodeId), u64>,
    /// How far that node's clock was off when this machine measured it last.
    pub(crate) clocks: BTreeMap<(usize, NodeId), i64>,
}

impl World {
    /// A founded cluster of one machine; the others have keys, and are in nothing.
    pub(crate) fn new(seed: u64, machines: u64, tells: bool) -> Self {
        let mut chance = Chance::new(seed);
        let real = seed % 100 == 99;
        let pens = (0..machines).map(|_| Pen::new(&chance.bytes(), real));
        let machines = pens.map(|pen| Machine::new(pen, DEFAULT_LEASE));
        let mut machines: Vec<Machine> = machines.collect();
        for machine in machines.iter_mut().filter(|_| has_unequal_leases(seed)) {
            machine.lease = *chance.pick(&LEASES).unwrap();
        }
        let recovery = Pen::new(&chance.bytes(), real);
        let found = found(&machines[0].pen, &recovery);
        let mut world = Self {
            seed,
            now_ms: 0,
            cluster: ClusterId(found.encoded().id().0),
            network: Network::losing(chance.below(25)),
            machines,
            recovery,
            tells,
            grants: Vec::new(),
            known_at_grant: BTreeMap::new(),
            withdrawals: Vec::new(),
            wanted: Vec::new(),
            watched: None,
            recovered: 0,
            happened: Happened::new(),
            reader: Reader::new(real),
            held: BTreeMap::new(),
            calls: Vec::new(),
            revokes: Vec::new(),
            answers: BTreeMap::new(),
            clocks: BTreeMap::new(),
            chance,
        };
        let founder = world.machines[0].node();
        world.machines[0].disk.entries.push(found.entry_bytes());
        for machine in &mut world.machines {
            machine.hints.insert(founder);
            machine.start(world.cluster, &mut world.chance, &mut world.reader);
        }
        world
    }

    pub(crate) fn count(&mut self, what: &'static str) {
        *self.happened.entry(what).or_default() += 1;
    }

    pub(crate) fn tell(&self, what: impl FnOnce() -> String) {
        if self.tells {
            println!("{:>9} ms  {}", self.now_ms, what());
        }
    }

    /// Time goes on: messages arrive, disks confirm, clocks tick.
    pub(crate) fn pass(&mut self, ms: u64) {
        let end = self.now_ms + ms;
        while let Some((at, packet)) = self.network.arrives(end) {
            self.now_ms = self.now_ms.max(at);
            self.arrive(packet);
        }
        self.now_ms = end;
        for at in 0..self.machines.len() {
            if self.chance.percent(80) {
                self.sync(at);
            }
            let machine = &mut self.machines[at];
            let effects = machine.act(end, &mut self.chance, Replica::handle_timeout);
            self.perform(at, effects);
        }
    }

    pub(crate) fn sync(&mut self, at: usize) {
        let effects = self.machines[at].sync(self.now_ms, &mut self.chance, &mut self.reader);
        self.perform(at, effects);
    }

    fn arrive(&mut self, packet: Packet) {
        let Packet { from, to, .. } = packet;
        if !self.network.reaches(from, to) || self.machines[to].replica.is_none() {
            return;
        }
        let by = self.machines[from].node();
        if matches!(packet.message, LogMessage::Response { .. }) {
            let last = self.answers.entry((to, by)).or_default();
            *last = packet.sent_ms.max(*last);
            self.measure(to, from);
        }
        let now_ms = self.now_ms;
        let machine = &mut self.machines[to];
        let effects = match packet.message {
            LogMessage::Entries(entries) => {
                let signed = self.reader.verified(&entries);
                machine.act(now_ms, &mut self.chance, |replica, means| {
                    replica.handle_entries(&signed, means)
                })
            }
            message @ (LogMessage::Request { .. }
            | LogMessage::Response { .. }
            | LogMessage::Announce { .. }) => {
                machine.act(now_ms, &mut self.chance, |replica, means| {
                    replica.handle_message(by, message, means)
                })
            }
        };
        self.perform(to, effects);
    }

    /// A machine measures the clock of another one, as exactly as the way allows.
    fn measure(&mut self, at: usize, other: usize) {
        let error_ms = self.chance.below(200);
        let theirs = &self.machines[other];
        let (node, off) = (theirs.node(), theirs.wall_off_ms);
        let (theirs_ms, ours_ms) = (
            theirs.wall_ms(self.now_ms),
            self.machines[at].wall_ms(self.now_ms),
        );
        let shown_ms = theirs_ms + self.chance.below(2 * error_ms + 1) - error_ms;
        let clock = PeerClock::from_clocks(shown_ms, ours_ms, error_ms);
        self.clocks.insert((at, node), off);
        let effects = self.machines[at].act(self.now_ms, &mut self.chance, |replica, means| {
            replica.record_clock(node, clock, means)
        });
        self.perform(at, effects);
    }

    /// Sends what is to be sent to every machine with that key.
    pub(crate) fn perform(&mut self, from: usize, effects: Vec<ReplicaEffect>) {
        for effect in effects {
            let ReplicaEffect::Send(node, message) = effect else {
                continue;
            };
            for to in 0..self.machines.len() {
                if to != from && self.machines[to].node() == node {
                    let packet = Packet {
                        from,
                        to,
                        sent_ms: self.now_ms,
                        message: message.clone(),
                    };
                    let became = self.network.send(packet, &mut self.chance);
                    if let Some(fault) = became {
                        self.count(fault);
                    }
                }
            }
        }
    }

    pub(crate) fn running(&self) -> Vec<usize> {
        let all = 0..self.machines.len();
        all.filter(|at| self.machines[*at].replica.is_some())
            .collect()
    }

    /// What a machine knows, on its disk and in memory.
    pub(crate) fn held(&mut self, at: usize) -> Rc<Held> {
        let machine = &self.machines[at];
        let Some(replica) = &machine.replica else {
            return Rc::default();
        };
        let (starts, count) = (machine.starts, replica.logs().count());
        match self.held.get(&at) {
            Some((of, so_many, held)) if *of == starts && *so_many == count => held.clone(),
            Some(_) | None => {
                let entries = replica.logs().entries();
                let read = entries.map(|(_, _, entry)| {
                    let signed = self.reader.read(&entry).unwrap();
                    signed.encoded().clone()
                });
                let held = Rc::new(Held::new(read.collect(), self.cluster));
                self.held.insert(at, (starts, count, held.clone()));
                held
            }
        }
    }
}

fn found(founder: &Pen, recovery: &Pen) -> SignedOperation {
    founder.sign(Operation {
        cluster: None,
        place: LogPosition {
            issuer: founder.node(),
            sequence: 0,
        },
        previous: OperationId::START,
        author: "operator".into(),
        told_at_ms: 0,
        change: LogChange::Members(MemberChange::Found {
            key: founder.public(),
            recovery: recovery.public(),
            name: "first".into(),
        }),
        context: CausalContext::default(),
    })
}

pub(crate) fn agent(n: u64) -> AgentId {
    AgentId::new(format!("agent.{n}"))
}

pub(crate) fn server(n: u64) -> ServerId {
    ServerId::new(format!("server-{n}"))
}
