//! Lists that change, and who is told.

use std::time::{Duration, Instant};

use mgp_tests::harness::{Agent, DEADLINE, Kernel, Program, wait_until};
use serde_json::json;

use crate::scene::{self, NEWEST};

/// How soon a change must be heard of: far sooner than lists are fetched unasked, on a busy machine too.
const SOON: Duration = Duration::from_secs(15);

/// Agents of every kind: at everything and at one server, over both doors.
async fn audience(kernel: &Kernel, server: &str) -> Vec<Agent> {
    vec![
        scene::http_agent(kernel, None, "{}").await,
        scene::http_agent(kernel, Some(server), "{}").await,
        scene::socket_agent(kernel, "{}").await,
    ]
}

/// What was heard of changed lists, once whatever was on its way is there.
async fn heard(agent: &mut Agent) -> Vec<String> {
    agent.request("ping", json!({})).await.result();
    let lists = agent
        .all_heard()
        .iter()
        .map(|n| n["method"].as_str().unwrap().to_owned());
    let lists = lists
        .filter(|method| method.ends_with("/list_changed"))
        .collect();
    agent.forget();
    lists
}

/// MCP-042, MCP-047, MCP-065: one change of one list is one notification to each agent, soon, and
/// the list is then the new one.
#[tokio::test]
async fn changed_list_notifies_each_agent_once() {
    let kernel = scene::kernel().await;
    let mut agents = audience(&kernel, "it").await;
    let mut changer = scene::socket_agent(&kernel, "{}").await;
    for (tool, method, key, name) in [
        (
            "it:test_trigger_tool_change",
            "tools",
            "name",
            "test_dynamic_tool",
        ),
        (
            "it:test_trigger_prompt_change",
            "prompts",
            "name",
            "test_dynamic_prompt",
        ),
        (
            "it:test_trigger_resource_change",
            "resources",
            "uri",
            "test://dynamic",
        ),
    ] {
        for there in [true, false] {
            changer.call(tool, json!({})).await.result();
            let since = Instant::now();
            let notification = format!("notifications/{method}/list_changed");
            for agent in &mut agents {
                agent.hears(&notification).await;
                assert!(since.elapsed() < SOON, "{:?}", since.elapsed());
                let list = agent
                    .request(&format!("{method}/list"), json!({}))
                    .await
                    .result();
                let items = list[method].as_array().unwrap();
                let shown = items
                    .iter()
                    .any(|item| item[key].as_str().unwrap().ends_with(name));
                assert_eq!(shown, there, "{name}");
            }
            for agent in &mut agents {
                assert_eq!(heard(agent).await, [""; 0], "{tool}");
            }
        }
    }
}

/// MCP-065: a server that says so although nothing changed makes nobody fetch anything.
#[tokio::test]
async fn list_changed_without_a_change_notifies_no_agent() {
    let kernel = scene::kernel().await;
    let mut agents = audience(&kernel, "it").await;
    let mut changer = scene::socket_agent(&kernel, "{}").await;
    for kind in ["tools", "prompts", "resources"] {
        changer
            .call("it:notify", json!({"kind": kind}))
            .await
            .result();
    }
    // A real change behind them: what was said before has been dealt with when it is heard.
    changer
        .call("it:test_trigger_tool_change", json!({}))
        .await
        .result();
    for agent in &mut agents {
        agent.hears("notifications/tools/list_changed").await;
        assert_eq!(heard(agent).await, [""; 0]);
    }
}

/// A server that comes or goes changes what everybody sees, and nothing for those at another one.
#[tokio::test]
async fn added_or_removed_server_notifies_the_agents_that_see_it() {
    let entry = |id: &str| Program::fixture(&[]).entry(id);
    let kernel = Kernel::start(&entry("one")).await;
    kernel.connected(&["one"]).await;
    let mut everything = scene::http_agent(&kernel, None, "{}").await;
    let mut owner = scene::socket_agent(&kernel, "{}").await;
    let mut elsewhere = scene::http_agent(&kernel, Some("one"), "{}").await;
    for servers in [entry("one") + &entry("two"), entry("one")] {
        kernel.rewrite(&servers);
        for agent in [&mut everything, &mut owner] {
            for list in ["tools", "prompts", "resources"] {
                agent
                    .hears(&format!("notifications/{list}/list_changed"))
                    .await;
            }
            assert_eq!(heard(agent).await, [""; 0]);
        }
    }
    assert_eq!(heard(&mut elsewhere).await, [""; 0]);
}

/// A server that died and stays so takes its lists along, soon; one that comes back with the same
/// lists has changed nothing.
#[tokio::test]
async fn a_server_that_died_takes_its_lists_along() {
    let mortal = Program::fixture(&[]).entry("mortal") + "restart_policy = \"never\"\n";
    let phoenix = Program::fixture(&[]).entry("phoenix") + "backoff_base_ms = 1\n";
    let kernel = Kernel::start(&(mortal + &phoenix)).await;
    kernel.connected(&["mortal", "phoenix"]).await;
    let mut agent = scene::socket_agent(&kernel, "{}").await;
    let mut at_phoenix = scene::http_agent(&kernel, Some("phoenix"), "{}").await;
    assert_eq!(agent.call("phoenix:crash", json!({})).await.code(), -32603);
    let back = async || {
        agent
            .call("phoenix:echo", json!({"text": "x"}))
            .await
            .frame
            .contains("result")
    };
    wait_until("it is back", DEADLINE, back).await;
    assert_eq!(heard(&mut agent).await, [""; 0]);
    assert_eq!(agent.call("mortal:crash", json!({})).await.code(), -32603);
    let since = Instant::now();
    for list in ["tools", "prompts", "resources"] {
        agent
            .hears(&format!("notifications/{list}/list_changed"))
            .await;
    }
    assert!(since.elapsed() < SOON, "{:?}", since.elapsed());
    let tools = agent.request("tools/list", json!({})).await;
    assert!(!tools.frame.contains("mortal__") && tools.frame.contains("phoenix__"));
    assert_eq!(heard(&mut agent).await, [""; 0]);
    assert_eq!(heard(&mut at_phoenix).await, [""; 0]);
}

/// MCP-017: an agent that has not said it is ready is told nothing, and from then on everything.
#[tokio::test]
async fn agent_is_not_notified_before_initialized() {
    let kernel = scene::kernel().await;
    let mut changer = scene::socket_agent(&kernel, "{}").await;
    let mut agent = Agent::over_socket(&kernel.socket()).await;
    agent
        .send(&mgp_tests::harness::handshake::initialize(NEWEST, "{}"))
        .await;
    agent.answer_to(&json!(0)).await.result();
    changer
        .call("it:test_trigger_tool_change", json!({}))
        .await
        .result();
    changer.hears("notifications/tools/list_changed").await;
    assert_eq!(heard(&mut agent).await, [""; 0]);
    agent.notify("notifications/initialized", json!({})).await;
    agent.request("ping", json!({})).await.result();
    changer
        .call("it:test_trigger_tool_change", json!({}))
        .await
        .result();
    agent.hears("notifications/tools/list_changed").await;
    assert_eq!(heard(&mut agent).await, [""; 0]);
}
