//! The behaviour of a listener.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use http::header::CONTENT_TYPE;
use http_body_util::{BodyExt, Full};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::*;

const POST: &str = "POST /mcp HTTP/1.1\r\nhost: localhost\r\ncontent-length: 2\r\n\r\nhi";
const GET: &str = "GET /mcp HTTP/1.1\r\nhost: localhost\r\n\r\n";

/// MCP-081: a listener on 127.0.0.1 is not reachable at another address of the machine.
#[tokio::test]
async fn a_loopback_listener_is_reachable_by_loopback_only() {
    let door = HttpListener::bind(([127, 0, 0, 1], 0).into()).unwrap();
    assert!(door.addr().ip().is_loopback());
    let elsewhere = TcpStream::connect(("127.0.0.2", door.addr().port())).await;
    assert!(elsewhere.is_err());
}

#[tokio::test]
async fn requests_follow_each_other_on_a_connection() {
    let door = open(ListenerLimits::default(), echo);
    let mut client = Raw::to(&door.at).await;
    for _ in 0..3 {
        client.say(POST).await;
        let answer = client.hear("\r\n\r\nhi").await;
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
        assert!(answer.contains("content-length: 2\r\n"), "{answer}");
    }
}

#[tokio::test]
async fn pieces_leave_as_one_body_with_its_length() {
    let door = open(ListenerLimits::default(), |_, _| async {
        Response::new(ReplyBody::parts(
            ["{\"id\":", "", "7", "}"].map(Bytes::from),
        ))
    });
    let mut client = Raw::to(&door.at).await;
    client.say(GET).await;
    let answer = client.hear("{\"id\":7}").await;
    assert!(answer.contains("content-length: 8\r\n"), "{answer}");
}

#[tokio::test]
async fn http2_is_served_with_prior_knowledge() {
    let door = open(ListenerLimits::default(), echo);
    let io = TokioIo::new(TcpStream::connect(&door.at).await.unwrap());
    let (mut client, connection) = hyper::client::conn::http2::handshake(TokioExecutor::new(), io)
        .await
        .unwrap();
    tokio::spawn(connection);
    for (host, status, body) in [
        (door.at.as_str(), 200, "hi"),
        ("evil.example", 403, "host \"evil.example\" is neither"),
    ] {
        let request = Request::post(format!("http://{host}/mcp"))
            .body(Full::<Bytes>::from("hi"))
            .unwrap();
        let response = soon(client.send_request(request)).await.unwrap();
        assert_eq!(response.status(), status);
        let got = soon(response.into_body().collect())
            .await
            .unwrap()
            .to_bytes();
        assert!(got.starts_with(body.as_bytes()), "{got:?}");
    }
}

/// A client whose stream is reset while it still writes loses the earlier answer.
#[tokio::test]
async fn a_request_that_is_answered_early_is_read_to_the_end() {
    let door = open(ListenerLimits::default(), |_, _| async {
        Response::new(ReplyBody::full("refused"))
    });
    let io = TokioIo::new(TcpStream::connect(&door.at).await.unwrap());
    let handshake = hyper::client::conn::http2::handshake(TokioExecutor::new(), io);
    let (mut client, connection) = handshake.await.unwrap();
    tokio::spawn(connection);
    let (rest, answered) = tokio::sync::mpsc::channel(1);
    let (tell, written) = tokio::sync::oneshot::channel::<()>();
    let pieces = futures_util::stream::unfold((answered, Some(tell)), async |(mut rest, tell)| {
        let piece: Option<Bytes> = rest.recv().await;
        // Dropped, not sent, if the stream was reset.
        match (piece, tell) {
            (Some(piece), tell) => Some((piece, (rest, tell))),
            (None, tell) => {
                tell.unwrap().send(()).unwrap();
                None
            }
        }
    });
    let request = Request::post(format!("http://{}/mcp", door.at));
    let request = request.body(ReplyBody::stream(pieces)).unwrap();
    let answer = tokio::spawn(client.send_request(request));
    let answer = soon(answer).await.unwrap().unwrap();
    let body = soon(answer.into_body().collect()).await.unwrap();
    assert_eq!(body.to_bytes(), "refused");
    for _ in 0..8 {
        rest.send(Bytes::from(vec![0; 64 << 10])).await.unwrap();
    }
    drop(rest);
    soon(written).await.unwrap();
}

