//! What ran, what could not and why, and what it came to.

use std::fmt;

use crate::step::{End, Outcome};
use crate::tally::Tally;

/// The end of a run.
#[derive(Default)]
pub(crate) struct Summary {
    outcomes: Vec<Outcome>,
}

impl Summary {
    pub(crate) fn add(&mut self, outcome: Outcome) {
        self.outcomes.push(outcome);
    }

    /// True when nothing failed.
    pub(crate) fn passed(&self) -> bool {
        self.failed().next().is_none()
    }

    fn failed(&self) -> impl Iterator<Item = &str> {
        let failed = self
            .outcomes
            .iter()
            .filter(|o| matches!(o.end, End::Failed));
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
        let failed: Vec<&str> = self.failed().collect();
        if !failed.is_empty() {
            writeln!(f, "\nFAILED: {}", failed.join(", "))?;
        }
        // Last, where a reader who sees only the end of a long log finds it.
        for outcome in self.outcomes.iter().filter(|o| !o.failures.is_empty()) {
            let said = match outcome.end {
                End::Passed => "UNSTEADY, passed when run once more",
                End::Failed | End::NotRun(_) => "FAILED",
            };
            write!(f, "\n{said}:\n{}", outcome.failures)?;
        }
        writeln!(f, "\n{total}")
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, seconds) = (self.name, self.took.as_secs());
        match &self.end {
            End::Passed => write!(f, "passed   {name} ({seconds} s)")?,
            End::Failed => write!(f, "FAILED   {name} ({seconds} s)")?,
            End::NotRun(why) => write!(f, "not run  {name}: {why}")?,
        }
        self.tally.map_or(Ok(()), |tally| write!(f, ": {tally}"))
    }
}
