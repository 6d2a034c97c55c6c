//! What the logs of a cluster cost with many entries: signing, verifying, taking what another node sends, starting
//! with what is on disk, and what of it stays in memory; what starting with many nodes costs; and what a call costs.
//! `cargo bench -p mgp-engine --bench grants [ENTRIES] [NODES] [REVOKES] [PATTERNS]`: one of so many entries takes
//! a grant back, and so many of the grants have patterns

// It measures: this is no engine.
#![allow(clippy::disallowed_methods)]

#[path = "memory/resident.rs"]
mod memory;

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use mgp_engine::clock::MonotonicTime;
use mgp_engine::node_key::{NodeKey, find_invalid_signature};
use mgp_engine::policy::access::{
    DefaultPolicies, EntryEffect, ForeignLease, ForeignRules, GrantTable, Principal, SharedTools,
};
use mgp_engine::policy::grants::{
    Authority, CausalContext, ClusterId, Grant, GrantChange, GrantId, GrantResource, Grants,
    LogChange, LogPosition, MemberChange, MemberRole, Operation, OperationId, Revoke,
    SignedOperation, Subject,
};
use mgp_engine::replication::lease::{DEFAULT_LEASE, Nonce};
use mgp_engine::replication::log_batch::BATCH_ENTRIES;
use mgp_engine::replication::remote_rules::{LocalServers, foreign_rules};
use mgp_engine::replication::replica::{Replica, ReplicaConfig, ReplicaContext, ReplicaEffect};
use mgp_protocol::federation::hello::LifeId;
use mgp_protocol::ids::{AgentId, ServerId};
use mgp_protocol::mgp::access::{DefaultPolicy, Permission};

const AGENTS: u64 = 1_000;
const CALLS: u64 = 1_000_000;
const SERVERS: u64 = 20;

fn main() {
    let mut numbers = std::env::args().filter_map(|word| word.parse::<u64>().ok());
    let entries = numbers.next().unwrap_or(100_000).max(1);
    many_nodes(numbers.next().unwrap_or(1_000));
    let revokes = numbers.next().unwrap_or(10).max(2);
    let patterns = numbers.next().unwrap_or(0);
    let (admin, owner) = (NodeKey::new(&[1; 32]), NodeKey::new(&[2; 32]));
    let (written, took) = timed(|| {
        log(entries, &admin, |sequence| {
            entry(sequence, revokes, patterns, &owner)
        })
    });
    told("signed", entries, took);
    let bytes: usize = written.iter().map(|entry| entry.len()).sum();
    println!("{} bytes an entry", bytes as u64 / entries);
    let founding = SignedOperation::from_bytes(&written[0]).expect("it was written");
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
        replica.logs().memory_bytes() as u64 / entries
    );
    let (read, took) = timed(|| {
        let read = written.iter();
        read.map(|entry| SignedOperation::from_bytes(entry).expect("it was written"))
            .collect::<Vec<SignedOperation>>()
    });
    told("read from disk", entries, took);
    let (again, took) = timed(|| Replica::new(start(), &read));
    told("started with", entries, took);
    assert!(again.logs() == replica.logs());
    let known = LocalServers {
        names: (0..SERVERS).map(server).collect(),
        ..LocalServers::default()
    };
    let (rules, took) = timed(|| foreign_rules(&again, &known, 0, MonotonicTime::START));
    told("made into rules", entries, took);
    drop(rules);
    let (opens, took) = timed(|| calls(&again));
    told("decided, a call each", CALLS, took);
    println!("{opens} of them allowed");
    let (table, callers) = own_grants();
    let (opens, took) = timed(|| count_allowed(&table, &callers));
    told(
        "decided by this node's own grants, a call each",
        CALLS,
        took,
    );
    println!("{opens} of them allowed");
}

