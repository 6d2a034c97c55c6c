//! Large payloads, small calls beside them, and readers that do not read.

use std::time::{Duration, Instant};

use mgp_tests::harness::kernel::nodes::JoinedNodes;
use mgp_tests::harness::mgp::{NINE, declaration, speaks_mgp};
use mgp_tests::harness::process::usage::Usage;
use mgp_tests::harness::{Agent, Client, DEADLINE, Program, wait_until};
use serde_json::json;

use super::audit::records;
use crate::scene::{NEWEST, operator};

/// What fits into a frame of 8 MiB, as servers may have them, with what is around it.
const LARGE: usize = (8 << 20) - 4096;

/// A small call beside large ones takes its turn and no longer: far below what eight megabytes take to be read and
/// written four times on a busy machine.
const SOON: Duration = Duration::from_secs(5);

/// PRJ-005, PRJ-013: eight megabytes go there and come back as they were, and small calls over the same link go on
/// meanwhile.
#[tokio::test(flavor = "multi_thread")]
async fn small_calls_go_on_beside_eight_megabytes_each_way() {
    let nodes = JoinedNodes::sharing(&Program::fixture(&[]).entry("demo"), &["demo"]).await;
    let mut small = operator(&nodes.desk).await;
    let socket = nodes.desk.socket();
    let large = tokio::spawn(async move {
        let mut agent = Agent::over_socket(&socket).await;
        agent.initialize(NEWEST, "{}").await.result();
        for round in 0..4 {
            let text = char::from(b'a' + round).to_string().repeat(LARGE);
            let echoed = agent.call("nas/demo:echo", json!({"text": text})).await;
            assert_eq!(echoed.text(), text);
        }
    });
    let mut took = Vec::new();
    while !large.is_finished() {
        let began = Instant::now();
        let text = format!("{}", took.len());
        let echoed = small.call("nas/demo:echo", json!({"text": text})).await;
        assert_eq!(echoed.text(), text);
        took.push(began.elapsed());
    }
    large.await.unwrap();
    took.sort();
    let (median, longest) = (took[took.len() / 2], took[took.len() - 1]);
    println!(
        "{} small calls beside 64 MiB: median {median:?}, longest {longest:?}",
        took.len()
    );
    assert!(
        took.len() > 8,
        "only {} small calls were made meanwhile",
        took.len()
    );
    assert!(longest < SOON, "a small call took {longest:?}");
}

/// What both kernels may take for a reader who does not read: the windows of its stream, its room for chunks and
/// what a few megabytes of buffers come to; not what the server says.
const ROOM: u64 = 96 << 20;

/// MGP-160, PRJ-013: a stream whose reader reads no more fills the memory of neither node, and others go on.
#[tokio::test(flavor = "multi_thread")]
async fn a_reader_that_reads_no_more_fills_no_memory() {
    let said = declaration(&NINE).to_string();
    let server = Program::fixture(&["--mgp", &said]).entry("demo");
    let nodes = JoinedNodes::sharing(&server, &["demo"]).await;
    let kernels = [nodes.desk.pid(), nodes.nas.pid()];
    let mut other = operator(&nodes.desk).await;
    other
        .call("nas/demo:echo", json!({"text": "before"}))
        .await
        .result();
    let before = Usage::of(&kernels).resident;
    let mut slow = Client::over_socket(&nodes.desk.socket(), NEWEST, &speaks_mgp(NEWEST)).await;
    // 160 MiB in all, of which nothing is read.
    let floods: Vec<_> = (0..100)
        .map(|n| json!({"flood": 400, "bytes": 4096, "from": n * 400}))
        .flat_map(|flood| [flood, json!({"ms": 20})])
        .collect();
    let params = json!({
        "name": "nas/demo:stream",
        "arguments": {"steps": floods},
        "_mgp": {"stream": true},
    });
    slow.start("tools/call", params).await;
    let mut most = 0;
    wait_until("the server has said all", DEADLINE, async || {
        let echoed = other.call("nas/demo:echo", json!({"text": "beside"})).await;
        assert_eq!(echoed.text(), "beside");
        most = most.max(Usage::of(&kernels).resident);
        !records(&nodes.nas, "stream").await.is_empty()
    })
    .await;
    let grown = most.saturating_sub(before);
    println!("both kernels grew by {} MiB", grown >> 20);
    assert!(grown < ROOM, "both kernels grew by {} MiB", grown >> 20);
}
