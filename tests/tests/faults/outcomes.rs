//! What became of a call whose server or kernel was killed in the middle of it: nobody is told that it was
//! not executed when it may have been, and nothing is made twice by itself.

use mgp_tests::harness::mgp::{speaks_mgp, trace};
use mgp_tests::harness::{Agent, Answer, DEADLINE, Kernel};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

use crate::scene::{NEWEST, begin, echoes, in_flight, in_state, owner, server, shown};

/// Restarts so quickly that a story goes on at once.
const QUICK: &str = "backoff_base_ms = 20";

/// What an operator says of a tool that may be called twice.
const IDEMPOTENT: &str = "backoff_base_ms = 20\n[servers.tools.slow]\nidempotent = true\n";

async fn http_agent(kernel: &Kernel, capabilities: &str) -> Agent {
    let mut agent = kernel.http_agent(None);
    agent.initialize(NEWEST, capabilities).await.result();
    agent
}

/// Calls a tool that lasts, and kills the server with -9 once it has the call.
async fn killed_in_mid_call(kernel: &Kernel, agent: &mut Agent, tool: &str) -> Answer {
    let call = begin(agent, tool, json!({"ms": 20_000})).await;
    let mut watcher = owner(kernel).await;
    in_flight(&mut watcher, "it", 1).await;
    let pid = shown(&mut watcher, "it").await["pid"].as_i64().unwrap();
    let pid = Pid::from_raw(pid.try_into().unwrap());
    kill(pid, Signal::SIGKILL).unwrap();
    agent.answer_to(&call).await
}

async fn asked(kernel: &Kernel, id: &str) -> Value {
    kernel.mgp_json(&["calls", "show", id]).await
}

async fn refused(kernel: &Kernel, id: &str) -> String {
    let output = kernel.mgp(&["calls", "show", id]).await;
    assert!(!output.status.success(), "{output:?}");
    String::from_utf8(output.stderr).unwrap()
}

/// A plain caller reads the outcome in the words and in `data`; whoever is told the id can ask about it.
#[tokio::test]
async fn outcome_of_a_lost_call_can_be_queried() {
    let kernel = Kernel::start(&server("it", &[], QUICK)).await;
    kernel.connected(&["it"]).await;
    let mut agent = http_agent(&kernel, "{}").await;
    let lost = killed_in_mid_call(&kernel, &mut agent, "it__slow").await;
    let error = lost.error();
    let id = error["data"]["callId"].as_str().unwrap();
    assert_eq!(
        (&error["code"], &error["data"]["outcome"]),
        (&json!(-32603), &json!("unknown"))
    );
    let words = error["message"].as_str().unwrap();
    assert!(
        words.contains("unknown") && words.contains(&format!("`mgp calls show {id}`")),
        "{words}"
    );
    assert!(!lost.frame.contains("_mgp"), "{}", lost.frame);
    let told = asked(&kernel, id).await;
    assert_eq!(
        (&told["outcome"], &told["call_id"]),
        (&json!("unknown"), &json!(id))
    );
    let record = &told["records"][0];
    assert_eq!(
        (&record["tool_name"], &record["result"]),
        (&json!("slow"), &json!("FAILURE"))
    );
    let shown = kernel.mgp(&["calls", "show", id]).await;
    let shown = String::from_utf8(shown.stdout).unwrap();
    for part in [
        &format!("call {id}: unknown"),
        "went away",
        "before making it again",
        "it:slow",
    ] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    echoes(&mut agent, "it").await;
}

/// An MGP caller reads it in `_mgp.details`, and asks about its own calls, never about another's.
#[tokio::test]
async fn an_mgp_caller_asks_about_its_own_calls() {
    let kernel = Kernel::start(&server("it", &[], QUICK)).await;
    kernel.connected(&["it"]).await;
    let mut agent = http_agent(&kernel, &speaks_mgp(NEWEST)).await;
    let lost = killed_in_mid_call(&kernel, &mut agent, "it__slow")
        .await
        .error();
    let mgp = &lost["data"]["_mgp"];
    assert_eq!(
        (&lost["code"], &mgp["retryable"]),
        (&json!(5002), &json!(false))
    );
    assert_eq!(mgp["details"]["outcome"], "unknown");
    let id = mgp["details"]["call_id"].clone();
    let about = json!({"call_id": id});
    let told = agent
        .request("mgp/calls/show", about.clone())
        .await
        .result();
    assert_eq!(told["outcome"], "unknown");
    let mut other = Agent::over_socket(&kernel.socket()).await;
    other.initialize(NEWEST, "{}").await.result();
    let id = id.as_str().unwrap();
    assert_eq!(asked(&kernel, id).await["outcome"], "unknown");
    let trace = trace("the owner's own");
    let call =
        json!({"name": "it__echo", "arguments": {"text": "x"}, "_meta": {"trace_id": trace}});
    other.request("tools/call", call).await.result();
    assert_eq!(asked(&kernel, &trace).await["outcome"], "done");
    let hidden = agent
        .request("mgp/calls/show", json!({"call_id": trace}))
        .await
        .error();
    let words = hidden["message"].as_str().unwrap();
    assert!(words.contains("has ended that is yours"), "{words}");
    let mut plain = http_agent(&kernel, "{}").await;
    assert_eq!(plain.request("mgp/calls/show", about).await.code(), -32601);
}

