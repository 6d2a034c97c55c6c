//! States on disk, and the queues of their calls.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use mgp_mcpl_engine::state::checkpoint_tree::CarriedState;
use mgp_mcpl_engine::state::record::TreeKey;
use mgp_mcpl_engine::state::rules::StateRules;
use mgp_protocol::ids::{AgentId, ConnectionId, ServerId};
use mgp_protocol::refusal::Refusal;

use super::States;

fn states(folder: &Path) -> Arc<States> {
    States::new(folder.join("state"), StateRules::default())
}

fn key(set: &str) -> TreeKey {
    TreeKey {
        set: set.into(),
        agent: Some(AgentId::new("agent.a")),
        session: None,
    }
}

async fn settle(states: &States, server: &str, set: &str, state: &str) -> Option<String> {
    let lock = states
        .lock_tree(&ServerId::new(server), key(set))
        .await
        .unwrap();
    lock.settle(state.to_owned()).await.unwrap().rejection
}

async fn carried(states: &States, server: &str, set: &str) -> CarriedState {
    let lock = states.lock_tree(&ServerId::new(server), key(set)).await;
    lock.unwrap().carried.clone()
}

/// MCPL-071, MCPL-064: acknowledged states survive a kill of the kernel, at their own server only.
#[tokio::test]
async fn acknowledged_states_survive_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let (first, second) = (states(dir.path()), states(dir.path()));
    let long = format!("\"{}\"", "x".repeat(300_000));
    for (n, data) in [(1, r#"{"notes":[]}"#), (2, &*long)] {
        let state = format!(r#"{{"checkpoint":"c{n}","data":{data}}}"#);
        assert_eq!(settle(&first, "notes", "edit", &state).await, None);
    }
    let refused = r#"{"checkpoint":"c3","parent":"nobody","patch":[]}"#;
    assert!(settle(&first, "notes", "edit", refused).await.is_some());
    // The first one is not closed: nothing is written at its end.
    assert_eq!(
        carried(&second, "notes", "edit").await,
        CarriedState::State(long.as_str().into())
    );
    for (server, set) in [("other", "edit"), ("notes", "read")] {
        assert_eq!(carried(&second, server, set).await, CarriedState::Nothing);
    }
    // Half of an entry, as a power loss leaves it.
    let path = dir.path().join("state/notes.journal");
    let state = r#"{"checkpoint":"c4","data":4}"#;
    assert_eq!(settle(&first, "notes", "edit", state).await, None);
    let mut bytes = std::fs::read(&path).unwrap();
    bytes.truncate(bytes.len() - 10);
    std::fs::write(&path, bytes).unwrap();
    let third = states(dir.path());
    assert_eq!(
        carried(&third, "notes", "edit").await,
        CarriedState::State(long.as_str().into())
    );
    // A corrupted entry is not accepted as a state.
    let mut bytes = std::fs::read(&path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&path, bytes).unwrap();
    let fourth = states(dir.path());
    let broken = fourth.lock_tree(&ServerId::new("notes"), key("edit")).await;
    let Err(Refusal::Internal(words)) = broken else {
        panic!("{broken:?}");
    };
    assert!(words.contains("notes.journal"), "{words}");
}

/// A journal does not grow with the number of calls.
#[tokio::test]
async fn a_journal_is_compacted_before_it_is_long() {
    let dir = tempfile::tempdir().unwrap();
    let states = states(dir.path());
    let long = "x".repeat(500_000);
    for n in 0..40 {
        let state = format!(r#"{{"checkpoint":"c{n}","data":"{long}"}}"#);
        assert_eq!(settle(&states, "notes", "edit", &state).await, None);
    }
    let size = std::fs::metadata(dir.path().join("state/notes.journal"))
        .unwrap()
        .len();
    assert!(size < 18_000_000, "{size}");
    let again = self::states(dir.path());
    let last = format!("\"{long}\"");
    assert_eq!(
        carried(&again, "notes", "edit").await,
        CarriedState::State(last.as_str().into())
    );
}

/// Calls of one tree are serialized, those of two trees are not; a cancelled call leaves the queue, and a call that finds
/// it full is rejected.
#[tokio::test]
async fn calls_of_one_state_are_serialized() {
    let dir = tempfile::tempdir().unwrap();
    let (states, server) = (states(dir.path()), ServerId::new("notes"));
    let first = states.lock_tree(&server, key("edit")).await.unwrap();
    assert!(states.lock_tree(&server, key("read")).await.is_ok());
    let mut waiting = Vec::new();
    for _ in 0..32 {
        let (states, server) = (states.clone(), server.clone());
        let mut waits = Box::pin(async move { states.lock_tree(&server, key("edit")).await });
        assert!(futures_util::poll!(&mut waits).is_pending());
        waiting.push(waits);
    }
    let full = states.lock_tree(&server, key("edit")).await;
    assert!(matches!(full, Err(Refusal::Overloaded { .. })), "{full:?}");
    // The first in the queue gives up, which makes room for one at its end.
    drop(waiting.remove(0));
    let late = {
        let (states, server) = (states.clone(), server.clone());
        async move { states.lock_tree(&server, key("edit")).await }
    };
    let mut late = Box::pin(late);
    assert!(futures_util::poll!(&mut late).is_pending());
    let state = r#"{"checkpoint":"c1","data":1}"#.to_owned();
    first.settle(state).await.unwrap();
    let next = waiting.remove(0).await.unwrap();
    assert_eq!(next.carried, CarriedState::State("1".into()));
    assert!(futures_util::poll!(&mut late).is_pending());
    drop(waiting);
    drop(next);
    assert!(late.await.is_ok());
    // The queue is empty and removed.
    assert!(states.open_server(&server).await.unwrap().queues.is_empty());
}

/// A call that never ends does not block the others forever.
#[tokio::test(start_paused = true)]
async fn the_wait_for_a_permit_times_out() {
    let dir = tempfile::tempdir().unwrap();
    let (states, server) = (states(dir.path()), ServerId::new("notes"));
    let held = states.lock_tree(&server, key("edit")).await.unwrap();
    let stuck = states.lock_tree(&server, key("edit"));
    let stuck = tokio::time::timeout(Duration::from_secs(61), stuck)
        .await
        .unwrap();
    assert!(matches!(stuck, Err(Refusal::Overloaded { .. })));
    drop(held);
    assert!(states.open_server(&server).await.unwrap().queues.is_empty());
}

/// The state of a session ends with it, and is removed after a while.
#[tokio::test]
async fn the_state_of_a_session_expires_after_its_end() {
    let dir = tempfile::tempdir().unwrap();
    let states = states(dir.path());
    let (server, agent, connection) = (
        ServerId::new("notes"),
        AgentId::new("agent.a"),
        ConnectionId(7),
    );
    let key = TreeKey {
        session: Some(states.session(connection)),
        ..key("edit")
    };
    let lock = states.lock_tree(&server, key.clone()).await.unwrap();
    lock.settle(r#"{"checkpoint":"c","data":1}"#.into())
        .await
        .unwrap();
    let kept = states.open_server(&server).await.unwrap();
    kept.end_session(&agent, &states.session(ConnectionId(8)))
        .await;
    assert_eq!(kept.trees().tree(&key).unwrap().ended_at_ms, None);
    kept.end_session(&agent, &states.session(connection)).await;
    assert!(kept.trees().tree(&key).unwrap().ended_at_ms.is_some());
    kept.expire(Duration::from_secs(3600)).await;
    assert!(kept.trees().tree(&key).is_some());
    kept.expire(Duration::ZERO).await;
    assert!(kept.trees().tree(&key).is_none());
    let next = self::states(dir.path());
    let kept = next.open_server(&server).await.unwrap();
    assert_eq!(kept.trees().iter().count(), 0);
}
