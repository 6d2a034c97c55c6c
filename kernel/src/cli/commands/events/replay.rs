//! `mgp replay`: asks a server again what a recording has, and compares the answers.

mod own_kernel;
mod reading;
mod report;
mod set;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io::{self, IsTerminal};

use mgp_engine::calls::recorder::comparing::{AnswerDifference, AnswerPointer, differences};
use mgp_engine::calls::recorder::replay::{
    RecordedQuestion, Replay as Recording, ReplayStep, SkippedStep, Substitutes,
};
use mgp_protocol::jsonrpc::METHOD_NOT_FOUND;
use mgp_protocol::mcp::{Method, Progress, tools};
use mgp_protocol::mgp::door;
use mgp_protocol::mgp::kernel::recorder::Play;
use mgp_protocol::splice::member;
use mgp_store::atomic_file;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use self::own_kernel::OwnKernel;
pub(in crate::cli) use self::own_kernel::replay_kernel;
use self::report::{DifferentStep, ReplayReport};
use super::trace::OLDER;
use crate::cli::args::Replay;
use crate::cli::client::{
    CliContext, ConnectOptions, KernelClient, RequestObserver, names, pages, read,
};
use crate::cli::failure::Failure;
use crate::cli::print::{ask_yes, report as tell};
use crate::cli::words::plain;

/// The most calls that are shown before they are made.
const SHOWN_MAX: usize = 50;
/// Longest that one of them is shown, in characters.
const ARGUMENTS_MAX: usize = 2_000;

/// Carries it out.
pub(in crate::cli::commands) fn replay(
    context: &CliContext,
    typed: &Replay,
) -> Result<(), Failure> {
    let recording = reading::recording(&typed.file, typed.update)?;
    let playing = Playing {
        recording: &recording,
        typed,
        ignored: ignored(&typed.ignore)?,
        asks: !context.json && io::stdin().is_terminal(),
    };
    let now = Substitutes::new(set::values(context, &typed.set)?);
    let played = match typed.command.as_slice() {
        [] => playing.at(context, playing.server()?, now)?,
        command => {
            let kernel = OwnKernel::start(context, command)?;
            playing.at(&kernel.context, own_kernel::SERVER, now)?
        }
    };
    let report = played.report;
    report.show(context.json)?;
    if played.interrupted {
        return Err(Failure::Interrupted);
    }
    if typed.update && !played.answers.is_empty() {
        write(&recording, typed, &played.answers)?;
        return match report.different.len() > played.answers.len() {
            true => Err(Failure::Other(
                "what the server asks or reports differs, too, and is not written: record it anew"
                    .into(),
            )),
            false => Ok(()),
        };
    }
    report.ends()
}

/// Puts these answers into the file.
fn write(
    recording: &Recording,
    typed: &Replay,
    answers: &BTreeMap<usize, String>,
) -> Result<(), Failure> {
    let (file, text) = (typed.file.display(), recording.updated(answers));
    let written = atomic_file::write_with_mode(&typed.file, text.as_bytes(), 0o600);
    written.map_err(|e| {
        Failure::Other(format!(
            "{file} is as it was, for it cannot be written: {e}"
        ))
    })?;
    let new = match answers.len() {
        1 => "1 new answer".to_owned(),
        many => format!("{many} new answers"),
    };
    tell(plain(&format!("mgp: {file} has {new} now")));
    Ok(())
}

fn ignored(typed: &[String]) -> Result<Vec<AnswerPointer>, Failure> {
    let read = |text: &String| {
        AnswerPointer::parse(text).ok_or_else(|| {
            Failure::Usage(format!(
                "{text:?} is no JSON pointer; one begins with `/`, like /result/content/0/text"
            ))
        })
    };
    typed.iter().map(read).collect()
}

/// What is played, and how.
struct Playing<'a> {
    recording: &'a Recording,
    typed: &'a Replay,
    ignored: Vec<AnswerPointer>,
    /// There is a person to be asked.
    asks: bool,
}

/// What came of it.
#[derive(Default)]
struct PlayedAnswers {
    report: ReplayReport,
    /// Answers that differ, by the place of their step.
    answers: BTreeMap<usize, String>,
    /// Ctrl-C: there were more.
    interrupted: bool,
}

