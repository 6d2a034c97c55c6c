//! What of a recording is played again, in which order, and with what in the place of what has changed since.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;

use mgp_protocol::mcp::meta::PROTOCOL_VERSION;
use mgp_protocol::mgp::kernel::recorder::{
    FORMAT, Heard, MessageKind, MessageSender, RecordingHeader, VERSION,
};
use mgp_protocol::splice::{Splice, member, members, quoted};
use serde_json::Value;
use serde_json::value::RawValue;

use super::about;
use crate::store::masks::MASK;

/// What is asked of a server once more: calls, lists and reads. A link says the rest by itself.
const PLAYED: [&str; 8] = [
    "tools/call",
    "tools/list",
    "prompts/get",
    "prompts/list",
    "resources/read",
    "resources/list",
    "resources/templates/list",
    "completion/complete",
];
/// Members of `_meta` that are one request's own.
const OF_ONE_REQUEST: [&str; 4] = ["progressToken", "traceparent", "tracestate", "baggage"];
/// What an answer gives its server's next request: the name in a result, and in params.
const CARRIED: [(&str, &str); 2] = [("requestState", "requestState"), ("nextCursor", "cursor")];

/// Why a text is no recording that can be played.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoReplay {
    /// The first line is something else.
    #[error("it is no recording: its first line is no header of `mgp trace --save`")]
    NoHeader,
    /// Written by a newer program.
    #[error(
        "it is a recording of version {0}, and this program reads {VERSION}; a newer `mgp` plays it"
    )]
    Version(u32),
    /// Of an agent.
    #[error(
        "it is the recording of an agent; those of servers are played: `mgp trace SERVER --save FILE`"
    )]
    OfAgent,
    /// A line is none.
    #[error("line {0} is no line of a recording: {1}")]
    Line(usize, String),
}

/// A recording, ready to be played.
#[derive(Clone, Debug)]
pub struct Replay {
    /// What it says of itself.
    pub header: RecordingHeader,
    /// What is asked, in order.
    pub steps: Vec<ReplayStep>,
    /// What is not, and why.
    pub skipped: Vec<SkippedStep>,
    lines: Vec<String>,
}

/// A request that is played.
#[derive(Clone, Debug)]
pub struct ReplayStep {
    /// Its line in the file, from 1.
    pub line: usize,
    /// Its method.
    pub method: String,
    /// What it is about.
    pub about: Option<String>,
    /// It was asked in the modern era.
    pub modern: bool,
    /// Its params, without what was of that request alone.
    pub params: Option<String>,
    /// The line of its answer.
    pub answered: usize,
    /// That answer: an object with `result` or `error`.
    pub answer: Value,
    /// What the server asked meanwhile, and was answered.
    pub questions: Vec<RecordedQuestion>,
}

/// A question of a server, and what it was answered.
#[derive(Clone, Debug, PartialEq)]
pub struct RecordedQuestion {
    /// Its method.
    pub method: String,
    /// The answer: an object with `result` or `error`.
    pub answer: Value,
}

/// A request that is not played.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SkippedStep {
    /// Its line in the file, from 1.
    pub line: usize,
    /// Its method.
    pub method: String,
    /// What it is about.
    pub about: Option<String>,
    /// Why, in words.
    pub why: String,
}

/// A line with its number.
type Numbered = (usize, Heard);

impl Replay {
    /// Reads a recording.
    ///
    /// # Errors
    /// [`NoReplay`].
    pub fn read(text: &str) -> Result<Self, NoReplay> {
        let lines: Vec<String> = text.lines().map(str::to_owned).collect();
        let header = lines.first().map(String::as_str).unwrap_or_default();
        let header: RecordingHeader =
            serde_json::from_str(header).map_err(|_| NoReplay::NoHeader)?;
        if header.format != FORMAT {
            return Err(NoReplay::NoHeader);
        }
        if header.version > VERSION {
            return Err(NoReplay::Version(header.version));
        }
        if header.agent.is_some() {
            return Err(NoReplay::OfAgent);
        }
        let read = |(at, line): (usize, &String)| match serde_json::from_str::<Heard>(line) {
            Ok(heard) => Ok((at + 1, heard)),
            Err(why) => Err(NoReplay::Line(at + 1, why.to_string())),
        };
        let heard = lines.iter().enumerate().skip(1);
        let heard = heard.filter(|(_, line)| !line.trim().is_empty()).map(read);
        let heard: Vec<Numbered> = heard.collect::<Result<_, _>>()?;
        let (mut steps, mut skipped) = (Vec::new(), Vec::new());
        for (at, (line, request)) in heard.iter().enumerate() {
            if !is_played(request) {
                continue;
            }
            match step(*line, request, &heard, at) {
                Ok(step) => steps.push(step),
                Err(why) => skipped.push(skip(*line, request, why)),
            }
        }
        Ok(Self {
            header,
            steps,
            skipped,
            lines,
        })
    }

