//! The sender of a request: its identity, capabilities and connection.

use std::sync::{Arc, Weak};

use mgp_engine::policy::access::{ClaimedGroups, Principal};
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

/// The sender of a request. Filled in at the endpoint: from the session of a legacy client, from `_meta` of
/// a stateless one.
#[derive(Debug)]
pub struct Caller {
    /// Groups calls and callbacks by client.
    pub connection: ConnectionId,
    /// The agent, as authenticated by the endpoint.
    pub agent: AgentId,
    /// The groups that its token gives it.
    pub groups: ClaimedGroups,
    /// True for the operator, who may use `mgp/kernel/*` and `mgp/servers/*`.
    pub operator: bool,
    /// The servers visible to it.
    pub view: CatalogView,
    /// Its protocol version.
    pub version: Version,
    /// The capabilities of its client.
    pub capabilities: ClientCapabilities,
    /// The extensions it declared that the kernel does not negotiate itself, as a JSON object; `None` without any.
    pub extensions: Option<Arc<str>>,
    /// The parts of MGP negotiated with it.
    pub mgp: Negotiated,
    /// What it declared of MCPL, if it is an MCPL host; never set for stateless clients.
    pub mcpl: Option<Arc<mcpl::HostCapabilities>>,
    /// Its connection or session, if any.
    pub session: CallerSession,
    /// Scheme and authority of the endpoint as the client over HTTP addresses it; `None` where it cannot load icons.
    pub address: Option<Arc<str>>,
    /// The activity shown to the operator.
    pub activity: Arc<ClientActivity>,
}

/// The identity that access control decides by. In the view of a set nobody is the operator.
#[must_use]
pub fn identity(
    agent: &AgentId,
    operator: bool,
    view: &CatalogView,
    groups: &ClaimedGroups,
) -> Principal {
    match (view, operator) {
        (CatalogView::All | CatalogView::One(_), false) if !groups.is_empty() => {
            Principal::InGroups(agent.clone(), None, groups.clone())
        }
        (CatalogView::Set(set), _) if !groups.is_empty() => {
            Principal::InGroups(agent.clone(), Some(set.clone()), groups.clone())
        }
        (CatalogView::Set(set), _) => Principal::InSet(agent.clone(), set.clone()),
        (CatalogView::All | CatalogView::One(_), true) => {
            Principal::Operator(agent.as_str().into())
        }
        (CatalogView::All | CatalogView::One(_), false) => Principal::Agent(agent.clone()),
    }
}

/// The principal that sealed records are bound to: this agent in this view.
#[must_use]
pub fn principal(agent: &AgentId, view: &CatalogView) -> String {
    format!("{agent}@{view}")
}

/// The connection of a caller.
#[derive(Debug)]
pub enum CallerSession {
    /// A connection or session, which can receive callbacks and notifications. Weak, because it holds its
    /// caller itself and must end even while calls still refer to the caller.
    Open(Weak<Agent>),
    /// A stateless request: all answers go with the request.
    Stateless,
    /// A stateless request of another node, for an agent that has a session there.
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

    /// False before `notifications/initialized`: until then the client gets only answers and log messages
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

    /// True if the client's next request may declare missing capabilities. For other callers the server
    /// learns that it cannot send callbacks.
    #[must_use]
    pub fn can_declare(&self) -> bool {
        matches!(self.session, CallerSession::Stateless)
    }

    /// The identity for calls to other nodes. There is no operator there, so the operator of this node
    /// calls as the agent it is.
    #[must_use]
    pub fn remote_identity(&self) -> AgentId {
        if self.operator {
            AgentId::new(AgentId::LOCAL)
        } else {
            self.agent.clone()
        }
    }

    /// The dialect of its answers.
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
        identity(&self.agent, self.operator, &self.view, &self.groups)
    }

    /// The principal that sealed records are bound to: they can be opened only by this client in this view.
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

    /// The lowest log level, if the client set one itself; `None` leaves it to the server.
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
