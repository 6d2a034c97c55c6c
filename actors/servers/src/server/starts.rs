//! What the operator is told about a start: its progress, and the last output of one that failed. Agents see
//! none of it, because a server may write anything to stderr.

use std::sync::Arc;
use std::time::Duration;

use mgp_engine::clock::MonotonicTime;
use mgp_engine::servers::spec::{Reach, ServerSpec};
use mgp_engine::servers::start_order::start_words::{busy, shown, telling};
use mgp_transports::log::{Author, LogLine, ServerLog};

use mgp_runtime::time::{moment, unix_ms};

/// Lines searched for the one that explains the end: a stack trace and what led to it.
const LAST: usize = 50;
/// Output older than this does not explain the end.
const RECENT: Duration = Duration::from_secs(10);

/// A life from its start on.
#[derive(Debug, Clone)]
pub struct Start {
    since: MonotonicTime,
    /// The number of the last log line before this life.
    after: u64,
    busy: Arc<str>,
}

impl Start {
    /// Begins now.
    pub(super) fn of(spec: &ServerSpec, log: &ServerLog) -> Self {
        let busy = match &spec.reach {
            Reach::Stdio { command, .. } => busy(command),
            // The URL may hold a secret.
            Reach::Http { .. } | Reach::Node(_) => "it has not answered yet".into(),
        };
        Self {
            since: moment(),
            after: *log.follow().borrow(),
            busy: busy.into(),
        }
    }

    /// What the start is waiting for, and for how long.
    pub(super) fn told(&self) -> String {
        let secs = moment().since(self.since).as_secs();
        format!("{}, {secs} s", self.busy)
    }

    /// The number of the last line in the log before it.
    #[must_use]
    pub fn after(&self) -> u64 {
        self.after
    }

    /// The last line the server wrote.
    pub(super) fn newest(&self, log: &ServerLog) -> Option<String> {
        let lines = self.lines(log);
        let newest = lines.iter().rfind(|line| !line.text.trim().is_empty());
        newest.map(|line| shown(line.text.trim()))
    }

    /// The line of its last output that best explains its end.
    pub(super) fn last_words(&self, log: &ServerLog) -> Option<Arc<str>> {
        let long_ago = unix_ms().saturating_sub(RECENT.as_millis().try_into().unwrap_or(u64::MAX));
        let lines = self.lines(log);
        let recent = lines.iter().filter(|line| line.at_ms >= long_ago);
        let texts: Vec<&str> = recent.map(|line| &*line.text).collect();
        let last = &texts[texts.len().saturating_sub(LAST)..];
        telling(last).map(|line| shown(line).into())
    }

    fn lines(&self, log: &ServerLog) -> Vec<LogLine> {
        let mut lines = log.after(self.after);
        lines.retain(|line| line.author == Author::Server);
        lines
    }
}

/// The text for a server that waits for the operator.
pub(super) fn waiting(names: &[String]) -> String {
    match names {
        [] => "waits for approval: `mgp pending` is full, answer what is there".into(),
        [name] => format!("waits for approval: mgp approve {name}"),
        names => format!("waits for approval: mgp approve {}", names.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(log: &ServerLog) -> Start {
        Start {
            since: moment(),
            after: *log.follow().borrow(),
            busy: "npx downloads or starts it".into(),
        }
    }

    /// Output of an earlier life and notes of the kernel are not this life's words.
    #[test]
    fn a_start_speaks_for_itself() {
        let log = ServerLog::new();
        log.push(b"Error: of the life before");
        let start = of(&log);
        assert_eq!((start.newest(&log), start.last_words(&log)), (None, None));
        log.push(b"Error: no such folder");
        log.push(b"    at main");
        log.push(b"");
        log.note("it failed");
        assert_eq!(start.newest(&log).unwrap(), "at main");
        assert_eq!(
            start.last_words(&log).unwrap().as_ref(),
            "Error: no such folder"
        );
        assert_eq!(start.told(), "npx downloads or starts it, 0 s");
    }
}
