//! Access control: holds the grants and records decisions about them.
//! Used by calls, the operator, approvals and the tree; uses the journal and the audit log.
//!
//! A decision is signed, then written to the journal and to the audit log, then published, and only then
//! acknowledged. Decisions made while the disk is busy share the next sync.

mod audit_events;
mod batch_write;
mod grant_store;
mod queries;
mod recovery;
mod state;

use std::collections::BTreeMap;
use std::sync::Arc;

use mgp_engine::node_names::NodeNames;
use mgp_engine::policy::access::{
    ChangeRequest, DefaultPolicies, ForeignRules, GrantTable, Principal, RemoteServers, ToolSets,
};
use mgp_engine::policy::grants::{GrantChange, Operation};
use mgp_engine::policy::permissions::RecordedDecision;
use mgp_protocol::ids::{AgentId, NodeServer, ServerId};
use mgp_protocol::mgp::access::{Entry, Explanation, List};
use mgp_protocol::mgp::audit::TraceId;
use mgp_protocol::mgp::permission::PermissionType;
use mgp_protocol::refusal::Refusal;
use mgp_sync::Snapshot;
use ractor::{Actor, ActorProcessingErr, ActorRef};
use tokio::sync::oneshot;

pub(crate) use self::batch_write::RecoveryOutcome;
pub use self::grant_store::GrantStore;
pub use self::queries::GrantQuery;
pub(crate) use self::state::AccessState;
use mgp_callers::Directory;
use mgp_runtime::time::boottime_now;
use mgp_runtime::{EventSink, Mailbox, Queued, Reply, randomness};
use mgp_store::audit::{AuditHandle, state_damaged_event};

/// Handle of the actor.
#[derive(Debug, Clone)]
pub struct AccessHandle {
    mailbox: Mailbox<AccessMsg>,
    table: Arc<Snapshot<GrantTable>>,
    reveals_denials: bool,
}

impl AccessHandle {
    /// With `reveals_denials`, callers of denied tools learn that the tools are denied.
    #[must_use]
    pub fn new(
        mailbox: Mailbox<AccessMsg>,
        table: Arc<Snapshot<GrantTable>>,
        reveals_denials: bool,
    ) -> Self {
        Self {
            mailbox,
            table,
            reveals_denials,
        }
    }

    /// The published table that calls are checked against.
    #[must_use]
    pub fn table(&self) -> Arc<GrantTable> {
        let table = self.table.load();
        // After a suspend, the published table may hold an expired lease.
        match table.with_expired_lease(boottime_now) {
            Some(lapsed) => Arc::new(lapsed),
            None => table,
        }
    }

    /// Whether callers that negotiated `access_control` learn that a tool is denied.
    #[must_use]
    pub fn should_reveal_denials(&self) -> bool {
        self.reveals_denials
    }

    /// Decides about `change` for `by`. Returns the changes once they are on disk and in force; empty if the grants
    /// already have this state.
    ///
    /// # Errors
    /// The reason of a rejection; [`Refusal::Overloaded`] when too many decisions are queued; [`Refusal::Internal`] when
    /// the disk failed and the outcome is unknown.
    pub async fn record(
        &self,
        by: Principal,
        trace: TraceId,
        change: ChangeRequest,
    ) -> Result<Vec<GrantChange>, Refusal> {
        let ask = |reply| AccessMsg::Record {
            change,
            principal: by,
            trace,
            reply,
        };
        self.mailbox.ask(ask).await.map_err(unreachable_refusal)?
    }

    /// The entries in force that match `list`.
    ///
    /// # Errors
    /// [`Refusal::Internal`] when the actor is not reachable.
    pub async fn list(&self, list: List, names: NodeNames) -> Result<Vec<Entry>, Refusal> {
        self.query(|reply| GrantQuery::List(list, names, reply))
            .await
    }

    /// The rule that decides about an agent at a server or one of its tools.
    ///
    /// # Errors
    /// [`Refusal::Internal`] when the actor is not reachable.
    pub async fn explain(
        &self,
        who: Principal,
        server: ServerId,
        tool: Option<String>,
    ) -> Result<Explanation, Refusal> {
        self.query(|reply| GrantQuery::Explain(who, server, tool, reply))
            .await
    }

