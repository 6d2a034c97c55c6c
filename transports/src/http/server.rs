//! A door: accepts connections and hands their requests on.

use std::future::Future;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
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
pub use super::connection::{ConnectionAuth, HttpPeer, ListenerLimits};
use super::guard::AllowList;
use super::listener_tls::ListenerTls;

/// Connections the kernel may hold ready for us; a burst of agents that start together fits.
const BACKLOG: u32 = 4096;

/// How many connections are told at a time that there is no room; more are closed without a word.
const MAX_REJECTIONS: usize = 64;

/// How long a connection that is turned away has to take the news.
const REJECT_TIMEOUT: Duration = Duration::from_secs(1);

/// How long to wait when the machine is out of descriptors or memory.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(100);

const OVERLOAD_RESPONSE: &[u8] =
    b"HTTP/1.1 503 Service Unavailable\r\ncontent-type: text/plain\r\n\
    content-length: 22\r\nretry-after: 1\r\nconnection: close\r\n\r\ntoo many connections.\n";

/// A bound address that nobody answers at yet.
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
    /// What the kernel says: the address is in use, is not ours, or needs a privilege.
    pub fn bind(addr: SocketAddr) -> io::Result<Self> {
        let socket = match addr {
            SocketAddr::V4(_) => TcpSocket::new_v4()?,
            SocketAddr::V6(_) => TcpSocket::new_v6()?,
        };
        socket.set_reuseaddr(true)?;
        socket.bind(addr)?;
        let listener = socket.listen(BACKLOG)?;
        let addr = listener.local_addr()?;
        Ok(Self {
            listener,
            addr,
            tls: None,
        })
    }

    /// Speaks TLS only.
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

    /// What is bound at this address, as programs of this machine reach it: nobody can be asked at the address of all
    /// networks.
    #[must_use]
    pub fn reachable_address(bound: SocketAddr) -> SocketAddr {
        let ip = match bound.ip() {
            IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
            IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
            ip @ (IpAddr::V4(_) | IpAddr::V6(_)) => ip,
        };
        SocketAddr::new(ip, bound.port())
    }

    /// Serves HTTP/1.1, and HTTP/2 to those who open with it or, behind TLS, choose it, until `closing`; then
    /// ends standing streams, lets requests in flight finish within the grace, and returns.
    ///
    /// A handler's future is dropped when its client goes away.
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
        let visits = TaskTracker::new();
        let porch = Arc::new(Semaphore::new(MAX_REJECTIONS));
        let grace = limits.grace;
        let hall = Arc::new(ListenerContext::new(
            limits,
            allow,
            handler,
            closing,
            self.tls.clone(),
        ));
        while let Some((stream, peer)) = self.accept(&hall.closing).await {
            match hall.slots.acquire() {
                Some(place) => {
                    let visit = connection::serve(stream, peer, Arc::clone(&hall), place);
                    visits.spawn(visit);
                }
                // In the clear, nothing could be told to one who speaks TLS.
                None if self.tls.is_some() => drop(stream),
                None => reject_connection(stream, &porch),
            }
        }
        drop(self.listener);
        visits.close();
        // Every connection keeps the grace itself; one that cannot is not worth waiting for.
        let _ = timeout(grace + REJECT_TIMEOUT, visits.wait()).await;
    }

    /// The next connection; `None` once the door closes.
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

/// True when only this one connection failed, before it was accepted.
fn is_peer_error(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(
        error.kind(),
        ConnectionAborted | ConnectionRefused | ConnectionReset
    )
}

async fn run_with_permit(place: OwnedSemaphorePermit, visit: impl Future<Output = ()>) {
    visit.await;
    drop(place);
}

/// Says that there is no room. What the client already sent is read, or its kernel would throw the
/// reply away on our reset.
fn reject_connection(mut stream: TcpStream, porch: &Arc<Semaphore>) {
    let Ok(place) = Arc::clone(porch).try_acquire_owned() else {
        return;
    };
    let farewell = async move {
        stream.write_all(OVERLOAD_RESPONSE).await?;
        stream.shutdown().await?;
        let mut rest = [0; 1024];
        while stream.read(&mut rest).await? > 0 {}
        io::Result::Ok(())
    };
    tokio::spawn(run_with_permit(place, async {
        let _ = timeout(REJECT_TIMEOUT, farewell).await;
    }));
}
