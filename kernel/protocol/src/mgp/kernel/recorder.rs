//! `mgp/kernel/recorder/*`: the messages of one server or one agent, for the operator; and the file in which they
//! are kept.
//!
//! A recording is a text of lines that end in a line feed. The first is a [`RecordingHeader`], each other one a
//! [`RecordedMessage`]. Each line is one JSON object, in which no line feed stands.
//! Members that a reader does not know are to be left out of account; a `version` that it does not know is not.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::mcp::methods;

methods! {
    "mgp/kernel/recorder/follow" => Follow,
    "mgp/kernel/recorder/play" => Play,
    "notifications/mgp.kernel.recorder.heard" => Heard,
}

/// Stands in the place of a secret.
pub const MASK: &str = "[redacted]";
/// `format` of a recording.
pub const FORMAT: &str = "mgp-recording";
/// The newest `version` of it.
pub const VERSION: u32 = 1;

/// `mgp/kernel/recorder/follow`: what passes from now on comes as [`RecordedMessage`], until the request is cancelled.
/// Names either a server or an agent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Follow {
    /// The server, by its id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<String>,
    /// The agent, by its id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// Only what these methods send, and what answers them; all when empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub methods: Vec<String>,
    /// Only calls of these tools; all when empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tools: Vec<String>,
    /// Only what went wrong.
    #[serde(default)]
    pub errors: bool,
    /// With what they say, secrets masked.
    #[serde(default)]
    pub bodies: bool,
}

/// `mgp/kernel/recorder/play`: asks a server something as it was asked before, in its own words and names. Answers an
/// object with the server's own `result` or `error`, secrets masked; a question of the server comes to who plays.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Play {
    /// The server, by its id.
    pub server: String,
    /// In the era without a handshake.
    #[serde(default)]
    pub modern: bool,
    /// The method: a call, a list or a read.
    pub method: String,
    /// The params, as JSON text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub params: Option<String>,
    /// The server is asked for its progress, which comes under the progress token of this request.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub progress: bool,
}

/// `notifications/mgp.kernel.recorder.heard`: one message, or how many were missed.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Heard {
    /// When it passed, in milliseconds since 1970.
    pub at_ms: u64,
    /// The connection: those of two lives of a server, or of two sessions of an agent, have two numbers.
    pub connection: u64,
    /// Who sent it.
    pub from: MessageSender,
    /// What it is.
    pub kind: MessageKind,
    /// Its method; of an answer that of its request, where that was seen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub method: Option<String>,
    /// The tool or prompt, or the URI of the resource, that it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub about: Option<String>,
    /// The id of the request, as JSON.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<Box<RawValue>>,
    /// Its length, in bytes.
    pub bytes: u64,
    /// Of an answer: how long after its request, in microseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub took_us: Option<u64>,
    /// It says that something went wrong: an error, or the result of a tool that is one.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub failed: bool,
    /// So many messages were missed: they came faster than they were taken.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub missed: u64,
    /// Why a request got no answer, or what is wrong with a text that is no message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// The message itself, secrets masked; a string where it is no JSON.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<Box<RawValue>>,
    /// The message is too long to be shown.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub too_long: bool,
}

/// Who sent a message.
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

/// What a message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MessageKind {
    /// It wants an answer.
    Request,
    /// It wants none.
    Notification,
    /// The result of a request.
    Answer,
    /// The error that answers a request.
    Error,
    /// No message: the kernel gave a request up.
    Unanswered,
    /// A text that is no message.
    Unreadable,
    /// No message: some passed that are not shown.
    Missed,
    /// No message: what passes from now on is shown.
    Began,
}

/// The first line of a recording.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordingHeader {
    /// [`FORMAT`].
    pub format: String,
    /// At most [`VERSION`].
    pub version: u32,
    /// The server, where it is one's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<String>,
    /// The agent, where it is one's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// When it began, RFC 3339.
    pub began: String,
    /// What wrote it, and its version.
    pub written_by: String,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Decision 0068: a line of a recording is read as it was written, and by who knows fewer members.
    #[test]
    fn a_line_is_read_as_it_was_written() {
        let line = r#"{"at_ms":7,"connection":2,"from":"server","kind":"answer","method":"tools/call","about":"echo","id":"a","bytes":41,"took_us":12,"message":{"jsonrpc":"2.0","id":"a","result":{"n":1.0}}}"#;
        let heard: Heard = serde_json::from_str(line).unwrap();
        assert_eq!(serde_json::to_string(&heard).unwrap(), line);
        let more = line.replacen('{', r#"{"of_tomorrow":[1],"#, 1);
        let heard: Heard = serde_json::from_str(&more).unwrap();
        assert_eq!(serde_json::to_string(&heard).unwrap(), line);
        let missed =
            r#"{"at_ms":7,"connection":0,"from":"kernel","kind":"missed","bytes":0,"missed":3}"#;
        let heard: Heard = serde_json::from_str(missed).unwrap();
        assert!(heard.missed == 3 && heard.message.is_none());
    }
}
