//! Answers that nobody reads: what they may hold of the kernel's memory, and that others are served meanwhile.

use std::collections::BTreeSet;

use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE};
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::client::conn::http2::handshake;
use hyper_util::rt::{TokioExecutor, TokioIo};
use mgp_tests::harness::program::remote_entry;
use mgp_tests::harness::wait::within;
use mgp_tests::harness::{DEADLINE, HttpClient, Kernel, Program, Upstream, wait_until};
use mgp_tests::load::Holding;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpStream, UnixStream};

use super::shares::two_agents;
use crate::scene::{self, NEWEST, header};
use crate::wire::{self, Wire};

/// How long each answer is, in bytes. One agent's unread ones may take 64 MiB: two of these.
const ANSWER: usize = 30 << 20;

/// What a kernel may take for them in bytes: the share, one that is being read, and what buffers and an
/// allocator keep.
const BOUND: u64 = 180 << 20;

/// More than the share holds; making and reading them takes less than the 30 s after which a silent client is dropped.
const CALLS: usize = 5;

/// Its answers may be that long.
const LONG: &str = "max_frame_bytes = 33554432\n";

fn huge(id: usize) -> String {
    scene::call(id as u64, "it__huge", json!({"bytes": ANSWER}))
}

/// A kernel in front of one server, with an agent that is served and one that does not read.
async fn scene(entry: &str) -> (Kernel, HttpClient, HttpClient) {
    let (kernel, mut served, mut deaf) = two_agents(100, &format!("{entry}{LONG}")).await;
    kernel.connected(&["it"]).await;
    served.open_session(NEWEST, "{}").await;
    deaf.open_session(NEWEST, "{}").await;
    (kernel, served, deaf)
}

/// Calls on a connection each, of which no answer is read.
async fn unread(kernel: &Kernel, deaf: &HttpClient, calls: usize) -> Vec<Wire> {
    let mut wires = Vec::new();
    for n in 0..calls {
        let mut wire = Wire::to(kernel).await;
        let call = huge(n);
        let request = wire::request(deaf, "POST", &call, call.len());
        let last = request.replacen("\r\n", "\r\nconnection: close\r\n", 1);
        wire.write(last).await;
        wires.push(wire);
    }
    wires
}

async fn echoes(client: &HttpClient) -> Value {
    let call = scene::call(99, "it__echo", json!({"text": "well"}));
    let frames = client.post(call).await.frames().await;
    serde_json::from_str(frames.last().unwrap()).unwrap()
}

/// One pipe carries the answers of all agents: those without room are dropped with an honest outcome, an agent
/// that does not read makes no further call, and others are served on.
#[tokio::test]
async fn unread_answers_are_bounded_and_others_are_served() {
    let (kernel, served, deaf) = scene(&Program::fixture(&[]).entry("it")).await;
    let before = Holding::of(kernel.pid()).resident;
    let mut wires = unread(&kernel, &deaf, CALLS).await;
    let full = async || deaf.post(huge(50)).await.status == StatusCode::SERVICE_UNAVAILABLE;
    wait_until("its share is full", DEADLINE, full).await;
    let well = within("a call of another agent", DEADLINE, echoes(&served)).await;
    assert_eq!(well["result"]["content"][0]["text"], "well", "{well}");
    let grown = Holding::of(kernel.pid()).resident.saturating_sub(before);
    assert!(grown < BOUND, "{} MiB", grown >> 20);
    // Each call is answered, with its result or with what became of it.
    let mut whole = 0;
    for wire in &mut wires {
        let mut answer = wire.rest().await;
        // A stream that is behind ends, and its client comes back for the rest.
        if !answer.contains("\ndata: {")
            && let Some((_, id)) = answer.split_once("\nid: ")
        {
            let id = id.split_whitespace().next();
            answer = deaf.get(id).await.text().await;
        }
        if answer.len() > ANSWER - 1_000 {
            whole += 1;
            continue;
        }
        let dropped = answer.contains("dropped") && answer.contains("\"outcome\":\"done\"");
        assert!(dropped || answer.contains("not read"), "{answer}");
    }
    assert!((1..=4).contains(&whole), "{whole}");
    drop(wires);
    let again = async || echoes(&deaf).await["result"].is_object();
    wait_until("its share is free", DEADLINE, again).await;
}

