//! A link whose server is the test itself.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use mgp_engine::callers::callbacks::NotOpened;
use mgp_engine::callers::request_ids::WireId;
use mgp_engine::servers::spec::{QuestionAttribution, ServerLimits};
use mgp_engine::tools::catalog::CatalogView;
use mgp_protocol::dialect::{Era, Version};
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

use super::{Call, Link, LinkEvent, MirroredHeaders, Peer, Ways, Wire};
use mgp_callers::exchange::rounds::{CallRound, CallRounds, Outlet};
use mgp_callers::exchange::{Exchange, ReplyPath};
use mgp_callers::request::{Caller, CallerSession, Outcome};
use mgp_runtime::event_sink::EventSink;

/// What the server of a link says unasked.
#[derive(Debug, Default)]
pub(crate) struct Heard(pub(crate) Mutex<Vec<String>>);

impl Heard {
    /// Where a link tells it what the server says.
    pub(crate) fn sink(self: &Arc<Self>) -> EventSink<LinkEvent> {
        let heard = self.clone();
        EventSink::new(move |event| heard.takes(event))
    }

    fn takes(&self, event: LinkEvent) {
        let said = match event {
            LinkEvent::ListChanged(what) => format!("{what:?}"),
            LinkEvent::ResourceUpdated { uri, params } => format!("{uri} {params}"),
            LinkEvent::LifecycleReported { params, .. } => params,
            LinkEvent::EventTold(event) => format!("{} {}", event.channel, event.data),
            LinkEvent::Broken(_, why) => why,
            // Of a request the way to answer is dropped.
            LinkEvent::Mcpl(message) => format!("{} {}", message.method, message.params),
            LinkEvent::McplMet(_) => "met in MCPL".to_owned(),
            LinkEvent::RootsAsked(reply) => return reply.send(None),
            LinkEvent::PermissionAsked(ask, reply) => {
                return reply.send(Decision {
                    request_id: ask.request_id,
                    grants: BTreeMap::new(),
                    approved_by: None,
                    expires_at: None,
                });
            }
            LinkEvent::ConsentAsked(_, reply) => return reply.send(Ok(None)),
            LinkEvent::CallbackAsked(_, reply) => return reply.send(Err(NotOpened::TooMany)),
            LinkEvent::OperatorAsked(_, reply) => return reply.send(Ok(None)),
            LinkEvent::ReplayAsked(_, reply) => {
                return reply.send(Err(Refusal::BadRequest(String::new())));
            }
            LinkEvent::AuditReported(_)
            | LinkEvent::TaskChanged { .. }
            | LinkEvent::Logged(_)
            | LinkEvent::Unusable(_) => return,
        };
        self.0.lock().unwrap().push(said);
    }
}

/// A link over a child's pipes, with the other end of them.
pub(crate) struct Scripted {
    pub(crate) link: Arc<Link>,
    pub(crate) heard: Arc<Heard>,
    lines: Lines<BufReader<DuplexStream>>,
}

impl Scripted {
    pub(crate) fn new() -> Self {
        Self::of(ServerLimits::default(), QuestionAttribution::ByTurn)
    }

    /// The same with other bounds.
    pub(crate) fn bounded(bounds: ServerLimits) -> Self {
        Self::of(bounds, QuestionAttribution::ByTurn)
    }

    /// The same with a server whose questions are told apart in this way.
    pub(crate) fn asking(asking: QuestionAttribution) -> Self {
        Self::of(ServerLimits::default(), asking)
    }

    fn of(bounds: ServerLimits, asking: QuestionAttribution) -> Self {
        let limits = QueueLimits {
            frames: 100,
            bytes: 1 << 20,
        };
        let (sink, writer) = lines::sink(limits);
        let (ours, theirs) = tokio::io::duplex(1 << 16);
        tokio::spawn(writer.run(ours, std::time::Duration::from_secs(60)));
        let heard = Arc::new(Heard::default());
        let link = Link::new(
            ServerId::parse("it").unwrap(),
            bounds,
            Wire::Child(sink),
            ServerLog::new(),
            heard.sink(),
            "1.0",
            Ways {
                offers_mgp: true,
                offers_mcpl: true,
                asking,
            },
        );
        let lines = BufReader::new(theirs).lines();
        Self { link, heard, lines }
    }

