//! The ends and beginnings of servers, told in the words of MGP (§11.4, §11.5).

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use mgp_tests::harness::mgp::declaration;
use mgp_tests::harness::{Agent, DEADLINE, Kernel, wait_until};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

use crate::health::{lifecycle, owner, server, shown, speaker, until};

/// A server that takes part in the lifecycle, answers a shutdown like this and writes its diary.
pub(super) fn takes_part(id: &str, accepted: &Value, diary: &Path, keys: &str) -> String {
    let said = json!({"mgp/lifecycle/shutdown": {"result": accepted}}).to_string();
    let flags = [
        "--mgp",
        &lifecycle(),
        "--mgp-answers",
        &said,
        "--mgp-diary",
        &diary.display().to_string(),
    ];
    server(id, &flags, keys)
}

pub(super) fn accepted() -> Value {
    json!({"accepted": true, "pending_requests": 0, "estimated_drain_ms": 0})
}

/// What a server was told of its ends, oldest first.
fn ends(diary: &PathBuf) -> Vec<Value> {
    let text = std::fs::read_to_string(diary).unwrap_or_default();
    let told = text
        .lines()
        .filter_map(|line| line.strip_prefix("mgp/lifecycle/shutdown "));
    told.map(|params| serde_json::from_str(params).unwrap())
        .collect()
}

pub(super) fn reasons(diary: &PathBuf) -> Vec<Value> {
    ends(diary)
        .iter()
        .map(|end| end["reason"].clone())
        .collect()
}

/// The steps of a server an agent has heard of, up to the one into `last`: each with its reason.
pub(super) async fn reasoned(agent: &mut Agent, last: &str) -> Vec<[String; 2]> {
    let mut steps = Vec::new();
    loop {
        let step = agent.hears("notifications/mgp.lifecycle").await["params"].clone();
        assert_eq!(step["server_id"], "it");
        assert!(step["timestamp"].as_str().unwrap().ends_with('Z'), "{step}");
        let said = |member: &str| step[member].as_str().unwrap().to_owned();
        let (from, to) = (said("previous_state"), said("new_state"));
        steps.push([format!("{from}>{to}"), said("reason")]);
        if to == last {
            return steps;
        }
    }
}

async fn steps(agent: &mut Agent, last: &str) -> Vec<String> {
    let steps = reasoned(agent, last).await;
    steps.into_iter().map(|[step, _]| step).collect()
}

/// MGP-138, MGP-140, MGP-142: a server is told that it is to end, with the reason that each trigger
/// has and the time there is; the kernel's own end tells every server.
#[tokio::test]
async fn each_end_has_its_reason() {
    let folder = tempfile::tempdir().unwrap();
    let diary = |id: &str| folder.path().join(id);
    let both = |keys: &str| {
        takes_part("it", &accepted(), &diary("it"), keys)
            + &takes_part("too", &accepted(), &diary("too"), "")
    };
    let kernel = Kernel::start(&both("")).await;
    kernel.connected(&["it", "too"]).await;
    let mut owner = owner(&kernel).await;
    owner
        .request("mgp/servers/restart", json!({"id": "it"}))
        .await
        .result();
    kernel.rewrite(&both("max_in_flight = 7"));
    wait_until("it was told of the change", DEADLINE, async || {
        ends(&diary("it")).len() == 2
    })
    .await;
    until(&mut owner, "it", "state", "connected").await;
    for reason in ["resource_limit", "idle_timeout"] {
        let shutdown = json!({"server_id": "it", "reason": reason, "timeout_ms": 4000});
        let answer = owner
            .request("mgp/lifecycle/shutdown", shutdown)
            .await
            .result();
        assert_eq!(answer, accepted());
        until(&mut owner, "it", "state", "disconnected").await;
        owner
            .request("mgp/servers/start", json!({"id": "it"}))
            .await
            .result();
    }
    assert_eq!(ends(&diary("it"))[2]["timeout_ms"], 4000);
    drop(kernel.end(Signal::SIGTERM, DEADLINE).await);
    let all = [
        "operator_request",
        "configuration_change",
        "resource_limit",
        "idle_timeout",
        "kernel_shutdown",
    ];
    assert_eq!(reasons(&diary("it")), all);
    assert_eq!(reasons(&diary("too")), ["kernel_shutdown"]);
    assert!(ends(&diary("too"))[0]["timeout_ms"].as_u64().unwrap() > 0);
}