/// What was answered is done, what a check kept back was not executed; an id that is misspelt or was never
/// there is told as such.
#[tokio::test]
async fn outcome_of_an_ended_call_is_reported() {
    let kernel = Kernel::start(&server("it", &[], QUICK)).await;
    kernel.connected(&["it"]).await;
    let mut agent = http_agent(&kernel, "{}").await;
    let ids = ["answered", "not of its schema"].map(trace);
    for (id, arguments) in ids.iter().zip([json!({"text": "x"}), json!({"text": 7})]) {
        let call = json!({"name": "it__echo", "arguments": arguments, "_meta": {"trace_id": id}});
        agent.request("tools/call", call).await;
    }
    assert_eq!(asked(&kernel, &ids[0]).await["outcome"], "done");
    let unmade = asked(&kernel, &ids[1]).await;
    assert_eq!(unmade["outcome"], "not_executed", "{unmade}");
    let never = refused(&kernel, &trace("never made")).await;
    assert!(
        never.contains("is it copied whole?") && never.contains("the log goes back to"),
        "{never}"
    );
    let odd = refused(&kernel, &ids[0][..20]).await;
    assert!(
        odd.contains("is no id of a call") && odd.contains("trace_id"),
        "{odd}"
    );
}

/// A kernel that is killed in the middle of a call: its successor finds no record, and says that the outcome is
/// unknown, and why. A kernel that ended in order leaves no such doubt.
#[tokio::test]
async fn a_call_under_way_when_the_kernel_was_killed_is_unknown() {
    for (calls, said) in [
        ("window", "may have been made"),
        ("before_reply", "no answer was given"),
    ] {
        let config = format!("[audit]\ncalls = \"{calls}\"\n{}", server("it", &[], QUICK));
        let kernel = Kernel::start(&config).await;
        kernel.connected(&["it"]).await;
        let mut agent = http_agent(&kernel, "{}").await;
        let (ended, open) = (trace("ended"), trace("open"));
        let call = |id: &str, tool: &str| json!({"name": tool, "arguments": {"text": "x"}, "_meta": {"trace_id": id}});
        agent
            .request("tools/call", call(&ended, "it__echo"))
            .await
            .result();
        assert_eq!(asked(&kernel, &ended).await["outcome"], "done");
        agent.start("tools/call", call(&open, "it__hang")).await;
        in_flight(&mut owner(&kernel).await, "it", 1).await;
        assert!(refused(&kernel, &open).await.contains("has ended"));
        let folder = kernel.end(Signal::SIGTERM, DEADLINE).await;
        let kernel = Kernel::again(folder).await;
        let stopped = asked(&kernel, &open).await;
        assert_eq!(stopped["records"].as_array().unwrap().len(), 1, "{stopped}");
        assert!(
            refused(&kernel, &trace("nobody's"))
                .await
                .contains("copied whole")
        );
        in_state(&mut owner(&kernel).await, "it", "connected").await;
        let mut agent = http_agent(&kernel, "{}").await;
        let killed = trace("killed");
        agent.start("tools/call", call(&killed, "it__hang")).await;
        in_flight(&mut owner(&kernel).await, "it", 1).await;
        let folder = kernel.end(Signal::SIGKILL, DEADLINE).await;
        let kernel = Kernel::again(folder).await;
        let told = asked(&kernel, &killed).await;
        assert_eq!(
            (&told["outcome"], &told["records"]),
            (&json!("unknown"), &json!([]))
        );
        assert!(told["reason"].as_str().unwrap().contains(said), "{told}");
        assert_eq!(asked(&kernel, &ended).await["outcome"], "done");
    }
}

/// Only what the operator marked is made again, and its caller reads the answer of the second try.
#[tokio::test]
async fn a_lost_call_of_an_idempotent_tool_is_made_again() {
    let kernel = Kernel::start(&server("it", &[], IDEMPOTENT)).await;
    kernel.connected(&["it"]).await;
    let mut agent = http_agent(&kernel, &speaks_mgp(NEWEST)).await;
    let answer = killed_in_mid_call(&kernel, &mut agent, "it__slow").await;
    assert_eq!(answer.text(), "slept");
    let tail = kernel.mgp(&["audit", "tail", "--json"]).await;
    let tail = String::from_utf8(tail.stdout).unwrap();
    let events = tail
        .lines()
        .map(|l| serde_json::from_str::<Value>(l).unwrap());
    let of = |kind: &str, event: &Value| {
        event["event_type"] == kind && event["target"]["tool_name"] == "slow"
    };
    let events: Vec<_> = events.collect();
    let retried: Vec<_> = events
        .iter()
        .filter(|e| of("dev.cloto.mgp.tool_retried", e))
        .collect();
    assert!(!retried.is_empty(), "{events:?}");
    assert_eq!(retried[0]["details"]["outcome"], "unknown", "{retried:?}");
    let id = retried[0]["trace_id"].as_str().unwrap();
    assert_eq!(asked(&kernel, id).await["outcome"], "done");
}

/// An attempt that was lost may have taken effect, also where the next one finds the server away.
#[tokio::test]
async fn lost_call_that_could_not_be_retried_has_an_unknown_outcome() {
    let slow_restart = "backoff_base_ms = 60000\n[servers.tools.slow]\nidempotent = true\n";
    let kernel = Kernel::start(&server("it", &[], slow_restart)).await;
    kernel.connected(&["it"]).await;
    let mut agent = http_agent(&kernel, "{}").await;
    let error = killed_in_mid_call(&kernel, &mut agent, "it__slow")
        .await
        .error();
    assert_eq!(error["data"]["outcome"], "unknown", "{error}");
    let id = error["data"]["callId"].as_str().unwrap();
    assert_eq!(asked(&kernel, id).await["outcome"], "unknown");
    let tried = kernel.mgp(&["audit", "tail", "--json"]).await;
    let tried = String::from_utf8(tried.stdout).unwrap();
    assert!(tried.contains("tool_retried"), "{tried}");
}
