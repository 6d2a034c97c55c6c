//! Grants for several agents and tools together, and what a node denies its own agents by itself.

use mgp_tests::harness::{DEADLINE, Kernel, wait_until};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::scene::{NEWEST, demo, join, node, shows};

const TEXT: &str = "test_simple_text";
const IMAGE: &str = "test_image_content";

/// Whether an agent at the open door of a kernel gets an answer of a server of another node, and is shown the tool.
async fn may(kernel: &Kernel, node: &str, tool: &str) -> (bool, bool) {
    let name = format!("{node}__demo__{tool}");
    let mut agent = kernel.http_agent(None);
    agent.initialize(NEWEST, "{}").await.result();
    let listed = agent.request("tools/list", json!({})).await.result();
    let tools = listed["tools"].as_array().cloned().unwrap_or_default();
    let shown = tools.iter().any(|tool| tool["name"] == name);
    let answer = agent.call(&name, json!({})).await;
    let answer: Value = serde_json::from_str(&answer.frame).unwrap();
    let answers = answer["result"].is_object() && answer["result"]["isError"] != true;
    (answers, shown)
}

async fn comes_to(kernel: &Kernel, tool: &str, answers: bool) {
    wait_until(
        &format!("{tool} answers: {answers}"),
        DEADLINE,
        async || may(kernel, "nas", tool).await.0 == answers,
    )
    .await;
}

