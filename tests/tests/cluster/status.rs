//! What the status, the lists and the refusals say: what is known, and no more.

use std::process::Output;

use mgp_tests::harness::kernel::nodes::JoinedNodes;
use mgp_tests::harness::{DEADLINE, Kernel, wait_until};
use serde_json::Value;

use crate::network::{becomes, machine, network};
use crate::scene::{
    call, demo, join, linked, node, shows, shows_no_more, standing, ticket, waiting,
};

const TOOL: &str = "nas/demo:test_simple_text";

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

async fn status(kernel: &Kernel) -> Value {
    kernel.mgp_json(&["cluster", "status"]).await
}

async fn row(kernel: &Kernel, name: &str) -> Value {
    let status = status(kernel).await;
    let nodes = status["nodes"].as_array().cloned().unwrap_or_default();
    let row = nodes.into_iter().find(|node| node["name"] == name);
    row.unwrap_or_default()
}

/// `mgp nodes remove` asks first; who is cut off hears of it, and says so instead of what it was; its row can be forgotten.
#[tokio::test(flavor = "multi_thread")]
async fn removed_node_reports_its_removal_and_can_be_forgotten() {
    let (nas, desk) = (node("nas", &demo()).await, node("desk", "").await);
    nas.connected(&["demo"]).await;
    join(&nas, &desk, &[]).await;
    nas.mgp_json(&["shares", "add", "demo", "--to", "node:desk"])
        .await;
    nas.mgp_json(&["grants", "add", "local@desk", "demo"]).await;
    let asked = nas.mgp(&["nodes", "remove", "desk"]).await;
    let told = stderr(&asked);
    assert_eq!(asked.status.code(), Some(2), "{told}");
    assert!(
        told.contains("grants of its agents: 1 (agent.local@desk: demo)"),
        "{told}"
    );
    assert!(told.contains("shared with it alone: 1 (demo)"), "{told}");
    assert!(told.contains("`mgp nodes remove desk -y`"), "{told}");
    assert_eq!(standing(&nas, "desk").await, "linked", "nothing was done");
    assert_eq!(status(&desk).await["membership"], Value::Null);
    nas.mgp_json(&["nodes", "remove", "desk", "-y"]).await;
    wait_until("desk knows that it is refused", DEADLINE, async || {
        status(&desk).await["membership"] == "refused"
    })
    .await;
    let shown = desk.mgp(&["cluster", "status"]).await;
    let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
    assert!(shown.contains("here, refused"), "{shown}");
    assert!(!shown.contains(", confirmed"), "{shown}");
    assert!(
        shown.contains("nas ended the link as that of a node that was cut off"),
        "{shown}"
    );
    let id = desk.mgp_json(&["nodes", "show"]).await;
    assert!(
        id["trouble"].as_str().unwrap().contains("mgp nodes leave"),
        "{id:#}"
    );
    let forgotten = nas.mgp_json(&["nodes", "forget", "desk"]).await;
    assert_eq!(
        forgotten["nodes"].as_array().unwrap().len(),
        1,
        "{forgotten:#}"
    );
    assert_eq!(status(&nas).await["nodes"].as_array().unwrap().len(), 1);
    let again = nas.mgp(&["nodes", "forget", "desk"]).await;
    assert_eq!(again.status.code(), Some(2), "{}", stderr(&again));
}

/// Without waiting for the answer, but for whether the ticket is taken.
#[tokio::test(flavor = "multi_thread")]
async fn used_ticket_fails_before_any_approval() {
    let (nas, desk) = (node("nas", "").await, node("desk", "").await);
    let ticket = ticket(&nas, &[]).await;
    let asked = desk.mgp(&["nodes", "join", &ticket, "--no-wait"]).await;
    assert!(asked.status.success(), "{}", stderr(&asked));
    assert!(stderr(&asked).contains("mgp approve"), "{}", stderr(&asked));
    let words = waiting(&nas).await["words"].as_str().unwrap().to_owned();
    nas.mgp_json(&["approve", &words]).await;
    linked(&nas, &desk).await;
    let den = node("den", "").await;
    let refused = den.mgp(&["nodes", "join", &ticket, "--no-wait"]).await;
    let told = stderr(&refused);
    assert!(!refused.status.success(), "{told}");
    assert!(!told.contains("mgp approve"), "{told}");
    assert!(told.contains("ask for another one"), "{told}");
}

/// What nobody granted is not listed for an agent, and its refusal says what to type, and where.
#[tokio::test(flavor = "multi_thread")]
async fn ungranted_tool_is_not_listed_and_its_error_names_the_command() {
    let (nas, desk) = (node("nas", &demo()).await, node("desk", "").await);
    nas.connected(&["demo"]).await;
    join(&nas, &desk, &[]).await;
    nas.mgp_json(&["shares", "add", "demo", "--to", "cluster"])
        .await;
    shows(&desk, "nas__demo__test_simple_text").await;
    let listed = async || {
        let listed = desk.mgp(&["tools", "list", "--agent", "local"]).await;
        String::from_utf8_lossy(&listed.stdout).contains(TOOL)
    };
    assert!(!listed().await, "nobody granted it");
    let refused = desk.mgp(&["tools", "call", TOOL, "{}"]).await;
    let told = stderr(&refused);
    assert!(
        told.contains("on nas: mgp grants add local@desk demo"),
        "{told}"
    );
    nas.mgp_json(&["grants", "add", "local@desk", "demo"]).await;
    wait_until("the grant is known at desk", DEADLINE, async || {
        listed().await
    })
    .await;
    assert!(call(&desk, TOOL).await);
}

