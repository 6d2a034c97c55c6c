//! `instances = "agent"`: a server of which each agent has an instance for itself.

use std::path::Path;
use std::time::{Duration, Instant};

use mgp_tests::harness::handshake::FULL;
use mgp_tests::harness::program::remote_entry;
use mgp_tests::harness::{Agent, DEADLINE, Kernel, Program, Upstream, wait_until};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::scene;

/// A kernel in front of a server, `it`, with these keys beside it.
async fn kernel(keys: &str) -> Kernel {
    let fixture = Program::fixture(&["--era", "legacy"]);
    let entry = fixture.entry("it") + "instances = \"agent\"\n" + keys;
    let kernel = Kernel::start(&entry).await;
    kernel.connected(&["it"]).await;
    kernel
}

/// An agent of this name that declines every form.
async fn agent(kernel: &Kernel, name: &str) -> Agent {
    let added = kernel.mgp(&["agents", "add", name]).await;
    assert!(added.status.success(), "{added:?}");
    let mut agent = Agent::over_stdio(&kernel.program(&["stdio", "--agent", name]));
    agent.initialize(scene::NEWEST, FULL).await.result();
    agent.answers("elicitation/create", json!({"action": "decline"}));
    agent
}

/// Claude and Codex.
async fn agents(kernel: &Kernel) -> (Agent, Agent) {
    (agent(kernel, "claude").await, agent(kernel, "codex").await)
}

/// The process that answers this agent.
async fn process(agent: &mut Agent) -> u64 {
    let said = scene::counts(agent, "it:pid").await;
    said["pid"].as_u64().unwrap()
}

fn lives(process: u64) -> bool {
    Path::new(&format!("/proc/{process}")).exists()
}

/// The server as the operator sees it.
async fn seen(kernel: &Kernel) -> Value {
    kernel.mgp_json(&["status"]).await["servers"][0].take()
}

/// Whose instances there are.
async fn whose(kernel: &Kernel) -> Vec<String> {
    let seen = seen(kernel).await;
    let all = seen["instances"].as_array().cloned().unwrap_or_default();
    let name = |one: &Value| one["agent"].as_str().unwrap().to_owned();
    all.iter().map(name).collect()
}

/// Two agents have two processes and two states beside the server's own, and the operator sees whose.
#[tokio::test]
async fn each_agent_has_a_process_and_a_state_of_its_own() {
    let kernel = kernel("").await;
    assert_eq!(whose(&kernel).await, [""; 0]);
    let (mut one, mut two) = agents(&kernel).await;
    let (first, second) = (process(&mut one).await, process(&mut two).await);
    let seen = seen(&kernel).await;
    assert_ne!(first, second);
    assert_eq!(process(&mut one).await, first, "it stays its own");
    assert!(seen["pid"] != first && seen["pid"] != second);
    assert_eq!(seen["instances"][0]["pid"], first);
    assert_eq!(whose(&kernel).await, ["agent.claude", "agent.codex"]);
    one.call("it:echo", json!({"text": "mine"})).await.result();
    let counted = async |agent: &mut Agent| scene::counts(agent, "it:count").await["calls"].take();
    assert_eq!(counted(&mut one).await["echo"], 1);
    assert_eq!(counted(&mut two).await["echo"], Value::Null);
    let shown = kernel.mgp(&["servers", "list"]).await.stdout;
    let shown = String::from_utf8_lossy(&shown);
    assert!(
        shown.contains("2 instances: agent.claude, agent.codex"),
        "{shown}"
    );
    let told = kernel.mgp(&["servers", "show", "it"]).await.stdout;
    let told = String::from_utf8_lossy(&told);
    let line = format!("process {first} with ");
    assert!(
        told.contains("agent.claude: connected") && told.contains(&line),
        "{told}"
    );
}

/// CMCP-074: a server that does not say in which call it asks holds nobody up, and asks the agent whose
/// instance it is.
#[tokio::test]
async fn request_of_an_instance_reaches_its_agent_and_delays_no_other() {
    let kernel = kernel("").await;
    let (mut one, mut two) = agents(&kernel).await;
    let form = json!({"name": "it:test_elicitation", "arguments": {"message": "?"}});
    let form_alone = json!({"message": "!"});
    let told = one.call("it:test_elicitation", form_alone).await.text();
    assert!(told.contains("action=decline"), "{told}");
    let hangs = one
        .start("tools/call", json!({"name": "it:hang", "arguments": {}}))
        .await;
    let busy = async || seen(&kernel).await["in_flight"] == 1;
    wait_until("it is called", DEADLINE, busy).await;
    let begun = Instant::now();
    let asked = two.start("tools/call", form).await;
    let told = two.answer_to(&asked).await.text();
    assert!(begun.elapsed() < Duration::from_secs(25), "it waited");
    assert!(told.contains("action=decline"), "{told}");
    assert_eq!((one.asked().len(), two.asked().len()), (1, 1));
    assert_eq!(seen(&kernel).await["waiting_turn"], 0);
    one.notify("notifications/cancelled", json!({"requestId": hangs}))
        .await;
}

