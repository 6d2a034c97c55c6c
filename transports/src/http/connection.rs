//! One connection to a door, from its first bytes to its end.

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
use nix::sys::socket::{MsgFlags, recv};
use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, Interest};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use self::frame_budget::CountedFrames;
pub use self::slots::ConnectionAuth;
use self::slots::{ConnectionSlot, ConnectionSlots};
use super::body::{ReplyBody, RequestBody};
use super::certificate::Certificate;
use super::guard::{AllowList, GuardRejection};
use super::listener_tls::{ListenerTls, SecuredStream};
use crate::stall::StallGuard;

/// What no HTTP/1 request begins with, and every HTTP/2 connection does.
const HTTP2: &[u8] = b"PRI";

/// What a TLS connection begins with: the type of a handshake record.
const HANDSHAKE_RECORD: u8 = 0x16;

const PLAINTEXT_RESPONSE: &[u8] = b"HTTP/1.1 400 Bad Request\r\ncontent-type: text/plain\r\n\
    content-length: 43\r\nconnection: close\r\n\r\nthis door speaks TLS: begin with https://.\n";

/// How long one who speaks in the clear has to take that news.
const REJECT_TIMEOUT: Duration = Duration::from_secs(1);

/// Most bytes of one connection that wait to be parsed or to be sent: a slow client holds no more.
const BUFFERED: usize = 64 * 1024;

/// Requests at a time on one HTTP/2 connection.
const MAX_STREAMS: u32 = 256;

/// After this long without a byte we ask whether the peer is still there.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(60);

/// A peer that acknowledges nothing for this long is gone: its machine sleeps, or its cable is out.
const PEER_TIMEOUT: Duration = Duration::from_secs(60);

/// What a door allows its callers.
#[derive(Clone, Debug)]
pub struct ListenerLimits {
    /// Connections at a time. For one more the oldest goes on which nobody showed who it is, or else one of
    /// whoever has most; without any, the next one is told 503 and closed.
    pub connections: usize,
    /// How long a connection may take until its first head, or the preface and settings of HTTP/2, is there.
    pub first_request: Duration,
    /// How long a connection may take until the next head is there, silence included. A slow head
    /// holds no more than a silent connection does, so one deadline serves both.
    pub header_timeout: Duration,
    /// Longest head of a request, in bytes; a longer one is told 431.
    pub header_bytes: usize,
    /// How long a client may leave bytes untaken before it is dropped.
    pub stall: Duration,
    /// How long requests in flight may go on after the door closes.
    pub grace: Duration,
}

impl Default for ListenerLimits {
    fn default() -> Self {
        Self {
            // 10,000 idle sessions, and room for the calls beside them.
            connections: 12_000,
            // As long as a TLS handshake may take: a client connects because it has something to say.
            first_request: Duration::from_secs(10),
            // Common clients give an idle connection up after 90 s or less: they close first, and
            // no request meets a connection that was just closed.
            header_timeout: Duration::from_secs(120),
            header_bytes: 32 * 1024,
            stall: Duration::from_secs(30),
            grace: Duration::from_secs(10),
        }
    }
}

/// Where a request comes from.
#[derive(Clone, Debug)]
pub struct HttpPeer {
    /// The other end.
    pub addr: SocketAddr,
    /// What it showed, where the door's TLS asks for it: good, and signed by whom the door trusts.
    pub certificate: Option<Arc<Certificate>>,
    /// Where to report that it has shown who it is.
    pub auth: ConnectionAuth,
}

/// What the connections of a door share.
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
            .max_buf_size(BUFFERED);
        let mut http2 = http2::Builder::new(TokioExecutor::new());
        http2
            .timer(TokioTimer::new())
            .keep_alive_interval(KEEPALIVE_IDLE)
            .keep_alive_timeout(limits.stall)
            .max_concurrent_streams(MAX_STREAMS)
            .max_header_list_size(u32::try_from(limits.header_bytes).unwrap_or(u32::MAX))
            .max_send_buf_size(BUFFERED);
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

/// Serves one connection until either side ends it, or its place is needed for another one.
pub(super) async fn serve<H, F>(
    stream: TcpStream,
    addr: SocketAddr,
    hall: Arc<ListenerContext<H>>,
    place: ConnectionSlot,
) where
    H: Fn(Request<RequestBody>, HttpPeer) -> F + Send + Sync + 'static,
    F: Future<Output = Response<ReplyBody>> + Send + 'static,
{
    let first = async {
        configure_socket(&stream)?;
        detect_protocol(&stream, hall.tls.is_some()).await
    };
    let opened = tokio::select! {
        biased;
        opened = timeout(hall.limits.first_request, first) => opened,
        () = hall.closing.cancelled() => return,
        () = place.wait_evicted() => return,
    };
    let Ok(Ok(opening)) = opened else { return };
    let peer = HttpPeer {
        addr,
        certificate: None,
        auth: place.auth(),
    };
    match (opening, &hall.tls) {
        // Both are large: they are not to make every other connection's task larger.
        (DetectedProtocol::Http2, _) => Box::pin(serve_http2(stream, peer, &hall, &place)).await,
        (DetectedProtocol::Tls, Some(tls)) => {
            Box::pin(serve_tls(stream, peer, tls, &hall, &place)).await;
        }
        (DetectedProtocol::Other, Some(_)) => reject_plaintext(stream).await,
        (DetectedProtocol::Tls | DetectedProtocol::Other, None) => {
            serve_http1(stream, peer, &hall, &place).await;
        }
    }
}

