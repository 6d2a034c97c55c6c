//! Who asks: what a request carries of its client, and the way back to it.

use std::sync::{Arc, Weak};

use mgp_engine::policy::access::Principal;
use mgp_engine::servers::log_levels::LogLevel;
use mgp_engine::tools::catalog::CatalogView;
use mgp_protocol::dialect::{Dialect, Version};
use mgp_protocol::ids::{AgentId, ConnectionId};
use mgp_protocol::mcp::ClientCapabilities;
use mgp_protocol::mgp::negotiation::Negotiated;

use super::Agent;
use super::activity::ClientActivity;
use crate::exchange::Exchange;

/// Who asks, and in which dialect. Filled in by the door: from the session of a legacy client, from
/// `_meta` of a stateless one.
#[derive(Debug)]
pub struct Caller {
    /// What calls and questions are attributed to.
    pub connection: ConnectionId,
    /// As the door knows it.
    pub agent: AgentId,
    /// May ask `mgp/kernel/*` and `mgp/servers/*`.
    pub operator: bool,
    /// What it is shown.
    pub view: CatalogView,
    /// What it speaks.
    pub version: Version,
    /// What it can be asked for.
    pub capabilities: ClientCapabilities,
    /// What of MGP may be said to it.
    pub mgp: Negotiated,
    /// The way back to it.
    pub session: CallerSession,
    /// What the operator is told of it.
    pub activity: Arc<ClientActivity>,
}

/// Who somebody is, as far as it decides what may be done.
#[must_use]
pub fn identity(agent: &AgentId, operator: bool) -> Principal {
    match operator {
        true => Principal::Operator(agent.as_str().into()),
        false => Principal::Agent(agent.clone()),
    }
}

/// The way back to a caller.
#[derive(Debug)]
pub enum CallerSession {
    /// A connection or session that stands: it can be asked and told. Who holds the caller does not
    /// hold it: it keeps its caller itself, and ends however many calls still know who called.
    Open(Weak<Agent>),
    /// A request that stands alone: what belongs to it travels with it.
    Stateless,
}

impl Caller {
    /// The connection or session it has, when it has one and that is not over.
    #[must_use]
    pub fn standing(&self) -> Option<Arc<Agent>> {
        match &self.session {
            CallerSession::Open(agent) => agent.upgrade(),
            CallerSession::Stateless => None,
        }
    }

    /// False for one that has not said yet that it is ready: it hears nothing but answers and log
    /// (MCP-017).
    #[must_use]
    pub fn hears(&self) -> bool {
        self.standing().is_none_or(|agent| agent.is_ready())
    }

    /// True for one whose requests stand alone.
    #[must_use]
    pub fn is_alone(&self) -> bool {
        matches!(self.session, CallerSession::Stateless)
    }

    /// In whose words it is answered.
    #[must_use]
    pub fn dialect(&self) -> Dialect {
        Dialect {
            version: self.version,
            mgp: self.mgp.says_codes(),
        }
    }

    /// Who asks, as far as it decides what may be done.
    #[must_use]
    pub fn identity(&self) -> Principal {
        identity(&self.agent, self.operator)
    }

    /// Whom sealed records are for: they open for the client they were given to, and where it was
    /// given them.
    #[must_use]
    pub fn principal(&self) -> String {
        format!("{}@{}", self.agent, self.view)
    }

    /// The least severe log level it wants of the call under way in `exchange`; `None` wants no log.
    #[must_use]
    pub fn log_level(&self, exchange: &Exchange) -> Option<LogLevel> {
        match exchange.rounds() {
            Some(rounds) => rounds.level(),
            None => self.standing().map(|agent| agent.level()),
        }
    }
}
