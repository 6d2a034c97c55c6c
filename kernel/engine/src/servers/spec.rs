//! A configured server: one `[[servers]]` entry after look-up, parsing and interpolation (MGP §15.2,
//! §11.5).

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use mgp_protocol::ids::{NodeServer, ServerId};
use mgp_protocol::mcp::extensions::UI_CLIENT_SETTINGS;
use mgp_protocol::mcp::meta::UI;
use mgp_protocol::mgp::access::DefaultPolicy;
use mgp_protocol::redacted_url;
use mgp_screening::results::ResultRules;

use crate::env::AgentValue;
use crate::policy::permissions::PermissionRules;
use crate::policy::pins::{PinMode, PinRules};
use crate::policy::requirements::ToolRules;
use crate::policy::trust::TrustLevel;
use crate::servers::consent::ConsentPolicy;
use crate::servers::login::LoginConfig;
use crate::servers::resources::ResourceLimits;
use crate::servers::sandbox::{self, Seal};

/// One server, ready to be started. Two equal specs need no restart between them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerSpec {
    /// Its id, used everywhere.
    pub id: ServerId,
    /// How to reach it.
    pub transport: ServerTransport,
    /// When it runs.
    pub start: StartMode,
    /// Servers that must be connected before the kernel starts it.
    pub start_after: Vec<ServerId>,
    /// The policy after an unordered exit.
    pub restart: RestartConfig,
    /// Two generations may run at once: it is replaced without interruption.
    pub rolling: bool,
    /// Whether it is a replica.
    pub replica: ReplicaMode,
    /// Bounds on its behaviour.
    pub limits: ServerLimits,
    /// Resource limits of its processes.
    pub resources: ResourceLimits,
    /// Its default policy; `None` for the kernel's, but see [`ServerSpec::default_policy`].
    pub default_policy: Option<DefaultPolicy>,
    /// How callbacks are attributed to calls.
    pub callback_attribution: CallbackAttribution,
    /// Which agents share a running instance.
    pub instances: ServerInstances,
    /// `[servers.mgp]`: the extensions and permissions it declares.
    pub mgp: MgpConfig,
    /// MCPL is used if the server supports it.
    pub mcpl: bool,
    /// The client extensions that it is told at `initialize` and in the kernel's own requests, as a JSON object.
    pub client_extensions: Arc<str>,
    /// The operator's rules for its tools.
    pub tools: Arc<ToolRules>,
    /// The policy for its permissions.
    pub permissions: PermissionRules,
    /// The policy for changed tool definitions.
    pub pin: PinRules,
    /// Its sandbox, if it has one.
    pub sandbox: sandbox::SandboxConfig,
    /// How the kernel logs in, for servers reached over HTTP.
    pub login: LoginConfig,
    /// Lowercase headers of an agent's HTTP request that are forwarded with its calls, for servers reached over
    /// Streamable HTTP.
    pub pass_headers: Vec<String>,
    /// Its variables, or headers at a URL, with secrets that each agent has for itself. Those of the operator are in
    /// `transport`, as far as they are stored.
    pub agent_values: BTreeMap<String, AgentValue>,
}

impl ServerSpec {
    /// A server of another node, which this node calls `node`. Its owner starts, sandboxes and limits it and decides
    /// about access; here it is available while the two nodes are linked.
    #[must_use]
    pub fn for_node_server(node: &str, server: NodeServer, results: Option<ResultRules>) -> Self {
        Self {
            id: ServerId::new_remote(node, &server.server),
            transport: ServerTransport::Node(server),
            start: StartMode::Kernel,
            start_after: Vec::new(),
            restart: RestartConfig {
                policy: RestartPolicy::Always,
                // A generation ends only when its owner's offer changes, which is no reason to ever park it.
                max_restarts: u32::MAX,
                backoff_base: Duration::from_millis(200),
                backoff_max: Duration::from_secs(5),
                ..RestartConfig::default()
            },
            rolling: false,
            // The owner announces with the server whether it is a replica.
            replica: ReplicaMode::Standalone,
            limits: ServerLimits {
                // The owner enforces the call timeout and turns long calls into tasks.
                call_timeout: Duration::ZERO,
                task_after: Duration::ZERO,
                // This node's own settings; the owner has guarded them by its own.
                results,
                ..ServerLimits::default()
            },
            resources: ResourceLimits::default(),
            default_policy: None,
            callback_attribution: CallbackAttribution::ByCall,
            instances: ServerInstances::Shared,
            mgp: MgpConfig::default(),
            mcpl: false,
            client_extensions: default_client_extensions(),
            tools: Arc::default(),
            permissions: PermissionRules::default(),
            pin: PinRules {
                mode: PinMode::Off,
                ..PinRules::default()
            },
            sandbox: sandbox::SandboxConfig::default(),
            login: LoginConfig::disabled(),
            pass_headers: Vec::new(),
            agent_values: BTreeMap::new(),
        }
    }

