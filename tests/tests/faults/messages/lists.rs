//! Servers whose lists cannot be had, or hold what nobody can read.

use mgp_tests::harness::{Agent, Kernel};
use serde_json::{Value, json};

use crate::scene::{echoes, in_state, owner, server, until};

/// What is left out of a server, as the owner is shown it.
fn left_out(server: &Value) -> Vec<String> {
    serde_json::from_value(server["left_out"].clone()).unwrap()
}

/// How many entries a list has.
async fn listed(agent: &mut Agent, method: &str, member: &str) -> usize {
    let list = agent.request(method, json!({})).await.result();
    list[member].as_array().unwrap().len()
}

/// A list that a server answers with an error is left out, said and asked for again; all else works.
#[tokio::test]
async fn a_list_that_is_refused_costs_the_others_nothing() {
    let flags = ["--unknown-list", "prompts/list"];
    let kernel = Kernel::start(&server("it", &flags, "")).await;
    let mut agent = owner(&kernel).await;
    in_state(&mut agent, "it", "connected").await;
    echoes(&mut agent, "it").await;
    assert!(listed(&mut agent, "resources/list", "resources").await > 1);
    assert_eq!(listed(&mut agent, "prompts/list", "prompts").await, 0);
    let it = until(&mut agent, "it", "has been asked again", |it| {
        left_out(it).iter().any(|why| why.contains("after 2 s"))
    })
    .await;
    let why = &left_out(&it)[0];
    assert!(why.starts_with("prompts/list: "), "{why}");
    assert!(why.contains("(-32601)"), "{why}");
    assert_eq!(it["state"], "connected");
    let table = kernel.mgp(&["servers", "list"]).await;
    let table = String::from_utf8_lossy(&table.stdout).into_owned();
    assert!(table.contains("left out: prompts/list"), "{table}");
    let log = kernel.mgp(&["servers", "logs", "it"]).await;
    let log = String::from_utf8_lossy(&log.stdout).into_owned();
    assert!(log.contains("prompts/list: "), "{log}");
}

/// The same of a list that comes when it is asked for again: then nothing is left out any more.
#[tokio::test]
async fn a_list_that_failed_once_comes_back() {
    let flags = ["--failing-list", "tools/list"];
    let kernel = Kernel::start(&server("it", &flags, "")).await;
    let mut agent = owner(&kernel).await;
    in_state(&mut agent, "it", "connected").await;
    assert!(listed(&mut agent, "prompts/list", "prompts").await > 0);
    let it = until(&mut agent, "it", "has its tools", |it| it["tools"] != 0).await;
    assert_eq!(left_out(&it), [""; 0]);
    echoes(&mut agent, "it").await;
}

/// A list that is never answered holds nobody up: the server is there without it.
#[tokio::test]
async fn unanswered_list_delays_no_other_list() {
    let flags = ["--hanging-list", "resources/list"];
    let kernel = Kernel::start(&server("it", &flags, "call_timeout_secs = 600")).await;
    let mut agent = owner(&kernel).await;
    let it = in_state(&mut agent, "it", "connected").await;
    let why = &left_out(&it)[0];
    assert!(why.starts_with("resources/list: no answer yet"), "{why}");
    echoes(&mut agent, "it").await;
    assert!(listed(&mut agent, "resources/templates/list", "resourceTemplates").await > 0);
}

/// Pages that break off: what came of them is there.
#[tokio::test]
async fn a_list_that_breaks_off_is_there_as_far_as_it_came() {
    let flags = ["--page", "5", "--torn-list", "tools/list"];
    let kernel = Kernel::start(&server("it", &flags, "")).await;
    let mut agent = owner(&kernel).await;
    let it = in_state(&mut agent, "it", "connected").await;
    assert_eq!(it["tools"], 5);
    let why = &left_out(&it)[0];
    assert!(
        why.starts_with("tools/list: the shelf fell down (-32603)"),
        "{why}"
    );
    assert!(listed(&mut agent, "prompts/list", "prompts").await > 0);
}

/// A server that gives no list at all is no server: it is tried again whole.
#[tokio::test]
async fn a_server_without_any_list_is_started_again() {
    let flags = ["tools/list", "prompts/list", "resources/list"];
    let flags = flags.map(|method| ["--unknown-list", method]).concat();
    let kernel = Kernel::start(&server("it", &flags, "backoff_base_ms = 60000")).await;
    let mut agent = owner(&kernel).await;
    let it = in_state(&mut agent, "it", "restarting").await;
    let why = it["reason"].to_string();
    assert!(why.contains("tools/list: "), "{why}");
}

/// CMCP-049: tools that no strict client could read are left out by name, and not passed on.
#[tokio::test]
async fn invalid_tool_definition_is_left_out_by_name() {
    let flags = [
        "--tool",
        r#"{"name":"bare","inputSchema":null}"#,
        "--tool",
        r#"{"name":"icy","inputSchema":{"type":"object"},"icons":{"src":"a.png"}}"#,
    ];
    let kernel = Kernel::start(&server("it", &flags, "")).await;
    let mut agent = owner(&kernel).await;
    let it = in_state(&mut agent, "it", "connected").await;
    let wrong = [
        r#"tool bare: the definition has no "inputSchema""#,
        r#"tool icy: "icons" is no array"#,
    ];
    assert_eq!(left_out(&it), wrong);
    let tools = agent.request("tools/list", json!({})).await.result();
    let tools = tools["tools"].to_string();
    assert!(!tools.contains("it__bare") && !tools.contains("it__icy"));
    assert_eq!(agent.call("it__bare", json!({})).await.code(), -32602);
    let log = kernel.mgp(&["servers", "logs", "it"]).await;
    let log = String::from_utf8_lossy(&log.stdout).into_owned();
    assert!(log.contains(wrong[0]), "{log}");
}

/// A server that declares nothing and lists tools all the same: they are there, and the log says why.
#[tokio::test]
async fn tools_that_are_not_declared_are_listed() {
    let flags = "--without tools --without prompts --without resources";
    let flags: Vec<&str> = flags.split(' ').collect();
    let kernel = Kernel::start(&server("it", &flags, "")).await;
    let mut agent = owner(&kernel).await;
    let it = in_state(&mut agent, "it", "connected").await;
    assert_ne!(it["tools"], 0, "{it:#}");
    echoes(&mut agent, "it").await;
    let mut own = kernel.http_agent(Some("it"));
    let hello = own.initialize("2025-11-25", "{}").await.result();
    assert!(hello["capabilities"]["tools"].is_object(), "{hello:#}");
    let log = kernel.mgp(&["servers", "logs", "it"]).await;
    let log = String::from_utf8_lossy(&log.stdout).into_owned();
    assert!(log.contains("declares no tools"), "{log}");
}

/// One that has none, whatever it does when it is asked, is connected without.
#[tokio::test]
async fn a_server_that_declares_nothing_and_lists_nothing_is_connected() {
    let nothing = "--without tools --without prompts --without resources";
    let flags = |trouble: &str| format!("{nothing} {trouble} tools/list");
    let entry =
        |id: &str, trouble: &str| server(id, &flags(trouble).split(' ').collect::<Vec<_>>(), "");
    let servers = entry("unknown", "--unknown-list") + &entry("silent", "--hanging-list");
    let kernel = Kernel::start(&servers).await;
    let mut agent = owner(&kernel).await;
    for id in ["unknown", "silent"] {
        let it = in_state(&mut agent, id, "connected").await;
        assert_eq!(
            (&it["tools"], left_out(&it)),
            (&json!(0), Vec::new()),
            "{id}"
        );
    }
}
