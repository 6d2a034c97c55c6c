//! What the logs of a cluster cost with many entries: signing, verifying, taking what another node sends, starting
//! with what is on disk, and what of it stays in memory; and what starting with many nodes costs.
//! `cargo bench -p mgp-engine --bench grants [ENTRIES] [NODES] [REVOKES]`: one of so many entries takes a grant back

// It measures: this is no engine.
#![allow(clippy::disallowed_methods)]

#[path = "memory/resident.rs"]
mod memory;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use mgp_engine::clock::MonotonicTime;
use mgp_engine::node_key::{NodeKey, first_bad};
use mgp_engine::policy::grants::{
    CausalContext, ClusterId, Grant, GrantChange, GrantId, GrantResource, LogChange, LogPosition,
    MemberChange, MemberRole, Operation, OperationId, Revoke, Signed, Subject,
};
use mgp_engine::replication::exchange::BATCH_ENTRIES;
use mgp_engine::replication::lease::{LEASE, Nonce};
use mgp_engine::replication::replica::{Replica, ReplicaEffect, ReplicaMeans, ReplicaStart};
use mgp_engine::replication::rules::{KnownServers, foreign_rules};
use mgp_protocol::federation::hello::LifeId;
use mgp_protocol::ids::{AgentId, ServerId};
use mgp_protocol::mgp::access::Permission;

const AGENTS: u64 = 1_000;
const SERVERS: u64 = 20;

fn main() {
    let mut numbers = std::env::args().filter_map(|word| word.parse::<u64>().ok());
    let entries = numbers.next().unwrap_or(100_000).max(1);
    many_nodes(numbers.next().unwrap_or(1_000));
    let revokes = numbers.next().unwrap_or(10).max(2);
    let (admin, owner) = (NodeKey::new(&[1; 32]), NodeKey::new(&[2; 32]));
    let (written, took) =
        timed(|| log(entries, &admin, |sequence| entry(sequence, revokes, &owner)));
    told("signed", entries, took);
    let bytes: usize = written.iter().map(|entry| entry.len()).sum();
    println!("{} bytes an entry", bytes as u64 / entries);
    let founding = Signed::from_bytes(&written[0]).expect("it was written");
    let start = || start(&owner, &founding);
    let before = memory::resident();
    let mut replica = Replica::new(start(), &[]);
    let ((), took) = timed(|| take_all(&mut replica, &written));
    told("verified, taken and told on", entries, took);
    println!(
        "{} bytes of memory an entry",
        (memory::resident() - before) / entries
    );
    println!(
        "{} bytes of them in the logs",
        replica.logs().memory() as u64 / entries
    );
    let (read, took) = timed(|| {
        let read = written.iter();
        read.map(|entry| Signed::from_bytes(entry).expect("it was written"))
            .collect::<Vec<Signed>>()
    });
    told("read from disk", entries, took);
    let (again, took) = timed(|| Replica::new(start(), &read));
    told("started with", entries, took);
    assert!(again.logs() == replica.logs());
    let known = KnownServers {
        names: (0..SERVERS).map(server).collect(),
        ..KnownServers::default()
    };
    let (rules, took) = timed(|| foreign_rules(&again, &known, 0, MonotonicTime::START));
    told("made into rules", entries, took);
    drop(rules);
}

/// Starting with the log that admits so many nodes.
fn many_nodes(nodes: u64) {
    let admin = NodeKey::new(&[1; 32]);
    let key = |n: u64| {
        let mut seed = [5; 32];
        seed[..8].copy_from_slice(&n.to_le_bytes());
        NodeKey::new(&seed).public()
    };
    let written = log(nodes, &admin, |n| {
        LogChange::Members(MemberChange::Admit {
            key: key(n),
            role: MemberRole::Member,
            name: format!("node-{n}"),
        })
    });
    let read = written.iter();
    let read = read.map(|entry| Signed::from_bytes(entry).expect("it was written"));
    let read: Vec<Signed> = read.collect();
    let (replica, took) = timed(|| Replica::new(start(&admin, &read[0]), &read));
    assert_eq!(replica.logs().members().all().count() as u64, nodes);
    told("started with admitted nodes", nodes, took);
}

