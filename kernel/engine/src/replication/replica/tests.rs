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

/// Nodes over links that lose nothing, and disks that confirm at once.
struct Scene {
    nodes: BTreeMap<u8, Replica>,
    disks: BTreeMap<u8, (Vec<SignedOperation>, Vec<PendingRevoke>)>,
    /// Nodes that reach nobody.
    apart: BTreeSet<u8>,
    /// The leases of nodes that are configured differently.
    leases: BTreeMap<u8, Duration>,
    /// How far wall clocks are off.
    walls: BTreeMap<u8, i64>,
    seconds: u64,
    count: u64,
}

fn sign(n: u8, operation: Operation) -> SignedOperation {
    SignedOperation::with_signature(operation, key(n), |_| Signature([0; 64]))
}

impl Scene {
    /// Node 0 founds a cluster and admits the others.
    fn new(admins: u8) -> Self {
        let mut scene = Self {
            nodes: BTreeMap::new(),
            disks: BTreeMap::new(),
            apart: BTreeSet::new(),
            leases: BTreeMap::new(),
            walls: BTreeMap::new(),
            seconds: 0,
            count: 0,
        };
        scene.disks.insert(0, (vec![found_cluster().0], Vec::new()));
        for n in 0..admins {
            scene.start(n);
        }
        scene.tick();
        for n in 1..admins {
            scene
                .propose(0, admit_change(n, MemberRole::Admin))
                .unwrap();
        }
        scene.pass(15);
        scene
    }

    fn start(&mut self, n: u8) {
        self.count += 1;
        let (entries, owed) = self.disks.entry(n).or_default().clone();
        let mut life = [0; 16];
        life[..8].copy_from_slice(&self.count.to_le_bytes());
        let start = ReplicaConfig {
            node: node(n),
            cluster: cluster_id(),
            instance: LifeId(life),
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
        let off = self.walls.get(&n).copied().unwrap_or(0);
        (1_000_000_000 + 1000 * self.seconds).saturating_add_signed(off)
    }

    /// Everybody measures the clocks of all others.
    fn measure_clocks(&mut self) {
        for n in self.nodes.keys().copied().collect::<Vec<_>>() {
            for other in self.nodes.keys().copied().collect::<Vec<_>>() {
                let clock = PeerClock::from_clocks(self.wall_ms(other), self.wall_ms(n), 1);
                self.act(n, |replica, means| {
                    replica.record_clock(node(other), clock, means)
                });
            }
        }
    }

    /// Time passes, with a tick a second.
    fn pass(&mut self, seconds: u64) {
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
        let mut means = ReplicaContext {
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
        let effects = act(self.nodes.get_mut(&n).unwrap(), &mut means);
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
                self.act(n, |replica, means| replica.handle_stored(ticket, means));
            }
            ReplicaEffect::Send(to, message) => {
                let reached = self.nodes.keys().copied().find(|other| node(*other) == to);
                let apart = |n: &u8| self.apart.contains(n);
                let Some(to) = reached.filter(|to| !apart(to) && !apart(&n)) else {
                    return;
                };
                if let LogMessage::Entries(entries) = message {
                    let read = entries
                        .iter()
                        .map(|entry| SignedOperation::from_bytes(entry).unwrap());
                    let read: Vec<SignedOperation> = read.collect();
                    self.act(to, |replica, means| replica.handle_entries(&read, means));
                } else {
                    self.act(to, |replica, means| {
                        replica.handle_message(node(n), message, means)
                    });
                }
            }
            ReplicaEffect::Changed | ReplicaEffect::DuplicateKey(..) => {}
        }
    }

    fn propose(&mut self, n: u8, change: LogChange) -> Result<ProposalOutcome, ProposalError> {
        let mut told = None;
        self.act(n, |replica, means| {
            let proposed = replica.propose(change, "operator", 0, means);
            let (proposed, effects) = match proposed {
                Ok((proposed, effects)) => (Ok(proposed), effects),
                Err(refused) => (Err(refused), Vec::new()),
            };
            told = Some(proposed);
            effects
        });
        told.unwrap()
    }

    /// Whether the agent of node 1 may use the server of node 2.
    fn may(&self) -> Result<GrantId, RemoteDenial> {
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

/// Lets the agent of node 1 use the server of node 2.
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
    }))
}