/// Grants of this node, and whom they are for: each agent has one tool.
fn own_grants() -> (GrantTable, Vec<Principal>) {
    let here = NodeKey::new(&[3; 32]);
    let mut grants = Grants::default();
    for n in 0..AGENTS {
        let (sequence, previous) = grants.next_position(here.node_id());
        let operation = Operation {
            cluster: None,
            place: LogPosition {
                issuer: here.node_id(),
                sequence,
            },
            previous,
            author: "operator".into(),
            told_at_ms: 0,
            change: LogChange::Grants(GrantChange::Grant(grant(n, &here))),
            context: CausalContext::default(),
        };
        let written = SignedOperation::new(operation, &here);
        grants.apply(written.encoded()).expect("it is the next one");
    }
    let authority = Authority::with_local_issuer(here.node_id());
    let table = GrantTable::build(&grants, &authority, policy(), 0, 1);
    let caller = |n| Principal::Agent(AgentId::new(format!("agent.worker{n}")));
    (table, (0..AGENTS).map(caller).collect())
}

fn policy() -> DefaultPolicies {
    DefaultPolicies {
        kernel: DefaultPolicy::OptIn,
        servers: HashMap::new(),
        group: None,
    }
}

/// How many calls of these agents and different tools are allowed.
fn count_allowed(table: &GrantTable, callers: &[Principal]) -> usize {
    let servers: Vec<ServerId> = (0..SERVERS).map(server).collect();
    let tools: Vec<String> = (0..97).map(|n| format!("read_file_{n}")).collect();
    let calls = (0..CALLS as usize).filter(|n| {
        let (caller, server) = (&callers[n % callers.len()], &servers[n % servers.len()]);
        table.is_allowed(caller, server, Some(&tools[n % tools.len()]), 0)
    });
    calls.count()
}

/// How many calls of different agents and tools are allowed.
fn calls(replica: &Replica) -> usize {
    let home = NodeKey::new(&[3; 32]).node_id();
    let mut shared = SharedTools::default();
    (0..SERVERS).for_each(|n| shared.add(server(n), None, "*"));
    let granted = replica
        .logs()
        .grants()
        .iter()
        .map(|granted| (granted, None, EntryEffect::Whole));
    let lease = ForeignLease::Valid(None);
    let rules = ForeignRules::new([home].into(), shared, lease, granted);
    let (grants, here) = (
        Grants::default(),
        Authority::with_local_issuer(replica.logs().local_node()),
    );
    let table = GrantTable::build(&grants, &here, policy(), 0, 1);
    let table = table.with_foreign(Some(Arc::new(rules)), 2);
    let agents = (0..AGENTS).map(|n| AgentId::new(format!("agent.worker{n}")));
    let callers =
        agents.map(|agent| Principal::Agent(AgentId::from_node_agent(&home.agent(agent))));
    let callers: Vec<Principal> = callers.collect();
    count_allowed(&table, &callers)
}

/// Starting with the log that admits so many nodes.
fn many_nodes(nodes: u64) {
    let admin = NodeKey::new(&[1; 32]);
    let key = |n: u64| {
        let mut seed = [5; 32];
        seed[..8].copy_from_slice(&n.to_le_bytes());
        NodeKey::new(&seed).public_key()
    };
    let written = log(nodes, &admin, |n| {
        LogChange::Members(MemberChange::Admit {
            key: key(n),
            role: MemberRole::Member,
            name: format!("node-{n}"),
        })
    });
    let read = written.iter();
    let read = read.map(|entry| SignedOperation::from_bytes(entry).expect("it was written"));
    let read: Vec<SignedOperation> = read.collect();
    let (replica, took) = timed(|| Replica::new(start(&admin, &read[0]), &read));
    assert_eq!(replica.logs().members().iter().count() as u64, nodes);
    told("started with admitted nodes", nodes, took);
}

fn start(here: &NodeKey, founding: &SignedOperation) -> ReplicaConfig {
    ReplicaConfig {
        node: here.node_id(),
        cluster: ClusterId(founding.encoded().id().0),
        instance: LifeId([0; 16]),
        lease: DEFAULT_LEASE,
        hints: BTreeSet::new(),
        pending_revokes: Vec::new(),
        duplicates: BTreeSet::new(),
    }
}

