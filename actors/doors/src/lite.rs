//! MCP-lite: the parts shared by its bindings. A lite caller is a stateless one of 2026-07-28 that sends no
//! metadata: its calls are made, checked, recorded, suspended and turned into tasks in the same way.
//!
//! A promise is a task under another name, and a tool's callback is a suspended call.

mod answer;
pub(crate) mod call;
mod continuation;
mod lite_routes;
mod names;
mod openapi;
mod promise;
mod redeem;
mod request;
mod resumptions;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use bytestring::ByteString;
use mgp_callers::request::{CallerSession, Outcome, principal};
use mgp_callers::{Credential, Directory, ForwardedHeaders, Outlet};
use mgp_engine::policy::access::ClaimedGroups;
use mgp_engine::tools::catalog::CatalogView;
use mgp_json::{can_contain_string, member, quote};
use mgp_protocol::ids::AgentId;
use mgp_protocol::jsonrpc::RequestId;
use mgp_protocol::lite::VERSION;
use mgp_protocol::mcp::meta::CLIENT_INFO;
use mgp_protocol::refusal::Refusal;
use mgp_protocol::versions::{CallerMeta, to_stateless_params};
use mgp_runtime::trace::Trace;
use tokio::sync::mpsc;

use self::call::{LiteCall, RunningLiteCall};
use self::lite_routes::LiteRoutes;
use self::openapi::DocumentCache;
use self::resumptions::Resumptions;
use crate::endpoint_context::EndpointContext;
use crate::stateless::{self, RequestMeta, RunningCall, Stateless, StatelessRequest};

/// The capabilities of a lite caller: elicitation and tasks.
const CAPABILITIES: &str =
    r#"{"elicitation":{"form":{},"url":{}},"extensions":{"io.modelcontextprotocol/tasks":{}}}"#;
/// The capabilities of a lite caller that reads a stream: MGP's chunks are its partial messages (A-33).
const STREAMING: &str = r#"{"elicitation":{"form":{},"url":{}},"extensions":{"io.modelcontextprotocol/tasks":{},"dev.cloto/mgp":{"version":"0.2.0","extensions":["streaming"]}}}"#;

/// Settings of MCP-lite.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LiteSettings {
    /// A longer call is answered with a promise; `None` for never, unless the caller sets a time.
    pub promise_after: Option<Duration>,
    /// How long a promise can be redeemed.
    pub promise_ttl: Duration,
    /// The interval of a stream's keep-alives.
    pub heartbeat: Duration,
}

/// Handles the calls of both bindings.
#[derive(Debug)]
pub struct Lite {
    stateless: Arc<Stateless>,
    directory: Arc<Directory>,
    settings: LiteSettings,
    document_cache: DocumentCache,
    resumptions: Resumptions,
    unnamed: UnnamedClients,
}

/// What is said of callers that name no client.
#[derive(Debug)]
struct UnnamedClients {
    waiting: ClientDescription,
    streaming: ClientDescription,
}

/// A client as requests describe it, in `_meta` and parsed.
#[derive(Debug)]
struct ClientDescription {
    /// The object whose only member is `_meta`.
    params: String,
    parsed: RequestMeta,
}

impl UnnamedClients {
    fn new() -> Self {
        let describe = |capabilities| {
            let client = format!(r#"{{"name":"mcp-lite","version":{}}}"#, quote(VERSION));
            let params = stamp_params("{}", &client, capabilities);
            let parsed = stateless::parse_request_meta("tools/list", Some(&params));
            let (parsed, _) = parsed.expect("the kernel's own description can be parsed");
            ClientDescription { params, parsed }
        };
        Self {
            waiting: describe(CAPABILITIES),
            streaming: describe(STREAMING),
        }
    }
}

impl ClientDescription {
    /// These params with the description, in the same order as [`to_stateless_params`]; `None` if they are no object.
    fn add_to(&self, params: &str) -> Option<String> {
        let rest = params.trim_start().strip_prefix('{')?;
        let comma = if rest.trim_start().starts_with('}') {
            ""
        } else {
            ","
        };
        let described = self.params.strip_suffix('}')?;
        Some([described, comma, rest].concat())
    }
}

/// The caller: the authenticated agent, and its view.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LiteCaller {
    pub(crate) agent: AgentId,
    /// The groups that its token gives it.
    pub(crate) groups: ClaimedGroups,
    pub(crate) view: CatalogView,
}

impl LiteCaller {
    /// The caller with this credential, in this view.
    pub(crate) fn new(pass: &Credential, view: CatalogView) -> Self {
        Self {
            agent: pass.agent.clone(),
            groups: pass.groups.clone(),
            view,
        }
    }

    fn principal(&self) -> String {
        principal(&self.agent, &self.view)
    }
}

impl Lite {
    /// Creates MCP-lite for this endpoint context.
    #[must_use]
    pub fn new(endpoint: &EndpointContext, settings: LiteSettings) -> Arc<Self> {
        let of_all = &endpoint.stateless;
        let stateless = Stateless {
            routes: Arc::new(LiteRoutes::new(of_all.routes.clone())),
            suspended: of_all.suspended.clone(),
            tasks: of_all.tasks.clone(),
            seal: of_all.seal.clone(),
            boot: of_all.boot,
        };
        Arc::new(Self {
            resumptions: Resumptions::new(stateless.suspended.return_timeout()),
            stateless: Arc::new(stateless),
            directory: endpoint.directory.clone(),
            settings,
            document_cache: DocumentCache::default(),
            unnamed: UnnamedClients::new(),
        })
    }