/// MGP-138, MGP-141: what is under way is waited for until the time given is over; then the server is
/// ended, whatever it says of the time it needs.
#[tokio::test]
async fn shutdown_ends_at_its_timeout() {
    let folder = tempfile::tempdir().unwrap();
    let long = json!({"accepted": true, "pending_requests": 9, "estimated_drain_ms": 600_000});
    let it = takes_part("it", &long, &folder.path().join("it"), "");
    let kernel = Kernel::start(&it).await;
    kernel.connected(&["it"]).await;
    let (mut agent, mut owner) = (owner(&kernel).await, owner(&kernel).await);
    let slow = json!({"name": "it__slow", "arguments": {"ms": 30_000}});
    let waiting = agent.start("tools/call", slow).await;
    wait_until("a call is under way", DEADLINE, async || {
        shown(&mut owner, "it").await["in_flight"] == 1
    })
    .await;
    let begun = Instant::now();
    let shutdown = json!({"server_id": "it", "reason": "operator_request", "timeout_ms": 1500});
    let answer = owner
        .request("mgp/lifecycle/shutdown", shutdown)
        .await
        .result();
    assert_eq!(
        answer,
        json!({"accepted": true, "pending_requests": 1, "estimated_drain_ms": 1500})
    );
    let lost = agent.answer_to(&waiting).await;
    assert_eq!(lost.error()["data"]["outcome"], "unknown");
    assert!(
        begun.elapsed() >= Duration::from_millis(1500),
        "{:?}",
        begun.elapsed()
    );
    until(&mut owner, "it", "state", "disconnected").await;
    assert!(
        begun.elapsed() < Duration::from_secs(25),
        "{:?}",
        begun.elapsed()
    );
}

/// MGP-122 to MGP-129, MGP-143: who negotiated it hears of every step: a start, a crash and its
/// recovery, a restart that drains first, an end.
#[tokio::test]
async fn agents_with_lifecycle_are_notified_of_every_transition() {
    let kernel = Kernel::start(&server(
        "it",
        &[],
        "autostart = false\nbackoff_base_ms = 20",
    ))
    .await;
    let mut owner = owner(&kernel).await;
    let mut agent = speaker(&kernel, &["lifecycle"]).await;
    let mut deaf = speaker(&kernel, &["audit"]).await;
    let start = owner.start("mgp/servers/start", json!({"id": "it"})).await;
    assert_eq!(
        steps(&mut agent, "connected").await,
        ["registered>connecting", "connecting>connected"]
    );
    owner.answer_to(&start).await.result();
    owner.call("it__crash", json!({"code": 3})).await;
    let crash = [
        "connected>error",
        "error>restarting",
        "restarting>connected",
    ];
    assert_eq!(steps(&mut agent, "connected").await, crash);
    owner
        .request("mgp/servers/restart", json!({"id": "it"}))
        .await
        .result();
    let restart = [
        "connected>draining",
        "draining>restarting",
        "restarting>connected",
    ];
    assert_eq!(steps(&mut agent, "connected").await, restart);
    owner
        .request("mgp/servers/stop", json!({"id": "it"}))
        .await
        .result();
    assert_eq!(
        steps(&mut agent, "disconnected").await,
        ["connected>draining", "draining>disconnected"]
    );
    deaf.request("ping", json!({})).await.result();
    assert!(deaf.heard("notifications/mgp.lifecycle").is_empty());
}

