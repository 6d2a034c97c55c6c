//! A stream of a server of another node whose reader reads no more.

use std::time::{Duration, Instant};

use mgp_tests::harness::kernel::nodes::JoinedNodes;
use mgp_tests::harness::mgp::{NINE, declaration, speaks_mgp};
use mgp_tests::harness::process::usage::Usage;
use mgp_tests::harness::{HttpClient, Program};
use serde_json::{Value, json};

use crate::scene::operator;

/// Of the version before streams begin with an empty event.
const VERSION: &str = "2025-06-18";

/// So many times so many chunks of so many bytes: 96 MiB.
const FLOODS: u64 = 32;
const CHUNKS: u64 = 96;
const BYTES: usize = 32 << 10;

/// What a kernel may take for it: a stream holds 1 MiB, the link 256 KiB of it, and the messages that are read and written
/// at the moment are copied a few times. A kernel that held the stream would take 96 MiB.
const GROWTH: u64 = 40 << 20;

/// A small call beside the stream takes its turn and no longer.
const SOON: Duration = Duration::from_secs(15);

fn memory(nodes: &JoinedNodes) -> [u64; 2] {
    [&nodes.nas, &nodes.desk].map(|kernel| Usage::of(&[kernel.pid()]).resident)
}

/// MGP-159, PRJ-007, PRJ-013: what a reader does not read is held by nobody beyond the bounds; others are served over the
/// same link, and the stream ends with its result, what was left out missing in its indices.
#[tokio::test(flavor = "multi_thread")]
async fn stalled_reader_at_another_node_costs_no_memory_and_delays_nobody() {
    let said = declaration(&NINE).to_string();
    let server = Program::fixture(&["--mgp", &said]).entry("demo");
    let nodes = JoinedNodes::sharing(&server, &["demo"]).await;
    let (mut other, mut owner) = (operator(&nodes.desk).await, operator(&nodes.nas).await);
    let echo = other.call("nas/demo:echo", json!({"text": "before"}));
    assert_eq!(echo.await.text(), "before");
    let mut sleeping = HttpClient::new(nodes.desk.url());
    sleeping.open_session(VERSION, &speaks_mgp(VERSION)).await;
    let flood = |n: u64| json!({"flood": CHUNKS, "bytes": BYTES, "from": n * CHUNKS, "ms": 20});
    let steps: Vec<Value> = (0..FLOODS).map(flood).collect();
    let params = json!({
        "name": "nas__demo__stream",
        "arguments": {"steps": steps, "brief": true},
        "_mgp": {"stream": true},
    });
    let before = memory(&nodes);
    let call = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params});
    let answer = sleeping.post(call.to_string()).await;
    let (mut most, mut small, mut began_there) = (before, 0, false);
    loop {
        let began = Instant::now();
        let text = format!("meanwhile {small}");
        let echoed = other.call("nas/demo:echo", json!({"text": text})).await;
        assert_eq!(echoed.text(), text);
        assert!(began.elapsed() < SOON, "it took {:?}", began.elapsed());
        small += 1;
        for (most, now) in most.iter_mut().zip(memory(&nodes)) {
            *most = now.max(*most);
        }
        let listed = owner.request("mgp/servers/list", json!({})).await;
        let streams = listed.result()["servers"][0]["in_flight"] != 0;
        if began_there && !streams {
            break;
        }
        began_there |= streams;
    }
    for (name, (before, most)) in ["nas", "desk"].iter().zip(before.into_iter().zip(most)) {
        println!(
            "{name} grew by {} KiB beside 96 MiB, {small} small calls",
            (most - before) >> 10
        );
        assert!(
            most - before < GROWTH,
            "{name} grew from {before} to {most}"
        );
    }
    let frames = answer.frames().await;
    let read =
        |frame: &String| serde_json::from_str::<Value>(frame).ok()?["params"]["index"].as_u64();
    let indices: Vec<u64> = frames.iter().filter_map(read).collect();
    assert!(indices.is_sorted_by(|one, next| one < next));
    let sent = FLOODS * CHUNKS;
    let heard = indices.len() as u64;
    assert!((1..sent).contains(&heard), "{heard} of {sent} chunks");
    let last: Value = serde_json::from_str(frames.last().unwrap()).unwrap();
    assert_eq!(last["result"]["_mgp"]["chunks_sent"], sent, "{last}");
}