/// A resource is followed at the agent's own instance, and nobody else hears of it.
#[tokio::test]
async fn resource_subscription_at_an_own_instance_notifies_its_agent_alone() {
    let kernel = kernel("").await;
    let (mut one, mut two) = agents(&kernel).await;
    let watched = json!({"uri": "test://watched-resource"});
    for agent in [&mut one, &mut two] {
        agent
            .request("resources/subscribe", watched.clone())
            .await
            .result();
    }
    for agent in [&mut one, &mut two] {
        let calls = scene::counts(agent, "it:count").await["methods"].take();
        assert_eq!(calls["resources/subscribe"], 1, "{calls}");
    }
    let changes = json!({"name": "it:test_trigger_resource_update", "arguments": {}});
    let id = one.start("tools/call", changes).await;
    one.hears("notifications/resources/updated").await;
    one.answer_to(&id).await.result();
    two.call("it:echo", json!({"text": "x"})).await.result();
    assert!(two.heard("notifications/resources/updated").is_empty());
    one.request("resources/unsubscribe", watched).await.result();
    // Its client is answered before the server is told.
    wait_until("the server is told", DEADLINE, async || {
        let calls = scene::counts(&mut one, "it:count").await["methods"].take();
        calls["resources/unsubscribe"] == 1
    })
    .await;
}

/// `max_instances`: the one that has had nothing to do for longest makes room, and where all are in use the
/// call is refused with words that say so.
#[tokio::test]
async fn there_are_no_more_than_the_operator_allows() {
    let kernel = kernel("max_instances = 2\n").await;
    let (mut one, mut two) = agents(&kernel).await;
    let first = process(&mut one).await;
    process(&mut two).await;
    let mut three = agent(&kernel, "gemini").await;
    process(&mut three).await;
    assert_eq!(whose(&kernel).await, ["agent.codex", "agent.gemini"]);
    wait_until("the first one's ends", DEADLINE, async || !lives(first)).await;
    for agent in [&mut two, &mut three] {
        agent
            .start("tools/call", json!({"name": "it:hang", "arguments": {}}))
            .await;
    }
    wait_until("both are called", DEADLINE, async || {
        seen(&kernel).await["in_flight"] == 2
    })
    .await;
    let refused = one.call("it:pid", json!({})).await.error();
    let words = refused["message"].as_str().unwrap();
    assert!(
        words.contains("max_instances") && words.contains("try again"),
        "{words}"
    );
}

/// `instance_idle_secs`: one that has nothing to do ends, and its agent's next call starts another one.
#[tokio::test]
async fn one_that_has_nothing_to_do_ends() {
    let kernel = kernel("instance_idle_secs = 1\n").await;
    let mut one = agent(&kernel, "claude").await;
    let first = process(&mut one).await;
    wait_until("it ends", DEADLINE, async || !lives(first)).await;
    assert!(whose(&kernel).await.is_empty());
    assert_ne!(process(&mut one).await, first);
}

/// CMCP-083: with the server all its instances end, before the operator is told that it has; with it they come back.
#[tokio::test]
async fn they_all_end_with_the_server() {
    let kernel = kernel("").await;
    let (mut one, mut two) = agents(&kernel).await;
    let all = [process(&mut one).await, process(&mut two).await];
    assert!(
        kernel
            .mgp(&["servers", "stop", "it"])
            .await
            .status
            .success()
    );
    assert!(!all.into_iter().any(lives));
    assert!(
        kernel
            .mgp(&["servers", "start", "it"])
            .await
            .status
            .success()
    );
    kernel.connected(&["it"]).await;
    let again = process(&mut one).await;
    assert!(!all.contains(&again));
    let shared = Program::fixture(&["--era", "legacy"]).entry("it");
    kernel.rewrite(&shared);
    wait_until("it is shared", DEADLINE, async || !lives(again)).await;
    kernel.connected(&["it"]).await;
    assert_eq!(process(&mut one).await, process(&mut two).await);
}

/// A crash of one is its agent's alone, and is made good under the server's rules.
#[tokio::test]
async fn a_crash_of_one_touches_no_other() {
    let kernel = kernel("backoff_base_ms = 10\n").await;
    let (mut one, mut two) = agents(&kernel).await;
    let (first, second) = (process(&mut one).await, process(&mut two).await);
    let own = seen(&kernel).await["pid"].take();
    one.call("it:crash", json!({"code": 3})).await.error();
    assert_eq!(process(&mut two).await, second);
    assert_ne!(process(&mut one).await, first);
    let seen = seen(&kernel).await;
    assert_eq!((&seen["pid"], &seen["restarts"]), (&own, &json!(0)));
}

/// Over HTTP each agent has a session of its own.
#[tokio::test]
async fn of_a_server_elsewhere_each_agent_has_a_session() {
    let upstream = Upstream::start(&["--era", "legacy"]).await;
    let entry = remote_entry("it", &upstream.url()) + "instances = \"agent\"\n";
    let kernel = Kernel::start(&entry).await;
    kernel.connected(&["it"]).await;
    let (mut one, mut two) = agents(&kernel).await;
    for agent in [&mut one, &mut two] {
        agent.call("it:echo", json!({"text": "x"})).await.result();
    }
    let calls = scene::counts(&mut one, "it:count").await["methods"].take();
    assert_eq!(calls["initialize"], 3, "{calls}");
}

/// Nothing is left of them when the kernel ends, or is killed.
#[tokio::test]
async fn nothing_is_left_of_them_after_the_kernel() {
    for signal in [Signal::SIGTERM, Signal::SIGKILL] {
        let kernel = kernel("").await;
        let (mut one, mut two) = agents(&kernel).await;
        let all = [process(&mut one).await, process(&mut two).await];
        kernel.end(signal, DEADLINE).await;
        let gone = async || !all.into_iter().any(lives);
        wait_until("they end", DEADLINE, gone).await;
    }
}