    /// The recording with other answers: by the step's place, the JSON text of an object with `result` or `error`.
    /// All other lines stay as they are.
    #[must_use]
    pub fn updated(&self, answers: &BTreeMap<usize, String>) -> String {
        let mut lines = self.lines.clone();
        for (place, answer) in answers {
            let Some(step) = self.steps.get(*place) else {
                continue;
            };
            let line = &mut lines[step.answered - 1];
            if let Some(new) = answered_so(line, answer) {
                *line = new;
            }
        }
        let lines = lines.into_iter().map(|line| line + "\n");
        lines.collect()
    }
}

impl fmt::Display for SkippedStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let about = self.about.as_deref().unwrap_or_default();
        let what = format!("{} {about}", self.method);
        write!(
            f,
            "line {}: {} is not played: {}",
            self.line,
            what.trim(),
            self.why
        )
    }
}

fn is_played(heard: &Heard) -> bool {
    heard.kind == MessageKind::Request
        && heard.from == MessageSender::Kernel
        && heard.method.as_deref().is_some_and(plays)
}

/// Whether requests of this method are played.
#[must_use]
pub fn plays(method: &str) -> bool {
    PLAYED.contains(&method)
}

fn skip(line: usize, request: &Heard, why: String) -> SkippedStep {
    SkippedStep {
        line,
        method: request.method.clone().unwrap_or_default(),
        about: request.about.clone(),
        why,
    }
}

/// A request with its answer and what was asked between; in words, why it cannot be played.
fn step(line: usize, request: &Heard, heard: &[Numbered], at: usize) -> Result<ReplayStep, String> {
    let after = &heard[at + 1..];
    let message = text(request).ok_or("it was too long to be recorded")?;
    let end = after.iter().position(|(_, heard)| ends(heard, request));
    let end = end.ok_or("its answer is not there")?;
    let (answered, answer) = &after[end];
    if let Some(why) = answer
        .why
        .as_deref()
        .filter(|_| answer.kind == MessageKind::Unanswered)
    {
        return Err(format!("it got no answer: {why}"));
    }
    let answer = text(answer).ok_or("its answer was too long to be recorded")?;
    let answer = outcome(answer).ok_or("its answer cannot be read")?;
    let between = at + 1..at + 1 + end;
    let asked = between.filter(|place| owner(heard, *place) == Some(at));
    let questions = asked.filter_map(|place| question(&heard[place].1, &heard[place..]));
    let method = request.method.clone().unwrap_or_default();
    let params = member(message, "params");
    if params.is_some_and(is_double) {
        return Err("its params have two members of one name".into());
    }
    // What the line says beside its message is for people: what is asked is in the message.
    let about = about(&method, params);
    if about.as_deref().is_some_and(|about| about.contains(MASK)) {
        return Err("what it is about is masked".into());
    }
    Ok(ReplayStep {
        line,
        method,
        about,
        modern: params.is_some_and(is_modern),
        params: params.map(own),
        answered: *answered,
        answer,
        questions: questions.collect(),
    })
}

/// Whether this ends the request.
fn ends(heard: &Heard, request: &Heard) -> bool {
    let by = match heard.kind {
        MessageKind::Answer | MessageKind::Error => MessageSender::Server,
        MessageKind::Unanswered => MessageSender::Kernel,
        MessageKind::Request
        | MessageKind::Notification
        | MessageKind::Unreadable
        | MessageKind::Missed
        | MessageKind::Began => return false,
    };
    heard.from == by && heard.connection == request.connection && same_id(heard, request)
}

/// The place of the request in which a server asked this: the one that began last of those without an answer. Which
/// of several it was, is not seen.
fn owner(heard: &[Numbered], question: usize) -> Option<usize> {
    let (_, asked) = &heard[question];
    if asked.kind != MessageKind::Request || asked.from != MessageSender::Server {
        return None;
    }
    (0..question).rev().find(|place| {
        let (_, request) = &heard[*place];
        let open = || {
            !heard[*place..question]
                .iter()
                .any(|(_, one)| ends(one, request))
        };
        is_played(request) && request.connection == asked.connection && open()
    })
}

/// A question with the answer that came after it.
fn question(asked: &Heard, after: &[Numbered]) -> Option<RecordedQuestion> {
    let answers = |heard: &&Heard| {
        let kind = matches!(heard.kind, MessageKind::Answer | MessageKind::Error);
        let ours = heard.from == MessageSender::Kernel && heard.connection == asked.connection;
        kind && ours && same_id(heard, asked)
    };
    let answer = after.iter().map(|(_, heard)| heard).find(answers)?;
    Some(RecordedQuestion {
        method: asked.method.clone()?,
        answer: outcome(text(answer)?)?,
    })
}

fn text(heard: &Heard) -> Option<&str> {
    heard.message.as_deref().map(RawValue::get)
}

