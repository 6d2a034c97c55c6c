//! Shows progress of anything slower than half a second: a moving line on a terminal, plain lines otherwise; always on
//! stderr.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use mgp_protocol::mcp::{self, Method};
use serde::Deserialize;

use super::observer::RequestObserver;
use crate::cli::failure::Failure;
use crate::cli::print::print_error;
use crate::cli::text_format::first_line;

/// Shortest time between two plain lines.
const LINE_INTERVAL: Duration = Duration::from_secs(1);

/// Shows the progress of one request.
pub(in crate::cli) struct ProgressLine {
    title: String,
    is_terminal: bool,
    bar: Option<ProgressBar>,
    last_params: Option<ProgressParams>,
    last_line: Option<Instant>,
}

/// The displayed part of `notifications/progress`.
#[derive(Clone, Default, Deserialize)]
struct ProgressParams {
    progress: Option<f64>,
    total: Option<f64>,
    message: Option<String>,
}

impl ProgressLine {
    /// `title` describes the action.
    pub(in crate::cli) fn new(title: impl Into<String>) -> Self {
        Self {
            title: title.into(),
            is_terminal: std::io::stderr().is_terminal(),
            bar: None,
            last_params: None,
            last_line: None,
        }
    }

    /// Shows the progress from now on.
    pub(in crate::cli) fn show(&mut self) {
        if !self.is_terminal {
            return self.print_line();
        }
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
        let style = ProgressStyle::with_template("{spinner} {msg} {elapsed}");
        bar.set_style(style.expect("the template is well formed"));
        bar.enable_steady_tick(Duration::from_millis(100));
        bar.set_message(self.render());
        self.bar = Some(bar);
    }

    /// Prints a line above the moving one.
    pub(in crate::cli) fn print_above(&self, line: &str) {
        match &self.bar {
            Some(bar) => bar.println(line),
            None => print_error(line),
        }
    }

    fn render(&self) -> String {
        match self
            .last_params
            .as_ref()
            .map(ProgressParams::render)
            .filter(|text| !text.is_empty())
        {
            Some(told) => format!("{}: {told}", self.title),
            None => self.title.clone(),
        }
    }

    fn print_line(&mut self) {
        print_error(self.render());
        self.last_line = Some(Instant::now());
    }
}

impl ProgressParams {
    fn render(&self) -> String {
        let steps = match (self.progress, self.total) {
            (Some(done), Some(total)) => format!("{done}/{total}"),
            (Some(done), None) => done.to_string(),
            (None, _) => String::new(),
        };
        match &self.message {
            Some(message) if steps.is_empty() => first_line(message, 60),
            Some(message) => format!("{steps}, {}", first_line(message, 60)),
            None => steps,
        }
    }
}

impl RequestObserver for ProgressLine {
    fn on_delay(&mut self) {
        self.show();
    }

    fn on_notification(&mut self, method: &str, params: &str) -> Result<(), Failure> {
        if method != mcp::Progress::METHOD {
            return Ok(());
        }
        self.last_params = serde_json::from_str(params).ok();
        match &self.bar {
            Some(bar) => bar.set_message(self.render()),
            // Plain lines start after the delay, at their interval.
            None if self
                .last_line
                .is_some_and(|at| at.elapsed() >= LINE_INTERVAL) =>
            {
                self.print_line()
            }
            None => {}
        }
        Ok(())
    }

    fn yield_terminal(&mut self, wanted: bool) {
        if let Some(bar) = &self.bar {
            if wanted {
                bar.disable_steady_tick();
                bar.set_draw_target(ProgressDrawTarget::hidden());
            } else {
                bar.set_draw_target(ProgressDrawTarget::stderr());
                bar.enable_steady_tick(Duration::from_millis(100));
            }
        }
    }
}

impl Drop for ProgressLine {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_shows_the_known_parts() {
        let text = |params: &str| {
            serde_json::from_str::<ProgressParams>(params)
                .unwrap()
                .render()
        };
        assert_eq!(text(r#"{"progressToken":1,"progress":2,"total":5}"#), "2/5");
        assert_eq!(
            text(r#"{"progress":2.5,"message":"half\nway"}"#),
            "2.5, half"
        );
        assert_eq!(text(r#"{"message":"connecting"}"#), "connecting");
    }
}
