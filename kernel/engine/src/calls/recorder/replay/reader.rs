//! Parses a recording line by line, in one pass: the requests, and their answers.

use std::collections::HashMap;

use mgp_json::member;
use mgp_protocol::mcp::{Method, Progress};
use mgp_protocol::mgp::kernel::recorder::{
    FORMAT, Heard, MessageKind, MessageSender, RecordingHeader, VERSION,
};
use serde_json::value::RawValue;

use super::{
    CallbackLines, RecordedLine, RecordingError, ReplayStep, SkippedStep, has_duplicate_members,
    is_replayable, is_stateless, parse_outcome,
};
use crate::calls::recorder::target_name;
use mgp_screening::masks::MASK;

/// Some editors add it at the beginning of a file.
const BYTE_ORDER_MARK: char = '\u{feff}';

/// A connection, and the id of a request on it.
type LineKey = (u64, String);

/// Parses the header and the requests, in order.
pub(super) fn parse(text: &str) -> Result<(RecordingHeader, RecordedRequests), RecordingError> {
    let mut lines = RecordedLine::lines(text);
    let first = lines.next().map_or("", |line| line.text_in(text));
    let header = parse_header(first.trim_start_matches(BYTE_ORDER_MARK))?;
    let mut found = RecordedRequests::default();
    for line in lines {
        let written = line.text_in(text);
        if written.trim().is_empty() {
            continue;
        }
        let heard: Heard =
            serde_json::from_str(written).map_err(|why| line_error(text, line, &why))?;
        found.add_entry(line, &heard);
    }
    Ok((header, found))
}

/// The error for an invalid line.
fn line_error(text: &str, line: RecordedLine, why: &serde_json::Error) -> RecordingError {
    if why.is_eof() && line.end == text.len() {
        RecordingError::Truncated(line.number)
    } else {
        // The parser sees the line as a text of one line.
        RecordingError::InvalidLine(
            line.number,
            why.to_string().replace(" at line 1 column", ", column"),
        )
    }
}

fn parse_header(line: &str) -> Result<RecordingHeader, RecordingError> {
    let header: RecordingHeader =
        serde_json::from_str(line).map_err(|_| RecordingError::NoHeader)?;
    if header.format != FORMAT {
        return Err(RecordingError::NoHeader);
    }
    if header.version > VERSION {
        return Err(RecordingError::Version(header.version));
    }
    if header.agent.is_some() {
        Err(RecordingError::AgentRecording)
    } else {
        Ok(header)
    }
}

/// The requests found so far.
#[derive(Default)]
pub(super) struct RecordedRequests {
    requests: Vec<RecordedRequest>,
    /// Requests without an answer, by their index.
    open: HashMap<LineKey, usize>,
    /// Requests that began on each connection; some have ended.
    begun: HashMap<u64, Vec<usize>>,
    /// Requests that asked for progress, by connection and progress token.
    reporting: HashMap<LineKey, usize>,
    /// Callbacks without an answer: the index of the request they belong to, and their index in it.
    open_callbacks: HashMap<LineKey, (usize, usize)>,
}

/// A request, and whether it can be replayed; if not, why.
struct RecordedRequest {
    line: usize,
    method: String,
    target: Option<String>,
    step: Result<ReplayStep, String>,
    answered: bool,
    /// Their methods, and the lines of their answers.
    callbacks: Vec<(String, Option<RecordedLine>)>,
}

impl RecordedRequests {
    /// Splits the requests into replayed and skipped ones.
    pub(super) fn into_steps(self) -> (Vec<ReplayStep>, Vec<SkippedStep>) {
        let (mut steps, mut skipped) = (Vec::new(), Vec::new());
        for found in self.requests {
            match found.into_step() {
                Ok(step) => steps.push(step),
                Err(why) => skipped.push(why),
            }
        }
        (steps, skipped)
    }

    fn add_entry(&mut self, line: RecordedLine, heard: &Heard) {
        use MessageSender::{Kernel, Server};
        match (heard.kind, heard.from) {
            (MessageKind::Request, Kernel) => self.add_request(line, heard),
            (MessageKind::Request, Server) => self.add_callback(heard),
            (MessageKind::Answer | MessageKind::Error, Server)
            | (MessageKind::Unanswered, Kernel) => self.end_request(line, heard),
            (MessageKind::Answer | MessageKind::Error, Kernel) => {
                self.add_callback_response(line, heard)
            }
            (MessageKind::Notification, Server) => self.record_progress(heard),
            (
                MessageKind::Request
                | MessageKind::Answer
                | MessageKind::Error
                | MessageKind::Unanswered
                | MessageKind::Notification
                | MessageKind::Unreadable
                | MessageKind::Missed
                | MessageKind::Began,
                _,
            ) => {}
        }
    }

    fn add_request(&mut self, line: RecordedLine, heard: &Heard) {
        let Some(method) = heard.method.clone().filter(|method| is_replayable(method)) else {
            return;
        };
        let place = self.requests.len();
        if let Some(key) = line_key(heard) {
            self.open.insert(key, place);
        }
        self.begun.entry(heard.connection).or_default().push(place);
        if let Some(token) = message_text(heard).and_then(progress_token) {
            let key = (heard.connection, token.to_owned());
            self.reporting.insert(key, place);
        }
        self.requests.push(RecordedRequest {
            line: line.number,
            step: build_step(line, &method, heard),
            method,
            target: heard.about.clone(),
            answered: false,
            callbacks: Vec::new(),
        });
    }