fn same_id(a: &Heard, b: &Heard) -> bool {
    let id = |heard: &Heard| heard.id.as_deref().map(|id| id.get().to_owned());
    id(a).is_some() && id(a) == id(b)
}

/// `result` or `error` of an answer.
fn outcome(message: &str) -> Option<Value> {
    let of = |name: &'static str| {
        let value = serde_json::from_str::<Value>(member(message, name)?).ok()?;
        Some((name, value))
    };
    let (name, value) = of("result").or_else(|| of("error"))?;
    Some(serde_json::json!({ name: value }))
}

/// Readers differ in which of two members counts.
fn is_double(params: &str) -> bool {
    let members = members(params).unwrap_or_default();
    let mut seen = HashSet::new();
    members.iter().any(|(name, _)| !seen.insert(&**name))
}

fn is_modern(params: &str) -> bool {
    let says = |meta: &str| member(meta, PROTOCOL_VERSION).is_some();
    member(params, "_meta").is_some_and(says)
}

/// Params without what was of one request alone.
fn own(params: &str) -> String {
    let Some(meta) = member(params, "_meta") else {
        return params.to_owned();
    };
    let left = members(meta).unwrap_or_default();
    let left = left
        .iter()
        .any(|(name, _)| !OF_ONE_REQUEST.contains(&&**name));
    let mut splice = Splice::new(params);
    match left {
        true => {
            let mut within = Splice::new(meta);
            within.remove_members(meta, &OF_ONE_REQUEST);
            let kept = within.finish().into_owned();
            splice.replace(meta, kept);
        }
        false => splice.remove_members(params, &["_meta"]),
    }
    splice.finish().into_owned()
}

/// A line of an answer with another answer in it.
fn answered_so(line: &str, answer: &str) -> Option<String> {
    let mut heard: Heard = serde_json::from_str(line).ok()?;
    let id = heard.id.as_deref().map_or("null", RawValue::get);
    let (name, value) = members(answer)?.into_iter().next()?;
    let message = format!(
        r#"{{"jsonrpc":"2.0","id":{id},{}:{}}}"#,
        quoted(&name),
        value.get()
    );
    let is_error = name == "error";
    heard.kind = match is_error {
        true => MessageKind::Error,
        false => MessageKind::Answer,
    };
    heard.failed = is_error || member(value.get(), "isError") == Some("true");
    heard.bytes = message.len() as u64;
    heard.message = RawValue::from_string(message).ok();
    serde_json::to_string(&heard).ok()
}

/// What is put in the place of what was recorded.
#[derive(Clone, Debug, Default)]
pub struct Substitutes {
    /// Values of what is masked, by the name of their member.
    set: BTreeMap<String, String>,
    /// What answers gave for the next request: what was recorded, and what came now.
    carried: HashMap<(&'static str, String), String>,
}

impl Substitutes {
    /// With values for what is masked.
    #[must_use]
    pub fn new(set: BTreeMap<String, String>) -> Self {
        Self {
            set,
            carried: HashMap::new(),
        }
    }

    /// An answer came: what it gives for the next request takes the place of what the recorded one gave.
    pub fn learn(&mut self, recorded: &Value, now: &Value) {
        for (in_result, in_params) in CARRIED {
            let of = |answer: &Value| Some(answer["result"][in_result].as_str()?.to_owned());
            if let (Some(recorded), Some(now)) = (of(recorded), of(now)) {
                self.carried.insert((in_params, recorded), now);
            }
        }
    }

    /// The params as they are sent.
    ///
    /// # Errors
    /// The names of what is masked and has no value.
    pub fn put(&self, params: &str) -> Result<String, Vec<String>> {
        let mut splice = Splice::new(params);
        for (_, name) in CARRIED {
            let said = member(params, name);
            let text: Option<String> = said.and_then(|said| serde_json::from_str(said).ok());
            let now = text.and_then(|text| self.carried.get(&(name, text)));
            if let (Some(said), Some(now)) = (said, now) {
                splice.replace(said, quoted(now));
            }
        }
        let carried = splice.finish().into_owned();
        if !carried.contains(MASK) {
            return Ok(carried);
        }
        let mut value: Value = serde_json::from_str(&carried).unwrap_or_default();
        let mut missing = Vec::new();
        self.fill(&mut value, "", &mut missing);
        match missing.is_empty() {
            true => Ok(value.to_string()),
            false => Err(missing),
        }
    }

    fn fill(&self, value: &mut Value, name: &str, missing: &mut Vec<String>) {
        match value {
            Value::String(text) if text.contains(MASK) => match self.set.get(name) {
                Some(set) => *text = text.replace(MASK, set),
                None => missing.push(name.to_owned()),
            },
            Value::Array(items) => items
                .iter_mut()
                .for_each(|item| self.fill(item, name, missing)),
            Value::Object(of) => of
                .iter_mut()
                .for_each(|(name, it)| self.fill(it, name, missing)),
            Value::String(_) | Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }
}

#[cfg(test)]
mod tests;
