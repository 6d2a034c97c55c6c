//! The sender of a request: its identity, capabilities and connection.

use std::sync::{Arc, Weak};

use mgp_engine::policy::access::Principal;
use mgp_engine::servers::log_levels::LogLevel;
use mgp_engine::tools::catalog::CatalogView;
use mgp_protocol::dialect::{Dialect, Version};
use mgp_protocol::ids::{AgentId, ConnectionId};
use mgp_protocol::mcp::ClientCapabilities;
use mgp_protocol::mcpl;
use mgp_protocol::mgp::negotiation::Negotiated;

use super::Agent;
use super::client_activity::ClientActivity;
use crate::in_flight_call::InFlightCall;

/// The sender of a request. Filled in at the door: from the session of a legacy client, from `_meta` of a
/// stateless one.
#[derive(Debug)]
pub struct Caller {
    /// Groups calls and questions by client.
    pub connection: ConnectionId,
    /// The agent, as authenticated by the door.
    pub agent: AgentId,
    /// True for the operator, who may use `mgp/kernel/*` and `mgp/servers/*`.
    pub operator: bool,
    /// The servers it sees.
    pub view: CatalogView,
    /// Its version of MCP.
    pub version: Version,
    /// The capabilities of its client.
    pub capabilities: ClientCapabilities,
    /// The parts of MGP negotiated with it.
    pub mgp: Negotiated,
    /// What it declared of MCPL, where it is a host of that: never a stateless one.
    pub mcpl: Option<Arc<mcpl::HostCapabilities>>,
    /// Its connection or session, if any.
    pub session: CallerSession,
    /// What the operator sees of it.
    pub activity: Arc<ClientActivity>,
}

/// The identity that access control decides by. At the door of a set nobody is the operator.
#[must_use]
pub fn identity(agent: &AgentId, operator: bool, view: &CatalogView) -> Principal {
    match (view, operator) {
        (CatalogView::Set(set), _) => Principal::InSet(agent.clone(), set.clone()),
        (CatalogView::All | CatalogView::One(_), true) => {
            Principal::Operator(agent.as_str().into())
        }
        (CatalogView::All | CatalogView::One(_), false) => Principal::Agent(agent.clone()),
    }
}

/// The reader of sealed records that are given to this agent in this view.
#[must_use]
pub fn principal(agent: &AgentId, view: &CatalogView) -> String {
    format!("{agent}@{view}")
}

/// The connection of a caller.
#[derive(Debug)]
pub enum CallerSession {
    /// A connection or session, which can be asked and told things. Weak, because it holds its caller
    /// itself and must end even while calls still refer to the caller.
    Open(Weak<Agent>),
    /// A stateless request: all answers go with the request.
    Stateless,
    /// The same of another node, for an agent that has a session there.
    RemoteSession,
}

impl Caller {
    /// The connection or session, if there is one and it has not ended.
    #[must_use]
    pub fn live_connection(&self) -> Option<Arc<Agent>> {
        match &self.session {
            CallerSession::Open(agent) => agent.upgrade(),
            CallerSession::Stateless | CallerSession::RemoteSession => None,
        }
    }

    /// False before `notifications/initialized`: until then it gets only answers and log messages
    /// (MCP-017).
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.live_connection().is_none_or(|agent| agent.is_ready())
    }

    /// True for stateless requests.
    #[must_use]
    pub fn is_stateless(&self) -> bool {
        matches!(
            self.session,
            CallerSession::Stateless | CallerSession::RemoteSession
        )
    }

    /// True where the next request may declare what this one lacks. Of other callers the server reads that they
    /// cannot be asked.
    #[must_use]
    pub fn can_declare(&self) -> bool {
        matches!(self.session, CallerSession::Stateless)
    }

    /// As whom it calls at other nodes: there is no operator there, so what the one here calls there, it calls as the
    /// agent it is.
    #[must_use]
    pub fn remote_identity(&self) -> AgentId {
        if self.operator {
            AgentId::new(AgentId::LOCAL)
        } else {
            self.agent.clone()
        }
    }

    /// The dialect of answers to it.
    #[must_use]
    pub fn dialect(&self) -> Dialect {
        Dialect {
            version: self.version,
            mgp: self.mgp.has_error_codes(),
        }
    }

    /// The identity that access control decides by.
    #[must_use]
    pub fn identity(&self) -> Principal {
        identity(&self.agent, self.operator, &self.view)
    }

    /// The reader of sealed records: they can be opened only by the client and in the view they were made
    /// for.
    #[must_use]
    pub fn principal(&self) -> String {
        principal(&self.agent, &self.view)
    }

    /// The lowest log level it wants for the call in `call`; `None` for no log.
    #[must_use]
    pub fn log_level(&self, call: &InFlightCall) -> Option<LogLevel> {
        match call.rounds() {
            Some(rounds) => rounds.log_level(),
            None => self.live_connection().map(|agent| agent.level()),
        }
    }

    /// The same, where it asked for one itself; `None` where it leaves that to the server.
    #[must_use]
    pub fn requested_log_level(&self, call: &InFlightCall) -> Option<LogLevel> {
        match call.rounds() {
            Some(rounds) => rounds.log_level(),
            None => {
                let agent = self.live_connection().filter(|agent| agent.has_set_level());
                agent.map(|agent| agent.level())
            }
        }
    }
}