    /// Handles the answer or the end of a request.
    fn end_request(&mut self, line: RecordedLine, heard: &Heard) {
        let ended = line_key(heard).and_then(|key| self.open.remove(&key));
        let Some(found) = ended.and_then(|place| self.requests.get_mut(place)) else {
            return;
        };
        found.answered = true;
        let Ok(step) = &mut found.step else { return };
        match check_answer(heard) {
            Ok(()) => step.response = line,
            Err(why) => found.step = Err(why),
        }
    }

    /// Records progress of a request that is not answered yet.
    fn record_progress(&mut self, heard: &Heard) {
        if heard.method.as_deref() != Some(Progress::METHOD) {
            return;
        }
        let params = message_text(heard).and_then(|message| member(message, "params"));
        let Some(token) = params.and_then(|params| member(params, "progressToken")) else {
            return;
        };
        let key = (heard.connection, token.to_owned());
        let found = self.reporting.get(&key);
        let found = found.and_then(|place| self.requests.get_mut(*place));
        if let Some(found) = found.filter(|found| !found.answered)
            && let Ok(step) = &mut found.step
        {
            step.progress = Some(true);
        }
    }

    /// Adds a callback of the server to the request that began last of those without an answer: the recording does
    /// not show which of several it belongs to.
    fn add_callback(&mut self, heard: &Heard) {
        let Some(begun) = self.begun.get_mut(&heard.connection) else {
            return;
        };
        while begun
            .pop_if(|place| self.requests[*place].answered)
            .is_some()
        {}
        let (Some(place), Some(method)) = (begun.last(), &heard.method) else {
            return;
        };
        let questions = &mut self.requests[*place].callbacks;
        if let Some(key) = line_key(heard) {
            self.open_callbacks.insert(key, (*place, questions.len()));
            questions.push((method.clone(), None));
        }
    }

    /// Adds the answer to a callback.
    fn add_callback_response(&mut self, line: RecordedLine, heard: &Heard) {
        let asked = line_key(heard).and_then(|key| self.open_callbacks.remove(&key));
        let readable = message_text(heard).and_then(parse_outcome).is_some();
        if let Some((request, question)) = asked.filter(|_| readable) {
            self.requests[request].callbacks[question].1 = Some(line);
        }
    }
}

impl RecordedRequest {
    fn into_step(self) -> Result<ReplayStep, SkippedStep> {
        let step = match self.step {
            Ok(_) if !self.answered => Err("its answer is not there".to_owned()),
            step => step,
        };
        let asked = self.callbacks.into_iter();
        let asked = asked.filter_map(|(method, answered)| {
            Some(CallbackLines {
                method,
                response: answered?,
            })
        });
        match step {
            Ok(step) => Ok(ReplayStep {
                callbacks: asked.collect(),
                ..step
            }),
            Err(why) => Err(SkippedStep {
                line: self.line,
                method: self.method,
                target: self.target,
                reason: why,
            }),
        }
    }
}

/// Builds the step of a request, without its answer yet; otherwise the reason why it cannot be replayed.
fn build_step(line: RecordedLine, method: &str, heard: &Heard) -> Result<ReplayStep, String> {
    let message = message_text(heard).ok_or("it was too long to be recorded")?;
    let params = member(message, "params");
    if params.is_some_and(has_duplicate_members) {
        return Err("its params have two members of one name".into());
    }
    // The other members of the line are for people: the message itself names the target.
    let about = target_name(method, params);
    if about.as_deref().is_some_and(|about| about.contains(MASK)) {
        return Err("what it is about is masked".into());
    }
    Ok(ReplayStep {
        line: line.number,
        method: method.to_owned(),
        target: about,
        stateless: params.is_some_and(is_stateless),
        progress: progress_token(message).map(|_| false),
        request: line,
        response: line,
        callbacks: Vec::new(),
    })
}

/// The progress token of a request, as JSON.
fn progress_token(message: &str) -> Option<&str> {
    let meta = member(member(message, "params")?, "_meta")?;
    member(meta, "progressToken")
}

/// Whether an answer can be compared; if not, why.
fn check_answer(heard: &Heard) -> Result<(), String> {
    if heard.kind == MessageKind::Unanswered {
        let why = heard.why.as_deref().unwrap_or("the kernel gave it up");
        return Err(format!("it got no answer: {why}"));
    }
    let message = message_text(heard).ok_or("its answer was too long to be recorded")?;
    parse_outcome(message).ok_or("its answer cannot be read")?;
    Ok(())
}

fn message_text(heard: &Heard) -> Option<&str> {
    heard.message.as_deref().map(RawValue::get)
}

fn line_key(heard: &Heard) -> Option<LineKey> {
    let id = heard.id.as_deref()?;
    Some((heard.connection, id.get().to_owned()))
}
