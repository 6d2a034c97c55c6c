//! One connection to a listener, from its first bytes to its end.

mod frame_budget;
pub(super) mod slots;

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use http::header::CONTENT_TYPE;
use http::{HeaderValue, Request, Response, StatusCode};
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulConnection;
use mgp_platform::peer;
use nix::sys::socket::{MsgFlags, recv};
use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, Interest};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use self::frame_budget::CountedFrames;
pub(crate) use self::slots::ConnectionAuth;
use self::slots::{ConnectionSlot, ConnectionSlots};
use super::body::{ReplyBody, RequestBody};
use super::certificate::Certificate;
use super::cors;
use super::guard::{AllowList, GuardRejection};
use super::listener_tls::{ListenerTls, SecuredStream};
use crate::stall::StallGuard;

/// The first bytes of every HTTP/2 connection, and of no HTTP/1 request.
const HTTP2: &[u8] = b"PRI";

/// The first byte of a TLS connection: the type of a handshake record.
const HANDSHAKE_RECORD: u8 = 0x16;

const PLAINTEXT_RESPONSE: &[u8] = b"HTTP/1.1 400 Bad Request\r\ncontent-type: text/plain\r\n\
    content-length: 43\r\nconnection: close\r\n\r\nthis door speaks TLS: begin with https://.\n";

/// How long an unencrypted client has to read the rejection.
const REJECT_TIMEOUT: Duration = Duration::from_secs(1);

/// Most bytes of one HTTP/1 connection that are buffered for parsing or sending: the bound for a slow client. A message
/// of 64 KiB, as long texts of models are, then takes one read and one write, and is not copied.
const HTTP1_BUFFER: usize = 128 << 10;

/// Most bytes of one HTTP/2 stream that are buffered for sending.
const HTTP2_SEND_BUFFER: usize = 64 << 10;

/// Concurrent requests on one HTTP/2 connection.
const MAX_STREAMS: u32 = 256;

/// After this long without a byte, keepalive probes are sent.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(60);

/// A peer that acknowledges nothing for this long is gone: its machine sleeps, or its cable is unplugged.
const PEER_TIMEOUT: Duration = Duration::from_secs(60);

/// The limits of a listener.
#[derive(Clone, Debug)]
pub struct ListenerLimits {
    /// Concurrent connections. A further one evicts the oldest unauthenticated connection, or otherwise one of the owner
    /// with the most; without a candidate it is rejected with 503.
    pub connections: usize,
    /// The time limit for the first head of a connection, or the preface and settings of HTTP/2.
    pub first_request: Duration,
    /// The time limit for the next head, silence included. A slow head holds no more than a silent connection does, so one
    /// deadline serves both.
    pub header_timeout: Duration,
    /// Longest head of a request, in bytes; a longer one is rejected with 431.
    pub header_bytes: usize,
    /// How long a client may leave bytes unread before it is dropped.
    pub stall: Duration,
    /// How long requests in flight may continue after the listener closes.
    pub grace: Duration,
}

impl Default for ListenerLimits {
    fn default() -> Self {
        Self {
            // 10,000 idle sessions, and capacity for calls.
            connections: 12_000,
            // The same as for a TLS handshake: a client connects in order to send a request.
            first_request: Duration::from_secs(10),
            // Common clients close an idle connection after 90 s or less: they close first, and no request meets a connection
            // that was just closed.
            header_timeout: Duration::from_secs(120),
            header_bytes: 32 * 1024,
            stall: Duration::from_secs(30),
            grace: Duration::from_secs(10),
        }
    }
}

/// The origin of a request.
#[derive(Clone, Debug)]
pub struct HttpPeer {
    /// The remote address.
    pub addr: SocketAddr,
    /// Its verified certificate, if the listener's TLS requests one.
    pub certificate: Option<Arc<Certificate>>,
    /// Receives the report that the client is authenticated.
    pub auth: ConnectionAuth,
}

/// The shared state of a listener's connections.
pub(super) struct ListenerContext<H> {
    limits: ListenerLimits,
    pub(super) slots: Arc<ConnectionSlots>,
    allow: AllowList,
    handler: H,
    pub(super) closing: CancellationToken,
    tls: Option<ListenerTls>,
    http1: http1::Builder,
    http2: http2::Builder<TokioExecutor>,
}

impl<H> ListenerContext<H> {
    pub(super) fn new(
        limits: ListenerLimits,
        allow: AllowList,
        handler: H,
        closing: CancellationToken,
        tls: Option<ListenerTls>,
    ) -> Self {
        let mut http1 = http1::Builder::new();
        http1
            .timer(TokioTimer::new())
            .header_read_timeout(limits.header_timeout)
            .max_header_size(limits.header_bytes)
            .max_buf_size(HTTP1_BUFFER);
        let mut http2 = http2::Builder::new(TokioExecutor::new());
        http2
            .timer(TokioTimer::new())
            .keep_alive_interval(KEEPALIVE_IDLE)
            .keep_alive_timeout(limits.stall)
            .max_concurrent_streams(MAX_STREAMS)
            .max_header_list_size(u32::try_from(limits.header_bytes).unwrap_or(u32::MAX))
            .max_send_buf_size(HTTP2_SEND_BUFFER);
        Self {
            slots: ConnectionSlots::new(limits.connections),
            limits,
            allow,
            handler,
            closing,
            tls,
            http1,
            http2,
        }
    }
}

