//! A node with a long log: its start, what it takes in memory, and what it sends.

use std::sync::Arc;

use mgp_engine::node_key::NodeKey;
use mgp_engine::policy::grants::{CausalContext, ClusterId, OperationId};
use mgp_protocol::mgp::access::Explanation;
use mgp_store::journal::Journal;

use super::*;

const OPERATIONS: u64 = 10_000;

/// Lets agent `a` use the server of another node, and takes it back; again and again.
fn granted_and_revoked(
    key: &NodeKey,
    cluster: Option<ClusterId>,
    at: NodeId,
) -> Vec<SignedOperation> {
    let here = key.node_id();
    let mut previous = OperationId::START;
    let signed = (0..OPERATIONS).map(|sequence| {
        let id = GrantId((u128::from(sequence / 2) + 1).to_be_bytes());
        let mut change = LogChange::Grants(GrantChange::Revoke(Revoke::Ids(vec![id])));
        if sequence % 2 == 0 {
            change = grant(0, here, at, Permission::Allow);
            if let LogChange::Grants(GrantChange::Grant(grant)) = &mut change {
                grant.id = id;
            }
        }
        let place = LogPosition {
            issuer: here,
            sequence,
        };
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
    async fn log_of(&self, n: u8, of: u8) -> (Vec<Arc<[u8]>>, usize) {
        let issuer = self.node(of);
        let handle = self.at(n);
        let read = handle.read_logs(move |records| {
            let logs = records.unwrap().replica.logs();
            let entries = logs.entries_from(issuer, 0).map(|(_, entry)| entry);
            (entries.collect(), logs.memory_bytes())
        });
        read.await.unwrap()
    }

    async fn explain(&self, n: u8, of: u8) -> Explanation {
        let caller = self.node(of).agent(AgentId::new("agent.a"));
        let handle = self.at(n);
        let explained = handle.explain(caller, ServerId::new("files"), None);
        explained.await.unwrap()
    }
}

/// MGP-082: a file of an earlier build opens as it is, and another node gets every entry of it to the byte.
#[tokio::test]
async fn a_long_log_opens_takes_little_memory_and_reaches_others_whole() {
    let mut scene = Scene::of(2).await;
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
    scene.together(1);
    scene
        .until("all of it is known there", |scene| {
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
    assert!(!scene.opens(0, 1));
    let explained = scene.explain(0, 1).await;
    assert_eq!(explained.permission, Permission::Deny);
    // An explanation shows so many entries, and counts the rest.
    let taken = |line: &&String| line.contains("taken back");
    assert_eq!(explained.considered.iter().filter(taken).count(), 99);
    let more = "and 4901 more entries".to_owned();
    assert!(explained.considered.contains(&more));
    let again = grant(200, scene.node(1), scene.node(0), Permission::Allow);
    let made = scene.write(1, again).await.unwrap();
    assert_eq!(made.number, Some(OPERATIONS));
    scene
        .until("the new grant is here", |scene| scene.opens(0, 1))
        .await;
    scene.write(1, revoke(200)).await.unwrap();
    scene.until("and its end", |scene| !scene.opens(0, 1)).await;
}
