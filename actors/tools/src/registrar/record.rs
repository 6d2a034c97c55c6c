//! What is stored about a registered server, and how its configuration is made from that.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use mgp_engine::policy::permissions::PermissionRules;
use mgp_engine::policy::pins::{PinMode, PinRules};
use mgp_engine::policy::requirements::ToolRules;
use mgp_engine::policy::trust::TrustLevel;
use mgp_engine::servers::login::LoginConfig;
use mgp_engine::servers::sandbox::{self, PinnedProgram, SandboxProgram};
use mgp_engine::servers::spec::{
    CallbackAttribution, MgpConfig, ReplicaMode, RestartConfig, ServerInstances, ServerLimits,
    ServerSpec, ServerTransport, UrlProtocol,
};
use mgp_engine::tools::registration::RegistrationPlan;
use mgp_protocol::ids::{ConnectionId, ServerId};
use mgp_protocol::mgp::permission::PermissionType;
use serde::{Deserialize, Serialize};

use super::interpreters::Interpreters;
use mgp_callers::request::Caller;

/// The settings of every registered server.
#[derive(Clone, Debug)]
pub struct RegistrationDefaults {
    /// `[limits]`.
    pub limits: ServerLimits,
    /// `[validation]` and `[confirmation]`.
    pub tools: ToolRules,
    /// `[permissions]`.
    pub permissions: PermissionRules,
    /// `[sandbox]`, and what `[discovery.registered]` opens.
    pub sandbox: sandbox::SandboxConfig,
    /// The variables their programs are started with.
    pub interpreters: Interpreters,
}

/// A registered server, as it is stored.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Record {
    /// Its name.
    pub id: String,
    /// How it is reached.
    pub(crate) way: ConnectionMethod,
    /// Its trust level.
    pub(crate) trust: String,
    /// Its program, if it could be read.
    pub(crate) program: Option<SandboxProgram>,
    /// The protocol it is registered with.
    pub(crate) extensions: Vec<String>,
    /// The permissions it needs.
    pub(crate) permissions: Vec<String>,
    /// Those of them that a person decides on, under each policy.
    pub asks: Vec<String>,
    /// Who registered it.
    pub created_by: String,
    /// The agent that registered it.
    pub(crate) by_agent: bool,
    /// Its purpose, as the registering agent wrote it.
    pub(crate) justification: Option<String>,
    /// What a person must approve before it is started.
    pub(crate) quarantine: Option<String>,
    /// Its files at the time of the approval request.
    #[serde(default)]
    pub(crate) pinned: Vec<PinnedProgram>,
    /// The session it ends with. Such a server is not stored.
    #[serde(skip)]
    pub(crate) session: Option<ConnectionId>,
}

/// How a registered server is reached.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum ConnectionMethod {
    /// A child process.
    Stdio {
        /// The program.
        command: String,
        /// Its arguments, without the path of code that was sent along.
        args: Vec<String>,
        /// Its environment variables; they may hold secrets.
        env: BTreeMap<String, String>,
    },
    /// A URL.
    Http {
        /// The URL.
        url: String,
    },
}

impl Record {
    /// The record of an accepted registration.
    #[must_use]
    pub fn new(
        accepted: &RegistrationPlan,
        program: Option<SandboxProgram>,
        justification: Option<String>,
    ) -> Self {
        let way = match &accepted.transport {
            ServerTransport::Stdio {
                command, args, env, ..
            } => ConnectionMethod::Stdio {
                command: command.clone(),
                args: args.clone(),
                env: env.clone(),
            },
            ServerTransport::Http { url, .. } => ConnectionMethod::Http { url: url.clone() },
            ServerTransport::Node(_) => unreachable!("nobody registers a server of another node"),
        };
        Self {
            id: accepted.id.to_string(),
            way,
            trust: accepted.trust.as_str().to_owned(),
            program,
            extensions: accepted.extensions.clone(),
            permissions: accepted.permissions.clone(),
            asks: accepted
                .required_approvals
                .iter()
                .map(ToString::to_string)
                .collect(),
            created_by: accepted.created_by.clone(),
            by_agent: false,
            justification,
            quarantine: accepted.approval_reason().map(str::to_owned),
            pinned: Vec::new(),
            session: None,
        }
    }

