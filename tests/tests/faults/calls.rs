//! Servers that die, hang or answer too late while calls are under way.

use std::time::{Duration, Instant};

use mgp_tests::harness::wait::within;
use mgp_tests::harness::{Agent, DEADLINE, Kernel, wait_until};
use serde_json::{Value, json};

use crate::scene::{
    AT_ONCE, NEWEST, begin, cancelled, echoes, in_flight, in_state, owner, server, shown,
};

/// Restarts so quickly that a story goes on at once.
const QUICK: &str = "backoff_base_ms = 20";

/// MGP-147: whoever called is told that the outcome is unknown; the server comes back by itself and
/// the next call, made at once, is answered by the new process.
#[tokio::test]
async fn call_of_a_crashed_server_has_an_unknown_outcome_and_the_server_restarts() {
    let kernel = Kernel::start(&server("it", &[], QUICK)).await;
    kernel.connected(&["it"]).await;
    let mut agent = owner(&kernel).await;
    let before = shown(&mut agent, "it").await["pid"].clone();
    for _ in 0..3 {
        let lost = agent.call("it__crash", json!({"code": 3})).await;
        assert_eq!(lost.code(), -32603);
        assert_eq!(lost.error()["data"]["outcome"], "unknown");
        assert_eq!(lost.error()["data"]["server"], "it");
        let words = lost.error()["message"].to_string();
        assert!(words.contains("unknown"), "{words}");
        echoes(&mut agent, "it").await;
    }
    let after = shown(&mut agent, "it").await;
    assert_ne!(after["pid"], before);
    assert_eq!(after["restarts"], 3);
}

/// CMCP-071: a crash answers everybody who waits, with one error each.
#[tokio::test]
async fn a_hundred_calls_in_flight_are_all_answered_when_their_server_dies() {
    let kernel = Kernel::start(&server("it", &[], QUICK)).await;
    kernel.connected(&["it"]).await;
    let mut agents = [owner(&kernel).await, owner(&kernel).await];
    let mut waiting = Vec::new();
    for n in 0..100 {
        let agent = n % 2;
        let id = begin(&mut agents[agent], "it__hang", json!({})).await;
        waiting.push((agent, id));
    }
    in_flight(&mut agents[0], "it", 100).await;
    let pid = shown(&mut agents[0], "it").await["pid"].as_i64().unwrap();
    let pid = nix::unistd::Pid::from_raw(pid.try_into().unwrap());
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL).unwrap();
    for (agent, id) in waiting {
        let answer = within("an answer", AT_ONCE, agents[agent].answer_to(&id)).await;
        assert_eq!(answer.error()["data"]["outcome"], "unknown");
    }
    echoes(&mut agents[1], "it").await;
    assert_eq!(shown(&mut agents[0], "it").await["in_flight"], 0);
}

/// CMCP-069: a call without answer ends at its limit, and the server is told to stop working on it.
#[tokio::test]
async fn a_call_that_is_never_answered_times_out_and_is_cancelled_at_the_server() {
    let kernel = Kernel::start(&server("it", &[], "call_timeout_secs = 1")).await;
    kernel.connected(&["it"]).await;
    let mut agent = owner(&kernel).await;
    let answer = agent.call("it__hang", json!({})).await;
    assert_eq!(answer.code(), -32603);
    assert_eq!(answer.error()["data"]["timeoutMs"], 1000);
    let words = answer.error()["message"].to_string();
    assert!(words.contains("call_timeout_secs"), "{words}");
    cancelled(&mut agent, "it", "hang", 1).await;
}

/// Progress is a sign of life: three times the limit pass, never once without a word for as long.
#[tokio::test]
async fn progress_extends_the_time_of_a_call() {
    let kernel = Kernel::start(&server("it", &[], "call_timeout_secs = 1")).await;
    kernel.connected(&["it"]).await;
    let mut agent = owner(&kernel).await;
    let started = Instant::now();
    let params = json!({
        "name": "it__progress",
        "arguments": {"steps": 10, "ms": 300},
        "_meta": {"progressToken": "t"},
    });
    let answer = agent.request("tools/call", params).await;
    assert_eq!(answer.text(), "10 steps");
    assert!(started.elapsed() > Duration::from_secs(2));
    assert_eq!(agent.heard("notifications/progress").len(), 10);
}

