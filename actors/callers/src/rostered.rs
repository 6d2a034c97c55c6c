//! The agents that have a token, as the doors read them.

use std::collections::HashMap;
use std::sync::Arc;

use mgp_engine::doors::agent_registry::{
    AgentChange, AgentRegistry, BadAgentToken, RegisteredAgent, TOKEN_PREFIX, TokenDigest,
};
use mgp_protocol::ids::AgentId;
use mgp_sync::Snapshot;
use tokio_util::sync::CancellationToken;

use crate::credential::Credential;
use mgp_runtime::time::unix_ms;

/// What the doors read.
#[derive(Debug, Default)]
struct RegistrySnapshot {
    roster: AgentRegistry,
    /// What ends with each agent's token.
    lives: HashMap<AgentId, CancellationToken>,
}

impl RegistrySnapshot {
    fn pass(&self, agent: &AgentId, entry: &RegisteredAgent) -> Credential {
        let pass = Credential::lasting(agent.clone()).until(entry.not_after_ms);
        match self.lives.get(agent) {
            Some(life) => pass.alive(life.clone()),
            None => pass,
        }
    }
}

/// The agents that have a token, as published.
#[derive(Debug, Clone)]
pub struct RegisteredAgents(Arc<Snapshot<RegistrySnapshot>>);

impl RegisteredAgents {
    /// As read from disk.
    #[must_use]
    pub fn new(roster: AgentRegistry) -> Self {
        let lives = roster
            .iter()
            .map(|(agent, _)| (agent.clone(), CancellationToken::new()));
        let lives = lives.collect();
        Self(Arc::new(Snapshot::new(RegistrySnapshot { roster, lives })))
    }

    /// Whom a token lets in.
    ///
    /// # Errors
    /// [`BadAgentToken`].
    pub fn judge(&self, token: &str) -> Result<Credential, BadAgentToken> {
        if !token.starts_with(TOKEN_PREFIX) {
            return Err(BadAgentToken::Unknown);
        }
        let book = self.0.load();
        let (agent, entry) = book.roster.judge(TokenDigest::of(token), unix_ms())?;
        Ok(book.pass(agent, entry))
    }

    /// True when there is an agent of this name.
    #[must_use]
    pub fn knows(&self, agent: &AgentId) -> bool {
        self.0.load().roster.get(agent).is_some()
    }

    /// What is known of all agents, by name.
    #[must_use]
    pub fn list(&self) -> Vec<(AgentId, RegisteredAgent)> {
        let book = self.0.load();
        let all = book.roster.iter();
        all.map(|(agent, entry)| (agent.clone(), entry.clone()))
            .collect()
    }

    /// All of it.
    #[must_use]
    pub fn roster(&self) -> AgentRegistry {
        self.0.load().roster.clone()
    }

    /// A change is on disk: from now on this holds. Answers what ends with it.
    pub fn publish(
        &self,
        change: &AgentChange,
        roster: AgentRegistry,
    ) -> Option<CancellationToken> {
        let mut lives = self.0.load().lives.clone();
        let before = lives.remove(change.agent());
        if roster.get(change.agent()).is_some() {
            lives.insert(change.agent().clone(), CancellationToken::new());
        }
        self.0.store(Arc::new(RegistrySnapshot { roster, lives }));
        before
    }
}
