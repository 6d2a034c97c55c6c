//! The listeners for clients: the owner's socket and HTTP.

use std::fs::File;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use mgp_doors::connection::{self, ConnectionEnd};
use mgp_doors::{
    Auth, Broker, EndpointContext, GrpcEndpoint, HttpEndpoint, HttpSse, IssuerTokens, Lite,
    LiteSettings, MetricsPage, MetricsPath, OAuth, ProtectedResource, ResponseOptions, ServerCard,
    SessionLimits, Sessions, TokenSource, Tokens,
};
use mgp_engine::doors::bearer::BearerPolicy;
use mgp_engine::policy::access::ClaimedGroups;
use mgp_protocol::ids::AgentId;
use mgp_runtime::task;
use mgp_transports::http::guard::AllowList;
use mgp_transports::http::listener_tls::ListenerTls;
use mgp_transports::http::server::{HttpListener, ListenerLimits};
use mgp_transports::unix::{DrainingReader, SocketFile};
use mgp_transports::{StallGuard, unix};
use tokio::net::{UnixListener, UnixStream};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::components::{StartedKernel, issuer_keys};
use super::handover::{self, Handover, Inheritance, InheritedSocket};
use super::machine;
use super::options::{KernelOptions, OpenHttpListener, OpenListeners};
use super::secrets;
use super::socket_users::{SocketPeer, SocketUsers};
use crate::config::{self, KernelConfig, LiteConfig};
use crate::handover::{HandoverOrder, WAIT_MAX};
use crate::health::metrics::{KernelMetrics, ScrapeTarget};

/// A socket connection that reads nothing for this long is dropped.
const WRITE_TIMEOUT: Duration = Duration::from_secs(30);
/// Time for connections to end during shutdown, once no server can answer any more: remaining ones wait for a person.
const CLOSE_TIMEOUT: Duration = Duration::from_millis(300);
/// Connections on the socket at once.
const CONNECTIONS_MAX: usize = 4096;
/// Connections of other users among them, so that the owner can always connect. One more is closed.
const OTHER_USERS_MAX: usize = 2048;

/// Shares of the allowed descriptors, so that connections at one endpoint leave enough for the others, for children
/// and for files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ConnectionLimits {
    /// For HTTP: at most half of the descriptors, because anybody may connect.
    http: usize,
    /// For the socket: at most a quarter. The last quarter is for children, files and links.
    socket: usize,
    /// For other users at the socket.
    other_users: usize,
}

impl ConnectionLimits {
    /// The shares of so many descriptors, if `http` connections are wanted.
    fn new(open_files: usize, http: usize) -> Self {
        let socket = CONNECTIONS_MAX.min(open_files / 4).max(1);
        Self {
            http: http.min(open_files / 2).max(1),
            socket,
            other_users: OTHER_USERS_MAX.min(socket / 2),
        }
    }

    /// The shares by the limits of the system and the configuration.
    fn current(max_sessions: usize) -> Self {
        // A session may hold one open stream besides its calls.
        let wanted = ListenerLimits::default().connections.max(2 * max_sessions);
        Self::new(machine::open_file_limit(), wanted)
    }
}

/// Bound listeners, and what keeps them open.
pub(super) struct BoundListeners {
    listener: Option<UnixListener>,
    users: SocketUsers,
    socket: SocketFile,
    http: Option<HttpListener>,
    tls: Option<ListenerTls>,
    token: Option<(String, PathBuf)>,
    /// The token of `/metrics`.
    metrics_token: Option<(String, PathBuf)>,
    sessions: Option<Arc<Sessions>>,
    shutdown: CancellationToken,
    /// When the connections of the socket end.
    end: ConnectionEnd,
    connections: TaskTracker,
    /// Of the socket.
    accepting: Option<AcceptTask>,
    /// Of HTTP; it ends with the last connection.
    serving: Option<AcceptTask>,
    /// The descriptors of both listeners. Connections wait at them while nobody accepts any.
    socket_descriptor: Option<OwnedFd>,
    http_descriptor: Option<OwnedFd>,
    inherited_sessions: Option<File>,
}

type AcceptTask = JoinHandle<Result<(), task::TaskError>>;

