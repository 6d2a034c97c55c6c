//! Connections of HTTP/1.1, each driven by whoever awaits its response.
//!
//! hyper splits a connection into a sender and a future that moves the bytes. That future usually gets a task of its
//! own, and each request then wakes that task and is woken by it. Here the request polls it: no other task, and often
//! no other thread, takes part in a call.

use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use http::header::{HOST, HeaderValue};
use http::uri::{Authority, Scheme};
use http::{Request, Response, Uri};
use http_body_util::Full;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::client::conn::http1::{self, SendRequest};
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep_until, timeout};

use super::super::causes;
use super::super::dial::{Dial, DialError};
use super::super::pooled_connection::{PooledConnection, is_unsent};

/// How long a connection waits for its next request. Common servers close theirs after 5 s: we
/// must be first, for a request that meets the close may not be sent a second time.
const IDLE_TIMEOUT: Duration = Duration::from_secs(4);

/// Idle connections kept for one server; a burst of calls leaves no more behind.
const IDLE_PER_SERVER_MAX: usize = 32;

/// What a response may still send after the part that was wanted, and how long that may take, for its connection to
/// be used again. Beyond either the connection is closed.
const REST_BYTES_MAX: usize = 64 << 10;
const REST_TIMEOUT: Duration = Duration::from_secs(5);

/// Connections of one pool on which the rest of a message is moved in the background; more are closed.
const RESTS_MAX: usize = 32;

type Moving = http1::Connection<PooledConnection, Full<Bytes>>;

/// An open connection without a request.
struct OpenConnection {
    sender: SendRequest<Full<Bytes>>,
    /// Moves the bytes of the connection while it is polled.
    moving: Pin<Box<Moving>>,
    /// The requests go to a proxy, which wants the whole URL in each (RFC 9112, section 3.2.2).
    is_via_proxy: bool,
}

struct IdleConnection {
    connection: OpenConnection,
    expires: Instant,
}

#[derive(Clone, PartialEq, Eq)]
struct Origin(Scheme, Authority);

#[derive(Default)]
struct Idle {
    /// Of each origin the one used last stands last. A client has few origins, nearly always one, and hashing a name
    /// takes longer than comparing it.
    by_origin: Vec<(Origin, Vec<IdleConnection>)>,
    is_sweeping: bool,
}

impl Idle {
    fn connections_of(&mut self, origin: &Origin) -> Option<&mut Vec<IdleConnection>> {
        let mut all = self.by_origin.iter_mut();
        all.find(|(of, _)| of == origin).map(|(_, idle)| idle)
    }
}

/// The idle connections of one client.
pub(super) struct Pool {
    idle: Mutex<Idle>,
    /// For [`RESTS_MAX`].
    rests: Arc<Semaphore>,
}

impl Default for Pool {
    fn default() -> Self {
        Self {
            idle: Mutex::default(),
            rests: Arc::new(Semaphore::new(RESTS_MAX)),
        }
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool").finish_non_exhaustive()
    }
}

