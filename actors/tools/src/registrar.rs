//! Registers and deregisters servers while the kernel runs (MGP §15.4, §15.5). Used by `calls`; uses the tree,
//! approvals, the audit log and access control.
//!
//! A registration is validated, audited and stored before its server is started. If its code cannot be read, the
//! operator must approve it first.

mod interpreters;
mod quarantine;
mod record;
mod registrations;
mod removal;
mod server_status_lines;

use std::collections::BTreeSet;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use mgp_engine::policy::access::{ChangeRequest, Principal};
use mgp_engine::policy::trust::TrustLevel;
use mgp_engine::servers::lifecycle::LifecycleState;
use mgp_engine::servers::sandbox::SandboxProgram;
use mgp_engine::servers::spec::{ServerSpec, ServerTransport};
use mgp_engine::tools::registration::{
    self, RegistrationContext, RegistrationCount, RegistrationPlan, ScriptSource, strict_floor,
};
use mgp_protocol::ids::{AgentId, ConnectionId, ServerId};
use mgp_protocol::mgp::audit::{EventType, Outcome as Ended, Target};
use mgp_protocol::mgp::discovery::{Register, Registered};
use mgp_protocol::mgp::permission::{PermissionType, Policy};
use mgp_protocol::refusal::mgp::Code;
use mgp_protocol::refusal::{Denial, Refusal};
use serde_json::json;
use tokio::sync::{Mutex, oneshot};

pub use self::interpreters::Interpreters;
pub use self::quarantine::PendingApprovals;
pub(crate) use self::record::Record;
pub use self::record::RegistrationDefaults;
pub use self::registrations::{Names, Registrations};
pub use self::server_status_lines::status_remarks;
use mgp_callers::request::{AnswerFuture, Caller};
use mgp_policy::{AccessHandle, ApprovalsHandle, PinsHandle};
use mgp_runtime::trace::Trace;
use mgp_runtime::{TaskSupervisorHandle, task};
use mgp_servers::{Connector, ServerTable};
use mgp_store::audit::{AuditHandle, agent_actor, new_event, operator_actor, state_damaged_event};

/// How long a registration waits for its server to connect before it returns.
const SETTLE: Duration = Duration::from_secs(10);

/// The supervision tree, as the registrar uses it.
pub trait ServerTree: Send + Sync + std::fmt::Debug + 'static {
    /// Starts the supervisor of a server; false when the id is taken or it cannot be started. Nothing of it remains
    /// then.
    fn start_server(&self, spec: ServerSpec) -> AnswerFuture<bool>;
    /// Removes a server; the inner receiver resolves once it has stopped.
    fn stop_server(&self, id: ServerId) -> AnswerFuture<Option<oneshot::Receiver<()>>>;
    /// Frees an id, for which a configured server may wait.
    fn release_name(&self, id: ServerId) -> AnswerFuture<()>;
}

/// Who may register servers, and how many.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RegistrationRules {
    /// The agents that may register servers.
    pub allowed_agents: BTreeSet<AgentId>,
    /// The maximum number of servers of one agent.
    pub servers_per_agent: usize,
    /// Whether agents are advised to create a tool if none is found (§16.6).
    pub suggests_creating: bool,
}

/// The registrar; shared, not an actor.
#[derive(Debug)]
pub struct Registrar {
    /// The rules of registration.
    pub registration: RegistrationRules,
    /// Settings for all registered servers.
    pub defaults: RegistrationDefaults,
    /// The registered servers. Locked during each registration: they are few, and run one after the other.
    pub registrations: Mutex<Registrations>,
    /// All servers.
    pub servers: Arc<ServerTable>,
    /// Knows the servers' folders.
    pub connector: Arc<Connector>,
    /// Access control.
    pub access: AccessHandle,
    /// The operator's pending entries.
    pub approvals: ApprovalsHandle,
    /// The pins of their tools.
    pub pins: PinsHandle,
    /// The pins of their skills.
    pub skill_pins: PinsHandle,
    /// The audit log.
    pub audit: AuditHandle,
    /// Registrations that wait for the operator; dropping an entry ends its wait.
    pub pending_approvals: PendingApprovals,
    /// Supervises the tasks that wait for the operator.
    pub supervisor: TaskSupervisorHandle,
    /// The tree, set once it runs.
    pub tree: OnceLock<Arc<dyn ServerTree>>,
}

