//! Connects to an upstream server: name resolution, TCP, TLS.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use http::Uri;
use http::uri::Scheme;
use hyper_rustls::MaybeHttpsStream;
use hyper_util::rt::TokioIo;
use mgp_platform::peer;
use rustls::pki_types::ServerName;
use socket2::{SockRef, TcpKeepalive};
use tokio::net::{TcpStream, lookup_host};
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsConnector;
use tower_service::Service;

use super::address_scope::AddressScope;
use super::pooled_connection::PooledConnection;
use super::proxy::{Outbound, ProxyAddress, open_tunnel};
use super::tls::RootsError;

/// The time limit for all steps.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// How long an address is tried before the next one is tried in parallel (RFC 8305).
const HEAD_START: Duration = Duration::from_millis(250);

/// Most addresses of one name that are tried.
const ADDRESSES: usize = 8;

/// After this long without a byte keepalive probes are sent, and as long is waited for an answer.
const SILENCE: Duration = Duration::from_secs(60);

/// Why there is no connection to a server.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DialError {
    /// Nothing listens there.
    #[error("connection refused at {at}: is the server running?")]
    Refused {
        /// The server, `host:port`.
        at: String,
    },
    /// The name has no address.
    #[error("the host name of {at} could not be resolved: {why}")]
    Unresolved {
        /// The server, `host:port`.
        at: String,
        /// The resolver's error.
        why: String,
    },
    /// Its addresses are outside of the allowed scope.
    #[error(
        "{at} is on this machine or in a private network, where nobody but your own configuration may lead"
    )]
    OutOfScope {
        /// The server, `host:port`.
        at: String,
    },
    /// The network has no route.
    #[error("{at} could not be reached: {why}")]
    Unreachable {
        /// The server, `host:port`.
        at: String,
        /// The system's error.
        why: String,
    },
    /// The TLS handshake failed: an unknown authority, another name, no TLS at all.
    #[error("TLS with {at} failed: {why}")]
    Tls {
        /// The server, `host:port`.
        at: String,
        /// The error of the handshake or the certificate.
        why: String,
    },
    /// There are no authorities to verify a certificate with.
    #[error(transparent)]
    Roots(#[from] RootsError),
    /// The proxy does not connect.
    #[error("the proxy {proxy} is of no use: {why}")]
    Proxy {
        /// The proxy, without credentials.
        proxy: String,
        /// The proxy's answer or error.
        why: String,
    },
    /// A name from a document cannot be resolved here, so its address cannot be checked before a proxy connects to it.
    #[error(
        "the host name of {at} could not be resolved here, so nobody knows where the proxy would lead; where its address is yours to name, write it into the entry"
    )]
    UnresolvedForProxy {
        /// The server, `host:port`.
        at: String,
    },
    /// No address answered in time.
    #[error("{at} did not take the connection within {within:?}")]
    TimedOut {
        /// The server, `host:port`.
        at: String,
        /// The time limit.
        within: Duration,
    },
}

/// Opens connections for the pool.
#[derive(Clone, Debug)]
pub(super) struct Dial {
    pub(super) outbound: Outbound,
    pub(super) scope: AddressScope,
    /// Its connections use HTTP/2 only.
    pub(super) h2: bool,
}

impl Service<Uri> for Dial {
    type Response = PooledConnection;
    type Error = DialError;
    type Future = Pin<Box<dyn Future<Output = Result<PooledConnection, DialError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), DialError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, server: Uri) -> Self::Future {
        let dial = self.clone();
        Box::pin(async move { dial.connect(&server).await })
    }
}

impl Dial {
    /// Connects to a server, through its proxy where it has one, within [`CONNECT_TIMEOUT`].
    pub(super) async fn connect(&self, server: &Uri) -> Result<PooledConnection, DialError> {
        let at = host_and_port(server);
        let proxies = &self.outbound.proxies;
        let proxy = proxies.proxy_for(server).map_err(|bad| DialError::Proxy {
            proxy: "that is written down".to_owned(),
            why: bad.to_string(),
        })?;
        let late = |_| match proxy {
            Some(proxy) => DialError::Proxy {
                proxy: proxy.to_string(),
                why: format!("it gave no way to {at} within {CONNECT_TIMEOUT:?}"),
            },
            None => DialError::TimedOut {
                at: at.clone(),
                within: CONNECT_TIMEOUT,
            },
        };
        let dialed = timeout(CONNECT_TIMEOUT, self.dial(server, proxy));
        dialed.await.map_err(late)?
    }

    /// Opens a TCP connection to a server, through its proxy where it has one, within [`CONNECT_TIMEOUT`].
    pub(super) async fn open_tcp(&self, server: &Uri) -> Result<TcpStream, DialError> {
        let proxies = &self.outbound.proxies;
        let proxy = proxies.proxy_for(server).map_err(|bad| DialError::Proxy {
            proxy: "that is written down".to_owned(),
            why: bad.to_string(),
        })?;
        let opening = async {
            match proxy {
                Some(proxy) => self.connect_proxy(proxy, server, true).await,
                None => connect(server, host(server), self.scope).await,
            }
        };
        let opened = timeout(CONNECT_TIMEOUT, opening).await;
        opened.unwrap_or_else(|_| {
            Err(DialError::TimedOut {
                at: host_and_port(server),
                within: CONNECT_TIMEOUT,
            })
        })
    }