async fn serve_http1<IO, H, F>(
    stream: IO,
    peer: HttpPeer,
    hall: &Arc<ListenerContext<H>>,
    place: &ConnectionSlot,
) where
    IO: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    H: Fn(Request<RequestBody>, HttpPeer) -> F + Send + Sync + 'static,
    F: Future<Output = Response<ReplyBody>> + Send + 'static,
{
    let io = TokioIo::new(StallGuard::new(stream, hall.limits.stall));
    let service = service_fn(|request| handle_request(hall, request, peer.clone()));
    let never = CancellationToken::new();
    drive_connection(
        hall.http1.serve_connection(io, service),
        hall,
        place,
        &never,
    )
    .await;
}

async fn serve_http2<IO, H, F>(
    stream: IO,
    peer: HttpPeer,
    hall: &Arc<ListenerContext<H>>,
    place: &ConnectionSlot,
) where
    IO: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    H: Fn(Request<RequestBody>, HttpPeer) -> F + Send + Sync + 'static,
    F: Future<Output = Response<ReplyBody>> + Send + 'static,
{
    let stream = StallGuard::new(stream, hall.limits.stall);
    let spent = CancellationToken::new();
    let frames = CountedFrames::new(stream, place.auth(), hall.limits.stall, spent.clone());
    let io = TokioIo::new(frames);
    let asked = Arc::clone(hall);
    let service = service_fn(move |request| handle_request(&asked, request, peer.clone()));
    drive_connection(
        hall.http2.serve_connection(io, service),
        hall,
        place,
        &spent,
    )
    .await;
}

async fn serve_tls<H, F>(
    stream: TcpStream,
    peer: HttpPeer,
    tls: &ListenerTls,
    hall: &Arc<ListenerContext<H>>,
    place: &ConnectionSlot,
) where
    H: Fn(Request<RequestBody>, HttpPeer) -> F + Send + Sync + 'static,
    F: Future<Output = Response<ReplyBody>> + Send + 'static,
{
    let shaken = tokio::select! {
        biased;
        shaken = tls.accept(stream) => shaken,
        () = hall.closing.cancelled() => return,
        () = place.wait_evicted() => return,
    };
    let Some(SecuredStream {
        stream,
        certificate,
        http2,
    }) = shaken
    else {
        return;
    };
    let peer = HttpPeer {
        certificate,
        ..peer
    };
    if http2 {
        serve_http2(stream, peer, hall, place).await
    } else {
        serve_http1(stream, peer, hall, place).await
    }
}

/// Says to one who speaks in the clear how to speak. What it sent is read, or its kernel would throw
/// the words away on our reset.
async fn reject_plaintext(mut stream: TcpStream) {
    let said = async {
        stream.write_all(PLAINTEXT_RESPONSE).await?;
        stream.shutdown().await?;
        let mut rest = [0; 1024];
        while stream.read(&mut rest).await? > 0 {}
        io::Result::Ok(())
    };
    let _ = timeout(REJECT_TIMEOUT, said).await;
}

fn configure_socket(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let socket = SockRef::from(stream);
    socket.set_tcp_keepalive(&TcpKeepalive::new().with_time(KEEPALIVE_IDLE))?;
    #[cfg(any(target_os = "linux", target_os = "android"))]
    socket.set_tcp_user_timeout(Some(PEER_TIMEOUT))?;
    Ok(())
}

/// What a connection opens with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DetectedProtocol {
    Tls,
    Http2,
    Other,
}

/// Looks at the first bytes and leaves them where they are.
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
        // Said in these words, the runtime wakes us when there is more, not when there is any.
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
            // It will never be more: a beginning of neither, which HTTP/1 turns away.
            Err(e) if e.kind() == io::ErrorKind::WouldBlock && ready.is_read_closed() => {
                return Ok(DetectedProtocol::Other);
            }
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
            decided => return decided,
        }
    }
}

/// Judges a request, has it handled, and ties a standing reply to the door.
fn handle_request<H, F>(
    hall: &Arc<ListenerContext<H>>,
    request: Request<Incoming>,
    peer: HttpPeer,
) -> impl Future<Output = Result<Response<ReplyBody>, Infallible>> + use<H, F>
where
    H: Fn(Request<RequestBody>, HttpPeer) -> F,
    F: Future<Output = Response<ReplyBody>>,
{
    let request_use = peer.auth.begin_request();
    let request = request.map(RequestBody::from);
    let handled = hall
        .allow
        .check(request.uri(), request.headers())
        .map(|()| (hall.handler)(request, peer));
    let hall = Arc::clone(hall);
    async move {
        let mut response = match handled {
            Ok(handled) => handled.await,
            Err(denied) => forbidden_response(&denied),
        };
        let body = response.body_mut();
        body.close_with(&hall.closing);
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

/// Runs a connection to its end. When the door closes it takes no new request, and what is in
/// flight has the grace to finish; one of HTTP/2 whose frames carry nothing, or that gives its answers no
/// room, is told to go and closed.
async fn drive_connection<C: GracefulConnection, H>(
    connection: C,
    hall: &ListenerContext<H>,
    place: &ConnectionSlot,
    spent: &CancellationToken,
) where
    C::Error: std::fmt::Display,
{
    let mut connection = pin!(connection);
    let silent = async {
        tokio::time::sleep(hall.limits.first_request).await;
        if place.has_handshaken() {
            std::future::pending::<()>().await;
        }
    };
    let ended = tokio::select! {
        // Asked first: a reply that is just being written then says that it is the last one.
        biased;
        () = hall.closing.cancelled() => {
            connection.as_mut().graceful_shutdown();
            timeout(hall.limits.grace, connection).await.ok()
        }
        () = place.wait_evicted() => None,
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
