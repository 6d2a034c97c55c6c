//! What one agent says and hears, for an operator who looks on. Requests that begin while nobody does have no tap, and
//! what belongs to them is not shown later.

use bytes::Bytes;
use mgp_protocol::ids::{AgentId, ConnectionId};
use mgp_protocol::jsonrpc::{self, Message, RequestId};
use mgp_protocol::mcp::{Cancelled, Method};
use mgp_protocol::mgp::kernel::recorder::MessageSender;
use mgp_runtime::tap::{self, TapSubject};

/// Numbers of connections are shown as far as every reader of JSON has them exactly.
const CONNECTION_MASK: u64 = (1 << 53) - 1;

/// One agent's connection that somebody looks on at.
#[derive(Clone, Debug)]
pub struct AgentTap {
    subject: TapSubject,
    connection: u64,
}

impl AgentTap {
    /// `None` while nobody looks on. What the operator does is not shown: it would show itself.
    #[must_use]
    pub fn for_agent(agent: &AgentId, operator: bool, connection: ConnectionId) -> Option<Self> {
        if !tap::has_open_taps() || operator {
            return None;
        }
        let subject = TapSubject::Agent(agent.clone());
        tap::has_tap_on(&subject).then_some(Self {
            subject,
            connection: connection.0 & CONNECTION_MASK,
        })
    }

    /// The agent asks for something.
    pub fn record_request(&self, id: &RequestId, method: &str, params: Option<&str>) {
        self.record_received(jsonrpc::request(id.as_json(), method, params).into());
    }

    /// It said `initialize`, with these params. It is shown under that name: its id is its door's.
    pub(crate) fn record_initialize(&self, params: &str) {
        self.record_request(&Self::initialize_id(), "initialize", Some(params));
    }

    /// The id under which `initialize` is shown.
    ///
    /// # Panics
    /// Never: a string is an id.
    #[must_use]
    pub(crate) fn initialize_id() -> RequestId {
        RequestId::from_json(r#""initialize""#).expect("a string is an id")
    }

    /// It tells something.
    pub fn record_notification(&self, method: &str, params: Option<&str>) {
        self.record_received(jsonrpc::notification(method, params).into());
    }

    /// It takes a request back.
    pub(crate) fn record_cancelled(&self, params: Option<&str>) {
        self.record_notification(Cancelled::METHOD, params);
    }

    /// It answers a question.
    pub(crate) fn record_answer(&self, id: &RequestId, answer: &Result<Bytes, Bytes>) {
        let text = |bytes: &Bytes| String::from_utf8_lossy(bytes).into_owned();
        let frame = match answer {
            Ok(result) => jsonrpc::result(id.as_json(), &text(result)),
            Err(error) => jsonrpc::error(id.as_json(), &text(error)),
        };
        self.record_received(frame.into());
    }

    /// It says something, which may be no message.
    pub(crate) fn record_received(&self, frame: Bytes) {
        tap::publish(&self.subject, self.connection, MessageSender::Agent, &frame);
    }

    /// It is sent a message.
    pub fn record_sent(&self, frame: &Bytes) {
        // The event that begins a stream has no data.
        if !frame.is_empty() {
            tap::publish(&self.subject, self.connection, MessageSender::Kernel, frame);
        }
    }

    /// It is sent a message of one of its stateless requests: a question goes with the answer, where it is shown.
    pub(crate) fn record_sent_in_round(&self, frame: &Bytes) {
        if !matches!(jsonrpc::parse(frame), Ok(Message::Request { .. })) {
            self.record_sent(frame);
        }
    }
}
