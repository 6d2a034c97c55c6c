//! Requests of the client, and its errors.

use std::io::{Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use http::{HeaderMap, HeaderValue, Method, StatusCode};
use tokio::io::AsyncWriteExt;
use tokio::sync::{Barrier, mpsc};

use super::super::client::{self, Client, ClientError, DialError, parse_url};
use super::super::tls::Tls;
use super::*;

const OK: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";

pub(super) async fn post(client: &Client, url: &Uri) -> Result<String, ClientError> {
    let body = Some(Bytes::from_static(b"{}"));
    let asked = client.request(Method::POST, url, HeaderMap::new(), body);
    let answer = soon(asked).await?;
    assert_eq!(answer.status, StatusCode::OK);
    let body = soon(client::read_json(answer.body, 100)).await.unwrap();
    Ok(String::from_utf8(body.into()).unwrap())
}

fn client() -> Client {
    Client::new(Tls::system())
}

/// The error text for a server that sends `said`.
async fn words_for(said: &'static str) -> String {
    let url = upstream(move |mut server| async move {
        server.hear("\r\n\r\n{}").await;
        server.say(said).await;
    });
    let error = post(&client(), &url).await.unwrap_err().to_string();
    error.replace(url.authority().unwrap().as_str(), "HOST:PORT")
}

/// MCP-084: the caller's headers are sent, and no others.
#[tokio::test]
async fn nothing_is_added_to_a_request() {
    let (told, mut heard) = mpsc::channel(1);
    let url = upstream(move |mut server| {
        let told = told.clone();
        async move {
            told.send(server.hear("\r\n\r\n{}").await).await.unwrap();
            server
                .say("HTTP/1.1 201 Created\r\nset-cookie: a=b\r\ncontent-length: 0\r\n\r\n")
                .await;
            told.send(server.hear("\r\n\r\n").await).await.unwrap();
            server.say(OK).await;
        }
    });
    let mut headers = HeaderMap::new();
    headers.insert("mcp-session-id", HeaderValue::from_static("7"));
    let (client, body) = (client(), Some(Bytes::from_static(b"{}")));
    let answer = soon(client.request(Method::POST, &url, headers, body))
        .await
        .unwrap();
    assert_eq!(answer.status, StatusCode::CREATED);
    assert_eq!(answer.headers["set-cookie"], "a=b");
    let host = url.authority().unwrap();
    assert_eq!(
        heard.recv().await.unwrap(),
        format!(
            "POST /mcp HTTP/1.1\r\nmcp-session-id: 7\r\nhost: {host}\r\ncontent-length: 2\r\n\r\n{{}}"
        )
    );
    soon(client::read_json(answer.body, 9)).await.unwrap();
    soon(client.request(Method::GET, &url, HeaderMap::new(), None))
        .await
        .unwrap();
    let get = heard.recv().await.unwrap();
    assert_eq!(get, format!("GET /mcp HTTP/1.1\r\nhost: {host}\r\n\r\n"));
}

#[tokio::test]
async fn a_refused_connection_names_the_address() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap().to_string();
    drop(listener);
    let error = post(&client(), &format!("http://{at}").parse().unwrap())
        .await
        .unwrap_err();
    assert_eq!(
        error,
        ClientError::Dial(DialError::Refused { at: at.clone() })
    );
    let words = format!("connection refused at {at}: is the server running?");
    assert_eq!(error.to_string(), words);
}

/// A label of more than 63 characters is rejected before any name server is queried.
#[tokio::test]
async fn a_name_without_an_address_is_an_error() {
    let host = "x".repeat(70);
    let url = format!("http://{host}:81/").parse().unwrap();
    let error = post(&client(), &url).await.unwrap_err().to_string();
    let words = format!("the host name of {host}:81 could not be resolved: ");
    assert!(error.starts_with(&words), "{error}");
}

#[tokio::test]
async fn a_redirect_is_reported_and_not_followed() {
    for (location, to) in [
        ("https://new.example/mcp", "https://new.example/mcp"),
        ("/v2/mcp", "http://HOST:PORT/v2/mcp"),
        ("//new.example/", "http://new.example/"),
    ] {
        let said =
            format!("HTTP/1.1 308 Moved\r\nlocation: {location}\r\ncontent-length: 0\r\n\r\n");
        let words = words_for(said.leak()).await;
        assert_eq!(
            words,
            format!("the server is redirected: set url = \"{to}\"")
        );
    }
}

