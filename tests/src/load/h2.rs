//! Many callers over HTTP/2 in the clear, each on a connection of its own or all on one.

use std::io;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::future::try_join_all;
use http::header::{ACCEPT, CONTENT_TYPE};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http2::{self, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpStream;

use super::bounds::Allowance;
use super::latency::Latencies;
use super::{Bounds, Run};

/// What gRPC calls its content.
const GRPC: &str = "application/grpc";

/// A request that is sent again and again.
#[derive(Debug, Clone)]
pub struct H2Post {
    /// Where it goes.
    pub path: String,
    /// What its body is.
    pub content: &'static str,
    /// What is accepted as its answer.
    pub accept: &'static str,
    /// Other headers.
    pub headers: Vec<(&'static str, String)>,
    /// The body.
    pub body: Bytes,
}

/// Callers of one endpoint.
#[derive(Debug)]
pub struct H2Load {
    host: String,
    /// One for each caller; those on one connection share it.
    callers: Vec<SendRequest<Full<Bytes>>>,
}

impl H2Load {
    /// `callers` of `host`, on as many connections or on one.
    ///
    /// # Errors
    /// What a connection ran into.
    pub async fn open(host: &str, callers: usize, shared: bool) -> io::Result<Self> {
        let mut all: Vec<SendRequest<Full<Bytes>>> = Vec::with_capacity(callers);
        for _ in 0..callers {
            let before = all.first().filter(|_| shared).cloned();
            all.push(match before {
                Some(same) => same,
                None => connection(host).await?,
            });
        }
        Ok(Self {
            host: host.to_owned(),
            callers: all,
        })
    }

    /// Sends the request from all callers until the bounds are reached.
    ///
    /// # Errors
    /// The first connection that broke or answer that was none.
    pub async fn run(&mut self, post: &H2Post, bounds: Bounds) -> io::Result<Run> {
        let (allowance, start) = (bounds.allowance(), Instant::now());
        let host = &self.host;
        let runs = self
            .callers
            .iter_mut()
            .map(|caller| again(caller, host, post, &allowance));
        let runs = try_join_all(runs).await?;
        let elapsed = start.elapsed();
        let mut latencies = Latencies::with_room(bounds.calls);
        runs.iter().for_each(|times| latencies.join(times));
        Ok(Run { latencies, elapsed })
    }

    /// One request of the first caller: the whole body of its answer, and how long it took.
    ///
    /// # Errors
    /// What the connection ran into.
    ///
    /// # Panics
    /// When there is no caller.
    pub async fn once(&mut self, post: &H2Post) -> io::Result<(Bytes, Duration)> {
        let start = Instant::now();
        let caller = self.callers.first_mut().expect("a caller");
        let body = call(caller, &self.host, post).await?;
        Ok((body, start.elapsed()))
    }
}

async fn connection(host: &str) -> io::Result<SendRequest<Full<Bytes>>> {
    let stream = TcpStream::connect(host).await?;
    stream.set_nodelay(true)?;
    let (sender, driver) = http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
        .await
        .map_err(io::Error::other)?;
    tokio::spawn(driver);
    Ok(sender)
}

async fn again(
    caller: &mut SendRequest<Full<Bytes>>,
    host: &str,
    post: &H2Post,
    allowance: &Allowance,
) -> io::Result<Latencies> {
    let mut latencies = Latencies::default();
    let mut start = Instant::now();
    while allowance.take(start) {
        call(caller, host, post).await?;
        let end = Instant::now();
        latencies.add(end - start);
        start = end;
    }
    Ok(latencies)
}

/// One request; its answer is looked at only as far as needed.
async fn call(
    caller: &mut SendRequest<Full<Bytes>>,
    host: &str,
    post: &H2Post,
) -> io::Result<Bytes> {
    let mut request = http::Request::post(format!("http://{host}{}", post.path))
        .header(CONTENT_TYPE, post.content)
        .header(ACCEPT, post.accept);
    for (name, value) in &post.headers {
        request = request.header(*name, value);
    }
    let request = request
        .body(Full::new(post.body.clone()))
        .map_err(io::Error::other)?;
    caller.ready().await.map_err(io::Error::other)?;
    let answer = caller
        .send_request(request)
        .await
        .map_err(io::Error::other)?;
    let (head, body) = answer.into_parts();
    let body = body.collect().await.map_err(io::Error::other)?;
    let said = |name| {
        let trailers = body.trailers().and_then(|trailers| trailers.get(name));
        trailers.or_else(|| head.headers.get(name)).cloned()
    };
    let good = match post.content {
        GRPC => said("grpc-status").is_some_and(|status| status == "0"),
        _ => head.status == 200,
    };
    let told = said("grpc-message");
    let body = body.to_bytes();
    if good {
        Ok(body)
    } else {
        let text = String::from_utf8_lossy(&body[..body.len().min(500)]).into_owned();
        Err(io::Error::other(format!(
            "{}: {told:?} {text}",
            head.status
        )))
    }
}
