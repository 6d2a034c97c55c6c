//! What a recording or a live view shows of an observed message: its kind, the request it answers and after how long,
//! with secrets masked.

pub mod comparison;
pub mod replay;

use std::collections::HashMap;
use std::time::Duration;

use mgp_json::{member, quote};
use mgp_protocol::jsonrpc::{self, Message, RequestId};
use mgp_protocol::mgp::kernel::recorder::{Follow, Heard, MessageKind, MessageSender};
use serde_json::value::RawValue;

use crate::clock::{MonotonicTime, to_micros_rounded_up};
use mgp_screening::masks::Masks;

/// Requests whose answers are awaited: more than a server may have in flight. Beyond this, all earlier ones are
/// dropped, and their answers have neither method nor time.
pub(crate) const PENDING_MAX: usize = 4_096;
/// Bytes stored of each request: enough for a long address, so that all of them take some megabytes. The answer to a
/// longer one is shown without its method.
const PENDING_BYTES_MAX: usize = 4_096;
/// Longest message whose text is shown, in bytes. All of it is searched for secrets, and it is one line of a file
/// that a person may open. Results for a model are far shorter.
pub(crate) const MESSAGE_MAX: usize = 1 << 20;
/// Longest text shown of an invalid message, in bytes, and longest name.
pub(crate) const TEXT_MAX: usize = 1_024;

/// An observed message.
#[derive(Clone, Copy, Debug)]
pub struct ObservedMessage<'a> {
    /// When, as wall-clock time for display.
    pub unix_ms: u64,
    /// When, as monotonic time for durations.
    pub observed_at: MonotonicTime,
    /// On which connection.
    pub connection: u64,
    /// Who sent it.
    pub sender: MessageSender,
    /// The message.
    pub text: ObservedText<'a>,
}

/// The text of a message, or the fact that there is none.
#[derive(Clone, Copy, Debug)]
pub enum ObservedText<'a> {
    /// A frame, as sent.
    Frame(&'a [u8]),
    /// The request with this JSON id gets no answer, and why.
    Abandoned(&'a str, &'a str),
}

/// Filters and renders observed messages.
#[derive(Clone, Debug)]
pub struct Recorder {
    filter: Follow,
    pending: HashMap<PendingRequestKey, PendingRequest>,
}

/// The connection, the sender of the request, and the id.
type PendingRequestKey = (u64, MessageSender, RequestId);

#[derive(Clone, Debug)]
struct PendingRequest {
    method: String,
    target: Option<String>,
    sent_at: MonotonicTime,
}

/// What was parsed of a message.
struct ParsedMessage {
    kind: MessageKind,
    method: Option<String>,
    target: Option<String>,
    id: Option<RequestId>,
    duration: Option<Duration>,
    reason: Option<String>,
    failed: bool,
}

impl Recorder {
    /// A recorder that has observed nothing yet.
    #[must_use]
    pub fn new(filter: Follow) -> Self {
        Self {
            filter,
            pending: HashMap::new(),
        }
    }

    /// The entry for a message; `None` when the filter excludes it. Every message must be observed, in order.
    pub fn record(&mut self, observed: &ObservedMessage<'_>, masks: &Masks) -> Option<Heard> {
        let read = match observed.text {
            ObservedText::Frame(frame) => self.parse_frame(observed, frame),
            ObservedText::Abandoned(id, why) => self.parse_abandoned(observed, id, why),
        };
        self.should_record(&read)
            .then(|| self.render_entry(observed, read, masks))
    }