#[tokio::test]
async fn a_server_without_http_is_reported() {
    let ssh = words_for("SSH-2.0-OpenSSH_9.6\r\n\r\n").await;
    assert_eq!(
        ssh,
        "HOST:PORT does not answer in HTTP: invalid HTTP version parsed"
    );
    let gone = words_for("").await;
    assert_eq!(
        gone,
        "HOST:PORT closed the connection without an answer: connection closed before message completed"
    );
}

#[test]
fn an_invalid_url_is_rejected() {
    for (url, why) in [
        ("ftp://host/", "it must begin with http:// or https://"),
        ("/mcp", "it must begin with http:// or https://"),
        (
            "https://user:secret@host/",
            "credentials belong into a header",
        ),
        ("http://a b/", "invalid uri character"),
        ("https://user:secret@a b/", "invalid uri character"),
    ] {
        let words = parse_url(url).unwrap_err().to_string();
        assert!(!words.contains("secret"), "{words}");
        assert!(
            words.ends_with(&format!("is no URL of a server: {why}")),
            "{words}"
        );
    }
    assert!(parse_url("http://[::1]:80/mcp?x=1").is_ok());
}

#[tokio::test]
async fn connections_are_reused() {
    let connections = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&connections);
    let url = upstream(move |mut server| {
        counted.fetch_add(1, Ordering::SeqCst);
        async move {
            for _ in 0..20 {
                server.hear("\r\n\r\n{}").await;
                server.say(OK).await;
            }
        }
    });
    let client = client();
    for _ in 0..20 {
        assert_eq!(post(&client, &url).await.unwrap(), "ok");
    }
    assert_eq!(connections.load(Ordering::SeqCst), 1);
}

/// A server may close a connection in the pool; the next request is not affected.
#[tokio::test]
async fn a_connection_closed_while_idle_is_replaced() {
    let (closed, mut closes) = mpsc::channel(1);
    let url = upstream(move |mut server| {
        let closed = closed.clone();
        async move {
            server.hear("\r\n\r\n{}").await;
            server.say(OK).await;
            server.0.shutdown().await.unwrap();
            drop(server);
            closed.send(()).await.unwrap();
        }
    });
    let client = client();
    for pause in (0..50).map(|round| round * 10) {
        assert_eq!(post(&client, &url).await.unwrap(), "ok");
        soon(closes.recv()).await.unwrap();
        // Sometimes the runtime learns of the close before the next request, sometimes with it.
        for _ in 0..pause {
            tokio::task::yield_now().await;
        }
    }
}

/// The pool learns of the close only when the request is already assigned to the connection: this thread was blocked in
/// between.
#[tokio::test]
async fn a_request_that_meets_the_close_is_sent_on_a_new_connection() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap())
        .parse()
        .unwrap();
    let (closed, closes) = std::sync::mpsc::channel();
    let (close, closing) = std::sync::mpsc::channel();
    let server = std::thread::spawn(move || {
        for _ in 0..2 {
            let (mut stream, _) = listener.accept().unwrap();
            let mut heard = [0; 1024];
            while !heard.windows(6).any(|end| end == b"\r\n\r\n{}") {
                assert!(stream.read(&mut heard).unwrap() > 0);
            }
            stream.write_all(OK.as_bytes()).unwrap();
            closing.recv().unwrap();
            drop(stream);
            closed.send(()).unwrap();
        }
    });
    let client = client();
    for _ in 0..2 {
        assert_eq!(post(&client, &url).await.unwrap(), "ok");
        close.send(()).unwrap();
        closes.recv().unwrap();
    }
    server.join().unwrap();
}

/// An answer may arrive and be readable while the request is still being written.
#[tokio::test]
async fn an_early_answer_is_not_taken_for_a_close() {
    const LARGE: usize = 16 << 20;
    let (told, mut heard) = mpsc::channel(2);
    let url = upstream(move |mut server| {
        let told = told.clone();
        async move {
            for body in [2, LARGE] {
                server.hear("\r\n\r\n").await;
                server
                    .say("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\no")
                    .await;
                let mut half = vec![0; body / 2];
                server.0.read_exact(&mut half).await.unwrap();
                server.say("k").await;
                server.0.read_exact(&mut half).await.unwrap();
                told.send(body).await.unwrap();
            }
        }
    });
    let client = client();
    assert_eq!(post(&client, &url).await.unwrap(), "ok");
    assert_eq!(heard.recv().await, Some(2));
    let body = Some(vec![b'x'; LARGE].into());
    let asked = client.request(Method::POST, &url, HeaderMap::new(), body);
    let answer = soon(asked).await.unwrap();
    let answer = soon(client::read_json(answer.body, 2)).await;
    assert_eq!(answer.unwrap(), "ok");
    // The rest of the request is written after the whole answer was read.
    assert_eq!(soon(heard.recv()).await, Some(LARGE));
}