impl Registrar {
    /// Whether this caller may register; the tools for it are hidden from others.
    #[must_use]
    pub fn can_register(&self, caller: &Caller) -> bool {
        caller.operator || self.registration.allowed_agents.contains(&caller.agent)
    }

    /// Completes removals of earlier runs, and starts the stored servers.
    pub async fn restore(self: &Arc<Self>) {
        let truncated = self.registrations.lock().await.truncate_torn_tail().await;
        match truncated {
            Ok(cut) => cut
                .iter()
                .for_each(|cut| self.audit.record(state_damaged_event(cut))),
            Err(error) => {
                tracing::error!(%error, "an incomplete registration is not truncated yet")
            }
        }
        let ending = self.registrations.lock().await.ending();
        for id in ending {
            self.revoke_grants(&id, &Trace::generate()).await;
        }
        let records: Vec<Record> = self
            .registrations
            .lock()
            .await
            .servers
            .values()
            .cloned()
            .collect();
        for record in records {
            let id = record.server_id();
            if !self.start_if_approved(record).await {
                tracing::warn!(server = %id, "it is registered, but was not started");
            }
        }
    }

    /// `mgp/discovery/register`.
    ///
    /// # Errors
    /// The reason of a rejection, or a failed write; nothing was registered then.
    pub async fn register(
        self: &Arc<Self>,
        caller: &Caller,
        trace: &Trace,
        mut ask: Register,
    ) -> Result<Registered, Refusal> {
        let principal = caller.identity();
        let interpreters = &self.defaults.interpreters;
        if let Some(name) = ask
            .command
            .as_deref()
            .and_then(|c| interpreters.usual_name(c))
        {
            ask.command = Some(name.into());
        }
        let mut registrations = self.registrations.lock().await;
        let (mut record, accepted) = match self.prepare(caller, &registrations, &ask) {
            Ok(prepared) => prepared,
            Err(refusal) => {
                drop(registrations);
                self.record_refusal(&principal, trace, &ask, &refusal);
                return Err(refusal);
            }
        };
        let mut answer = Registered {
            id: record.id.clone(),
            status: "preview".into(),
            trust_level: record.trust.clone(),
            tools: Vec::new(),
            pending: self.pending_decisions(&record, &accepted),
            remarks: accepted.adjustments.clone(),
        };
        if ask.preview {
            return Ok(answer);
        }
        if record.quarantine.is_some() {
            record.pinned = self.current_files(&record).await;
        }
        let event = self.audit_event(&principal, trace, &record, EventType::SERVER_REGISTERED);
        let written = self.audit.record_decision(event).await;
        written.map_err(|error| Refusal::Internal(error.to_string()))?;
        registrations.save_record(record.clone()).await?;
        self.grant_to_creator(&record, trace).await;
        let is_quarantined = record.quarantine.is_some();
        let is_started = self.start_or_ask(record).await;
        // Not earlier: a deregistration must find the server in the tree.
        drop(registrations);
        if !is_started {
            return Err(self.roll_back(trace, &accepted.id).await);
        }
        if is_quarantined {
            answer.status = LifecycleState::Registered.as_str().into();
            return Ok(answer);
        }
        self.wait_settled(&accepted.id, &mut answer).await;
        Ok(answer)
    }

    /// Checks the request and builds the record to store.
    fn prepare(
        &self,
        caller: &Caller,
        registrations: &Registrations,
        ask: &Register,
    ) -> Result<(Record, RegistrationPlan), Refusal> {
        let principal = caller.identity();
        let accepted = self.check(&principal, registrations, ask)?;
        let program = to_sandbox_program(&accepted)?;
        let mut record = Record::new(&accepted, program, ask.justification.clone());
        record.by_agent = principal.agent().is_some();
        record.session = session_scope(caller, ask.session_scoped)?;
        Ok((record, accepted))
    }

