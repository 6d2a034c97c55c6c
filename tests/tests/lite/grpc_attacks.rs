//! Attacks at the gRPC door: none gets through, and none harms others.

use std::time::Duration;

use mgp_tests::harness::mgp::declaration;
use mgp_tests::harness::process::usage::Usage;
use mgp_tests::harness::wait::within;
use mgp_tests::harness::{DEADLINE, HttpClient, Kernel, Program};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::grpc::client::{RpcClient, address, code, kind, promise, text};
use crate::scene::{self, LiteClient};

const CALL: &str = "mcplite.MCPLite/CallTool";

/// LITE-077: forged, missing and doubled tokens, and the words of a browser, open nothing.
#[tokio::test]
async fn request_without_a_valid_token_is_rejected() {
    let kernel = scene::guarded("", &[]).await;
    let alice = scene::token(&kernel, "alice").await;
    let Some(mut client) = RpcClient::python(&kernel) else {
        return;
    };
    let mut forged = alice.clone();
    forged.replace_range(forged.len() - 1.., "x");
    for token in [
        "",
        "Bearer",
        "Bearer x",
        &alice,
        &format!("Bearer {forged}"),
    ] {
        client.says("authorization", token);
        for op in [
            json!({"op": "tools"}),
            json!({"op": "call", "name": "it__echo", "arguments": {"text": "x"}}),
            json!({"op": "stream", "name": "redeem", "arguments": {"promise": "x"}}),
        ] {
            let refused = client.ask(op).await;
            assert_eq!(code(&refused), "UNAUTHENTICATED", "{token}");
            let words = refused["error"].to_string();
            assert!(
                !words.contains(&alice) && !words.contains("it__"),
                "{words}"
            );
            let challenge = refused["error"]["headers"]["www-authenticate"].as_str();
            assert!(
                challenge.unwrap_or_default().starts_with("Bearer"),
                "{refused}"
            );
        }
    }
    let mut client = client.with_token(&alice);
    let echo = json!({"text": "x"});
    assert_eq!(text(&client.call("it__echo", echo.clone()).await), "x");
    for origin in ["https://evil.example", "null", "http://localhost:1"] {
        let terms = json!({"metadata": {"origin": origin}});
        let refused = client.call_on("it__echo", echo.clone(), &terms).await;
        assert_eq!(code(&refused), "PERMISSION_DENIED", "{origin}");
    }
    let other_set = json!({"metadata": {"mgp-set": "nothing"}});
    let refused = client.call_on("it__echo", echo.clone(), &other_set).await;
    assert_eq!(code(&refused), "NOT_FOUND");
    // A token that is taken back ends the call it made.
    let hang = json!({"op": "begin", "key": "a", "name": "it__slow", "arguments": {"ms": 60_000}});
    client.ask(hang).await;
    kernel.mgp(&["agents", "remove", "alice"]).await;
    let ended = client.ask(json!({"op": "end", "key": "a"})).await;
    assert_eq!(code(&ended), "UNAUTHENTICATED");
    assert_eq!(
        code(&client.call("it__echo", echo).await),
        "UNAUTHENTICATED"
    );
}

/// LITE-024: another agent's promise reads like none, and so does every guess.
#[tokio::test]
async fn a_promise_is_redeemed_by_its_caller_only() {
    let kernel = scene::guarded("", &[]).await;
    let (alice, bob) = (
        scene::token(&kernel, "alice").await,
        scene::token(&kernel, "bob").await,
    );
    let Some(mut client) = RpcClient::python(&kernel) else {
        return;
    };
    client.says("authorization", &format!("Bearer {alice}"));
    let soon = json!({"metadata": {"prefer": "respond-async"}});
    let token = promise(&client.call_on("it__slow", json!({"ms": 400}), &soon).await);
    client.says("authorization", &format!("Bearer {bob}"));
    let mut told = Vec::new();
    for guess in [&*token, &token[..token.len() - 1], "prom_a7b9c2d4e6f8", ""] {
        for more in [json!({}), json!({"action": "cancel"})] {
            let mut arguments = more;
            arguments["promise"] = guess.into();
            let refused = client.call("redeem", arguments).await;
            assert_eq!(code(&refused), "INVALID_ARGUMENT", "{guess}");
            told.push(refused["error"]["message"].clone());
        }
    }
    assert!(told.iter().all(|words| *words == told[0]), "{told:?}");
    client.says("authorization", &format!("Bearer {alice}"));
    let answer = client.call("redeem", json!({"promise": token})).await;
    assert_eq!(text(&answer), "slept");
}