/// PRJ-006: what one admin grants holds at the owner, and what another one revokes is gone there.
#[test]
fn a_grant_reaches_the_owner_and_so_does_its_revocation() {
    let mut scene = Scene::new(3);
    assert_eq!(scene.may(), Err(RemoteDenial::NotGranted));
    scene.propose(0, allow(1)).unwrap();
    assert_eq!(scene.may(), Ok(GrantId([1; 16])));
    let Ok(ProposalOutcome::Signed(place)) = scene.propose(1, revoke_change(1)) else {
        panic!("node 1 is an admin");
    };
    assert_eq!(scene.may(), Err(RemoteDenial::NotGranted));
    let told = scene.nodes[&1].confirmation(place.sequence);
    assert_eq!((told.confirmed, told.total, told.missing.len()), (2, 2, 0));
}

/// FED-038: "2/3; nas unreachable, stops by itself in 30 s or less", and it does.
#[test]
fn who_cannot_be_reached_stops_by_itself() {
    let mut scene = Scene::new(3);
    scene.propose(0, allow(1)).unwrap();
    scene.apart.insert(2);
    let Ok(ProposalOutcome::Signed(place)) = scene.propose(1, revoke_change(1)) else {
        panic!("node 1 is an admin");
    };
    let told = scene.nodes[&1].confirmation(place.sequence);
    assert_eq!((told.confirmed, told.total), (1, 2));
    let [(missing, AllowEnd::NoLaterThan(ends))] = told.missing[..] else {
        panic!("{told:?}");
    };
    assert_eq!(missing, node(2));
    assert!(ends <= scene.now() + DEFAULT_LEASE);
    assert!(scene.may().is_ok());
    scene.pass(ends.duration_since(scene.now()).as_secs());
    assert!(matches!(scene.may(), Err(RemoteDenial::LeaseExpired(_))));
    scene.apart.clear();
    scene.pass(11);
    assert_eq!(scene.may(), Err(RemoteDenial::NotGranted));
}

/// FED-050: a restart begins unconfirmed: what others could have revoked meanwhile is not known.
#[test]
fn after_a_start_nothing_is_allowed_until_everyone_was_heard() {
    let mut scene = Scene::new(3);
    scene.propose(0, allow(1)).unwrap();
    scene.start(2);
    assert!(matches!(scene.may(), Err(RemoteDenial::LeaseExpired(_))));
    scene.apart.insert(1);
    scene.tick();
    assert_eq!(scene.may(), Err(RemoteDenial::LeaseExpired(node(1))));
    scene.apart.clear();
    scene.pass(11);
    assert!(scene.may().is_ok());
}

/// FED-047: an admin that stops in good order owes nobody a word; once it is heard again, it does.
#[test]
fn who_rests_is_not_waited_for() {
    let mut scene = Scene::new(3);
    scene.propose(0, allow(1)).unwrap();
    scene.propose(1, Replica::shutdown_change()).unwrap();
    scene.apart.insert(1);
    scene.pass(120);
    assert!(scene.may().is_ok());
    scene.apart.clear();
    scene.start(1);
    scene.pass(15);
    assert!(scene.may().is_ok());
    scene.apart.insert(1);
    scene.pass(31);
    assert_eq!(scene.may(), Err(RemoteDenial::LeaseExpired(node(1))));
}

/// FED-052: only the equal head of another node confirms; what is revoked meanwhile counts at
/// once, is not forgotten by a restart, and is signed then.
#[test]
fn after_a_start_a_node_signs_nothing_until_another_one_has_its_head() {
    let mut scene = Scene::new(3);
    scene.propose(2, allow(1)).unwrap();
    scene.apart.insert(2);
    scene.start(2);
    scene.tick();
    assert_eq!(scene.propose(2, allow(2)), Err(ProposalError::NotConfirmed));
    assert_eq!(
        scene.propose(2, revoke_change(1)),
        Ok(ProposalOutcome::Deferred)
    );
    scene.start(2);
    assert_eq!(scene.nodes[&2].pending_revokes(), 1);
    let granted = scene.nodes[&2].logs().find_grant(GrantId([1; 16])).unwrap();
    assert!(matches!(
        scene.nodes[&2].grant_status(&granted, 0),
        GrantStatus::Revoked(_)
    ));
    scene.apart.clear();
    scene.pass(11);
    assert!(scene.nodes[&2].is_confirmed());
    assert_eq!(scene.nodes[&2].pending_revokes(), 0);
    let elsewhere = &scene.nodes[&0];
    assert!(matches!(
        elsewhere.grant_status(&granted, 0),
        GrantStatus::Revoked(_)
    ));
    assert!(scene.propose(2, allow(2)).is_ok());
}

