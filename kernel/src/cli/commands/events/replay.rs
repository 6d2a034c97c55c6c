//! `mgp replay`: repeats the requests of a recording, and compares the answers.

mod recording_reader;
mod replay_kernel;
mod report;
mod substitutes;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io::{self, IsTerminal};

use mgp_engine::calls::recorder::comparison::{AnswerDifference, AnswerPointer, find_differences};
use mgp_engine::calls::recorder::replay::{
    RecordedCallback, Replay as Recording, ReplayStep, SkippedStep, Substitutes,
};
use mgp_json::member;
use mgp_protocol::jsonrpc::METHOD_NOT_FOUND;
use mgp_protocol::mcp::{Method, Progress, tools};
use mgp_protocol::mgp::door;
use mgp_protocol::mgp::kernel::recorder::Play;
use mgp_store::atomic_file;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use self::replay_kernel::ReplayKernel;
pub(in crate::cli) use self::replay_kernel::run_replay_kernel;
use self::report::{DifferentStep, ReplayReport};
use super::trace::NO_RECORDER;
use crate::cli::args::Replay;
use crate::cli::client::{
    CliContext, ConnectOptions, KernelClient, RequestObserver, name_resolution, pages, parse_result,
};
use crate::cli::failure::Failure;
use crate::cli::print::{confirm, print_error as tell};
use crate::cli::text_format::sanitize_line;

/// Most calls that are shown for confirmation.
const SHOWN_MAX: usize = 50;
/// Longest display of one call, in characters.
const ARGUMENTS_MAX: usize = 2_000;

pub(in crate::cli::commands) fn replay(
    context: &CliContext,
    typed: &Replay,
) -> Result<(), Failure> {
    let recording = recording_reader::read_recording(&typed.file, typed.update)?;
    let playing = ReplayRun {
        recording: &recording,
        args: typed,
        ignored_pointers: parse_ignored(&typed.ignore)?,
        is_interactive: !context.json && io::stdin().is_terminal(),
    };
    let now = Substitutes::new(substitutes::parse_substitutes(context, &typed.set)?);
    let played = match typed.command.as_slice() {
        [] => playing.replay_at(context, playing.server()?, now)?,
        command => {
            let kernel = ReplayKernel::start(context, command)?;
            playing.replay_at(&kernel.context, replay_kernel::SERVER, now)?
        }
    };
    let report = played.report;
    report.show(context.json)?;
    if played.interrupted {
        return Err(Failure::Interrupted);
    }
    if typed.update && !played.answers.is_empty() {
        write_answers(&recording, typed, &played.answers)?;
        return if report.different.len() > played.answers.len() {
            Err(Failure::Other(
                "what the server asks or reports differs, too, and is not written: record it anew"
                    .into(),
            ))
        } else {
            Ok(())
        };
    }
    report.to_result()
}

/// Writes these answers into the file.
fn write_answers(
    recording: &Recording,
    typed: &Replay,
    answers: &BTreeMap<usize, String>,
) -> Result<(), Failure> {
    let (file, text) = (typed.file.display(), recording.render_with_answers(answers));
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
    tell(sanitize_line(&format!("mgp: {file} has {new} now")));
    Ok(())
}

fn parse_ignored(typed: &[String]) -> Result<Vec<AnswerPointer>, Failure> {
    let read = |text: &String| {
        AnswerPointer::parse(text).ok_or_else(|| {
            Failure::Usage(format!(
                "{text:?} is no JSON pointer; one begins with `/`, like /result/content/0/text"
            ))
        })
    };
    typed.iter().map(read).collect()
}

/// A recording and how to replay it.
struct ReplayRun<'a> {
    recording: &'a Recording,
    args: &'a Replay,
    ignored_pointers: Vec<AnswerPointer>,
    /// Whether a user can confirm.
    is_interactive: bool,
}

/// The result.
#[derive(Default)]
struct ReplayOutcome {
    report: ReplayReport,
    /// Different answers, by the index of their step.
    answers: BTreeMap<usize, String>,
    /// Ctrl-C: steps remained.
    interrupted: bool,
}