    /// The interval of a stream's keep-alives.
    #[must_use]
    pub(crate) fn heartbeat(&self) -> Duration {
        self.settings.heartbeat
    }

    /// Selects the headers of a request that may be forwarded to servers that name them.
    #[must_use]
    pub(crate) fn forwarded_headers(&self, headers: &http::HeaderMap) -> Option<ForwardedHeaders> {
        self.directory.forwarded_names.select(headers)
    }

    /// Starts a call. Dropping the returned value cancels it.
    #[must_use]
    pub(crate) fn start_call(self: &Arc<Self>, call: LiteCall) -> RunningLiteCall {
        RunningLiteCall::start(self, call)
    }

    /// Opens a request with these params, of any MCP version.
    fn open_request(
        &self,
        caller: &LiteCaller,
        (method, params): (&'static str, &str),
        outlet: mpsc::Sender<Bytes>,
        (stream, trace): (bool, Trace),
    ) -> Result<RunningCall, Refusal> {
        let (params, stated) = self.describe_client(method, params, stream)?;
        let clients = &self.directory.stateless_clients;
        let activity = clients.activity(&caller.agent, &caller.view, stated.client.as_deref());
        let arrival = StatelessRequest {
            agent: caller.agent.clone(),
            groups: caller.groups.clone(),
            operator: false,
            session: CallerSession::Stateless,
            address: None,
            view: caller.view.clone(),
            // No client can name the request: its messages go with it.
            id: RequestId::from(self.stateless.suspended.next_number()),
            method: ByteString::from_static(method),
            params: Some(params.into()),
            trace,
            outlet: Outlet::Stream(outlet),
        };
        let running = self.stateless.open(arrival, stated, activity)?;
        let budget = self.directory.responses.budget(&caller.agent);
        running.call().set_budget(budget);
        Ok(running)
    }

    /// The params with what a stateless client says of itself, and that parsed.
    fn describe_client(
        &self,
        method: &'static str,
        params: &str,
        stream: bool,
    ) -> Result<(String, RequestMeta), Refusal> {
        let unnamed = match stream {
            true => &self.unnamed.streaming,
            false => &self.unnamed.waiting,
        };
        let can_contain = |name| can_contain_string(params.as_bytes(), name);
        if !can_contain("_meta")
            && !can_contain("requestState")
            && let Some(described) = unnamed.add_to(params)
        {
            return Ok((described, unnamed.parsed.clone()));
        }
        let client = can_contain("clientInfo")
            .then(|| member(params, "_meta").and_then(|meta| member(meta, CLIENT_INFO)))
            .flatten();
        let client = client.or(unnamed.parsed.client.as_deref());
        let capabilities = if stream { STREAMING } else { CAPABILITIES };
        let params = stamp_params(params, client.unwrap_or("{}"), capabilities);
        let (stated, _) = stateless::parse_request_meta(method, Some(&params))?;
        Ok((params, stated))
    }

    /// Makes a request without a reader for its messages, and waits for the answer.
    async fn request(
        &self,
        caller: &LiteCaller,
        method: &'static str,
        params: &str,
        forwarded: Option<&ForwardedHeaders>,
    ) -> Outcome {
        let (outlet, mut messages) = mpsc::channel(1);
        let running =
            self.open_request(caller, (method, params), outlet, (false, Trace::generate()))?;
        running
            .call()
            .set_forwarded_headers(forwarded.map(ForwardedHeaders::for_next_request));
        let mut answering = running.into_answer();
        loop {
            tokio::select! {
                biased;
                outcome = &mut answering => return outcome,
                Some(_) = messages.recv() => {}
            }
        }
    }
}

fn stamp_params(params: &str, client_info: &str, capabilities: &str) -> String {
    let stamp = CallerMeta {
        client_info,
        capabilities,
        log_level: None,
    };
    to_stateless_params(Some(params), &stamp)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The params are the same, byte for byte, as those that are described member by member.
    #[test]
    fn described_params_are_those_of_a_stateless_client() {
        let clients = UnnamedClients::new();
        for (description, capabilities) in [
            (&clients.waiting, CAPABILITIES),
            (&clients.streaming, STREAMING),
        ] {
            let client = description.parsed.client.as_deref().unwrap();
            for params in [
                "{}",
                r#"{"name":"t"}"#,
                r#"{"name":"t","arguments":{"a":[{}]}}"#,
            ] {
                let described = description.add_to(params).unwrap();
                assert_eq!(described, stamp_params(params, client, capabilities));
                let parsed = stateless::parse_request_meta("tools/call", Some(&described));
                let (parsed, _) = parsed.unwrap();
                assert_eq!(format!("{parsed:?}"), format!("{:?}", description.parsed));
            }
        }
        assert_eq!(clients.waiting.add_to("7"), None);
        let spaced = clients.waiting.add_to(" { \"a\" : 1 } ").unwrap();
        assert!(serde_json::from_str::<serde_json::Value>(&spaced).is_ok());
        let empty = clients.waiting.add_to("{ }").unwrap();
        assert!(serde_json::from_str::<serde_json::Value>(&empty).is_ok());
    }
}