fn start(here: &NodeKey, founding: &Signed) -> ReplicaStart {
    ReplicaStart {
        here: here.node(),
        cluster: ClusterId(founding.written().id().0),
        life: LifeId([0; 16]),
        lease: LEASE,
        hints: BTreeSet::new(),
        owed: Vec::new(),
        twice: BTreeSet::new(),
    }
}

/// Grants, of which some are taken back.
fn entry(sequence: u64, revokes: u64, owner: &NodeKey) -> LogChange {
    match sequence {
        n if n % revokes == 0 => {
            LogChange::Grants(GrantChange::Revoke(Revoke::Ids(vec![id(n - 1)])))
        }
        n => LogChange::Grants(GrantChange::Grant(grant(n, owner))),
    }
}

/// A log of an admin who founds a cluster first.
fn log(entries: u64, admin: &NodeKey, change: impl Fn(u64) -> LogChange) -> Vec<Arc<[u8]>> {
    let mut written: Vec<Arc<[u8]>> = Vec::new();
    let (mut previous, mut cluster) = (OperationId::START, None);
    for sequence in 0..entries {
        let change = match sequence {
            0 => LogChange::Members(MemberChange::Found {
                key: admin.public(),
                recovery: NodeKey::new(&[9; 32]).public(),
                name: "first".into(),
            }),
            n => change(n),
        };
        let operation = Operation {
            cluster,
            place: LogPosition {
                issuer: admin.node(),
                sequence,
            },
            previous,
            author: "operator".into(),
            told_at_ms: 1_700_000_000_000 + sequence,
            change,
            context: CausalContext::default(),
        };
        let signed = Signed::new(operation, admin);
        previous = signed.written().id();
        cluster = cluster.or(Some(ClusterId(previous.0)));
        written.push(signed.entry());
    }
    written
}

fn id(n: u64) -> GrantId {
    GrantId((u128::from(n) << 64 | 7).to_be_bytes())
}

fn server(n: u64) -> ServerId {
    ServerId::new(format!("server-{n}"))
}

fn grant(n: u64, owner: &NodeKey) -> Grant {
    let agent = AgentId::new(format!("agent.worker{}", n % AGENTS));
    Grant {
        id: id(n),
        subject: Subject::Agent(NodeKey::new(&[3; 32]).node().agent(agent)),
        resource: GrantResource::Tool(
            owner.node().server(server(n % SERVERS)),
            format!("read_file_{}", n % 97),
        ),
        permission: Permission::Allow,
        not_after_ms: None,
        told_by: None,
        justification: None,
        replaces: Vec::new(),
    }
}

/// As a node takes them that was away: in messages, each of them verified, stored and told on.
fn take_all(replica: &mut Replica, entries: &[Arc<[u8]>]) {
    let sign = |_: Operation| unreachable!("this node writes nothing");
    let mut count = 0_u128;
    let mut means = ReplicaMeans {
        now: MonotonicTime::START,
        now_ms: 0,
        nonce: &mut || {
            count += 1;
            Nonce(count.to_le_bytes())
        },
        sign: &sign,
    };
    for part in entries.chunks(BATCH_ENTRIES) {
        let signed = part.iter().map(|entry| Signed::from_bytes(entry));
        let signed: Vec<Signed> = signed.collect::<Result<_, _>>().expect("written above");
        let claims: Vec<_> = signed.iter().filter_map(Signed::claim).collect();
        assert_eq!(first_bad(&claims), None);
        let effects = replica.take(&signed, &mut means);
        for effect in effects {
            if let ReplicaEffect::Store { ticket, .. } = effect {
                replica.stored(ticket, &mut means);
            }
        }
    }
}

fn timed<T>(what: impl FnOnce() -> T) -> (T, Duration) {
    let began = Instant::now();
    let done = what();
    (done, began.elapsed())
}

fn told(what: &str, entries: u64, took: Duration) {
    let each = took.as_secs_f64() * 1e6 / entries as f64;
    println!("{what}: {entries} entries in {took:.2?}, {each:.1} µs each");
}
