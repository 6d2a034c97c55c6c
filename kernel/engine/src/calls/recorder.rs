//! What is shown of a message that passed: what it is, what it answers and after how long, secrets masked.

pub mod comparing;
pub mod replay;

use std::collections::HashMap;
use std::time::Duration;

use mgp_protocol::jsonrpc::{self, Message, RequestId};
use mgp_protocol::mgp::kernel::recorder::{Follow, Heard, MessageKind, MessageSender};
use mgp_protocol::splice::{member, quoted};
use serde_json::value::RawValue;

use crate::clock::{MonotonicTime, micros};
use crate::store::masks::Masks;

/// Requests whose answers are awaited: more than a server may have under way. Beyond, the answers to those before
/// have neither method nor time.
pub const AWAITED_MAX: usize = 4_096;
/// Bytes of what is kept of each: a long address, so that all of them hold some megabytes. The answer to a longer one is
/// shown without its method.
const AWAITED_BYTES_MAX: usize = 4_096;
/// Longest message whose text is shown, in bytes. All of it is searched for secrets, and is one line of a file that a
/// person may open; what a tool answers to a model is far shorter.
pub const SHOWN_MAX: usize = 1 << 20;
/// Longest text that is shown of what is no message, in bytes, and longest name.
pub const WORDS_MAX: usize = 1_024;

/// A message as it passed.
#[derive(Clone, Copy, Debug)]
pub struct PassedMessage<'a> {
    /// When, for people.
    pub at_ms: u64,
    /// When, for durations.
    pub at: MonotonicTime,
    /// Over which connection.
    pub connection: u64,
    /// Who sent it.
    pub from: MessageSender,
    /// The message.
    pub what: PassedText<'a>,
}

/// The text of a message, or that there is none.
#[derive(Clone, Copy, Debug)]
pub enum PassedText<'a> {
    /// A frame, as it was sent.
    Frame(&'a [u8]),
    /// The request with this id, in JSON, gets no answer, and why.
    GivenUp(&'a str, &'a str),
}

/// Which messages are shown, and what of them.
#[derive(Clone, Debug)]
pub struct Recorder {
    wanted: Follow,
    awaited: HashMap<AwaitedKey, OpenRequest>,
}

/// The connection, who asked, and the id.
type AwaitedKey = (u64, MessageSender, RequestId);

#[derive(Clone, Debug)]
struct OpenRequest {
    method: String,
    about: Option<String>,
    since: MonotonicTime,
}

/// What was read of a message.
struct ReadMessage {
    kind: MessageKind,
    method: Option<String>,
    about: Option<String>,
    id: Option<RequestId>,
    took: Option<Duration>,
    why: Option<String>,
    failed: bool,
}

impl Recorder {
    /// Nothing seen yet.
    #[must_use]
    pub fn new(wanted: Follow) -> Self {
        Self {
            wanted,
            awaited: HashMap::new(),
        }
    }

    /// What is shown of a message; `None` when it is not wanted. Every message is to be given, in order.
    pub fn hear(&mut self, passed: &PassedMessage<'_>, masks: &Masks) -> Option<Heard> {
        let read = match passed.what {
            PassedText::Frame(frame) => self.read(passed, frame),
            PassedText::GivenUp(id, why) => self.given_up(passed, id, why),
        };
        self.wants(&read).then(|| self.shown(passed, read, masks))
    }

    fn read(&mut self, passed: &PassedMessage<'_>, frame: &[u8]) -> ReadMessage {
        let (kind, method) = match jsonrpc::parse(frame) {
            Ok(Message::Request {
                id, method, params, ..
            }) => {
                let about = about(&method, params.map(RawValue::get));
                self.awaits(passed, &id, &method, about.clone());
                return ReadMessage {
                    about,
                    id: Some(id),
                    ..ReadMessage::of(MessageKind::Request, Some(method.into_owned()))
                };
            }
            Ok(Message::Response { id, outcome }) => return self.answer(passed, id, outcome),
            Ok(Message::Notification { method, .. }) => {
                (MessageKind::Notification, Some(method.into_owned()))
            }
            Err(malformed) => {
                return ReadMessage {
                    why: Some(malformed.to_string()),
                    failed: true,
                    ..ReadMessage::of(MessageKind::Unreadable, None)
                };
            }
        };
        ReadMessage::of(kind, method)
    }

    fn awaits(
        &mut self,
        passed: &PassedMessage<'_>,
        id: &RequestId,
        method: &str,
        about: Option<String>,
    ) {
        let about_len = about.as_ref().map_or(0, String::len);
        if id.as_json().len() + method.len() + about_len > AWAITED_BYTES_MAX {
            return;
        }
        if self.awaited.len() >= AWAITED_MAX {
            self.awaited.clear();
        }
        let awaited = OpenRequest {
            method: method.to_owned(),
            about,
            since: passed.at,
        };
        let key = (passed.connection, passed.from, id.clone());
        self.awaited.insert(key, awaited);
    }

    fn answer(
        &mut self,
        passed: &PassedMessage<'_>,
        id: Option<RequestId>,
        outcome: Result<&RawValue, &RawValue>,
    ) -> ReadMessage {
        let (kind, failed) = match outcome {
            Ok(result) => (
                MessageKind::Answer,
                member(result.get(), "isError") == Some("true"),
            ),
            Err(_) => (MessageKind::Error, true),
        };
        let read = ReadMessage {
            failed,
            ..ReadMessage::of(kind, None)
        };
        self.settled(passed, id, read)
    }

