//! What came of a replay.

use mgp_engine::calls::recorder::comparing::AnswerDifference;
use mgp_engine::calls::recorder::replay::{ReplayStep, SkippedStep};
use serde_json::{Value, json};

use crate::cli::failure::Failure;
use crate::cli::print::say;
use crate::cli::words::{one_line, plain};

/// Longest value that is shown of a difference, in characters.
const SHOWN: usize = 200;

/// How many answers were the same, and which were not.
#[derive(Default)]
pub(super) struct ReplayReport {
    pub(super) played: usize,
    pub(super) same: usize,
    pub(super) different: Vec<DifferentStep>,
    pub(super) skipped: Vec<SkippedStep>,
}

/// A request whose answer is another one now.
pub(super) struct DifferentStep {
    line: usize,
    method: String,
    about: Option<String>,
    differences: Vec<AnswerDifference>,
}

impl DifferentStep {
    pub(super) fn of(step: &ReplayStep, differences: Vec<AnswerDifference>) -> Self {
        Self {
            line: step.line,
            method: step.method.clone(),
            about: step.about.clone(),
            differences,
        }
    }

    fn in_words(&self) -> String {
        let about = self.about.as_deref().unwrap_or_default();
        let what = format!("{} {about}", self.method);
        let what = plain(what.trim_end());
        let mut lines = vec![format!("line {}: {what}", self.line)];
        for difference in &self.differences {
            let at = match difference.at.as_str() {
                "" => "(the whole answer)",
                at => at,
            };
            lines.push(format!("  {}", plain(at)));
            let sides = [("-", &difference.recorded), ("+", &difference.now)];
            for (mark, value) in sides {
                if let Some(value) = value {
                    lines.push(format!("  {mark} {}", one_line(&value.to_string(), SHOWN)));
                }
            }
        }
        lines.join("\n")
    }

    fn in_json(&self) -> Value {
        let differences = self
            .differences
            .iter()
            .map(|one| json!({"at": one.at, "recorded": one.recorded, "now": one.now}));
        json!({
            "line": self.line,
            "method": self.method,
            "about": self.about,
            "differences": differences.collect::<Vec<_>>(),
        })
    }
}

impl ReplayReport {
    pub(super) fn show(&self, as_json: bool) -> Result<(), Failure> {
        if as_json {
            return say(self.in_json());
        }
        for different in &self.different {
            say(different.in_words())?;
        }
        for skipped in &self.skipped {
            say(plain(&skipped.to_string()))?;
        }
        say(format!(
            "{} played, {} the same, {} different, {} not played",
            self.played,
            self.same,
            self.different.len(),
            self.skipped.len()
        ))
    }

    fn in_json(&self) -> Value {
        let different: Vec<Value> = self.different.iter().map(DifferentStep::in_json).collect();
        let skipped = self.skipped.iter().map(|one| {
            json!({"line": one.line, "method": one.method, "about": one.about, "why": one.why})
        });
        json!({
            "played": self.played,
            "same": self.same,
            "different": different,
            "skipped": skipped.collect::<Vec<_>>(),
        })
    }

    /// A test that tests nothing has failed.
    pub(super) fn ends(&self) -> Result<(), Failure> {
        match (self.played, self.different.len()) {
            (0, _) => Err(Failure::Other("there was nothing to play".into())),
            (_, 0) => Ok(()),
            (_, 1) => Err(Failure::Other("1 answer is not the recorded one".into())),
            (_, many) => Err(Failure::Other(format!(
                "{many} answers are not the recorded ones"
            ))),
        }
    }
}
