//! How nodes come in, and who does not.

use mgp_tests::harness::{Agent, DEADLINE, wait_until};
use serde_json::{Value, json};

use crate::scene::{admission, demo, join, linked, node, operator, standing, ticket, waiting};

/// PRJ-003, FED-012: nothing listens for other nodes until somebody asks for it.
#[tokio::test(flavor = "multi_thread")]
async fn kernel_without_a_cluster_does_not_listen_for_nodes() {
    let nas = node("nas", &demo()).await;
    let id = nas.mgp_json(&["nodes", "show"]).await;
    assert_eq!((&id["name"], &id["listens"]), (&"nas".into(), &Value::Null));
    assert_eq!(id["id"].as_str().unwrap().len(), 64);
    let status = nas.mgp_json(&["cluster", "status"]).await;
    assert_eq!(
        (&status["id"], &status["nodes"]),
        (&Value::Null, &Value::Array(vec![]))
    );
}

/// PRJ-004, FED-017: a ticket, three words on both sides, and a person's yes; both are in and linked, over a restart too.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_joins_by_a_ticket_and_a_yes() {
    let (nas, desk) = (node("nas", "").await, node("desk", "").await);
    join(&nas, &desk, &[]).await;
    for kernel in [&nas, &desk] {
        let status = kernel.mgp_json(&["cluster", "status"]).await;
        assert_eq!(status["nodes"].as_array().unwrap().len(), 2, "{status:#}");
        assert_eq!(status["troubles"], Value::Null, "{status:#}");
    }
    let folder = desk.end(nix::sys::signal::Signal::SIGTERM, DEADLINE).await;
    let desk = mgp_tests::harness::Kernel::again(folder).await;
    linked(&nas, &desk).await;
}

/// PRJ-004, FED-016: a ticket is good for one node; one that is withdrawn, altered or refused lets nobody in.
#[tokio::test(flavor = "multi_thread")]
async fn a_ticket_is_used_once_and_only_as_it_was_given() {
    let (nas, desk, den) = (
        node("nas", "").await,
        node("desk", "").await,
        node("den", "").await,
    );
    let good = ticket(&nas, &["--approved"]).await;
    let joined = desk.mgp(&["nodes", "join", &good]).await;
    assert!(joined.status.success(), "{joined:?}");
    let again = den.mgp(&["nodes", "join", &good]).await;
    assert!(
        !again.status.success(),
        "a ticket was used twice: {again:?}"
    );
    let withdrawn = ticket(&nas, &[]).await;
    let out = nas.mgp_json(&["nodes", "tickets"]).await;
    let id = out["tickets"][0]["id"].as_str().unwrap();
    nas.mgp_json(&["nodes", "withdraw", id]).await;
    let tried = den.mgp(&["nodes", "join", &withdrawn]).await;
    assert!(!tried.status.success(), "{tried:?}");
    let mut altered = ticket(&nas, &["--approved"]).await.into_bytes();
    let last = altered.len() - 1;
    altered[last] = if altered[last] == b'a' { b'b' } else { b'a' };
    let altered = String::from_utf8(altered).unwrap();
    let tried = den.mgp(&["nodes", "join", &altered]).await;
    let told = String::from_utf8_lossy(&tried.stderr).into_owned();
    assert!(!tried.status.success(), "{told}");
    let status = nas.mgp_json(&["cluster", "status"]).await;
    assert_eq!(status["nodes"].as_array().unwrap().len(), 2, "{status:#}");
}

