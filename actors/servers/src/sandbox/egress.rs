//! The only way out of a sandboxed server whose destinations are limited: an HTTP proxy in the kernel's process, which
//! listens in the network namespace of the server. Nothing else is reachable there; UDP and DNS lead nowhere.
//!
//! The launcher makes the listener in the new namespace, and sends it to the kernel.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::net::TcpListener as StdListener;
use std::os::unix::net::UnixListener as StdUnixListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use mgp_engine::servers::egress::{
    Destination, EgressRule, EgressScope, ProxyRequest, find_scope, parse_proxy_request,
};
use mgp_platform::sandbox::{PROXY_PORT, bind_socket, receive_listener};
use mgp_runtime::{EventSink, randomness};
use mgp_transports::http::address_scope::AddressScope;
use mgp_transports::http::client::Client;
use tokio::io::{AsyncReadExt, AsyncWriteExt, Interest};
use tokio::net::{TcpListener, TcpStream, UnixListener};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::timeout;

/// Open connections of one server; more wait in the backlog.
const CONNECTIONS_MAX: usize = 64;
/// Longest head of a request, in bytes.
const HEAD_BYTES_MAX: usize = 16 << 10;
/// How long a head may take.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);
/// How long the launcher may take to send its listener.
const LAUNCH_TIMEOUT: Duration = Duration::from_secs(10);
/// Refused destinations that are reported; more are answered alike.
const REPORTS_MAX: usize = 32;

/// Variables that programs read for their proxies, and for what they reach without one.
const PROXY_VARIABLES: [&str; 4] = ["HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"];
const DIRECT_VARIABLES: [&str; 2] = ["NO_PROXY", "no_proxy"];
/// Makes Node.js read them, from version 24 on.
const NODE_VARIABLE: &str = "NODE_USE_ENV_PROXY";

/// The variables of a server whose only way out is the proxy. What listens in its own network is reached without it,
/// unless a rule leads to this machine.
pub(super) fn proxy_variables(
    rules: &[EgressRule],
) -> impl Iterator<Item = (&'static str, String)> + use<> {
    let proxy = format!("http://127.0.0.1:{PROXY_PORT}");
    let proxies = PROXY_VARIABLES.map(|name| (name, proxy.clone()));
    let own = match rules.iter().any(EgressRule::is_loopback) {
        true => "",
        false => "localhost,127.0.0.1,::1",
    };
    let direct = DIRECT_VARIABLES.map(|name| (name, own.to_owned()));
    let node = [(NODE_VARIABLE, "1".to_owned())];
    proxies.into_iter().chain(direct).chain(node)
}

/// The kernel's end of the socket, before the server is started. Dropping it removes the socket.
#[derive(Debug)]
pub(crate) struct EgressSocket {
    path: PathBuf,
    listener: StdUnixListener,
}

