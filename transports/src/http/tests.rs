//! Real listeners, clients and servers on loopback.

mod client;
mod door;
mod proxy;
mod shutdown;
mod stream;
mod tls;
mod unary;

use std::future::Future;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, Uri};
use mgp_sync::Credit;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::body::{ReplyBody, RequestBody, collect};
use super::guard::AllowList;
use super::server::{HttpListener, HttpPeer, ListenerLimits};
use crate::budget::MessageBudget;

/// The time limit for anything that should happen.
async fn soon<T>(event: impl Future<Output = T>) -> T {
    let done = tokio::time::timeout(Duration::from_secs(60), event).await;
    done.expect("it happens soon")
}

/// A listener that is served until it is closed.
struct Open {
    at: String,
    closing: CancellationToken,
    served: JoinHandle<()>,
}

fn open<H, F>(limits: ListenerLimits, handler: H) -> Open
where
    H: Fn(Request<RequestBody>, HttpPeer) -> F + Send + Sync + 'static,
    F: Future<Output = Response<ReplyBody>> + Send + 'static,
{
    let door = HttpListener::bind(([127, 0, 0, 1], 0).into()).unwrap();
    let at = door.addr().to_string();
    let closing = CancellationToken::new();
    let serving = door.serve(limits, AllowList::default(), handler, closing.clone());
    Open {
        at,
        closing,
        served: tokio::spawn(serving),
    }
}

/// Answers with the body of the request, or with the reason of its rejection.
async fn echo(request: Request<RequestBody>, _: HttpPeer) -> Response<ReplyBody> {
    let room = || MessageBudget::new(Credit::new(1 << 20), Credit::new(1 << 20));
    match collect(request.into_body(), 100, Duration::from_millis(200), room).await {
        Ok(body) => Response::new(ReplyBody::full(body)),
        Err(e) => {
            let mut response = Response::new(ReplyBody::full(e.error.to_string()));
            *response.status_mut() = e.error.status();
            response
        }
    }
}

/// A client that sends and receives bytes.
struct Raw(TcpStream);

impl Raw {
    async fn to(at: &str) -> Self {
        Self(TcpStream::connect(at).await.unwrap())
    }

    async fn say(&mut self, text: &str) {
        self.0.write_all(text.as_bytes()).await.unwrap();
    }

    /// Everything up to and including `end`.
    async fn hear(&mut self, end: &str) -> String {
        let mut heard = Vec::new();
        while !heard.ends_with(end.as_bytes()) {
            let byte = soon(self.0.read_u8()).await;
            let so_far = String::from_utf8_lossy(&heard).into_owned();
            heard.push(byte.unwrap_or_else(|e| panic!("{e} after {so_far:?}")));
        }
        String::from_utf8(heard).unwrap()
    }

    /// The bytes up to the end of an answer of `hi`, or of the connection.
    async fn rest_of_answer(&mut self) -> String {
        let mut heard = Vec::new();
        while !heard.ends_with(b"\r\n\r\nhi") {
            match soon(self.0.read_u8()).await {
                Ok(byte) => heard.push(byte),
                Err(_) => break,
            }
        }
        String::from_utf8(heard).unwrap()
    }

    /// Everything until the other side ends, a reset included.
    async fn rest(&mut self) -> String {
        let mut rest = Vec::new();
        let _ = soon(self.0.read_to_end(&mut rest)).await;
        String::from_utf8(rest).unwrap()
    }
}

/// Reports when it is dropped.
struct Tell(Option<oneshot::Sender<()>>);

impl Tell {
    fn new() -> (Self, oneshot::Receiver<()>) {
        let (tell, told) = oneshot::channel();
        (Self(Some(tell)), told)
    }
}

impl Drop for Tell {
    fn drop(&mut self) {
        if let Some(tell) = self.0.take() {
            let _ = tell.send(());
        }
    }
}

/// A stream of `item` that never ends, is always ready, and reports its drop.
fn endless(item: Bytes, tell: Tell) -> impl futures_util::Stream<Item = Bytes> + Send {
    futures_util::stream::repeat_with(move || {
        let _held = &tell;
        item.clone()
    })
}

/// A stream that never yields, and reports its drop.
fn silent(tell: Tell) -> impl futures_util::Stream<Item = Bytes> + Send {
    futures_util::stream::poll_fn(move |_| {
        let _held = &tell;
        std::task::Poll::Pending
    })
}

/// A server that runs `play` with each of its connections.
fn upstream<F>(play: impl Fn(Raw) -> F + Send + 'static) -> Uri
where
    F: Future<Output = ()> + Send + 'static,
{
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/mcp", listener.local_addr().unwrap());
    listener.set_nonblocking(true).unwrap();
    let listener = TcpListener::from_std(listener).unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(play(Raw(stream)));
        }
    });
    url.parse().unwrap()
}
