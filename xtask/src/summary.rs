//! The summary of a run: results, and steps that were not run.

use std::fmt;

use crate::step::{Outcome, StepResult};
use crate::tally::Tally;

/// The results of a run.
#[derive(Default)]
pub(crate) struct Summary {
    outcomes: Vec<Outcome>,
}

impl Summary {
    pub(crate) fn add(&mut self, outcome: Outcome) {
        self.outcomes.push(outcome);
    }

    /// True when nothing failed.
    pub(crate) fn is_success(&self) -> bool {
        self.failed_steps().next().is_none()
    }

    fn failed_steps(&self) -> impl Iterator<Item = &str> {
        let failed = self
            .outcomes
            .iter()
            .filter(|o| matches!(o.result, StepResult::Failed));
        failed.map(|outcome| outcome.name)
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut total = Tally::default();
        writeln!(f, "\n== what ran")?;
        for outcome in &self.outcomes {
            writeln!(f, "{outcome}")?;
            total += outcome.tally.unwrap_or_default();
        }
        let failed: Vec<&str> = self.failed_steps().collect();
        if !failed.is_empty() {
            writeln!(f, "\nFAILED: {}", failed.join(", "))?;
        }
        // Last, so that it is at the end of a long log.
        for outcome in self.outcomes.iter().filter(|o| !o.failures.is_empty()) {
            let said = match outcome.result {
                StepResult::Passed => "UNSTEADY, passed when run once more",
                StepResult::Failed | StepResult::NotRun(_) => "FAILED",
            };
            write!(f, "\n{said}:\n{}", outcome.failures)?;
        }
        writeln!(f, "\n{total}")
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, seconds) = (self.name, self.duration.as_secs());
        match &self.result {
            StepResult::Passed => write!(f, "passed   {name} ({seconds} s)")?,
            StepResult::Failed => write!(f, "FAILED   {name} ({seconds} s)")?,
            StepResult::NotRun(why) => write!(f, "not run  {name}: {why}")?,
        }
        self.tally.map_or(Ok(()), |tally| write!(f, ": {tally}"))
    }
}