/// Over HTTP each answer has a stream of its own: it waits there until the agent has read others, and all arrive.
#[tokio::test]
async fn answers_over_http_wait_until_their_agent_reads() {
    let far = Upstream::start(&["--http-json"]).await;
    let (kernel, served, deaf) = scene(&remote_entry("it", &far.url())).await;
    let before = Holding::of(kernel.pid()).resident;
    let mut wires = unread(&kernel, &deaf, 3).await;
    for wire in &mut wires[..2] {
        wire.until("\r\n\r\n").await;
    }
    let well = within("a call of another agent", DEADLINE, echoes(&served)).await;
    assert_eq!(well["result"]["content"][0]["text"], "well", "{well}");
    let grown = Holding::of(kernel.pid()).resident.saturating_sub(before);
    assert!(grown < BOUND, "{} MiB", grown >> 20);
    for wire in &mut wires {
        let rest = wire.rest().await;
        assert!(rest.len() > ANSWER - 1_000, "{rest:.500}");
    }
}

/// Over the socket: an agent that writes calls and reads nothing has its answers held up to its share, and the figures
/// say how much that is; what it reads afterwards is an answer to each of them.
#[tokio::test]
async fn answers_over_the_socket_are_bounded() {
    let (kernel, served, _) = scene(&Program::fixture(&[]).entry("it")).await;
    let before = Holding::of(kernel.pid()).resident;
    let mut deaf = UnixStream::connect(kernel.socket()).await.unwrap();
    let hello = json!({"protocolVersion": NEWEST, "capabilities": {},
        "clientInfo": {"name": "deaf", "version": "1"}});
    let hello = json!({"jsonrpc": "2.0", "id": "hello", "method": "initialize", "params": hello});
    let ready = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
    let calls: String = (0..CALLS).map(|n| huge(n) + "\n").collect();
    let lines = format!("{hello}\n{ready}\n{calls}");
    deaf.write_all(lines.as_bytes()).await.unwrap();
    let held = async || {
        let figures = kernel.mgp(&["metrics"]).await;
        let figures = String::from_utf8(figures.stdout).unwrap();
        let figure = figures
            .lines()
            .find_map(|line| line.strip_prefix("mgp_unread_response_bytes "));
        figure.unwrap().parse::<f64>().unwrap()
    };
    wait_until("answers are held", DEADLINE, async || {
        held().await > ANSWER as f64
    })
    .await;
    let well = within("a call of another agent", DEADLINE, echoes(&served)).await;
    assert_eq!(well["result"]["content"][0]["text"], "well", "{well}");
    let grown = Holding::of(kernel.pid()).resident.saturating_sub(before);
    assert!(grown < BOUND, "{} MiB", grown >> 20);
    let mut answers = BufReader::new(deaf).lines();
    let mut ids = BTreeSet::new();
    while ids.len() < CALLS {
        let line = within("an answer", DEADLINE, answers.next_line()).await;
        let line = line.unwrap().expect("an answer to each call");
        let answer: Value = serde_json::from_str(&line).unwrap();
        ids.extend(answer["id"].as_u64());
    }
    wait_until("nothing is held", DEADLINE, async || held().await == 0.0).await;
}

/// HTTP/2, whose client gives its answers no room: no write waits, and all are held by the kernel.
#[tokio::test]
async fn unread_answers_over_http2_are_bounded() {
    let (kernel, served, deaf) = scene(&Program::fixture(&[]).entry("it")).await;
    let before = Holding::of(kernel.pid()).resident;
    let host = kernel.url().strip_prefix("http://").unwrap();
    let host = host.strip_suffix("/mcp").unwrap();
    let io = TokioIo::new(TcpStream::connect(host).await.unwrap());
    let (mut sender, driver) = handshake(TokioExecutor::new(), io).await.unwrap();
    tokio::spawn(driver);
    let mut answers = Vec::new();
    for n in 0..CALLS {
        let request = Request::post(format!("http://{host}/mcp-lite/v1/rpc"))
            .header(CONTENT_TYPE, "application/json")
            .header(ACCEPT, "application/json")
            .header(AUTHORIZATION, &deaf.headers[AUTHORIZATION])
            .header("prefer", "respond-sync")
            .body(Full::<bytes::Bytes>::from(huge(n)))
            .unwrap();
        sender.ready().await.unwrap();
        answers.push(tokio::spawn(sender.send_request(request)));
    }
    let mut held = Vec::new();
    for answer in answers {
        let answer = within("the head of an answer", DEADLINE, answer).await;
        held.push(answer.unwrap().unwrap());
    }
    let long = |answer: &&Response<Incoming>| {
        let length = header(answer.headers(), "content-length");
        length
            .parse::<usize>()
            .is_ok_and(|length| length > ANSWER - 1_000)
    };
    let whole = held.iter().filter(long).count();
    assert!((1..=4).contains(&whole), "{whole}");
    let well = within("a call of another agent", DEADLINE, echoes(&served)).await;
    assert_eq!(well["result"]["content"][0]["text"], "well", "{well}");
    let grown = Holding::of(kernel.pid()).resident.saturating_sub(before);
    assert!(grown < BOUND, "{} MiB", grown >> 20);
}
