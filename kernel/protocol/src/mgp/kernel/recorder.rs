//! `mgp/kernel/recorder/*`: the messages of one server or one agent, for the operator; and the file format
//! of recordings.
//!
//! A recording is a text of lines that end in a line feed. The first is a [`RecordingHeader`], each other
//! one a [`RecordedMessage`]. Each line is one JSON object without line feeds. Readers must ignore unknown
//! members, and must reject an unknown `version`.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::mcp::methods;

methods! {
    "mgp/kernel/recorder/follow" => Follow,
    "mgp/kernel/recorder/play" => Play,
    "notifications/mgp.kernel.recorder.heard" => Heard,
}

/// The replacement of a secret.
pub const MASK: &str = "[redacted]";
/// The `format` of a recording.
pub const FORMAT: &str = "mgp-recording";
/// The newest `version`.
pub const VERSION: u32 = 1;

/// `mgp/kernel/recorder/follow`: sends messages from now on as [`RecordedMessage`], until the request is
/// cancelled. Requires either a server or an agent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Follow {
    /// The server, by its id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<String>,
    /// The agent, by its id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// Only requests of these methods, and their answers; all if empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub methods: Vec<String>,
    /// Only calls of these tools; all if empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tools: Vec<String>,
    /// Only failures.
    #[serde(default)]
    pub errors: bool,
    /// Include the contents, with secrets masked.
    #[serde(default)]
    pub bodies: bool,
}

/// `mgp/kernel/recorder/play`: repeats a recorded request to a server, with its own names. Answers an
/// object with the server's `result` or `error`, secrets masked; callbacks of the server go to the caller.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Play {
    /// The server, by its id.
    pub server: String,
    /// Use the stateless protocol.
    #[serde(default)]
    pub modern: bool,
    /// The method: a call, a list or a read request.
    pub method: String,
    /// The params, as JSON text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub params: Option<String>,
    /// Request progress from the server, which is sent under the progress token of this request.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub progress: bool,
}

/// `notifications/mgp.kernel.recorder.heard`: one message, or the number of missed ones.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Heard {
    /// The time, in milliseconds since 1970.
    pub at_ms: u64,
    /// The connection: each run of a server and each session of an agent has a number of its own.
    pub connection: u64,
    /// The sender.
    pub from: MessageSender,
    /// The kind.
    pub kind: MessageKind,
    /// The method; for an answer that of its request, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub method: Option<String>,
    /// The tool or prompt, or the URI of the resource.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub about: Option<String>,
    /// The id of the request, as JSON.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<Box<RawValue>>,
    /// The length, in bytes.
    pub bytes: u64,
    /// For an answer: the time since its request, in microseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub took_us: Option<u64>,
    /// True for a failure: an error, or a tool result with `isError`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub failed: bool,
    /// The number of missed messages, because they arrived faster than they were read.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub missed: u64,
    /// Why a request got no answer, or the problem of an invalid message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// The message itself, secrets masked; a string if it is no JSON.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<Box<RawValue>>,
    /// True if the message is too long to be shown.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub too_long: bool,
}

/// The sender of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MessageSender {
    /// This kernel.
    Kernel,
    /// The server.
    Server,
    /// The agent.
    Agent,
}

/// The kind of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MessageKind {
    /// A request.
    Request,
    /// A notification.
    Notification,
    /// The result of a request.
    Answer,
    /// The error that answers a request.
    Error,
    /// No message: the kernel stopped waiting for an answer.
    Unanswered,
    /// An invalid message.
    Unreadable,
    /// No message: some messages were missed.
    Missed,
    /// No message: recording starts here.
    Began,
}

/// The first line of a recording.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordingHeader {
    /// [`FORMAT`].
    pub format: String,
    /// At most [`VERSION`].
    pub version: u32,
    /// The server, if a server is recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<String>,
    /// The agent, if an agent is recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// The start of the recording, RFC 3339.
    pub began: String,
    /// The program that wrote it, and its version.
    pub written_by: String,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Decision 0068: a line of a recording round-trips, also for readers that know fewer members.
    #[test]
    fn recorded_line_round_trips() {
        let line = r#"{"at_ms":7,"connection":2,"from":"server","kind":"answer","method":"tools/call","about":"echo","id":"a","bytes":41,"took_us":12,"message":{"jsonrpc":"2.0","id":"a","result":{"n":1.0}}}"#;
        let recorded: Heard = serde_json::from_str(line).unwrap();
        assert_eq!(serde_json::to_string(&recorded).unwrap(), line);
        let more = line.replacen('{', r#"{"of_tomorrow":[1],"#, 1);
        let recorded: Heard = serde_json::from_str(&more).unwrap();
        assert_eq!(serde_json::to_string(&recorded).unwrap(), line);
        let missed =
            r#"{"at_ms":7,"connection":0,"from":"kernel","kind":"missed","bytes":0,"missed":3}"#;
        let recorded: Heard = serde_json::from_str(missed).unwrap();
        assert!(recorded.missed == 3 && recorded.message.is_none());
    }
}
