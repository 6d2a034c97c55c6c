//! One thing to run, and what came of it.

use std::process::Command;
use std::time::{Duration, Instant};

use crate::failures::Failures;
use crate::tally::Tally;
use crate::tee::{self, Ended};

/// A command with a name that people read.
pub(crate) struct Step {
    name: &'static str,
    command: Command,
    needs: Option<&'static str>,
    left_out: Option<&'static str>,
    counted: bool,
    optional: bool,
    again: Option<Again>,
}

/// Makes the command that runs these tests alone.
type Again = fn(&[&str]) -> Command;

/// As many tests are run once more: more that fail have one cause, which is no accident of time.
const UNSTEADY: usize = 3;

/// What came of a step.
pub(crate) struct Outcome {
    /// The step's name.
    pub(crate) name: &'static str,
    /// How it ended.
    pub(crate) end: End,
    /// What its tests came to, when it has any.
    pub(crate) tally: Option<Tally>,
    /// Its tests that failed, with what they printed: after a good end, those that passed when they
    /// were run once more alone.
    pub(crate) failures: Failures,
    /// How long it took.
    pub(crate) took: Duration,
}

/// How a step ended.
pub(crate) enum End {
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
            needs: None,
            left_out: None,
            counted: false,
            optional: false,
            again: None,
        }
    }

    /// Does not run where this program is missing.
    pub(crate) fn needs(self, program: &'static str) -> Self {
        let needs = Some(program);
        Self { needs, ..self }
    }

    /// Does not run this time.
    pub(crate) fn left_out(self, why: &'static str) -> Self {
        let left_out = Some(why);
        Self { left_out, ..self }
    }

    /// Prints the results of tests, which are to be counted.
    pub(crate) fn counted(self) -> Self {
        Self {
            counted: true,
            ..self
        }
    }

    /// A few failed tests are run once more without the others: one that passes then is told as
    /// unsteady.
    pub(crate) fn again(self, again: Again) -> Self {
        let again = Some(again);
        Self { again, ..self }
    }

    /// May fail: what depends on it says so itself.
    pub(crate) fn optional(self) -> Self {
        Self {
            optional: true,
            ..self
        }
    }

    /// Runs it, showing what it prints.
    pub(crate) fn run(mut self) -> Outcome {
        let start = Instant::now();
        println!("\n== {}", self.name);
        let (end, tally, failures) = match self.hindrance() {
            Some(why) => (End::NotRun(why), None, Failures::default()),
            None => self.run_now(),
        };
        Outcome {
            name: self.name,
            end,
            tally,
            failures,
            took: start.elapsed(),
        }
    }

    fn hindrance(&self) -> Option<String> {
        let missing = |program: &&str| !is_installed(program);
        let missing = self.needs.filter(missing);
        let missing = missing.map(|program| format!("{program} is not installed"));
        self.left_out.map(str::to_owned).or(missing)
    }

    fn run_now(&mut self) -> (End, Option<Tally>, Failures) {
        let first = ended(&mut self.command);
        let Ended {
            succeeded,
            mut tally,
            failures,
        } = self.once_more(first);
        if !succeeded {
            tally.at_least_one_failed();
        }
        let end = match (succeeded, self.optional) {
            (true, _) => End::Passed,
            (false, true) => End::NotRun("not all could be installed, see above".to_owned()),
            (false, false) => End::Failed,
        };
        (end, self.counted.then_some(tally), failures)
    }

    fn once_more(&self, first: Ended) -> Ended {
        let names: Vec<&str> = first.failures.names().collect();
        let few = (1..=UNSTEADY).contains(&names.len());
        let Some(again) = self.again.filter(|_| few && !first.succeeded) else {
            return first;
        };
        println!("\n== once more: {}", names.join(", "));
        let second = ended(&mut again(&names));
        match first.tally.settled_by(&second.tally, names.len()) {
            Some(tally) if second.succeeded => Ended {
                succeeded: true,
                tally,
                failures: first.failures,
            },
            _ => first,
        }
    }
}

fn ended(command: &mut Command) -> Ended {
    tee::run(command).unwrap_or_else(|error| {
        println!("{command:?}: {error}");
        Ended::default()
    })
}

pub(crate) fn is_installed(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
}
