//! Large payloads, and small calls beside them.

use std::time::{Duration, Instant};

use mgp_tests::harness::kernel::nodes::JoinedNodes;
use mgp_tests::harness::{Agent, Program};
use serde_json::json;

use crate::scene::{NEWEST, operator};

/// What fits into a frame of 8 MiB, as servers may have them, with what is around it.
const LARGE: usize = (8 << 20) - 4096;

/// A small call beside large ones takes its turn and no longer: far below what eight megabytes take to be read and
/// written four times on a busy machine.
const SOON: Duration = Duration::from_secs(5);

/// PRJ-005, PRJ-013, FED-010: eight megabytes go there and come back as they were, and small calls over the same link go on
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
