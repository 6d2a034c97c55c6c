//! Trees: how they grow, branch, and are kept within their bounds.

use std::sync::Arc;

use mgp_protocol::ids::AgentId;
use mgp_protocol::mcpl::state::ResultState;

use crate::state::checkpoint_tree::{
    CarriedState, MAX_CHECKPOINTS, StateError, TREE_BYTES, TreeStep,
};
use crate::state::checkpoint_trees::{MAX_TREES_OF_AGENT, SERVER_BYTES, StateTrees};
use crate::state::record::{StateRecord, TreeKey};

fn key(agent: &str, session: &str) -> TreeKey {
    TreeKey {
        set: "notes.edit".into(),
        agent: Some(AgentId::new(agent)),
        session: Some(session.into()),
    }
}

/// What a server answers goes the whole way: judged, written down, read and applied.
fn say(trees: &mut StateTrees, key: &TreeKey, state: &str) -> Result<TreeStep, StateError> {
    let said: ResultState<'_> = serde_json::from_str(state).unwrap();
    let tree = trees.tree(key).cloned().unwrap_or_default();
    let step = tree.evaluate(&said, 7)?;
    trees.check_step(key, &step)?;
    if let Some(record) = StateRecord::from_step(key, &step) {
        for record in StateRecord::from_entries(&record.to_pieces()) {
            trees.apply(record);
        }
    }
    Ok(step)
}

fn text(carried: CarriedState) -> String {
    match carried {
        CarriedState::Nothing => String::new(),
        CarriedState::State(text) | CarriedState::Checkpoint(text) => text.to_string(),
    }
}

fn drawn(trees: &StateTrees, key: &TreeKey) -> String {
    let tree = trees.tree(key).unwrap();
    let lines = tree.lineage().map(|(checkpoint, parent)| {
        let parent = parent.map_or("-".to_owned(), |place| place.to_string());
        format!("{}<{parent}", checkpoint.id)
    });
    lines.collect::<Vec<_>>().join(" ")
}

