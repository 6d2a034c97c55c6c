//! `mgp/agents/*`: who has a token.

mod console;

use std::time::Duration;

use mgp_callers::request::{Outcome, Request};
use mgp_doors::agent_registry::{NewToken, NotChanged};
use mgp_engine::doors::agent_registry::{RegisteredAgent, RegistryRefusal};
use mgp_engine::timestamps::rfc3339_ms;
use mgp_protocol::ids::AgentId;
use mgp_protocol::mgp::agents::{Add, Agent, Made, Remove, Token};
use mgp_protocol::refusal::Refusal;
use mgp_runtime::time::unix_ms;

use super::{Operator, json, read};

/// Longest a token may be good for, when it is not good for ever: ten years.
const LONGEST: Duration = Duration::from_secs(3653 * 86_400);

impl Operator {
    /// `mgp/agents/add`: on disk before it is answered.
    ///
    /// # Errors
    /// A name that is none or is there already; a disk that does not take it.
    pub async fn add_agent(&self, request: &Request) -> Outcome {
        let add: Add = read(request)?;
        let (id, end) = (named(&add.name)?, end_of(add.expires_secs)?);
        let made = self.roster.add(&id, end, &request.trace.id).await;
        let made = made.map_err(refused)?;
        json(&shown_once(&id, made))
    }

    /// `mgp/agents/list`.
    ///
    /// # Errors
    /// None at present; the type is that of every answer.
    pub fn list_agents(&self) -> Outcome {
        let agents = self.roster.registered_agents.list();
        let agents: Vec<_> = agents.iter().map(|(id, entry)| shown(id, entry)).collect();
        json(&json!({ "agents": agents }))
    }

    /// `mgp/agents/remove`: when it is answered the token is good for nothing.
    ///
    /// # Errors
    /// Unknown agent; a disk that does not take it.
    pub async fn remove_agent(&self, request: &Request) -> Outcome {
        let remove: Remove = read(request)?;
        let id = named(&remove.name)?;
        let before = self.entry(&id)?;
        let removed = self.roster.remove(&id, &request.trace.id).await;
        removed.map_err(refused)?;
        // Whoever is called the same later is somebody else.
        let forgotten = self.logins.forget_agent(&id).await;
        forgotten.map_err(|e| {
            Refusal::Broken(format!("{id} is removed, but its logins are not: {e}"))
        })?;
        json(&shown(&id, &before))
    }

    /// `mgp/agents/token`.
    ///
    /// # Errors
    /// Unknown agent; a disk that does not take the new token.
    pub async fn agent_token(&self, request: &Request) -> Outcome {
        let token: Token = read(request)?;
        let id = named(&token.name)?;
        if !token.rotate {
            return json(&shown(&id, &self.entry(&id)?));
        }
        let end = end_of(token.expires_secs)?;
        let made = self.roster.renew(&id, end, &request.trace.id).await;
        let made = made.map_err(refused)?;
        json(&shown_once(&id, made))
    }

    fn entry(&self, id: &AgentId) -> Result<RegisteredAgent, Refusal> {
        let found = self
            .roster
            .registered_agents
            .list()
            .into_iter()
            .find(|(known, _)| known == id);
        found
            .map(|(_, entry)| entry)
            .ok_or_else(|| refused(RegistryRefusal::Unknown(id.clone()).into()))
    }
}

fn named(name: &str) -> Result<AgentId, Refusal> {
    AgentId::parse(name).map_err(|e| Refusal::BadParams(e.to_string()))
}

fn end_of(expires_secs: Option<u64>) -> Result<Option<u64>, Refusal> {
    match expires_secs.map(Duration::from_secs) {
        None => Ok(None),
        Some(time) if time.is_zero() || time > LONGEST => Err(Refusal::BadParams(
            "a token is good for at least a second and at most ten years".into(),
        )),
        Some(time) => {
            let ms = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
            Ok(Some(unix_ms().saturating_add(ms)))
        }
    }
}

fn shown(id: &AgentId, entry: &RegisteredAgent) -> Agent {
    Agent {
        id: id.to_string(),
        added_at: rfc3339_ms(entry.added_ms),
        token_made_at: rfc3339_ms(entry.made_ms),
        expires_at: entry.not_after_ms.map(rfc3339_ms),
        expired: entry.is_expired(unix_ms()),
    }
}

fn shown_once(id: &AgentId, made: NewToken) -> Made {
    Made {
        agent: shown(id, &made.entry),
        token: made.text,
    }
}

fn refused(why: NotChanged) -> Refusal {
    match why {
        NotChanged::Refused(refused) => Refusal::BadParams(refused.to_string()),
        NotChanged::Disk(_) | NotChanged::Unwritten(_) | NotChanged::Unreachable(_) => {
            Refusal::Broken(why.to_string())
        }
    }
}
