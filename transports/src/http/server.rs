//! A door: accepts connections and hands their requests on.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http::{Request, Response};
use hyper::body::Incoming;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::body::ReplyBody;
use super::certificate::Certificate;
use super::connection::{self, Hall};
use super::door_tls::DoorTls;
use super::guard::Allow;

/// Connections the kernel may hold ready for us; a burst of agents that start together fits.
const BACKLOG: u32 = 4096;

/// How many connections are told at a time that there is no room; more are closed without a word.
const TURNED_AWAY: usize = 64;

/// How long a connection that is turned away has to take the news.
const FAREWELL: Duration = Duration::from_secs(1);

/// How long to wait when the machine is out of descriptors or memory.
const BREATHER: Duration = Duration::from_millis(100);

const NO_ROOM: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\ncontent-type: text/plain\r\n\
    content-length: 22\r\nretry-after: 1\r\nconnection: close\r\n\r\ntoo many connections.\n";

/// What a door allows its callers.
#[derive(Clone, Debug)]
pub struct DoorLimits {
    /// Connections at a time; the next one is told 503 and closed.
    pub connections: usize,
    /// How long a connection may take until the next head is there, silence included. A slow head
    /// holds no more than a silent connection does, so one deadline serves both.
    pub head: Duration,
    /// Longest head of a request, in bytes; a longer one is told 431.
    pub head_bytes: usize,
    /// How long a client may leave bytes untaken before it is dropped.
    pub stall: Duration,
    /// How long requests in flight may go on after the door closes.
    pub grace: Duration,
}

impl Default for DoorLimits {
    fn default() -> Self {
        Self {
            // 10,000 idle sessions, and room for the calls beside them.
            connections: 12_000,
            // Common clients give an idle connection up after 90 s or less: they close first, and
            // no request meets a connection that was just closed.
            head: Duration::from_secs(120),
            head_bytes: 32 * 1024,
            stall: Duration::from_secs(30),
            grace: Duration::from_secs(10),
        }
    }
}

/// Where a request comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpPeer {
    /// The other end.
    pub addr: SocketAddr,
    /// What it showed, where the door's TLS asks for it: good, and signed by whom the door trusts.
    pub certificate: Option<Arc<Certificate>>,
}

/// A bound address that nobody answers at yet.
#[derive(Debug)]
pub struct Door {
    listener: TcpListener,
    addr: SocketAddr,
    tls: Option<DoorTls>,
}

impl Door {
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
    pub fn secured(mut self, tls: Option<DoorTls>) -> Self {
        self.tls = tls;
        self
    }

    /// The address that was bound.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Serves HTTP/1.1, and where there is no TLS HTTP/2 to those who open with it, until `closing`; then
    /// ends standing streams, lets requests in flight finish within the grace, and returns.
    ///
    /// A handler's future is dropped when its client goes away.
    pub async fn serve<H, F>(
        self,
        limits: DoorLimits,
        allow: Allow,
        handler: H,
        closing: CancellationToken,
    ) where
        H: Fn(Request<Incoming>, HttpPeer) -> F + Send + Sync + 'static,
        F: Future<Output = Response<ReplyBody>> + Send + 'static,
    {
        let places = u32::try_from(limits.connections).unwrap_or(u32::MAX);
        let room = Arc::new(Semaphore::new(places as usize));
        let porch = Arc::new(Semaphore::new(TURNED_AWAY));
        let grace = limits.grace;
        let hall = Arc::new(Hall::new(limits, allow, handler, closing, self.tls.clone()));
        while let Some((stream, peer)) = self.next(&hall.closing).await {
            match Arc::clone(&room).try_acquire_owned() {
                Ok(place) => {
                    let visit = connection::serve(stream, peer, Arc::clone(&hall));
                    tokio::spawn(keep(place, visit));
                }
                // In the clear, nothing could be told to one who speaks TLS.
                Err(_) if self.tls.is_some() => drop(stream),
                Err(_) => turn_away(stream, &porch),
            }
        }
        drop(self.listener);
        // Every connection keeps the grace itself; one that cannot is not worth waiting for.
        let _ = timeout(grace + FAREWELL, room.acquire_many(places)).await;
    }

    /// The next connection; `None` once the door closes.
    async fn next(&self, closing: &CancellationToken) -> Option<(TcpStream, SocketAddr)> {
        loop {
            let accepted = tokio::select! {
                biased;
                () = closing.cancelled() => return None,
                accepted = self.listener.accept() => accepted,
            };
            match accepted {
                Ok(accepted) => return Some(accepted),
                Err(e) if is_the_peer_s(&e) => {}
                Err(e) => {
                    tracing::warn!("{} accepts nobody: {e}", self.addr);
                    let _ = timeout(BREATHER, closing.cancelled()).await;
                }
            }
        }
    }
}

/// True when only this one connection failed, before it was accepted.
fn is_the_peer_s(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(
        error.kind(),
        ConnectionAborted | ConnectionRefused | ConnectionReset
    )
}

async fn keep(place: OwnedSemaphorePermit, visit: impl Future<Output = ()>) {
    visit.await;
    drop(place);
}

/// Says that there is no room. What the client already sent is read, or its kernel would throw the
/// reply away on our reset.
fn turn_away(mut stream: TcpStream, porch: &Arc<Semaphore>) {
    let Ok(place) = Arc::clone(porch).try_acquire_owned() else {
        return;
    };
    let farewell = async move {
        stream.write_all(NO_ROOM).await?;
        stream.shutdown().await?;
        let mut rest = [0; 1024];
        while stream.read(&mut rest).await? > 0 {}
        io::Result::Ok(())
    };
    tokio::spawn(keep(place, async {
        let _ = timeout(FAREWELL, farewell).await;
    }));
}
