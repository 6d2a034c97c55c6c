//! Servers that ask without saying in which call: whose turn it is, how long one waits, and what spares it.

use std::time::{Duration, Instant};

use mgp_tests::harness::handshake::FULL;
use mgp_tests::harness::program::remote_entry;
use mgp_tests::harness::{Agent, DEADLINE, Kernel, Program, Upstream, wait_until};
use serde_json::{Value, json};

use crate::scene;

/// A kernel in front of the server of this entry, `it`.
async fn kernel(entry: &str) -> Kernel {
    let kernel = Kernel::start(entry).await;
    kernel.connected(&["it"]).await;
    kernel
}

/// Two different agents that decline every form and have no roots; the server has asked the first one.
async fn agents(kernel: &Kernel) -> (Agent, Agent) {
    let mut one = scene::http_agent(kernel, None, FULL).await;
    let mut two = scene::socket_agent(kernel, FULL).await;
    for agent in [&mut one, &mut two] {
        agent.answers("elicitation/create", json!({"action": "decline"}));
        agent.answers("roots/list", json!({"roots": []}));
    }
    one.call("it:ask_roots", json!({})).await.result();
    (one, two)
}

/// A call that takes ten seconds and is never silent for long.
async fn computes(agent: &mut Agent) -> Value {
    let arguments = json!({"steps": 100, "ms": 100});
    let params =
        json!({"name": "it:progress", "arguments": arguments, "_meta": {"progressToken": 7}});
    let id = agent.start("tools/call", params).await;
    agent.hears("notifications/progress").await;
    id
}

fn echo(text: &str) -> Value {
    json!({"name": "it:echo", "arguments": {"text": text}})
}

/// The server as the operator sees it.
async fn seen(kernel: &Kernel) -> Value {
    kernel.mgp_json(&["status"]).await["servers"][0].take()
}

/// CMCP-055: behind a call of another agent a call waits no longer than it may last, the operator sees
/// that it waits, and its agent reads why and what would spare it.
#[tokio::test]
async fn call_that_waits_for_its_turn_times_out_with_the_reason() {
    let kernel = kernel(&(Program::fixture(&[]).entry("it") + "call_timeout_secs = 2\n")).await;
    let (mut one, mut two) = agents(&kernel).await;
    computes(&mut one).await;
    let begun = Instant::now();
    let waits = two.start("tools/call", echo("late")).await;
    wait_until("the operator sees it", DEADLINE, async || {
        let seen = seen(&kernel).await;
        let why = seen["reason"].as_str().unwrap_or_default();
        seen["waiting_turn"] == 1 && why.starts_with("1 call waits for its turn")
    })
    .await;
    let error = two.answer_to(&waits).await.error();
    assert!(
        begun.elapsed() < Duration::from_secs(20),
        "{:?}",
        begun.elapsed()
    );
    let words = error["message"].as_str().unwrap();
    for said in [
        "Server it",
        "another client's call",
        "questions = \"by-call\"",
    ] {
        assert!(words.contains(said), "{words}");
    }
    assert_eq!(error["data"]["waitedMs"], 2000);
    let calls = scene::counts(&mut one, "it:count").await["calls"].take();
    assert_eq!(calls["echo"], Value::Null, "it was not made: {calls}");
}

/// CMCP-055: a question that a person thinks about stops the clock of its own call, and of no other.
#[tokio::test]
async fn a_question_to_one_agent_gives_no_time_to_another() {
    let kernel = kernel(&(Program::fixture(&[]).entry("it") + "call_timeout_secs = 1\n")).await;
    let (_, mut two) = agents(&kernel).await;
    let asked = scene::session_with(&kernel, scene::NEWEST, FULL).await;
    let form = scene::call(1, "test_elicitation", json!({"message": "?"}));
    let mut events = asked.post(form).await.events();
    let question = loop {
        let event = events.next().await.expect("the stream goes on");
        if !event.data.is_empty() {
            break serde_json::from_str::<Value>(&event.data).unwrap();
        }
    };
    let error = two.call("it:hang", json!({})).await.error();
    assert_eq!(error["data"]["timeoutMs"], 1000, "{error}");
    let answer = json!({"jsonrpc": "2.0", "id": question["id"], "result": {"action": "decline"}});
    asked.post(answer.to_string()).await;
    let told = events.next().await.expect("its answer").data;
    assert!(told.contains("action=decline"), "{told}");
}

/// CMCP-074: a server whose questions name their calls is called by all at once, each agent is asked its
/// own, and none reads the name.
#[tokio::test]
async fn server_that_names_its_calls_is_called_concurrently() {
    let entry = Program::fixture(&["--names-calls"]).entry("it");
    for questions in ["", "questions = \"by-call\"\n"] {
        let kernel = kernel(&format!("{entry}{questions}")).await;
        let (mut one, mut two) = agents(&kernel).await;
        two.answers("elicitation/create", json!({"action": "cancel"}));
        computes(&mut one).await;
        computes(&mut two).await;
        for (agent, action) in [(&mut one, "action=decline"), (&mut two, "action=cancel")] {
            let form = json!({"message": action});
            let told = agent.call("it:test_elicitation", form).await.text();
            assert!(told.contains(action), "{told}");
            let asked = &agent.asked().last().unwrap()["params"];
            assert_eq!(asked["message"], format!("[it] {action}"));
            assert_eq!(asked["_meta"], Value::Null);
        }
        assert_eq!(seen(&kernel).await["waiting_turn"], 0);
    }
}

/// `questions = "by-call"`: a server that does not keep it is told so at once.
#[tokio::test]
async fn a_question_that_must_name_its_call_and_does_not_is_refused() {
    let entry = Program::fixture(&[]).entry("it") + "questions = \"by-call\"\n";
    let kernel = kernel(&entry).await;
    let mut agent = scene::http_agent(&kernel, None, FULL).await;
    let form = json!({"message": "Who?"});
    let refused = agent.call("it:test_elicitation", form).await.error();
    assert_eq!(refused["code"], -32602);
    let words = refused["message"].as_str().unwrap();
    assert!(words.contains("mgp/relatedRequestId"), "{words}");
    assert!(agent.asked().is_empty());
}

/// CMCP-074: over HTTP the stream tells whose question it is, and a server of 2026-07-28 asks in its answer:
/// nobody waits for a turn there.
#[tokio::test]
async fn server_with_attributable_requests_is_called_concurrently() {
    let upstream = Upstream::start(&["--era", "legacy"]).await;
    let modern = Program::fixture(&["--era", "modern"]).entry("it");
    for entry in [remote_entry("it", &upstream.url()), modern] {
        let kernel = kernel(&entry).await;
        let (mut one, mut two) = agents(&kernel).await;
        computes(&mut one).await;
        let form = json!({"message": "?"});
        let told = two.call("it:test_elicitation", form).await.text();
        assert!(told.contains("action=decline"), "{told}");
        assert_eq!(seen(&kernel).await["waiting_turn"], 0);
    }
}
