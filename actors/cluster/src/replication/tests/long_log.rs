//! Tests of a node with a long log: its start, its memory, and its messages.

use std::sync::Arc;

use mgp_engine::node_key::NodeKey;
use mgp_engine::policy::grants::{CausalContext, ClusterId, OperationId};
use mgp_protocol::mgp::access::Explanation;
use mgp_store::journal::Journal;

use super::*;

const OPERATIONS: u64 = 10_000;

/// Repeatedly grants agent `a` the server of another node, and revokes it.
fn granted_and_revoked(
    key: &NodeKey,
    cluster: Option<ClusterId>,
    at: NodeId,
) -> Vec<SignedOperation> {
    let issuer = key.node_id();
    let mut previous = OperationId::START;
    let signed = (0..OPERATIONS).map(|sequence| {
        let id = GrantId((u128::from(sequence / 2) + 1).to_be_bytes());
        let mut change = LogChange::Grants(GrantChange::Revoke(Revoke::Ids(vec![id])));
        if sequence % 2 == 0 {
            change = grant(0, issuer, at, Permission::Allow);
            if let LogChange::Grants(GrantChange::Grant(grant)) = &mut change {
                grant.id = id;
            }
        }
        let place = LogPosition { issuer, sequence };
        let operation = Operation {
            cluster,
            place,
            previous,
            author: "operator".into(),
            told_at_ms: 1_790_000_000_000 + sequence,
            change,
            context: CausalContext::default(),
        };
        let signed = SignedOperation::new(operation, key);
        previous = signed.encoded().id();
        signed
    });
    signed.collect()
}

impl Scene {
    async fn log_of(&self, n: u8, node: u8) -> (Vec<Arc<[u8]>>, usize) {
        let issuer = self.node(node);
        let handle = self.handle(n);
        let read = handle.read_logs(move |records| {
            let logs = records.unwrap().replica.logs();
            let entries = logs.entries_from(issuer, 0).map(|(_, entry)| entry);
            (entries.collect(), logs.memory_bytes())
        });
        read.await.unwrap()
    }

    async fn explain(&self, n: u8, node: u8) -> Explanation {
        let caller = self.node(node).agent(AgentId::new("agent.a"));
        let handle = self.handle(n);
        let explained = handle.explain(caller, ServerId::new("files"), None);
        explained.await.unwrap()
    }
}

/// MGP-082: a file of an earlier build opens unchanged, and another node gets every entry byte-identical.
#[tokio::test]
async fn long_log_opens_in_bounded_memory_and_is_replicated_whole() {
    let mut scene = Scene::with_cluster(2).await;
    scene.share(0).await;
    scene.confirmed(1).await;
    let cluster = scene.view(0).cluster;
    scene.stop(1).await;
    let signed = granted_and_revoked(&scene.key(1), cluster, scene.node(0));
    let path = scene.folder(1).join("logs");
    let journal = Journal::open(&path, "logs of a cluster").unwrap().journal;
    let entries = signed.iter().map(SignedOperation::to_bytes);
    journal.append_all(entries.collect()).await.unwrap();
    drop(journal);
    let on_disk = fs::read(&path).unwrap();
    scene.start(1).await;
    assert_eq!(fs::read(&path).unwrap(), on_disk, "it stays as it is");
    let expected: Vec<Arc<[u8]>> = signed.iter().map(SignedOperation::entry_bytes).collect();
    scene.link_all(1);
    scene
        .wait_until("all of it is known there", |scene| {
            scene.view(1).is_confirmed
        })
        .await;
    for n in [1, 0] {
        let mut log = scene.log_of(n, 1).await;
        for _ in 0..2000 {
            if log.0.len() == expected.len() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
            log = scene.log_of(n, 1).await;
        }
        assert!(log.0 == expected, "node {n} has {} entries", log.0.len());
        assert!(log.1 < 6 << 20, "node {n}: {} bytes of memory", log.1);
    }
    assert!(!scene.is_granted(0, 1));
    let explained = scene.explain(0, 1).await;
    assert_eq!(explained.permission, Permission::Deny);
    // An explanation shows so many entries, and counts the rest.
    let is_revoked = |line: &&String| line.contains("taken back");
    assert_eq!(explained.considered.iter().filter(is_revoked).count(), 99);
    let more = "and 4901 more entries".to_owned();
    assert!(explained.considered.contains(&more));
    let again = grant(200, scene.node(1), scene.node(0), Permission::Allow);
    let made = scene.write(1, again).await.unwrap();
    assert_eq!(made.number, Some(OPERATIONS));
    scene
        .wait_until("the new grant is here", |scene| scene.is_granted(0, 1))
        .await;
    scene.write(1, revoke(200)).await.unwrap();
    scene
        .wait_until("and its end", |scene| !scene.is_granted(0, 1))
        .await;
}
