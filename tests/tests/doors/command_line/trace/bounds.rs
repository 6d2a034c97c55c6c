//! Who does not read, and how many may.

use std::path::Path;

use mgp_tests::harness::handshake::initialize;
use mgp_tests::harness::{DEADLINE, wait_until};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;

use crate::scene::{self, NEWEST};

/// An operator who follows a server and does not read.
async fn follows(socket: &Path) -> UnixStream {
    let mut stream = UnixStream::connect(socket).await.unwrap();
    let params = json!({"server": "it", "bodies": true});
    let follow = scene::request(7, "mgp/kernel/recorder/follow", params);
    let said = format!("{}\n{follow}\n", initialize(NEWEST, "{}"));
    stream.write_all(said.as_bytes()).await.unwrap();
    stream
}

/// Whether one more may follow.
async fn may_follow(socket: &Path) -> bool {
    let mut lines = BufReader::new(follows(socket).await).lines();
    loop {
        let line = lines.next_line().await.unwrap().unwrap();
        let said: Value = serde_json::from_str(&line).unwrap();
        match (&said["id"], &said["params"]["kind"]) {
            (_, kind) if kind == "began" => return true,
            (id, _) if id == 7 => return false,
            _ => {}
        }
    }
}

/// Decision 0068: who follows and does not read holds up nobody. What did not fit is counted and told in its place,
/// and what comes after that is shown again. A fifth one is refused, and who leaves makes room.
#[tokio::test]
async fn slow_trace_reader_misses_messages_and_delays_nobody() {
    let kernel = scene::kernel().await;
    let mut slow = follows(&kernel.socket()).await;
    let mut more = Vec::new();
    for _ in 0..3 {
        more.push(super::tracing(&kernel, &["it", "--tool", "none"]).await);
    }
    let full = kernel.mgp(&["trace", "it"]).await;
    let said = String::from_utf8_lossy(&full.stderr).into_owned();
    assert_eq!(full.status.code(), Some(1), "{said}");
    assert!(said.contains("4 commands that follow messages"), "{said}");
    drop(more.pop());
    wait_until("one may follow again", DEADLINE, async || {
        may_follow(&kernel.socket()).await
    })
    .await;

    // Together far more than its connection and its tap hold.
    let mut agent = scene::socket_agent(&kernel, "{}").await;
    let text = "x".repeat(256 << 10);
    for _ in 0..120 {
        let echoed = agent.call("it:echo", json!({"text": text})).await;
        assert_eq!(echoed.text().len(), text.len());
    }
    let mut lines = BufReader::new(&mut slow).lines();
    let (mut seen, mut missed) = (0, 0);
    let mut at_last = false;
    while !at_last {
        let line = lines.next_line().await.unwrap().unwrap();
        let heard: Value = serde_json::from_str(&line).unwrap();
        let params = &heard["params"];
        match params["kind"].as_str() {
            Some("missed") => {
                missed += params["missed"].as_u64().unwrap();
                agent
                    .call("it:echo", json!({"text": "the last"}))
                    .await
                    .result();
            }
            Some("request" | "answer") if params["about"] == "echo" => {
                at_last = params["message"].to_string().contains("the last");
                seen += u64::from(!at_last);
            }
            _ => {}
        }
    }
    assert!(missed > 0 && seen > 0, "{seen} seen, {missed} missed");
    assert_eq!(seen + missed, 240);
}
