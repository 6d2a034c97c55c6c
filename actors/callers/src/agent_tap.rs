//! Reports the messages of one agent to an operator who watches it. Requests that begin before the operator
//! watches have no tap, and their later messages are not shown.

use bytes::Bytes;
use mgp_protocol::ids::{AgentId, ConnectionId};
use mgp_protocol::jsonrpc::{self, Message, RequestId};
use mgp_protocol::mcp::{Cancelled, Method};
use mgp_protocol::mgp::kernel::recorder::MessageSender;
use mgp_runtime::tap::{self, TapSubject};

/// Connection numbers are masked to the integers that every JSON reader represents exactly.
const CONNECTION_MASK: u64 = (1 << 53) - 1;

/// One watched connection of an agent.
#[derive(Clone, Debug)]
pub struct AgentTap {
    subject: TapSubject,
    connection: u64,
}

impl AgentTap {
    /// Opens a tap; `None` while no operator watches. The operator's own messages are not shown: they would
    /// show themselves.
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

    /// Reports a request of the agent.
    pub fn record_request(&self, id: &RequestId, method: &str, params: Option<&str>) {
        self.record_received(jsonrpc::request(id.as_json(), method, params).into());
    }

    /// Reports `initialize` with these params. It has an id of its own, because its real id belongs to the
    /// endpoint.
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

    /// Reports a notification of the agent.
    pub fn record_notification(&self, method: &str, params: Option<&str>) {
        self.record_received(jsonrpc::notification(method, params).into());
    }

    /// Reports a cancellation by the agent.
    pub(crate) fn record_cancelled(&self, params: Option<&str>) {
        self.record_notification(Cancelled::METHOD, params);
    }

    /// Reports the agent's answer to a callback.
    pub(crate) fn record_answer(&self, id: &RequestId, answer: &Result<Bytes, Bytes>) {
        let text = |bytes: &Bytes| String::from_utf8_lossy(bytes).into_owned();
        let frame = match answer {
            Ok(result) => jsonrpc::result(id.as_json(), &text(result)),
            Err(error) => jsonrpc::error(id.as_json(), &text(error)),
        };
        self.record_received(frame.into());
    }

    /// Reports a received frame, which may be no valid message.
    pub(crate) fn record_received(&self, frame: Bytes) {
        tap::publish(&self.subject, self.connection, MessageSender::Agent, &frame);
    }

    /// Reports a message sent to the agent.
    pub fn record_sent(&self, frame: &Bytes) {
        // The event that opens a stream has no data.
        if !frame.is_empty() {
            tap::publish(&self.subject, self.connection, MessageSender::Kernel, frame);
        }
    }

    /// Reports a message sent in a round of a stateless request: a callback goes with the answer, where it
    /// is reported.
    pub(crate) fn record_sent_in_round(&self, frame: &Bytes) {
        if !matches!(jsonrpc::parse(frame), Ok(Message::Request { .. })) {
            self.record_sent(frame);
        }
    }
}
