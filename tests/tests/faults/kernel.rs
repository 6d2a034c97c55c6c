//! The kernel's own end, and a second one beside it.

use std::time::Duration;

use mgp_tests::harness::{Agent, DEADLINE, Kernel};
use nix::sys::signal::Signal;
use serde_json::json;

use crate::scene::{NEWEST, echoes, in_flight, owner, server};

/// PRJ-009: the data folder belongs to one kernel; the second one says who has it, and harms nobody.
#[tokio::test]
async fn a_second_kernel_on_the_same_data_is_refused() {
    let kernel = Kernel::start(&server("it", &[], "")).await;
    kernel.connected(&["it"]).await;
    let socket = kernel.folder().join("other.sock").display().to_string();
    for second in [
        kernel.program(&["up"]),
        kernel.program(&["up"]).env("MGP_SOCKET", socket),
    ] {
        let refused = second.output(DEADLINE).await;
        assert_eq!(refused.status.code(), Some(1));
        let words = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(words.contains(&kernel.pid().to_string()), "{words}");
    }
    let mut agent = owner(&kernel).await;
    echoes(&mut agent, "it").await;
}

/// A kernel that was killed leaves nothing that keeps the next one from starting.
#[tokio::test]
async fn a_killed_kernel_can_be_started_again_at_once() {
    let kernel = Kernel::start(&server("it", &[], "")).await;
    kernel.connected(&["it"]).await;
    let folder = kernel.end(Signal::SIGKILL, DEADLINE).await;
    let kernel = Kernel::again(folder).await;
    kernel.connected(&["it"]).await;
    let mut agent = owner(&kernel).await;
    echoes(&mut agent, "it").await;
}

/// MGP-142: told to end, the kernel lets calls under way finish, at every door; the one that hangs
/// is told so.
#[tokio::test]
async fn a_kernel_told_to_end_answers_every_call_under_way() {
    let mut kernel = Kernel::start(&server("it", &[], "")).await;
    kernel.connected(&["it"]).await;
    let mut at_doors = [
        Agent::over_socket(&kernel.socket()).await,
        kernel.stdio_agent(None),
        kernel.http_agent(None),
    ];
    let mut waiting = Vec::new();
    for agent in &mut at_doors {
        agent.initialize(NEWEST, "{}").await.result();
        let slow = json!({"name": "it__slow", "arguments": {"ms": 1500}});
        let hang = json!({"name": "it__hang", "arguments": {}});
        let slow = agent.start("tools/call", slow).await;
        waiting.push((slow, agent.start("tools/call", hang).await));
    }
    let mut watcher = owner(&kernel).await;
    in_flight(&mut watcher, "it", 6).await;
    kernel.process().signal(Signal::SIGTERM);
    for (agent, (slow, hang)) in at_doors.iter_mut().zip(&waiting) {
        assert_eq!(agent.answer_to(slow).await.text(), "slept");
        let told = agent.answer_to(hang).await;
        assert_eq!(told.error()["data"]["outcome"], "unknown");
    }
    let status = kernel.process().end(Duration::from_secs(10)).await;
    assert_eq!(status.code(), Some(0));
}