    /// Its id.
    #[must_use]
    pub(crate) fn server_id(&self) -> ServerId {
        ServerId::new(self.id.clone())
    }

    /// The program of a child process.
    #[must_use]
    pub fn command(&self) -> Option<&str> {
        match &self.way {
            ConnectionMethod::Stdio { command, .. } => Some(command),
            ConnectionMethod::Http { .. } => None,
        }
    }

    /// Whether this caller registered it, or is the operator.
    #[must_use]
    pub fn is_owned_by(&self, caller: &Caller) -> bool {
        caller.operator || self.by_agent && self.created_by == caller.agent.as_str()
    }

    /// What has to be decided before it is started for the first time.
    #[must_use]
    pub(crate) fn first_start_decision(&self) -> Option<String> {
        let why = self.quarantine.as_ref()?;
        Some(format!("the operator has to allow its first start: {why}"))
    }

    /// The configuration it is started with. `own` is its folder; `interpreter` is the program its command
    /// stands for, if it names an interpreter.
    #[must_use]
    pub(crate) fn to_spec(
        &self,
        background: &RegistrationDefaults,
        own: PathBuf,
        interpreter: Option<PathBuf>,
    ) -> ServerSpec {
        let chosen = interpreter.is_some();
        let interpreter = interpreter.map(|path| path.display().to_string());
        let reach = match &self.way {
            ConnectionMethod::Stdio { command, args, env } => ServerTransport::Stdio {
                command: interpreter.unwrap_or_else(|| command.clone()),
                args: args.clone(),
                env: env.clone(),
                inherit_env: Vec::new(),
                cwd: Some(own),
            },
            ConnectionMethod::Http { url } => ServerTransport::Http {
                url: url.clone(),
                headers: BTreeMap::new(),
                protocol: UrlProtocol::Mcp,
            },
        };
        let levels = [TrustLevel::Standard, TrustLevel::Trusted];
        let trust = levels
            .into_iter()
            .find(|level| level.as_str() == self.trust);
        let mut permissions = background.permissions.clone();
        let asks = self
            .asks
            .iter()
            .flat_map(|word| PermissionType::parse_all(word));
        for ask in asks {
            permissions.configured.remove(&ask);
            permissions.exceptions.insert(ask);
        }
        ServerSpec {
            id: self.server_id(),
            transport: reach,
            autostart: true,
            start_after: Vec::new(),
            rolling: false,
            replica: ReplicaMode::Standalone,
            restart: RestartConfig::default(),
            resources: mgp_engine::servers::resources::ResourceLimits::default(),
            limits: background.limits.clone(),
            default_policy: None,
            callback_attribution: CallbackAttribution::default(),
            instances: ServerInstances::default(),
            mgp: MgpConfig {
                is_disabled: false,
                extensions: self.extensions.clone(),
                permissions_required: self.permissions.clone(),
                trust_level: trust.unwrap_or(TrustLevel::Sandboxed),
            },
            // What an agent wrote pushes nothing and takes part in no inference.
            mcpl: false,
            tools: Arc::new(background.tools.clone()),
            permissions,
            pin: PinRules {
                mode: PinMode::Block,
                ..PinRules::default()
            },
            sandbox: sandbox::SandboxConfig {
                is_operator_written: false,
                is_operator_chosen: chosen,
                program: self.program.clone(),
                pinned: self.pinned.clone(),
                ..background.sandbox.clone()
            },
            // What an agent registers has no login of a person's.
            login: LoginConfig::disabled(),
            pass_headers: Vec::new(),
        }
    }
}