/// Binds all listeners before anything else is opened or started: a kernel must be reachable.
pub(super) async fn bind_listeners(options: &mut KernelOptions) -> Result<BoundListeners, String> {
    let users = SocketUsers::resolve(&options.loaded.kernel.socket.users)?;
    let Inheritance {
        socket: inherited_socket,
        http: inherited_http,
        sessions,
        lock: _,
        report: _,
    } = std::mem::take(&mut options.inherited);
    let others = users.has_other_users();
    let bound = match inherited_socket {
        Some(InheritedSocket {
            listener,
            is_managed,
        }) => unix::adopt(listener, &options.socket, others, !is_managed),
        None => unix::bind(&options.socket, others),
    };
    let (listener, socket) = bound.map_err(|e| e.to_string())?;
    let http = &options.loaded.kernel.http;
    let tls = open_tls(&options.loaded.kernel)?;
    let door = if http.enabled {
        let bound = match inherited_http.filter(|it| fits(it, http.listen)) {
            Some(listener) => HttpListener::adopt(listener),
            None => HttpListener::bind(http.listen),
        };
        Some(bound.map_err(|e| {
            format!(
                "the HTTP door cannot listen on {}: {e}; set `listen` in [http] to another address",
                http.listen
            )
        })?)
    } else {
        None
    };
    Ok(BoundListeners {
        metrics_token: None,
        socket_descriptor: listener.as_fd().try_clone_to_owned().ok(),
        http_descriptor: door
            .as_ref()
            .and_then(|door| door.try_clone_descriptor().ok()),
        inherited_sessions: sessions,
        listener: Some(listener),
        users,
        socket,
        http: door.map(|door| door.with_tls(tls.clone())),
        tls,
        token: None,
        sessions: None,
        shutdown: CancellationToken::new(),
        end: ConnectionEnd::default(),
        connections: TaskTracker::new(),
        accepting: None,
        serving: None,
    })
}

/// Reads the certificate and key of the HTTP listener, if it uses TLS.
pub(super) fn open_tls(kernel: &KernelConfig) -> Result<Option<ListenerTls>, String> {
    let papers = kernel.http.tls.clone().filter(|_| kernel.http.enabled);
    let tls = papers.map(ListenerTls::open).transpose();
    tls.map_err(|e| format!("the HTTP door cannot speak TLS: {e}"))
}

/// Whether a listener is at the configured address; port 0 is any.
fn fits(listener: &TcpListener, configured: SocketAddr) -> bool {
    listener.local_addr().is_ok_and(|bound| {
        bound.ip() == configured.ip() && [0, bound.port()].contains(&configured.port())
    })
}

impl BoundListeners {
    /// Reads or creates the tokens of the HTTP listener.
    pub(super) fn issue_tokens(&mut self, options: &KernelOptions) -> Result<(), String> {
        let http = &options.loaded.kernel.http;
        self.token = match (http.enabled, http.auth) {
            (true, config::HttpAuth::Token | config::HttpAuth::OAuth) => {
                Some(secrets::load_token(&options.data_dir)?)
            }
            (true, config::HttpAuth::None) | (false, _) => None,
        };
        let shows = http.enabled && options.loaded.kernel.metrics.enabled;
        self.metrics_token = if shows {
            Some(secrets::load_metrics_token(&options.data_dir)?)
        } else {
            None
        };
        Ok(())
    }

    /// Starts to accept clients.
    pub(super) async fn open(
        &mut self,
        options: &KernelOptions,
        started: &StartedKernel,
        closing: &CancellationToken,
    ) -> OpenListeners {
        let context = &started.endpoint_context;
        self.shutdown = closing.clone();
        if let Some(listener) = self.listener.take() {
            let serving = serve_socket(
                listener,
                ConnectionLimits::current(options.loaded.kernel.http.max_sessions),
                self.users.clone(),
                context.clone(),
                closing.clone(),
                self.end.clone(),
                self.connections.clone(),
            );
            self.accepting = Some(task::spawn_supervised("doors.socket", serving).detach());
        }
        let http = match self.http.take() {
            Some(door) => {
                let address = door.addr();
                let sessions = self.open_http(door, options, started).await;
                let _ = started.revocation.sessions.set(sessions);
                Some(OpenHttpListener {
                    address,
                    secure: self.tls.is_some(),
                    token: self.token.as_ref().map(|(token, _)| token.clone()),
                    token_file: self.token.as_ref().map(|(_, file)| file.clone()),
                })
            }
            None => None,
        };
        OpenListeners {
            socket: self.socket.path().to_owned(),
            http,
        }
    }