/// What a node had on its disk and lacks closes it to agents of other nodes, also where the entry was its own and
/// nobody else could have written it; others bring it back, and until then its own log is not signed on.
#[test]
fn a_log_that_lacks_what_its_disk_held_lets_nobody_in_until_it_is_refilled() {
    let mut scene = Scene::new(3);
    scene.propose(2, allow(1)).unwrap();
    let copy = scene.disks[&2].clone();
    scene.propose(2, revoke_change(1)).unwrap();
    let held: Vec<_> = {
        let logs = scene.nodes[&2].logs();
        let issuers = logs.grants().issuers();
        issuers.map(|it| (it, logs.grants().tip(it))).collect()
    };
    scene.disks.insert(2, copy);
    scene.apart.insert(2);
    scene.start(2);
    scene
        .nodes
        .get_mut(&2)
        .unwrap()
        .expect_lost_tips(held.clone());
    assert_eq!(scene.may(), Err(RemoteDenial::LogsIncomplete));
    let lacking: Vec<_> = scene.nodes[&2].incomplete_logs().collect();
    assert_eq!(lacking, [node(2)]);
    assert_eq!(scene.propose(2, allow(2)), Err(ProposalError::NotConfirmed));
    scene.apart.clear();
    scene.pass(11);
    assert!(!scene.nodes[&2].is_missing_entries());
    assert_eq!(scene.may(), Err(RemoteDenial::NotGranted));
    // A node that is alone confirms itself, but not what it knows to be incomplete.
    let mut alone = Scene::new(1);
    let copy = alone.disks[&0].clone();
    alone.propose(0, allow(1)).unwrap();
    let tip = alone.nodes[&0].logs().grants().tip(node(0));
    alone.disks.insert(0, copy);
    alone.start(0);
    alone
        .nodes
        .get_mut(&0)
        .unwrap()
        .expect_lost_tips([(node(0), tip)]);
    alone.pass(60);
    assert_eq!(alone.propose(0, allow(2)), Err(ProposalError::NotConfirmed));
}

/// Of two other nodes the one that holds more is away: the other one's equal log confirms nothing after a restore.
#[test]
fn a_restored_node_signs_nothing_until_every_other_node_confirmed_its_log() {
    let mut scene = Scene::new(3);
    scene.propose(2, allow(1)).unwrap();
    let copy = scene.disks[&2].clone();
    scene.apart.insert(1);
    scene.propose(2, revoke_change(1)).unwrap();
    scene.disks.insert(2, copy);
    scene.apart.clear();
    scene.apart.insert(0);
    scene.start(2);
    scene
        .nodes
        .get_mut(&2)
        .unwrap()
        .require_restore_confirmation();
    scene.pass(11);
    assert_eq!(scene.propose(2, allow(4)), Err(ProposalError::NotConfirmed));
    scene.apart.clear();
    scene.pass(11);
    scene.propose(2, allow(4)).unwrap();
    assert!(!scene.nodes[&0].logs().grants().is_forked(node(2)));
}

/// A node whose disk was put back from a copy does not know what it revoked since: it lets nobody in before others
/// have confirmed its log.
#[test]
fn a_restored_node_lets_nobody_in_until_its_log_is_confirmed() {
    let mut scene = Scene::new(3);
    scene.propose(2, allow(1)).unwrap();
    let copy = scene.disks[&2].clone();
    scene.propose(2, revoke_change(1)).unwrap();
    scene.disks.insert(2, copy);
    scene.apart.insert(2);
    scene.start(2);
    scene
        .nodes
        .get_mut(&2)
        .unwrap()
        .require_restore_confirmation();
    assert_eq!(scene.may(), Err(RemoteDenial::LogsIncomplete));
    scene.apart.clear();
    scene.pass(11);
    assert!(!scene.nodes[&2].is_missing_entries());
    assert_eq!(scene.may(), Err(RemoteDenial::NotGranted));
}