impl ReplayRun<'_> {
    fn server(&self) -> Result<&str, Failure> {
        let recorded = self.recording.header.server.as_deref();
        let server = self.args.server.as_deref().or(recorded);
        server.ok_or_else(|| Failure::Usage("which server is asked? --server ID says it".into()))
    }

    fn replay_at(
        &self,
        context: &CliContext,
        server: &str,
        mut now: Substitutes,
    ) -> Result<ReplayOutcome, Failure> {
        context
            .with_kernel(async |client| name_resolution::resolve_server(client, server).await)?;
        let opening = ConnectOptions {
            endpoint: Some(door::Open {
                server: Some(server.to_owned()),
                set: None,
                agent: None,
                folder: None,
            }),
            answers_by_observer: true,
            ..ConnectOptions::default()
        };
        context.with_kernel_at(opening, async |client| {
            self.confirm_risky_calls(client).await?;
            let mut played = ReplayOutcome::default();
            played.report.skipped.clone_from(&self.recording.skipped);
            for (place, step) in self.recording.steps.iter().enumerate() {
                let step = self.replay_step(client, server, (place, step), &mut now, &mut played);
                match step.await {
                    // The results so far are reported.
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

    /// Calls of tools that may change something require confirmation, with their arguments: the recording may be
    /// someone else's.
    async fn confirm_risky_calls(&self, client: &mut KernelClient) -> Result<(), Failure> {
        let calls = self.recording.steps.iter();
        let calls: Vec<&ReplayStep> = calls
            .filter(|step| step.method == tools::Call::METHOD)
            .collect();
        if calls.is_empty() || self.args.yes {
            return Ok(());
        }
        let listed = pages::list_all(client, tools::List::METHOD, "tools").await?;
        let listed = listed
            .iter()
            .filter_map(|tool| parse_result::<ToolRisk>(tool).ok());
        let harmless = listed.filter(|tool| !tool.can_destroy());
        let harmless: BTreeSet<String> = harmless.map(|tool| tool.name).collect();
        let needs_confirmation = |step: &&ReplayStep| {
            let tool = step.target.as_deref();
            tool.is_none_or(|tool| !harmless.contains(tool))
        };
        let calls_to_confirm: Vec<String> = calls
            .into_iter()
            .filter(needs_confirmation)
            .map(|step| self.render_call(step))
            .collect();
        if calls_to_confirm.is_empty() {
            return Ok(());
        }
        tell(render_calls(&calls_to_confirm));
        if self.is_interactive
            && confirm("These calls may change or destroy something. Make them?")?
        {
            Ok(())
        } else {
            Err(Failure::Usage(
                "nothing was played: these calls may change or destroy something, for their tools do not say \
                 otherwise; --yes makes them"
                    .into(),
            ))
        }
    }

    /// A call with its arguments, on one line.
    fn render_call(&self, step: &ReplayStep) -> String {
        let params = self.recording.params(step).unwrap_or_default();
        let name = step.target.as_deref().unwrap_or("(no name)");
        let arguments = member(&params, "arguments").unwrap_or("{}");
        let text = sanitize_line(&format!("line {}: {name} {arguments}", step.line));
        match text.char_indices().nth(ARGUMENTS_MAX) {
            None => text,
            Some((end, _)) => format!("{}… ({} bytes)", &text[..end], text.len()),
        }
    }

    async fn replay_step(
        &self,
        client: &mut KernelClient,
        server: &str,
        (place, step): (usize, &ReplayStep),
        now: &mut Substitutes,
        played: &mut ReplayOutcome,
    ) -> Result<(), Failure> {
        let params = self.recording.params(step);
        let params = match params.map(|params| now.apply(&params)).transpose() {
            Ok(params) => params,
            Err(names) => {
                played.report.skipped.push(skip_masked(step, &names));
                return Ok(());
            }
        };
        let progress = step.progress.filter(|_| self.args.notifications);
        let request = PlayRequest {
            play: Play {
                server: server.to_owned(),
                modern: step.stateless,
                method: step.method.clone(),
                params,
                progress: progress.is_some(),
            },
            meta: json!({"progressToken": step.line}),
        };
        let recorded = self.recording.recorded_callbacks(step);
        let mut questions = CallbackPlayer::new(&recorded);
        let answer = client.request(Play::METHOD, &request, &mut questions).await;
        let (text, answer) = match answer {
            Ok(answer) => (Some(answer.get().to_owned()), answer_value(answer.get())),
            Err(Failure::ErrorResponse { code, .. }) if code == METHOD_NOT_FOUND => {
                return Err(Failure::Other(NO_RECORDER.into()));
            }
            // The kernel's errors are no answer of the server, and are never written to the file.
            Err(Failure::ErrorResponse { message, .. }) => (None, json!({"unanswered": message})),
            Err(other) => return Err(other),
        };
        let before = self.recording.recorded_answer(step);
        now.record_answer(&before, &answer);
        let mut found = find_differences(&before, &answer, &self.ignored_pointers);
        let text = text.filter(|_| !found.is_empty());
        found.extend(questions.callback_difference(&recorded));
        found.extend(questions.progress_difference(progress));
        if found.is_empty() {
            played.report.same += 1
        } else {
            played
                .report
                .different
                .push(DifferentStep::new(step, found));
            if let Some(text) = text {
                played.answers.insert(place, text);
            }
        }
        played.report.played += 1;
        Ok(())
    }
}

/// An answer as a value; as text if no value can represent it (a number of 400 digits).
fn answer_value(answer: &str) -> Value {
    serde_json::from_str(answer).unwrap_or_else(|_| json!({"unreadable": answer}))
}

fn skip_masked(step: &ReplayStep, names: &[String]) -> SkippedStep {
    let set: Vec<String> = names
        .iter()
        .map(|name| format!("--set {name}=env:VARIABLE"))
        .collect();
    SkippedStep {
        line: step.line,
        method: step.method.clone(),
        target: step.target.clone(),
        reason: format!("a secret is masked in it; {} gives it", set.join(" ")),
    }
}

/// The calls to confirm, up to a limit.
fn render_calls(calls_to_confirm: &[String]) -> String {
    let mut text = format!("{} calls:", calls_to_confirm.len());
    for call in calls_to_confirm.iter().take(SHOWN_MAX) {
        text += &format!("\n  {call}");
    }
    if let Some(more) = calls_to_confirm
        .len()
        .checked_sub(SHOWN_MAX)
        .filter(|more| *more > 0)
    {
        text += &format!("\n  and {more} more");
    }
    text
}

/// A tool's annotations about its effects.
#[derive(Deserialize)]
struct ToolRisk {
    name: String,
    #[serde(default)]
    annotations: Value,
}

impl ToolRisk {
    /// The MCP default: unannotated tools may be destructive.
    fn can_destroy(&self) -> bool {
        self.annotations["destructiveHint"] != false && self.annotations["readOnlyHint"] != true
    }
}

/// The params of a request, with a progress token.
#[derive(Serialize)]
struct PlayRequest {
    #[serde(flatten)]
    play: Play,
    #[serde(rename = "_meta")]
    meta: Value,
}

/// Answers a server's callbacks as recorded, and observes its progress.
struct CallbackPlayer {
    remaining: VecDeque<RecordedCallback>,
    received_callbacks: Vec<String>,
    progress_seen: bool,
}

impl CallbackPlayer {
    fn new(recorded: &[RecordedCallback]) -> Self {
        Self {
            remaining: recorded.iter().cloned().collect(),
            received_callbacks: Vec::new(),
            progress_seen: false,
        }
    }

    /// The server reports progress now and did not before, or the other way round. The number of reports may differ:
    /// some are dropped for slow readers.
    fn progress_difference(&self, recorded: Option<bool>) -> Option<AnswerDifference> {
        let recorded = recorded.filter(|recorded| *recorded != self.progress_seen)?;
        Some(AnswerDifference {
            path: format!("({})", Progress::METHOD),
            recorded: Some(json!(recorded)),
            replayed: Some(json!(self.progress_seen)),
        })
    }

    /// The callbacks differ from the recorded ones.
    fn callback_difference(&self, recorded: &[RecordedCallback]) -> Option<AnswerDifference> {
        let recorded: Vec<&str> = recorded.iter().map(|one| one.method.as_str()).collect();
        (self.received_callbacks != recorded).then(|| AnswerDifference {
            path: "(questions)".into(),
            recorded: Some(json!(recorded)),
            replayed: Some(json!(self.received_callbacks)),
        })
    }
}

impl RequestObserver for CallbackPlayer {
    fn on_notification(&mut self, method: &str, _params: &str) -> Result<(), Failure> {
        self.progress_seen |= method == Progress::METHOD;
        Ok(())
    }

    fn answer_callback(&mut self, method: &str) -> Option<Result<String, String>> {
        self.received_callbacks.push(method.to_owned());
        let at = self.remaining.iter().position(|one| one.method == method);
        let answer = at
            .and_then(|at| self.remaining.remove(at))
            .map(|one| one.answer);
        let unrecorded =
            || json!({"code": METHOD_NOT_FOUND, "message": format!("{method} was not recorded")});
        Some(match answer {
            Some(answer) if answer["error"].is_null() => Ok(answer["result"].to_string()),
            Some(answer) => Err(answer["error"].to_string()),
            None => Err(unrecorded().to_string()),
        })
    }
}
