//! `mgp servers logs`.

use mgp_engine::timestamps::rfc3339;
use mgp_protocol::mcp::Method;
use mgp_protocol::mgp::servers::{Log, LogLine, LogLines, Logs};

use crate::cli::args;
use crate::cli::client::{CliContext, RequestObserver, read};
use crate::cli::failure::Failure;
use crate::cli::print::say;
use crate::cli::words::plain;

pub(super) fn show(context: &CliContext, logs: args::Logs) -> Result<(), Failure> {
    let params = Logs {
        id: logs.id,
        lines: Some(logs.lines),
        follow: logs.follow,
    };
    let mut tail = LogTail { json: context.json };
    let answer = context.ask_about(&params.id, Logs::METHOD, &params, &mut tail)?;
    if params.follow {
        return Ok(());
    }
    read::<LogLines>(&answer)?
        .lines
        .iter()
        .try_for_each(|line| tail.line(line))
}

/// Prints lines as they come.
struct LogTail {
    json: bool,
}

impl LogTail {
    fn line(&self, line: &LogLine) -> Result<(), Failure> {
        match self.json {
            true => say(serde_json::to_string(line).expect("a line is always JSON")),
            false => say(in_words(line)),
        }
    }
}

impl RequestObserver for LogTail {
    fn notified(&mut self, method: &str, params: &str) -> Result<(), Failure> {
        if method != Log::METHOD {
            return Ok(());
        }
        match serde_json::from_str::<Log>(params) {
            Ok(log) => self.line(&log.line),
            Err(_) => Ok(()),
        }
    }
}

fn in_words(line: &LogLine) -> String {
    let at = rfc3339(i64::try_from(line.at_ms / 1000).unwrap_or(i64::MAX), 0);
    // What a server wrote stands behind a mark that no line of the kernel has.
    let by = if line.from == "kernel" {
        "kernel:"
    } else {
        "|"
    };
    format!("{at} {by} {}", plain(&line.text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_own_lines_are_told_from_the_servers() {
        let line = |from: &str| LogLine {
            at_ms: 1000,
            from: from.into(),
            text: "hi".into(),
        };
        assert_eq!(in_words(&line("server")), "1970-01-01T00:00:01Z | hi");
        assert_eq!(in_words(&line("kernel")), "1970-01-01T00:00:01Z kernel: hi");
    }
}