    async fn open_http(
        &mut self,
        door: HttpListener,
        options: &KernelOptions,
        started: &StartedKernel,
    ) -> Arc<Sessions> {
        let context = &started.endpoint_context;
        let kernel = &options.loaded.kernel;
        let limits = SessionLimits {
            max: kernel.http.max_sessions,
            idle: kernel.http.session_idle,
            replay: kernel.streams.replay_events,
        };
        let sessions = Sessions::new(limits, context.clone());
        if let Some(file) = self.inherited_sessions.take() {
            sessions.restore(handover::read_sessions(file)).await;
        }
        self.sessions = Some(sessions.clone());
        let console = started.console.clone();
        if kernel.http.console {
            let configured = AllowList::new(kernel.http.allowed_hosts.iter().cloned(), []);
            let secure = self.tls.is_some();
            console.set_address(door.addr(), secure, configured, sessions.clone());
        } else {
            console.set_unavailable()
        }
        let handler = Arc::new(HttpEndpoint {
            endpoint: context.clone(),
            sessions: sessions.clone(),
            http_sse: HttpSse::new(kernel.http.max_sessions, self.shutdown.clone()),
            auth: self.auth(kernel, door.addr(), started),
            console,
            response_options: ResponseOptions {
                stream_after: kernel.streams.stream_after,
                poll_after: Some(kernel.streams.poll_after).filter(|after| !after.is_zero()),
            },
            secure: self.tls.is_some(),
            lite: lite_endpoint(kernel, context),
            metrics: self.metrics_path(kernel, door.addr(), &started.metrics),
            address: resource_origin(kernel.oauth.resource.as_deref()),
            card: kernel.http.server_card.clone().map(|name| ServerCard {
                name,
                url: kernel.oauth.resource.clone(),
            }),
            counts: started.metrics.endpoints.clone(),
        });
        // An address cannot be redirected by a web page, as a name can (DNS rebinding).
        let own_hosts = match door.addr() {
            at if at.ip().is_unspecified() => None,
            SocketAddr::V4(at) => Some(at.ip().to_string()),
            SocketAddr::V6(at) => Some(format!("[{}]", at.ip())),
        };
        let hosts = kernel.http.allowed_hosts.iter().cloned().chain(own_hosts);
        let own_origin = started.broker.as_deref().and_then(Broker::page_origin);
        let origins = kernel.http.allowed_origins.iter().cloned();
        let allow = AllowList::new(hosts, origins.chain(own_origin));
        let limits = ListenerLimits {
            connections: ConnectionLimits::current(kernel.http.max_sessions).http,
            // Who waits for them has a limit of its own.
            grace: WAIT_MAX,
            ..ListenerLimits::default()
        };
        let grpc = GrpcEndpoint::new(handler);
        let answer = move |request, peer| grpc.clone().handle(request, peer);
        let serving = door.serve(limits, allow, answer, self.shutdown.clone());
        self.serving = Some(task::spawn_supervised("doors.http", serving).detach());
        sessions
    }

    /// Builds the `/metrics` path, and sets the scrape target.
    fn metrics_path(
        &self,
        kernel: &KernelConfig,
        at: SocketAddr,
        metrics: &Arc<KernelMetrics>,
    ) -> Option<MetricsPath> {
        let (token, file) = self.metrics_token.as_ref()?;
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        let at = HttpListener::reachable_address(at);
        let loopback = kernel.metrics.loopback;
        let _ = metrics.scrape_target.set(ScrapeTarget {
            url: format!("{scheme}://{at}/metrics"),
            token_file: file.clone(),
            is_open_to_loopback: loopback,
        });
        let metrics = metrics.clone();
        let page = MetricsPage::new(move |form| {
            let metrics = metrics.clone();
            Box::pin(async move { metrics.render(form).await })
        });
        Some(MetricsPath {
            page,
            token: blake3::hash(token.as_bytes()),
            loopback,
        })
    }

    /// The TLS settings of the HTTP listener, if it uses TLS.
    pub(super) fn tls(&self) -> Option<ListenerTls> {
        self.tls.clone()
    }

