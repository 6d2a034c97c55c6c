//! A link to a scripted server, for tests.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use mgp_engine::callers::callbacks::OpenCallbackError;
use mgp_engine::callers::request_ids::WireId;
use mgp_engine::servers::spec::{CallbackAttribution, ServerLimits};
use mgp_engine::tools::catalog::CatalogView;
use mgp_protocol::dialect::{ProtocolFamily, Version};
use mgp_protocol::ids::{AgentId, ConnectionId, ServerId};
use mgp_protocol::jsonrpc::{self, RequestId};
use mgp_protocol::mcp::{ClientCapabilities, ServerCapabilities};
use mgp_protocol::mgp::negotiation::PLAIN;
use mgp_protocol::mgp::permission::Decision;
use mgp_protocol::refusal::Refusal;
use mgp_transports::lines::{self, QueueLimits};
use mgp_transports::log::ServerLog;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, BufReader, DuplexStream, Lines};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::{Call, Link, LinkEvent, LinkSettings, MetadataHeaders, Peer, Wire};
use mgp_callers::request::{Caller, CallerSession, Outcome};
use mgp_callers::{CallRound, CallRounds, InFlightCall, Outlet, ReplyPath};
use mgp_runtime::EventSink;

/// The events that a link emitted, as text.
#[derive(Debug, Default)]
pub(crate) struct ReceivedEvents(pub(crate) Mutex<Vec<String>>);

impl ReceivedEvents {
    /// A sink that records the events of a link.
    pub(crate) fn sink(self: &Arc<Self>) -> EventSink<LinkEvent> {
        let events = self.clone();
        EventSink::new(move |event| events.record(event))
    }

    fn record(&self, event: LinkEvent) {
        let text = match event {
            LinkEvent::ListChanged(what) => format!("{what:?}"),
            LinkEvent::ResourceUpdated { uri, params } => format!("{uri} {params}"),
            LinkEvent::LifecycleReported { params, .. } => params,
            LinkEvent::EventReported(event) => format!("{} {}", event.channel, event.data),
            LinkEvent::Broken(_, why) => why,
            // The reply of a request is dropped.
            LinkEvent::McplReceived(message) => format!("{} {}", message.method, message.params),
            LinkEvent::McplConnected(_) => "met in MCPL".to_owned(),
            LinkEvent::RootsRequested(reply) => return reply.send(None),
            LinkEvent::PermissionRequested(ask, reply) => {
                return reply.send(Decision {
                    request_id: ask.request_id,
                    grants: BTreeMap::new(),
                    approved_by: None,
                    expires_at: None,
                });
            }
            LinkEvent::ConsentRequested(_, reply) => return reply.send(Ok(None)),
            LinkEvent::CallbackRequested(_, reply) => {
                return reply.send(Err(OpenCallbackError::TooMany));
            }
            LinkEvent::OperatorInputRequested(_, reply) => return reply.send(Ok(None)),
            LinkEvent::ReplayRequested(_, reply) => {
                return reply.send(Err(Refusal::BadRequest(String::new())));
            }
            LinkEvent::AuditReported(_)
            | LinkEvent::TaskChanged { .. }
            | LinkEvent::Logged(_)
            | LinkEvent::Unusable(_) => return,
        };
        self.0.lock().unwrap().push(text);
    }
}

/// A link over the pipes of a child process, with the server's end of the pipes.
pub(crate) struct ScriptedServer {
    pub(crate) link: Arc<Link>,
    pub(crate) received: Arc<ReceivedEvents>,
    lines: Lines<BufReader<DuplexStream>>,
}

impl ScriptedServer {
    pub(crate) fn new() -> Self {
        Self::open(ServerLimits::default(), CallbackAttribution::ByTurn)
    }

    /// Creates one with these limits.
    pub(crate) fn with_limits(limits: ServerLimits) -> Self {
        Self::open(limits, CallbackAttribution::ByTurn)
    }

    /// Creates one with this attribution of callbacks.
    pub(crate) fn with_attribution(attribution: CallbackAttribution) -> Self {
        Self::open(ServerLimits::default(), attribution)
    }

    fn open(limits: ServerLimits, attribution: CallbackAttribution) -> Self {
        let queue_limits = QueueLimits {
            frames: 100,
            bytes: 1 << 20,
        };
        let (sink, writer) = lines::line_channel(queue_limits);
        let (ours, theirs) = tokio::io::duplex(1 << 16);
        tokio::spawn(writer.run(ours, std::time::Duration::from_secs(60)));
        let received = Arc::new(ReceivedEvents::default());
        let link = Link::new(
            ServerId::parse("it").unwrap(),
            limits,
            Wire::Child(sink),
            ServerLog::new(),
            received.sink(),
            "1.0",
            LinkSettings {
                offer_mgp: true,
                offer_mcpl: true,
                attribution,
                client_extensions: "{}".into(),
                audit: mgp_store::audit::AuditHandle::disabled(),
                interceptors: None,
            },
        );
        let lines = BufReader::new(theirs).lines();
        Self {
            link,
            received,
            lines,
        }
    }

