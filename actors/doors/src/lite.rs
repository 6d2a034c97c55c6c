//! MCP-lite: what its bindings have in common. A lite caller is a stateless one of 2026-07-28 that says nothing of
//! itself: its calls are made, checked, recorded, suspended and turned into tasks like those.
//!
//! A promise is a task under another name, and what a tool asks is a suspended call.

mod answer;
pub mod call;
mod continuation;
mod names;
mod openapi;
mod promise;
mod redeem;
mod request;
mod resumptions;
mod rounds;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use bytestring::ByteString;
use mgp_callers::directory::Directory;
use mgp_callers::exchange::forwarded::ForwardedHeaders;
use mgp_callers::exchange::rounds::Outlet;
use mgp_callers::request::{CallerSession, Outcome, principal};
use mgp_engine::tools::catalog::CatalogView;
use mgp_protocol::era::{Stamp, to_modern_params};
use mgp_protocol::ids::AgentId;
use mgp_protocol::jsonrpc::RequestId;
use mgp_protocol::lite::VERSION;
use mgp_protocol::mcp::meta::CLIENT_INFO;
use mgp_protocol::refusal::Refusal;
use mgp_protocol::splice::mention::may_mention;
use mgp_protocol::splice::{member, quoted};
use mgp_runtime::trace::Trace;
use tokio::sync::mpsc;

use self::call::{LiteCall, RunningLite};
use self::openapi::MadeDocuments;
use self::resumptions::Resumptions;
use self::rounds::LiteRoutes;
use crate::reception::Reception;
use crate::stateless::{self, Arrival, RunningCall, Stateless};

/// What a lite caller can be asked, and that it can be given tasks.
const CAPABILITIES: &str =
    r#"{"elicitation":{"form":{},"url":{}},"extensions":{"io.modelcontextprotocol/tasks":{}}}"#;
/// The same of one that reads a stream: MGP's chunks are its partial messages (A-33).
const STREAMING: &str = r#"{"elicitation":{"form":{},"url":{}},"extensions":{"io.modelcontextprotocol/tasks":{},"dev.cloto/mgp":{"version":"0.2.0","extensions":["streaming"]}}}"#;

/// How lite callers are answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LiteSettings {
    /// A call that takes longer is answered with a promise; `None` for never, unless the caller says when.
    pub promise_after: Option<Duration>,
    /// How long a promise can be redeemed.
    pub promise_ttl: Duration,
    /// How often a stream says that it is alive.
    pub heartbeat: Duration,
}

/// Takes the calls of both bindings.
#[derive(Debug)]
pub struct Lite {
    stateless: Arc<Stateless>,
    directory: Arc<Directory>,
    settings: LiteSettings,
    documents: MadeDocuments,
    resumptions: Resumptions,
}

/// Who asks: the agent, as authenticated by the door, and what it sees.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LiteCaller {
    pub(crate) agent: AgentId,
    pub(crate) view: CatalogView,
}

impl LiteCaller {
    fn principal(&self) -> String {
        principal(&self.agent, &self.view)
    }
}

impl Lite {
    /// Takes calls to what this reception has.
    #[must_use]
    pub fn new(reception: &Reception, settings: LiteSettings) -> Arc<Self> {
        let of_all = &reception.stateless;
        let stateless = Stateless {
            routes: Arc::new(LiteRoutes::new(of_all.routes.clone())),
            suspended: of_all.suspended.clone(),
            tasks: of_all.tasks.clone(),
            seal: of_all.seal.clone(),
            boot: of_all.boot,
        };
        Arc::new(Self {
            resumptions: Resumptions::new(stateless.suspended.patience()),
            stateless: Arc::new(stateless),
            directory: reception.directory.clone(),
            settings,
            documents: MadeDocuments::default(),
        })
    }

    /// How often a stream says that it is alive.
    #[must_use]
    pub fn heartbeat(&self) -> Duration {
        self.settings.heartbeat
    }

    /// What of a request's headers may be handed on to servers that name them.
    #[must_use]
    pub fn forwarded(&self, headers: &http::HeaderMap) -> Option<ForwardedHeaders> {
        self.directory.forwarded.of(headers)
    }

    /// Starts a call. Dropping what is returned cancels it.
    #[must_use]
    pub fn call(self: &Arc<Self>, call: LiteCall) -> RunningLite {
        RunningLite::begin(self, call)
    }

    /// Opens a request with these params, which are in the words of any version of MCP.
    fn open(
        &self,
        who: &LiteCaller,
        (method, params): (&'static str, &str),
        outlet: mpsc::Sender<Bytes>,
        (stream, trace): (bool, Trace),
    ) -> Result<RunningCall, Refusal> {
        let said = may_mention(params.as_bytes(), "clientInfo")
            .then(|| member(params, "_meta").and_then(|meta| member(meta, CLIENT_INFO)))
            .flatten();
        let own = format!(r#"{{"name":"mcp-lite","version":{}}}"#, quoted(VERSION));
        let stamp = Stamp {
            client_info: said.unwrap_or(&own),
            capabilities: if stream { STREAMING } else { CAPABILITIES },
            log_level: None,
        };
        let params = to_modern_params(Some(params), &stamp);
        let (stated, _) = stateless::read(method, Some(&params))?;
        let clients = &self.directory.stateless_clients;
        let activity = clients.activity(&who.agent, &who.view, stated.client.as_deref());
        let arrival = Arrival {
            agent: who.agent.clone(),
            operator: false,
            session: CallerSession::Stateless,
            view: who.view.clone(),
            // Nobody can name the request: what belongs to it goes with it.
            id: RequestId::from(self.stateless.suspended.number()),
            method: ByteString::from_static(method),
            params: Some(params.into()),
            trace,
            outlet: Outlet::Stream(outlet),
        };
        let running = self.stateless.open(arrival, stated, activity)?;
        let budget = self.directory.responses.budget(&who.agent);
        running.exchange().count_response(budget);
        Ok(running)
    }

    /// Makes a request whose messages nobody reads, and waits for the answer.
    async fn ask(
        &self,
        who: &LiteCaller,
        method: &'static str,
        params: &str,
        forwarded: Option<&ForwardedHeaders>,
    ) -> Outcome {
        let (outlet, mut messages) = mpsc::channel(1);
        let running = self.open(who, (method, params), outlet, (false, Trace::minted()))?;
        running
            .exchange()
            .forward(forwarded.map(ForwardedHeaders::again));
        let mut answering = running.answer();
        loop {
            tokio::select! {
                biased;
                outcome = &mut answering => return outcome,
                Some(_) = messages.recv() => {}
            }
        }
    }
}
