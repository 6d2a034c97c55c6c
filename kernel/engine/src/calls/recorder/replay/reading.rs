//! Reads a recording line by line, once: what is asked in it, and what answered that.

use std::collections::HashMap;

use mgp_protocol::mcp::{Method, Progress};
use mgp_protocol::mgp::kernel::recorder::{
    FORMAT, Heard, MessageKind, MessageSender, RecordingHeader, VERSION,
};
use mgp_protocol::splice::member;
use serde_json::value::RawValue;

use super::{
    NoReplay, QuestionLines, RecordedLine, ReplayStep, SkippedStep, is_double, is_modern, outcome,
    plays,
};
use crate::calls::recorder::about;
use crate::store::masks::MASK;

/// Some editors begin a file with it.
const BYTE_ORDER_MARK: char = '\u{feff}';

/// A connection, and the id of a request on it.
type LineKey = (u64, String);

/// What a text has: its header, and the requests, in order.
pub(super) fn read(text: &str) -> Result<(RecordingHeader, FoundRequests), NoReplay> {
    let mut lines = RecordedLine::all(text);
    let first = lines.next().map_or("", |line| line.of(text));
    let header = header(first.trim_start_matches(BYTE_ORDER_MARK))?;
    let mut found = FoundRequests::default();
    for line in lines {
        let written = line.of(text);
        if written.trim().is_empty() {
            continue;
        }
        let heard: Heard =
            serde_json::from_str(written).map_err(|why| not_read(text, line, &why))?;
        found.hear(line, &heard);
    }
    Ok((header, found))
}

/// Why a line is none.
fn not_read(text: &str, line: RecordedLine, why: &serde_json::Error) -> NoReplay {
    match why.is_eof() && line.to == text.len() {
        true => NoReplay::CutOff(line.number),
        // It is a text of one line to its reader.
        false => NoReplay::Line(
            line.number,
            why.to_string().replace(" at line 1 column", ", column"),
        ),
    }
}

fn header(line: &str) -> Result<RecordingHeader, NoReplay> {
    let header: RecordingHeader = serde_json::from_str(line).map_err(|_| NoReplay::NoHeader)?;
    if header.format != FORMAT {
        return Err(NoReplay::NoHeader);
    }
    if header.version > VERSION {
        return Err(NoReplay::Version(header.version));
    }
    match header.agent.is_some() {
        true => Err(NoReplay::OfAgent),
        false => Ok(header),
    }
}

/// The requests that were found so far.
#[derive(Default)]
pub(super) struct FoundRequests {
    all: Vec<FoundRequest>,
    /// Those without an answer, by their place.
    open: HashMap<LineKey, usize>,
    /// Of each connection those that began, some of which have ended.
    begun: HashMap<u64, Vec<usize>>,
    /// Those that asked for progress, by their connection and progress token.
    reporting: HashMap<LineKey, usize>,
    /// Questions without an answer: the place of the request in which they were asked, and theirs in it.
    asked: HashMap<LineKey, (usize, usize)>,
}

/// A request, and whether it can be played; why not, in words.
struct FoundRequest {
    line: usize,
    method: String,
    about: Option<String>,
    step: Result<ReplayStep, String>,
    answered: bool,
    /// Their methods, and the lines of their answers.
    questions: Vec<(String, Option<RecordedLine>)>,
}

impl FoundRequests {
    /// What is played, and what is not.
    pub(super) fn sorted(self) -> (Vec<ReplayStep>, Vec<SkippedStep>) {
        let (mut steps, mut skipped) = (Vec::new(), Vec::new());
        for found in self.all {
            match found.settled() {
                Ok(step) => steps.push(step),
                Err(why) => skipped.push(why),
            }
        }
        (steps, skipped)
    }

