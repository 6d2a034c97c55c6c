//! What of a recording is replayed, in which order, and with which substitutes for values that have changed since.

mod reader;
mod substitutes;

use std::collections::BTreeMap;
use std::fmt;

use mgp_json::{Splice, find_duplicate, member, members, quote, remove_members};
use mgp_protocol::mcp::meta::PROTOCOL_VERSION;
use mgp_protocol::mgp::kernel::recorder::{Heard, MessageKind, RecordingHeader, VERSION};
use serde_json::Value;
use serde_json::value::RawValue;

pub use self::substitutes::Substitutes;

/// The requests that are replayed: calls, lists and reads. The link sends the rest itself.
const REPLAYED_METHODS: [&str; 8] = [
    "tools/call",
    "tools/list",
    "prompts/get",
    "prompts/list",
    "resources/read",
    "resources/list",
    "resources/templates/list",
    "completion/complete",
];
/// Members of `_meta` that belong to a single request.
const PER_REQUEST_META: [&str; 4] = ["progressToken", "traceparent", "tracestate", "baggage"];

/// Why a text is no recording that can be replayed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordingError {
    /// The first line is no header.
    #[error("it is no recording: its first line is no header of `mgp trace --save`")]
    NoHeader,
    /// Written by a newer program.
    #[error(
        "it is a recording of version {0}, and this program reads {VERSION}; a newer `mgp` plays it"
    )]
    Version(u32),
    /// It is a recording of an agent.
    #[error(
        "it is the recording of an agent; those of servers are played: `mgp trace SERVER --save FILE`"
    )]
    AgentRecording,
    /// A line is invalid.
    #[error("line {0} is no line of a recording: {1}")]
    InvalidLine(usize, String),
    /// The last line is truncated.
    #[error("its last line, {0}, was cut off; what is before can be played without it")]
    Truncated(usize),
}

/// A recording, ready for replay. Its text is stored once: requests and answers are parsed from it on demand.
#[derive(Clone, Debug)]
pub struct Replay {
    /// Its header.
    pub header: RecordingHeader,
    /// The requests to send, in order.
    pub steps: Vec<ReplayStep>,
    /// The requests that are not sent, and why.
    pub skipped: Vec<SkippedStep>,
    text: String,
}

/// A request that is replayed.
#[derive(Clone, Debug)]
pub struct ReplayStep {
    /// Its line in the file, from 1.
    pub line: usize,
    /// Its method.
    pub method: String,
    /// Its target: a tool, a prompt or a resource.
    pub target: Option<String>,
    /// It was sent over the stateless protocol.
    pub stateless: bool,
    /// Whether the server reported progress; `None` where none was requested.
    pub progress: Option<bool>,
    request: RecordedLine,
    response: RecordedLine,
    callbacks: Vec<CallbackLines>,
}

/// A line, without its line ending.
#[derive(Clone, Copy, Debug)]
struct RecordedLine {
    /// From 1.
    number: usize,
    start: usize,
    end: usize,
}

/// A request of the server, and the line of its answer.
#[derive(Clone, Debug)]
struct CallbackLines {
    method: String,
    response: RecordedLine,
}

/// A request of the server, and the answer it got.
#[derive(Clone, Debug, PartialEq)]
pub struct RecordedCallback {
    /// Its method.
    pub method: String,
    /// The answer: an object with `result` or `error`.
    pub answer: Value,
}

/// A request that is not replayed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SkippedStep {
    /// Its line in the file, from 1.
    pub line: usize,
    /// Its method.
    pub method: String,
    /// Its target: a tool, a prompt or a resource.
    pub target: Option<String>,
    /// Why, as a sentence.
    pub reason: String,
}

impl Replay {
    /// Parses a recording.
    ///
    /// # Errors
    /// [`RecordingError`].
    pub fn parse(text: String) -> Result<Self, RecordingError> {
        let (header, found) = reader::parse(&text)?;
        let (steps, skipped) = found.into_steps();
        Ok(Self {
            header,
            steps,
            skipped,
            text,
        })
    }

    /// The params of a request, without members of that single request.
    #[must_use]
    pub fn params(&self, step: &ReplayStep) -> Option<String> {
        let message = self.message(step.request)?;
        member(&message, "params").map(strip_request_meta)
    }

    /// The recorded answer to a request: an object with `result` or `error`.
    #[must_use]
    pub fn recorded_answer(&self, step: &ReplayStep) -> Value {
        self.outcome(step.response)
    }

