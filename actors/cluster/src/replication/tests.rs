mod long_log;
mod lost_entries;
mod scene;

use std::fs;
use std::time::Duration;

use mgp_engine::policy::grants::{
    CausalContext, Grant, GrantChange, GrantId, GrantResource, LogChange, LogPosition, MemberRole,
    Operation, Revoke, SignedOperation, Subject,
};
use mgp_protocol::federation::logs::LogEntries;
use mgp_protocol::federation::tool_index::RecordBytes;
use mgp_protocol::ids::{AgentId, NodeId, ServerId};
use mgp_protocol::mgp::access::Permission;

use self::scene::{Scene, by, name};
use super::*;

fn id(n: u8) -> GrantId {
    GrantId([n; 16])
}

/// A grant of agent `a` of one node for a server of another one.
fn grant(n: u8, node: NodeId, owner: NodeId, permission: Permission) -> LogChange {
    LogChange::Grants(GrantChange::Grant(Grant {
        id: id(n),
        subject: Subject::Agent(node.agent(AgentId::new("agent.a"))),
        resource: GrantResource::Server(owner.server(ServerId::new("files"))),
        permission,
        not_after_ms: None,
        told_by: None,
        justification: None,
        replaces: Vec::new(),
        when: None,
    }))
}

fn revoke(n: u8) -> LogChange {
    LogChange::Grants(GrantChange::Revoke(Revoke::Ids(vec![id(n)])))
}

impl Scene {
    async fn write(&self, n: u8, change: LogChange) -> Result<ProposedChanges, Refusal> {
        let changes = vec![change];
        self.handle(n).propose(by(), |_| Ok(changes)).await
    }