/// The first bytes of a connection may arrive one by one.
#[tokio::test]
async fn a_protocol_is_detected_from_slow_bytes() {
    let door = open(ListenerLimits::default(), echo);
    for (opening, answer) in [
        (POST, "\r\n\r\nhi"),
        ("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "\x04"),
    ] {
        let mut client = Raw::to(&door.at).await;
        client.0.set_nodelay(true).unwrap();
        for byte in opening.split_inclusive(|_: char| true) {
            client.say(byte).await;
            tokio::task::yield_now().await;
        }
        client.hear(answer).await;
    }
}

/// MCP-080: the handler never receives requests of foreign pages or for foreign hosts.
#[tokio::test]
async fn foreign_hosts_and_origins_are_forbidden() {
    static HANDLED: AtomicUsize = AtomicUsize::new(0);
    let door = open(ListenerLimits::default(), |request, peer| {
        HANDLED.fetch_add(1, Ordering::SeqCst);
        echo(request, peer)
    });
    for (head, words) in [
        ("host: evil.example", "host \"evil.example\" is neither"),
        (
            "host: localhost\r\norigin: http://evil.example",
            "origin \"http://evil.example\"",
        ),
        ("host: localhost\r\norigin: null", "origin \"null\""),
        ("x: y", "the request names no host"),
    ] {
        let mut client = Raw::to(&door.at).await;
        client
            .say(&format!(
                "GET /mcp HTTP/1.1\r\n{head}\r\nconnection: close\r\n\r\n"
            ))
            .await;
        let answer = client.rest().await;
        assert!(answer.starts_with("HTTP/1.1 403 Forbidden\r\n"), "{answer}");
        assert!(answer.contains(words), "{answer}");
    }
    assert_eq!(HANDLED.load(Ordering::SeqCst), 0);
}

/// CMCP-032: bodies that are too long, too slow or broken are answered, and the listener keeps working.
#[tokio::test]
async fn a_bad_body_is_answered_and_blocks_nobody() {
    let door = open(ListenerLimits::default(), echo);
    let head = "POST /mcp HTTP/1.1\r\nhost: localhost\r\n";
    let mut slow = Raw::to(&door.at).await;
    slow.say(&format!("{head}content-length: 9\r\n\r\nhi"))
        .await;
    let mut large = Raw::to(&door.at).await;
    large
        .say(&format!("{head}content-length: 101\r\n\r\nhi"))
        .await;
    assert!(large.rest().await.starts_with("HTTP/1.1 413 "));
    let mut chunked = Raw::to(&door.at).await;
    let chunk = "x".repeat(60);
    let chunks = format!("3c\r\n{chunk}\r\n3c\r\n{chunk}\r\n0\r\n\r\n");
    chunked
        .say(&format!("{head}transfer-encoding: chunked\r\n\r\n{chunks}"))
        .await;
    assert!(chunked.hear("bytes").await.starts_with("HTTP/1.1 413 "));
    let mut broken = Raw::to(&door.at).await;
    broken
        .say(&format!(
            "{head}transfer-encoding: chunked\r\n\r\nnot hex\r\n"
        ))
        .await;
    assert!(broken.rest().await.starts_with("HTTP/1.1 400 "));
    assert!(slow.rest().await.starts_with("HTTP/1.1 408 "));
    let mut next = Raw::to(&door.at).await;
    next.say(POST).await;
    next.hear("\r\n\r\nhi").await;
}

#[tokio::test]
async fn silence_and_endless_heads_end_a_connection() {
    let limits = ListenerLimits {
        header_timeout: Duration::from_millis(100),
        ..ListenerLimits::default()
    };
    let door = open(limits, echo);
    for next in ["", "GET /mcp HT", "GET /mcp HTTP/1.1\r\nhost: local"] {
        let mut client = Raw::to(&door.at).await;
        client.say(POST).await;
        client.hear("\r\n\r\nhi").await;
        client.say(next).await;
        assert_eq!(client.rest().await, "", "{next}");
    }
    // With enough time, so that only its length ends it.
    let limits = ListenerLimits {
        header_bytes: 1024,
        ..ListenerLimits::default()
    };
    let door = open(limits, echo);
    let mut client = Raw::to(&door.at).await;
    client
        .say(&format!(
            "GET / HTTP/1.1\r\nhost: localhost\r\nx: {}",
            "y".repeat(2000)
        ))
        .await;
    assert!(client.rest().await.starts_with("HTTP/1.1 431 "));
}

/// MCP-074, CMCP-023: an event stream has no length, and heartbeats fill its silence.
#[tokio::test]
async fn an_event_stream_beats_while_it_is_silent() {
    let door = open(ListenerLimits::default(), |_, _| async {
        let items = futures_util::stream::iter([crate::sse::render_event(Some(1.into()), b"{}")]);
        let items = futures_util::StreamExt::chain(items, futures_util::stream::pending());
        let beat = crate::sse::render_comment("beat");
        let body = ReplyBody::stream(items).with_heartbeat(Duration::from_millis(20), beat);
        let response = Response::builder().header(CONTENT_TYPE, "text/event-stream");
        response.body(body).unwrap()
    });
    let mut client = Raw::to(&door.at).await;
    client.say(GET).await;
    let head = client.hear("\r\n\r\n").await.to_lowercase();
    assert!(head.starts_with("http/1.1 200 ok\r\n"), "{head}");
    assert!(
        head.contains("content-type: text/event-stream\r\n"),
        "{head}"
    );
    assert!(!head.contains("content-length"), "{head}");
    client.hear("id: 1\ndata: {}\n\n\r\n").await;
    for _ in 0..3 {
        client.hear(": beat\n\n\r\n").await;
    }
}

/// CMCP-024: a stream whose client disconnected is dropped within a second: in one of three tries, on a busy machine.
#[tokio::test]
async fn a_client_that_leaves_frees_its_stream() {
    let mut took = Vec::new();
    while took.iter().all(|took| *took >= Duration::from_secs(1)) {
        assert!(took.len() < 3, "{took:?}");
        took.push(freed().await);
    }
}

/// How long a stream outlives its client.
async fn freed() -> Duration {
    let (tell, told) = Tell::new();
    let tell = Mutex::new(Some(tell));
    let door = open(ListenerLimits::default(), move |_, _| {
        let tell = tell.lock().unwrap().take().unwrap();
        async { Response::new(ReplyBody::stream(silent(tell))) }
    });
    let mut client = Raw::to(&door.at).await;
    client.say(GET).await;
    client.hear("\r\n\r\n").await;
    let left = std::time::Instant::now();
    drop(client);
    soon(told).await.unwrap();
    left.elapsed()
}

/// An HTTP client cancels its call by closing the connection.
#[tokio::test]
async fn a_client_that_leaves_cancels_its_call() {
    let (tell, told) = Tell::new();
    let (called, calls) = oneshot::channel();
    let once = Mutex::new(Some((tell, called)));
    let door = open(ListenerLimits::default(), move |_, _| {
        let (tell, called) = once.lock().unwrap().take().unwrap();
        async {
            called.send(()).unwrap();
            let _held = tell;
            std::future::pending().await
        }
    });
    let mut client = Raw::to(&door.at).await;
    client.say(POST).await;
    soon(calls).await.unwrap();
    drop(client);
    soon(told).await.unwrap();
}

#[tokio::test]
async fn a_client_that_never_reads_is_dropped() {
    let limits = ListenerLimits {
        stall: Duration::from_millis(100),
        ..ListenerLimits::default()
    };
    let (tell, told) = Tell::new();
    let tell = Mutex::new(Some(tell));
    let door = open(limits, move |_, _| {
        let tell = tell.lock().unwrap().take().unwrap();
        let body = endless(Bytes::from_static(&[b'x'; 4096]), tell);
        async { Response::new(ReplyBody::stream(body)) }
    });
    let mut client = Raw::to(&door.at).await;
    client.say(GET).await;
    soon(told).await.unwrap();
    drop(client);
}

/// A connection without a complete handshake ends soon, whatever it began with; a complete one stays.
#[tokio::test]
async fn silent_and_incomplete_connections_end_soon() {
    const PREFACE: &str = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    let limits = ListenerLimits {
        first_request: Duration::from_millis(200),
        ..ListenerLimits::default()
    };
    let door = open(limits, echo);
    let mut greeted = Raw::to(&door.at).await;
    greeted.say(POST).await;
    greeted.hear("\r\n\r\nhi").await;
    let mut modern = Raw::to(&door.at).await;
    modern.say(PREFACE).await;
    modern.say("\0\0\0\x04\0\0\0\0\0").await;
    let mut half: Vec<&str> = [0, 1, 3, 8, 16, 23, 24].map(|len| &PREFACE[..len]).into();
    half.extend(["GET /mcp HT", "GET /mcp HTTP/1.1\r\nhost: local"]);
    for opening in half {
        let mut client = Raw::to(&door.at).await;
        client.say(opening).await;
        let mut rest = Vec::new();
        let _ = soon(client.0.read_to_end(&mut rest)).await;
    }
    greeted.say(POST).await;
    greeted.hear("\r\n\r\nhi").await;
    let mut answer = [0; 9];
    soon(modern.0.read_exact(&mut answer)).await.unwrap();
    // The answer to a PING still arrives.
    modern.say("\0\0\x08\x06\0\0\0\0\0pingpong").await;
    let mut heard = Vec::new();
    while !heard.ends_with(b"pingpong") {
        heard.push(soon(modern.0.read_u8()).await.unwrap());
    }
}

/// Answers as [`echo`] does, and uses the path as the owner.
async fn known(request: Request<RequestBody>, peer: HttpPeer) -> Response<ReplyBody> {
    if request.uri().path() != "/mcp" {
        peer.auth.mark_authenticated(request.uri().path());
    }
    echo(request, peer).await
}

async fn asks(door: &Open, path: &str) -> Raw {
    let mut client = Raw::to(&door.at).await;
    client.say(&POST.replace("/mcp", path)).await;
    client
}

/// When all slots are taken, the oldest unauthenticated connection is evicted, then an idle one of the owner with the
/// most; so nobody starves others, with a credential or without.
#[tokio::test]
async fn unauthenticated_connections_are_evicted_first() {
    let limits = ListenerLimits {
        connections: 4,
        ..ListenerLimits::default()
    };
    let door = open(limits, known);
    let mut first = asks(&door, "/a").await;
    let mut second = asks(&door, "/a").await;
    let mut third = asks(&door, "/a").await;
    for client in [&mut first, &mut second, &mut third] {
        client.hear("\r\n\r\nhi").await;
    }
    let mut silent = Raw::to(&door.at).await;
    let mut stranger = asks(&door, "/mcp").await;
    stranger.hear("\r\n\r\nhi").await;
    assert_eq!(silent.rest().await, "");
    let mut other = asks(&door, "/b").await;
    other.hear("\r\n\r\nhi").await;
    assert_eq!(stranger.rest().await, "");
    // No unauthenticated connection is left.
    asks(&door, "/c").await.hear("\r\n\r\nhi").await;
    let mut held = Vec::new();
    for client in [&mut first, &mut second, &mut third] {
        let _ = client.0.write_all(POST.as_bytes()).await;
        held.push(client.rest_of_answer().await);
    }
    let kept = held.iter().filter(|answer| answer.ends_with("hi"));
    assert_eq!(kept.count(), 2, "{held:?}");
}

/// Over HTTP/2 no write waits for a client that opens no window; it is dropped anyway, even if it answers a PING and reads
/// another stream.
#[tokio::test]
async fn a_client_that_opens_no_window_is_dropped() {
    let limits = ListenerLimits {
        stall: Duration::from_millis(300),
        ..ListenerLimits::default()
    };
    let (tell, told) = Tell::new();
    let tell = Mutex::new(Some(tell));
    let door = open(limits, move |request, _| {
        let held = match request.uri().path() {
            "/mcp" => tell.lock().unwrap().take(),
            _ => None,
        };
        async {
            Response::new(match held {
                Some(tell) => ReplyBody::full(Bytes::from_owner(Held {
                    _tell: tell,
                    bytes: vec![0; 8 << 20],
                })),
                None => {
                    let beat = crate::sse::render_comment("beat");
                    ReplyBody::stream(futures_util::stream::pending())
                        .with_heartbeat(Duration::from_millis(20), beat)
                }
            })
        }
    });
    let io = TokioIo::new(TcpStream::connect(&door.at).await.unwrap());
    let handshake = hyper::client::conn::http2::handshake(TokioExecutor::new(), io);
    let (mut client, connection) = handshake.await.unwrap();
    let connection = tokio::spawn(connection);
    let mut get = async |path: &str| {
        let request = Request::post(format!("http://{}{path}", door.at));
        let request = request.body(Full::<Bytes>::from("hi")).unwrap();
        soon(client.send_request(request)).await.unwrap()
    };
    let beats = get("/beats").await;
    let reading = tokio::spawn(beats.into_body().collect());
    let answer = get("/mcp").await;
    soon(told).await.unwrap();
    let _ = soon(connection).await;
    assert!(soon(reading).await.unwrap().is_err());
    drop(answer);
}

/// Bytes that report when they are dropped.
struct Held {
    _tell: Tell,
    bytes: Vec<u8>,
}

impl AsRef<[u8]> for Held {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

#[tokio::test]
async fn one_connection_too_many_is_rejected() {
    let limits = ListenerLimits {
        connections: 2,
        ..ListenerLimits::default()
    };
    let door = open(limits, known);
    let mut first = asks(&door, "/a").await;
    let mut second = asks(&door, "/b").await;
    for client in [&mut first, &mut second] {
        client.hear("\r\n\r\nhi").await;
    }
    let answer = asks(&door, "/c").await.rest().await;
    assert!(
        answer.starts_with("HTTP/1.1 503 Service Unavailable\r\n"),
        "{answer}"
    );
    assert!(
        answer.ends_with("\r\n\r\ntoo many connections.\n"),
        "{answer}"
    );
    first.0.shutdown().await.unwrap();
    first.rest().await;
    soon(async {
        loop {
            let mut next = Raw::to(&door.at).await;
            next.say(
                POST.replace("1.1\r\n", "1.1\r\nconnection: close\r\n")
                    .as_str(),
            )
            .await;
            if next.rest().await.ends_with("\r\n\r\nhi") {
                return;
            }
        }
    })
    .await;
}

/// HTTP/2 frames without content lead to a GOAWAY and the end of the connection. Other connections are served meanwhile.
#[tokio::test]
async fn floods_of_frames_without_content_end_the_connection() {
    let door = open(ListenerLimits::default(), echo);
    let frames: [(&str, &[u8]); 5] = [
        ("PING", b"\0\0\x08\x06\0\0\0\0\0pingpong"),
        ("SETTINGS", b"\0\0\0\x04\0\0\0\0\0"),
        ("WINDOW_UPDATE", b"\0\0\x04\x08\0\0\0\0\0\0\0\0\x01"),
        ("PRIORITY", b"\0\0\x05\x02\0\0\0\0\x03\0\0\0\0\x10"),
        ("an unknown one", b"\0\0\0\x55\0\0\0\0\0"),
    ];
    for (name, frame) in frames {
        let (mut reader, mut writer) = TcpStream::connect(&door.at).await.unwrap().into_split();
        let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
        writer.write_all(preface).await.unwrap();
        let flood = frame.repeat(1_000);
        let flooding = tokio::spawn(async move {
            for _ in 0..10_000 {
                if writer.write_all(&flood).await.is_err() {
                    return;
                }
            }
        });
        let mut heard = Vec::new();
        let end = reader.read_to_end(&mut heard);
        let ended = tokio::time::timeout(Duration::from_secs(20), end).await;
        assert!(ended.is_ok(), "{name}: it goes on");
        assert!(kinds(&heard).contains(&GOAWAY), "{name}: no GOAWAY");
        flooding.abort();
        let mut other = Raw::to(&door.at).await;
        other.say(POST).await;
        other.hear("\r\n\r\nhi").await;
    }
}

const GOAWAY: u8 = 0x7;

/// The types of the frames.
fn kinds(mut frames: &[u8]) -> Vec<u8> {
    let mut kinds = Vec::new();
    while let [a, b, c, kind, _, _, _, _, _, rest @ ..] = frames {
        kinds.push(*kind);
        let len = u32::from_be_bytes([0, *a, *b, *c]) as usize;
        frames = rest.get(len..).unwrap_or_default();
    }
    kinds
}
