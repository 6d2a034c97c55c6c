//! A step of a run, and its outcome.

use std::process::Command;
use std::time::{Duration, Instant};

use crate::failures::Failures;
use crate::tally::Tally;
use crate::tee::{self, CommandResult};

/// A command with a display name.
pub(crate) struct Step {
    name: &'static str,
    command: Command,
    required_program: Option<&'static str>,
    skip_reason: Option<&'static str>,
    has_tests: bool,
    optional: bool,
    rerun: Option<RerunCommand>,
}

/// Creates the command that runs only these tests.
type RerunCommand = fn(&[&str]) -> Command;

/// Most failed tests that are rerun: more failures have one cause, not bad timing.
const RERUN_MAX: usize = 3;

/// The outcome of a step.
pub(crate) struct Outcome {
    pub(crate) name: &'static str,
    pub(crate) result: StepResult,
    /// The counts of its tests, if it has any.
    pub(crate) tally: Option<Tally>,
    /// The failed tests with their output; for a passed step, those that passed when rerun alone.
    pub(crate) failures: Failures,
    pub(crate) duration: Duration,
}

/// How a step ended.
pub(crate) enum StepResult {
    Passed,
    Failed,
    /// It was not run, or only in part, for this reason.
    NotRun(String),
}

impl Step {
    pub(crate) fn new(name: &'static str, command: Command) -> Self {
        Self {
            name,
            command,
            required_program: None,
            skip_reason: None,
            has_tests: false,
            optional: false,
            rerun: None,
        }
    }

    /// Skips the step if this program is missing.
    pub(crate) fn with_required_program(self, program: &'static str) -> Self {
        let needs = Some(program);
        Self {
            required_program: needs,
            ..self
        }
    }

    /// Skips the step this time.
    pub(crate) fn with_skip_reason(self, why: &'static str) -> Self {
        let left_out = Some(why);
        Self {
            skip_reason: left_out,
            ..self
        }
    }

    /// Counts the results of tests in the output.
    pub(crate) fn with_test_count(self) -> Self {
        Self {
            has_tests: true,
            ..self
        }
    }

    /// Reruns a few failed tests alone: those that pass are reported as flaky.
    pub(crate) fn with_rerun(self, rerun_command: RerunCommand) -> Self {
        let rerun_command = Some(rerun_command);
        Self {
            rerun: rerun_command,
            ..self
        }
    }

    /// The step may fail: dependents report it.
    pub(crate) fn into_optional(self) -> Self {
        Self {
            optional: true,
            ..self
        }
    }

    /// Runs the step, showing its output.
    pub(crate) fn run(mut self) -> Outcome {
        let start = Instant::now();
        println!("\n== {}", self.name);
        let (end, tally, failures) = match self.skip_reason() {
            Some(why) => (StepResult::NotRun(why), None, Failures::default()),
            None => self.run_now(),
        };
        Outcome {
            name: self.name,
            result: end,
            tally,
            failures,
            duration: start.elapsed(),
        }
    }

    fn skip_reason(&self) -> Option<String> {
        let missing = |program: &&str| !is_installed(program);
        let missing = self.required_program.filter(missing);
        let missing = missing.map(|program| format!("{program} is not installed"));
        self.skip_reason.map(str::to_owned).or(missing)
    }

    fn run_now(&mut self) -> (StepResult, Option<Tally>, Failures) {
        let first = run_command(&mut self.command);
        let CommandResult {
            succeeded,
            mut tally,
            failures,
        } = self.rerun_failed(first);
        if !succeeded {
            tally.ensure_failure();
        }
        let end = match (succeeded, self.optional) {
            (true, _) => StepResult::Passed,
            (false, true) => StepResult::NotRun("not all could be installed, see above".to_owned()),
            (false, false) => StepResult::Failed,
        };
        (end, self.has_tests.then_some(tally), failures)
    }

    fn rerun_failed(&self, first: CommandResult) -> CommandResult {
        let names: Vec<&str> = first.failures.names().collect();
        let is_rerunnable = (1..=RERUN_MAX).contains(&names.len());
        let Some(rerun_command) = self.rerun.filter(|_| is_rerunnable && !first.succeeded) else {
            return first;
        };
        println!("\n== once more: {}", names.join(", "));
        let second = run_command(&mut rerun_command(&names));
        match first.tally.merge_rerun(&second.tally, names.len()) {
            Some(tally) if second.succeeded => CommandResult {
                succeeded: true,
                tally,
                failures: first.failures,
            },
            _ => first,
        }
    }
}

fn run_command(command: &mut Command) -> CommandResult {
    tee::run(command).unwrap_or_else(|error| {
        println!("{command:?}: {error}");
        CommandResult::default()
    })
}

pub(crate) fn is_installed(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
}