    /// Authentication at the HTTP listener.
    fn auth(&self, kernel: &KernelConfig, at: SocketAddr, started: &StartedKernel) -> Auth {
        let tokens = self.token.as_ref().map(|(token, _)| Tokens {
            local: blake3::hash(token.as_bytes()),
            registered_agents: started.endpoint_context.registered_agents.clone(),
        });
        match (kernel.http.auth, tokens) {
            (config::HttpAuth::Token, Some(tokens)) => Auth::Token(tokens),
            (config::HttpAuth::OAuth, tokens) => {
                let resource = protected_resource(kernel, self.tls.is_some(), at);
                let source = match &started.broker {
                    Some(broker) => {
                        broker.open(&resource);
                        TokenSource::Broker(broker.clone())
                    }
                    None => TokenSource::Issuer(Box::new(issuer_tokens(kernel))),
                };
                let oauth = OAuth::new(source, resource, kernel.oauth.require_dpop);
                let tokens = tokens.filter(|_| kernel.oauth.accept_tokens);
                Auth::OAuth(Arc::new(oauth), tokens)
            }
            (config::HttpAuth::None, _) | (config::HttpAuth::Token, None) => Auth::None,
        }
    }

    /// Accepts no more connections; resolves when `calls` have ended and HTTP requests under way are answered,
    /// as far as possible.
    pub(super) async fn stop_accepting(&mut self, calls: impl Future<Output = ()>) {
        self.shutdown.cancel();
        // Unless the next program takes them, clients are refused from now on.
        drop((self.socket_descriptor.take(), self.http_descriptor.take()));
        let open = [self.accepting.take(), self.serving.take()];
        let mut closed = std::pin::pin!(async {
            for door in open.into_iter().flatten() {
                let _ = door.await;
            }
        });
        let mut calls = std::pin::pin!(calls);
        tokio::select! {
            () = &mut closed => calls.await,
            () = &mut calls => {
                let _ = tokio::time::timeout(CLOSE_TIMEOUT, closed).await;
            }
        }
    }

    /// Accepts no more connections or messages; resolves when everything that was read is answered.
    pub(super) async fn drain(&mut self) {
        self.shutdown.cancel();
        if let Some(accepting) = self.accepting.take() {
            let _ = accepting.await;
        }
        // After the last one was accepted: whoever connects again gets the next program.
        self.end.drain.cancel();
        self.connections.close();
        let serving = self.serving.take();
        let http = async {
            if let Some(serving) = serving {
                let _ = serving.await;
            }
        };
        tokio::join!(self.connections.wait(), http);
    }

    /// What the next program takes over.
    pub(super) fn prepare_handover(
        &mut self,
        order: &HandoverOrder,
        data_dir: &Path,
    ) -> Result<Handover, String> {
        let socket = self.socket_descriptor.take();
        let socket = socket.ok_or("the socket cannot be handed over: no descriptor is left")?;
        let is_managed = !self.socket.is_ours();
        self.socket.keep();
        let sessions = self.sessions.as_ref().map(|sessions| sessions.to_records());
        let sessions = handover::store_sessions(sessions.unwrap_or_default(), data_dir);
        let sessions = sessions.unwrap_or_else(|error| {
            tracing::warn!(%error, "the HTTP sessions cannot be handed over: clients open new ones");
            None
        });
        Ok(Handover {
            program: order.program.clone(),
            socket,
            is_managed,
            http: self.http_descriptor.take(),
            sessions,
        })
    }

    /// Ends the remaining connections.
    pub(super) async fn disconnect_all(self) {
        if let Some(sessions) = &self.sessions {
            sessions.close_all();
        }
        self.end.leave.cancel();
        self.connections.close();
        let _ = tokio::time::timeout(CLOSE_TIMEOUT, self.connections.wait()).await;
    }
}

/// The names of the kernel as an OAuth resource. A broker has one of them in all that browsers see; that of an address of
/// this machine is `localhost`, which identity providers accept without TLS.
fn protected_resource(kernel: &KernelConfig, secure: bool, at: SocketAddr) -> ProtectedResource {
    let config = &kernel.oauth;
    let port = at.port();
    let scheme = if secure { "https" } else { "http" };
    let mut own = [at.to_string(), format!("localhost:{port}")]
        .map(|at| format!("{scheme}://{at}/mcp"))
        .to_vec();
    if config.broker.is_some() {
        own.reverse();
    }
    ProtectedResource {
        resources: match &config.resource {
            Some(resource) => vec![resource.clone()],
            None => own,
        },
        audiences: config.audience.clone(),
    }
}