    fn check(
        &self,
        principal: &Principal,
        registrations: &Registrations,
        ask: &Register,
    ) -> Result<RegistrationPlan, Refusal> {
        let can_run_code = match principal {
            Principal::Operator(_) => true,
            Principal::Agent(agent)
            | Principal::InSet(agent, _)
            | Principal::InGroups(agent, ..) => self.registration.allowed_agents.contains(agent),
        };
        let (servers, names) = (self.servers.load(), registrations.names().load());
        let taken: Vec<ServerId> = servers.keys().chain(&*names).cloned().collect();
        let context = RegistrationContext {
            caller: principal,
            allow_agents: !self.registration.allowed_agents.is_empty(),
            can_run_code,
            trust_max: TrustLevel::Sandboxed,
            reserved_ids: &taken,
            count: RegistrationCount {
                current: registrations.count(principal.name()),
                max: self.registration.servers_per_agent,
            },
            roots: &[],
            code_floor: &strict_floor(),
        };
        registration::check(ask, &context).map_err(registration::RegistrationRefusal::into_refusal)
    }

    /// Grants a server to the agent that registered it; the operator decides about other agents.
    async fn grant_to_creator(&self, record: &Record, trace: &Trace) {
        if !record.by_agent {
            return;
        }
        let kernel = Principal::Operator("kernel".into());
        let creator = AgentId::new(record.created_by.clone());
        let grant = ChangeRequest::GrantToCreator(creator, record.server_id());
        let granted = self.access.record(kernel, trace.id.clone(), grant);
        if let Err(error) = granted.await {
            tracing::warn!(server = record.id, %error, "the agent that registered it has no access to it");
        }
    }

    /// Removes a server that could not be started.
    async fn roll_back(&self, trace: &Trace, id: &ServerId) -> Refusal {
        let kernel = Principal::Operator("kernel".into());
        let removal = self.remove(&kernel, trace, id, "it could not be started");
        if let Err(error) = removal.await {
            tracing::error!(server = %id, %error, "it could not be started, and stays registered");
        }
        Refusal::Internal(format!("server {id} could not be started"))
    }

    /// Starts a server, or asks the operator first; false when it could not be started.
    async fn start_or_ask(self: &Arc<Self>, record: Record) -> bool {
        match record.quarantine {
            Some(_) => {
                self.await_approval(record);
                true
            }
            None => self.start_recorded(&record).await,
        }
    }

    async fn start_recorded(&self, record: &Record) -> bool {
        if let record::ConnectionMethod::Stdio { env, .. } = &record.way {
            self.audit.redact(env.values().cloned().collect());
        }
        let id = record.server_id();
        let folder = self.connector.sandboxes.server_folder(&id);
        let created = {
            let (folder, interpreters) = (folder.clone(), self.defaults.interpreters.clone());
            let name = record.command().and_then(|c| interpreters.usual_name(c));
            task::run_blocking("registrar.folder", move || {
                let interpreter = name.and_then(|name| interpreters.find(name));
                (std::fs::create_dir_all(folder), interpreter)
            })
        };
        let Ok((created, interpreter)) = created.await else {
            return false;
        };
        if let Err(error) = created {
            tracing::error!(server = %id, %error, "it has no folder");
        }
        let Some(tree) = self.tree.get() else {
            return false;
        };
        let spec = record.to_spec(&self.defaults, folder, interpreter);
        tree.start_server(spec).await
    }

    /// What the operator must decide first.
    fn pending_decisions(&self, record: &Record, accepted: &RegistrationPlan) -> Vec<String> {
        let rules = &self.defaults.permissions;
        let needs_operator = |permission: &PermissionType| {
            let is_open = !rules.configured.contains(permission);
            accepted.required_approvals.contains(permission)
                || is_open && rules.policy == Policy::Interactive
        };
        let required = accepted.permissions.iter();
        let required = required.flat_map(|word| PermissionType::parse_all(word));
        let undecided: BTreeSet<PermissionType> = required.filter(needs_operator).collect();
        let undecided = undecided.iter();
        let undecided =
            undecided.map(|permission| format!("the operator has to permit {permission}"));
        record
            .first_start_decision()
            .into_iter()
            .chain(undecided)
            .collect()
    }