/// Why a request has no response.
#[derive(Debug, thiserror::Error)]
pub(super) enum SendError {
    /// There is no connection.
    #[error(transparent)]
    Dial(#[from] DialError),
    /// The connection ended.
    #[error(transparent)]
    Http(#[from] hyper::Error),
}

/// How one attempt failed.
enum Attempt {
    /// Nothing of the request was written.
    Unsent(hyper::Error),
    Failed(hyper::Error),
}

impl Pool {
    /// Sends one request and waits for the head of its response.
    ///
    /// A request that meets a connection which the server has closed meanwhile goes out on another one. A request of
    /// which a byte was written is never sent again.
    pub(super) async fn send(
        self: &Arc<Self>,
        request: Request<Full<Bytes>>,
        dial: &Dial,
    ) -> Result<Response<ResponseBody>, SendError> {
        let url = request.uri().clone();
        let origin = Origin(
            url.scheme().cloned().unwrap_or(Scheme::HTTP),
            url.authority()
                .cloned()
                .unwrap_or_else(|| Authority::from_static("localhost")),
        );
        // After a restart of the server every idle connection may be a closed one.
        for _ in 0..IDLE_PER_SERVER_MAX {
            let Some(idle) = self.take(&origin) else {
                break;
            };
            match idle.send(request.clone(), &url, self, &origin).await {
                Err(Attempt::Unsent(_)) => {}
                Err(Attempt::Failed(error)) => return Err(error.into()),
                Ok(response) => return Ok(response),
            }
        }
        // Boxed: it is rare, and its future is larger than the rest of a call.
        let connection = Box::pin(OpenConnection::open(dial, &url)).await?;
        let sent = connection.send(request, &url, self, &origin).await;
        sent.map_err(|(Attempt::Unsent(error) | Attempt::Failed(error))| error.into())
    }

    fn lock(&self) -> MutexGuard<'_, Idle> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[cfg(test)]
    pub(super) fn idle_connections(&self) -> usize {
        let idle = self.lock();
        idle.by_origin.iter().map(|(_, idle)| idle.len()).sum()
    }

    fn take(&self, origin: &Origin) -> Option<OpenConnection> {
        let mut idle = self.lock();
        let connections = idle.connections_of(origin)?;
        // Those before it have waited longer.
        let last = connections
            .pop()
            .filter(|last| last.expires > Instant::now());
        if last.is_none() {
            connections.clear();
        }
        last.map(|last| last.connection)
    }

    fn put(self: &Arc<Self>, origin: Origin, connection: OpenConnection) {
        let expires = Instant::now() + IDLE_TIMEOUT;
        let mut idle = self.lock();
        let new = IdleConnection {
            connection,
            expires,
        };
        match idle.connections_of(&origin) {
            Some(connections) if connections.len() >= IDLE_PER_SERVER_MAX => return,
            Some(connections) => connections.push(new),
            None => idle.by_origin.push((origin, vec![new])),
        }
        if !idle.is_sweeping {
            idle.is_sweeping = true;
            tokio::spawn(close_expired(Arc::downgrade(self), expires));
        }
    }

    /// Moves the rest of a message without anybody waiting for it.
    fn finish_in_background(&self, rest: impl Future<Output = ()> + Send + 'static) {
        if let Ok(permit) = self.rests.clone().try_acquire_owned() {
            tokio::spawn(async move {
                let _permit = permit;
                let _ = timeout(REST_TIMEOUT, rest).await;
            });
        }
    }

    /// Closes what has expired; returns when to look again, `None` once nothing is idle.
    fn sweep(&self) -> Option<Instant> {
        let now = Instant::now();
        let mut idle = self.lock();
        idle.by_origin.retain_mut(|(_, connections)| {
            connections.retain(|idle| idle.expires > now);
            !connections.is_empty()
        });
        let waiting = idle.by_origin.iter().flat_map(|(_, idle)| idle);
        let next = waiting.map(|idle| idle.expires).min();
        idle.is_sweeping = next.is_some();
        next
    }
}

async fn close_expired(pool: Weak<Pool>, first: Instant) {
    let mut next = Some(first);
    while let Some(expires) = next {
        sleep_until(expires).await;
        next = pool.upgrade().and_then(|pool| pool.sweep());
    }
}

impl OpenConnection {
    async fn open(dial: &Dial, url: &Uri) -> Result<Self, SendError> {
        let stream = dial.connect(url).await?;
        let is_via_proxy = stream.is_via_proxy();
        let (sender, moving) = http1::handshake(stream).await?;
        Ok(Self {
            sender,
            moving: Box::pin(moving),
            is_via_proxy,
        })
    }

    async fn send(
        self,
        mut request: Request<Full<Bytes>>,
        url: &Uri,
        pool: &Arc<Pool>,
        origin: &Origin,
    ) -> Result<Response<ResponseBody>, Attempt> {
        let Self {
            mut sender,
            moving,
            is_via_proxy,
        } = self;
        if !is_via_proxy {
            let path = url.path_and_query().cloned();
            *request.uri_mut() = path.map(Uri::from).unwrap_or_default();
        }
        if !request.headers().contains_key(HOST)
            && let Ok(host) = HeaderValue::from_str(host_header(origin))
        {
            request.headers_mut().insert(HOST, host);
        }
        let mut sent = pin!(sender.try_send_request(request));
        let mut moving = Some(moving);
        let sent = poll_fn(|cx| {
            if let Poll::Ready(sent) = sent.as_mut().poll(cx) {
                return Poll::Ready(sent);
            }
            // What is over is dropped: that gives a request back which it has not taken.
            moving.take_if(|moving| moving.as_mut().poll(cx).is_ready());
            sent.as_mut().poll(cx)
        });
        match sent.await {
            Ok(response) => Ok(response.map(|incoming| ResponseBody {
                incoming,
                connection: moving.map(|moving| Self {
                    sender,
                    moving,
                    is_via_proxy,
                }),
                home: Some((pool.clone(), origin.clone())),
            })),
            Err(mut failed) => {
                let is_kept = failed.take_message().is_some();
                let error = failed.into_error();
                Err(if is_kept || causes(&error).any(is_unsent) {
                    Attempt::Unsent(error)
                } else {
                    Attempt::Failed(error)
                })
            }
        }
    }

    /// Whether the connection can take another request, once it is known.
    fn poll_reusable(&mut self, cx: &mut Context<'_>) -> Poll<bool> {
        if self.moving.as_mut().poll(cx).is_ready() {
            Poll::Ready(false)
        } else if self.sender.is_ready() {
            Poll::Ready(true)
        } else {
            Poll::Pending
        }
    }
}

/// `Host` without the port that the scheme implies (RFC 9110, section 7.2).
fn host_header(Origin(scheme, authority): &Origin) -> &str {
    let implied = if *scheme == Scheme::HTTPS { 443 } else { 80 };
    if authority.port_u16() == Some(implied) {
        authority.host()
    } else {
        authority.as_str()
    }
}

/// The body of a response, as it comes. Once it was read to its end, its connection is used again; dropped before, it
/// closes the connection.
pub struct ResponseBody {
    incoming: Incoming,
    /// `None` once the connection is over, or is used again.
    connection: Option<OpenConnection>,
    home: Option<(Arc<Pool>, Origin)>,
}

impl fmt::Debug for ResponseBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.incoming.fmt(f)
    }
}