/// FED-041: a log that was put back from a copy is refilled by those who hold more of it, and does not fork.
#[test]
fn a_shorter_log_is_refilled_before_anything_is_signed() {
    let mut scene = Scene::new(3);
    scene.propose(2, allow(1)).unwrap();
    let copy = scene.disks[&2].clone();
    scene.propose(2, allow(2)).unwrap();
    scene.propose(2, allow(3)).unwrap();
    scene.disks.insert(2, copy);
    scene.start(2);
    assert_eq!(scene.propose(2, allow(4)), Err(ProposalError::NotConfirmed));
    scene.pass(11);
    assert!(scene.nodes[&2].is_confirmed());
    assert_eq!(scene.nodes[&2].logs().grants().tip(node(2)).next, 3);
    scene.propose(2, allow(4)).unwrap();
    assert!(!scene.nodes[&0].logs().grants().is_forked(node(2)));
}

/// Who is alone needs nobody: those who were cut off do not count.
#[test]
fn a_node_whose_others_are_gone_is_confirmed() {
    let mut scene = Scene::new(2);
    scene.propose(0, cut_change(1, LogTip::EMPTY)).unwrap();
    scene.nodes.remove(&1);
    scene.start(0);
    scene.tick();
    assert!(scene.propose(0, allow(1)).is_ok());
}

/// FED-053: two lives of one key are both cut off.
#[test]
fn a_clone_and_its_original_are_not_believed() {
    let mut scene = Scene::new(3);
    scene.propose(0, allow(1)).unwrap();
    let original = scene.nodes[&1].clone();
    scene.start(1);
    scene.pass(11);
    assert!(scene.may().is_ok(), "a restart is none");
    // The original never stopped: it is heard again, and answers.
    let clone = scene.nodes.insert(1, original).unwrap();
    scene.pass(11);
    scene.nodes.insert(1, clone);
    scene.pass(11);
    assert!(scene.nodes[&2].has_duplicate_key(node(1)));
    assert_eq!(scene.may(), Err(RemoteDenial::NotMember));
}

/// FED-036: what is held behind a fork reaches those who came later, too.
#[test]
fn both_branches_of_a_fork_are_sent_on() {
    let mut scene = Scene::new(3);
    scene.propose(1, allow(1)).unwrap();
    scene.apart.insert(2);
    let fork = scene.nodes[&1].logs().grants().next_position(node(1));
    scene.propose(1, allow(2)).unwrap();
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
    scene.act(2, |replica, means| replica.handle_entries(&[other], means));
    scene.apart.clear();
    scene.pass(40);
    for n in [0, 1, 2] {
        let grants = scene.nodes[&n].logs().grants();
        assert!(grants.is_forked(node(1)), "{n}");
        assert_eq!(scene.nodes[&n].heads(), scene.nodes[&0].heads(), "{n}");
    }
    assert_eq!(scene.propose(1, allow(3)), Err(ProposalError::Forked));
}

/// The file has an end, and what takes away still fits when nothing else does.
#[test]
fn full_logs_take_only_what_takes_away() {
    let mut scene = Scene::new(2);
    scene.propose(0, allow(1)).unwrap();
    let fill = |scene: &mut Scene, bytes| {
        let replica = scene.nodes.get_mut(&0).unwrap();
        replica.logs.fill_up(bytes);
    };
    fill(&mut scene, GRANTS_BYTES_MAX - 1);
    scene.propose(0, allow(2)).unwrap();
    fill(&mut scene, GRANTS_BYTES_MAX);
    assert_eq!(scene.propose(0, allow(3)), Err(ProposalError::LogsFull));
    let admitted = scene.propose(0, admit_change(4, MemberRole::Member));
    assert_eq!(admitted, Err(ProposalError::LogsFull));
    scene.propose(0, revoke_change(1)).unwrap();
    scene.propose(0, cut_change(1, LogTip::EMPTY)).unwrap();
}

/// FED-036: what is sent at once is bounded, and goes on where it ended.
#[test]
fn a_long_log_is_sent_in_parts() {
    let mut scene = Scene::new(2);
    scene.apart.insert(1);
    for _ in 0..600 {
        scene.propose(0, revoke_change(9)).unwrap();
    }
    let told = scene.nodes[&0].clone();
    let mine = LocalLogs {
        logs: told.logs(),
        unstored: &UnstoredEntries::new(),
        heads: &told.heads(),
    };
    let part = build_batch(mine, &scene.nodes[&1].heads(), None);
    assert_eq!(part.entries.len(), BATCH_ENTRIES);
    scene.apart.clear();
    scene.pass(31);
    assert_eq!(scene.nodes[&1].heads(), scene.nodes[&0].heads());
}

