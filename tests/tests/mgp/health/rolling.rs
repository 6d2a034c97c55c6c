//! Restarts without a gap (§11.2).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use mgp_tests::harness::program::Gate;
use mgp_tests::harness::{DEADLINE, Kernel, wait_until};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

use super::lifecycle::{accepted, reasons, takes_part};
use super::{owner, server, shown, speaker, until};

pub(super) const ROLLING: &str = "restart_mode = \"rolling\"";

pub(super) async fn rolls(kernel: &Kernel) {
    wait_until("a rolling restart is made", DEADLINE, async || {
        let restart = ["servers", "restart", "--rolling", "it"];
        kernel.mgp(&restart).await.status.success()
    })
    .await;
}

pub(super) fn pid(server: &Value) -> Pid {
    let pid = server["pid"].as_i64().unwrap();
    Pid::from_raw(i32::try_from(pid).unwrap())
}

pub(super) fn runs(pid: Pid) -> bool {
    kill(pid, None).is_ok()
}

/// MGP-117, MGP-138: a server is replaced under load, again and again: no call fails or is lost, a call that was
/// under way is finished by the life it began in, which is told why it ends; nobody sees the server leave
/// `connected`.
#[tokio::test]
async fn a_server_is_replaced_under_load_and_no_call_is_lost() {
    let folder = tempfile::tempdir().unwrap();
    let diary = folder.path().join("it");
    let kernel = Kernel::start(&takes_part("it", &accepted(), &diary, ROLLING)).await;
    kernel.connected(&["it"]).await;
    let mut owner = owner(&kernel).await;
    let mut agent = speaker(&kernel, &["lifecycle"]).await;
    let first = pid(&shown(&mut owner, "it").await);
    let slow = json!({"name": "it__slow", "arguments": {"ms": 4000}});
    let waiting = agent.start("tools/call", slow).await;
    wait_until("a call is under way", DEADLINE, async || {
        shown(&mut owner, "it").await["in_flight"] == 1
    })
    .await;
    let (over, made) = (
        Arc::new(AtomicBool::new(false)),
        Arc::new(AtomicUsize::new(0)),
    );
    let mut load = Vec::new();
    for _ in 0..4 {
        let mut caller = speaker(&kernel, &[]).await;
        let (over, made) = (over.clone(), made.clone());
        load.push(tokio::spawn(async move {
            while !over.load(Ordering::Relaxed) {
                let call = caller.call("it__echo", json!({"text": "x"})).await;
                assert_eq!(call.text(), "x");
                made.fetch_add(1, Ordering::Relaxed);
            }
        }));
    }
    rolls(&kernel).await;
    let second = pid(&shown(&mut owner, "it").await);
    assert_ne!(second, first);
    assert!(runs(first), "it finishes the call that it has");
    assert_eq!(agent.answer_to(&waiting).await.text(), "slept");
    for _ in 0..3 {
        rolls(&kernel).await;
    }
    let before = made.load(Ordering::Relaxed);
    wait_until("calls go on", DEADLINE, async || {
        made.load(Ordering::Relaxed) > before + 100
    })
    .await;
    over.store(true, Ordering::Relaxed);
    for caller in load {
        caller.await.unwrap();
    }
    assert!(made.load(Ordering::Relaxed) > 100);
    wait_until(
        "those that were replaced have ended",
        DEADLINE,
        async || !runs(first) && !runs(second) && reasons(&diary).len() == 4,
    )
    .await;
    assert!(reasons(&diary).iter().all(|why| why == "operator_request"));
    agent.request("ping", json!({})).await.result();
    assert!(agent.heard("notifications/mgp.lifecycle").is_empty());
}