    fn parse_frame(&mut self, observed: &ObservedMessage<'_>, frame: &[u8]) -> ParsedMessage {
        let (kind, method) = match jsonrpc::parse(frame) {
            Ok(Message::Request {
                id, method, params, ..
            }) => {
                let target = target_name(&method, params.map(RawValue::get));
                self.track_request(observed, &id, &method, target.clone());
                return ParsedMessage {
                    target,
                    id: Some(id),
                    ..ParsedMessage::new(MessageKind::Request, Some(method.into_owned()))
                };
            }
            Ok(Message::Response { id, outcome }) => {
                return self.parse_response(observed, id, outcome);
            }
            Ok(Message::Notification { method, .. }) => {
                (MessageKind::Notification, Some(method.into_owned()))
            }
            Err(malformed) => {
                return ParsedMessage {
                    reason: Some(malformed.to_string()),
                    failed: true,
                    ..ParsedMessage::new(MessageKind::Unreadable, None)
                };
            }
        };
        ParsedMessage::new(kind, method)
    }

    fn track_request(
        &mut self,
        observed: &ObservedMessage<'_>,
        id: &RequestId,
        method: &str,
        target: Option<String>,
    ) {
        let target_len = target.as_ref().map_or(0, String::len);
        if id.as_json().len() + method.len() + target_len > PENDING_BYTES_MAX {
            return;
        }
        if self.pending.len() >= PENDING_MAX {
            self.pending.clear();
        }
        let request = PendingRequest {
            method: method.to_owned(),
            target,
            sent_at: observed.observed_at,
        };
        let key = (observed.connection, observed.sender, id.clone());
        self.pending.insert(key, request);
    }

    fn parse_response(
        &mut self,
        observed: &ObservedMessage<'_>,
        id: Option<RequestId>,
        outcome: Result<&RawValue, &RawValue>,
    ) -> ParsedMessage {
        let (kind, failed) = match outcome {
            Ok(result) => (
                MessageKind::Answer,
                member(result.get(), "isError") == Some("true"),
            ),
            Err(_) => (MessageKind::Error, true),
        };
        let read = ParsedMessage {
            failed,
            ..ParsedMessage::new(kind, None)
        };
        self.match_request(observed, id, read)
    }

    fn parse_abandoned(
        &mut self,
        observed: &ObservedMessage<'_>,
        id: &str,
        why: &str,
    ) -> ParsedMessage {
        let read = ParsedMessage {
            reason: Some(why.to_owned()),
            failed: true,
            ..ParsedMessage::new(MessageKind::Unanswered, None)
        };
        self.match_request(observed, RequestId::from_json(id), read)
    }

    /// Matches an answer, or the end, of the request with this id.
    fn match_request(
        &mut self,
        observed: &ObservedMessage<'_>,
        id: Option<RequestId>,
        mut read: ParsedMessage,
    ) -> ParsedMessage {
        let request = id.as_ref().and_then(|id| self.take_request(observed, id));
        if let Some(request) = request {
            read.duration = Some(observed.observed_at.duration_since(request.sent_at));
            read.method = Some(request.method);
            read.target = request.target;
        }
        read.id = id;
        read
    }

    /// Removes the request of the other side, or one that the kernel itself abandons.
    fn take_request(
        &mut self,
        observed: &ObservedMessage<'_>,
        id: &RequestId,
    ) -> Option<PendingRequest> {
        use MessageSender::{Agent, Kernel, Server};
        let senders: &[MessageSender] = match (observed.sender, observed.text) {
            (_, ObservedText::Abandoned(..)) | (Server | Agent, ObservedText::Frame(_)) => {
                &[Kernel]
            }
            (Kernel, ObservedText::Frame(_)) => &[Server, Agent],
        };
        senders.iter().find_map(|sender| {
            self.pending
                .remove(&(observed.connection, *sender, id.clone()))
        })
    }

    fn should_record(&self, read: &ParsedMessage) -> bool {
        let Follow {
            methods,
            tools,
            errors,
            ..
        } = &self.filter;
        let allows = |filter: &[String], value: Option<&String>| {
            filter.is_empty() || value.is_some_and(|value| filter.contains(value))
        };
        let is_call = read.method.as_deref() == Some("tools/call");
        // An unreadable message may be of any kind.
        let is_unreadable = read.kind == MessageKind::Unreadable;
        let allows_tool = tools.is_empty() || is_call && allows(tools, read.target.as_ref());
        is_unreadable
            || allows(methods, read.method.as_ref()) && allows_tool && (!errors || read.failed)
    }

