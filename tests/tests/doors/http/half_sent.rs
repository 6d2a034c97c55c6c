//! Messages that are begun and not ended: what they may hold of the kernel's memory.

use mgp_tests::harness::wait::within;
use mgp_tests::harness::{Agent, DEADLINE, Kernel, wait_until};
use mgp_tests::load::Holding;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::sync::mpsc;

use crate::scene::{self, NEWEST};
use crate::wire::{self, Wire};

/// Of a body of the longest length all but a little.
const HALF: usize = 7_900_000;
const WHOLE: usize = 8_000_000;
/// How many of them one agent may have under way: the others are refused.
const FIT: usize = 4;

/// What a kernel may take for them in bytes: the share of one agent, what buffers grow by, and what an
/// allocator keeps. Without a bound sixty of them take 455 MB.
const BOUND: u64 = 160 << 20;

/// Sixty bodies of which the end never comes: four find room, the others are told to come again, and
/// neither another agent nor a short message waits for any of them.
#[tokio::test]
async fn half_sent_bodies_are_bounded_in_all_and_for_each_agent() {
    const BODIES: usize = 60;
    let kernel = scene::kernel().await;
    let client = scene::session(&kernel, NEWEST).await;
    let before = Holding::of(kernel.pid()).resident;
    let text = wire::request(&client, "POST", &"x".repeat(WHOLE), HALF);
    let (told, mut tells) = mpsc::channel(BODIES);
    let mut sending = tokio::task::JoinSet::new();
    for _ in 0..BODIES {
        let (mut wire, text, told) = (Wire::to(&kernel).await, text.clone(), told.clone());
        sending.spawn(async move {
            wire.write(&text).await;
            let head = wire.until("\r\n\r\n").await;
            told.send(head).await.unwrap();
        });
    }
    for _ in 0..BODIES - FIT {
        let head = within("a body is refused", DEADLINE, tells.recv()).await;
        let head = head.unwrap();
        assert!(head.starts_with("HTTP/1.1 503 "), "{head}");
        assert!(head.contains("retry-after: 1\r\n"), "{head}");
    }
    let grown = Holding::of(kernel.pid()).resident.saturating_sub(before);
    assert!(grown < BOUND, "{grown} bytes for half-sent bodies");
    let echo = scene::call(2, "echo", json!({"text": "well"}));
    assert!(client.post(echo).await.frames().await[0].contains("well"));
    let mut owner = scene::socket_agent(&kernel, "{}").await;
    let text = "x".repeat(HALF);
    let echo = owner.call("it:echo", json!({"text": text})).await;
    assert_eq!(echo.text().len(), HALF);
    sending.shutdown().await;
    let taken = async || {
        let echo = scene::call(3, "echo", json!({"text": text}));
        client.post(echo).await.status == 200
    };
    wait_until("their room is given back", DEADLINE, taken).await;
}

/// The same on lines: a line without room is thrown away and its sender told, and the connection lives on.
#[tokio::test]
async fn half_sent_lines_are_bounded_and_their_connections_live_on() {
    const LINES: usize = 12;
    let kernel = scene::kernel().await;
    let mut lines = tokio::task::JoinSet::new();
    let written = std::sync::Arc::new(tokio::sync::Barrier::new(LINES));
    for _ in 0..LINES {
        let (wire, written) = (line_wire(&kernel).await, written.clone());
        lines.spawn(async move {
            let (reader, mut writer) = wire.into_split();
            writer.write_all(&vec![b'x'; HALF]).await.unwrap();
            written.wait().await;
            writer.write_all(b"\n").await.unwrap();
            let mut answers = BufReader::new(reader).lines();
            let first = answers.next_line().await.unwrap().unwrap();
            let ping = "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}\n";
            writer.write_all(ping.as_bytes()).await.unwrap();
            let pong = answers.next_line().await.unwrap().unwrap();
            assert!(pong.contains("\"result\""), "{pong}");
            serde_json::from_str::<Value>(&first).unwrap()
        });
    }
    let said = within("each line is answered", DEADLINE, lines.join_all()).await;
    let refused = |said: &&Value| {
        let words = said["error"]["message"].as_str().unwrap_or_default();
        said["error"]["code"] == -32603 && words.contains("max_bodies_bytes")
    };
    let refused = said.iter().filter(refused).count();
    assert!(refused >= LINES - FIT, "{refused} refused: {said:?}");
    let mut owner = Agent::over_socket(&kernel.socket()).await;
    owner.initialize(NEWEST, "{}").await.result();
    let text = "x".repeat(HALF);
    let echo = owner.call("it:echo", json!({"text": text})).await;
    assert_eq!(echo.text().len(), HALF);
}

async fn line_wire(kernel: &Kernel) -> UnixStream {
    UnixStream::connect(kernel.socket()).await.unwrap()
}