/// MGP-117, MGP-140: a change of its entry replaces it, too; a second life that does not come up leaves the first
/// one as it is, and the operator reads why.
#[tokio::test]
async fn a_life_that_does_not_come_up_takes_nobodys_place() {
    let folder = tempfile::tempdir().unwrap();
    let diary = folder.path().join("it");
    let with = |keys: &str| takes_part("it", &accepted(), &diary, &format!("{ROLLING}\n{keys}"));
    let kernel = Kernel::start(&with("")).await;
    kernel.connected(&["it"]).await;
    let mut owner = owner(&kernel).await;
    let mut agent = speaker(&kernel, &["lifecycle"]).await;
    let first = pid(&shown(&mut owner, "it").await);
    kernel.rewrite(&with("max_in_flight = 7"));
    wait_until("it was replaced", DEADLINE, async || {
        pid(&shown(&mut owner, "it").await) != first && reasons(&diary) == ["configuration_change"]
    })
    .await;
    let second = pid(&shown(&mut owner, "it").await);
    wait_until("the first one has ended", DEADLINE, async || !runs(first)).await;
    kernel.rewrite(&server("it", &["--exit-at-start", "3"], ROLLING));
    let words = "it was not replaced and goes on as before: ";
    wait_until("the failure is told", DEADLINE, async || {
        let it = shown(&mut owner, "it").await;
        it["rolling"]
            .as_str()
            .is_some_and(|told| told.starts_with(words))
    })
    .await;
    let it = shown(&mut owner, "it").await;
    assert_eq!(
        (pid(&it), &it["state"]),
        (second, &json!("connected")),
        "{it:#}"
    );
    assert!(it["rolling"].as_str().unwrap().contains("code 3"), "{it:#}");
    let again = kernel.mgp(&["servers", "restart", "--rolling", "it"]).await;
    let said = String::from_utf8(again.stderr).unwrap();
    assert!(
        !again.status.success() && said.contains("goes on as before"),
        "{said}"
    );
    let call = owner.call("it__echo", json!({"text": "x"})).await;
    assert_eq!(call.text(), "x");
    agent.request("ping", json!({})).await.result();
    assert!(agent.heard("notifications/mgp.lifecycle").is_empty());
}

/// MGP-128, MGP-129: where the first life is killed while the second one starts, that goes on as the next life; a
/// call that is made meanwhile waits for it.
#[tokio::test]
async fn a_kill_in_the_middle_loses_no_server() {
    let kernel = Kernel::start(&server("it", &[], ROLLING)).await;
    kernel.connected(&["it"]).await;
    let mut owner = owner(&kernel).await;
    let mut agent = speaker(&kernel, &["lifecycle"]).await;
    let first = pid(&shown(&mut owner, "it").await);
    let gate = Gate::default();
    kernel.rewrite(&format!("{}{ROLLING}\n", gate.fixture(&[]).entry("it")));
    wait_until("a second life is under way", DEADLINE, async || {
        shown(&mut owner, "it").await["rolling"].is_string()
    })
    .await;
    kill(first, Signal::SIGKILL).unwrap();
    until(&mut owner, "it", "state", "restarting").await;
    let echo = json!({"name": "it__echo", "arguments": {"text": "x"}});
    let call = owner.start("tools/call", echo).await;
    gate.open();
    assert_eq!(owner.answer_to(&call).await.text(), "x");
    let it = shown(&mut owner, "it").await;
    assert_eq!(
        (&it["state"], &it["restarts"]),
        (&json!("connected"), &json!(0)),
        "{it:#}"
    );
    let steps = super::lifecycle::reasoned(&mut agent, "connected").await;
    let steps: Vec<_> = steps.iter().map(|[step, _]| step.as_str()).collect();
    assert_eq!(
        steps,
        [
            "connected>error",
            "error>restarting",
            "restarting>connected"
        ]
    );
}

/// MGP-142: who is not known to bear a second life is not given one; a stop ends both lives, and so does the end
/// of the kernel.
#[tokio::test]
async fn a_stop_ends_every_life() {
    let kernel = Kernel::start(&(server("it", &[], ROLLING) + &server("alone", &[], ""))).await;
    kernel.connected(&["it", "alone"]).await;
    let refused = kernel
        .mgp(&["servers", "restart", "--rolling", "alone"])
        .await;
    let said = String::from_utf8(refused.stderr).unwrap();
    assert!(
        !refused.status.success() && said.contains("restart_mode = \"rolling\""),
        "{said}"
    );
    let mut owner = owner(&kernel).await;
    let mut agent = speaker(&kernel, &[]).await;
    let first = pid(&shown(&mut owner, "it").await);
    let slow = json!({"name": "it__slow", "arguments": {"ms": 60_000}});
    agent.start("tools/call", slow).await;
    wait_until("a call is under way", DEADLINE, async || {
        shown(&mut owner, "it").await["in_flight"] == 1
    })
    .await;
    rolls(&kernel).await;
    let second = pid(&shown(&mut owner, "it").await);
    assert!(runs(first) && runs(second) && first != second);
    owner
        .request("mgp/servers/stop", json!({"id": "it"}))
        .await
        .result();
    assert!(!runs(first) && !runs(second));
    assert_eq!(shown(&mut owner, "it").await["state"], "disconnected");
}
