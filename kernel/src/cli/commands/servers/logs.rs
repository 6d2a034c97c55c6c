//! `mgp servers logs`.

use mgp_engine::timestamps::render_rfc3339;
use mgp_protocol::mcp::Method;
use mgp_protocol::mgp::servers::{Log, LogLine, LogLines, Logs};

use crate::cli::args;
use crate::cli::client::{CliContext, RequestObserver, parse_result};
use crate::cli::failure::Failure;
use crate::cli::print::print_line;
use crate::cli::text_format::sanitize_line;

pub(super) fn show(context: &CliContext, logs: args::Logs) -> Result<(), Failure> {
    let params = Logs {
        id: logs.id,
        lines: Some(logs.lines),
        follow: logs.follow,
    };
    let mut tail = LogPrinter { json: context.json };
    let answer = context.call_about_server(&params.id, Logs::METHOD, &params, &mut tail)?;
    if params.follow {
        return Ok(());
    }
    parse_result::<LogLines>(&answer)?
        .lines
        .iter()
        .try_for_each(|line| tail.print(line))
}

/// Prints new lines.
struct LogPrinter {
    json: bool,
}

impl LogPrinter {
    fn print(&self, line: &LogLine) -> Result<(), Failure> {
        if self.json {
            print_line(serde_json::to_string(line).expect("a line is always JSON"))
        } else {
            print_line(render_line(line))
        }
    }
}

impl RequestObserver for LogPrinter {
    fn on_notification(&mut self, method: &str, params: &str) -> Result<(), Failure> {
        if method != Log::METHOD {
            return Ok(());
        }
        match serde_json::from_str::<Log>(params) {
            Ok(log) => self.print(&log.line),
            Err(_) => Ok(()),
        }
    }
}

fn render_line(line: &LogLine) -> String {
    let at = render_rfc3339(i64::try_from(line.at_ms / 1000).unwrap_or(i64::MAX), 0);
    // A server's output follows a marker that no line of the kernel has.
    let prefix = if line.from == "kernel" {
        "kernel:"
    } else {
        "|"
    };
    format!("{at} {prefix} {}", sanitize_line(&line.text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_the_kernel_and_the_server_are_distinguished() {
        let line = |from: &str| LogLine {
            at_ms: 1000,
            from: from.into(),
            text: "hi".into(),
        };
        assert_eq!(render_line(&line("server")), "1970-01-01T00:00:01Z | hi");
        assert_eq!(
            render_line(&line("kernel")),
            "1970-01-01T00:00:01Z kernel: hi"
        );
    }
}