/// A kernel that is stopped for longer than its calls may take (a debugger, a suspended terminal, a machine that
/// pages) reads what its servers answered meanwhile before it gives a call up.
#[tokio::test]
async fn a_call_that_was_answered_while_the_kernel_was_stopped_is_answered() {
    let kernel = Kernel::start(&server("it", &[], "call_timeout_secs = 1")).await;
    kernel.connected(&["it"]).await;
    let mut agent = owner(&kernel).await;
    let mut waiting = Vec::new();
    for _ in 0..40 {
        waiting.push(begin(&mut agent, "it__slow", json!({"ms": 300})).await);
    }
    in_flight(&mut agent, "it", 40).await;
    let pid = nix::unistd::Pid::from_raw(kernel.pid().try_into().unwrap());
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGSTOP).unwrap();
    let stopped = Instant::now();
    wait_until("the time of the calls is over", DEADLINE, async || {
        stopped.elapsed() > Duration::from_secs(3)
    })
    .await;
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGCONT).unwrap();
    for id in waiting {
        assert_eq!(agent.answer_to(&id).await.text(), "slept");
    }
}

/// Even progress does not keep a call alive for ever.
#[tokio::test]
async fn no_call_outlives_the_longest_time() {
    let keys = "call_timeout_secs = 1\ncall_timeout_max_secs = 2";
    let kernel = Kernel::start(&server("it", &[], keys)).await;
    kernel.connected(&["it"]).await;
    let mut agent = owner(&kernel).await;
    let params = json!({
        "name": "it__progress",
        "arguments": {"steps": 1000, "ms": 100},
        "_meta": {"progressToken": 7},
    });
    let answer = agent.request("tools/call", params).await;
    assert_eq!(answer.error()["data"]["timeoutMs"], 2000);
}

/// CMCP-070: an answer that comes after its call was given up goes to nobody, and the connection
/// lives on.
#[tokio::test]
async fn late_answer_is_dropped() {
    let kernel = Kernel::start(&server("it", &[], "call_timeout_secs = 1")).await;
    kernel.connected(&["it"]).await;
    let mut agent = owner(&kernel).await;
    let before = shown(&mut agent, "it").await["pid"].clone();
    let late = begin(&mut agent, "it__stubborn", json!({"ms": 1500})).await;
    assert_eq!(
        agent.answer_to(&late).await.error()["data"]["timeoutMs"],
        1000
    );
    // Answered after the late answer has come: the server keeps the order.
    let after = agent.call("it__slow", json!({"ms": 900})).await;
    assert_eq!(after.text(), "slept");
    echoes(&mut agent, "it").await;
    assert_eq!(shown(&mut agent, "it").await["pid"], before);
    assert_eq!(shown(&mut agent, "it").await["noise_lines"], 0);
}

/// More calls than a server may have at once are refused at once; the others are not touched.
#[tokio::test]
async fn a_server_with_too_many_calls_refuses_the_next_one() {
    let kernel = Kernel::start(&server("it", &[], "max_in_flight = 8")).await;
    kernel.connected(&["it"]).await;
    let mut agent = owner(&kernel).await;
    let mut waiting: Vec<Value> = Vec::new();
    for _ in 0..8 {
        waiting.push(begin(&mut agent, "it__reverse", json!({"n": 9})).await);
    }
    in_flight(&mut agent, "it", 8).await;
    let refused = within(
        "a refusal",
        AT_ONCE,
        agent.call("it__echo", json!({"text": "x"})),
    )
    .await;
    assert_eq!(refused.code(), -32603);
    assert!(
        refused.error()["message"].to_string().contains("full"),
        "{}",
        refused.frame
    );
    let mut held = waiting.len() as u64;
    for id in waiting {
        let cancel = json!({"requestId": id});
        agent.notify("notifications/cancelled", cancel).await;
        held -= 1;
        in_flight(&mut agent, "it", held).await;
        echoes(&mut agent, "it").await;
    }
}

