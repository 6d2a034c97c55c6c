//! The registry of agents with tokens: a change is on disk before it is acknowledged, then published. Used
//! by the operator; writes to the audit log.

mod file;

use mgp_runtime::time::unix_ms;
use mgp_runtime::{AskError, Mailbox, Queued, Reply, randomness, task};
use std::path::PathBuf;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use mgp_engine::doors::agent_registry::{
    AgentChange, AgentChangeError, AgentRegistry, RegisteredAgent, TOKEN_PREFIX, TokenDigest,
};
use mgp_engine::timestamps::render_rfc3339_ms;
use mgp_protocol::ids::AgentId;
use mgp_protocol::mgp::audit::{Event, EventType, Outcome, Target, TraceId};
use ractor::{Actor, ActorProcessingErr, ActorRef};
use serde_json::json;

use crate::revocation::Revocation;
use mgp_callers::RegisteredAgents;
use mgp_store::audit::{self, AuditHandle, AuditWriteError};

pub use self::file::{create_empty, load};

/// Why the registry was not changed.
#[derive(Debug, thiserror::Error)]
pub enum RegistryChangeError {
    /// The change is not valid.
    #[error(transparent)]
    Refused(#[from] AgentChangeError),
    /// The disk failed.
    #[error("the list of agents could not be written: {0}")]
    Disk(#[from] std::io::Error),
    /// The audit log could not be written.
    #[error(transparent)]
    Audit(#[from] AuditWriteError),
    /// The actor cannot be reached.
    #[error("the agent registry is not reachable: {0}")]
    Unreachable(#[from] AskError),
}

/// A new token; its text is stored nowhere.
pub struct NewToken {
    /// For `Authorization: Bearer …`.
    pub text: String,
    /// The agent it belongs to.
    pub entry: RegisteredAgent,
}

impl std::fmt::Debug for NewToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NewToken")
            .field("entry", &self.entry)
            .finish_non_exhaustive()
    }
}

/// Handle of the actor.
#[derive(Debug, Clone)]
pub struct AgentRegistryHandle {
    mailbox: Mailbox<AgentRegistryMsg>,
    /// The published registry.
    pub registered_agents: RegisteredAgents,
}

impl AgentRegistryHandle {
    /// The handle of a running actor.
    #[must_use]
    pub fn new(mailbox: Mailbox<AgentRegistryMsg>, registered_agents: RegisteredAgents) -> Self {
        Self {
            mailbox,
            registered_agents,
        }
    }

    /// Adds an agent and creates its token; both are on disk when this returns.
    ///
    /// # Errors
    /// [`RegistryChangeError`].
    pub async fn add(
        &self,
        agent: &AgentId,
        not_after_ms: Option<u64>,
        trace: &TraceId,
    ) -> Result<NewToken, RegistryChangeError> {
        self.issue_token(agent, trace, |digest| AgentChange::Added {
            agent: agent.clone(),
            digest,
            at_ms: unix_ms(),
            not_after_ms,
        })
        .await
    }

    /// Replaces an agent's token. When this returns, the old one is invalid and the agent's connections and calls
    /// have been cancelled.
    ///
    /// # Errors
    /// [`RegistryChangeError`].
    pub async fn renew(
        &self,
        agent: &AgentId,
        not_after_ms: Option<u64>,
        trace: &TraceId,
    ) -> Result<NewToken, RegistryChangeError> {
        self.issue_token(agent, trace, |digest| AgentChange::Renewed {
            agent: agent.clone(),
            digest,
            at_ms: unix_ms(),
            not_after_ms,
        })
        .await
    }

    /// Removes an agent. When this returns, its token is invalid and its connections and calls have been cancelled.
    ///
    /// # Errors
    /// [`RegistryChangeError`].
    pub async fn remove(
        &self,
        agent: &AgentId,
        trace: &TraceId,
    ) -> Result<(), RegistryChangeError> {
        let (agent, at_ms) = (agent.clone(), unix_ms());
        self.change(AgentChange::Removed { agent, at_ms }, trace)
            .await
    }

    async fn issue_token(
        &self,
        agent: &AgentId,
        trace: &TraceId,
        change: impl FnOnce(TokenDigest) -> AgentChange,
    ) -> Result<NewToken, RegistryChangeError> {
        let text = new_token();
        self.change(change(TokenDigest::new(&text)), trace).await?;
        let entry = self.registered_agents.registry().get(agent).cloned();
        let entry = entry.ok_or_else(|| AgentChangeError::Unknown(agent.clone()))?;
        Ok(NewToken { text, entry })
    }

    async fn change(
        &self,
        change: AgentChange,
        trace: &TraceId,
    ) -> Result<(), RegistryChangeError> {
        let trace = trace.clone();
        self.mailbox
            .ask(|reply| AgentRegistryMsg::Change(change, trace, reply))
            .await?
    }
}

/// 256 random bits, with a prefix that shows what they are.
fn new_token() -> String {
    let secret = randomness::random_bytes::<32>();
    format!("{TOKEN_PREFIX}{}", URL_SAFE_NO_PAD.encode(secret))
}

/// Messages to the actor.
#[derive(Debug)]
pub enum AgentRegistryMsg {
    /// Change the registry; the reply is sent when the change is in the audit log, on disk and published,
    /// and all that it ends was cancelled.
    Change(AgentChange, TraceId, Reply<Result<(), RegistryChangeError>>),
}

/// Fixed at construction.
#[derive(Debug)]
pub struct AgentRegistryActor {
    /// The file.
    pub file: PathBuf,
    /// The published registry.
    pub registered_agents: RegisteredAgents,
    /// Ends everything that a revoked token is used for.
    pub revocation: Arc<Revocation>,
    /// The audit log.
    pub audit: AuditHandle,
}

impl Actor for AgentRegistryActor {
    type Msg = Queued<AgentRegistryMsg>;
    type State = AgentRegistry;
    type Arguments = ();

    async fn pre_start(
        &self,
        _myself: ActorRef<Self::Msg>,
        (): (),
    ) -> Result<AgentRegistry, ActorProcessingErr> {
        Ok(self.registered_agents.registry())
    }

    async fn handle(
        &self,
        _myself: ActorRef<Self::Msg>,
        queued: Self::Msg,
        registry: &mut AgentRegistry,
    ) -> Result<(), ActorProcessingErr> {
        match queued.into_message() {
            AgentRegistryMsg::Change(change, trace, reply) => {
                reply.send(self.change(change, &trace, registry).await);
            }
        }
        Ok(())
    }
}

impl AgentRegistryActor {
    async fn change(
        &self,
        change: AgentChange,
        trace: &TraceId,
        registry: &mut AgentRegistry,
    ) -> Result<(), RegistryChangeError> {
        let mut next = registry.clone();
        next.apply(&change)?;
        // The audit log comes first, so that no change is unrecorded.
        self.audit
            .record_decision(audit_event(&change, trace, Outcome::Success))
            .await?;
        let (file, records) = (self.file.clone(), next.to_records());
        let writing =
            task::run_blocking("agent_registry.write", move || file::write(&file, &records));
        let written = writing.await.map_err(std::io::Error::other).flatten();
        if let Err(error) = written {
            self.audit
                .record(audit_event(&change, trace, Outcome::Failure));
            return Err(error.into());
        }
        *registry = next.clone();
        // First new connections are rejected, then existing ones are ended.
        let revocation = self.registered_agents.publish(&change, next);
        if change.is_revocation() {
            if let Some(revocation) = revocation {
                revocation.cancel();
            }
            self.revocation.end_agent(change.agent()).await;
        }
        Ok(())
    }
}

/// The audit event of a change; nothing in it reveals the token.
fn audit_event(change: &AgentChange, trace: &TraceId, result: Outcome) -> Event {
    let (event_type, until) = match change {
        AgentChange::Added { not_after_ms, .. } => (EventType::AGENT_ADDED, *not_after_ms),
        AgentChange::Renewed { not_after_ms, .. } => (EventType::AGENT_RENEWED, *not_after_ms),
        AgentChange::Removed { .. } => (EventType::AGENT_REMOVED, None),
    };
    let target = Target {
        agent_id: Some(change.agent().to_string()),
        ..Target::default()
    };
    let details = until.map_or_else(
        || json!({}),
        |until| json!({"expires_at": render_rfc3339_ms(until)}),
    );
    audit::new_event(
        event_type,
        audit::operator_actor(),
        target,
        trace,
        result,
        details,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_long_recognizable_and_unique() {
        let (one, two) = (new_token(), new_token());
        assert_ne!(one, two);
        assert!(one.starts_with("mgp_") && one.len() == 47, "{one}");
        let new_token_text = NewToken {
            text: one.clone(),
            entry: serde_json::from_str(&format!(
                r#"{{"digest":"{}","added_ms":1,"made_ms":1,"not_after_ms":null}}"#,
                String::from(TokenDigest::new(&one))
            ))
            .unwrap(),
        };
        assert!(!format!("{new_token_text:?}").contains(&one));
    }
}