    /// True if only the time of its starts and idle stops differs: then a running server needs no restart.
    #[must_use]
    pub fn differs_only_in_start(&self, previous: &Self) -> bool {
        let with_previous_start = Self {
            start: previous.start,
            start_after: previous.start_after.clone(),
            ..self.clone()
        };
        self != previous && with_previous_start == *previous
    }

    /// For an instance that runs in this folder; `filesystem.read` and `filesystem.write` include the folder.
    #[must_use]
    pub fn with_folder(&self, folder: &Path) -> Self {
        let mut spec = self.clone();
        if let ServerTransport::Stdio { cwd, .. } = &mut spec.transport {
            *cwd = Some(folder.to_owned());
            spec.sandbox.read.push(folder.to_owned());
            spec.sandbox.write.push(folder.to_owned());
        }
        spec
    }

    /// For the instance of an agent with these secrets.
    ///
    /// # Errors
    /// The name of a secret that the agent does not have.
    pub fn with_agent_secrets(&self, secrets: &BTreeMap<String, String>) -> Result<Self, String> {
        let mut spec = self.clone();
        let values = match &mut spec.transport {
            ServerTransport::Stdio { env, .. } => env,
            ServerTransport::Http { headers, .. } => headers,
            ServerTransport::Node(_) => return Ok(spec),
        };
        for (key, value) in &self.agent_values {
            let missing = || value.names().find(|name| !secrets.contains_key(*name));
            let resolved = value.resolve(|name| secrets.get(name).cloned());
            let resolved = resolved.ok_or_else(|| missing().unwrap_or_default().to_owned())?;
            values.insert(key.clone(), resolved);
        }
        Ok(spec)
    }

    /// Its own default policy. A server with the lowest trust defaults to opt-in unless configured otherwise.
    #[must_use]
    pub(crate) fn default_policy(&self) -> Option<DefaultPolicy> {
        let sandboxed = self.mgp.trust_level.is_sandboxed();
        self.default_policy
            .or_else(|| sandboxed.then_some(DefaultPolicy::OptIn))
    }
}

/// The client extensions that the kernel relays for every server.
#[must_use]
pub fn default_client_extensions() -> Arc<str> {
    format!(r#"{{"{UI}":{UI_CLIENT_SETTINGS}}}"#).into()
}

/// How the kernel reaches a server.
#[derive(Clone, PartialEq, Eq)]
pub enum ServerTransport {
    /// A child process that speaks newline-delimited JSON-RPC.
    Stdio {
        /// Program, looked up in `PATH` when it has no slash.
        command: String,
        /// Its arguments.
        args: Vec<String>,
        /// Added to the empty environment; values are secrets.
        env: BTreeMap<String, String>,
        /// Names of the kernel's variables that it inherits.
        inherit_env: Vec<String>,
        /// Working folder; the folder of the file that configured it when not given.
        cwd: Option<PathBuf>,
    },
    /// At an address.
    Http {
        /// `http://` or `https://`.
        url: String,
        /// Sent with each request; values are secrets.
        headers: BTreeMap<String, String>,
        /// Its protocol.
        protocol: UrlProtocol,
    },
    /// A server of another node, over the link to that node.
    Node(NodeServer),
}

/// The protocol of a server at a URL.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UrlProtocol {
    /// MCP over Streamable HTTP, falling back to HTTP+SSE of 2024-11-05.
    #[default]
    Mcp,
    /// MCP-lite over HTTP.
    Lite,
    /// MCP-lite over gRPC.
    Grpc,
}

impl UrlProtocol {
    /// The word in the configuration.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Mcp => "http",
            Self::Lite => "lite",
            Self::Grpc => "grpc",
        }
    }
}

impl ServerTransport {
    /// Its command line, which every user of the machine can read, or its URL without secrets.
    #[must_use]
    pub fn render_command(&self) -> Vec<String> {
        match self {
            Self::Stdio { command, args, .. } => {
                let mut command_line = vec![command.clone()];
                command_line.extend_from_slice(args);
                command_line
            }
            Self::Http { url, .. } => vec![redacted_url::redact_url(url)],
            Self::Node(server) => vec![format!("node:{server}")],
        }
    }
}

/// Shows names only, because arguments, variables and headers may hold secrets.
impl fmt::Debug for ServerTransport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stdio { command, env, .. } => f
                .debug_struct("Stdio")
                .field("command", command)
                .field("env", &env.keys())
                .finish_non_exhaustive(),
            Self::Http {
                url,
                headers,
                protocol,
            } => f
                .debug_struct("Http")
                .field("protocol", protocol)
                .field("url", &redacted_url::redact_url(url))
                .field("headers", &headers.keys())
                .finish(),
            Self::Node(server) => f.debug_tuple("Node").field(server).finish(),
        }
    }
}

/// When a server runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StartMode {
    /// From the kernel's start on.
    #[default]
    Kernel,
    /// From a call on, until it is idle.
    OnDemand(IdleStop),
    /// From an operator's start on.
    Manual,
}

impl StartMode {
    /// True if a call starts it.
    #[must_use]
    pub fn is_on_demand(self) -> bool {
        matches!(self, Self::OnDemand(_))
    }
}