/// FEDERATION, clocks: an admin's clock that is ahead ends what is allowed, also where the one here is set back
/// afterwards; that of a node that is none ends nothing.
#[test]
fn what_is_allowed_ends_early_where_clocks_differ() {
    let mut scene = Scene::new(3);
    scene
        .propose(0, admit_change(3, MemberRole::Member))
        .unwrap();
    scene.start(3);
    scene.pass(15);
    let end_ms = scene.wall_ms(2) + 90_000;
    scene.propose(0, expiring_at(allow(1), end_ms)).unwrap();
    scene.walls.insert(3, 3_600_000);
    scene.measure_clocks();
    scene.pass(20);
    assert!(scene.may().is_ok());
    scene.walls.insert(0, 60_000);
    scene.measure_clocks();
    assert!(scene.may().is_ok());
    scene.pass(10);
    assert_eq!(scene.may(), Err(RemoteDenial::NotGranted));
    let owner = &scene.nodes[&2];
    let granted = owner.logs().find_grant(GrantId([1; 16])).unwrap();
    let force = owner.grant_status(&granted, scene.wall_ms(2));
    assert_eq!(force, GrantStatus::ExpiredEarly(end_ms));
    scene.walls.insert(0, 0);
    scene.measure_clocks();
    assert!(scene.may().is_ok(), "the clocks are the same again");
    scene.pass(70);
    assert_eq!(scene.may(), Err(RemoteDenial::NotGranted));
    scene.walls.insert(2, -600_000);
    scene.pass(1);
    assert_eq!(scene.may(), Err(RemoteDenial::NotGranted));
}

/// FEDERATION, clocks: what is denied holds until its end has come by every admin's clock.
#[test]
fn what_is_denied_ends_late_where_clocks_differ() {
    let mut scene = Scene::new(3);
    scene.propose(1, allow(1)).unwrap();
    let end_ms = scene.wall_ms(2) + 30_000;
    let denied = expiring_at(grant(2, Permission::Deny), end_ms);
    scene.propose(0, denied).unwrap();
    scene.walls.insert(1, -60_000);
    scene.measure_clocks();
    scene.pass(90);
    assert!(matches!(scene.may(), Err(RemoteDenial::Denied(_))));
    scene.pass(1);
    assert!(scene.may().is_ok());
}

/// MGP-082: what others count as held by this node outlasts its restart.
#[test]
fn what_is_not_on_disk_is_not_said_to_be_held() {
    let scene = Scene::new(2);
    let mut replica = scene.nodes[&0].clone();
    let before = replica.heads();
    let now = scene.now();
    let with_means = |act: &mut dyn FnMut(&mut ReplicaContext<'_>) -> Vec<ReplicaEffect>| {
        act(&mut ReplicaContext {
            now,
            now_ms: 0,
            nonce: &mut || Nonce([9; 16]),
            sign: &|operation| sign(0, operation),
        })
    };
    let effects = with_means(&mut |means| {
        let proposed = replica.propose(allow(1), "operator", 0, means);
        proposed.unwrap().1
    });
    let [ReplicaEffect::Store { ticket, .. }, ReplicaEffect::Changed] = effects[..] else {
        panic!("{effects:?}");
    };
    assert_eq!(replica.heads(), before);
    let told = with_means(&mut |means| replica.handle_stored(ticket, means));
    assert_ne!(replica.heads(), before);
    let tells = |effect: &ReplicaEffect| matches!(effect, ReplicaEffect::Send(_, LogMessage::Announce { heads, .. }) if *heads != before);
    assert!(told.iter().any(tells), "{told:?}");
}

/// FED-019: who is no admin writes nothing.
#[test]
fn only_admins_write() {
    let mut scene = Scene::new(3);
    scene
        .propose(0, admit_change(3, MemberRole::Member))
        .unwrap();
    scene.start(3);
    scene.pass(15);
    assert_eq!(scene.propose(3, allow(1)), Err(ProposalError::NotAdmin));
    assert_eq!(
        scene.propose(3, revoke_change(1)),
        Err(ProposalError::NotAdmin)
    );
}