    fn given_up(&mut self, passed: &PassedMessage<'_>, id: &str, why: &str) -> ReadMessage {
        let read = ReadMessage {
            why: Some(why.to_owned()),
            failed: true,
            ..ReadMessage::of(MessageKind::Unanswered, None)
        };
        self.settled(passed, RequestId::from_json(id), read)
    }

    /// What answers, or ends, the request with this id.
    fn settled(
        &mut self,
        passed: &PassedMessage<'_>,
        id: Option<RequestId>,
        mut read: ReadMessage,
    ) -> ReadMessage {
        let asked = id.as_ref().and_then(|id| self.asked(passed, id));
        if let Some(asked) = asked {
            read.took = Some(passed.at.since(asked.since));
            read.method = Some(asked.method);
            read.about = asked.about;
        }
        read.id = id;
        read
    }

    /// The request of the other side, or one that the kernel itself gives up.
    fn asked(&mut self, passed: &PassedMessage<'_>, id: &RequestId) -> Option<OpenRequest> {
        use MessageSender::{Agent, Kernel, Server};
        let by: &[MessageSender] = match (passed.from, passed.what) {
            (_, PassedText::GivenUp(..)) | (Server | Agent, PassedText::Frame(_)) => &[Kernel],
            (Kernel, PassedText::Frame(_)) => &[Server, Agent],
        };
        by.iter()
            .find_map(|by| self.awaited.remove(&(passed.connection, *by, id.clone())))
    }

    fn wants(&self, read: &ReadMessage) -> bool {
        let Follow {
            methods,
            tools,
            errors,
            ..
        } = &self.wanted;
        let of = |all: &[String], one: Option<&String>| {
            all.is_empty() || one.is_some_and(|one| all.contains(one))
        };
        let calls = read.method.as_deref() == Some("tools/call");
        // What cannot be read may be any of them.
        let unknown = read.kind == MessageKind::Unreadable;
        let tool = tools.is_empty() || calls && of(tools, read.about.as_ref());
        unknown || of(methods, read.method.as_ref()) && tool && (!errors || read.failed)
    }

    fn shown(&self, passed: &PassedMessage<'_>, read: ReadMessage, masks: &Masks) -> Heard {
        let words = |text: String| masked(masks, &text);
        let (bytes, message) = match passed.what {
            PassedText::Frame(frame) => (frame.len(), self.body(frame, &read, masks)),
            PassedText::GivenUp(..) => (0, None),
        };
        Heard {
            at_ms: passed.at_ms,
            connection: passed.connection,
            from: passed.from,
            kind: read.kind,
            method: read.method.map(words),
            about: read.about.map(words),
            id: read
                .id
                .filter(|id| id.as_json().len() <= WORDS_MAX)
                .and_then(|id| raw(masks.json(id.as_json()))),
            bytes: bytes as u64,
            took_us: read.took.map(micros),
            failed: read.failed,
            missed: 0,
            why: read.why.map(words),
            too_long: self.wanted.bodies && bytes > SHOWN_MAX,
            message,
        }
    }

    fn body(&self, frame: &[u8], read: &ReadMessage, masks: &Masks) -> Option<Box<RawValue>> {
        if !self.wanted.bodies || frame.len() > SHOWN_MAX {
            return None;
        }
        let text = String::from_utf8_lossy(frame);
        // What is no message is mostly no JSON either.
        let json = read.kind != MessageKind::Unreadable
            || serde_json::from_str::<&RawValue>(&text).is_ok();
        match json {
            true => raw(masks.json(&text)),
            false => raw(quoted(&masked(masks, &text))),
        }
    }
}

impl ReadMessage {
    fn of(kind: MessageKind, method: Option<String>) -> Self {
        Self {
            kind,
            method,
            about: None,
            id: None,
            took: None,
            why: None,
            failed: false,
        }
    }
}

/// What is said when it begins: all that passes is seen from now on.
#[must_use]
pub fn began(at_ms: u64) -> Heard {
    remark(MessageKind::Began, 0, at_ms)
}

/// What is said of messages that were missed.
#[must_use]
pub fn missed(many: u64, at_ms: u64) -> Heard {
    remark(MessageKind::Missed, many, at_ms)
}

fn remark(kind: MessageKind, missed: u64, at_ms: u64) -> Heard {
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

/// What a request names: a tool, a prompt, or a resource.
fn about(method: &str, params: Option<&str>) -> Option<String> {
    let name = match method {
        "tools/call" | "prompts/get" => "name",
        "resources/read" | "resources/subscribe" | "resources/unsubscribe" => "uri",
        _ => return None,
    };
    serde_json::from_str(member(params?, name)?).ok()
}

/// The beginning of a text. It is masked before it is cut: a part of a secret is not found.
fn masked(masks: &Masks, text: &str) -> String {
    let looked_at = &text[..text.floor_char_boundary(SHOWN_MAX)];
    let mut masked = masks.text(looked_at).into_owned();
    masked.truncate(masked.floor_char_boundary(WORDS_MAX));
    masked
}

/// JSON as it is; what is none after all is left out.
fn raw(json: String) -> Option<Box<RawValue>> {
    RawValue::from_string(json).ok()
}

#[cfg(test)]
mod tests;
