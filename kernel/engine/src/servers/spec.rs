//! What a configured server is: one `[[servers]]` entry after look-up, parsing and interpolation
//! (MGP §15.2, §11.5).

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use mgp_protocol::address;
use mgp_protocol::ids::ServerId;
use mgp_protocol::mgp::access::DefaultPolicy;

use crate::policy::permissions::PermissionRules;
use crate::policy::pins::PinMode;
use crate::policy::requirements::ToolRules;
use crate::policy::trust::TrustLevel;
use crate::servers::consent::Consents;
use crate::servers::sandbox;

/// One server, ready to be started. Two equal specs need no restart between them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerSpec {
    /// Its name everywhere: config, tools, logs.
    pub id: ServerId,
    /// How to reach it.
    pub reach: Reach,
    /// Started with the kernel, or only on demand of an operator.
    pub autostart: bool,
    /// What happens when it stops by itself.
    pub restart: RestartRules,
    /// Bounds on its behaviour.
    pub limits: ServerLimits,
    /// Who may call its tools where nothing was granted or denied; the kernel's own policy when
    /// `None`, but see [`ServerSpec::policy`].
    pub default_policy: Option<DefaultPolicy>,
    /// How it is known whose call a question of its belongs to.
    pub asking: QuestionAttribution,
    /// Who shares a life of its.
    pub instances: ServerInstances,
    /// `[servers.mgp]`: what it is declared to speak and to need.
    pub mgp: MgpDeclaration,
    /// The operator's word on its tools.
    pub tools: Arc<ToolRules>,
    /// How its permissions are decided.
    pub permissions: PermissionRules,
    /// What a tool of its comes to that is not what it was.
    pub pin: PinMode,
    /// What its sandbox opens and bounds, where it is in one.
    pub sandbox: sandbox::SandboxRules,
}

impl ServerSpec {
    /// The default policy it has of its own. A server that is trusted least is closed until somebody
    /// opens it, unless its entry says otherwise.
    #[must_use]
    pub fn policy(&self) -> Option<DefaultPolicy> {
        let sandboxed = self.mgp.trust_level == TrustLevel::Sandboxed;
        self.default_policy
            .or_else(|| sandboxed.then_some(DefaultPolicy::OptIn))
    }
}

/// How the kernel reaches a server.
#[derive(Clone, PartialEq, Eq)]
pub enum Reach {
    /// A child process that speaks newline-delimited JSON-RPC.
    Stdio {
        /// Program, looked up in `PATH` when it has no slash.
        command: String,
        /// Its arguments.
        args: Vec<String>,
        /// Added to the clean environment; values are secrets.
        env: BTreeMap<String, String>,
        /// Names of kernel variables that are passed on.
        inherit_env: Vec<String>,
        /// Working folder; the folder of the file that configured it when not given.
        cwd: Option<PathBuf>,
    },
    /// Streamable HTTP, falling back to HTTP+SSE of 2024-11-05.
    Http {
        /// `http://` or `https://`.
        url: String,
        /// Sent with each request; values are secrets.
        headers: BTreeMap<String, String>,
    },
}

impl Reach {
    /// Its command line, as every user of the machine can read it; or its address without what is secret in
    /// it.
    #[must_use]
    pub fn words(&self) -> Vec<String> {
        match self {
            Self::Stdio { command, args, .. } => {
                let mut words = vec![command.clone()];
                words.extend_from_slice(args);
                words
            }
            Self::Http { url, .. } => vec![address::shown(url)],
        }
    }
}

/// Shows names only: arguments, variables and headers may hold secrets.
impl fmt::Debug for Reach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stdio { command, env, .. } => f
                .debug_struct("Stdio")
                .field("command", command)
                .field("env", &env.keys())
                .finish_non_exhaustive(),
            Self::Http { url, headers } => f
                .debug_struct("Http")
                .field("url", &address::shown(url))
                .field("headers", &headers.keys())
                .finish(),
        }
    }
}

/// When a server that stopped is started again (MGP §11.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RestartPolicy {
    /// Never by itself.
    Never,
    /// When it failed: non-zero exit, signal, broken connection, failed handshake.
    OnFailure,
    /// On any exit that nobody asked for.
    Always,
}

/// MGP §11.5 with its defaults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RestartRules {
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

impl Default for RestartRules {
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

/// How it is known in which call a server asks its client something, where its transport does not tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum QuestionAttribution {
    /// By what is under way: once it has asked without naming its call, its clients get their turns one
    /// after the other.
    #[default]
    ByTurn,
    /// Each question names its call; one that names none is refused, and nobody waits.
    ByCall,
}

/// Who shares a life of a server: its process, or its session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum ServerInstances {
    /// All who call it.
    #[default]
    Shared,
    /// Each agent has an instance of its own, beside the life that serves the lists and the operator.
    PerAgent(PerAgent),
}

/// Bounds on the instances of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PerAgent {
    /// Instances at once.
    pub max: usize,
    /// One that has had nothing to do for this long is ended.
    pub idle: Duration,
}

impl Default for PerAgent {
    fn default() -> Self {
        Self {
            max: 16,
            idle: Duration::from_secs(600),
        }
    }
}

/// Bounds on one server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerLimits {
    /// Longest message accepted from it, in bytes.
    pub max_frame: usize,
    /// A call without answer or progress for this long is cancelled; zero switches it off.
    pub call_timeout: Duration,
    /// No call lasts longer than this, progress or not.
    pub call_timeout_max: Duration,
    /// Longest start, handshake and first lists included. An `npx` download needs its time.
    pub start_timeout: Duration,
    /// How long a stopping server may take between one step of the shutdown and the next.
    pub stop_grace: Duration,
    /// Calls in flight at once; more are refused as overloaded.
    pub max_in_flight: usize,
    /// A tool call that takes longer than this becomes a task, where its client knows tasks and the
    /// server makes none of its own; zero makes none.
    pub task_after: Duration,
    /// How long such a task is kept, from its beginning; one that still runs then is cancelled.
    pub task_ttl: Duration,
    /// What it may ask of those who call it.
    pub consents: Consents,
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
            consents: Consents::default(),
        }
    }
}

/// `[servers.mgp]`.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct MgpDeclaration {
    /// False only when the entry says `mgp = false`: then nothing of MGP is offered to it.
    pub suppressed: bool,
    /// Extensions it is said to speak; what counts is what it negotiates.
    pub extensions: Vec<String>,
    /// Permissions it is said to need.
    pub permissions_required: Vec<String>,
    /// Trust given by the operator.
    pub trust_level: TrustLevel,
}
