//! The published registry of agents that have a token, as read by the endpoints.

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

/// One published version of the registry.
#[derive(Debug, Default)]
struct RegistrySnapshot {
    registry: AgentRegistry,
    /// Cancelled when an agent's token is revoked.
    revocations: HashMap<AgentId, CancellationToken>,
}

impl RegistrySnapshot {
    fn credential_for(&self, agent: &AgentId, entry: &RegisteredAgent) -> Credential {
        let credential = Credential::permanent(agent.clone()).with_expiry(entry.not_after_ms);
        match self.revocations.get(agent) {
            Some(token) => credential.with_revocation(token.clone()),
            None => credential,
        }
    }
}

/// The agents that have a token, as published.
#[derive(Debug, Clone)]
pub struct RegisteredAgents(Arc<Snapshot<RegistrySnapshot>>);

impl RegisteredAgents {
    /// Publishes the registry read from disk.
    #[must_use]
    pub fn new(registry: AgentRegistry) -> Self {
        let revocations = registry
            .iter()
            .map(|(agent, _)| (agent.clone(), CancellationToken::new()));
        let revocations = revocations.collect();
        Self(Arc::new(Snapshot::new(RegistrySnapshot {
            registry,
            revocations,
        })))
    }

    /// Authenticates a token.
    ///
    /// # Errors
    /// [`BadAgentToken`].
    pub fn authenticate(&self, token: &str) -> Result<Credential, BadAgentToken> {
        if !token.starts_with(TOKEN_PREFIX) {
            return Err(BadAgentToken::Unknown);
        }
        let snapshot = self.0.load();
        let (agent, entry) = snapshot
            .registry
            .authenticate(TokenDigest::new(token), unix_ms())?;
        Ok(snapshot.credential_for(agent, entry))
    }

    /// True if an agent of this name is registered.
    #[must_use]
    pub fn contains(&self, agent: &AgentId) -> bool {
        self.0.load().registry.get(agent).is_some()
    }

    /// All registered agents, sorted by name.
    #[must_use]
    pub fn list(&self) -> Vec<(AgentId, RegisteredAgent)> {
        let snapshot = self.0.load();
        let all = snapshot.registry.iter();
        all.map(|(agent, entry)| (agent.clone(), entry.clone()))
            .collect()
    }

    /// The whole registry.
    #[must_use]
    pub fn registry(&self) -> AgentRegistry {
        self.0.load().registry.clone()
    }

    /// Publishes a change that is stored on disk. Returns the cancellation of a revoked token.
    pub fn publish(
        &self,
        change: &AgentChange,
        registry: AgentRegistry,
    ) -> Option<CancellationToken> {
        let mut revocations = self.0.load().revocations.clone();
        let revoked = revocations.remove(change.agent());
        if registry.get(change.agent()).is_some() {
            revocations.insert(change.agent().clone(), CancellationToken::new());
        }
        self.0.store(Arc::new(RegistrySnapshot {
            registry,
            revocations,
        }));
        revoked
    }
}