/// LITE-056, LITE-075: what is too long, too deep, compressed, twice there or no Struct at all is refused in the
/// code that says so; nothing of it reaches a server.
#[tokio::test]
async fn invalid_grpc_message_is_rejected_with_its_code() {
    let fixture = Program::fixture(&[]).entry("it");
    let kernel = Kernel::start(&format!("[limits]\nmax_frame_bytes = 65536\n{fixture}")).await;
    kernel.connected(&["it"]).await;
    let Some(mut client) = RpcClient::python(&kernel) else {
        return;
    };
    let long = client
        .call("it__echo", json!({"text": "x".repeat(70_000)}))
        .await;
    assert_eq!(code(&long), "RESOURCE_EXHAUSTED");
    // It is short on the wire, and too long as JSON.
    let grows = client
        .call("it__echo", json!({"text": "\u{1}".repeat(20_000)}))
        .await;
    assert_eq!(code(&grows), "RESOURCE_EXHAUSTED");

    let request = |arguments: &[u8]| {
        let name = field(1, b"it__echo");
        [name, field(2, arguments)].concat()
    };
    let member = |value: &[u8]| field(1, &[field(1, b"text"), field(2, value)].concat());
    let mut deep = vec![0x1a, 1, b'x'];
    while deep.len() < 30_000 {
        deep = field(6, &field(1, &deep));
    }
    let text = member(&[0x1a, 1, b'x']);
    for (what, arguments, wanted) in [
        ("good", text.clone(), None),
        ("deep", member(&deep), Some("nested too deeply")),
        (
            "twice",
            [text.clone(), text.clone()].concat(),
            Some("there twice"),
        ),
        (
            "NaN",
            member(&[&[0x11][..], &f64::NAN.to_le_bytes()].concat()),
            Some("no number"),
        ),
        ("no kind", member(&[]), Some("without a kind")),
        (
            "two kinds",
            member(&[0x1a, 1, b'x', 0x20, 1]),
            Some("more than one kind"),
        ),
        ("no UTF-8", member(&[0x1a, 1, 0xff]), Some("not UTF-8")),
        ("torn", vec![0x0a, 0x05, 0x0a], None),
    ] {
        let hex: String = request(&arguments)
            .iter()
            .map(|b| format!("{b:02x}"))
            .collect();
        let answer = client
            .ask(json!({"op": "raw", "method": CALL, "hex": hex}))
            .await;
        match (what, wanted) {
            ("good", _) => assert!(answer["hex"].is_string(), "{answer}"),
            (_, Some(words)) => {
                assert_eq!(code(&answer), "INVALID_ARGUMENT", "{what}");
                let said = answer["error"]["message"].as_str().unwrap();
                assert!(said.contains(words), "{what}: {said}");
            }
            (_, None) => assert_ne!(code(&answer), "OK", "{what}"),
        }
    }
    let compressed =
        json!({"op": "raw", "method": CALL, "hex": "00".repeat(500), "compression": "gzip"});
    assert_eq!(code(&client.ask(compressed).await), "UNIMPLEMENTED");
    let counted = client.call("it__count", json!({})).await;
    let calls = &counted["result"]["structuredContent"]["calls"];
    assert_eq!(
        calls["echo"].as_f64(),
        Some(1.0),
        "only the good one: {calls}"
    );
}

/// A field of a message with this payload.
fn field(number: u8, payload: &[u8]) -> Vec<u8> {
    let mut out = vec![number << 3 | 2];
    let mut len = payload.len();
    while len >= 0x80 {
        out.push(u8::try_from(len & 0x7f).unwrap() | 0x80);
        len >>= 7;
    }
    out.push(u8::try_from(len).unwrap());
    out.extend_from_slice(payload);
    out
}

/// What speaks another HTTP, another verb or another gRPC is told in words of HTTP.
#[tokio::test]
async fn request_in_another_protocol_is_rejected_over_http() {
    let kernel = scene::kernel("", &[]).await;
    let mut client = HttpClient::new(&scene::url(&kernel, &format!("/{CALL}")));
    let told = async |client: &HttpClient| {
        let answer = client.post("").await;
        (answer.status.as_u16(), answer.text().await)
    };
    client.set(http::header::CONTENT_TYPE, "application/grpc");
    let (status, words) = told(&client).await;
    assert_eq!(status, 505, "{words}");
    assert!(words.contains("/mcp-lite/v1/"), "{words}");
    for (method, kind, status) in [
        ("GET", "application/grpc", "405"),
        ("POST", "application/grpc-web+proto", "415"),
        ("POST", "application/grpc+json", "415"),
        ("POST", "application/grpcs", "415"),
    ] {
        let mut raw = RawHttp2::to(&kernel).await;
        let headers = [(":method", method), ("content-type", kind)];
        raw.open(&headers, None).await;
        let answered = raw.status().await;
        assert_eq!(answered, status, "{method} {kind}");
    }
}