    /// How this node denies one of its agents the server of another node; `None` if it does not.
    ///
    /// # Errors
    /// [`Refusal::Internal`] when the actor is not reachable.
    pub async fn explain_local_denial(
        &self,
        agent: AgentId,
        server: NodeServer,
        tool: Option<String>,
        names: NodeNames,
    ) -> Result<Option<Explanation>, Refusal> {
        self.query(|reply| GrantQuery::ExplainLocalDenial {
            agent,
            server,
            tool,
            names,
            reply,
        })
        .await
    }

    /// The operator's decisions in force about the permissions of a server.
    ///
    /// # Errors
    /// [`Refusal::Internal`] when the actor is not reachable.
    pub(crate) async fn permission_decisions(
        &self,
        server: ServerId,
    ) -> Result<BTreeMap<PermissionType, RecordedDecision>, Refusal> {
        self.query(|reply| GrantQuery::Permissions(server, reply))
            .await
    }

    /// Waits until all earlier messages are in force.
    ///
    /// # Errors
    /// [`Refusal::Internal`] when the actor is not reachable.
    pub async fn flush(&self) -> Result<(), Refusal> {
        self.query(GrantQuery::Barrier).await
    }

    async fn query<T: Send + 'static>(
        &self,
        query: impl FnOnce(Reply<T>) -> GrantQuery,
    ) -> Result<T, Refusal> {
        let ask = |reply| AccessMsg::Read(query(reply));
        self.mailbox.ask(ask).await.map_err(unreachable_refusal)
    }

    /// Replaces the default policies; in force when this resolves.
    ///
    /// # Errors
    /// [`Refusal::Internal`] when the actor is not reachable.
    pub async fn set_defaults(&self, defaults: DefaultPolicies) -> Result<(), Refusal> {
        let ask = |reply| AccessMsg::SetDefaults(defaults, reply);
        self.mailbox.ask(ask).await.map_err(unreachable_refusal)
    }

    /// Replaces the tool sets; in force when this resolves.
    ///
    /// # Errors
    /// [`Refusal::Internal`] when the actor is not reachable.
    pub async fn set_tool_sets(&self, sets: Arc<ToolSets>) -> Result<(), Refusal> {
        let ask = |reply| AccessMsg::SetToolSets(sets, reply);
        self.mailbox.ask(ask).await.map_err(unreachable_refusal)
    }

    /// Replaces the ids that servers of other nodes have here; in force when this resolves.
    ///
    /// # Errors
    /// [`Refusal::Internal`] when the actor is not reachable.
    pub async fn set_remote_servers(&self, remote: Arc<RemoteServers>) -> Result<(), Refusal> {
        let ask = |reply| AccessMsg::SetRemoteServers(remote, reply);
        self.mailbox.ask(ask).await.map_err(unreachable_refusal)
    }

    /// Replaces the rules for agents of other nodes; `None` denies them everything. Calls apply in order; the receiver
    /// resolves when the rules are in force. Queued requests are decided by the new rules.
    #[must_use]
    pub fn set_foreign_rules(&self, rules: Option<Arc<ForeignRules>>) -> oneshot::Receiver<()> {
        let (reply, in_force) = Reply::new();
        // Sent past the mailbox's bound: a rule that removes access must not be lost. There is one sender, with one at a time.
        let _ = self
            .mailbox
            .send_to_self(AccessMsg::SetForeignRules(rules, reply));
        in_force
    }
}

fn unreachable_refusal(error: mgp_runtime::AskError) -> Refusal {
    Refusal::Internal(format!("access control: {error}"))
}