/// Grants, of which some are taken back.
fn entry(sequence: u64, revokes: u64, patterns: u64, owner: &NodeKey) -> LogChange {
    match sequence {
        n if n % revokes == 0 => {
            LogChange::Grants(GrantChange::Revoke(Revoke::Ids(vec![id(n - 1)])))
        }
        n if n <= patterns => LogChange::Grants(GrantChange::Grant(pattern(n, owner))),
        n => LogChange::Grants(GrantChange::Grant(grant(n, owner))),
    }
}

/// One for all agents of a node, or for those of one name, and several tools.
fn pattern(n: u64, owner: &NodeKey) -> Grant {
    let single = grant(n, owner);
    let tools = format!("read_file_{}*", n % 97).try_into();
    let on = owner.node_id().server(server(n % SERVERS));
    Grant {
        subject: if n.is_multiple_of(2) {
            Subject::AgentEverywhere(AgentId::new(format!("agent.worker{}", n % AGENTS)))
        } else {
            Subject::AgentsAt(NodeKey::new(&[3; 32]).node_id())
        },
        resource: GrantResource::Tools(on, tools.expect("a pattern")),
        ..single
    }
}

/// A log of an admin who founds a cluster first.
fn log(entries: u64, admin: &NodeKey, change: impl Fn(u64) -> LogChange) -> Vec<Arc<[u8]>> {
    let mut written: Vec<Arc<[u8]>> = Vec::new();
    let (mut previous, mut cluster) = (OperationId::START, None);
    for sequence in 0..entries {
        let change = match sequence {
            0 => LogChange::Members(MemberChange::Found {
                key: admin.public_key(),
                recovery: NodeKey::new(&[9; 32]).public_key(),
                name: "first".into(),
            }),
            n => change(n),
        };
        let operation = Operation {
            cluster,
            place: LogPosition {
                issuer: admin.node_id(),
                sequence,
            },
            previous,
            author: "operator".into(),
            told_at_ms: 1_700_000_000_000 + sequence,
            change,
            context: CausalContext::default(),
        };
        let signed = SignedOperation::new(operation, admin);
        previous = signed.encoded().id();
        cluster = cluster.or(Some(ClusterId(previous.0)));
        written.push(signed.entry_bytes());
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
        subject: Subject::Agent(NodeKey::new(&[3; 32]).node_id().agent(agent)),
        resource: GrantResource::Tool(
            owner.node_id().server(server(n % SERVERS)),
            format!("read_file_{}", n % 97),
        ),
        permission: Permission::Allow,
        not_after_ms: None,
        told_by: None,
        justification: None,
        replaces: Vec::new(),
        when: None,
    }
}

/// As a node takes them that was away: in messages, each of them verified, stored and told on.
fn take_all(replica: &mut Replica, entries: &[Arc<[u8]>]) {
    let sign = |_: Operation| unreachable!("this node writes nothing");
    let mut count = 0_u128;
    let mut means = ReplicaContext {
        now: MonotonicTime::START,
        now_ms: 0,
        nonce: &mut || {
            count += 1;
            Nonce(count.to_le_bytes())
        },
        sign: &sign,
    };
    for part in entries.chunks(BATCH_ENTRIES) {
        let signed = part.iter().map(|entry| SignedOperation::from_bytes(entry));
        let signed: Vec<SignedOperation> = signed.collect::<Result<_, _>>().expect("written above");
        let claims: Vec<_> = signed
            .iter()
            .filter_map(SignedOperation::signature_claim)
            .collect();
        assert_eq!(find_invalid_signature(&claims), None);
        let effects = replica.handle_entries(&signed, &mut means);
        for effect in effects {
            if let ReplicaEffect::Store { ticket, .. } = effect {
                replica.handle_stored(ticket, &mut means);
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