/// CVE-2023-44487: streams that are opened and reset at once cost their own connection, and no call goes on for them.
#[tokio::test]
async fn rapid_resets_are_limited_to_their_connection() {
    let mut kernel = scene::kernel("", &[]).await;
    let Some(mut client) = RpcClient::python(&kernel) else {
        return;
    };
    client.call("it__echo", json!({"text": "warm"})).await;
    let before = resident(&kernel);
    let mut attacker = RawHttp2::to(&kernel).await;
    let message = framed(&[field(1, b"it__slow"), field(2, &[])].concat());
    for _ in 0..5_000 {
        if !attacker.open_and_reset(&message).await {
            break;
        }
    }
    let answer = client.call("it__echo", json!({"text": "still here"})).await;
    assert_eq!(text(&answer), "still here");
    let grown = resident(&kernel).saturating_sub(before);
    assert!(grown < 32 << 20, "{grown} bytes more");
    assert!(kernel.process().ended().is_none());
}

/// LITE-060: who does not read holds little, whatever is sent to it; others are served meanwhile.
#[tokio::test]
async fn slow_readers_hold_little() {
    const READERS: u64 = 8;
    // What the allocator keeps of all that passed through it.
    const KEPT: u64 = 16 << 20;
    let said = declaration(&["streaming"]).to_string();
    let kernel = scene::kernel("", &["--mgp", &said]).await;
    let Some(mut client) = RpcClient::python(&kernel) else {
        return;
    };
    client.call("it__echo", json!({"text": "warm"})).await;
    let before = resident(&kernel);
    // 7 MB each, as fast as the server can.
    let steps = json!({"steps": [{"flood": 700, "bytes": 10_000}, {"ms": 60_000}], "brief": true});
    let message = framed(&request("it__stream", &steps));
    let mut readers = Vec::new();
    for _ in 0..READERS {
        let mut reader = RawHttp2::unread(&kernel).await;
        reader.open(&POST, Some(&message)).await;
        readers.push(reader);
    }
    let began = async || {
        let counted = LiteClient::new(&kernel).call("it__count", json!({})).await;
        counted.result()["structuredContent"]["calls"]["stream"] == READERS
    };
    mgp_tests::harness::wait_until("all streams run", DEADLINE, began).await;
    for n in 0..50 {
        let answer = client
            .call("it__echo", json!({"text": n.to_string()}))
            .await;
        assert_eq!(kind(&answer), "ANSWER");
    }
    let grown = resident(&kernel).saturating_sub(before);
    assert!(
        grown < (READERS << 20) + KEPT,
        "{grown} bytes for {READERS} readers"
    );
    drop(readers);
    let gone = async || {
        let counted = LiteClient::new(&kernel).call("it__count", json!({})).await;
        counted.result()["structuredContent"]["cancelled"]["stream"] == READERS
    };
    mgp_tests::harness::wait_until("all streams are taken back", DEADLINE, gone).await;
}

fn resident(kernel: &Kernel) -> u64 {
    Usage::of(&[kernel.pid()]).resident
}

/// A `ToolRequest`.
fn request(tool: &str, arguments: &Value) -> Vec<u8> {
    let arguments = mgp_grpc::exact::Struct::from_json(&arguments.to_string(), 1 << 20).unwrap();
    let arguments = mgp_grpc::prost::Message::encode_to_vec(&arguments);
    [field(1, tool.as_bytes()), field(2, &arguments)].concat()
}

/// A message as gRPC frames it.
fn framed(message: &[u8]) -> Vec<u8> {
    let len = u32::try_from(message.len()).unwrap();
    [&[0][..], &len.to_be_bytes(), message].concat()
}

const POST: [(&str, &str); 2] = [(":method", "POST"), ("content-type", "application/grpc")];

/// HTTP/2 by hand, for clients that do not behave.
struct RawHttp2 {
    stream: TcpStream,
    authority: String,
    next: u32,
}

impl RawHttp2 {
    async fn to(kernel: &Kernel) -> Self {
        Self::with_settings(kernel, &[]).await
    }