/// `mgp://kernel/pending` is the same list as `mgp pending --json`, and whoever subscribed is notified when a node asks
/// and when it waits no longer.
#[tokio::test(flavor = "multi_thread")]
async fn subscribers_are_notified_of_nodes_that_ask_and_go() {
    let (nas, desk) = (node("nas", "").await, node("desk", "").await);
    let pending = json!({"uri": "mgp://kernel/pending"});
    let mut watcher = operator(&nas).await;
    let subscribed = watcher.request("resources/subscribe", pending.clone());
    subscribed.await.result();
    let ticket = ticket(&nas, &[]).await;
    desk.mgp_json(&["nodes", "join", &ticket, "--no-wait"])
        .await;
    let changed = watcher.hears("notifications/resources/updated").await;
    assert_eq!(changed["params"], pending);
    let list = read_pending(&mut watcher).await;
    assert_eq!(list["nodes"][0]["name"], "desk", "{list}");
    assert_eq!(list, nas.mgp_json(&["pending"]).await);

    let words = list["nodes"][0]["words"].as_str().unwrap();
    nas.mgp_json(&["deny", words]).await;
    watcher.hears("notifications/resources/updated").await;
    assert_eq!(read_pending(&mut watcher).await, json!({"pending": []}));
}

/// The operator's list as a resource.
async fn read_pending(operator: &mut Agent) -> Value {
    let read = operator.request("resources/read", json!({"uri": "mgp://kernel/pending"}));
    let result = read.await.result();
    serde_json::from_str(result["contents"][0]["text"].as_str().unwrap()).unwrap()
}

/// PRJ-004: a yes is to the node, the name and the words that were looked at: under another name it is another question.
#[tokio::test(flavor = "multi_thread")]
async fn a_yes_to_one_name_lets_no_other_in() {
    let (nas, desk) = (node("nas", "").await, node("desk", "").await);
    let ticket = ticket(&nas, &[]).await;
    let join = ["nodes", "join", &ticket, "--no-wait"];
    desk.mgp_json(&join).await;
    let looked_at = waiting(&nas).await;
    desk.mgp_json(&[&join[..], &["--name", "na5"]].concat())
        .await;
    let mut asks = Value::Null;
    wait_until("it asks under another name", DEADLINE, async || {
        asks = waiting(&nas).await;
        asks["name"] == "na5"
    })
    .await;
    assert_eq!(
        (&asks["called_before"], &asks["looks_like"]),
        (&"desk".into(), &"nas".into())
    );
    let (words, old) = (
        asks["words"].as_str().unwrap(),
        looked_at["words"].as_str().unwrap(),
    );
    for (late, reason) in [
        (&["approve", old][..], "mgp pending"),
        (&["approve", "na5"], words),
        (&["nodes", "approve", old], "na5"),
        (&["nodes", "approve"], words),
    ] {
        let tried = nas.mgp(late).await;
        let stderr = String::from_utf8_lossy(&tried.stderr).into_owned();
        assert!(!tried.status.success(), "{late:?}: {stderr}");
        assert!(stderr.contains(reason), "{late:?}: {stderr}");
    }
    let pending = nas.mgp(&["pending"]).await;
    let pending = String::from_utf8_lossy(&pending.stdout).into_owned();
    assert!(
        pending.contains(&format!("mgp approve {words}")),
        "{pending}"
    );
    assert!(
        pending.contains("NOTE: it asked as desk before"),
        "{pending}"
    );
    let shown = nas.mgp(&["nodes", "tickets"]).await;
    let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
    assert!(shown.contains("NOTE: it asked as desk before"), "{shown}");
    assert!(shown.contains("NOTE: its name looks like nas"), "{shown}");
    nas.mgp_json(&["approve", words]).await;
    linked(&nas, &desk).await;
    assert_eq!(standing(&nas, "na5").await, "linked");
}

/// PRJ-004, FED-017: a person says no, and the other side is told.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_is_turned_away() {
    let (nas, desk) = (node("nas", "").await, node("desk", "").await);
    let ticket = ticket(&nas, &[]).await;
    let joining = desk.program(&["nodes", "join", &ticket]);
    let refusing = async {
        waiting(&nas).await;
        let later = nas.mgp_json(&["deny", "desk", "--later"]).await;
        assert_eq!(later["verdict"], "deferred");
        nas.mgp_json(&["deny", "desk"]).await
    };
    let (joined, refused) = tokio::join!(joining.output(DEADLINE), refusing);
    assert_eq!(refused["verdict"], "denied");
    assert!(!joined.status.success(), "{joined:?}");
    let mut desk = operator(&desk).await;
    assert_eq!(admission(&mut desk).await["stage"], "refused");
}
