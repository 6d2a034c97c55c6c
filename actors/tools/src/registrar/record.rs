//! The stored record of a registered server, and the configuration made from it.

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
    ServerSpec, ServerTransport, StartMode, UrlProtocol, default_client_extensions,
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
    /// `[sandbox]`, and the permissions of `[discovery.registered]`.
    pub sandbox: sandbox::SandboxConfig,
    /// The interpreters for their programs.
    pub interpreters: Interpreters,
}

/// A registered server, as stored.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Record {
    /// Its id.
    pub id: String,
    /// Its connection method.
    pub(crate) way: ConnectionMethod,
    pub(crate) trust: String,
    /// Its program, if the code could be read.
    pub(crate) program: Option<SandboxProgram>,
    /// The protocol extensions it declared.
    pub(crate) extensions: Vec<String>,
    pub(crate) permissions: Vec<String>,
    /// Permissions that the operator decides about under any policy.
    pub asks: Vec<String>,
    /// Who registered it.
    pub created_by: String,
    /// Whether an agent registered it.
    pub(crate) by_agent: bool,
    /// Its purpose, in the words of the registering agent.
    pub(crate) justification: Option<String>,
    /// What the operator must approve before it is started.
    pub(crate) quarantine: Option<String>,
    /// Its files at the time of the approval request.
    #[serde(default)]
    pub(crate) pinned: Vec<PinnedProgram>,
    /// The session it ends with. Such a server is not stored.
    #[serde(skip)]
    pub(crate) session: Option<ConnectionId>,
}

/// How a registered server is connected.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum ConnectionMethod {
    Stdio {
        command: String,
        /// Without the path of code that was sent along.
        args: Vec<String>,
        /// May hold secrets.
        env: BTreeMap<String, String>,
    },
    Http {
        url: String,
    },
}

impl Record {
    /// The record of an accepted registration.
    #[must_use]
    pub(crate) fn new(
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

    #[must_use]
    pub(crate) fn server_id(&self) -> ServerId {
        ServerId::new(self.id.clone())
    }

    /// The program of a child process.
    #[must_use]
    pub(crate) fn command(&self) -> Option<&str> {
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

    /// What must be decided before its first start.
    #[must_use]
    pub(crate) fn first_start_decision(&self) -> Option<String> {
        let why = self.quarantine.as_ref()?;
        Some(format!("the operator has to allow its first start: {why}"))
    }

    /// The configuration it is started with. `folder` is its working folder; `interpreter` replaces the command if that
    /// names an interpreter.
    #[must_use]
    pub(crate) fn to_spec(
        &self,
        defaults: &RegistrationDefaults,
        folder: PathBuf,
        interpreter: Option<PathBuf>,
    ) -> ServerSpec {
        let is_operator_chosen = interpreter.is_some();
        let interpreter = interpreter.map(|path| path.display().to_string());
        let transport = match &self.way {
            ConnectionMethod::Stdio { command, args, env } => ServerTransport::Stdio {
                command: interpreter.unwrap_or_else(|| command.clone()),
                args: args.clone(),
                env: env.clone(),
                inherit_env: Vec::new(),
                cwd: Some(folder),
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
        let mut permissions = defaults.permissions.clone();
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
            transport,
            start: StartMode::Kernel,
            start_after: Vec::new(),
            rolling: false,
            replica: ReplicaMode::Standalone,
            restart: RestartConfig::default(),
            resources: mgp_engine::servers::resources::ResourceLimits::default(),
            limits: defaults.limits.clone(),
            default_policy: None,
            callback_attribution: CallbackAttribution::default(),
            instances: ServerInstances::default(),
            mgp: MgpConfig {
                is_disabled: false,
                extensions: self.extensions.clone(),
                permissions_required: self.permissions.clone(),
                trust_level: trust.unwrap_or(TrustLevel::Sandboxed),
                seal: None,
                unsealed_from: None,
            },
            // A server that an agent wrote pushes nothing and takes no part in inference.
            mcpl: false,
            client_extensions: default_client_extensions(),
            tools: Arc::new(defaults.tools.clone()),
            permissions,
            pin: PinRules {
                mode: PinMode::Block,
                ..PinRules::default()
            },
            sandbox: sandbox::SandboxConfig {
                is_operator_written: false,
                is_operator_chosen,
                program: self.program.clone(),
                pinned: self.pinned.clone(),
                ..defaults.sandbox.clone()
            },
            // An agent must not register a server that uses a person's login.
            login: LoginConfig::disabled(),
            pass_headers: Vec::new(),
            agent_values: BTreeMap::new(),
        }
    }
}
