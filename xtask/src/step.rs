//! One thing to run, and what came of it.

use std::process::Command;
use std::time::{Duration, Instant};

use crate::failures::Failures;
use crate::tally::Tally;
use crate::tee::{self, CommandResult};

/// A command with a name that people read.
pub(crate) struct Step {
    name: &'static str,
    command: Command,
    required_program: Option<&'static str>,
    skip_reason: Option<&'static str>,
    has_tests: bool,
    optional: bool,
    rerun: Option<RerunCommand>,
}

/// Makes the command that runs these tests alone.
type RerunCommand = fn(&[&str]) -> Command;

/// As many tests are run once more: more that fail have one cause, which is no accident of time.
const RERUN_MAX: usize = 3;

/// What came of a step.
pub(crate) struct Outcome {
    /// The step's name.
    pub(crate) name: &'static str,
    /// How it ended.
    pub(crate) result: StepResult,
    /// What its tests came to, when it has any.
    pub(crate) tally: Option<Tally>,
    /// Its tests that failed, with what they printed: after a good end, those that passed when they
    /// were run once more alone.
    pub(crate) failures: Failures,
    /// How long it took.
    pub(crate) duration: Duration,
}

/// How a step ended.
pub(crate) enum StepResult {
    /// Well.
    Passed,
    /// Not well.
    Failed,
    /// It did not run, or not whole, and nothing is wrong with that: why.
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

    /// Does not run where this program is missing.
    pub(crate) fn with_required_program(self, program: &'static str) -> Self {
        let needs = Some(program);
        Self {
            required_program: needs,
            ..self
        }
    }

    /// Does not run this time.
    pub(crate) fn with_skip_reason(self, why: &'static str) -> Self {
        let left_out = Some(why);
        Self {
            skip_reason: left_out,
            ..self
        }
    }

    /// Prints the results of tests, which are to be counted.
    pub(crate) fn with_test_count(self) -> Self {
        Self {
            has_tests: true,
            ..self
        }
    }

    /// A few failed tests are run once more without the others: one that passes then is told as
    /// unsteady.
    pub(crate) fn with_rerun(self, again: RerunCommand) -> Self {
        let again = Some(again);
        Self {
            rerun: again,
            ..self
        }
    }

    /// May fail: what depends on it says so itself.
    pub(crate) fn into_optional(self) -> Self {
        Self {
            optional: true,
            ..self
        }
    }

    /// Runs it, showing what it prints.
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
        let few = (1..=RERUN_MAX).contains(&names.len());
        let Some(again) = self.rerun.filter(|_| few && !first.succeeded) else {
            return first;
        };
        println!("\n== once more: {}", names.join(", "));
        let second = run_command(&mut again(&names));
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