    /// Creates one after a stateless handshake with these capabilities.
    pub(crate) fn stateless(capabilities: &str) -> Self {
        Self::with_handshake(Version::STATELESS, capabilities)
    }

    /// Creates one after a legacy handshake.
    pub(crate) fn legacy(capabilities: &str) -> Self {
        Self::with_handshake(Version::LATEST_LEGACY, capabilities)
    }

    /// Creates one after a handshake in this version.
    pub(crate) fn with_handshake(version: Version, capabilities: &str) -> Self {
        let it = Self::new();
        it.complete_handshake(version, capabilities);
        it
    }

    /// Completes the handshake in this version.
    pub(crate) fn complete_handshake(&self, version: Version, capabilities: &str) {
        self.link.set_peer(Peer {
            version,
            capabilities: ServerCapabilities::default(),
            raw_capabilities: capabilities.into(),
            info: None,
            instructions: None,
            mgp: PLAIN,
            mcpl: None,
        });
    }

    /// The next message to the server.
    pub(crate) async fn next_message(&mut self) -> Value {
        let line = self.lines.next_line().await.unwrap().unwrap();
        serde_json::from_str(&line).unwrap()
    }

    /// Sends a message of the server.
    pub(crate) fn send(&self, message: &Value) {
        self.link.receive(&Bytes::from(message.to_string()), None);
    }

    /// Sends the server's answer to a request.
    pub(crate) fn answer(&self, request: &Value, outcome: &str, value: &Value) {
        self.send(&json!({"jsonrpc": "2.0", "id": request["id"], outcome: value}));
    }

    /// Starts a call of a stateless client that supports forms, URLs, sampling and roots.
    pub(crate) fn call(&self, client: u64) -> (Arc<InFlightCall>, JoinHandle<Outcome>) {
        let capabilities = ClientCapabilities {
            elicitation_form: true,
            elicitation_url: true,
            sampling: true,
            roots: true,
            ..ClientCapabilities::default()
        };
        self.call_as(client, CallerSession::Stateless, capabilities)
    }

    /// Starts a call of a client with these capabilities.
    pub(crate) fn call_as(
        &self,
        client: u64,
        session: CallerSession,
        capabilities: ClientCapabilities,
    ) -> (Arc<InFlightCall>, JoinHandle<Outcome>) {
        let caller = Arc::new(Caller {
            connection: ConnectionId(client),
            agent: AgentId::new("agent.test"),
            groups: Default::default(),
            operator: false,
            view: CatalogView::All,
            version: Version::STATELESS,
            capabilities,
            extensions: None,
            mgp: PLAIN,
            mcpl: None,
            session,
            address: None,
            activity: Arc::default(),
        });
        let attempt = CallRound {
            id: RequestId::from(1),
            outlet: Some(Outlet::Stream(mpsc::channel(1).0)),
            token: None,
            capabilities,
            log_level: None,
            answered_at: None,
        };
        let in_flight =
            InFlightCall::new(ReplyPath::Rounds(Box::new(CallRounds::new(attempt, true))));
        let (link, own) = (self.link.clone(), in_flight.clone());
        let calling = tokio::spawn(async move {
            let call = Call {
                caller: Some(&caller),
                in_flight: &own,
                token: None,
                stream: None,
                mgp_progress: false,
                family: ProtocolFamily::Legacy,
                final_check: None,
                metadata_headers: MetadataHeaders {
                    method: "tools/call",
                    name: None,
                    params: &[],
                },
                span: None,
                trace: None,
            };
            let frame = |id: WireId| jsonrpc::request(&id.to_string(), "tools/call", None);
            link.call(call, frame).await
        });
        (in_flight, calling)
    }

    /// Sends a form elicitation with this id and this `_meta`.
    pub(crate) fn request_form_with(&self, id: &str, meta: &Value) {
        let schema = json!({"type": "object"});
        let params = json!({"message": id, "requestedSchema": schema, "_meta": meta});
        let method = "elicitation/create";
        self.send(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}));
    }

    /// Sends a form elicitation with this id.
    pub(crate) fn request_form(&self, id: &str) {
        self.request_form_with(id, &json!({}));
    }

    /// Sends a callback that does not name its call; calls are serialized from then on.
    pub(crate) async fn serialize_calls(&mut self) {
        let (in_flight, calling) = self.call(9);
        let request = self.next_message().await;
        self.request_form("first");
        let rounds = in_flight.rounds().unwrap();
        rounds.wait_for_callbacks().await;
        rounds.answer(r#"{"elicitation-1":{"action":"decline"}}"#);
        assert_eq!(self.next_message().await["id"], "first");
        self.answer(&request, "result", &json!({}));
        calling.await.unwrap().unwrap();
    }
}
