//! Event streams as the client reads them.

use http::{HeaderMap, Method};
use tokio::sync::mpsc;

use super::super::body::BodyError;
use super::super::client::{self, Client, EventsError, SseEvents};
use super::super::tls::Tls;
use super::*;

const HEAD: &str =
    "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";

fn chunk(text: &str) -> String {
    format!("{:x}\r\n{text}\r\n", text.len())
}

async fn listen(url: &Uri) -> SseEvents {
    let client = Client::new(Tls::system());
    let asked = client.request(Method::GET, url, HeaderMap::new(), None);
    client::read_events(soon(asked).await.unwrap().body, 64)
}

/// MCP-084, CMCP-036: events are read as they arrive, including heartbeats that only have an id.
#[tokio::test]
async fn events_are_read_as_they_come() {
    let url = upstream(|mut server| async move {
        server.hear("\r\n\r\n").await;
        server.say(HEAD).await;
        server.say(&chunk("id: 1\nda")).await;
        server.say(&chunk("ta: {}\n\n: beat\n\nid: 2\n\n")).await;
        server
            .say(&chunk(&format!(
                "data: {}\n\ndata: next\n\n",
                "x".repeat(65)
            )))
            .await;
        server.say("0\r\n\r\n").await;
    });
    let mut events = listen(&url).await;
    let first = soon(events.next()).await.unwrap().unwrap();
    assert_eq!(
        (first.id.as_deref(), &first.data[..]),
        (Some("1"), &b"{}"[..])
    );
    let beat = soon(events.next()).await.unwrap().unwrap();
    assert_eq!((beat.id.as_deref(), beat.data.len()), (Some("2"), 0));
    let long = soon(events.next()).await;
    assert!(matches!(long, Err(EventsError::TooLarge(_))), "{long:?}");
    assert_eq!(soon(events.next()).await.unwrap().unwrap().data, "next");
    assert_eq!(soon(events.next()).await, Ok(None));
}

#[tokio::test]
async fn a_broken_stream_differs_from_an_ended_one() {
    let url = upstream(|mut server| async move {
        server.hear("\r\n\r\n").await;
        server
            .say(&format!("{HEAD}{}", chunk("data: 1\n\ndata: 2")))
            .await;
    });
    let mut events = listen(&url).await;
    assert_eq!(soon(events.next()).await.unwrap().unwrap().data, "1");
    let broken = soon(events.next()).await;
    let why = "unexpected EOF during chunk size line".to_owned();
    assert_eq!(broken, Err(EventsError::Broken(BodyError::Broken(why))));
}

/// Closing the stream cancels a call to a server.
#[tokio::test]
async fn a_stream_that_is_dropped_ends_its_connection() {
    let (told, mut tells) = mpsc::channel(1);
    let url = upstream(move |mut server| {
        let told = told.clone();
        async move {
            server.hear("\r\n\r\n").await;
            server.say(HEAD).await;
            server.rest().await;
            told.send(()).await.unwrap();
        }
    });
    drop(listen(&url).await);
    soon(tells.recv()).await.unwrap();
}
