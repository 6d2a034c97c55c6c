mod conflicts;
mod stops;

use std::time::Duration;

use mgp_protocol::ids::{AgentId, ServerId};
use mgp_protocol::mgp::access::Permission;

use super::super::lease::DEFAULT_LEASE;
use super::super::log_batch::BATCH_ENTRIES;
use super::super::logs::GRANTS_BYTES_MAX;
use super::super::test_logs::{
    admit_change, cluster_id, cut_change, expiring_at, found_cluster, key, node, revoke_change,
};
use super::*;
use crate::cluster::clock_offset::PeerClock;
use crate::node_key::Signature;
use crate::policy::grants::{
    CausalContext, Grant, GrantChange, GrantId, GrantResource, GrantStatus, LogChange, LogTip,
    MemberRole, Subject,
};

/// Simulated nodes with reliable links, and disks that store at once.
struct Cluster {
    nodes: BTreeMap<u8, Replica>,
    disks: BTreeMap<u8, (Vec<SignedOperation>, Vec<PendingRevoke>)>,
    /// Nodes without links.
    isolated: BTreeSet<u8>,
    /// The leases of nodes that are configured differently.
    leases: BTreeMap<u8, Duration>,
    /// Offsets of wall clocks, in milliseconds.
    clock_offsets: BTreeMap<u8, i64>,
    seconds: u64,
    count: u64,
}

fn sign(n: u8, operation: Operation) -> SignedOperation {
    SignedOperation::with_signature(operation, key(n), |_| Signature([0; 64]))
}

impl Cluster {
    /// Node 0 founds a cluster and admits the others.
    fn new(admins: u8) -> Self {
        let mut cluster = Self {
            nodes: BTreeMap::new(),
            disks: BTreeMap::new(),
            isolated: BTreeSet::new(),
            leases: BTreeMap::new(),
            clock_offsets: BTreeMap::new(),
            seconds: 0,
            count: 0,
        };
        cluster
            .disks
            .insert(0, (vec![found_cluster().0], Vec::new()));
        for n in 0..admins {
            cluster.start(n);
        }
        cluster.tick();
        for n in 1..admins {
            cluster
                .propose(0, admit_change(n, MemberRole::Admin))
                .unwrap();
        }
        cluster.advance(15);
        cluster
    }

    fn start(&mut self, n: u8) {
        self.count += 1;
        let (entries, owed) = self.disks.entry(n).or_default().clone();
        let mut instance = [0; 16];
        instance[..8].copy_from_slice(&self.count.to_le_bytes());
        let start = ReplicaConfig {
            node: node(n),
            cluster: cluster_id(),
            instance: LifeId(instance),
            lease: self.leases.get(&n).copied().unwrap_or(DEFAULT_LEASE),
            hints: BTreeSet::from([node(0)]),
            pending_revokes: owed,
            duplicates: BTreeSet::new(),
        };
        self.nodes.insert(n, Replica::new(start, &entries));
    }

    fn now(&self) -> MonotonicTime {
        MonotonicTime::new(Duration::from_secs(self.seconds))
    }

    fn wall_ms(&self, n: u8) -> u64 {
        let off = self.clock_offsets.get(&n).copied().unwrap_or(0);
        (1_000_000_000 + 1000 * self.seconds).saturating_add_signed(off)
    }

    /// Each node measures the clocks of all others.
    fn measure_clocks(&mut self) {
        for n in self.nodes.keys().copied().collect::<Vec<_>>() {
            for other in self.nodes.keys().copied().collect::<Vec<_>>() {
                let clock = PeerClock::from_clocks(self.wall_ms(other), self.wall_ms(n), 1);
                self.act(n, |replica, cx| {
                    replica.record_clock(node(other), clock, cx)
                });
            }
        }
    }

    /// Advances time, with a tick each second.
    fn advance(&mut self, seconds: u64) {
        for _ in 0..seconds {
            self.seconds += 1;
            self.tick();
        }
    }

    fn tick(&mut self) {
        for n in self.nodes.keys().copied().collect::<Vec<_>>() {
            self.act(n, Replica::handle_timeout);
        }
    }

