//! The agents that have a token, as read by the doors.

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

/// The published registry.
#[derive(Debug, Default)]
struct RegistrySnapshot {
    registry: AgentRegistry,
    /// Cancelled when an agent's token is revoked.
    revocations: HashMap<AgentId, CancellationToken>,
}

impl RegistrySnapshot {
    fn credential_for(&self, agent: &AgentId, entry: &RegisteredAgent) -> Credential {
        let pass = Credential::permanent(agent.clone()).with_expiry(entry.not_after_ms);
        match self.revocations.get(agent) {
            Some(life) => pass.with_revocation(life.clone()),
            None => pass,
        }
    }
}

/// The agents that have a token, as published.
#[derive(Debug, Clone)]
pub struct RegisteredAgents(Arc<Snapshot<RegistrySnapshot>>);

impl RegisteredAgents {
    /// From the registry on disk.
    #[must_use]
    pub fn new(registry: AgentRegistry) -> Self {
        let lives = registry
            .iter()
            .map(|(agent, _)| (agent.clone(), CancellationToken::new()));
        let lives = lives.collect();
        Self(Arc::new(Snapshot::new(RegistrySnapshot {
            registry,
            revocations: lives,
        })))
    }

    /// The agent of a token.
    ///
    /// # Errors
    /// [`BadAgentToken`].
    pub fn authenticate(&self, token: &str) -> Result<Credential, BadAgentToken> {
        if !token.starts_with(TOKEN_PREFIX) {
            return Err(BadAgentToken::Unknown);
        }
        let book = self.0.load();
        let (agent, entry) = book
            .registry
            .authenticate(TokenDigest::new(token), unix_ms())?;
        Ok(book.credential_for(agent, entry))
    }

    /// True when there is an agent of this name.
    #[must_use]
    pub fn contains(&self, agent: &AgentId) -> bool {
        self.0.load().registry.get(agent).is_some()
    }

    /// All agents, by name.
    #[must_use]
    pub fn list(&self) -> Vec<(AgentId, RegisteredAgent)> {
        let book = self.0.load();
        let all = book.registry.iter();
        all.map(|(agent, entry)| (agent.clone(), entry.clone()))
            .collect()
    }

    /// The whole registry.
    #[must_use]
    pub fn registry(&self) -> AgentRegistry {
        self.0.load().registry.clone()
    }

    /// Publishes a change that is on disk. Returns what to cancel for a revoked token.
    pub fn publish(
        &self,
        change: &AgentChange,
        registry: AgentRegistry,
    ) -> Option<CancellationToken> {
        let mut lives = self.0.load().revocations.clone();
        let before = lives.remove(change.agent());
        if registry.get(change.agent()).is_some() {
            lives.insert(change.agent().clone(), CancellationToken::new());
        }
        self.0.store(Arc::new(RegistrySnapshot {
            registry,
            revocations: lives,
        }));
        before
    }
}