/// MGP-127, MGP-126, MGP-129: a change of its configuration restarts a server: it finishes what it has and
/// starts again, without an end between the two, and says why.
#[tokio::test]
async fn a_change_of_configuration_drains_and_then_restarts() {
    let kernel = Kernel::start(&server("it", &[], "")).await;
    kernel.connected(&["it"]).await;
    let mut agent = speaker(&kernel, &["lifecycle"]).await;
    let (mut caller, mut owner) = (owner(&kernel).await, owner(&kernel).await);
    let before = shown(&mut owner, "it").await["pid"].clone();
    let slow = json!({"name": "it__slow", "arguments": {"ms": 800}});
    let waiting = caller.start("tools/call", slow).await;
    wait_until("a call is under way", DEADLINE, async || {
        shown(&mut owner, "it").await["in_flight"] == 1
    })
    .await;
    kernel.rewrite(&server("it", &[], "max_in_flight = 7"));
    let expected = [
        ["connected>draining", "configuration_change"],
        ["draining>restarting", "configuration_change"],
        ["restarting>connected", "handshake done"],
    ];
    assert_eq!(reasoned(&mut agent, "connected").await, expected);
    assert_eq!(caller.answer_to(&waiting).await.text(), "slept");
    assert_ne!(shown(&mut owner, "it").await["pid"], before);
}

/// A server with this restart policy that was killed: the kernel, an agent that follows states, the owner, and the
/// process that it was.
async fn killed(policy: &str) -> (Kernel, Agent, Agent, Value) {
    let keys = format!("restart_policy = {policy:?}\nbackoff_base_ms = 20");
    let kernel = Kernel::start(&server("it", &[], &keys)).await;
    kernel.connected(&["it"]).await;
    let mut agent = speaker(&kernel, &["lifecycle"]).await;
    let mut owner = owner(&kernel).await;
    let process = shown(&mut owner, "it").await["pid"].clone();
    let pid = i32::try_from(process.as_i64().unwrap()).unwrap();
    kill(Pid::from_raw(pid), Signal::SIGKILL).unwrap();
    let [transition, reason] = reasoned(&mut agent, "error").await.remove(0);
    assert_eq!(transition, "connected>error");
    assert!(reason.contains("signal 9"), "{reason}");
    (kernel, agent, owner, process)
}

/// MGP-128, MGP-129, MGP-147.
#[tokio::test]
async fn killed_server_is_restarted_on_failure() {
    let (_kernel, mut agent, mut owner, process) = killed("on_failure").await;
    let expected = [
        ["error>restarting", "restart policy"],
        ["restarting>connected", "handshake done"],
    ];
    assert_eq!(reasoned(&mut agent, "connected").await, expected);
    let after = shown(&mut owner, "it").await;
    assert_ne!(after["pid"], process);
    assert_eq!(after["restarts"], 1, "{after:#}");
}

/// MGP-146.
#[tokio::test]
async fn killed_server_is_not_restarted_under_never() {
    let (_kernel, mut agent, mut owner, _) = killed("never").await;
    let call = owner.call("it__echo", json!({"text": "x"})).await;
    assert!(call.is_error(), "{}", call.frame);
    assert_eq!(shown(&mut owner, "it").await["state"], "error");
    agent.request("ping", json!({})).await.result();
    assert!(agent.heard("notifications/mgp.lifecycle").is_empty());
}