    /// The same with a server that has been met as a modern one with these capabilities.
    pub(crate) fn modern(capabilities: &str) -> Self {
        Self::met(Version::MODERN, capabilities)
    }

    /// The same with a legacy one.
    pub(crate) fn legacy(capabilities: &str) -> Self {
        Self::met(Version::LATEST_LEGACY, capabilities)
    }

    /// The same with a server that has been met in this version.
    pub(crate) fn met(version: Version, capabilities: &str) -> Self {
        let it = Self::new();
        it.meets(version, capabilities);
        it
    }

    /// It is met in this version.
    pub(crate) fn meets(&self, version: Version, capabilities: &str) {
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
    pub(crate) async fn next(&mut self) -> Value {
        let line = self.lines.next_line().await.unwrap().unwrap();
        serde_json::from_str(&line).unwrap()
    }

    /// The server says this.
    pub(crate) fn say(&self, message: &Value) {
        self.link.receive(&Bytes::from(message.to_string()), None);
    }

    /// The server answers a request.
    pub(crate) fn answer(&self, request: &Value, outcome: &str, value: &Value) {
        self.say(&json!({"jsonrpc": "2.0", "id": request["id"], outcome: value}));
    }

    /// A call of a stateless client that can be asked for forms, URLs, messages and roots.
    pub(crate) fn call(&self, client: u64) -> (Arc<Exchange>, JoinHandle<Outcome>) {
        let capabilities = ClientCapabilities {
            elicitation_form: true,
            elicitation_url: true,
            sampling: true,
            roots: true,
            ..ClientCapabilities::default()
        };
        self.call_of(client, CallerSession::Stateless, capabilities)
    }

    /// A call of a client that can be asked for so much.
    pub(crate) fn call_of(
        &self,
        client: u64,
        session: CallerSession,
        capabilities: ClientCapabilities,
    ) -> (Arc<Exchange>, JoinHandle<Outcome>) {
        let caller = Arc::new(Caller {
            connection: ConnectionId(client),
            agent: AgentId::new("agent.test"),
            operator: false,
            view: CatalogView::All,
            version: Version::MODERN,
            capabilities,
            mgp: PLAIN,
            mcpl: None,
            session,
            activity: Arc::default(),
        });
        let attempt = CallRound {
            id: RequestId::from(1),
            outlet: Some(Outlet::Stream(mpsc::channel(1).0)),
            token: None,
            capabilities,
            level: None,
            left: None,
        };
        let exchange = Exchange::new(ReplyPath::Rounds(Box::new(CallRounds::new(attempt, true))));
        let (link, own) = (self.link.clone(), exchange.clone());
        let calling = tokio::spawn(async move {
            let call = Call {
                caller: Some(&caller),
                exchange: &own,
                token: None,
                stream: None,
                reports: false,
                era: Era::Legacy,
                final_check: None,
                mirror: MirroredHeaders {
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
        (exchange, calling)
    }

    /// The server asks for a form, with this id and this `_meta`.
    pub(crate) fn ask_with(&self, id: &str, meta: &Value) {
        let schema = json!({"type": "object"});
        let params = json!({"message": id, "requestedSchema": schema, "_meta": meta});
        let method = "elicitation/create";
        self.say(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}));
    }

    /// The server asks for a form, with this id.
    pub(crate) fn ask(&self, id: &str) {
        self.ask_with(id, &json!({}));
    }

    /// The server asks in a call, without saying in which: from then on there are turns.
    pub(crate) async fn known_to_ask(&mut self) {
        let (exchange, calling) = self.call(9);
        let request = self.next().await;
        self.ask("first");
        let rounds = exchange.rounds().unwrap();
        rounds.asked().await;
        rounds.answer(r#"{"elicitation-1":{"action":"decline"}}"#);
        assert_eq!(self.next().await["id"], "first");
        self.answer(&request, "result", &json!({}));
        calling.await.unwrap().unwrap();
    }
}
