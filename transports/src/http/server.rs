//! A listener: accepts connections and passes their requests to a handler.

use std::future::Future;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use http::{Request, Response};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::body::{ReplyBody, RequestBody};
use super::connection::{self, ListenerContext};
pub use super::connection::{HttpPeer, ListenerLimits};
use super::guard::AllowList;
use super::listener_tls::ListenerTls;

/// Connections that wait to be accepted; a burst of agents that start together fits.
const BACKLOG: u32 = 4096;

/// Concurrent rejections with an answer; further connections are closed without one.
const MAX_REJECTIONS: usize = 64;

/// How long a rejected connection has to read the answer.
const REJECT_TIMEOUT: Duration = Duration::from_secs(1);

/// The delay when the machine is out of descriptors or memory.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(100);

const OVERLOAD_RESPONSE: &[u8] =
    b"HTTP/1.1 503 Service Unavailable\r\ncontent-type: text/plain\r\n\
    content-length: 22\r\nretry-after: 1\r\nconnection: close\r\n\r\ntoo many connections.\n";

/// A bound address that is not served yet.
#[derive(Debug)]
pub struct HttpListener {
    listener: TcpListener,
    addr: SocketAddr,
    tls: Option<ListenerTls>,
}

impl HttpListener {
    /// Binds the address; port 0 picks a free one.
    ///
    /// # Errors
    /// The system's error: the address is in use, is not ours, or needs a privilege.
    pub fn bind(addr: SocketAddr) -> io::Result<Self> {
        let socket = match addr {
            SocketAddr::V4(_) => TcpSocket::new_v4()?,
            SocketAddr::V6(_) => TcpSocket::new_v6()?,
        };
        socket.set_reuseaddr(true)?;
        socket.bind(addr)?;
        Self::new(socket.listen(BACKLOG)?)
    }

    /// Serves at a listener of the process before this one.
    ///
    /// # Errors
    /// The system's.
    pub fn adopt(listener: std::net::TcpListener) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        Self::new(TcpListener::from_std(listener)?)
    }

    fn new(listener: TcpListener) -> io::Result<Self> {
        let addr = listener.local_addr()?;
        Ok(Self {
            listener,
            addr,
            tls: None,
        })
    }

    /// The listener's descriptor, with which connections wait while nobody serves them.
    ///
    /// # Errors
    /// The system's.
    pub fn try_clone_descriptor(&self) -> io::Result<OwnedFd> {
        self.listener.as_fd().try_clone_to_owned()
    }

    /// Uses TLS only.
    #[must_use]
    pub fn with_tls(mut self, tls: Option<ListenerTls>) -> Self {
        self.tls = tls;
        self
    }

    /// The address that was bound.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// The address at which programs of this machine reach a bound one: the unspecified address cannot be connected to.
    #[must_use]
    pub fn reachable_address(bound: SocketAddr) -> SocketAddr {
        let ip = match bound.ip() {
            IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
            IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
            ip @ (IpAddr::V4(_) | IpAddr::V6(_)) => ip,
        };
        SocketAddr::new(ip, bound.port())
    }

    /// Serves HTTP/1.1, and HTTP/2 with prior knowledge or, with TLS, by ALPN, until `closing`; then ends long-lived streams,
    /// lets requests in flight finish within the grace period, and returns.
    ///
    /// A handler's future is dropped when its client disconnects.
    pub async fn serve<H, F>(
        self,
        limits: ListenerLimits,
        allow: AllowList,
        handler: H,
        closing: CancellationToken,
    ) where
        H: Fn(Request<RequestBody>, HttpPeer) -> F + Send + Sync + 'static,
        F: Future<Output = Response<ReplyBody>> + Send + 'static,
    {
        let connections = TaskTracker::new();
        let rejection_permits = Arc::new(Semaphore::new(MAX_REJECTIONS));
        let grace = limits.grace;
        let context = Arc::new(ListenerContext::new(
            limits,
            allow,
            handler,
            closing,
            self.tls.clone(),
        ));
        while let Some((stream, peer)) = self.accept(&context.closing).await {
            match context.slots.acquire() {
                Some(slot) => {
                    let connection = connection::serve(stream, peer, Arc::clone(&context), slot);
                    connections.spawn(connection);
                }
                // A TLS client could not read an unencrypted answer.
                None if self.tls.is_some() => drop(stream),
                None => reject_connection(stream, &rejection_permits),
            }
        }
        drop(self.listener);
        connections.close();
        // Every connection applies the grace period itself; the timeout is for one that hangs.
        let _ = timeout(grace + REJECT_TIMEOUT, connections.wait()).await;
    }

    /// The next connection; `None` once the listener closes.
    async fn accept(&self, closing: &CancellationToken) -> Option<(TcpStream, SocketAddr)> {
        loop {
            let accepted = tokio::select! {
                biased;
                () = closing.cancelled() => return None,
                accepted = self.listener.accept() => accepted,
            };
            match accepted {
                Ok(accepted) => return Some(accepted),
                Err(e) if is_peer_error(&e) => {}
                Err(e) => {
                    tracing::warn!("{} accepts nobody: {e}", self.addr);
                    let _ = timeout(ACCEPT_RETRY_DELAY, closing.cancelled()).await;
                }
            }
        }
    }
}

/// Whether only this one connection failed, before it was accepted.
fn is_peer_error(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(
        error.kind(),
        ConnectionAborted | ConnectionRefused | ConnectionReset
    )
}

async fn run_with_permit(slot: OwnedSemaphorePermit, connection: impl Future<Output = ()>) {
    connection.await;
    drop(slot);
}

/// Rejects a connection at the limit. Reads its bytes first, because its kernel would discard the reply on our reset.
fn reject_connection(mut stream: TcpStream, rejection_permits: &Arc<Semaphore>) {
    let Ok(slot) = Arc::clone(rejection_permits).try_acquire_owned() else {
        return;
    };
    let rejection = async move {
        stream.write_all(OVERLOAD_RESPONSE).await?;
        stream.shutdown().await?;
        let mut rest = [0; 1024];
        while stream.read(&mut rest).await? > 0 {}
        io::Result::Ok(())
    };
    tokio::spawn(run_with_permit(slot, async {
        let _ = timeout(REJECT_TIMEOUT, rejection).await;
    }));
}