/// MGP-144, MGP-145: a server that says it drains takes no new call and finishes what it has; what it
/// cannot say of itself changes nothing, nor does a restart policy it sends.
#[tokio::test]
async fn server_may_report_draining_and_no_other_state() {
    let mut said = declaration(&["lifecycle"]);
    said["restart_policy"] = json!("never");
    let flags = ["--mgp", &said.to_string()];
    let kernel = Kernel::start(&server(
        "it",
        &flags,
        "restart_policy = \"always\"\nbackoff_base_ms = 20",
    ))
    .await;
    kernel.connected(&["it"]).await;
    let mut owner = owner(&kernel).await;
    let mut agent = speaker(&kernel, &["lifecycle"]).await;
    let says = |from: &str, to: &str| {
        let params = json!({"server_id": "other", "previous_state": from, "new_state": to,
            "reason": "tired", "restart_policy": "never"});
        json!({"method": "notifications/mgp.lifecycle", "params": params})
    };
    for (from, to) in [
        ("connected", "disconnected"),
        ("error", "draining"),
        ("draining", "connected"),
        ("", "asleep"),
    ] {
        assert_eq!(
            owner.call("it__announce", says(from, to)).await.text(),
            "sent"
        );
        assert_eq!(
            owner.call("it__echo", json!({"text": "x"})).await.text(),
            "x"
        );
    }
    let before = shown(&mut owner, "it").await;
    assert_eq!(
        (&before["state"], &before["restarts"]),
        (&json!("connected"), &json!(0))
    );
    let log = owner
        .request("mgp/servers/logs", json!({"id": "it"}))
        .await
        .result()
        .to_string();
    assert_eq!(log.matches("ignored").count(), 4, "{log}");
    let slow = json!({"name": "it__slow", "arguments": {"ms": 1500}});
    let waiting = agent.start("tools/call", slow).await;
    wait_until("a call is under way", DEADLINE, async || {
        shown(&mut owner, "it").await["in_flight"] == 1
    })
    .await;
    owner
        .call("it__announce", says("connected", "draining"))
        .await;
    until(&mut owner, "it", "state", "draining").await;
    let refused = agent.call("it__echo", json!({"text": "x"})).await;
    assert_eq!(refused.code(), 2001, "{}", refused.frame);
    assert_eq!(agent.answer_to(&waiting).await.text(), "slept");
    until(&mut owner, "it", "state", "connected").await;
    assert_ne!(shown(&mut owner, "it").await["pid"], before["pid"]);
    let wait = [
        "connected>draining",
        "draining>disconnected",
        "disconnected>connecting",
        "connecting>connected",
    ];
    assert_eq!(steps(&mut agent, "connected").await, wait);
}

/// MGP-139: the operator ends the kernel in the words of MGP, and what is under way is finished; an
/// agent is refused with 1000, and who does not speak MGP learns of no such word.
#[tokio::test]
async fn kernel_shuts_down_for_the_operator_alone() {
    let mut kernel = Kernel::start(&server("it", &[], "")).await;
    kernel.connected(&["it"]).await;
    let shutdown = json!({"reason": "operator_request", "timeout_ms": 8000});
    let mut agent = speaker(&kernel, &["lifecycle"]).await;
    let refused = agent
        .request("mgp/lifecycle/shutdown", shutdown.clone())
        .await;
    assert_eq!(refused.code(), 1000, "{}", refused.frame);
    let mut plain = speaker(&kernel, &[]).await;
    let unknown = plain
        .request("mgp/lifecycle/shutdown", shutdown.clone())
        .await;
    assert_eq!(unknown.code(), -32601);
    let mut owner = owner(&kernel).await;
    let slow = json!({"name": "it__slow", "arguments": {"ms": 1500}});
    let waiting = owner.start("tools/call", slow).await;
    wait_until("a call is under way", DEADLINE, async || {
        shown(&mut owner, "it").await["in_flight"] == 1
    })
    .await;
    let answer = owner
        .request("mgp/lifecycle/shutdown", shutdown)
        .await
        .result();
    assert_eq!(
        answer,
        json!({"accepted": true, "pending_requests": 1, "estimated_drain_ms": 8000})
    );
    assert_eq!(owner.answer_to(&waiting).await.text(), "slept");
    kernel.process().end(DEADLINE).await;
}
