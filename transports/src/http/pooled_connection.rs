//! A pooled connection that is checked before each request: a server that closed it while it was idle gets no request that
//! it would never answer.
//!
//! The runtime may learn of a close later than the socket does. A request written in between would be lost, with an
//! unknown outcome.

use std::error::Error;
use std::fmt;
use std::io::{self, IoSlice};
use std::os::fd::AsRawFd;
use std::pin::Pin;
use std::task::{Context, Poll};

use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_rustls::MaybeHttpsStream;
use hyper_util::client::legacy::connect::{Connected, Connection};
use hyper_util::rt::TokioIo;
use nix::sys::socket::{MsgFlags, recv};
use tokio::net::TcpStream;

type Stream = MaybeHttpsStream<TokioIo<TcpStream>>;

/// A connection to a server, TLS included.
pub(super) struct PooledConnection {
    stream: Stream,
    /// Something was read: from now on there is silence between an answer and the next request.
    used: bool,
    /// Part of a request is written. A request is written at once, so a flush ends it.
    mid_request: bool,
    /// A proxy reads the requests, and needs the whole URL in each (RFC 9112, section 3.2.2).
    via_proxy: bool,
    /// Requests are concurrent: readable bytes do not concern the next one.
    shared: bool,
}

/// The error of a write on a connection that turned out to be closed.
#[derive(Debug)]
struct UnsentError;

impl fmt::Display for UnsentError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the server closed the idle connection")
    }
}

impl Error for UnsentError {}

/// Whether a request failed before it was written, so that it can be repeated.
pub(super) fn is_unsent(error: &(dyn Error + 'static)) -> bool {
    let io = error.downcast_ref::<io::Error>();
    match io.and_then(io::Error::get_ref) {
        Some(inner) => inner.is::<UnsentError>(),
        None => false,
    }
}

impl PooledConnection {
    pub(super) fn new(stream: Stream, shared: bool) -> Self {
        Self {
            stream,
            used: false,
            mid_request: false,
            via_proxy: false,
            shared,
        }
    }

    /// Marks the connection as one to a proxy that reads the requests.
    pub(super) fn with_proxy(self) -> Self {
        Self {
            via_proxy: true,
            ..self
        }
    }

    /// Whether its requests are read by a proxy.
    pub(super) fn is_via_proxy(&self) -> bool {
        self.via_proxy
    }

    /// Readable bytes before a request (a close, the end of TLS or a late error) mean that the server is done with this
    /// connection.
    fn check(&self) -> io::Result<()> {
        let tcp = match &self.stream {
            MaybeHttpsStream::Http(tcp) => tcp.inner(),
            MaybeHttpsStream::Https(tls) => tls.inner().get_ref().0.inner().inner(),
        };
        let peek = MsgFlags::MSG_PEEK | MsgFlags::MSG_DONTWAIT;
        match recv(tcp.as_raw_fd(), &mut [0], peek) {
            Err(nix::Error::EAGAIN | nix::Error::EINTR) => Ok(()),
            Ok(_) | Err(_) => Err(io::Error::other(UnsentError)),
        }
    }

    fn poll_write_with(
        &mut self,
        write: impl FnOnce(Pin<&mut Stream>) -> Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        if self.used && !self.mid_request && !self.shared {
            self.check()?;
        }
        let written = write(Pin::new(&mut self.stream));
        self.mid_request |= matches!(written, Poll::Ready(Ok(_)));
        written
    }
}

impl Read for PooledConnection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        let read = Pin::new(&mut self.stream).poll_read(cx, buffer);
        self.used |= matches!(read, Poll::Ready(Ok(())));
        read
    }
}

impl Write for PooledConnection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_write_with(|stream| stream.poll_write(cx, bytes))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.poll_write_with(|stream| stream.poll_write_vectored(cx, parts))
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(cx);
        self.mid_request &= !matches!(flushed, Poll::Ready(Ok(())));
        flushed
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

impl Connection for PooledConnection {
    fn connected(&self) -> Connected {
        self.stream.connected()
    }
}
