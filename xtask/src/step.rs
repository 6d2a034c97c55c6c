//! One thing to run, and what came of it.

use std::process::Command;
use std::time::{Duration, Instant};

use crate::tally::Tally;
use crate::tee;

/// A command with a name that people read.
pub(crate) struct Step {
    pub(crate) name: &'static str,
    command: Command,
    /// A cargo subcommand that may be missing.
    needs: Option<&'static str>,
    left_out: Option<&'static str>,
    /// Whether it prints the results of tests.
    counted: bool,
    /// Whether all may pass without it.
    optional: bool,
}

/// What came of a step.
pub(crate) enum Outcome {
    /// It ran: whether it succeeded, what its tests came to, how long it took.
    Ran {
        succeeded: bool,
        tally: Option<Tally>,
        took: Duration,
    },
    /// It failed and is not needed: the tests that need it say so themselves.
    NotNeeded,
    /// It did not run: why.
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
        Self { counted: true, ..self }
    }

    /// May fail.
    pub(crate) fn optional(self) -> Self {
        Self { optional: true, ..self }
    }

    pub(crate) fn run(mut self: &Self) -> Outcome {
        unimplemented!()
    }
}