/// When a server that was started on demand is stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IdleStop {
    /// Never once it was called, because it would lose its state.
    Never,
    /// After this time without use, unless it declares state.
    UnlessStateful(Duration),
    /// After this time without use, by the operator's order.
    After(Duration),
}

/// When a server that stopped is started again (MGP §11.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RestartPolicy {
    /// Never without an order.
    Never,
    /// When it failed: non-zero exit, signal, broken connection, failed handshake.
    OnFailure,
    /// On any unordered exit.
    Always,
}

/// MGP §11.5 with its defaults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RestartConfig {
    /// When to restart at all.
    pub policy: RestartPolicy,
    /// Restarts allowed within the window.
    pub max_restarts: u32,
    /// The sliding window.
    pub window: Duration,
    /// First delay; doubles with each restart in the window.
    pub backoff_base: Duration,
    /// Longest delay.
    pub backoff_max: Duration,
}

impl Default for RestartConfig {
    fn default() -> Self {
        Self {
            policy: RestartPolicy::OnFailure,
            max_restarts: 5,
            window: Duration::from_secs(300),
            backoff_base: Duration::from_millis(1000),
            backoff_max: Duration::from_millis(30_000),
        }
    }
}

/// How a callback is attributed to a call if the transport does not attribute it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum CallbackAttribution {
    /// By the in-flight calls. After the first callback that names no call, calls of one client run at a time.
    #[default]
    ByTurn,
    /// Each callback names its call; others are rejected, and no client waits.
    ByCall,
}

/// Who shares a running instance of a server, which is a process or a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum ServerInstances {
    /// All callers.
    #[default]
    Shared,
    /// Each agent has its own instance, or one per folder; a further instance serves the lists and the operator.
    PerAgent(PerAgent),
}

/// Whether a server is one of several equal ones on this node and others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum ReplicaMode {
    /// Not a replica.
    #[default]
    Standalone,
    /// Calls may go to any server that is also marked and has the same command line or URL.
    Replica {
        /// It keeps state of its callers between calls.
        stateful: bool,
    },
}

/// Bounds on the instances of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PerAgent {
    /// Instances at once.
    pub max: usize,
    /// An instance idle for this long is stopped.
    pub idle: Duration,
    /// One instance per agent and folder, which runs in that folder.
    pub by_folder: bool,
}

impl Default for PerAgent {
    fn default() -> Self {
        Self {
            max: 16,
            idle: Duration::from_secs(600),
            by_folder: false,
        }
    }
}

/// Bounds on one server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerLimits {
    /// Longest message accepted from it, in bytes.
    pub max_frame: usize,
    /// A call without answer or progress for this long is cancelled; zero for no limit.
    pub call_timeout: Duration,
    /// No call lasts longer than this, progress or not.
    pub call_timeout_max: Duration,
    /// Longest start, including handshake and first lists; allows for an `npx` download.
    pub start_timeout: Duration,
    /// How long each step of the shutdown of a server may take.
    pub stop_grace: Duration,
    /// In-flight calls; more are rejected as overloaded.
    pub max_in_flight: usize,
    /// A tool call that takes longer than this becomes a task, if its client supports tasks and the server
    /// does not; zero for never.
    pub task_after: Duration,
    /// How long such a task is kept from its start; one that still runs then is cancelled.
    pub task_ttl: Duration,
    /// The callbacks it may send to clients.
    pub consents: ConsentPolicy,
    /// How its text is guarded on its way to clients; `None` relays it as it is.
    pub results: Option<ResultRules>,
}

impl Default for ServerLimits {
    fn default() -> Self {
        Self {
            max_frame: 8 << 20,
            call_timeout: Duration::from_secs(30),
            call_timeout_max: Duration::from_secs(3600),
            start_timeout: Duration::from_secs(120),
            stop_grace: Duration::from_secs(2),
            max_in_flight: 1024,
            task_after: Duration::from_secs(5),
            task_ttl: Duration::from_secs(3600),
            consents: ConsentPolicy::default(),
            results: None,
        }
    }
}

/// `[servers.mgp]`.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct MgpConfig {
    /// True for `mgp = false`: MGP is not offered to it.
    pub is_disabled: bool,
    /// Declared extensions; only negotiated ones apply.
    pub extensions: Vec<String>,
    /// Declared permissions.
    pub permissions_required: Vec<String>,
    /// Trust given by the operator.
    pub trust_level: TrustLevel,
    /// Checked at each start.
    pub seal: Option<Seal>,
    /// The level of its entry, where it has a lower one because it has no seal.
    pub unsealed_from: Option<TrustLevel>,
}

impl MgpConfig {
    /// Takes the trust of a server without a seal away (MGP 0.6.3, invariant 3).
    pub fn require_seal(&mut self) {
        let lowest = TrustLevel::Sandboxed;
        if self.seal.is_none() && self.trust_level > lowest {
            self.unsealed_from = Some(self.trust_level);
            self.trust_level = lowest;
        }
    }
}