/// Whatever one agent has under way, another one finds a place, and so does the operator.
#[tokio::test]
async fn an_agent_takes_no_more_than_its_share_of_a_servers_calls() {
    let kernel = Kernel::start(&server("it", &[], "max_in_flight = 32")).await;
    kernel.connected(&["it"]).await;
    let mut greedy = named_agent(&kernel, "greedy").await;
    let mut modest = named_agent(&kernel, "modest").await;
    let mut owner = owner(&kernel).await;
    for _ in 0..17 {
        begin(&mut greedy, "it__hang", json!({})).await;
    }
    in_flight(&mut owner, "it", 17).await;
    let refused = greedy.call("it__echo", json!({"text": "x"})).await;
    let why = refused.error()["message"].to_string();
    assert!(
        why.contains("this agent's share of the list of 32"),
        "{why}"
    );
    for agent in [&mut modest, &mut owner] {
        echoes(agent, "it").await;
    }
    greedy.close().await;
    in_flight(&mut owner, "it", 0).await;
}

async fn named_agent(kernel: &Kernel, name: &str) -> Agent {
    let added = kernel.mgp(&["agents", "add", name]).await;
    assert!(added.status.success(), "{added:?}");
    let mut agent = Agent::over_stdio(&kernel.program(&["stdio", "--agent", name]));
    agent.initialize(NEWEST, "{}").await.result();
    agent
}

/// Of the calls that wait for a server's start, too, one agent has no more than its share.
#[tokio::test]
async fn an_agent_takes_no_more_than_its_share_of_the_calls_that_wait_for_a_server() {
    let keys = "max_in_flight = 32\nbackoff_base_ms = 4000";
    let kernel = Kernel::start(&server("it", &[], keys)).await;
    kernel.connected(&["it"]).await;
    let mut greedy = named_agent(&kernel, "greedy").await;
    let mut modest = named_agent(&kernel, "modest").await;
    modest.call("it__crash", json!({"code": 3})).await.error();
    in_state(&mut owner(&kernel).await, "it", "restarting").await;
    let mut waiting = Vec::new();
    for _ in 0..17 {
        waiting.push(begin(&mut greedy, "it__echo", json!({"text": "hi"})).await);
    }
    let one_more = greedy.call("it__echo", json!({"text": "hi"}));
    let refused = within("a refusal", AT_ONCE, one_more).await.error();
    let why = refused["message"].to_string();
    assert!(
        why.contains("this agent's share of the list of 32 calls that wait for server it"),
        "{why}"
    );
    echoes(&mut modest, "it").await;
    // Where the other's call was sent first, the last of these is beyond the share of those under way.
    let mut refused = 0;
    for id in &waiting {
        refused += usize::from(greedy.answer_to(id).await.is_error());
    }
    assert!(refused <= 1, "{refused}");
}

/// As many calls may wait for a server as may be under way at it: one more is refused at once, and
/// those that waited are taken when it is there.
#[tokio::test]
async fn calls_that_wait_for_a_server_are_bounded() {
    let keys = "max_in_flight = 4\nbackoff_base_ms = 4000";
    let kernel = Kernel::start(&server("it", &[], keys)).await;
    kernel.connected(&["it"]).await;
    let mut agent = owner(&kernel).await;
    agent.call("it__crash", json!({"code": 3})).await.error();
    in_state(&mut agent, "it", "restarting").await;
    let mut waiting = Vec::new();
    for _ in 0..4 {
        waiting.push(begin(&mut agent, "it__echo", json!({"text": "hi"})).await);
    }
    let one_more = agent.call("it__echo", json!({"text": "hi"}));
    let refused = within("a refusal", AT_ONCE, one_more).await.error();
    let words = refused["message"].to_string();
    assert!(words.contains("4 calls that wait for server it"), "{words}");
    for id in waiting {
        assert_eq!(agent.answer_to(&id).await.text(), "hi");
    }
}
