//! `mgp/agents/*`: agents that have a token.

mod console;

use std::collections::BTreeSet;
use std::time::Duration;

use mgp_callers::request::{Outcome, Request};
use mgp_doors::agent_registry::{NewToken, RegistryChangeError};
use mgp_engine::doors::agent_registry::{AgentChangeError, RegisteredAgent};
use mgp_engine::doors::broker::grants::Grant;
use mgp_engine::policy::access::Principal;
use mgp_engine::timestamps::render_rfc3339_ms;
use mgp_protocol::ids::AgentId;
use mgp_protocol::mgp::agents::{Add, Agent, IssuedToken, Remove, Token};
use mgp_protocol::refusal::Refusal;
use mgp_runtime::time::unix_ms;

use super::{Operator, json, read};

/// Longest lifetime of a token that expires: ten years.
const TOKEN_LIFETIME_MAX: Duration = Duration::from_secs(3653 * 86_400);

impl Operator {
    /// `mgp/agents/add`: on disk before it is answered.
    ///
    /// # Errors
    /// An invalid or taken name; a failed write.
    pub(crate) async fn add_agent(&self, request: &Request) -> Outcome {
        let add: Add = read(request)?;
        let id = AgentId::parse(&add.name).map_err(|e| Refusal::BadParams(e.to_string()))?;
        let end = token_expiry(add.expires_secs)?;
        let new_token = self.agents.add(&id, end, &request.trace.id).await;
        let new_token = new_token.map_err(to_refusal)?;
        json(&to_created_agent(&id, new_token))
    }

    /// `mgp/agents/list`.
    ///
    /// # Errors
    /// None at present; the type is that of every answer.
    pub(crate) fn list_agents(&self) -> Outcome {
        let agents = self.agents.registered_agents.list();
        let table = self.name_sources.access.table();
        let registered = agents
            .iter()
            .map(|(id, entry)| to_protocol_agent(id, entry));
        let all = registered.chain(self.signed_in_agents(&agents));
        let all = all.map(|agent| {
            let who = Principal::Agent(AgentId::new(&*agent.id));
            let groups = table.groups_of(&who);
            let groups = groups.filter_map(|(group, _)| group.group());
            Agent {
                groups: groups.map(|group| group.as_str().to_owned()).collect(),
                ..agent
            }
        });
        let agents: Vec<_> = all.collect();
        json(&json!({ "agents": agents }))
    }

    /// `mgp/agents/remove`: once answered, the token is invalid.
    ///
    /// # Errors
    /// Unknown agent; a failed write.
    pub(crate) async fn remove_agent(&self, request: &Request) -> Outcome {
        let remove: Remove = read(request)?;
        let id = parse_agent(&remove.name)?;
        let registered = self.find_agent(&id);
        // First, so that no sign-in outlives an acknowledged removal.
        let signed_in = self.end_sign_ins(&id).await?;
        let removed = match (registered, signed_in) {
            (Ok(agent), _) => {
                let removed = self.agents.remove(&id, &request.trace.id).await;
                removed.map_err(to_refusal)?;
                to_protocol_agent(&id, &agent)
            }
            (Err(_), Some(agent)) => agent,
            (Err(unknown), None) => return Err(unknown),
        };
        // A later agent of the same name must not inherit them.
        for server in self.servers.load().values() {
            server.end_instances_of(&id).await;
        }
        let forgotten = self.logins.forget_agent(&id).await;
        forgotten.map_err(|e| {
            Refusal::Internal(format!(
                "{id} is removed, but its logins and secrets are not: {e}"
            ))
        })?;
        json(&removed)
    }

    /// Ends the sign-ins of an agent at the identity provider; `None` if it has none.
    async fn end_sign_ins(&self, id: &AgentId) -> Result<Option<Agent>, Refusal> {
        let Some(broker) = &self.broker else {
            return Ok(None);
        };
        let ended = broker.end_agent(id).await;
        let ended = ended.map_err(|e| Refusal::Internal(e.to_string()))?;
        let agent = signed_in_agent(id, ended.iter());
        if agent.is_some() {
            self.revocation.end_agent(id).await;
        }
        Ok(agent)
    }

