//! A disk that takes its time holds up the log's thread and no call.

use std::fs::{self, File};

use mgp_tests::harness::{DEADLINE, HttpClient, Kernel, Program, wait_until};
use nix::sys::stat::Mode;
use serde_json::json;

use super::whole_log;

/// The least that all messages and one agent's may hold: 32 MiB and 8 MiB.
const SECTIONS: &str = "max_bodies_bytes = 33554432\n[tuning.audit]\nfile_bytes = 65536\n";
/// As many short calls fill one file of the log and need another one.
const FILL: usize = 300;
/// Twice as many calls of 64 KiB as find room at once.
const CALLS: usize = 200;

/// A call of `text` on a connection of its own: its body comes in more than one piece.
async fn echo(opened: &HttpClient, text: &str) -> u16 {
    let params = json!({"name": "it__echo", "arguments": {"text": text}});
    let call = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params});
    let answer = opened.anew().post(call.to_string()).await;
    let status = answer.status.as_u16();
    assert_eq!(answer.text().await.contains(text), status == 200);
    status
}

/// MGP §6.4: the log's thread is held up when it opens its second file. Calls go on, and each gives its
/// memory back with its answer; what waits to be written holds none of it. When the thread goes on, each
/// call has its record.
#[tokio::test]
async fn calls_that_wait_to_be_written_hold_no_message_memory() {
    let config = Program::fixture(&[]).entry("it");
    let kernel = Kernel::start(&format!("{SECTIONS}{config}")).await;
    kernel.connected(&["it"]).await;
    let log = |number: u64| {
        let file = format!("data/audit/{number:08}.jsonl");
        kernel.folder().join(file)
    };
    nix::unistd::mkfifo(&log(2), Mode::S_IRWXU).unwrap();
    let mut client = HttpClient::new(kernel.url());
    client.open_session("2025-11-25", "{}").await;
    for _ in 0..FILL {
        assert_eq!(echo(&client, "short").await, 200);
    }
    let text = "x".repeat(64 << 10);
    for n in 0..CALLS {
        assert_eq!(echo(&client, &text).await, 200, "call {n}");
    }
    let calls = |log: String| log.matches("\"tool_name\":\"echo\"").count();
    let written = calls(fs::read_to_string(log(1)).unwrap());
    assert!((1..FILL).contains(&written), "{written} were written");
    // Its open comes back, and nobody reads what it writes: the log goes on in a third file.
    let released = File::open(log(2)).unwrap();
    fs::remove_file(log(2)).unwrap();
    drop(released);
    wait_until("each call has its record", DEADLINE, async || {
        calls(whole_log(kernel.folder())) == FILL + CALLS
    })
    .await;
}