impl EgressSocket {
    /// Opens the socket in a folder of the kernel.
    pub(super) fn open(folder: &Path) -> io::Result<Self> {
        let name = format!(
            "egress-{:016x}",
            u64::from_ne_bytes(randomness::random_bytes())
        );
        let listener = bind_socket(&File::open(folder)?, &name)?;
        listener.set_nonblocking(true)?;
        let path = folder.join(name);
        Ok(Self { path, listener })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The listener that the launcher sends.
    async fn receive_listener(&self) -> io::Result<TcpListener> {
        let listener = UnixListener::from_std(self.listener.try_clone()?)?;
        let (stream, _) = listener.accept().await?;
        let receiving = stream.async_io(Interest::READABLE, || receive_listener(&stream));
        let listener = StdListener::from(receiving.await?);
        listener.set_nonblocking(true)?;
        TcpListener::from_std(listener)
    }
}

impl Drop for EgressSocket {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

/// The proxy of one run of a server.
pub(crate) struct EgressProxy {
    pub(crate) socket: EgressSocket,
    pub(crate) rules: Vec<EgressRule>,
    /// Connects, with the operator's proxies.
    pub(crate) client: Client,
    /// Receives each refused destination once.
    pub(crate) refused: EventSink<Destination>,
}

impl EgressProxy {
    /// Serves the server until it is dropped.
    pub(crate) async fn run(self) {
        let listener = match timeout(LAUNCH_TIMEOUT, self.socket.receive_listener()).await {
            Ok(Ok(listener)) => listener,
            Ok(Err(error)) => {
                tracing::warn!(%error, "the proxy of a sandboxed server");
                return;
            }
            // The launcher reports why it did not start the server.
            Err(_) => return,
        };
        let proxy = Arc::new(RunningProxy {
            rules: self.rules,
            client: self.client,
            refused: self.refused,
            reported: std::sync::Mutex::default(),
        });
        // Removes the socket, which nobody needs any more.
        drop(self.socket);
        let capacity = Arc::new(Semaphore::new(CONNECTIONS_MAX));
        let mut connections = JoinSet::new();
        loop {
            let Ok(permit) = capacity.clone().acquire_owned().await else {
                return;
            };
            let accepted = listener.accept().await;
            while connections.try_join_next().is_some() {}
            let Ok((stream, _)) = accepted else {
                // Out of descriptors: those of the connections come back.
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            };
            let proxy = proxy.clone();
            connections.spawn(async move {
                // The server sees a failure as the end of its connection.
                let _ = proxy.serve(stream).await;
                drop(permit);
            });
        }
    }
}

struct RunningProxy {
    rules: Vec<EgressRule>,
    client: Client,
    refused: EventSink<Destination>,
    reported: std::sync::Mutex<BTreeSet<Destination>>,
}

impl RunningProxy {
    async fn serve(&self, mut stream: TcpStream) -> io::Result<()> {
        let read = timeout(HEAD_TIMEOUT, read_head(&mut stream)).await;
        let Some((head, rest)) = read.unwrap_or(Ok(None))? else {
            return answer(&mut stream, 400, "no request to a proxy").await;
        };
        let Some(request) = parse_proxy_request(&head) else {
            return answer(&mut stream, 400, "no request to a proxy").await;
        };
        let ProxyRequest {
            destination,
            head,
            is_tunnel,
        } = request;
        let scope = match find_scope(&self.rules, &destination) {
            Some(EgressScope::Public) => AddressScope::Public,
            Some(EgressScope::Written) => AddressScope::Any,
            None => {
                self.report(&destination);
                let why = format!(
                    "{destination} is not in `egress` of [servers.sandbox], which lists where this server may connect to"
                );
                return answer(&mut stream, 403, &why).await;
            }
        };
        let opened = self
            .client
            .open_tcp(&destination.host, destination.port, scope);
        let mut upstream = match opened.await {
            Ok(upstream) => upstream,
            Err(error) => return answer(&mut stream, 502, &error.to_string()).await,
        };
        if is_tunnel {
            stream
                .write_all(b"HTTP/1.1 200 Connection established\r\n\r\n")
                .await?;
        }
        upstream.write_all(&head).await?;
        upstream.write_all(&rest).await?;
        tokio::io::copy_bidirectional(&mut stream, &mut upstream).await?;
        Ok(())
    }

    /// Reports a refused destination, each once.
    fn report(&self, destination: &Destination) {
        let mut reported = self
            .reported
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        if reported.len() < REPORTS_MAX && reported.insert(destination.clone()) {
            drop(reported);
            self.refused.send(destination.clone());
        }
    }
}

/// The head of a request with its empty line, and what was read after it; `None` if it is too long or incomplete.
async fn read_head(stream: &mut TcpStream) -> io::Result<Option<(Vec<u8>, Vec<u8>)>> {
    const END: &[u8] = b"\r\n\r\n";
    let mut read = Vec::new();
    let mut buffer = [0; 2048];
    while read.len() < HEAD_BYTES_MAX {
        let count = stream.read(&mut buffer).await?;
        if count == 0 {
            return Ok(None);
        }
        let from = read.len().saturating_sub(END.len() - 1);
        read.extend_from_slice(&buffer[..count]);
        let end = read[from..].windows(END.len()).position(|it| it == END);
        if let Some(end) = end {
            let rest = read.split_off(from + end + END.len());
            return Ok(Some((read, rest)));
        }
    }
    Ok(None)
}

async fn answer(stream: &mut TcpStream, status: u16, why: &str) -> io::Result<()> {
    let reason = match status {
        400 => "Bad Request",
        403 => "Forbidden",
        _ => "Bad Gateway",
    };
    let body = format!("mgp: {why}\n");
    let head = format!(
        "HTTP/1.1 {status} {reason}\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    stream.write_all((head + &body).as_bytes()).await?;
    stream.shutdown().await
}
