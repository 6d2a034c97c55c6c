//! Tools under another name, with other words, or not at all (decision 52).

use mgp_tests::harness::{Agent, DEADLINE, Kernel, Program, wait_until};
use serde_json::{Value, json};

use crate::scene::{self, NEWEST};

const RULES: &str = r#"
[servers.tools."echo"]
name = "say"
description = "Says back what it hears."
[servers.tools."pid"]
hidden = true
[servers.tools."hang"]
name = "count"
"#;

async fn kernel() -> Kernel {
    let kernel = Kernel::start(&(Program::fixture(&[]).entry("it") + RULES)).await;
    kernel.connected(&["it"]).await;
    kernel
}

async fn said(kernel: &Kernel, args: &[&str]) -> String {
    let output = kernel.mgp(args).await;
    String::from_utf8([output.stdout, output.stderr].concat()).unwrap()
}

fn find<'v>(list: &'v Value, name: &str) -> Option<&'v Value> {
    let mut all = list["tools"].as_array().unwrap().iter();
    all.find(|tool| tool["name"] == name)
}

/// Decision 52: agents see the new name and words at every door; the server is called by its own name.
#[tokio::test]
async fn a_tool_is_called_by_the_name_it_is_shown_under() {
    let kernel = kernel().await;
    for (server, prefix) in [(None, "it__"), (Some("it"), "")] {
        let mut agent = scene::http_agent(&kernel, server, "{}").await;
        let list = agent.request("tools/list", json!({})).await.result();
        let shown = find(&list, &format!("{prefix}say")).expect("it is listed");
        assert_eq!(shown["description"], "Says back what it hears.");
        assert_eq!(shown["inputSchema"]["properties"]["text"]["type"], "string");
        for gone in ["echo", "pid"] {
            assert!(find(&list, &format!("{prefix}{gone}")).is_none(), "{gone}");
        }
        for name in ["say", "echo"] {
            let name = format!("{prefix}{name}");
            let echo = agent.call(&name, json!({"text": "heard"})).await;
            assert!(echo.text().contains("heard"), "{}", echo.frame);
            let wrong = agent.call(&name, json!({"text": 1})).await;
            let told = wrong.text();
            assert!(
                told.contains("Invalid arguments"),
                "its schema counts: {told}"
            );
        }
        let hidden = agent.call(&format!("{prefix}pid"), json!({})).await;
        assert!(hidden.is_error(), "{}", hidden.frame);
        // No tool takes the name of another one.
        let counted = scene::counts(&mut agent, &format!("{prefix}count")).await;
        assert!(counted["calls"]["echo"].is_u64(), "{counted}");
        assert_eq!(counted["calls"]["say"], Value::Null);
    }
    let hidden = kernel.mgp(&["tools", "call", "it:pid"]).await;
    assert!(!hidden.status.success());
    // A hidden tool can be named in the configuration.
    let status = said(&kernel, &["status"]).await;
    assert!(!status.contains("has no tool"), "{status}");
    let log = said(&kernel, &["servers", "logs", "it"]).await;
    assert!(log.contains("tool hang keeps its name"), "{log}");
}

/// Decision 52: grants, records and explanations know the tool by its server's name, and say the other one.
#[tokio::test]
async fn grants_and_records_name_a_renamed_tool_as_its_server_does() {
    let kernel = kernel().await;
    assert!(kernel.mgp(&["agents", "add", "bob"]).await.status.success());
    let mut bob = Agent::over_stdio(&kernel.program(&["stdio", "--agent", "bob"]));
    bob.initialize(NEWEST, "{}").await.result();
    bob.call("it__say", json!({"text": "x"})).await.result();
    wait_until("the call is in the log", DEADLINE, async || {
        let log = said(&kernel, &["audit", "tail", "--json"]).await;
        let line = log
            .lines()
            .find(|line| line.contains("\"shown_as\":\"say\""));
        line.is_some_and(|line| line.contains("\"tool_name\":\"echo\""))
    })
    .await;
    let why = said(&kernel, &["explain", "bob", "it:echo"]).await;
    assert!(why.contains("agents are shown it as it__say"), "{why}");
    let found = said(
        &kernel,
        &["tools", "find", "say", "--strategy", "keyword", "--json"],
    )
    .await;
    assert!(found.contains("\"tool_id\":\"it:echo\""), "{found}");
    let closed = kernel
        .mgp(&["grants", "add", "bob", "it:echo", "--deny"])
        .await;
    assert!(closed.status.success(), "{closed:?}");
    let refused = bob.call("it__say", json!({"text": "x"})).await;
    assert!(refused.is_error(), "{}", refused.frame);
    let list = bob.request("tools/list", json!({})).await.result();
    assert!(find(&list, "it__say").is_none());
}

/// Decision 52: a change of the rules is seen without a new handshake.
#[tokio::test]
async fn a_new_name_is_taken_up_while_the_kernel_runs() {
    let kernel = Kernel::start(&Program::fixture(&[]).entry("it")).await;
    kernel.connected(&["it"]).await;
    let mut agent = scene::http_agent(&kernel, None, "{}").await;
    kernel.rewrite(&(Program::fixture(&[]).entry("it") + RULES));
    wait_until("it has its name", DEADLINE, async || {
        let list = agent.request("tools/list", json!({})).await.result();
        find(&list, "it__say").is_some()
    })
    .await;
    agent.hears("notifications/tools/list_changed").await;
}