impl Playing<'_> {
    fn server(&self) -> Result<&str, Failure> {
        let recorded = self.recording.header.server.as_deref();
        let server = self.typed.server.as_deref().or(recorded);
        server.ok_or_else(|| Failure::Usage("which server is asked? --server ID says it".into()))
    }

    fn at(
        &self,
        context: &CliContext,
        server: &str,
        mut now: Substitutes,
    ) -> Result<PlayedAnswers, Failure> {
        context.with_kernel(async |client| names::server(client, server).await)?;
        let opening = ConnectOptions {
            door: Some(door::Open {
                server: Some(server.to_owned()),
                set: None,
                agent: None,
                folder: None,
            }),
            answers_all: true,
            ..ConnectOptions::default()
        };
        context.with_kernel_at(opening, async |client| {
            self.agreed(client).await?;
            let mut played = PlayedAnswers::default();
            played.report.skipped.clone_from(&self.recording.skipped);
            for (place, step) in self.recording.steps.iter().enumerate() {
                let step = self.step(client, server, (place, step), &mut now, &mut played);
                match step.await {
                    // What was played until then is told.
                    Err(Failure::Interrupted) => {
                        played.interrupted = true;
                        break;
                    }
                    done => done?,
                }
            }
            Ok(played)
        })
    }

    /// Tools that may change something are called when a person agrees, who sees with what: a recording can be
    /// somebody else's.
    async fn agreed(&self, client: &mut KernelClient) -> Result<(), Failure> {
        let calls = self.recording.steps.iter();
        let calls: Vec<&ReplayStep> = calls
            .filter(|step| step.method == tools::Call::METHOD)
            .collect();
        if calls.is_empty() || self.typed.yes {
            return Ok(());
        }
        let listed = pages::all(client, tools::List::METHOD, "tools").await?;
        let listed = listed.iter().filter_map(|tool| read::<ToolRisk>(tool).ok());
        let harmless = listed.filter(|tool| !tool.may_destroy());
        let harmless: BTreeSet<String> = harmless.map(|tool| tool.name).collect();
        let asked = |step: &&ReplayStep| {
            let tool = step.about.as_deref();
            tool.is_none_or(|tool| !harmless.contains(tool))
        };
        let asked: Vec<String> = calls
            .into_iter()
            .filter(asked)
            .map(|step| self.shown_call(step))
            .collect();
        if asked.is_empty() {
            return Ok(());
        }
        tell(shown_calls(&asked));
        match self.asks && ask_yes("These calls may change or destroy something. Make them?")? {
            true => Ok(()),
            false => Err(Failure::Usage(
                "nothing was played: these calls may change or destroy something, for their tools do not say \
                 otherwise; --yes makes them"
                    .into(),
            )),
        }
    }

    /// A call with its arguments, on one line.
    fn shown_call(&self, step: &ReplayStep) -> String {
        let params = self.recording.params(step).unwrap_or_default();
        let name = step.about.as_deref().unwrap_or("(no name)");
        let arguments = member(&params, "arguments").unwrap_or("{}");
        let text = plain(&format!("line {}: {name} {arguments}", step.line));
        match text.char_indices().nth(ARGUMENTS_MAX) {
            None => text,
            Some((end, _)) => format!("{}… ({} bytes)", &text[..end], text.len()),
        }
    }

    async fn step(
        &self,
        client: &mut KernelClient,
        server: &str,
        (place, step): (usize, &ReplayStep),
        now: &mut Substitutes,
        played: &mut PlayedAnswers,
    ) -> Result<(), Failure> {
        let params = self.recording.params(step);
        let params = match params.map(|params| now.put(&params)).transpose() {
            Ok(params) => params,
            Err(names) => {
                played.report.skipped.push(masked(step, &names));
                return Ok(());
            }
        };
        let progress = step.progress.filter(|_| self.typed.notifications);
        let asked = PlayWithToken {
            play: Play {
                server: server.to_owned(),
                modern: step.modern,
                method: step.method.clone(),
                params,
                progress: progress.is_some(),
            },
            meta: json!({"progressToken": step.line}),
        };
        let recorded = self.recording.questions(step);
        let mut questions = RecordedAnswers::of(&recorded);
        let answer = client.request(Play::METHOD, &asked, &mut questions).await;
        let (text, answer) = match answer {
            Ok(answer) => (Some(answer.get().to_owned()), as_value(answer.get())),
            Err(Failure::Refused { code, .. }) if code == METHOD_NOT_FOUND => {
                return Err(Failure::Other(OLDER.into()));
            }
            // What the kernel says is no answer of the server, and never written down as one.
            Err(Failure::Refused { message, .. }) => (None, json!({"unanswered": message})),
            Err(other) => return Err(other),
        };
        let before = self.recording.answer(step);
        now.learn(&before, &answer);
        let mut found = differences(&before, &answer, &self.ignored);
        let text = text.filter(|_| !found.is_empty());
        found.extend(questions.difference(&recorded));
        found.extend(questions.progress_difference(progress));
        match found.is_empty() {
            true => played.report.same += 1,
            false => {
                played.report.different.push(DifferentStep::of(step, found));
                if let Some(text) = text {
                    played.answers.insert(place, text);
                }
            }
        }
        played.report.played += 1;
        Ok(())
    }
}