/// MCPL-063, MCPL-064, MCPL-065, MCPL-075: data, a patch of it, back, and a branch beside what was there.
#[test]
fn a_tree_grows_by_data_and_patches_and_branches_after_going_back() {
    let (mut trees, a) = (StateTrees::default(), key("agent.a", "1"));
    assert_eq!(trees.carried_state(&a), CarriedState::Nothing);
    say(
        &mut trees,
        &a,
        r#"{"checkpoint":"abc","parent":null,"data":{"notes":[]}}"#,
    )
    .unwrap();
    assert_eq!(
        trees.carried_state(&a),
        CarriedState::State(r#"{"notes":[]}"#.into())
    );
    let add = |to: &str, from: &str, note: u8| {
        format!(
            r#"{{"checkpoint":"{to}","parent":"{from}","patch":[{{"op":"add","path":"/notes/-","value":{note}}}]}}"#
        )
    };
    say(&mut trees, &a, &add("def", "abc", 1)).unwrap();
    assert_eq!(text(trees.carried_state(&a)), r#"{"notes":[1]}"#);
    for record in StateRecord::from_entries(
        &StateRecord::from_step(&a, &TreeStep::Move("abc".into()))
            .unwrap()
            .to_pieces(),
    ) {
        trees.apply(record);
    }
    assert_eq!(text(trees.carried_state(&a)), r#"{"notes":[]}"#);
    say(&mut trees, &a, &add("xyz", "abc", 2)).unwrap();
    assert_eq!(text(trees.carried_state(&a)), r#"{"notes":[2]}"#);
    assert_eq!(drawn(&trees, &a), "abc<- def<0 xyz<0");
    // A server may say itself where it stands.
    say(&mut trees, &a, r#"{"checkpoint":"def"}"#).unwrap();
    assert_eq!(text(trees.carried_state(&a)), r#"{"notes":[1]}"#);
}

/// MCPL-067, MCPL-066, MCPL-068: what cannot be applied changes nothing, and says why.
#[test]
fn what_cannot_be_kept_leaves_the_tree_as_it_was() {
    let (mut trees, a) = (StateTrees::default(), key("agent.a", "1"));
    say(&mut trees, &a, r#"{"checkpoint":"o"}"#).unwrap();
    assert_eq!(
        trees.carried_state(&a),
        CarriedState::Checkpoint("o".into())
    );
    say(
        &mut trees,
        &a,
        r#"{"checkpoint":"d","parent":"o","data":{"n":1}}"#,
    )
    .unwrap();
    let patch = r#""patch":[{"op":"replace","path":"/n","value":2},{"op":"remove","path":"/m"}]"#;
    for (state, why) in [
        (
            format!(r#"{{"checkpoint":"e","parent":"d",{patch}}}"#),
            "operation 1",
        ),
        (
            format!(r#"{{"checkpoint":"e","parent":"nobody",{patch}}}"#),
            "not known",
        ),
        (
            format!(r#"{{"checkpoint":"e","parent":"o",{patch}}}"#),
            "no data",
        ),
        (format!(r#"{{"checkpoint":"e",{patch}}}"#), "needs a parent"),
        (
            format!(r#"{{"checkpoint":"e","parent":"e",{patch}}}"#),
            "own parent",
        ),
        (
            format!(r#"{{"checkpoint":"e","parent":"d","data":1,{patch}}}"#),
            "two things",
        ),
        (
            r#"{"checkpoint":"d","data":{"n":9}}"#.into(),
            "there already",
        ),
        (r#"{"checkpoint":"","data":1}"#.into(), "1 to 256"),
        (r#"{"checkpoint":"a\u001b[2J","data":1}"#.into(), "control"),
        (r#"{"checkpoint":"e","data":{"a":1,"a":2}}"#.into(), "twice"),
    ] {
        let fault = say(&mut trees, &a, &state).unwrap_err();
        assert!(fault.to_string().contains(why), "{state}: {fault}");
        assert_eq!(text(trees.carried_state(&a)), r#"{"n":1}"#);
    }
    assert_eq!(drawn(&trees, &a), "o<- d<0");
}

/// MCPL-063: parents that come after their children make no circle.
#[test]
fn no_tree_has_a_circle() {
    let (mut trees, a) = (StateTrees::default(), key("agent.a", "1"));
    for (id, parent) in [("a", "b"), ("b", "c"), ("c", "a")] {
        let state = format!(r#"{{"checkpoint":"{id}","parent":"{parent}"}}"#);
        say(&mut trees, &a, &state).unwrap();
    }
    assert_eq!(drawn(&trees, &a), "a<- b<- c<0");
}

/// MCPL-071: another agent, another session and another set have trees of their own.
#[test]
fn trees_of_two_sessions_do_not_meet() {
    let mut trees = StateTrees::default();
    let (mine, theirs) = (key("agent.a", "1"), key("agent.b", "1"));
    let other = TreeKey {
        set: "notes.read".into(),
        ..mine.clone()
    };
    say(&mut trees, &mine, r#"{"checkpoint":"a","data":"secret"}"#).unwrap();
    for key in [theirs, key("agent.a", "2"), other] {
        assert_eq!(trees.carried_state(&key), CarriedState::Nothing);
        let patch = r#"{"checkpoint":"b","parent":"a","patch":[]}"#;
        let fault = say(&mut trees, &key, patch).unwrap_err();
        assert_eq!(fault, StateError::UnknownParent("a".into()));
    }
}

/// Bounds of one tree: the oldest go, where it stands stays, and no parent is found that is gone.
#[test]
fn a_tree_keeps_its_last_checkpoints() {
    let (mut trees, a) = (StateTrees::default(), key("agent.a", "1"));
    let data = "x".repeat(100_000);
    for n in 0..MAX_CHECKPOINTS + 20 {
        let state = if n < 60 {
            format!(r#"{{"checkpoint":"{n}","data":"{data}"}}"#)
        } else {
            format!(r#"{{"checkpoint":"{n}","parent":"{}"}}"#, n - 1)
        };
        say(&mut trees, &a, &state).unwrap();
        let tree = trees.tree(&a).unwrap();
        assert!(tree.bytes() <= TREE_BYTES && tree.lineage().count() <= MAX_CHECKPOINTS);
    }
    let tree = trees.tree(&a).unwrap();
    assert!(!tree.contains("0") && tree.contains("275") && tree.pruned() >= 20);
    assert_eq!(tree.bytes(), trees.bytes());
}

/// Bounds of a server: trees that have ended make room, live ones do not lose where they stand, and one agent
/// cannot have all.
#[test]
fn a_server_has_room_for_so_much() {
    let mut trees = StateTrees::default();
    let data = format!(r#""{}""#, "x".repeat(500_000));
    let mut refused = 0;
    for n in 0..200 {
        let session = key(&format!("agent.{}", n % 4), &n.to_string());
        let state = format!(r#"{{"checkpoint":"c","data":{data}}}"#);
        match say(&mut trees, &session, &state) {
            Ok(_) => {}
            Err(fault) => {
                assert_eq!(fault, StateError::Full);
                refused += 1;
            }
        }
        assert!(trees.bytes() <= SERVER_BYTES);
    }
    assert!(refused > 100, "{refused}");
    let first = key("agent.0", "0");
    assert!(matches!(
        trees.carried_state(&first),
        CarriedState::State(_)
    ));
    for record in trees.session_end_records(&AgentId::new("agent.0"), "0", 50) {
        trees.apply(record);
    }
    let late = key("agent.1", "late");
    say(
        &mut trees,
        &late,
        &format!(r#"{{"checkpoint":"c","data":{data}}}"#),
    )
    .unwrap();
    assert!(trees.tree(&first).is_none());

    let mut trees = StateTrees::default();
    for n in 0..MAX_TREES_OF_AGENT {
        let session = key("agent.a", &n.to_string());
        assert!(trees.check_capacity(&session).is_ok());
        say(&mut trees, &session, r#"{"checkpoint":"c"}"#).unwrap();
    }
    assert!(trees.check_capacity(&key("agent.a", "more")).is_err());
    assert!(trees.check_capacity(&key("agent.a", "7")).is_ok());
    assert!(trees.check_capacity(&key("agent.b", "1")).is_ok());
}

/// What is written down makes the same trees; half a record makes nothing; ended trees go when their time is over.
#[test]
fn the_records_make_the_same_trees() {
    let mut trees = StateTrees::default();
    let a = key("agent.a", "1");
    let long = "y".repeat(400_000);
    say(
        &mut trees,
        &a,
        &format!(r#"{{"checkpoint":"a","data":"{long}"}}"#),
    )
    .unwrap();
    say(&mut trees, &a, r#"{"checkpoint":"b","parent":"a"}"#).unwrap();
    say(&mut trees, &a, r#"{"checkpoint":"a"}"#).unwrap();
    for record in trees.all_end_records(false, 1000) {
        trees.apply(record);
    }
    let entries: Vec<Vec<u8>> = trees
        .to_records()
        .iter()
        .flat_map(StateRecord::to_pieces)
        .collect();
    assert!(entries.len() > 4);
    let again = StateTrees::from_records(StateRecord::from_entries(&entries));
    assert_eq!(text(again.carried_state(&a)), format!("\"{long}\""));
    assert_eq!(drawn(&again, &a), "a<- b<0");
    assert_eq!(again.tree(&a).unwrap().ended_at_ms, Some(1000));
    // The end of the first record never came to the disk.
    let torn: Vec<Vec<u8>> = entries[..1].iter().chain(&entries[2..]).cloned().collect();
    let torn = StateTrees::from_records(StateRecord::from_entries(&torn));
    assert_eq!(drawn(&torn, &a), "b<-");
    assert!(again.expire_records(1999, 1000).is_empty());
    assert_eq!(again.expire_records(2000, 1000).len(), 1);
    let id: Arc<str> = "a".into();
    assert!(again.tree(&a).unwrap().contains(&id));
}