    fn render_entry(
        &self,
        observed: &ObservedMessage<'_>,
        read: ParsedMessage,
        masks: &Masks,
    ) -> Heard {
        let sanitize = |text: String| mask_and_truncate(masks, &text);
        let (bytes, message) = match observed.text {
            ObservedText::Frame(frame) => (frame.len(), self.render_body(frame, &read, masks)),
            ObservedText::Abandoned(..) => (0, None),
        };
        Heard {
            at_ms: observed.unix_ms,
            connection: observed.connection,
            from: observed.sender,
            kind: read.kind,
            method: read.method.map(sanitize),
            about: read.target.map(sanitize),
            id: read
                .id
                .filter(|id| id.as_json().len() <= TEXT_MAX)
                .and_then(|id| to_raw_json(masks.mask_json(id.as_json()))),
            bytes: bytes as u64,
            took_us: read.duration.map(to_micros_rounded_up),
            failed: read.failed,
            missed: 0,
            why: read.reason.map(sanitize),
            too_long: self.filter.bodies && bytes > MESSAGE_MAX,
            message,
        }
    }

    fn render_body(
        &self,
        frame: &[u8],
        read: &ParsedMessage,
        masks: &Masks,
    ) -> Option<Box<RawValue>> {
        if !self.filter.bodies || frame.len() > MESSAGE_MAX {
            return None;
        }
        let text = String::from_utf8_lossy(frame);
        // An unreadable message is usually no JSON either.
        let is_json = read.kind != MessageKind::Unreadable
            || serde_json::from_str::<&RawValue>(&text).is_ok();
        if is_json {
            to_raw_json(masks.mask_json(&text))
        } else {
            to_raw_json(quote(&mask_and_truncate(masks, &text)))
        }
    }
}

impl ParsedMessage {
    fn new(kind: MessageKind, method: Option<String>) -> Self {
        Self {
            kind,
            method,
            target: None,
            id: None,
            duration: None,
            reason: None,
            failed: false,
        }
    }
}

/// The first entry: all messages are observed from now on.
#[must_use]
pub fn started_entry(at_ms: u64) -> Heard {
    marker_entry(MessageKind::Began, 0, at_ms)
}

/// The entry for missed messages.
#[must_use]
pub fn missed_entry(many: u64, at_ms: u64) -> Heard {
    marker_entry(MessageKind::Missed, many, at_ms)
}

fn marker_entry(kind: MessageKind, missed: u64, at_ms: u64) -> Heard {
    Heard {
        at_ms,
        connection: 0,
        from: MessageSender::Kernel,
        kind,
        method: None,
        about: None,
        id: None,
        bytes: 0,
        took_us: None,
        failed: false,
        missed,
        why: None,
        too_long: false,
        message: None,
    }
}

/// The target of a request: a tool, a prompt, or a resource.
fn target_name(method: &str, params: Option<&str>) -> Option<String> {
    let name = match method {
        "tools/call" | "prompts/get" => "name",
        "resources/read" | "resources/subscribe" | "resources/unsubscribe" => "uri",
        _ => return None,
    };
    serde_json::from_str(member(params?, name)?).ok()
}

/// The beginning of a text. It is masked before it is truncated: a truncated secret would not be found.
fn mask_and_truncate(masks: &Masks, text: &str) -> String {
    let looked_at = &text[..text.floor_char_boundary(MESSAGE_MAX)];
    let mut masked = masks.mask_text(looked_at).into_owned();
    masked.truncate(masked.floor_char_boundary(TEXT_MAX));
    masked
}

/// JSON unchanged; invalid JSON is left out.
fn to_raw_json(json: String) -> Option<Box<RawValue>> {
    RawValue::from_string(json).ok()
}

#[cfg(test)]
mod tests;