    async fn dial(
        &self,
        server: &Uri,
        proxy: Option<&ProxyAddress>,
    ) -> Result<PooledConnection, DialError> {
        let host = host(server);
        let config = match server.scheme() {
            Some(scheme) if *scheme == Scheme::HTTPS => {
                Some(self.outbound.tls.config(self.h2).await?)
            }
            _ => None,
        };
        let tcp = match proxy {
            Some(proxy) => self.connect_proxy(proxy, server, config.is_some()).await?,
            None => connect(server, host, self.scope).await?,
        };
        let Some(config) = config else {
            let wire = PooledConnection::new(MaybeHttpsStream::Http(TokioIo::new(tcp)), self.h2);
            // A checked address is reached by a tunnel, and the server reads the request itself.
            return Ok(
                if proxy.is_some() && self.scope == AddressScope::Any && !self.h2 {
                    wire.with_proxy()
                } else {
                    wire
                },
            );
        };
        let failed = |why: String| DialError::Tls {
            at: host_and_port(server),
            why,
        };
        let name = ServerName::try_from(host.to_owned()).map_err(|e| failed(e.to_string()))?;
        let tcp = TokioIo::new(TokioIo::new(tcp));
        let stream = TlsConnector::from(config).connect(name, tcp).await;
        let stream = stream.map_err(|e| failed(e.to_string()))?;
        Ok(PooledConnection::new(stream.into(), self.h2))
    }

    /// A connection to the proxy; with a tunnel for https, HTTP/2 and checked addresses.
    async fn connect_proxy(
        &self,
        proxy: &ProxyAddress,
        server: &Uri,
        secure: bool,
    ) -> Result<TcpStream, DialError> {
        let target = match self.scope {
            AddressScope::Any => host_and_port(server),
            scope @ (AddressScope::Public | AddressScope::Private | AddressScope::Loopback) => {
                resolve_in_scope(server, scope).await?.to_string()
            }
        };
        let failed = |why: String| DialError::Proxy {
            proxy: proxy.to_string(),
            why,
        };
        let at = proxy.url();
        let dialed = connect(&at, host(&at), AddressScope::Any).await;
        let mut tcp = dialed.map_err(|e| failed(e.to_string()))?;
        if secure || self.h2 || self.scope != AddressScope::Any {
            open_tunnel(&mut tcp, proxy, &target)
                .await
                .map_err(failed)?;
        }
        Ok(tcp)
    }
}

/// The address in scope that a proxy connects to instead of the name.
async fn resolve_in_scope(server: &Uri, scope: AddressScope) -> Result<SocketAddr, DialError> {
    let at = host_and_port(server);
    let Ok(addresses) = lookup_host((host(server), port(server))).await else {
        return Err(DialError::UnresolvedForProxy { at });
    };
    let mut admitted = addresses.filter(|at| scope.contains(at.ip()));
    admitted.next().ok_or(DialError::OutOfScope { at })
}

async fn connect(server: &Uri, host: &str, scope: AddressScope) -> Result<TcpStream, DialError> {
    let at = || host_and_port(server);
    let addresses = match lookup_host((host, port(server))).await {
        Ok(addresses) => addresses,
        Err(e) => {
            return Err(DialError::Unresolved {
                at: at(),
                why: e.to_string(),
            });
        }
    };
    // Checked here, right before connecting: the name may resolve to other addresses the next time.
    let admitted: Vec<_> = addresses.filter(|at| scope.contains(at.ip())).collect();
    if admitted.is_empty() && scope != AddressScope::Any {
        return Err(DialError::OutOfScope { at: at() });
    }
    match race_addresses(admitted.into_iter().take(ADDRESSES)).await {
        Ok(stream) => Ok(stream),
        Err(e) if e.kind() == io::ErrorKind::ConnectionRefused => {
            Err(DialError::Refused { at: at() })
        }
        Err(e) => Err(DialError::Unreachable {
            at: at(),
            why: e.to_string(),
        }),
    }
}

/// The first address that answers; each has a head start before the next.
async fn race_addresses(mut addresses: impl Iterator<Item = SocketAddr>) -> io::Result<TcpStream> {
    let mut attempts = FuturesUnordered::new();
    let mut failure = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    loop {
        match addresses.next() {
            Some(address) => attempts.push(connect_tcp(address)),
            None if attempts.is_empty() => return Err(failure),
            None => {}
        }
        tokio::select! {
            Some(tried) = attempts.next() => match tried {
                Ok(stream) => return Ok(stream),
                Err(e) => failure = e,
            },
            () = sleep(HEAD_START) => {}
        }
    }
}

async fn connect_tcp(address: SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    let socket = SockRef::from(&stream);
    socket.set_tcp_keepalive(&TcpKeepalive::new().with_time(SILENCE))?;
    peer::limit_silence(&stream, SILENCE)?;
    Ok(stream)
}

/// The host without the brackets of an IPv6 address.
fn host(server: &Uri) -> &str {
    let host = server.host().unwrap_or_default();
    let bare = host
        .strip_prefix('[')
        .and_then(|host| host.strip_suffix(']'));
    bare.unwrap_or(host)
}

fn port(server: &Uri) -> u16 {
    let https = server.scheme() == Some(&Scheme::HTTPS);
    server.port_u16().unwrap_or(if https { 443 } else { 80 })
}

/// `host:port` for display.
pub(super) fn host_and_port(server: &Uri) -> String {
    format!("{}:{}", server.host().unwrap_or_default(), port(server))
}