/// Messages to the actor.
pub enum AccessMsg {
    /// Decides, and records the changes.
    Record {
        /// The requested change.
        change: ChangeRequest,
        /// Who requests it.
        principal: Principal,
        /// The trace of the request.
        trace: TraceId,
        /// Resolves when the changes are in force.
        reply: Reply<Result<Vec<GrantChange>, Refusal>>,
    },
    /// Reads the grants.
    Read(GrantQuery),
    /// Replaces the default policies.
    SetDefaults(DefaultPolicies, Reply<()>),
    /// Replaces the tool sets.
    SetToolSets(Arc<ToolSets>, Reply<()>),
    /// Replaces the rules for agents of other nodes.
    SetForeignRules(Option<Arc<ForeignRules>>, Reply<()>),
    /// Replaces the ids of servers of other nodes.
    SetRemoteServers(Arc<RemoteServers>, Reply<()>),
    /// A batch is on disk, or the reason why that is unknown.
    Committed(Result<(), String>),
    /// The state of the disk is known again.
    Restored(RecoveryOutcome),
    /// A grant may have expired.
    ExpiryDue,
    /// The contents of the disk are unknown: the kernel must restart.
    Broken(String),
}

impl std::fmt::Debug for AccessMsg {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Record { .. } => "Record",
            Self::Read(_) => "Read",
            Self::SetDefaults(..) => "SetDefaults",
            Self::SetToolSets(..) => "SetToolSets",
            Self::SetForeignRules(..) => "SetForeignRules",
            Self::SetRemoteServers(..) => "SetRemoteServers",
            Self::Committed(_) => "Committed",
            Self::Restored(_) => "Restored",
            Self::ExpiryDue => "ExpiryDue",
            Self::Broken(_) => "Broken",
        })
    }
}

/// The actor; its fields are fixed at construction.
#[derive(Debug)]
pub struct AccessActor {
    /// Receives each new table.
    pub table: Arc<Snapshot<GrantTable>>,
    /// Notifies agents whose lists changed.
    pub directory: Arc<Directory>,
    /// Called when agents' rights have changed.
    pub on_change: EventSink<()>,
    /// The audit log.
    pub audit: AuditHandle,
}

impl Actor for AccessActor {
    type Msg = Queued<AccessMsg>;
    type State = AccessState;
    /// The grants, and the operations that the audit log lacks.
    type Arguments = (GrantStore, Vec<Operation>);

    async fn pre_start(
        &self,
        myself: ActorRef<Self::Msg>,
        (store, unaudited): Self::Arguments,
    ) -> Result<AccessState, ActorProcessingErr> {
        if let Some(tail) = store.torn_tail() {
            // After the comparison with the audit log, which must not hold an entry that is truncated here.
            store.journal.truncate_torn_tail().await?;
            self.audit
                .record_decision(state_damaged_event(tail))
                .await?;
        }
        for operation in unaudited {
            tracing::warn!(
                sequence = operation.place.sequence,
                "added a decision that the audit log lacked"
            );
            let trace = TraceId::from_random(randomness::random_bytes());
            if let Some(change) = operation.change.grants() {
                let event =
                    audit_events::recovered_event(&operation, change, store.grants(), &trace);
                self.audit.record_decision(event).await?;
            }
        }
        Ok(AccessState::new(
            store,
            Mailbox::new(myself),
            self.table.load(),
        ))
    }

    async fn handle(
        &self,
        _myself: ActorRef<Self::Msg>,
        queued: Self::Msg,
        state: &mut AccessState,
    ) -> Result<(), ActorProcessingErr> {
        match queued.into_message() {
            AccessMsg::Record {
                change,
                principal: by,
                trace,
                reply,
            } => state.record(self, change, by, trace, reply),
            AccessMsg::Read(query) => state.read(self, query),
            AccessMsg::SetDefaults(defaults, reply) => {
                state.set_defaults(self, defaults);
                reply.send(());
            }
            AccessMsg::SetToolSets(sets, reply) => {
                state.set_tool_sets(self, sets);
                reply.send(());
            }
            AccessMsg::SetRemoteServers(remote, reply) => {
                state.set_remote_servers(self, remote);
                reply.send(());
            }
            AccessMsg::SetForeignRules(rules, reply) => {
                state.set_foreign_rules(self, rules);
                reply.send(());
            }
            AccessMsg::Committed(outcome) => state.handle_committed(self, outcome),
            AccessMsg::Restored(restored) => state.handle_restored(self, restored),
            AccessMsg::ExpiryDue => state.remove_expired(self),
            AccessMsg::Broken(why) => return Err(why.into()),
        }
        Ok(())
    }
}
