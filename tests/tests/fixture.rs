//! The scripted server keeps its own promises: it is whole where it should be and breaks only the
//! rule it was told to break.

#![allow(clippy::unwrap_used)]

use std::process::Stdio;
use std::time::Duration;

use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Incoming};
use hyper::{Request, Response, StatusCode};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use mgp_tests::harness::{DEADLINE, wait_until};
use nix::sys::signal::Signal;
use nix::unistd::Pid;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

#[tokio::test]
async fn a_legacy_client_shakes_hands_and_echoes_over_stdio() {
    let mut server = Server::start("").await;
    let refused = server.ask("tools/list", json!({})).await;
    assert_eq!(refused["error"]["code"], -32601);
    let hello = server.shake_hands().await;
    assert_eq!(hello["protocolVersion"], "2025-06-18");
    assert_eq!(hello["serverInfo"]["name"], "conformance-fixture");
    for text in ["x", "é \"quoted\"\n"] {
        let answer = server.call("echo", json!({ "text": text })).await;
        assert_eq!(answer["content"][0]["text"], text);
    }
    assert_eq!(server.count("calls", "echo").await, 2);
    assert_eq!(server.leave().await, Some(0));
}

#[tokio::test]
async fn a_modern_client_needs_no_handshake() {
    let mut server = Server::start("--era modern").await;
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    let found = server
        .ask("server/discover", json!({ "_meta": meta }))
        .await;
    assert_eq!(found["result"]["supportedVersions"], json!(["2026-07-28"]));
    let params = json!({ "name": "echo", "arguments": { "text": "hi" }, "_meta": meta });
    let answer = server.ask("tools/call", params).await;
    assert_eq!(answer["result"]["resultType"], "complete");
    assert_eq!(answer["result"]["content"][0]["text"], "hi");
    let refused = server
        .ask("initialize", json!({ "protocolVersion": "2025-06-18" }))
        .await;
    assert_eq!(refused["error"]["code"], -32022);
}

#[tokio::test]
async fn pages_hold_every_tool_once() {
    let mut server = Server::start("--page 7 --tools 20").await;
    server.shake_hands().await;
    let (mut names, mut params) = (Vec::new(), json!({}));
    loop {
        let page = server.ask("tools/list", params).await["result"].take();
        let tools = page["tools"].as_array().unwrap();
        assert!(tools.len() <= 7);
        names.extend(tools.iter().map(|tool| tool["name"].to_string()));
        match page.get("nextCursor") {
            Some(cursor) => params = json!({ "cursor": cursor }),
            None => break,
        }
    }
    let count = names.len();
    assert!(names.contains(&"\"echo_19\"".to_owned()));
    names.sort();
    names.dedup();
    assert_eq!(names.len(), count);
}

#[tokio::test]
async fn a_looping_list_never_ends() {
    let mut server = Server::start("--loop-cursor").await;
    server.shake_hands().await;
    let first = server.ask("tools/list", json!({})).await["result"]["nextCursor"].take();
    let next = server.ask("tools/list", json!({ "cursor": first })).await;
    assert_eq!(next["result"]["nextCursor"], first);
}

#[tokio::test]
async fn noise_comes_before_the_handshake() {
    let mut server = Server::start("--banner --babble 70000 --early-request").await;
    server
        .tell(r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"capabilities":{}}}"#)
        .await;
    assert_eq!(server.line().await, "*** mgp-fixture ***");
    for _ in 0..3 {
        server.line().await;
    }
    let babble = server.line().await;
    let early = babble.trim_start_matches('x');
    assert_eq!(babble.len() - early.len(), 70_000);
    let early: Value = serde_json::from_str(early).unwrap();
    assert_eq!(early["method"], "roots/list");
    assert_eq!(server.message().await["id"], 0);
    server
        .tell(
            &json!({ "jsonrpc": "2.0", "id": early["id"], "result": { "roots": [] } }).to_string(),
        )
        .await;
    // An answer and a call after it are read side by side.
    wait_until("the early answer is counted", DEADLINE, async || {
        let counted = server.call("count", json!({})).await;
        counted["structuredContent"]["earlyAnswer"]["result"]["roots"] == json!([])
    })
    .await;
}

#[tokio::test]
async fn a_cancelled_call_is_counted_and_not_answered() {
    let mut server = Server::start("").await;
    server.shake_hands().await;
    let call = r#"{"jsonrpc":"2.0","id":"c","method":"tools/call","params":{"name":"slow","arguments":{"ms":60000}}}"#;
    server.tell(call).await;
    server
        .tell(r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"c"}}"#)
        .await;
    server.until("cancelled", "slow", 1).await;
    assert_eq!(server.count("calls", "slow").await, 1);
    let frames = server.call("received", json!({ "last": 1000 })).await;
    let frames = frames["structuredContent"]["frames"].as_array().unwrap();
    assert!(frames.iter().any(|frame| frame == call));
}

