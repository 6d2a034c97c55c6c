//! The result of a replay.

use mgp_engine::calls::recorder::comparison::AnswerDifference;
use mgp_engine::calls::recorder::replay::{ReplayStep, SkippedStep};
use serde_json::{Value, json};

use crate::cli::failure::Failure;
use crate::cli::print::print_line;
use crate::cli::text_format::{first_line, sanitize_line};

/// Longest value in a difference, in characters.
const VALUE_WIDTH_MAX: usize = 200;

/// The number of equal answers, and the different ones.
#[derive(Default)]
pub(super) struct ReplayReport {
    pub(super) played: usize,
    pub(super) same: usize,
    pub(super) different: Vec<DifferentStep>,
    pub(super) skipped: Vec<SkippedStep>,
}

/// A request with a different answer.
pub(super) struct DifferentStep {
    line: usize,
    method: String,
    subject: Option<String>,
    differences: Vec<AnswerDifference>,
}

impl DifferentStep {
    pub(super) fn new(step: &ReplayStep, differences: Vec<AnswerDifference>) -> Self {
        Self {
            line: step.line,
            method: step.method.clone(),
            subject: step.target.clone(),
            differences,
        }
    }

    fn render(&self) -> String {
        let about = self.subject.as_deref().unwrap_or_default();
        let what = format!("{} {about}", self.method);
        let what = sanitize_line(what.trim_end());
        let mut lines = vec![format!("line {}: {what}", self.line)];
        for difference in &self.differences {
            let at = match difference.path.as_str() {
                "" => "(the whole answer)",
                at => at,
            };
            lines.push(format!("  {}", sanitize_line(at)));
            let sides = [("-", &difference.recorded), ("+", &difference.replayed)];
            for (sign, value) in sides {
                if let Some(value) = value {
                    lines.push(format!(
                        "  {sign} {}",
                        first_line(&value.to_string(), VALUE_WIDTH_MAX)
                    ));
                }
            }
        }
        lines.join("\n")
    }

    fn to_json(&self) -> Value {
        let differences = self
            .differences
            .iter()
            .map(|one| json!({"at": one.path, "recorded": one.recorded, "now": one.replayed}));
        json!({
            "line": self.line,
            "method": self.method,
            "about": self.subject,
            "differences": differences.collect::<Vec<_>>(),
        })
    }
}

impl ReplayReport {
    pub(super) fn show(&self, as_json: bool) -> Result<(), Failure> {
        if as_json {
            return print_line(self.to_json());
        }
        for different in &self.different {
            print_line(different.render())?;
        }
        for skipped in &self.skipped {
            print_line(sanitize_line(&skipped.to_string()))?;
        }
        print_line(format!(
            "{} played, {} the same, {} different, {} not played",
            self.played,
            self.same,
            self.different.len(),
            self.skipped.len()
        ))
    }

    fn to_json(&self) -> Value {
        let different: Vec<Value> = self.different.iter().map(DifferentStep::to_json).collect();
        let skipped = self.skipped.iter().map(|one| {
            json!({"line": one.line, "method": one.method, "about": one.target, "why": one.reason})
        });
        json!({
            "played": self.played,
            "same": self.same,
            "different": different,
            "skipped": skipped.collect::<Vec<_>>(),
        })
    }

    /// A replay without comparisons fails.
    pub(super) fn to_result(&self) -> Result<(), Failure> {
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