async fn refused(kernel: &Kernel, args: &[&str]) -> String {
    let output = kernel.mgp(args).await;
    assert!(!output.status.success(), "{args:?}");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn agents(listed: &Value) -> Vec<(&str, Option<&str>)> {
    let entries = listed["entries"].as_array().unwrap().iter();
    let shown = entries.map(|entry| {
        let agent = entry["agent_id"].as_str().unwrap();
        (agent, entry["tool_name"].as_str())
    });
    shown.collect()
}

/// Agents of a node, agents of a name, tools whose names begin alike: each is one entry, and closes as one.
#[tokio::test(flavor = "multi_thread")]
async fn grant_with_a_pattern_is_one_entry_that_is_revoked_as_one() {
    let (nas, desk) = (node("nas", &demo()).await, node("desk", "").await);
    nas.connected(&["demo"]).await;
    join(&nas, &desk, &[]).await;
    nas.mgp_json(&["shares", "add", "demo", "--to", "cluster"])
        .await;
    shows(&desk, "nas__demo__test_simple_text").await;
    assert!(!may(&desk, "nas", TEXT).await.0, "nothing is granted");
    nas.mgp_json(&["grants", "add", "*@desk", "demo"]).await;
    comes_to(&desk, TEXT, true).await;
    let listed = nas
        .mgp_json(&["grants", "list", "--agent", "anonymous@desk"])
        .await;
    assert_eq!(agents(&listed), [("*@desk", None)]);
    let explained = nas.mgp_json(&["explain", "anonymous@desk", "demo"]).await;
    let rule = explained["rule"].as_str().unwrap();
    assert!(rule.contains("to every agent of desk"), "{rule}");
    desk.mgp_json(&["agents", "add", "alice"]).await;
    let tools = desk.mgp_json(&["tools", "list", "--agent", "alice"]).await;
    let tools = tools.to_string();
    assert!(tools.contains(TEXT), "{tools}");
    // What names less takes nothing back, and says what to revoke.
    let why = refused(&nas, &["grants", "remove", "anonymous@desk", "demo"]).await;
    assert!(why.contains("mgp grants remove '*@desk' 'demo'"), "{why}");
    assert!(may(&desk, "nas", TEXT).await.0);
    // One agent is left out by a denial, which a revoke ends.
    nas.mgp_json(&["grants", "add", "anonymous@desk", "demo", "--deny"])
        .await;
    comes_to(&desk, TEXT, false).await;
    nas.mgp_json(&["grants", "remove", "anonymous@desk", "demo"])
        .await;
    comes_to(&desk, TEXT, true).await;
    nas.mgp_json(&["grants", "remove", "*@desk", "demo"]).await;
    comes_to(&desk, TEXT, false).await;
    nas.mgp_json(&["grants", "add", "anonymous@*", "demo:test_simple_*"])
        .await;
    comes_to(&desk, TEXT, true).await;
    assert!(!may(&desk, "nas", IMAGE).await.0, "another tool");
    // The same again takes the place of the first one.
    let again = nas
        .mgp_json(&["grants", "add", "anonymous@*", "demo:test_simple_*"])
        .await;
    assert_eq!(again["replaced"].as_array().unwrap().len(), 1, "{again:#}");
    let listed = nas.mgp_json(&["grants", "list"]).await;
    let all = [("agent.anonymous@*", Some("test_simple_*"))];
    assert_eq!(agents(&listed), all);
    for wrong in [["*@*", "demo"], ["*@attic", "demo"], ["*", "demo"]] {
        refused(&nas, &["grants", "add", wrong[0], wrong[1]]).await;
    }
}

/// EXT-143, EXT-145: a condition travels as grants do, the owner evaluates it, and both sides explain it.
#[tokio::test(flavor = "multi_thread")]
async fn a_condition_on_a_grant_is_evaluated_by_the_owner() {
    let (nas, desk) = (node("nas", &demo()).await, node("desk", "").await);
    nas.connected(&["demo"]).await;
    join(&nas, &desk, &[]).await;
    nas.mgp_json(&["shares", "add", "demo", "--to", "cluster"])
        .await;
    nas.mgp_json(&["grants", "add", "anonymous@desk", "demo"])
        .await;
    shows(&desk, "nas__demo__echo").await;
    let when = "args.text.startsWith(\"permitted\")";
    let add = |agent| ["grants", "add", agent, "demo:echo", "--when", when];
    for agent in ["anonymous@desk", "*@desk"] {
        nas.mgp_json(&add(agent)).await;
        let mut caller = desk.http_agent(None);
        caller.initialize(NEWEST, "{}").await.result();
        let name = "nas__demo__echo";
        let (yes, no) = (json!({"text": "permitted"}), json!({"text": "forbidden"}));
        let refused = async || {
            let mut caller = desk.http_agent(None);
            caller.initialize(NEWEST, "{}").await.result();
            caller
                .call(name, no.clone())
                .await
                .frame
                .contains("with these arguments")
        };
        wait_until("the condition has arrived", DEADLINE, refused).await;
        let answer = caller.call(name, no.clone()).await;
        assert!(answer.frame.contains("startsWith"), "{}", answer.frame);
        let answer = caller.call(name, yes).await;
        assert!(!answer.frame.contains("isError\":true"), "{}", answer.frame);
        assert!(
            may(&desk, "nas", TEXT).await.0,
            "the server's grant is for the other tools"
        );
        for (kernel, agent, place) in [
            (&nas, "anonymous@desk", "demo:echo"),
            (&desk, "anonymous", "nas/demo:echo"),
        ] {
            for (text, permission) in [("text=permitted", "allow"), ("text=forbidden", "deny")] {
                let explained = kernel.mgp_json(&["explain", agent, place, text]).await;
                assert_eq!(explained["permission"], permission, "{explained:#}");
                assert_eq!(explained["conditions"][0]["when"], when, "{explained:#}");
            }
        }
        nas.mgp_json(&["grants", "remove", agent, "demo:echo"])
            .await;
        wait_until("the condition is gone", DEADLINE, async || !refused().await).await;
    }
}

/// EXT-216: an admin's entry gives an agent, or all of a node, the group of the cluster; a node's own entries give its
/// agents nothing elsewhere.
#[tokio::test(flavor = "multi_thread")]
async fn a_group_of_the_cluster_is_granted_by_admins() {
    let (nas, desk) = (node("nas", &demo()).await, node("desk", "").await);
    nas.connected(&["demo"]).await;
    join(&nas, &desk, &[]).await;
    nas.mgp_json(&["shares", "add", "demo", "--to", "cluster"])
        .await;
    shows(&desk, "nas__demo__test_simple_text").await;
    // The node says that its agent is in a group of that name; that is its own.
    desk.mgp_json(&["groups", "add", "readers", "anonymous"])
        .await;
    nas.mgp_json(&["grants", "add", "group.readers@*", "demo", "--yet-unknown"])
        .await;
    assert!(!may(&desk, "nas", TEXT).await.0, "no admin's entry");
    refused(&desk, &["groups", "add", "readers@*", "anonymous"]).await;
    nas.mgp_json(&["groups", "add", "readers", "anonymous@desk"])
        .await;
    comes_to(&desk, TEXT, true).await;
    let why = refused(&nas, &["grants", "remove", "anonymous@desk", "demo"]).await;
    assert!(
        why.contains("agent.readers@*") || why.contains("group.readers@*"),
        "{why}"
    );
    let explained = nas.mgp_json(&["explain", "anonymous@desk", "demo"]).await;
    let rule = explained["rule"].as_str().unwrap();
    assert!(rule.contains("to group.readers"), "{rule}");
    let there = desk.mgp_json(&["explain", "anonymous", "nas/demo"]).await;
    assert!(
        there["rule"].as_str().unwrap().contains("to group.readers"),
        "{there:#}"
    );
    let listed = nas.mgp_json(&["groups", "list"]).await;
    assert_eq!(
        listed["groups"][0]["members"][0]["is_cluster"], true,
        "{listed:#}"
    );
    nas.mgp_json(&["groups", "remove", "readers", "anonymous@desk"])
        .await;
    comes_to(&desk, TEXT, false).await;
    nas.mgp_json(&["groups", "add", "readers", "*@desk"]).await;
    comes_to(&desk, TEXT, true).await;
    nas.mgp_json(&["grants", "add", "anonymous@desk", "demo", "--deny"])
        .await;
    comes_to(&desk, TEXT, false).await;
    nas.mgp_json(&["grants", "remove", "anonymous@desk", "demo"])
        .await;
    comes_to(&desk, TEXT, true).await;
    // A node keeps all of a group of its own from a server of another one.
    desk.mgp_json(&["grants", "add", "group.readers", "nas/demo", "--deny"])
        .await;
    comes_to(&desk, TEXT, false).await;
    desk.mgp_json(&["grants", "remove", "group.readers", "nas/demo"])
        .await;
    comes_to(&desk, TEXT, true).await;
    nas.mgp_json(&["grants", "remove", "group.readers@*", "demo"])
        .await;
    comes_to(&desk, TEXT, false).await;
}

/// A member that is no admin keeps its own agents from a tool of another node, whatever is granted, over a restart, a
/// rename, and while the other node is away.
#[tokio::test(flavor = "multi_thread")]
async fn a_member_denies_its_own_agents_a_tool_of_another_node() {
    let (nas, desk) = (node("nas", &demo()).await, node("desk", "").await);
    nas.connected(&["demo"]).await;
    join(&nas, &desk, &[]).await;
    nas.mgp_json(&["shares", "add", "demo", "--to", "cluster"])
        .await;
    let own = ["explain", "anonymous", "nas/demo", "--yet-unknown"];
    let explained = desk.mgp_json(&own).await;
    let rule = explained["rule"].as_str().unwrap();
    assert!(rule.starts_with("nas decides: no grant"), "{explained:#}");
    assert_eq!(explained["permission"], "deny", "{explained:#}");
    nas.mgp_json(&["grants", "add", "anonymous@desk", "demo"])
        .await;
    shows(&desk, "nas__demo__test_simple_text").await;
    comes_to(&desk, TEXT, true).await;
    assert_eq!(desk.mgp_json(&own).await["permission"], "allow");
    let deny = [
        "grants",
        "add",
        "anonymous",
        "nas/demo:test_simple_text",
        "--deny",
    ];
    let denied = desk.mgp_json(&deny).await;
    assert!(denied["confirmed"].is_null(), "{denied:#}");
    assert_eq!(may(&desk, "nas", TEXT).await, (false, false));
    assert_eq!(may(&desk, "nas", IMAGE).await, (true, true));
    let listed = desk
        .mgp_json(&["grants", "list", "--agent", "anonymous"])
        .await;
    let entries = listed["entries"].as_array().unwrap().iter();
    let own = entries.filter(|entry| entry["permission"] == "deny");
    let own: Vec<&Value> = own.map(|entry| &entry["server_id"]).collect();
    assert_eq!(own, ["nas/demo"], "{listed:#}");
    let explained = desk
        .mgp_json(&["explain", "anonymous", "nas/demo:test_simple_text"])
        .await;
    assert_eq!(explained["permission"], "deny", "{explained:#}");
    nas.mgp_json(&["nodes", "rename", "attic"]).await;
    shows(&desk, "attic__demo__test_simple_text").await;
    assert_eq!(may(&desk, "attic", TEXT).await, (false, false));
    assert_eq!(may(&desk, "attic", IMAGE).await, (true, true));
    let folder = desk.end(Signal::SIGTERM, DEADLINE).await;
    let desk = Kernel::again(folder).await;
    shows(&desk, "attic__demo__test_simple_text").await;
    assert_eq!(may(&desk, "attic", TEXT).await, (false, false));
    nas.end(Signal::SIGKILL, DEADLINE).await;
    let explain = [
        "explain",
        "anonymous",
        "attic/demo:test_simple_text",
        "--yet-unknown",
    ];
    let explained = desk.mgp_json(&explain).await;
    let rule = explained["rule"].as_str().unwrap();
    assert!(rule.starts_with("this node denies it"), "{explained:#}");
    let ended = desk
        .mgp_json(&[
            "grants",
            "remove",
            "anonymous",
            "attic/demo:test_simple_text",
        ])
        .await;
    assert_eq!(ended["revoked"].as_array().unwrap().len(), 1, "{ended:#}");
}
