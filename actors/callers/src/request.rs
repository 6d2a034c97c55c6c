//! A request as the core sees it: it carries its caller and stands alone.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Weak};

use bytes::Bytes;
use bytestring::ByteString;
use mgp_engine::policy::access::Principal;
use mgp_engine::tools::catalog::{CatalogTool, CatalogView};
use mgp_protocol::dialect::{Dialect, Version};
use mgp_protocol::ids::{AgentId, ConnectionId};
use mgp_protocol::jsonrpc;
use mgp_protocol::mcp::ClientCapabilities;
use mgp_protocol::mgp::negotiation::Negotiated;
use mgp_protocol::refusal::{Refusal, Rendered};

use crate::agent::Agent;
use crate::agent::activity::ClientActivity;
use crate::exchange::Exchange;
use mgp_runtime::trace::Trace;

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
    Standing(Weak<Agent>),
    /// A request that stands alone: what belongs to it travels with it.
    Alone,
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
}

/// One request. Method and params are slices of the frame it came in.
#[derive(Debug)]
pub struct Request {
    /// Who asks.
    pub caller: Arc<Caller>,
    /// The request's state while it is under way.
    pub exchange: Arc<Exchange>,
    /// What is asked.
    pub method: ByteString,
    /// With what, as JSON text.
    pub params: Option<ByteString>,
    /// What ties it to all that it causes.
    pub trace: Trace,
}

/// The `result` member of an answer, as JSON text, or why there is none.
pub type Outcome = Result<Bytes, Refusal>;

/// An answer under way.
pub type Answering<T = Outcome> = Pin<Box<dyn Future<Output = T> + Send>>;

/// Who answers what: the table of every method (`kernel/src/routes.rs`).
pub trait Routes: Send + Sync + std::fmt::Debug + 'static {
    /// Answers a request.
    fn answer(&self, request: Request) -> Answering;

    /// Takes note of a notification.
    fn note(&self, caller: &Arc<Caller>, method: &str, params: Option<&str>);

    /// The tool of that name, as shown in the view, when this caller may call it.
    fn tool(&self, view: &CatalogView, name: &str, who: &Principal) -> Option<Arc<CatalogTool>>;

    /// The result of `initialize` for an agent with this view, as JSON text.
    fn welcome(&self, caller: Arc<Caller>) -> Answering;

    /// True when the view names something that exists, as far as this caller may know.
    fn knows(&self, view: &CatalogView, who: &Principal) -> bool;

    /// Whether a call that waited for its client may go on.
    ///
    /// # Errors
    /// What a new call of the same would be answered.
    fn still(&self, caller: &Caller, method: &str, params: &str) -> Result<(), Refusal>;

    /// An agent has gone: what it subscribed to ends.
    fn farewell(&self, agent: &Agent);
}

/// Answers up to this size are copied into one buffer; larger ones are written in parts.
const COPIED: usize = 16 << 10;

/// The whole answer to the request `id`: one part, or three of which the middle one is the server's
/// own bytes.
#[must_use]
pub fn answer_parts(id: &str, outcome: &Outcome, dialect: impl Into<Dialect>) -> [Bytes; 3] {
    let whole = |frame: Vec<u8>| [frame.into(), Bytes::new(), Bytes::new()];
    match outcome {
        Ok(result) if result.len() <= COPIED => {
            let mut out = Vec::with_capacity(40 + id.len() + result.len());
            out.extend_from_slice(PREFIX);
            out.extend_from_slice(id.as_bytes());
            out.extend_from_slice(RESULT);
            out.extend_from_slice(result);
            out.push(b'}');
            whole(out)
        }
        Ok(result) => {
            let head = [PREFIX, id.as_bytes(), RESULT].concat();
            [head.into(), result.clone(), Bytes::from_static(b"}")]
        }
        Err(refusal) => whole(match refusal.render_in(dialect.into()) {
            Rendered::Error(error) => jsonrpc::error(id, &error),
            Rendered::Result(result) => jsonrpc::result(id, &result),
        }),
    }
}

const PREFIX: &[u8] = br#"{"jsonrpc":"2.0","id":"#;
const RESULT: &[u8] = br#","result":"#;

/// The whole answer as one frame.
#[must_use]
pub fn answer_frame(id: &str, outcome: &Outcome, dialect: impl Into<Dialect>) -> Bytes {
    let [head, middle, tail] = answer_parts(id, outcome, dialect);
    if middle.is_empty() {
        return head;
    }
    [head, middle, tail].concat().into()
}
