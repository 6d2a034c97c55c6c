//! Requests over HTTP/2 only, many on one connection, as gRPC needs.

use std::error::Error;
use std::fmt;
use std::time::Duration;

use http::{Request, Response, Uri};
use hyper::body::{Body, Incoming};
use hyper_util::client::legacy;
use hyper_util::rt::{TokioExecutor, TokioTimer};

use super::{Client, ClientError, check_url, explain_http};
use crate::http::causes;
use crate::http::dial::{Dial, DialError};

/// A connection that is silent this long is pinged, and closed without an answer within [`PING_TIMEOUT`].
const PING_INTERVAL: Duration = Duration::from_secs(30);
const PING_TIMEOUT: Duration = Duration::from_secs(20);

/// Longest head of an answer, in bytes: the limit of most servers.
const HEADER_BYTES_MAX: u32 = 16 << 10;

/// The body of an answer, as a stream.
pub type H2Body = Incoming;

/// Sends requests over HTTP/2, unencrypted with prior knowledge. Clones share the connections, one for each server.
pub struct H2Client<B> {
    pool: legacy::Client<Dial, B>,
}

impl<B> Clone for H2Client<B> {
    fn clone(&self) -> Self {
        Self {
            pool: self.pool.clone(),
        }
    }
}

impl<B> fmt::Debug for H2Client<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("H2Client").finish_non_exhaustive()
    }
}

impl Client {
    /// A client with the same authorities, proxies and addresses over HTTP/2. Proxies open a tunnel.
    #[must_use]
    pub fn h2_client<B>(&self) -> H2Client<B>
    where
        B: Body + Send + Unpin + 'static,
        B::Data: Send,
        B::Error: Into<Box<dyn Error + Send + Sync>>,
    {
        let dial = Dial {
            h2: true,
            ..self.dial.clone()
        };
        let pool = legacy::Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .timer(TokioTimer::new())
            .http2_only(true)
            .http2_keep_alive_interval(PING_INTERVAL)
            .http2_keep_alive_timeout(PING_TIMEOUT)
            .http2_max_header_list_size(HEADER_BYTES_MAX)
            .build(dial);
        H2Client { pool }
    }
}

impl<B> H2Client<B>
where
    B: Body + Send + Unpin + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    /// Sends one request and waits for the head of its answer, without a timeout.
    ///
    /// # Errors
    /// [`ClientError`]. An answer with an error status or a redirect is an answer.
    pub async fn request(&self, request: Request<B>) -> Result<Response<Incoming>, ClientError> {
        let url = request.uri().clone();
        check_url(&url)?;
        let answer = self.pool.request(request).await;
        answer.map_err(|e| explain(&e, &url))
    }
}

/// Finds the cause that a person can do something about.
fn explain(error: &legacy::Error, url: &Uri) -> ClientError {
    if let Some(dial) = causes(error).find_map(|e| e.downcast_ref::<DialError>()) {
        return dial.clone().into();
    }
    let http = causes(error).find_map(|e| e.downcast_ref::<hyper::Error>());
    explain_http(error, http.is_some_and(hyper::Error::is_parse), url)
}