    fn act(
        &mut self,
        n: u8,
        act: impl FnOnce(&mut Replica, &mut ReplicaContext<'_>) -> Vec<ReplicaEffect>,
    ) {
        let mut count = self.count;
        let mut cx = ReplicaContext {
            now: self.now(),
            now_ms: self.wall_ms(n),
            nonce: &mut || {
                count += 1;
                let mut nonce = [0; 16];
                nonce[..8].copy_from_slice(&count.to_le_bytes());
                Nonce(nonce)
            },
            sign: &|operation| sign(n, operation),
        };
        let effects = act(self.nodes.get_mut(&n).unwrap(), &mut cx);
        self.count = count;
        for effect in effects {
            self.perform(n, effect);
        }
    }

    fn perform(&mut self, n: u8, effect: ReplicaEffect) {
        match effect {
            ReplicaEffect::Store {
                ticket,
                entries,
                pending_revokes: owed,
            } => {
                let disk = self.disks.entry(n).or_default();
                let read = entries
                    .iter()
                    .map(|entry| SignedOperation::from_bytes(entry).unwrap());
                disk.0.extend(read);
                disk.1 = owed.unwrap_or(std::mem::take(&mut disk.1));
                self.act(n, |replica, cx| replica.handle_stored(ticket, cx));
            }
            ReplicaEffect::Send(to, message) => {
                let reached = self.nodes.keys().copied().find(|other| node(*other) == to);
                let is_isolated = |n: &u8| self.isolated.contains(n);
                let Some(to) = reached.filter(|to| !is_isolated(to) && !is_isolated(&n)) else {
                    return;
                };
                if let LogMessage::Entries(entries) = message {
                    let read = entries
                        .iter()
                        .map(|entry| SignedOperation::from_bytes(entry).unwrap());
                    let read: Vec<SignedOperation> = read.collect();
                    self.act(to, |replica, cx| replica.handle_entries(&read, cx));
                } else {
                    self.act(to, |replica, cx| {
                        replica.handle_message(node(n), message, cx)
                    });
                }
            }
            ReplicaEffect::Changed | ReplicaEffect::DuplicateKey(..) => {}
        }
    }

    fn propose(&mut self, n: u8, change: LogChange) -> Result<ProposalOutcome, ProposalError> {
        let mut result = None;
        self.act(n, |replica, cx| {
            let proposed = replica.propose(change, "operator", 0, cx);
            let (proposed, effects) = match proposed {
                Ok((proposed, effects)) => (Ok(proposed), effects),
                Err(refused) => (Err(refused), Vec::new()),
            };
            result = Some(proposed);
            effects
        });
        result.unwrap()
    }

    /// Authorizes the agent of node 1 at the server of node 2.
    fn authorize(&self) -> Result<GrantId, RemoteDenial> {
        let caller = node(1).agent(AgentId::new("a"));
        self.nodes[&2].authorize(
            &caller,
            &ServerId::new("files"),
            Some("read"),
            self.wall_ms(2),
            self.now(),
        )
    }
}

/// Allows the agent of node 1 at the server of node 2.
fn allow(id: u8) -> LogChange {
    grant(id, Permission::Allow)
}

fn grant(id: u8, permission: Permission) -> LogChange {
    LogChange::Grants(GrantChange::Grant(Grant {
        id: GrantId([id; 16]),
        subject: Subject::Agent(node(1).agent(AgentId::new("a"))),
        resource: GrantResource::Server(node(2).server(ServerId::new("files"))),
        permission,
        not_after_ms: None,
        told_by: None,
        justification: None,
        replaces: Vec::new(),
        when: None,
    }))
}

/// PRJ-006: one admin grants, and another one revokes.
#[test]
fn a_grant_and_its_revoke_reach_the_owner() {
    let mut cluster = Cluster::new(3);
    assert_eq!(cluster.authorize(), Err(RemoteDenial::NotGranted));
    cluster.propose(0, allow(1)).unwrap();
    assert_eq!(cluster.authorize(), Ok(GrantId([1; 16])));
    let Ok(ProposalOutcome::Signed(place)) = cluster.propose(1, revoke_change(1)) else {
        panic!("node 1 is an admin");
    };
    assert_eq!(cluster.authorize(), Err(RemoteDenial::NotGranted));
    let confirmation = cluster.nodes[&1].confirmation(place.sequence);
    assert_eq!(
        (
            confirmation.confirmed,
            confirmation.total,
            confirmation.missing.len()
        ),
        (2, 2, 0)
    );
}

/// FED-038.
#[test]
fn an_unreachable_node_stops_allowing_within_its_lease() {
    let mut cluster = Cluster::new(3);
    cluster.propose(0, allow(1)).unwrap();
    cluster.isolated.insert(2);
    let Ok(ProposalOutcome::Signed(place)) = cluster.propose(1, revoke_change(1)) else {
        panic!("node 1 is an admin");
    };
    let confirmation = cluster.nodes[&1].confirmation(place.sequence);
    assert_eq!((confirmation.confirmed, confirmation.total), (1, 2));
    let [(missing, AllowEnd::NoLaterThan(ends))] = confirmation.missing[..] else {
        panic!("{confirmation:?}");
    };
    assert_eq!(missing, node(2));
    assert!(ends <= cluster.now() + DEFAULT_LEASE);
    assert!(cluster.authorize().is_ok());
    cluster.advance(ends.duration_since(cluster.now()).as_secs());
    assert!(matches!(
        cluster.authorize(),
        Err(RemoteDenial::LeaseExpired(_))
    ));
    cluster.isolated.clear();
    cluster.advance(11);
    assert_eq!(cluster.authorize(), Err(RemoteDenial::NotGranted));
}

/// FED-050: other nodes may have revoked grants meanwhile.
#[test]
fn after_a_start_nothing_is_allowed_until_all_revokers_answered() {
    let mut cluster = Cluster::new(3);
    cluster.propose(0, allow(1)).unwrap();
    cluster.start(2);
    assert!(matches!(
        cluster.authorize(),
        Err(RemoteDenial::LeaseExpired(_))
    ));
    cluster.isolated.insert(1);
    cluster.tick();
    assert_eq!(
        cluster.authorize(),
        Err(RemoteDenial::LeaseExpired(node(1)))
    );
    cluster.isolated.clear();
    cluster.advance(11);
    assert!(cluster.authorize().is_ok());
}

/// FED-047: no lease depends on an admin that shut down gracefully, until it answers again.
#[test]
fn no_lease_depends_on_a_node_that_shut_down() {
    let mut cluster = Cluster::new(3);
    cluster.propose(0, allow(1)).unwrap();
    cluster.propose(1, Replica::shutdown_change()).unwrap();
    cluster.isolated.insert(1);
    cluster.advance(120);
    assert!(cluster.authorize().is_ok());
    cluster.isolated.clear();
    cluster.start(1);
    cluster.advance(15);
    assert!(cluster.authorize().is_ok());
    cluster.isolated.insert(1);
    cluster.advance(31);
    assert_eq!(
        cluster.authorize(),
        Err(RemoteDenial::LeaseExpired(node(1)))
    );
}

/// FED-052: only an equal head confirms; revokes are in force at once, survive a restart, and are signed later.
#[test]
fn after_a_start_a_node_signs_nothing_until_its_head_is_confirmed() {
    let mut cluster = Cluster::new(3);
    cluster.propose(2, allow(1)).unwrap();
    cluster.isolated.insert(2);
    cluster.start(2);
    cluster.tick();
    assert_eq!(
        cluster.propose(2, allow(2)),
        Err(ProposalError::NotConfirmed)
    );
    assert_eq!(
        cluster.propose(2, revoke_change(1)),
        Ok(ProposalOutcome::Deferred)
    );
    cluster.start(2);
    assert_eq!(cluster.nodes[&2].pending_revokes(), 1);
    let granted = cluster.nodes[&2]
        .logs()
        .find_grant(GrantId([1; 16]))
        .unwrap();
    assert!(matches!(
        cluster.nodes[&2].grant_status(&granted, 0),
        GrantStatus::Revoked(_)
    ));
    cluster.isolated.clear();
    cluster.advance(11);
    assert!(cluster.nodes[&2].is_confirmed());
    assert_eq!(cluster.nodes[&2].pending_revokes(), 0);
    let elsewhere = &cluster.nodes[&0];
    assert!(matches!(
        elsewhere.grant_status(&granted, 0),
        GrantStatus::Revoked(_)
    ));
    assert!(cluster.propose(2, allow(2)).is_ok());
}

/// Also if the lost entries are its own; its log is not signed on until then.
#[test]
fn a_node_that_lost_entries_denies_other_nodes_until_they_are_restored() {
    let mut cluster = Cluster::new(3);
    cluster.propose(2, allow(1)).unwrap();
    let copy = cluster.disks[&2].clone();
    cluster.propose(2, revoke_change(1)).unwrap();
    let held: Vec<_> = {
        let logs = cluster.nodes[&2].logs();
        let issuers = logs.grants().issuers();
        issuers.map(|it| (it, logs.grants().tip(it))).collect()
    };
    cluster.disks.insert(2, copy);
    cluster.isolated.insert(2);
    cluster.start(2);
    cluster
        .nodes
        .get_mut(&2)
        .unwrap()
        .expect_lost_tips(held.clone());
    assert_eq!(cluster.authorize(), Err(RemoteDenial::LogsIncomplete));
    let lacking: Vec<_> = cluster.nodes[&2].incomplete_logs().collect();
    assert_eq!(lacking, [node(2)]);
    assert_eq!(
        cluster.propose(2, allow(2)),
        Err(ProposalError::NotConfirmed)
    );
    cluster.isolated.clear();
    cluster.advance(11);
    assert!(!cluster.nodes[&2].is_missing_entries());
    assert_eq!(cluster.authorize(), Err(RemoteDenial::NotGranted));
    // A node that is alone confirms itself, but not what it knows to be incomplete.
    let mut single = Cluster::new(1);
    let copy = single.disks[&0].clone();
    single.propose(0, allow(1)).unwrap();
    let tip = single.nodes[&0].logs().grants().tip(node(0));
    single.disks.insert(0, copy);
    single.start(0);
    single
        .nodes
        .get_mut(&0)
        .unwrap()
        .expect_lost_tips([(node(0), tip)]);
    single.advance(60);
    assert_eq!(
        single.propose(0, allow(2)),
        Err(ProposalError::NotConfirmed)
    );
}

/// The equal log of one node is not enough while one with a longer log is unreachable.
#[test]
fn a_restored_node_signs_nothing_until_every_other_node_confirmed_its_log() {
    let mut cluster = Cluster::new(3);
    cluster.propose(2, allow(1)).unwrap();
    let copy = cluster.disks[&2].clone();
    cluster.isolated.insert(1);
    cluster.propose(2, revoke_change(1)).unwrap();
    cluster.disks.insert(2, copy);
    cluster.isolated.clear();
    cluster.isolated.insert(0);
    cluster.start(2);
    cluster
        .nodes
        .get_mut(&2)
        .unwrap()
        .require_restore_confirmation();
    cluster.advance(11);
    assert_eq!(
        cluster.propose(2, allow(4)),
        Err(ProposalError::NotConfirmed)
    );
    cluster.isolated.clear();
    cluster.advance(11);
    cluster.propose(2, allow(4)).unwrap();
    assert!(!cluster.nodes[&0].logs().grants().is_forked(node(2)));
}

/// It does not know what it revoked after the backup.
#[test]
fn a_restored_node_denies_other_nodes_until_its_log_is_confirmed() {
    let mut cluster = Cluster::new(3);
    cluster.propose(2, allow(1)).unwrap();
    let copy = cluster.disks[&2].clone();
    cluster.propose(2, revoke_change(1)).unwrap();
    cluster.disks.insert(2, copy);
    cluster.isolated.insert(2);
    cluster.start(2);
    cluster
        .nodes
        .get_mut(&2)
        .unwrap()
        .require_restore_confirmation();
    assert_eq!(cluster.authorize(), Err(RemoteDenial::LogsIncomplete));
    cluster.isolated.clear();
    cluster.advance(11);
    assert!(!cluster.nodes[&2].is_missing_entries());
    assert_eq!(cluster.authorize(), Err(RemoteDenial::NotGranted));
}

/// FED-041: other nodes complete a restored log, so that it does not fork.
#[test]
fn a_restored_log_is_completed_before_anything_is_signed() {
    let mut cluster = Cluster::new(3);
    cluster.propose(2, allow(1)).unwrap();
    let copy = cluster.disks[&2].clone();
    cluster.propose(2, allow(2)).unwrap();
    cluster.propose(2, allow(3)).unwrap();
    cluster.disks.insert(2, copy);
    cluster.start(2);
    assert_eq!(
        cluster.propose(2, allow(4)),
        Err(ProposalError::NotConfirmed)
    );
    cluster.advance(11);
    assert!(cluster.nodes[&2].is_confirmed());
    assert_eq!(cluster.nodes[&2].logs().grants().tip(node(2)).next, 3);
    cluster.propose(2, allow(4)).unwrap();
    assert!(!cluster.nodes[&0].logs().grants().is_forked(node(2)));
}

/// Nodes that were cut off do not count.
#[test]
fn the_only_member_confirms_itself() {
    let mut cluster = Cluster::new(2);
    cluster.propose(0, cut_change(1, LogTip::EMPTY)).unwrap();
    cluster.nodes.remove(&1);
    cluster.start(0);
    cluster.tick();
    assert!(cluster.propose(0, allow(1)).is_ok());
}

/// FED-053.
#[test]
fn a_clone_and_its_original_are_denied() {
    let mut cluster = Cluster::new(3);
    cluster.propose(0, allow(1)).unwrap();
    let original = cluster.nodes[&1].clone();
    cluster.start(1);
    cluster.advance(11);
    assert!(cluster.authorize().is_ok(), "a restart is no clone");
    // The original never stopped, and answers again.
    let clone = cluster.nodes.insert(1, original).unwrap();
    cluster.advance(11);
    cluster.nodes.insert(1, clone);
    cluster.advance(11);
    assert!(cluster.nodes[&2].has_duplicate_key(node(1)));
    assert_eq!(cluster.authorize(), Err(RemoteDenial::NotMember));
}

/// FED-036.
#[test]
fn both_branches_of_a_fork_are_replicated() {
    let mut cluster = Cluster::new(3);
    cluster.propose(1, allow(1)).unwrap();
    cluster.isolated.insert(2);
    let fork = cluster.nodes[&1].logs().grants().next_position(node(1));
    cluster.propose(1, allow(2)).unwrap();
    let other = sign(
        1,
        Operation {
            cluster: Some(cluster_id()),
            place: crate::policy::grants::LogPosition {
                issuer: node(1),
                sequence: fork.0,
            },
            previous: fork.1,
            author: "operator".into(),
            told_at_ms: 0,
            change: revoke_change(1),
            context: CausalContext::default(),
        },
    );
    cluster.act(2, |replica, cx| replica.handle_entries(&[other], cx));
    cluster.isolated.clear();
    cluster.advance(40);
    for n in [0, 1, 2] {
        let grants = cluster.nodes[&n].logs().grants();
        assert!(grants.is_forked(node(1)), "{n}");
        assert_eq!(cluster.nodes[&n].heads(), cluster.nodes[&0].heads(), "{n}");
    }
    assert_eq!(cluster.propose(1, allow(3)), Err(ProposalError::Forked));
}

#[test]
fn full_logs_accept_only_revokes_and_cuts() {
    let mut cluster = Cluster::new(2);
    cluster.propose(0, allow(1)).unwrap();
    let fill = |cluster: &mut Cluster, bytes| {
        let replica = cluster.nodes.get_mut(&0).unwrap();
        replica.logs.fill_up(bytes);
    };
    fill(&mut cluster, GRANTS_BYTES_MAX - 1);
    cluster.propose(0, allow(2)).unwrap();
    fill(&mut cluster, GRANTS_BYTES_MAX);
    assert_eq!(cluster.propose(0, allow(3)), Err(ProposalError::LogsFull));
    let admitted = cluster.propose(0, admit_change(4, MemberRole::Member));
    assert_eq!(admitted, Err(ProposalError::LogsFull));
    cluster.propose(0, revoke_change(1)).unwrap();
    cluster.propose(0, cut_change(1, LogTip::EMPTY)).unwrap();
}

/// FED-036.
#[test]
fn a_long_log_is_sent_in_batches() {
    let mut cluster = Cluster::new(2);
    cluster.isolated.insert(1);
    for _ in 0..600 {
        cluster.propose(0, revoke_change(9)).unwrap();
    }
    let sender = cluster.nodes[&0].clone();
    let mine = LocalLogs {
        logs: sender.logs(),
        unstored: &UnstoredEntries::new(),
        heads: &sender.heads(),
    };
    let part = build_batch(mine, &cluster.nodes[&1].heads(), None);
    assert_eq!(part.entries.len(), BATCH_ENTRIES);
    cluster.isolated.clear();
    cluster.advance(31);
    assert_eq!(cluster.nodes[&1].heads(), cluster.nodes[&0].heads());
}

/// FEDERATION, clocks: only the clocks of admins count, also if the local clock is set back afterwards.
#[test]
fn allows_expire_early_with_clock_skew() {
    let mut cluster = Cluster::new(3);
    cluster
        .propose(0, admit_change(3, MemberRole::Member))
        .unwrap();
    cluster.start(3);
    cluster.advance(15);
    let end_ms = cluster.wall_ms(2) + 90_000;
    cluster.propose(0, expiring_at(allow(1), end_ms)).unwrap();
    cluster.clock_offsets.insert(3, 3_600_000);
    cluster.measure_clocks();
    cluster.advance(20);
    assert!(cluster.authorize().is_ok());
    cluster.clock_offsets.insert(0, 60_000);
    cluster.measure_clocks();
    assert!(cluster.authorize().is_ok());
    cluster.advance(10);
    assert_eq!(cluster.authorize(), Err(RemoteDenial::NotGranted));
    let owner = &cluster.nodes[&2];
    let granted = owner.logs().find_grant(GrantId([1; 16])).unwrap();
    let force = owner.grant_status(&granted, cluster.wall_ms(2));
    assert_eq!(force, GrantStatus::ExpiredEarly(end_ms));
    cluster.clock_offsets.insert(0, 0);
    cluster.measure_clocks();
    assert!(cluster.authorize().is_ok(), "the clocks are the same again");
    cluster.advance(70);
    assert_eq!(cluster.authorize(), Err(RemoteDenial::NotGranted));
    cluster.clock_offsets.insert(2, -600_000);
    cluster.advance(1);
    assert_eq!(cluster.authorize(), Err(RemoteDenial::NotGranted));
}

/// FEDERATION, clocks: a denial holds until its end by every admin's clock.
#[test]
fn denials_expire_late_with_clock_skew() {
    let mut cluster = Cluster::new(3);
    cluster.propose(1, allow(1)).unwrap();
    let end_ms = cluster.wall_ms(2) + 30_000;
    let denied = expiring_at(grant(2, Permission::Deny), end_ms);
    cluster.propose(0, denied).unwrap();
    cluster.clock_offsets.insert(1, -60_000);
    cluster.measure_clocks();
    cluster.advance(90);
    assert!(matches!(cluster.authorize(), Err(RemoteDenial::Denied(_))));
    cluster.advance(1);
    assert!(cluster.authorize().is_ok());
}

/// MGP-082: announced entries survive a restart.
#[test]
fn entries_are_announced_only_once_stored() {
    let cluster = Cluster::new(2);
    let mut replica = cluster.nodes[&0].clone();
    let before = replica.heads();
    let now = cluster.now();
    let with_context = |act: &mut dyn FnMut(&mut ReplicaContext<'_>) -> Vec<ReplicaEffect>| {
        act(&mut ReplicaContext {
            now,
            now_ms: 0,
            nonce: &mut || Nonce([9; 16]),
            sign: &|operation| sign(0, operation),
        })
    };
    let effects = with_context(&mut |cx| {
        let proposed = replica.propose(allow(1), "operator", 0, cx);
        proposed.unwrap().1
    });
    let [ReplicaEffect::Store { ticket, .. }, ReplicaEffect::Changed] = effects[..] else {
        panic!("{effects:?}");
    };
    assert_eq!(replica.heads(), before);
    let effects = with_context(&mut |cx| replica.handle_stored(ticket, cx));
    assert_ne!(replica.heads(), before);
    let is_announcement = |effect: &ReplicaEffect| matches!(effect, ReplicaEffect::Send(_, LogMessage::Announce { heads, .. }) if *heads != before);
    assert!(effects.iter().any(is_announcement), "{effects:?}");
}

/// FED-019.
#[test]
fn only_admins_write() {
    let mut cluster = Cluster::new(3);
    cluster
        .propose(0, admit_change(3, MemberRole::Member))
        .unwrap();
    cluster.start(3);
    cluster.advance(15);
    assert_eq!(cluster.propose(3, allow(1)), Err(ProposalError::NotAdmin));
    assert_eq!(
        cluster.propose(3, revoke_change(1)),
        Err(ProposalError::NotAdmin)
    );
}