/// The accepted tokens of another authorization server.
fn issuer_tokens(kernel: &KernelConfig) -> IssuerTokens {
    let config = &kernel.oauth;
    let policy = BearerPolicy {
        issuer: config.issuer.clone(),
        algorithms: config.algorithms.clone(),
        agent_claim: config.agent_claim.clone(),
        scopes: config.scopes.clone(),
        groups: config.groups.clone(),
    };
    IssuerTokens::new(policy, issuer_keys(kernel))
}

async fn serve_socket(
    listener: UnixListener,
    limits: ConnectionLimits,
    users: SocketUsers,
    context: EndpointContext,
    closing: CancellationToken,
    end: ConnectionEnd,
    visits: TaskTracker,
) {
    let permits = Arc::new(tokio::sync::Semaphore::new(limits.socket));
    let other_permits = Arc::new(tokio::sync::Semaphore::new(limits.other_users));
    loop {
        let Ok(permit) = permits.clone().acquire_owned().await else {
            return;
        };
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = closing.cancelled() => return,
        };
        match accepted {
            Ok((stream, _)) => {
                let Some(peer) = identify_peer(&stream, &users) else {
                    continue;
                };
                let other = match &peer {
                    SocketPeer::Owner => None,
                    SocketPeer::Agent(_) => match other_permits.clone().try_acquire_owned() {
                        Ok(permit) => Some(permit),
                        Err(_) => continue,
                    },
                };
                let visit = serve_connection(stream, peer, context.clone(), end.clone());
                visits.spawn(async move {
                    visit.await;
                    drop((permit, other));
                });
            }
            // Most likely out of descriptors: wait until others are closed.
            Err(error) => {
                tracing::warn!(%error, "the socket cannot accept a connection now");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

/// MCP-lite, if it is enabled.
fn lite_endpoint(kernel: &KernelConfig, context: &EndpointContext) -> Option<Arc<Lite>> {
    let LiteConfig {
        enabled,
        promise_after,
        promise_ttl,
        heartbeat,
    } = kernel.lite;
    let settings = LiteSettings {
        promise_after: Some(promise_after).filter(|after| !after.is_zero()),
        promise_ttl,
        heartbeat,
    };
    enabled.then(|| Lite::new(context, settings))
}

/// The user as the system reports it. Unknown users are not served, even if they can open the socket.
fn identify_peer(stream: &UnixStream, users: &SocketUsers) -> Option<SocketPeer> {
    users.identify(unix::peer_credentials(stream).ok()?.uid)
}

async fn serve_connection(
    stream: UnixStream,
    peer: SocketPeer,
    context: EndpointContext,
    end: ConnectionEnd,
) {
    let (reader, writer) = stream.into_split();
    let reader = DrainingReader::new(reader, &end.drain);
    let writer = StallGuard::new(writer, WRITE_TIMEOUT);
    let (agent, operator) = match peer {
        SocketPeer::Owner => (AgentId::new("operator"), true),
        SocketPeer::Agent(agent) => (agent, false),
    };
    let agent = (agent, ClaimedGroups::default());
    connection::serve(context, agent, operator, None, end, reader, writer).await;
}

/// Scheme and authority of the endpoint's public URL.
fn resource_origin(resource: Option<&str>) -> Option<String> {
    let url = url::Url::parse(resource?).ok()?;
    Some(url.origin().ascii_serialization())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each endpoint leaves descriptors for the others, and a quarter for children and files, at any limit.
    #[test]
    fn connections_follow_the_limit_of_open_files() {
        for open_files in [64, 256, 1_024, 4_096, 20_000, 1 << 20] {
            let limits = ConnectionLimits::new(open_files, 20_000);
            assert!(
                limits.http + limits.socket <= open_files / 4 * 3,
                "{limits:?}"
            );
            assert!(
                limits.other_users < limits.socket && limits.http >= 32,
                "{limits:?}"
            );
        }
        let plenty = ConnectionLimits::new(1 << 20, 20_000);
        assert_eq!(
            plenty,
            ConnectionLimits {
                http: 20_000,
                socket: CONNECTIONS_MAX,
                other_users: OTHER_USERS_MAX,
            }
        );
    }
}