    /// Waits until the node has its own log up to this number again.
    async fn wait_for_own_log(&self, n: u8, number: u64) {
        let node = self.node(n);
        for _ in 0..2000 {
            let handle = self.handle(n);
            let next = handle.read_logs(move |records| {
                let grants = records.unwrap().replica.logs().grants();
                grants.tip(node).next
            });
            if next.await.unwrap() > number {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("{number} does not come back");
    }

    /// Node 0 owns the server; node 1 grants it to its agent `a`.
    async fn granted() -> Self {
        let mut scene = Scene::with_cluster(2).await;
        scene.share(0).await;
        scene.confirmed(1).await;
        let allow = grant(1, scene.node(1), scene.node(0), Permission::Allow);
        scene.write(1, allow).await.unwrap();
        scene
            .wait_until("the grant is here", |scene| scene.is_granted(0, 1))
            .await;
        scene
    }
}

#[tokio::test]
async fn lone_founder_continues_after_a_restart() {
    let mut scene = Scene::new(1).await;
    assert_eq!(scene.view(0).cluster, None);
    assert!(scene.write(0, revoke(1)).await.is_err(), "in no cluster");
    let founded = scene.handle(0).found_cluster(name(0), by()).await.unwrap();
    let view = scene.view(0);
    assert_eq!(view.cluster, Some(founded.cluster));
    assert_eq!(
        (view.role, view.is_confirmed),
        (Some(MemberRole::Admin), true)
    );
    assert!(scene.handle(0).found_cluster(name(0), by()).await.is_err());
    let proposed = scene.write(0, revoke(1)).await.unwrap();
    assert_eq!(proposed.number, Some(1));
    scene.restart(0).await;
    let view = scene.view(0);
    assert_eq!(view.cluster, Some(founded.cluster));
    assert!(view.is_confirmed && view.members.len() == 1);
    assert_eq!(scene.write(0, revoke(2)).await.unwrap().number, Some(2));
}

/// FED-037: any admin's grant reaches the owner of the server, and a revocation is pushed there.
#[tokio::test]
async fn grant_and_revocation_reach_the_owner() {
    let scene = Scene::granted().await;
    assert!(
        !scene.is_granted(1, 0),
        "the other way round nothing was granted"
    );
    let proposed = scene.write(1, revoke(1)).await.unwrap();
    let mut confirmed = scene
        .handle(1)
        .watch_confirmations(proposed.number.unwrap())
        .await
        .unwrap();
    let all = confirmed.wait_for(|now| now.confirmed == 1 && now.missing.is_empty());
    let all = tokio::time::timeout(Duration::from_secs(20), all).await;
    assert_eq!(all.unwrap().unwrap().total, 1);
    scene
        .wait_until("it is closed", |scene| !scene.is_granted(0, 1))
        .await;
    let files = ServerId::new("files");
    let caller = scene.node(1).agent(AgentId::new("agent.a"));
    let result = scene.handle(0).explain(caller, files, None).await.unwrap();
    assert_eq!(result.permission, Permission::Deny);
    let taken_back = |line: &String| line.contains("taken back by node");
    assert!(result.considered.iter().any(taken_back), "{result:?}");
}

/// FED-038, FED-039, FED-048: only the rights of other nodes' agents end, and they return.
#[tokio::test]
async fn expired_lease_suspends_only_grants_of_other_nodes_agents() {
    let mut scene = Scene::granted().await;
    scene.unlink(1);
    assert_eq!(scene.view(0).next_silent, None);
    scene.advance(29).await;
    assert!(scene.is_granted(0, 1));
    let (_, silent) = scene.view(0).next_silent.expect("it is said before");
    assert_eq!(silent, scene.node(1));
    scene.advance(31).await;
    scene
        .wait_until("it has lapsed", |scene| !scene.is_granted(0, 1))
        .await;
    assert_eq!(scene.view(0).silent_node, Some(scene.node(1)));
    assert_eq!(scene.view(0).next_silent, None, "it has happened");
    assert!(scene.is_granted_locally(0), "its own agents go on");
    scene.link_all(1);
    scene
        .wait_until("it is back", |scene| scene.is_granted(0, 1))
        .await;
    let deny = grant(2, scene.node(1), scene.node(0), Permission::Deny);
    scene.write(1, deny).await.unwrap();
    scene
        .wait_until("it is denied", |scene| !scene.is_granted(0, 1))
        .await;
}

/// FED-047: a node that was shut down gracefully is not waited for.
#[tokio::test]
async fn retired_node_is_not_waited_for() {
    let mut scene = Scene::granted().await;
    scene.handle(1).retire(by()).await;
    let resting = |scene: &Scene| {
        let view = scene.view(0);
        view.members[&scene.node(1)].status == MemberStatus::Retired
    };
    scene.wait_until("it rests", resting).await;
    scene.unlink(1);
    scene.advance(300).await;
    assert_eq!(scene.view(0).silent_node, None);
    assert!(scene.is_granted(0, 1));
}

/// FED-047: an owner records that an admin is back, and waits for it after a restart of its own.
#[tokio::test]
async fn returned_admin_is_waited_for_after_owner_restart() {
    let mut scene = Scene::granted().await;
    let status = |scene: &Scene| scene.view(0).members[&scene.node(1)].status;
    scene.handle(1).retire(by()).await;
    let resting = |scene: &Scene| status(scene) == MemberStatus::Retired;
    scene.wait_until("it rests", resting).await;
    scene.restart(1).await;
    scene.link_all(1);
    let back = |scene: &Scene| status(scene) == MemberStatus::Active;
    scene.wait_until("it is back", back).await;
    scene
        .wait_until("it may call", |scene| scene.is_granted(0, 1))
        .await;
    scene.unlink(1);
    scene.restart(0).await;
    scene.advance(5).await;
    assert_eq!(scene.view(0).silent_node, Some(scene.node(1)));
    assert!(!scene.is_granted(0, 1));
}

/// FEDERATION, restored: a shorter log is refilled before anything is signed.
#[tokio::test]
async fn restored_log_is_refilled_by_other_nodes() {
    let mut scene = Scene::granted().await;
    let copy = scene.copy(1);
    let second = grant(2, scene.node(1), scene.node(0), Permission::Allow);
    let proposed = scene.write(1, second).await.unwrap();
    let mut result = scene
        .handle(1)
        .watch_confirmations(proposed.number.unwrap())
        .await
        .unwrap();
    result.wait_for(|now| now.confirmed == 1).await.unwrap();
    scene.stop(1).await;
    scene.restore(1, &copy);
    scene.start(1).await;
    let third = grant(3, scene.node(1), scene.node(0), Permission::Allow);
    assert!(
        scene.write(1, third.clone()).await.is_err(),
        "nobody confirmed its log"
    );
    scene.link_all(1);
    scene.wait_for_own_log(1, proposed.number.unwrap()).await;
    // Its held entries are compared at each request.
    for _ in 0..100 {
        scene.advance(11).await;
        tokio::time::sleep(Duration::from_millis(10)).await;
        if scene.view(1).is_confirmed {
            break;
        }
    }
    assert!(scene.view(1).is_confirmed);
    let next = scene.write(1, third).await.unwrap().number.unwrap();
    assert_eq!(next, proposed.number.unwrap() + 1);
    assert!(scene.view(0).forked.is_empty() && scene.view(1).forked.is_empty());
}

/// FED-052: without a reachable peer a node may only revoke; the revocation is stored, and signed later.
#[tokio::test]
async fn unsigned_revocation_survives_restarts_until_log_is_confirmed() {
    let mut scene = Scene::granted().await;
    for _ in 0..2 {
        scene.restart(1).await;
        assert!(!scene.view(1).is_confirmed);
        let _ = scene.write(1, revoke(1)).await.unwrap();
    }
    let allow = grant(4, scene.node(1), scene.node(0), Permission::Allow);
    assert!(scene.write(1, allow).await.is_err());
    assert_eq!(scene.view(1).owed_revokes, 2);
    assert!(scene.is_granted(0, 1), "the owner has not heard of it");
    scene.link_all(1);
    scene
        .wait_until("it is closed", |scene| !scene.is_granted(0, 1))
        .await;
    scene
        .wait_until("it is signed", |scene| scene.view(1).owed_revokes == 0)
        .await;
}

/// FED-002.
#[tokio::test]
async fn torn_end_is_truncated_and_damage_is_reported_with_its_position() {
    let mut scene = Scene::new(1).await;
    scene.handle(0).found_cluster(name(0), by()).await.unwrap();
    for n in 1..4 {
        scene.write(0, revoke(n)).await.unwrap();
    }
    scene.stop(0).await;
    let path = scene.folder(0).join("logs");
    let whole = fs::read(&path).unwrap();
    // One more entry that is torn, and so was never acknowledged.
    fs::write(&path, [&whole[..], &whole[..50]].concat()).unwrap();
    scene.start(0).await;
    assert_eq!(scene.write(0, revoke(9)).await.unwrap().number, Some(4));
    scene.stop(0).await;
    let mut bytes = fs::read(&path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&path, &bytes).unwrap();
    let refused = scene.try_start(0).await.unwrap_err().to_string();
    assert!(
        refused.contains("logs") && refused.contains("byte"),
        "{refused}"
    );
    assert_eq!(fs::read(&path).unwrap(), bytes, "nothing was changed");
}

/// FED-056: clusters never merge.
#[tokio::test]
async fn entries_of_another_cluster_are_rejected() {
    let mut scene = Scene::with_cluster(2).await;
    scene.add(2).await;
    scene.handle(2).found_cluster(name(2), by()).await.unwrap();
    scene.write(2, revoke(1)).await.unwrap();
    let other = scene
        .handle(2)
        .create_invitation(scene.key(2).public_key())
        .await
        .unwrap();
    assert_eq!(other.entries.len(), 2);
    assert!(scene.handle(0).join(other.clone(), by()).await.is_err());
    let entries = other.entries.into_iter().map(RecordBytes).collect();
    scene
        .handle(0)
        .receive_entries(scene.node(1), LogEntries { entries })
        .await;
    let first = scene.handle(0);
    let known = first.read_logs(|records| {
        let grants = records.unwrap().replica.logs().grants();
        grants.issuers().count()
    });
    assert_eq!(known.await.unwrap(), 1);
    assert!(!scene.view(0).members.contains_key(&scene.node(2)));
}

/// FEDERATION, forks: it is unknown which of the two was the node.
#[tokio::test]
async fn forked_node_loses_its_grants() {
    let scene = Scene::granted().await;
    let (cluster, here) = (scene.view(0).cluster, scene.node(1));
    let previous = mgp_engine::policy::grants::OperationId::START;
    let operation = Operation {
        cluster,
        place: LogPosition {
            issuer: here,
            sequence: 0,
        },
        previous,
        author: "operator".into(),
        told_at_ms: 1,
        change: revoke(7),
        context: CausalContext::default(),
    };
    let forged = SignedOperation::new(operation.clone(), &scene.key(0));
    let fork = SignedOperation::new(operation, &scene.key(1));
    for (signed, forks) in [(forged, false), (fork, true)] {
        let entries = vec![RecordBytes(signed.to_bytes())];
        scene
            .handle(0)
            .receive_entries(here, LogEntries { entries })
            .await;
        let settled = scene.handle(0).read_logs(|_| ()).await;
        settled.unwrap();
        assert_eq!(scene.view(0).forked == [here], forks);
        assert_eq!(scene.is_granted(0, 1), !forks);
    }
    let result = scene.write(1, revoke(8)).await;
    assert!(result.is_ok() || scene.view(1).forked == [here]);
}

/// Two live nodes have one key: neither is trusted.
#[tokio::test]
async fn two_live_nodes_with_one_key_are_both_blocked() {
    let mut scene = Scene::granted().await;
    let copy = scene.copy(1);
    let original = scene.set_aside(1);
    scene.restore(1, &copy);
    scene.start(1).await;
    scene.link_all(1);
    scene.confirmed(1).await;
    scene
        .wait_until("a restart is none", |scene| scene.is_granted(0, 1))
        .await;
    for _ in 0..2 {
        scene.swap(1, &original);
        scene.advance(11).await;
        scene.settle().await;
    }
    let twice =
        |scene: &Scene| scene.view(0).members[&scene.node(1)].status == MemberStatus::DuplicateKey;
    scene.wait_until("both live", twice).await;
    scene
        .wait_until("it is closed", |scene| !scene.is_granted(0, 1))
        .await;
    let file = scene.folder(0).join("twice");
    let is_recorded = |_: &Scene| std::fs::read(&file).is_ok_and(|it| it.len() > 64);
    scene.wait_until("it is on disk", is_recorded).await;
    scene.restart(0).await;
    let node = scene.node(1);
    assert_eq!(
        scene.view(0).members[&node].status,
        MemberStatus::DuplicateKey
    );
    assert!(
        !scene.is_granted(0, 1),
        "a restart of who found them opens nothing"
    );
    // It does not wait for one of the two to confirm its log: it reports that they continue under another
    // key.
    scene.confirmed(0).await;
    let key = scene.key(9).public_key();
    scene.handle(0).rekey(node, key, by()).await.unwrap();
    let members = scene.view(0).members.clone();
    assert_eq!(members[&node].status, MemberStatus::Rekeyed);
    assert_eq!(members[&key.node_id()].status, MemberStatus::Active);
}

#[tokio::test]
async fn leaving_node_forgets_the_cluster_and_is_not_admitted_again() {
    let mut scene = Scene::granted().await;
    let (first, second) = (scene.node(0), scene.node(1));
    scene.handle(1).record_own_leave(by()).await.unwrap();
    scene.handle(1).forget(by()).await.unwrap();
    assert_eq!(scene.view(1).cluster, None);
    let cut = |scene: &Scene| !scene.view(0).link_peers.contains_key(&second);
    scene.wait_until("it is cut off", cut).await;
    let status = scene.view(0).members[&second].status;
    assert_eq!(status, MemberStatus::Left);
    scene
        .wait_until("it is closed", |scene| !scene.is_granted(0, 1))
        .await;
    let key = scene.key(1).public_key();
    let again = scene
        .handle(0)
        .admit(key, MemberRole::Admin, name(1), by())
        .await;
    assert!(again.is_err());
    scene.restart(1).await;
    assert_eq!(scene.view(1).cluster, None);
    scene.handle(1).found_cluster(name(1), by()).await.unwrap();
    assert!(!scene.view(1).members.contains_key(&first));
}

/// A node without a log of its own asks an admin to record that it left; this is distinct from a cut-off.
#[tokio::test]
async fn left_member_is_distinct_from_a_cut_off_one() {
    let mut scene = Scene::with_cluster(1).await;
    for n in [1, 2] {
        scene.add(n).await;
        scene.admit_node(n, MemberRole::Member).await;
    }
    let (left, cut) = (scene.node(1), scene.node(2));
    scene.handle(0).record_leave_of(left).await.unwrap();
    scene.handle(0).cut_off(cut, by()).await.unwrap();
    let view = scene.view(0);
    for (node, status) in [(left, MemberStatus::Left), (cut, MemberStatus::CutOff)] {
        assert_eq!(view.members[&node].status, status);
        assert!(view.members[&node].removed_ms.is_some() && !view.link_peers.contains_key(&node));
    }
}

#[tokio::test]
async fn only_the_recovery_key_of_the_cluster_makes_an_admin() {
    let mut scene = Scene::new(2).await;
    let founded = scene.handle(0).found_cluster(name(0), by()).await.unwrap();
    scene.admit_node(1, MemberRole::Member).await;
    assert_eq!(scene.view(1).role, Some(MemberRole::Member));
    assert!(scene.write(1, revoke(1)).await.is_err(), "it is no admin");
    let recovery = |key| ClusterRecovery {
        key,
        name: name(1),
        removed: Vec::new(),
    };
    let wrong = recovery(RecoveryKey::generate());
    assert!(scene.handle(1).recover(wrong, by()).await.is_err());
    let key = RecoveryKey::parse(&founded.recovery.render()).unwrap();
    scene.handle(1).recover(recovery(key), by()).await.unwrap();
    assert_eq!(scene.view(1).role, Some(MemberRole::Admin));
    let cut = scene.node(0);
    scene.confirmed(1).await;
    scene.handle(1).cut_off(cut, by()).await.unwrap();
    assert_eq!(scene.view(1).members[&cut].status, MemberStatus::CutOff);
}

/// FEDERATION, keys: a node whose only admin is lost continues alone.
#[tokio::test]
async fn recovery_key_cuts_off_the_lost_admin() {
    let mut scene = Scene::new(2).await;
    let founded = scene.handle(0).found_cluster(name(0), by()).await.unwrap();
    scene.admit_node(1, MemberRole::Member).await;
    scene.stop(0).await;
    let lost = scene.node(0);
    let recovery = ClusterRecovery {
        key: founded.recovery,
        name: name(1),
        removed: vec![lost],
    };
    scene.handle(1).recover(recovery, by()).await.unwrap();
    assert_eq!(scene.view(1).members[&lost].status, MemberStatus::CutOff);
    scene.confirmed(1).await;
    assert_eq!(scene.view(1).silent_node, None);
    scene.write(1, revoke(1)).await.unwrap();
}

/// FEDERATION, keys: the old key signs the new one, and the rekey is found in the log.
#[tokio::test]
async fn node_signs_its_rekey_and_finds_it_in_the_log() {
    let scene = Scene::with_cluster(2).await;
    let (node, key) = (scene.node(1), scene.key(9).public_key());
    let signed = || has_rekeyed(&scene.folder(1), node, key).unwrap();
    assert!(!signed());
    scene.confirmed(1).await;
    scene.handle(1).rekey(node, key, by()).await.unwrap();
    assert!(signed());
    assert!(!has_rekeyed(&scene.folder(1), node, scene.key(8).public_key()).unwrap());
    scene
        .wait_until("it is known elsewhere", |scene| {
            scene.view(0).members.contains_key(&key.node_id())
        })
        .await;
    let members = scene.view(0).members.clone();
    assert_eq!(members[&key.node_id()].role, Some(MemberRole::Admin));
    assert_eq!(members[&node].status, MemberStatus::Rekeyed);
    let founder = scene.handle(0);
    let again = founder.rekey(node, scene.key(8).public_key(), by()).await;
    assert!(again.is_err(), "it has another key already");
}

/// FED-054.
#[tokio::test]
async fn node_is_renamed_and_continues_under_a_new_key() {
    let scene = Scene::with_cluster(2).await;
    let node = scene.node(1);
    let renamed = name(7);
    scene
        .handle(0)
        .rename(node, renamed.clone(), by())
        .await
        .unwrap();
    scene
        .wait_until("it has its name", |scene| {
            scene.view(1).members[&node].name == renamed.to_string()
        })
        .await;
    assert_eq!(scene.view(0).find_member(renamed.as_str()), Some(node));
    let key = scene.key(9).public_key();
    scene.handle(0).rekey(node, key, by()).await.unwrap();
    let view = scene.view(0);
    assert_eq!(view.members[&key.node_id()].role, Some(MemberRole::Admin));
    assert_eq!(view.members[&node].status, MemberStatus::Rekeyed);
    assert_eq!(view.members[&key.node_id()].name, renamed.to_string());
    assert!(view.link_peers.contains_key(&key.node_id()));
}