    /// Waits up to [`SETTLE`] until the server is connected, has failed or waits for the operator.
    async fn wait_settled(&self, id: &ServerId, answer: &mut Registered) {
        let Some(handle) = self.servers.load().get(id).cloned() else {
            return;
        };
        let mut status = handle.watch_status();
        let settled = status.wait_for(|now| {
            let failed = now.state == LifecycleState::Error || now.next_start.is_some();
            now.awaits_operator || failed || now.state == LifecycleState::Connected
        });
        let _ = tokio::time::timeout(SETTLE, settled).await;
        let now = handle.status();
        answer.status = now.state.as_str().into();
        if now.state == LifecycleState::Connected {
            answer.tools = handle.tools().iter().map(ToString::to_string).collect();
        } else if now.awaits_operator {
            let permissions = now.declared.permissions_required.join(", ");
            answer.pending = vec![
                format!("{permissions} {}", now.reason)
                    .trim_start()
                    .to_owned(),
            ];
        } else {
            answer.remarks.extend(status_remarks(&handle));
        }
    }

    fn audit_event(
        &self,
        principal: &Principal,
        trace: &Trace,
        record: &Record,
        kind: EventType,
    ) -> mgp_protocol::mgp::audit::Event {
        let details = json!({
            "created_by": record.created_by, "justification": record.justification,
            "trust_level": record.trust, "permissions_required": record.permissions,
        });
        new_event(
            kind,
            audit_actor(principal),
            audit_target(&record.id),
            &trace.id,
            Ended::Success,
            details,
        )
    }

    fn record_refusal(&self, principal: &Principal, trace: &Trace, ask: &Register, why: &Refusal) {
        let result = if matches!(why, Refusal::Forbidden(_)) {
            Ended::Denied
        } else {
            Ended::Blocked
        };
        let id: String = ask.id.chars().take(ServerId::MAX_LEN).collect();
        let why = why.to_string();
        let details =
            json!({"created_by": principal.name(), "reason": why, "preview": ask.preview});
        let kind = EventType::SERVER_REGISTERED;
        let event = new_event(
            kind,
            audit_actor(principal),
            audit_target(&id),
            &trace.id,
            result,
            details,
        );
        self.audit.record(event);
    }
}

fn audit_actor(principal: &Principal) -> mgp_protocol::mgp::audit::Actor {
    match principal {
        Principal::Operator(_) => operator_actor(),
        Principal::Agent(agent) | Principal::InSet(agent, _) | Principal::InGroups(agent, ..) => {
            agent_actor(agent.as_str())
        }
    }
}

fn audit_target(id: &str) -> Target {
    Target {
        server_id: Some(id.to_owned()),
        ..Target::default()
    }
}

/// The validated code, stored so that nothing else is run.
fn to_sandbox_program(accepted: &RegistrationPlan) -> Result<Option<SandboxProgram>, Refusal> {
    let ServerTransport::Stdio { args, .. } = &accepted.transport else {
        return Ok(None);
    };
    match &accepted.script {
        ScriptSource::Unreadable(_) => Ok(None),
        ScriptSource::Inline { language, text } => Ok(Some(SandboxProgram {
            file: program_file_name(language).into(),
            text: text.clone(),
            at: args.len(),
        })),
        // The file could change between validation and start.
        ScriptSource::File(path) => Err(Refusal::Denied(Box::new(path_denial(&accepted.id, path)))),
    }
}

fn path_denial(server: &ServerId, path: &str) -> Denial {
    Denial::Registration {
        server: server.to_string(),
        code: Code::ValidationBlocked,
        rule: "path",
        at: "/args".into(),
        reason: format!("{path} is a path, and a registered server's program comes along"),
        hint: "leave args out and send the program's text as `code`: {\"language\": \"python\" or \"javascript\", \"text\": ...}; what is to run from a file is for the operator to configure",
    }
}

fn session_scope(caller: &Caller, scoped: bool) -> Result<Option<ConnectionId>, Refusal> {
    match (scoped, caller.live_connection()) {
        (false, _) => Ok(None),
        (true, Some(agent)) => Ok(Some(agent.connection)),
        (true, None) => Err(Refusal::BadParams(
            "`session_scoped` needs a session, and a request of this protocol version has none"
                .into(),
        )),
    }
}

fn program_file_name(language: &str) -> &'static str {
    match language {
        "python" => "server.py",
        _ => "server.mjs",
    }
}