/// A promotion by an entry that every version reads; a demotion that keeps the node, and what it took away.
#[tokio::test(flavor = "multi_thread")]
async fn a_promoted_node_grants_and_a_demoted_one_keeps_its_revokes() {
    let (nas, desk, den) = (
        node("nas", &demo()).await,
        node("desk", "").await,
        node("den", "").await,
    );
    nas.connected(&["demo"]).await;
    join(&nas, &desk, &[]).await;
    join(&nas, &den, &[]).await;
    linked(&desk, &den).await;
    nas.mgp_json(&["shares", "add", "demo", "--to", "cluster"])
        .await;
    let refused = desk.mgp(&["grants", "add", "local@den", "nas/demo"]).await;
    assert!(!refused.status.success(), "a member grants nothing");
    let last = nas.mgp(&["nodes", "demote", "nas"]).await;
    assert!(
        stderr(&last).contains("it is the last admin"),
        "{}",
        stderr(&last)
    );
    nas.mgp_json(&["nodes", "promote", "desk"]).await;
    shows(&desk, "nas__demo__test_simple_text").await;
    wait_until("desk grants", DEADLINE, async || {
        let granted = desk.mgp(&["grants", "add", "local@den", "nas/demo"]).await;
        granted.status.success()
    })
    .await;
    shows(&den, "nas__demo__test_simple_text").await;
    wait_until("den calls", DEADLINE, async || call(&den, TOOL).await).await;
    nas.mgp_json(&["grants", "add", "local@desk", "demo"]).await;
    desk.mgp_json(&["grants", "remove", "local@den", "nas/demo"])
        .await;
    let demoted = nas.mgp_json(&["nodes", "demote", "desk"]).await;
    assert_eq!(demoted["role"], "member", "{demoted:#}");
    assert_eq!(row(&nas, "desk").await["role"], "member");
    assert_eq!(standing(&nas, "desk").await, "linked", "it stays in");
    wait_until("desk knows", DEADLINE, async || {
        row(&desk, "desk").await["role"] == "member"
    })
    .await;
    let refused = desk.mgp(&["grants", "add", "local@den", "nas/demo"]).await;
    assert!(!refused.status.success(), "it grants nothing more");
    assert!(!call(&den, TOOL).await, "what it revoked stays revoked");
    assert!(call(&desk, TOOL).await, "its own agents go on");
    let again = nas.mgp(&["nodes", "promote", "desk"]).await;
    assert!(
        stderr(&again).contains("it was demoted"),
        "{}",
        stderr(&again)
    );
}

/// A drained node shares nothing until that is ended, and its own agents go on.
#[tokio::test(flavor = "multi_thread")]
async fn a_drained_node_takes_no_calls_until_that_is_ended() {
    let JoinedNodes { nas, desk } = JoinedNodes::sharing(&demo(), &["demo"]).await;
    assert!(call(&desk, TOOL).await);
    let drained = nas.mgp_json(&["nodes", "drain"]).await;
    assert_eq!(
        (&drained["draining"], &drained["calls"]),
        (&true.into(), &0.into())
    );
    shows_no_more(&desk, "nas__demo__test_simple_text").await;
    assert!(!call(&desk, TOOL).await);
    assert!(call(&nas, "demo:test_simple_text").await);
    nas.mgp_json(&["nodes", "drain", "--end"]).await;
    shows(&desk, "nas__demo__test_simple_text").await;
    wait_until("calls are taken again", DEADLINE, async || {
        call(&desk, TOOL).await
    })
    .await;
}

/// Each node's lease, as it says, and who has no link to whom; of a node that is away its last address, since when, and
/// what it shared: never that it shares nothing.
#[tokio::test(flavor = "multi_thread")]
async fn disconnected_node_is_shown_with_its_last_known_state() {
    let Some(network) = network(3) else {
        return;
    };
    let nas = machine(&network, 0, "nas", &demo()).await;
    let desk = machine(&network, 1, "desk", "").await;
    let den = machine(&network, 2, "den", "").await;
    nas.connected(&["demo"]).await;
    join(&nas, &desk, &[]).await;
    join(&nas, &den, &[]).await;
    linked(&desk, &den).await;
    nas.mgp_json(&["shares", "add", "demo", "--to", "cluster"])
        .await;
    nas.mgp_json(&["grants", "add", "local@desk", "demo"]).await;
    shows(&desk, "nas__demo__test_simple_text").await;
    wait_until("den has said what its lease is", DEADLINE, async || {
        row(&desk, "den").await["lease_secs"] == 30
    })
    .await;
    let address = row(&desk, "nas").await["address"].clone();
    network.cut(0);
    becomes(&desk, "nas", "away").await;
    let away = row(&desk, "nas").await;
    assert_eq!(away["address"], address, "{away:#}");
    assert!(away["since_ms"].is_u64(), "{away:#}");
    wait_until("den says that it cannot reach nas", DEADLINE, async || {
        row(&desk, "den").await["unreached"][0] == "nas"
    })
    .await;
    let mut told = String::new();
    wait_until("its servers are hidden", DEADLINE, async || {
        told = stderr(&desk.mgp(&["servers", "list"]).await);
        told.contains("nas is away")
    })
    .await;
    assert!(told.contains("nas/demo comes back"), "{told}");
    // A moment earlier its name is still known, and its node is away all the same.
    wait_until(
        "a call is answered with when it was heard",
        DEADLINE,
        async || {
            told = stderr(&desk.mgp(&["tools", "call", TOOL, "{}"]).await);
            assert!(told.contains("is away"), "{told}");
            told.contains("nas is away and was last heard")
        },
    )
    .await;
    assert!(!told.contains("is not shared"), "{told}");
}