impl ResponseBody {
    /// Gives the connection back once it can take another request.
    fn release(&mut self) {
        let (Some(mut open), Some((pool, origin))) = (self.connection.take(), self.home.take())
        else {
            return;
        };
        // Outside of the runtime, at its end, nothing can wait.
        if Handle::try_current().is_err() {
            return;
        }
        // hyper notices the end of a message when it is polled. What happens on an idle connection wakes nobody.
        let mut cx = Context::from_waker(Waker::noop());
        match open.poll_reusable(&mut cx) {
            Poll::Ready(true) => pool.put(origin, open),
            Poll::Ready(false) => {}
            // The response came before the whole request was written. The server may answer once more when it has read
            // it, so no other request follows on this connection.
            Poll::Pending => pool.finish_in_background(async move {
                poll_fn(|cx| open.poll_reusable(cx)).await;
            }),
        }
    }

    /// Reads the rest of a response whose wanted part has come, so that its connection can be used again: at once if
    /// the rest is here, else in the background, within bounds.
    pub fn discard_rest(self) {
        let Some((pool, _)) = self.home.clone() else {
            return;
        };
        let mut rest = Box::pin(read_rest(self));
        let mut cx = Context::from_waker(Waker::noop());
        if rest.as_mut().poll(&mut cx).is_pending() {
            pool.finish_in_background(rest);
        }
    }
}

async fn read_rest(mut body: ResponseBody) {
    let mut left = REST_BYTES_MAX;
    while let Some(Ok(frame)) = poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await {
        let Some(less) = left.checked_sub(frame.data_ref().map_or(0, Bytes::len)) else {
            return;
        };
        left = less;
    }
}

impl Drop for ResponseBody {
    fn drop(&mut self) {
        // A body without bytes is rarely read.
        if self.incoming.is_end_stream() {
            self.release();
        }
    }
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let mut frame = Pin::new(&mut self.incoming).poll_frame(cx);
        if frame.is_pending()
            && let Some(open) = &mut self.connection
        {
            if open.moving.as_mut().poll(cx).is_ready() {
                self.connection = None;
            }
            frame = Pin::new(&mut self.incoming).poll_frame(cx);
        }
        if matches!(frame, Poll::Ready(None)) {
            self.release();
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.incoming.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.incoming.size_hint()
    }
}