/// Serves one connection until either side ends it, or it is evicted.
pub(super) async fn serve<H, F>(
    stream: TcpStream,
    addr: SocketAddr,
    listener: Arc<ListenerContext<H>>,
    slot: ConnectionSlot,
) where
    H: Fn(Request<RequestBody>, HttpPeer) -> F + Send + Sync + 'static,
    F: Future<Output = Response<ReplyBody>> + Send + 'static,
{
    let first = async {
        configure_socket(&stream)?;
        detect_protocol(&stream, listener.tls.is_some()).await
    };
    let detected = tokio::select! {
        biased;
        detected = timeout(listener.limits.first_request, first) => detected,
        () = listener.closing.cancelled() => return,
        () = slot.wait_evicted() => return,
    };
    let Ok(Ok(protocol)) = detected else { return };
    let peer = HttpPeer {
        addr,
        certificate: None,
        auth: slot.auth(),
    };
    match (protocol, &listener.tls) {
        // Both futures are large, and must not enlarge every other connection's task.
        (DetectedProtocol::Http2, _) => Box::pin(serve_http2(stream, peer, &listener, &slot)).await,
        (DetectedProtocol::Tls, Some(tls)) => {
            Box::pin(serve_tls(stream, peer, tls, &listener, &slot)).await;
        }
        (DetectedProtocol::Other, Some(_)) => reject_plaintext(stream).await,
        (DetectedProtocol::Tls | DetectedProtocol::Other, None) => {
            serve_http1(stream, peer, &listener, &slot).await;
        }
    }
}

async fn serve_http1<IO, H, F>(
    stream: IO,
    peer: HttpPeer,
    listener: &Arc<ListenerContext<H>>,
    slot: &ConnectionSlot,
) where
    IO: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    H: Fn(Request<RequestBody>, HttpPeer) -> F + Send + Sync + 'static,
    F: Future<Output = Response<ReplyBody>> + Send + 'static,
{
    let io = TokioIo::new(StallGuard::new(stream, listener.limits.stall));
    let service = service_fn(|request| handle_request(listener, request, peer.clone()));
    let never = CancellationToken::new();
    drive_connection(
        listener.http1.serve_connection(io, service),
        listener,
        slot,
        &never,
    )
    .await;
}

async fn serve_http2<IO, H, F>(
    stream: IO,
    peer: HttpPeer,
    listener: &Arc<ListenerContext<H>>,
    slot: &ConnectionSlot,
) where
    IO: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    H: Fn(Request<RequestBody>, HttpPeer) -> F + Send + Sync + 'static,
    F: Future<Output = Response<ReplyBody>> + Send + 'static,
{
    let stream = StallGuard::new(stream, listener.limits.stall);
    let spent = CancellationToken::new();
    let frames = CountedFrames::new(stream, slot.auth(), listener.limits.stall, spent.clone());
    let io = TokioIo::new(frames);
    let listener_context = Arc::clone(listener);
    let service =
        service_fn(move |request| handle_request(&listener_context, request, peer.clone()));
    drive_connection(
        listener.http2.serve_connection(io, service),
        listener,
        slot,
        &spent,
    )
    .await;
}

async fn serve_tls<H, F>(
    stream: TcpStream,
    peer: HttpPeer,
    tls: &ListenerTls,
    listener: &Arc<ListenerContext<H>>,
    slot: &ConnectionSlot,
) where
    H: Fn(Request<RequestBody>, HttpPeer) -> F + Send + Sync + 'static,
    F: Future<Output = Response<ReplyBody>> + Send + 'static,
{
    let handshake = tokio::select! {
        biased;
        handshake = tls.accept(stream) => handshake,
        () = listener.closing.cancelled() => return,
        () = slot.wait_evicted() => return,
    };
    let Some(SecuredStream {
        stream,
        certificate,
        http2,
    }) = handshake
    else {
        return;
    };
    let peer = HttpPeer {
        certificate,
        ..peer
    };
    if http2 {
        serve_http2(stream, peer, listener, slot).await
    } else {
        serve_http1(stream, peer, listener, slot).await
    }
}

/// Tells an unencrypted client to use TLS. Reads its bytes first, because its kernel would discard the answer on our
/// reset.
async fn reject_plaintext(mut stream: TcpStream) {
    let response = async {
        stream.write_all(PLAINTEXT_RESPONSE).await?;
        stream.shutdown().await?;
        let mut rest = [0; 1024];
        while stream.read(&mut rest).await? > 0 {}
        io::Result::Ok(())
    };
    let _ = timeout(REJECT_TIMEOUT, response).await;
}