#[tokio::test]
async fn held_calls_are_answered_in_reverse() {
    let mut server = Server::start("").await;
    server.shake_hands().await;
    for id in ["a", "b", "c"] {
        let params = json!({ "name": "reverse", "arguments": { "n": 3 } });
        server
            .tell(
                &json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params })
                    .to_string(),
            )
            .await;
    }
    for id in ["c", "b", "a"] {
        assert_eq!(server.message().await["id"], id);
    }
}

#[tokio::test]
async fn rules_are_broken_one_at_a_time() {
    let mut server = Server::start("--bad-schema").await;
    server.shake_hands().await;
    let bad = server.call("bad_structured", json!({})).await;
    assert_eq!(bad["structuredContent"]["sum"], "seven");
    assert!(
        server
            .call("no_content", json!({}))
            .await
            .get("content")
            .is_none()
    );
    assert_eq!(
        server.call("bad_schema", json!({})).await["content"][0]["text"],
        "ok"
    );

    server.send("tools/call", json!({ "name": "stray" })).await;
    assert_eq!(server.message().await["id"], 999_999_999);
    server.message().await;

    server
        .send(
            "tools/call",
            json!({ "name": "banner", "arguments": { "lines": 2 } }),
        )
        .await;
    assert_eq!(server.line().await, "DEBUG line 0: not {json");
    assert_eq!(server.line().await, "DEBUG line 1: not {json");
    server.message().await;

    let late = json!({ "name": "late_progress", "_meta": { "progressToken": "t" } });
    server.send("tools/call", late).await;
    assert_eq!(server.message().await["params"]["progress"], 1);
    assert!(server.message().await.get("result").is_some());
    assert_eq!(server.message().await["params"]["progress"], 2);

    server
        .send(
            "tools/call",
            json!({ "name": "huge", "arguments": { "bytes": 5000 } }),
        )
        .await;
    assert_eq!(server.line().await.len(), 5000);
    server
        .send(
            "tools/call",
            json!({ "name": "huge", "arguments": { "bytes": 5000, "newline": false } }),
        )
        .await;
    server.send("ping", json!({})).await;
    assert!(server.line().await.len() > 5000);
}

#[tokio::test]
async fn the_offer_grows_and_says_so() {
    let mut server = Server::start("").await;
    server.shake_hands().await;
    server.send("tools/call", json!({ "name": "grow" })).await;
    assert_eq!(
        server.message().await["method"],
        "notifications/tools/list_changed"
    );
    let grown = server.message().await["result"]["content"][0]["text"].take();
    let answer = server
        .call(grown.as_str().unwrap(), json!({ "text": "new" }))
        .await;
    assert_eq!(answer["content"][0]["text"], "new");
    for kind in ["tools", "prompts", "resources"] {
        server
            .send(
                "tools/call",
                json!({ "name": "notify", "arguments": { "kind": kind } }),
            )
            .await;
        assert_eq!(
            server.message().await["method"],
            format!("notifications/{kind}/list_changed")
        );
        server.message().await;
    }
}

#[tokio::test]
async fn it_ends_in_every_way_it_is_told_to() {
    assert_eq!(
        Server::start("--exit-at-start 3").await.code().await,
        Some(3)
    );
    assert_eq!(
        Server::start("--crash-after 1").await.code().await,
        Some(70)
    );
    let mut server = Server::start("").await;
    server.shake_hands().await;
    server
        .send(
            "tools/call",
            json!({ "name": "crash", "arguments": { "code": 9 } }),
        )
        .await;
    assert_eq!(server.lines.next_line().await.unwrap(), None);
    assert_eq!(server.code().await, Some(9));
}

/// That it crashes in the end, with the code of `--crash-after`, shows that nothing ended it before.
#[tokio::test]
async fn a_stubborn_server_outlives_the_end_of_stdin_and_sigterm() {
    let mut server = Server::start("--ignore-term --crash-after 500").await;
    server.shake_hands().await;
    let shown = server.call("pid", json!({})).await;
    signal(&shown["structuredContent"]["pid"], Signal::SIGTERM);
    assert_eq!(server.leave().await, Some(70));
}

