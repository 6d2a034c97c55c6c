//! What is kept of a registered server, and the way back to what is started.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use mgp_engine::policy::permissions::PermissionRules;
use mgp_engine::policy::pins::PinMode;
use mgp_engine::policy::requirements::ToolRules;
use mgp_engine::policy::trust::TrustLevel;
use mgp_engine::servers::sandbox::{self, PinnedProgram, SandboxProgram};
use mgp_engine::servers::spec::{
    MgpDeclaration, QuestionAttribution, Reach, RestartRules, ServerInstances, ServerLimits,
    ServerSpec,
};
use mgp_engine::tools::registration::Accepted;
use mgp_protocol::ids::{ConnectionId, ServerId};
use mgp_protocol::mgp::permission::PermissionType;
use serde::{Deserialize, Serialize};

use super::interpreters::Interpreters;
use crate::request::Caller;

/// What every registered server is started with.
#[derive(Clone, Debug)]
pub struct Background {
    /// `[limits]`.
    pub limits: ServerLimits,
    /// `[validation]` and `[confirmation]`.
    pub tools: ToolRules,
    /// `[permissions]`.
    pub permissions: PermissionRules,
    /// `[sandbox]`, and what `[discovery.registered]` opens.
    pub sandbox: sandbox::SandboxRules,
    /// What their programs are started with.
    pub interpreters: Interpreters,
}

/// A registered server, as it stands on disk.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Record {
    /// Its name.
    pub id: String,
    /// How it is reached.
    pub way: Way,
    /// Its trust, by the word.
    pub trust: String,
    /// Its program, where that could be read before.
    pub program: Option<SandboxProgram>,
    /// What it is said to speak.
    pub extensions: Vec<String>,
    /// What it needs.
    pub permissions: Vec<String>,
    /// Of these, what a person decides on under each policy.
    pub asks: Vec<String>,
    /// Who registered it.
    pub created_by: String,
    /// That is an agent.
    pub by_agent: bool,
    /// What it is for, in the words of who registered it.
    pub justification: Option<String>,
    /// What keeps it from being started before a person has said yes.
    pub quarantine: Option<String>,
    /// What it is run from, as it was when the person was asked.
    #[serde(default)]
    pub pinned: Vec<PinnedProgram>,
    /// The session it ends with; such a server is not kept.
    #[serde(skip)]
    pub session: Option<ConnectionId>,
}

/// How a registered server is reached.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Way {
    /// A child.
    Stdio {
        /// Program.
        command: String,
        /// Arguments, without the path of a program that came along.
        args: Vec<String>,
        /// Variables: secrets.
        env: BTreeMap<String, String>,
    },
    /// Elsewhere.
    Http {
        /// Where.
        url: String,
    },
}

impl Record {
    /// The record of what was accepted.
    #[must_use]
    pub fn of(
        accepted: &Accepted,
        program: Option<SandboxProgram>,
        justification: Option<String>,
    ) -> Self {
        let way = match &accepted.reach {
            Reach::Stdio {
                command, args, env, ..
            } => Way::Stdio {
                command: command.clone(),
                args: args.clone(),
                env: env.clone(),
            },
            Reach::Http { url, .. } => Way::Http { url: url.clone() },
        };
        Self {
            id: accepted.id.to_string(),
            way,
            trust: accepted.trust.as_str().to_owned(),
            program,
            extensions: accepted.extensions.clone(),
            permissions: accepted.permissions.clone(),
            asks: accepted.asks.iter().map(ToString::to_string).collect(),
            created_by: accepted.created_by.clone(),
            by_agent: false,
            justification,
            quarantine: accepted.asks_first().map(str::to_owned),
            pinned: Vec::new(),
            session: None,
        }
    }

    /// Its id.
    #[must_use]
    pub fn server(&self) -> ServerId {
        ServerId::new(self.id.clone())
    }

    /// The program of a child.
    #[must_use]
    pub fn command(&self) -> Option<&str> {
        match &self.way {
            Way::Stdio { command, .. } => Some(command),
            Way::Http { .. } => None,
        }
    }

    /// Whether this caller registered it, or is the operator.
    #[must_use]
    pub fn is_of(&self, caller: &Caller) -> bool {
        caller.operator || self.by_agent && self.created_by == caller.agent.as_str()
    }

    /// What has to be decided before it is started for the first time.
    #[must_use]
    pub fn first_start(&self) -> Option<String> {
        let why = self.quarantine.as_ref()?;
        Some(format!("the operator has to allow its first start: {why}"))
    }

    /// What is started; `own` is its folder, and `interpreter` what its command means, where it is
    /// one of those.
    #[must_use]
    pub fn spec(
        &self,
        background: &Background,
        own: PathBuf,
        interpreter: Option<PathBuf>,
    ) -> ServerSpec {
        let chosen = interpreter.is_some();
        let interpreter = interpreter.map(|path| path.display().to_string());
        let reach = match &self.way {
            Way::Stdio { command, args, env } => Reach::Stdio {
                command: interpreter.unwrap_or_else(|| command.clone()),
                args: args.clone(),
                env: env.clone(),
                inherit_env: Vec::new(),
                cwd: Some(own),
            },
            Way::Http { url } => Reach::Http {
                url: url.clone(),
                headers: BTreeMap::new(),
            },
        };
        let levels = [TrustLevel::Standard, TrustLevel::Trusted];
        let trust = levels
            .into_iter()
            .find(|level| level.as_str() == self.trust);
        let mut permissions = background.permissions.clone();
        let asks = self.asks.iter().flat_map(|word| PermissionType::read(word));
        for ask in asks {
            permissions.configured.remove(&ask);
            permissions.exceptions.insert(ask);
        }
        ServerSpec {
            id: self.server(),
            reach,
            autostart: true,
            restart: RestartRules::default(),
            limits: background.limits.clone(),
            default_policy: None,
            asking: QuestionAttribution::default(),
            instances: ServerInstances::default(),
            mgp: MgpDeclaration {
                suppressed: false,
                extensions: self.extensions.clone(),
                permissions_required: self.permissions.clone(),
                trust_level: trust.unwrap_or(TrustLevel::Sandboxed),
            },
            tools: Arc::new(background.tools.clone()),
            permissions,
            pin: PinMode::Block,
            sandbox: sandbox::SandboxRules {
                vouched: false,
                chosen,
                program: self.program.clone(),
                pinned: self.pinned.clone(),
                ..background.sandbox.clone()
            },
        }
    }
}
