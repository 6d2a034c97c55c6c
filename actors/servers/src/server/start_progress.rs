//! Start progress for the operator, and the last output of a failed start. Agents see none of it, because a
//! server may write anything to stderr.

use std::sync::Arc;
use std::time::Duration;

use mgp_engine::clock::MonotonicTime;
use mgp_engine::servers::spec::{ServerSpec, ServerTransport};
use mgp_engine::servers::start_order::start_diagnostics::{
    describe_activity, find_error_line, truncate_line,
};
use mgp_transports::log::{Author, LogLine, ServerLog};

use mgp_runtime::time::{monotonic_now, unix_ms};

/// The lines searched for the one that explains the end: a stack trace and its context.
const LINES_SEARCHED: usize = 50;
/// Older output does not explain the end.
const RECENT_OUTPUT_AGE: Duration = Duration::from_secs(10);

/// The start of a generation.
#[derive(Debug, Clone)]
pub struct StartProgress {
    since: MonotonicTime,
    /// The number of the last log line before this generation.
    log_position: u64,
    activity: Arc<str>,
}

impl StartProgress {
    /// Creates it at the start of a generation.
    pub(super) fn begin(spec: &ServerSpec, log: &ServerLog) -> Self {
        let busy = match &spec.transport {
            ServerTransport::Stdio { command, .. } => describe_activity(command),
            // The URL may contain a secret.
            ServerTransport::Http { .. } | ServerTransport::Node(_) => {
                "it has not answered yet".into()
            }
        };
        Self {
            since: monotonic_now(),
            log_position: *log.follow().borrow(),
            activity: busy.into(),
        }
    }

    /// What the start is waiting for, and for how long.
    pub(super) fn describe(&self) -> String {
        let secs = monotonic_now().duration_since(self.since).as_secs();
        format!("{}, {secs} s", self.activity)
    }

    /// The time since it began.
    pub(super) fn elapsed(&self) -> Duration {
        monotonic_now().duration_since(self.since)
    }

    /// The number of the last log line before it.
    #[must_use]
    pub fn log_position(&self) -> u64 {
        self.log_position
    }

    /// The last line that the server wrote.
    pub(super) fn last_line(&self, log: &ServerLog) -> Option<String> {
        let lines = self.output_lines(log);
        let newest = lines.iter().rfind(|line| !line.text.trim().is_empty());
        newest.map(|line| truncate_line(line.text.trim()))
    }

    /// The output line that best explains the end.
    pub(super) fn explain_exit(&self, log: &ServerLog) -> Option<Arc<str>> {
        let long_ago =
            unix_ms().saturating_sub(RECENT_OUTPUT_AGE.as_millis().try_into().unwrap_or(u64::MAX));
        let lines = self.output_lines(log);
        let recent = lines.iter().filter(|line| line.at_ms >= long_ago);
        let texts: Vec<&str> = recent.map(|line| &*line.text).collect();
        let last = &texts[texts.len().saturating_sub(LINES_SEARCHED)..];
        find_error_line(last).map(|line| truncate_line(line).into())
    }

    fn output_lines(&self, log: &ServerLog) -> Vec<LogLine> {
        let mut lines = log.lines_after(self.log_position);
        lines.retain(|line| line.author == Author::Server);
        lines
    }
}

/// The text for a server that waits for the operator.
pub(super) fn describe_waiting(names: &[String]) -> String {
    match names {
        [] => "waits for approval: `mgp pending` is full, answer what is there".into(),
        [name] => format!("waits for approval: mgp approve {name}"),
        names => format!("waits for approval: mgp approve {}", names.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn progress_for(log: &ServerLog) -> StartProgress {
        StartProgress {
            since: monotonic_now(),
            log_position: *log.follow().borrow(),
            activity: "npx downloads or starts it".into(),
        }
    }

    /// Output of an earlier generation and notes of the kernel do not belong to this generation.
    #[test]
    fn start_output_excludes_earlier_generations_and_notes() {
        let log = ServerLog::new();
        log.push(b"Error: of the life before");
        let start = progress_for(&log);
        assert_eq!(
            (start.last_line(&log), start.explain_exit(&log)),
            (None, None)
        );
        log.push(b"Error: no such folder");
        log.push(b"    at main");
        log.push(b"");
        log.push_note("it failed");
        assert_eq!(start.last_line(&log).unwrap(), "at main");
        assert_eq!(
            start.explain_exit(&log).unwrap().as_ref(),
            "Error: no such folder"
        );
        assert_eq!(start.describe(), "npx downloads or starts it, 0 s");
    }
}