#[tokio::test]
async fn grandchildren_outlive_the_server() {
    let mut server = Server::start("").await;
    server.shake_hands().await;
    let forked = server.call("fork", json!({ "n": 2, "setsid": true })).await;
    let pids = forked["structuredContent"]["pids"]
        .as_array()
        .unwrap()
        .clone();
    assert_eq!(pids.len(), 2);
    assert_eq!(server.leave().await, Some(0));
    pids.iter().for_each(|pid| signal(pid, Signal::SIGKILL));
}

#[tokio::test]
async fn a_legacy_session_over_http_is_named_streams_and_expires() {
    let web = Web::start("--http-expire 3").await;
    let session = web.shake_hands().await;
    let head = [("mcp-session-id", session.as_str())];
    let answer = web.post(&head, &echo("a", json!({}))).await;
    assert_eq!(answer.headers()["content-type"], "text/event-stream");
    let event = text(answer).await;
    let data = event.strip_prefix("event: message\ndata: ").unwrap();
    assert_eq!(
        serde_json::from_str::<Value>(data).unwrap()["result"]["content"][0]["text"],
        "a"
    );
    let slow = json!({ "jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": { "name": "slow", "arguments": { "ms": 1 } } });
    assert!(text(web.post(&head, &slow).await).await.contains("slept"));
    assert_eq!(
        web.post(&[], &echo("a", json!({}))).await.status(),
        StatusCode::BAD_REQUEST
    );
    assert_eq!(
        web.post(&head, &echo("a", json!({}))).await.status(),
        StatusCode::OK
    );
    assert_eq!(
        web.post(&head, &echo("a", json!({}))).await.status(),
        StatusCode::NOT_FOUND
    );
}

#[tokio::test]
async fn json_is_answered_unless_something_else_comes_first() {
    let web = Web::start("--http-json --http-sessions off").await;
    for (tool, kind) in [
        ("echo", "application/json"),
        ("slow", "application/json"),
        ("test_tool_with_logging", "text/event-stream"),
    ] {
        let arguments = json!({ "text": "x", "ms": 1 });
        let params = json!({ "name": tool, "arguments": arguments });
        let answer = web
            .post(
                &[],
                &json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params }),
            )
            .await;
        assert_eq!(answer.headers()["content-type"], kind, "{tool}");
        assert!(answer.headers().get("mcp-session-id").is_none());
        assert!(text(answer).await.contains("result"));
    }
}

#[tokio::test]
async fn a_modern_request_over_http_stands_alone_and_must_repeat_itself() {
    let web = Web::start("").await;
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    let head = [
        ("mcp-protocol-version", "2026-07-28"),
        ("mcp-method", "tools/call"),
    ];
    let named = [head[0], head[1], ("mcp-name", "echo")];
    let answer = web.post(&named, &echo("m", meta.clone())).await;
    assert_eq!(answer.status(), StatusCode::OK);
    assert!(text(answer).await.contains(r#""text":"m""#));
    let refused = web.post(&head, &echo("m", meta)).await;
    assert_eq!(refused.status(), StatusCode::BAD_REQUEST);
    assert!(text(refused).await.contains("-32020"));
}

#[tokio::test]
async fn the_old_door_answers_on_its_one_stream() {
    let web = Web::start("--sse-only").await;
    assert_eq!(
        web.post(&[], &echo("x", json!({}))).await.status(),
        StatusCode::METHOD_NOT_ALLOWED
    );
    let request = Request::get(format!("http://{}/sse", web.address));
    let mut stream = web
        .client
        .request(request.body(Full::default()).unwrap())
        .await
        .unwrap();
    let endpoint = event(&mut stream).await;
    let place = endpoint
        .trim()
        .strip_prefix("event: endpoint\ndata: ")
        .unwrap();
    assert_eq!(
        web.send(place, &[], &initialize()).await.status(),
        StatusCode::ACCEPTED
    );
    assert!(event(&mut stream).await.contains("protocolVersion"));
    web.send(place, &[], &echo("old", json!({}))).await;
    assert!(event(&mut stream).await.contains(r#""text":"old""#));
}

/// The longest any step may take.
const PATIENCE: Duration = Duration::from_secs(60);

async fn soon<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future)
        .await
        .expect("it takes too long")
}

fn command(flags: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_mgp-fixture"));
    command
        .args(flags.split_whitespace())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .kill_on_drop(true);
    command
}

fn initialize() -> Value {
    let params = json!({
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": { "name": "test", "version": "0" },
    });
    json!({ "jsonrpc": "2.0", "id": "hello", "method": "initialize", "params": params })
}

fn echo(text: &str, meta: Value) -> Value {
    let mut params = json!({ "name": "echo", "arguments": { "text": text } });
    params["_meta"] = meta;
    json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params })
}

