//! Owners that restart, and servers of theirs that start.

use std::sync::atomic::{AtomicBool, Ordering};

use mgp_tests::harness::kernel::nodes::JoinedNodes;
use mgp_tests::harness::{Agent, DEADLINE, Kernel, Program, wait_until};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::json;

use crate::scene::{linked, operator, shows};

/// The fixture, started by a script that ends with it.
fn server(before: &str) -> String {
    let script = format!("{before}; exec {} --stdio", fixture());
    Program::new("sh", ["-c", &script]).entry("demo")
}

fn fixture() -> String {
    Program::fixture(&[]).command
}

/// Calls until told to stop; how many were answered, and what the others were told.
async fn calls(agent: &mut Agent, over: &AtomicBool) -> (usize, Vec<String>) {
    let (mut answered, mut failed) = (0, Vec::new());
    while !over.load(Ordering::Relaxed) {
        let answer = agent.call("nas__demo__echo", json!({"text": "x"})).await;
        let good = !answer.is_error() && answer.result()["isError"] != true;
        if good {
            answered += 1
        } else {
            failed.push(answer.frame.clone())
        }
    }
    (answered, failed)
}

/// An owner is restarted in good order while an agent of another node calls its slow server, and lists its tools: no
/// call is lost, and the tool is there all the time.
#[tokio::test(flavor = "multi_thread")]
async fn a_call_waits_for_an_owner_that_is_starting() {
    let JoinedNodes { mut nas, desk } = JoinedNodes::sharing(&server("sleep 1"), &["demo"]).await;
    shows(&desk, "nas__demo__echo").await;
    let (mut caller, mut reader) = (operator(&desk).await, operator(&desk).await);
    let over = AtomicBool::new(false);
    let restarting = async {
        for _ in 0..3 {
            let folder = nas.end(Signal::SIGTERM, DEADLINE).await;
            nas = Kernel::again(folder).await;
            nas.connected(&["demo"]).await;
            linked(&nas, &desk).await;
        }
        over.store(true, Ordering::Relaxed);
        nas
    };
    let reading = async {
        let mut without = 0;
        while !over.load(Ordering::Relaxed) {
            let listed = reader.request("tools/list", json!({})).await.result();
            let tools = listed["tools"].as_array().unwrap();
            without += usize::from(!tools.iter().any(|tool| tool["name"] == "nas__demo__echo"));
        }
        without
    };
    let (_nas, (answered, failed), without) =
        tokio::join!(restarting, calls(&mut caller, &over), reading);
    assert!(
        failed.is_empty(),
        "{answered} answered, not these: {failed:#?}"
    );
    assert!(answered > 3, "{answered}");
    assert_eq!(without, 0, "lists without the tool");
}

/// A server that does not start again is away, not unknown: who may call it is told why, and when it is tried next.
#[tokio::test(flavor = "multi_thread")]
async fn failed_server_of_another_node_reports_reason_and_next_try() {
    let folder = tempfile::TempDir::new().unwrap();
    let broken = folder.path().join("broken");
    let script = format!("[ -e {} ] && exit 7", broken.display());
    let nodes = JoinedNodes::sharing(&server(&script), &["demo"]).await;
    shows(&nodes.desk, "nas__demo__echo").await;
    let mut caller = operator(&nodes.desk).await;
    let echo = json!({"text": "x"});
    let answer = caller.call("nas__demo__echo", echo.clone()).await;
    assert!(!answer.is_error(), "{}", answer.frame);
    std::fs::write(&broken, "").unwrap();
    let server = nodes.nas.children(&fixture());
    kill(Pid::from_raw(server[0].cast_signed()), Signal::SIGKILL).unwrap();
    let mut told = Vec::new();
    wait_until("it is told when it is tried again", DEADLINE, async || {
        let answer = caller.call("nas__demo__echo", echo.clone()).await;
        let tried_again = answer.frame.contains("next try in");
        told.push(answer.frame);
        tried_again
    })
    .await;
    let unknown: Vec<_> = told
        .iter()
        .filter(|frame| frame.contains("Unknown"))
        .collect();
    assert!(unknown.is_empty(), "{unknown:#?}");
}