/// An answer as a value; what no value holds (a number of 400 digits) as its text.
fn as_value(answer: &str) -> Value {
    serde_json::from_str(answer).unwrap_or_else(|_| json!({"unreadable": answer}))
}

fn masked(step: &ReplayStep, names: &[String]) -> SkippedStep {
    let set: Vec<String> = names
        .iter()
        .map(|name| format!("--set {name}=env:VARIABLE"))
        .collect();
    SkippedStep {
        line: step.line,
        method: step.method.clone(),
        about: step.about.clone(),
        why: format!("a secret is masked in it; {} gives it", set.join(" ")),
    }
}

/// The calls that are asked about; many more than these nobody reads.
fn shown_calls(asked: &[String]) -> String {
    let mut text = format!("{} calls:", asked.len());
    for call in asked.iter().take(SHOWN_MAX) {
        text += &format!("\n  {call}");
    }
    if let Some(more) = asked.len().checked_sub(SHOWN_MAX).filter(|more| *more > 0) {
        text += &format!("\n  and {more} more");
    }
    text
}

/// What a tool says of its effects.
#[derive(Deserialize)]
struct ToolRisk {
    name: String,
    #[serde(default)]
    annotations: Value,
}

impl ToolRisk {
    /// As MCP has it: who says nothing may destroy something.
    fn may_destroy(&self) -> bool {
        self.annotations["destructiveHint"] != false && self.annotations["readOnlyHint"] != true
    }
}

/// What is asked for, with the token of its progress.
#[derive(Serialize)]
struct PlayWithToken {
    #[serde(flatten)]
    play: Play,
    #[serde(rename = "_meta")]
    meta: Value,
}

/// Answers what a server asks as it was answered, and hears of its progress.
struct RecordedAnswers {
    left: VecDeque<RecordedQuestion>,
    asked: Vec<String>,
    progressed: bool,
}

impl RecordedAnswers {
    fn of(recorded: &[RecordedQuestion]) -> Self {
        Self {
            left: recorded.iter().cloned().collect(),
            asked: Vec::new(),
            progressed: false,
        }
    }

    /// A server that reported progress does not any more, or the other way round. How often it does is its own affair,
    /// and on the way to a slow reader some is left out.
    fn progress_difference(&self, recorded: Option<bool>) -> Option<AnswerDifference> {
        let recorded = recorded.filter(|recorded| *recorded != self.progressed)?;
        Some(AnswerDifference {
            at: format!("({})", Progress::METHOD),
            recorded: Some(json!(recorded)),
            now: Some(json!(self.progressed)),
        })
    }

    /// The questions are not those that were recorded.
    fn difference(&self, recorded: &[RecordedQuestion]) -> Option<AnswerDifference> {
        let recorded: Vec<&str> = recorded.iter().map(|one| one.method.as_str()).collect();
        (self.asked != recorded).then(|| AnswerDifference {
            at: "(questions)".into(),
            recorded: Some(json!(recorded)),
            now: Some(json!(self.asked)),
        })
    }
}

impl RequestObserver for RecordedAnswers {
    fn notified(&mut self, method: &str, _params: &str) -> Result<(), Failure> {
        self.progressed |= method == Progress::METHOD;
        Ok(())
    }

    fn asked(&mut self, method: &str) -> Option<Result<String, String>> {
        self.asked.push(method.to_owned());
        let at = self.left.iter().position(|one| one.method == method);
        let answer = at.and_then(|at| self.left.remove(at)).map(|one| one.answer);
        let unrecorded =
            || json!({"code": METHOD_NOT_FOUND, "message": format!("{method} was not recorded")});
        Some(match answer {
            Some(answer) if answer["error"].is_null() => Ok(answer["result"].to_string()),
            Some(answer) => Err(answer["error"].to_string()),
            None => Err(unrecorded().to_string()),
        })
    }
}