    /// The server's requests during this request, with their answers.
    #[must_use]
    pub fn recorded_callbacks(&self, step: &ReplayStep) -> Vec<RecordedCallback> {
        let question = |asked: &CallbackLines| RecordedCallback {
            method: asked.method.clone(),
            answer: self.outcome(asked.response),
        };
        step.callbacks.iter().map(question).collect()
    }

    /// The recording with other answers: by the index of the step, the JSON text of an object with `result` or
    /// `error`. All other lines stay unchanged.
    #[must_use]
    pub fn render_with_answers(&self, answers: &BTreeMap<usize, String>) -> String {
        let new = answers.iter().filter_map(|(place, answer)| {
            let line = self.steps.get(*place)?.response;
            Some((
                line.start,
                (line, replace_answer(line.text_in(&self.text), answer)?),
            ))
        });
        let new: BTreeMap<usize, (RecordedLine, String)> = new.collect();
        let mut out = String::with_capacity(self.text.len());
        let mut kept = 0;
        for (line, answer) in new.values() {
            out.push_str(&self.text[kept..line.start]);
            out.push_str(answer);
            kept = line.end;
        }
        out.push_str(&self.text[kept..]);
        out
    }

    fn message(&self, line: RecordedLine) -> Option<String> {
        let heard: Heard = serde_json::from_str(line.text_in(&self.text)).ok()?;
        heard.message.map(|message| message.get().to_owned())
    }

    fn outcome(&self, line: RecordedLine) -> Value {
        let message = self.message(line);
        message
            .as_deref()
            .and_then(parse_outcome)
            .unwrap_or_default()
    }
}

impl RecordedLine {
    fn lines(text: &str) -> impl Iterator<Item = Self> {
        let mut from = 0;
        let lines = text.split_inclusive('\n').enumerate();
        lines.map(move |(at, line)| {
            let begins = from;
            from += line.len();
            Self {
                number: at + 1,
                start: begins,
                end: begins + line.trim_end_matches(['\n', '\r']).len(),
            }
        })
    }

    fn text_in(self, text: &str) -> &str {
        &text[self.start..self.end]
    }
}

impl fmt::Display for SkippedStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let about = self.target.as_deref().unwrap_or_default();
        let what = format!("{} {about}", self.method);
        write!(
            f,
            "line {}: {} is not played: {}",
            self.line,
            what.trim(),
            self.reason
        )
    }
}

/// Whether requests of this method are replayed.
#[must_use]
pub fn is_replayable(method: &str) -> bool {
    REPLAYED_METHODS.contains(&method)
}

/// `result` or `error` of an answer.
fn parse_outcome(message: &str) -> Option<Value> {
    let of = |name: &'static str| {
        let value = serde_json::from_str::<Value>(member(message, name)?).ok()?;
        Some((name, value))
    };
    let (name, value) = of("result").or_else(|| of("error"))?;
    Some(serde_json::json!({ name: value }))
}

/// Parsers differ in which of two duplicate members counts.
fn has_duplicate_members(params: &str) -> bool {
    let members = members(params).unwrap_or_default();
    let mut names: Vec<_> = members.into_iter().map(|(name, _)| name).collect();
    find_duplicate(&mut names).is_some()
}

fn is_stateless(params: &str) -> bool {
    let says = |meta: &str| member(meta, PROTOCOL_VERSION).is_some();
    member(params, "_meta").is_some_and(says)
}

/// Params without members of a single request.
fn strip_request_meta(params: &str) -> String {
    let Some(meta) = member(params, "_meta") else {
        return params.to_owned();
    };
    let kept = remove_members(meta, &PER_REQUEST_META);
    if members(&kept).is_none_or(|left| left.is_empty()) {
        return remove_members(params, &["_meta"]).into_owned();
    }
    let mut splice = Splice::new(params);
    splice.replace(meta, kept);
    splice.finish().into_owned()
}

/// Replaces the answer in a line.
fn replace_answer(line: &str, answer: &str) -> Option<String> {
    let mut heard: Heard = serde_json::from_str(line).ok()?;
    let id = heard.id.as_deref().map_or("null", RawValue::get);
    let (name, value) = members(answer)?.into_iter().next()?;
    let message = format!(
        r#"{{"jsonrpc":"2.0","id":{id},{}:{}}}"#,
        quote(&name),
        value.get()
    );
    let is_error = name == "error";
    heard.kind = if is_error {
        MessageKind::Error
    } else {
        MessageKind::Answer
    };
    heard.failed = is_error || member(value.get(), "isError") == Some("true");
    heard.bytes = message.len() as u64;
    heard.message = RawValue::from_string(message).ok();
    serde_json::to_string(&heard).ok()
}

#[cfg(test)]
mod tests;
