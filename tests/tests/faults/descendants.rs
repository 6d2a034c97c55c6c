//! Servers that start processes of their own, and servers that do not want to end.

use std::time::{Duration, Instant};

use mgp_tests::harness::wait::within;
use mgp_tests::harness::{Agent, DEADLINE, Kernel, wait_until};
use nix::sys::signal::Signal;
use serde_json::json;

use crate::machine::{all_gone, runs};
use crate::scene::{AT_ONCE, begin, echoes, in_flight, listed, owner, server, shown, told};

/// After this long nothing of a killed kernel may run.
const ORPHANS: Duration = Duration::from_secs(2);

/// MCP-020, MCP-022, MCP-023, CMCP-073: a stop ends all that the server started, what left its group and
/// its session, too.
#[tokio::test]
async fn a_stop_ends_everything_the_server_started() {
    let kernel = Kernel::start(&server("it", &[], "")).await;
    kernel.connected(&["it"]).await;
    let mut agent = owner(&kernel).await;
    let family = family(&mut agent, "it").await;
    assert!(family.iter().all(|pid| runs(*pid)), "{family:?}");
    assert!(
        kernel
            .mgp(&["servers", "stop", "it"])
            .await
            .status
            .success()
    );
    let left: Vec<_> = family.iter().filter(|pid| runs(**pid)).collect();
    assert!(
        left.is_empty(),
        "{left:?} run on after the stop was answered"
    );
    assert_eq!(listed(&kernel, "it").await["state"], "disconnected");
}

/// The end of a server is noticed although what it started holds its pipes open, and what it
/// started ends before it is started again.
#[tokio::test]
async fn a_crash_leaves_nothing_behind() {
    let kernel = Kernel::start(&server(
        "it",
        &[],
        "backoff_base_ms = 20\nstop_grace_ms = 200",
    ))
    .await;
    kernel.connected(&["it"]).await;
    let mut agent = owner(&kernel).await;
    let family = family(&mut agent, "it").await;
    let lost = within("an answer", AT_ONCE, agent.call("it__crash", json!({}))).await;
    assert_eq!(lost.error()["data"]["outcome"], "unknown");
    echoes(&mut agent, "it").await;
    let left: Vec<_> = family.iter().filter(|pid| runs(**pid)).collect();
    assert!(left.is_empty(), "{left:?} run on beside the new process");
}

/// A server that ignores the end of its input and SIGTERM is killed.
#[tokio::test]
async fn a_server_that_ignores_every_request_to_end_is_killed() {
    let kernel = Kernel::start(&server("it", &["--ignore-term"], "stop_grace_ms = 200")).await;
    kernel.connected(&["it"]).await;
    let mut agent = owner(&kernel).await;
    let family = family(&mut agent, "it").await;
    let begun = Instant::now();
    assert!(
        kernel
            .mgp(&["servers", "stop", "it"])
            .await
            .status
            .success()
    );
    assert!(
        begun.elapsed() >= Duration::from_millis(400),
        "it had its two graces"
    );
    assert!(!family.iter().any(|pid| runs(*pid)), "{family:?}");
    assert!(
        kernel
            .mgp(&["servers", "start", "it"])
            .await
            .status
            .success()
    );
    echoes(&mut agent, "it").await;
}

/// No orphans: two seconds after `kill -9` of the kernel nothing of its servers runs, whatever they
/// ignore and wherever they hide.
#[tokio::test]
async fn a_killed_kernel_leaves_no_orphans() {
    let servers = server("tame", &[], "") + &server("stubborn", &["--ignore-term"], "");
    let mut took = Vec::new();
    // The time is the guard's, not that of a machine with other things to do: one run in three is enough,
    // and in each of them all are gone.
    while took.iter().all(|took| *took >= ORPHANS) {
        assert!(took.len() < 3, "{took:?}");
        let kernel = Kernel::start(&servers).await;
        kernel.connected(&["tame", "stubborn"]).await;
        let mut agent = owner(&kernel).await;
        let mut everyone = family(&mut agent, "tame").await;
        everyone.extend(family(&mut agent, "stubborn").await);
        let pid = nix::unistd::Pid::from_raw(kernel.pid().try_into().unwrap());
        let killed = Instant::now();
        nix::sys::signal::kill(pid, Signal::SIGKILL).unwrap();
        all_gone(&everyone).await;
        took.push(killed.elapsed());
    }
}

/// CMCP-083: an orderly end takes every process of every server, and is a success.
#[tokio::test]
async fn shutdown_ends_every_process_of_every_server() {
    let stubborn = server("stubborn", &["--ignore-term"], "stop_grace_ms = 200");
    let mut kernel = Kernel::start(&(server("tame", &[], "") + &stubborn)).await;
    kernel.connected(&["tame", "stubborn"]).await;
    let mut agent = owner(&kernel).await;
    let mut everyone = family(&mut agent, "tame").await;
    everyone.extend(family(&mut agent, "stubborn").await);
    kernel.process().signal(Signal::SIGTERM);
    let status = kernel.process().end(DEADLINE).await;
    assert_eq!(status.code(), Some(0));
    assert!(!everyone.iter().any(|pid| runs(*pid)), "{everyone:?}");
}

/// MGP-141: a call that hangs does not hold up the stop of its server for ever; it is told.
#[tokio::test]
async fn hanging_call_fails_when_its_server_is_stopped() {
    let kernel = Kernel::start(&server("it", &[], "")).await;
    kernel.connected(&["it"]).await;
    let (mut agent, mut other) = (owner(&kernel).await, owner(&kernel).await);
    let family = family(&mut agent, "it").await;
    let hanging = begin(&mut agent, "it__hang", json!({})).await;
    in_flight(&mut other, "it", 1).await;
    assert!(
        kernel
            .mgp(&["servers", "stop", "it"])
            .await
            .status
            .success()
    );
    assert_eq!(
        agent.answer_to(&hanging).await.error()["data"]["outcome"],
        "unknown"
    );
    assert!(!family.iter().any(|pid| runs(*pid)), "{family:?}");
}

/// The process of a server and some it starts: in its group, in sessions of their own, and such
/// that hold its pipes open.
async fn family(agent: &mut Agent, id: &str) -> Vec<u32> {
    let it = shown(agent, id).await;
    let mut pids = vec![u32::try_from(it["pid"].as_u64().unwrap()).unwrap()];
    for (setsid, hold) in [(false, false), (true, false), (true, true)] {
        let arguments = json!({"n": 3, "setsid": setsid, "hold": hold});
        let forked = told(&agent.call(&format!("{id}__fork"), arguments).await);
        let forked: Vec<u32> = serde_json::from_value(forked["pids"].clone()).unwrap();
        assert_eq!(forked.len(), 3);
        if setsid {
            wait_until("they lead sessions", DEADLINE, async || {
                forked.iter().all(leads)
            })
            .await;
        }
        pids.extend(forked);
    }
    pids
}

/// True once the process has a session of its own.
fn leads(pid: &u32) -> bool {
    let pid = nix::unistd::Pid::from_raw((*pid).try_into().unwrap());
    nix::unistd::getsid(Some(pid)) == Ok(pid)
}