/// A request that was written is never repeated: the server may have executed it.
#[tokio::test]
async fn a_request_that_was_sent_is_not_sent_twice() {
    let heard = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&heard);
    let url = upstream(move |mut server| {
        let counted = Arc::clone(&counted);
        async move {
            server.hear("\r\n\r\n{}").await;
            server.say(OK).await;
            server.hear("\r\n\r\n{}").await;
            counted.fetch_add(1, Ordering::SeqCst);
        }
    });
    let client = client();
    assert_eq!(post(&client, &url).await.unwrap(), "ok");
    let error = post(&client, &url).await.unwrap_err();
    assert!(matches!(error, ClientError::Closed { .. }), "{error}");
    assert_eq!(heard.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_burst_leaves_a_bounded_number_of_idle_connections() {
    const BURST: usize = 40;
    let together = Arc::new(Barrier::new(BURST));
    let (ended, mut ends) = mpsc::channel(BURST);
    let url = upstream(move |mut server| {
        let (together, ended) = (Arc::clone(&together), ended.clone());
        async move {
            server.hear("\r\n\r\n{}").await;
            together.wait().await;
            server.say(OK).await;
            assert_eq!(server.rest().await, "");
            ended.send(()).await.unwrap();
        }
    });
    let client = client();
    let burst = (0..BURST).map(|_| post(&client, &url));
    for answer in futures_util::future::join_all(burst).await {
        assert_eq!(answer.unwrap(), "ok");
    }
    // Well before the idle timeout.
    for _ in 0..8 {
        let end = tokio::time::timeout(Duration::from_secs(2), ends.recv());
        end.await.unwrap().unwrap();
    }
}

#[tokio::test]
async fn a_caller_that_gives_up_ends_the_connection() {
    let (told, mut tells) = mpsc::channel(1);
    let url = upstream(move |mut server| {
        let told = told.clone();
        async move {
            server.hear("\r\n\r\n{}").await;
            told.send("asked").await.unwrap();
            assert_eq!(server.rest().await, "");
            told.send("ended").await.unwrap();
        }
    });
    let client = client();
    let asked = tokio::spawn(async move { post(&client, &url).await });
    assert_eq!(soon(tells.recv()).await, Some("asked"));
    asked.abort();
    assert_eq!(soon(tells.recv()).await, Some("ended"));
}

/// What comes after the wanted event of a stream does not cost its connection, if it is short and comes soon.
#[tokio::test]
async fn a_stream_that_ends_after_the_wanted_event_leaves_its_connection_usable() {
    const STREAM: &str = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n9\r\ndata: 1\n\n\r\n";
    let connections = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&connections);
    let (discarded, resume) = mpsc::channel::<()>(1);
    let resume = Arc::new(tokio::sync::Mutex::new(resume));
    let url = upstream(move |mut server| {
        counted.fetch_add(1, Ordering::SeqCst);
        let resume = resume.clone();
        async move {
            server.hear("\r\n\r\n{}").await;
            server.say(&format!("{STREAM}0\r\n\r\n")).await;
            server.hear("\r\n\r\n{}").await;
            server.say(STREAM).await;
            resume.lock().await.recv().await;
            server.say("0\r\n\r\n").await;
            server.hear("\r\n\r\n{}").await;
            server.say(OK).await;
        }
    });
    let client = client();
    for is_whole in [true, false] {
        let body = Some(Bytes::from_static(b"{}"));
        let asked = client.request(Method::POST, &url, HeaderMap::new(), body);
        let mut events = client::read_events(soon(asked).await.unwrap().body, 100);
        assert!(soon(events.next()).await.unwrap().is_some());
        events.discard_rest();
        if !is_whole {
            discarded.send(()).await.unwrap();
            // The background task has to see the end first.
            soon(async {
                while client.idle_connections() == 0 {
                    tokio::task::yield_now().await;
                }
            })
            .await;
        }
    }
    assert_eq!(post(&client, &url).await.unwrap(), "ok");
    assert_eq!(connections.load(Ordering::SeqCst), 1);
}