    fn hear(&mut self, line: RecordedLine, heard: &Heard) {
        use MessageSender::{Kernel, Server};
        match (heard.kind, heard.from) {
            (MessageKind::Request, Kernel) => self.request(line, heard),
            (MessageKind::Request, Server) => self.question(heard),
            (MessageKind::Answer | MessageKind::Error, Server)
            | (MessageKind::Unanswered, Kernel) => self.end(line, heard),
            (MessageKind::Answer | MessageKind::Error, Kernel) => self.reply(line, heard),
            (MessageKind::Notification, Server) => self.progress(heard),
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

    fn request(&mut self, line: RecordedLine, heard: &Heard) {
        let Some(method) = heard.method.clone().filter(|method| plays(method)) else {
            return;
        };
        let place = self.all.len();
        if let Some(key) = key(heard) {
            self.open.insert(key, place);
        }
        self.begun.entry(heard.connection).or_default().push(place);
        if let Some(token) = text(heard).and_then(progress_token) {
            let key = (heard.connection, token.to_owned());
            self.reporting.insert(key, place);
        }
        self.all.push(FoundRequest {
            line: line.number,
            step: step(line, &method, heard),
            method,
            about: heard.about.clone(),
            answered: false,
            questions: Vec::new(),
        });
    }

    /// What ends a request.
    fn end(&mut self, line: RecordedLine, heard: &Heard) {
        let ended = key(heard).and_then(|key| self.open.remove(&key));
        let Some(found) = ended.and_then(|place| self.all.get_mut(place)) else {
            return;
        };
        found.answered = true;
        let Ok(step) = &mut found.step else { return };
        match answer(heard) {
            Ok(()) => step.answered = line,
            Err(why) => found.step = Err(why),
        }
    }

    /// A server says how far it is with a request that is not answered yet.
    fn progress(&mut self, heard: &Heard) {
        if heard.method.as_deref() != Some(Progress::METHOD) {
            return;
        }
        let params = text(heard).and_then(|message| member(message, "params"));
        let Some(token) = params.and_then(|params| member(params, "progressToken")) else {
            return;
        };
        let key = (heard.connection, token.to_owned());
        let found = self.reporting.get(&key);
        let found = found.and_then(|place| self.all.get_mut(*place));
        if let Some(found) = found.filter(|found| !found.answered)
            && let Ok(step) = &mut found.step
        {
            step.progress = Some(true);
        }
    }

    /// A server asks something, in the request that began last of those without an answer: which of several it was, is
    /// not seen.
    fn question(&mut self, heard: &Heard) {
        let Some(begun) = self.begun.get_mut(&heard.connection) else {
            return;
        };
        while begun.pop_if(|place| self.all[*place].answered).is_some() {}
        let (Some(place), Some(method)) = (begun.last(), &heard.method) else {
            return;
        };
        let questions = &mut self.all[*place].questions;
        if let Some(key) = key(heard) {
            self.asked.insert(key, (*place, questions.len()));
            questions.push((method.clone(), None));
        }
    }

    /// The answer to a question.
    fn reply(&mut self, line: RecordedLine, heard: &Heard) {
        let asked = key(heard).and_then(|key| self.asked.remove(&key));
        let readable = text(heard).and_then(outcome).is_some();
        if let Some((request, question)) = asked.filter(|_| readable) {
            self.all[request].questions[question].1 = Some(line);
        }
    }
}

impl FoundRequest {
    fn settled(self) -> Result<ReplayStep, SkippedStep> {
        let step = match self.step {
            Ok(_) if !self.answered => Err("its answer is not there".to_owned()),
            step => step,
        };
        let asked = self.questions.into_iter();
        let asked = asked.filter_map(|(method, answered)| {
            Some(QuestionLines {
                method,
                answered: answered?,
            })
        });
        match step {
            Ok(step) => Ok(ReplayStep {
                questions: asked.collect(),
                ..step
            }),
            Err(why) => Err(SkippedStep {
                line: self.line,
                method: self.method,
                about: self.about,
                why,
            }),
        }
    }
}

/// A request as it is played, its answer still missing; in words, why it cannot be.
fn step(line: RecordedLine, method: &str, heard: &Heard) -> Result<ReplayStep, String> {
    let message = text(heard).ok_or("it was too long to be recorded")?;
    let params = member(message, "params");
    if params.is_some_and(is_double) {
        return Err("its params have two members of one name".into());
    }
    // What the line says beside its message is for people: what is asked is in the message.
    let about = about(method, params);
    if about.as_deref().is_some_and(|about| about.contains(MASK)) {
        return Err("what it is about is masked".into());
    }
    Ok(ReplayStep {
        line: line.number,
        method: method.to_owned(),
        about,
        modern: params.is_some_and(is_modern),
        progress: progress_token(message).map(|_| false),
        asked: line,
        answered: line,
        questions: Vec::new(),
    })
}

/// The progress token of a request, as JSON.
fn progress_token(message: &str) -> Option<&str> {
    let meta = member(member(message, "params")?, "_meta")?;
    member(meta, "progressToken")
}

/// Whether an answer can be compared with; in words, why not.
fn answer(heard: &Heard) -> Result<(), String> {
    if heard.kind == MessageKind::Unanswered {
        let why = heard.why.as_deref().unwrap_or("the kernel gave it up");
        return Err(format!("it got no answer: {why}"));
    }
    let message = text(heard).ok_or("its answer was too long to be recorded")?;
    outcome(message).ok_or("its answer cannot be read")?;
    Ok(())
}

fn text(heard: &Heard) -> Option<&str> {
    heard.message.as_deref().map(RawValue::get)
}

fn key(heard: &Heard) -> Option<LineKey> {
    let id = heard.id.as_deref()?;
    Some((heard.connection, id.get().to_owned()))
}
