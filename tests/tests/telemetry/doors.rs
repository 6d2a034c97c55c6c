//! `traceparent` at every door, and toward a server over HTTP.

use http::HeaderName;
use mgp_tests::harness::envelope::Envelope;
use mgp_tests::harness::{HttpClient, Kernel, Upstream, program};
use mgp_tests::load::{H2Load, H2Post};
use serde_json::{Value, json};

const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
const TRACESTATE: HeaderName = HeaderName::from_static("tracestate");

/// What the caller of this number says of its span.
fn parent(n: usize) -> String {
    format!("00-{:032x}-{:016x}-0{}", n + 0x1000, n + 0x2000, n % 2)
}

fn state(n: usize) -> String {
    format!("vendor=of-{n}")
}

/// A client of this path that says it in headers.
fn client(kernel: &Kernel, path: &str, n: usize) -> HttpClient {
    let door = kernel.url().strip_suffix("/mcp").unwrap();
    let mut client = HttpClient::new(&format!("{door}{path}"));
    client.set(TRACEPARENT, &parent(n));
    client.set(TRACESTATE, &state(n));
    client
}

/// Decision 0066: at every door headers say below which span a call is, and the server reads that in `_meta` and in
/// headers, whether or not anybody is told of spans here; two of them, or one that is none, are not passed on.
#[tokio::test]
async fn every_endpoint_accepts_a_traceparent_and_passes_it_on() {
    let upstream = Upstream::start(&[]).await;
    let kernel = Kernel::start(&program::remote_entry("far", &upstream.url())).await;
    kernel.connected(&["far"]).await;
    let params = json!({"name": "far__echo", "arguments": {"text": "x"}});
    let message = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params});

    let mut session = client(&kernel, "/mcp", 0);
    session.open_session("2025-11-25", "{}").await;
    answers(session.post(message.to_string()).await.frames().await);
    let stateless = Envelope::new("{}").request(&json!(1), "tools/call", params.clone());
    let modern = client(&kernel, "/mcp", 1).put(&stateless).await;
    answers(modern.frames().await);
    let lite = client(&kernel, "/mcp-lite/v1/calltools", 2);
    answers(lite.post(message.to_string()).await.frames().await);
    let by_path = client(&kernel, "/mcp-lite/v1/tools/far__echo", 3);
    answers(by_path.post(r#"{"text":"x"}"#).await.frames().await);
    over_grpc(&kernel, 4).await;

    let mut bad = client(&kernel, "/mcp-lite/v1/calltools", 5);
    bad.headers.append(TRACEPARENT, parent(6).parse().unwrap());
    answers(bad.post(message.to_string()).await.frames().await);
    bad.set(TRACEPARENT, "00-not-a-parent-01");
    answers(bad.post(message.to_string()).await.frames().await);

    let ask = json!({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "far__received", "arguments": {}}});
    session.headers.remove(TRACEPARENT);
    let seen = session.post(ask.to_string()).await.frames().await;
    let seen: Value = serde_json::from_str(seen.last().unwrap()).unwrap();
    let seen = &seen["result"]["structuredContent"];
    let (frames, heads) = (seen["frames"].to_string(), seen["heads"].to_string());
    for n in 0..5 {
        for said in [parent(n), state(n)] {
            assert!(frames.contains(&said), "{n}, {said} in {frames}");
            assert!(heads.contains(&said), "{n}, {said} in {heads}");
        }
    }
    for said in [&*parent(5), &*parent(6), &*state(5), "not-a-parent"] {
        assert!(!frames.contains(said) && !heads.contains(said), "{said}");
    }
}

fn answers(frames: Vec<String>) {
    let last = frames.last().map(String::as_str).unwrap_or_default();
    assert!(last.contains(r#""text":"x""#), "{frames:?}");
}

/// A call of MCP-lite over gRPC, written by hand (MCP-lite, 5.2).
async fn over_grpc(kernel: &Kernel, n: usize) {
    let value = [field(1, b"text"), field(2, &field(3, b"x"))].concat();
    let request = [field(1, b"far__echo"), field(2, &field(1, &value))].concat();
    let length = u32::try_from(request.len()).unwrap();
    let post = H2Post {
        path: "/mcplite.MCPLite/CallTool".into(),
        content: "application/grpc",
        accept: "application/grpc",
        headers: vec![
            ("te", "trailers".into()),
            ("traceparent", parent(n)),
            ("tracestate", state(n)),
        ],
        body: [&[0][..], &length.to_be_bytes(), &request].concat().into(),
    };
    let host = kernel.url().strip_prefix("http://").unwrap();
    let host = host.strip_suffix("/mcp").unwrap();
    let mut callers = H2Load::open(host, 1, false).await.unwrap();
    let (body, _) = callers.once(&post).await.unwrap();
    assert!(!body.is_empty(), "it answers with a message");
}

/// A short field of protobuf.
fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
    let length = u8::try_from(bytes.len()).unwrap();
    assert!(length < 0x80);
    [&[(number << 3) | 2, length], bytes].concat()
}