    /// `mgp/agents/token`.
    ///
    /// # Errors
    /// Unknown agent; a failed write.
    pub(crate) async fn agent_token(&self, request: &Request) -> Outcome {
        let token: Token = read(request)?;
        let id = parse_agent(&token.name)?;
        if !token.rotate {
            return json(&to_protocol_agent(&id, &self.find_agent(&id)?));
        }
        let end = token_expiry(token.expires_secs)?;
        let new_token = self.agents.renew(&id, end, &request.trace.id).await;
        let new_token = new_token.map_err(to_refusal)?;
        json(&to_created_agent(&id, new_token))
    }

    /// The agents that are signed in and have no token.
    fn signed_in_agents(&self, registered: &[(AgentId, RegisteredAgent)]) -> Vec<Agent> {
        let grants = self.broker.as_ref().map(|broker| broker.grants());
        let grants = grants.unwrap_or_default();
        let ids: BTreeSet<_> = grants.iter().map(|grant| &grant.agent).collect();
        let others = ids
            .into_iter()
            .filter(|id| !registered.iter().any(|(known, _)| known == *id));
        let own = |id: &AgentId| {
            let id = id.clone();
            grants.iter().filter(move |grant| grant.agent == id)
        };
        others
            .filter_map(|id| signed_in_agent(id, own(id)))
            .collect()
    }

    fn find_agent(&self, id: &AgentId) -> Result<RegisteredAgent, Refusal> {
        let found = self
            .agents
            .registered_agents
            .list()
            .into_iter()
            .find(|(known, _)| known == id);
        found
            .map(|(_, entry)| entry)
            .ok_or_else(|| to_refusal(AgentChangeError::Unknown(id.clone()).into()))
    }
}

/// An agent without a token of its own, by what its person allowed clients.
fn signed_in_agent<'g>(
    id: &AgentId,
    grants: impl Iterator<Item = &'g Grant> + Clone,
) -> Option<Agent> {
    let added_ms = grants.clone().map(|grant| grant.created_ms).min()?;
    let used_ms = grants.clone().map(|grant| grant.used_ms).max()?;
    let expires_ms = grants.map(|grant| grant.expires_ms).max()?;
    Some(Agent {
        id: id.to_string(),
        added_at: render_rfc3339_ms(added_ms),
        token_made_at: render_rfc3339_ms(used_ms),
        expires_at: Some(render_rfc3339_ms(expires_ms)),
        expired: false,
        groups: Vec::new(),
    })
}

/// An agent that may be one of another authority: those have names that no agent is added with.
fn parse_agent(name: &str) -> Result<AgentId, Refusal> {
    AgentId::parse_or_from_subject(name).map_err(|e| Refusal::BadParams(e.to_string()))
}

fn token_expiry(expires_secs: Option<u64>) -> Result<Option<u64>, Refusal> {
    match expires_secs.map(Duration::from_secs) {
        None => Ok(None),
        Some(time) if time.is_zero() || time > TOKEN_LIFETIME_MAX => Err(Refusal::BadParams(
            "a token is good for at least a second and at most ten years".into(),
        )),
        Some(time) => {
            let ms = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
            Ok(Some(unix_ms().saturating_add(ms)))
        }
    }
}

fn to_protocol_agent(id: &AgentId, entry: &RegisteredAgent) -> Agent {
    Agent {
        id: id.to_string(),
        added_at: render_rfc3339_ms(entry.added_ms),
        token_made_at: render_rfc3339_ms(entry.made_ms),
        expires_at: entry.not_after_ms.map(render_rfc3339_ms),
        expired: entry.is_expired(unix_ms()),
        groups: Vec::new(),
    }
}

fn to_created_agent(id: &AgentId, new_token: NewToken) -> IssuedToken {
    IssuedToken {
        agent: to_protocol_agent(id, &new_token.entry),
        token: new_token.text,
    }
}

fn to_refusal(why: RegistryChangeError) -> Refusal {
    match why {
        RegistryChangeError::Refused(refused) => Refusal::BadParams(refused.to_string()),
        RegistryChangeError::Disk(_)
        | RegistryChangeError::Audit(_)
        | RegistryChangeError::Unreachable(_) => Refusal::Internal(why.to_string()),
    }
}