fn configure_socket(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let socket = SockRef::from(stream);
    socket.set_tcp_keepalive(&TcpKeepalive::new().with_time(KEEPALIVE_IDLE))?;
    peer::limit_silence(stream, PEER_TIMEOUT)
}

/// The protocol of a connection by its first bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DetectedProtocol {
    Tls,
    Http2,
    Other,
}

/// Peeks at the first bytes.
async fn detect_protocol(stream: &TcpStream, tls: bool) -> io::Result<DetectedProtocol> {
    let peek = || {
        let mut first = [0; HTTP2.len()];
        let len = recv(stream.as_raw_fd(), &mut first, MsgFlags::MSG_PEEK)?;
        if tls {
            return Ok(match first[0] {
                HANDSHAKE_RECORD => DetectedProtocol::Tls,
                _ => DetectedProtocol::Other,
            });
        }
        let undecided = 0 < len && len < HTTP2.len() && HTTP2.starts_with(&first[..len]);
        // With this error, the runtime wakes us when there is more, not when there is any.
        if undecided {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        Ok(if first[..len] == *HTTP2 {
            DetectedProtocol::Http2
        } else {
            DetectedProtocol::Other
        })
    };
    loop {
        let ready = stream.ready(Interest::READABLE).await?;
        match stream.try_io(Interest::READABLE, peek) {
            // No more bytes follow: this is the start of neither, which HTTP/1 rejects.
            Err(e) if e.kind() == io::ErrorKind::WouldBlock && ready.is_read_closed() => {
                return Ok(DetectedProtocol::Other);
            }
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
            decided => return decided,
        }
    }
}

/// Checks a request, passes it to the handler, and ties a long-lived reply to the listener.
fn handle_request<H, F>(
    listener: &Arc<ListenerContext<H>>,
    request: Request<Incoming>,
    peer: HttpPeer,
) -> impl Future<Output = Result<Response<ReplyBody>, Infallible>> + use<H, F>
where
    H: Fn(Request<RequestBody>, HttpPeer) -> F,
    F: Future<Output = Response<ReplyBody>>,
{
    let request_use = peer.auth.begin_request();
    let request = request.map(RequestBody::from);
    let allow = &listener.allow;
    let page = allow.configured_origin(request.headers());
    let handled = match allow.check(request.uri(), request.headers()) {
        Ok(()) => match page
            .as_ref()
            .and_then(|_| cors::preflight_response(&request))
        {
            Some(preflight) => Err(preflight),
            // A handler's future has some kilobytes, and would be copied at each step on its way to the connection.
            None => Ok(Box::pin((listener.handler)(request, peer))),
        },
        Err(denied) => Err(forbidden_response(&denied)),
    };
    let listener = Arc::clone(listener);
    async move {
        let mut response = match handled {
            Ok(handled) => handled.await,
            Err(answered) => answered,
        };
        if let Some(origin) = page {
            cors::allow_origin(&mut response, origin);
        }
        let body = response.body_mut();
        body.close_with(&listener.closing);
        body.attach_request(request_use);
        Ok(response)
    }
}

fn forbidden_response(denied: &GuardRejection) -> Response<ReplyBody> {
    let mut response = Response::new(ReplyBody::full(format!("{denied}\n")));
    *response.status_mut() = StatusCode::FORBIDDEN;
    let plain = HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(CONTENT_TYPE, plain);
    response
}

/// Runs a connection to its end. When the listener closes, it accepts no new request, and requests in flight have the
/// grace period to finish. An HTTP/2 connection whose frames carry nothing, or that does not read its answers, gets a
/// GOAWAY and is closed.
async fn drive_connection<C: GracefulConnection, H>(
    connection: C,
    listener: &ListenerContext<H>,
    slot: &ConnectionSlot,
    spent: &CancellationToken,
) where
    C::Error: std::fmt::Display,
{
    let mut connection = pin!(connection);
    let silent = async {
        tokio::time::sleep(listener.limits.first_request).await;
        if slot.has_handshaken() {
            std::future::pending::<()>().await;
        }
    };
    let ended = tokio::select! {
        // Polled first: a reply that is just being written then announces that it is the last one.
        biased;
        () = listener.closing.cancelled() => {
            connection.as_mut().graceful_shutdown();
            timeout(listener.limits.grace, connection).await.ok()
        }
        () = slot.wait_evicted() => None,
        ended = connection.as_mut() => Some(ended),
        () = spent.cancelled() => {
            tracing::debug!("a connection of HTTP/2 sent too many empty frames, or read nothing");
            connection.as_mut().graceful_shutdown();
            timeout(REJECT_TIMEOUT, connection).await.ok()
        }
        () = silent => None,
    };
    if let Some(Err(e)) = ended {
        tracing::debug!("connection ended: {e}");
    }
}