    /// One that never has room for what it is sent.
    async fn unread(kernel: &Kernel) -> Self {
        Self::with_settings(kernel, &[0, 4, 0, 0, 0, 0]).await
    }

    async fn with_settings(kernel: &Kernel, settings: &[u8]) -> Self {
        let authority = address(kernel);
        let mut this = Self {
            stream: TcpStream::connect(&authority).await.unwrap(),
            authority,
            next: 1,
        };
        let opening = [
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
            &*frame(4, 0, 0, settings),
        ]
        .concat();
        this.stream.write_all(&opening).await.unwrap();
        this
    }

    fn request(&mut self, headers: &[(&str, &str)], body: Option<&[u8]>) -> Vec<u8> {
        let path = format!("/{CALL}Stream");
        let fixed = [
            (":scheme", "http"),
            (":path", &*path),
            (":authority", &*self.authority),
            ("te", "trailers"),
        ];
        let (pseudo, plain): (Vec<_>, Vec<_>) = headers
            .iter()
            .copied()
            .chain(fixed)
            .partition(|(name, _)| name.starts_with(':'));
        let block: Vec<u8> = pseudo.into_iter().chain(plain).flat_map(literal).collect();
        let ends = u8::from(body.is_none());
        let mut out = frame(1, 4 | ends, self.next, &block);
        if let Some(body) = body {
            out.extend(frame(0, 1, self.next, body));
        }
        self.next += 2;
        out
    }

    async fn open(&mut self, headers: &[(&str, &str)], body: Option<&[u8]>) {
        let request = self.request(headers, body);
        self.stream.write_all(&request).await.unwrap();
    }

    /// False once the door has had enough.
    async fn open_and_reset(&mut self, body: &[u8]) -> bool {
        let (id, mut request) = (self.next, self.request(&POST, Some(body)));
        request.extend(frame(3, 0, id, &8_u32.to_be_bytes()));
        let written = tokio::time::timeout(Duration::from_secs(5), self.stream.write_all(&request));
        matches!(written.await, Ok(Ok(())))
    }

    /// The status of the next answer. It is one of the first indexes, or a literal of the index 8.
    async fn status(&mut self) -> String {
        within("an answer", DEADLINE, async {
            loop {
                let mut head = [0; 9];
                self.stream.read_exact(&mut head).await.unwrap();
                let len = u32::from_be_bytes([0, head[0], head[1], head[2]]);
                let mut payload = vec![0; len as usize];
                self.stream.read_exact(&mut payload).await.unwrap();
                if head[3] == 1 {
                    return spoken(&payload);
                }
            }
        })
        .await
    }
}

/// The status at the beginning of a block of headers (RFC 7541): a literal whose name is in the static table, its three
/// digits plain or by Huffman's code.
fn spoken(block: &[u8]) -> String {
    let known = ["200", "204", "206", "304", "400", "404", "500"];
    let at = block[0];
    if at & 0x80 != 0 {
        return known[usize::from(at & 0x7f) - 8].to_owned();
    }
    let (len, coded) = (usize::from(block[1] & 0x7f), block[1] & 0x80 != 0);
    let value = &block[2..2 + len];
    if !coded {
        String::from_utf8(value.to_vec()).unwrap()
    } else {
        digits(value)
    }
}

/// Digits by Huffman's code (RFC 7541, appendix B): 0, 1 and 2 have five bits, the others six.
fn digits(coded: &[u8]) -> String {
    let bits: String = coded.iter().map(|byte| format!("{byte:08b}")).collect();
    let mut rest = &bits[..];
    let mut out = String::new();
    let digit = |rest: &str, len: usize, first: u8, base: u8, count: u8| {
        let value = u8::from_str_radix(rest.get(..len)?, 2)
            .ok()?
            .checked_sub(first)?;
        (value < count).then(|| char::from(b'0' + base + value))
    };
    while out.len() < 3 {
        if let Some(short) = digit(rest, 5, 0, 0, 3) {
            out.push(short);
            rest = &rest[5..];
        } else {
            out.push(digit(rest, 6, 0b01_1001, 3, 7).unwrap());
            rest = &rest[6..];
        }
    }
    out
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let len = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let head = [len[1], len[2], len[3], kind, flags];
    [&head[..], &stream.to_be_bytes(), payload].concat()
}

/// A header that no table remembers.
fn literal((name, value): (&str, &str)) -> Vec<u8> {
    let text = |text: &str| [&[u8::try_from(text.len()).unwrap()][..], text.as_bytes()].concat();
    [vec![0], text(name), text(value)].concat()
}