fn signal(pid: &Value, signal: Signal) {
    let pid = i32::try_from(pid.as_i64().unwrap()).unwrap();
    nix::sys::signal::kill(Pid::from_raw(pid), signal).expect("the process is there");
}

/// A server over stdio.
struct Server {
    child: Child,
    stdin: Option<ChildStdin>,
    lines: Lines<BufReader<ChildStdout>>,
    last: u64,
}

impl Server {
    async fn start(flags: &str) -> Self {
        let mut child = command(flags).arg("--stdio").spawn().unwrap();
        Self {
            stdin: child.stdin.take(),
            lines: BufReader::new(child.stdout.take().unwrap()).lines(),
            child,
            last: 0,
        }
    }

    async fn tell(&mut self, frame: &str) {
        let frame = format!("{frame}\n");
        soon(self.stdin.as_mut().unwrap().write_all(frame.as_bytes()))
            .await
            .unwrap();
    }

    async fn send(&mut self, method: &str, params: Value) {
        self.last += 1;
        let request =
            json!({ "jsonrpc": "2.0", "id": self.last, "method": method, "params": params });
        self.tell(&request.to_string()).await;
    }

    async fn line(&mut self) -> String {
        soon(self.lines.next_line())
            .await
            .unwrap()
            .expect("stdout is open")
    }

    async fn message(&mut self) -> Value {
        serde_json::from_str(&self.line().await).unwrap()
    }

    async fn ask(&mut self, method: &str, params: Value) -> Value {
        self.send(method, params).await;
        let answer = self.message().await;
        assert_eq!(answer["id"], self.last);
        answer
    }

    async fn call(&mut self, tool: &str, arguments: Value) -> Value {
        let params = json!({ "name": tool, "arguments": arguments });
        self.ask("tools/call", params).await["result"].take()
    }

    async fn shake_hands(&mut self) -> Value {
        let hello = self.ask("initialize", initialize()["params"].take()).await;
        self.tell(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#)
            .await;
        hello["result"].clone()
    }

    async fn count(&mut self, kind: &str, tool: &str) -> u64 {
        let counted = self.call("count", json!({})).await;
        counted["structuredContent"][kind][tool]
            .as_u64()
            .unwrap_or_default()
    }

    async fn until(&mut self, kind: &str, tool: &str, wanted: u64) {
        soon(async { while self.count(kind, tool).await != wanted {} }).await;
    }

    async fn code(&mut self) -> Option<i32> {
        soon(self.child.wait()).await.unwrap().code()
    }

    async fn leave(mut self) -> Option<i32> {
        self.stdin = None;
        let mut rest = Vec::new();
        soon(self.lines.get_mut().read_to_end(&mut rest))
            .await
            .unwrap();
        assert!(rest.is_empty());
        self.code().await
    }
}

/// A server over HTTP.
struct Web {
    _child: Child,
    address: String,
    client: Client<HttpConnector, Full<Bytes>>,
}

impl Web {
    async fn start(flags: &str) -> Self {
        let mut child = command(flags)
            .args(["--http", "0", "--until-eof"])
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let line = soon(lines.next_line()).await.unwrap().unwrap();
        Self {
            _child: child,
            address: line.strip_prefix("listening ").unwrap().to_owned(),
            client: Client::builder(TokioExecutor::new()).build_http(),
        }
    }

    async fn post(&self, headers: &[(&str, &str)], body: &Value) -> Response<Incoming> {
        self.send("/mcp", headers, body).await
    }

    async fn send(
        &self,
        place: &str,
        headers: &[(&str, &str)],
        body: &Value,
    ) -> Response<Incoming> {
        let mut request = Request::post(format!("http://{}{place}", self.address))
            .header("content-type", "application/json")
            .header("accept", "application/json, text/event-stream");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Full::from(body.to_string())).unwrap();
        soon(self.client.request(request)).await.unwrap()
    }

    async fn shake_hands(&self) -> String {
        let hello = self.post(&[], &initialize()).await;
        assert_eq!(hello.status(), StatusCode::OK);
        hello.headers()["mcp-session-id"]
            .to_str()
            .unwrap()
            .to_owned()
    }
}

async fn text(response: Response<Incoming>) -> String {
    let body = soon(response.into_body().collect()).await.unwrap();
    String::from_utf8(body.to_bytes().to_vec()).unwrap()
}

async fn event(stream: &mut Response<Incoming>) -> String {
    let frame = soon(stream.body_mut().frame()).await.unwrap().unwrap();
    String::from_utf8(frame.into_data().unwrap().to_vec()).unwrap()
}
