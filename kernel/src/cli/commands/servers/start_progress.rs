//! Starts a server from the command line, and shows its output while that takes time.

use mgp_protocol::mcp::Method;
use mgp_protocol::mgp::servers::{Log, Server};
use serde_json::json;

use crate::cli::client::{CliContext, ProgressLine, RequestObserver, parse_result};
use crate::cli::failure::Failure;
use crate::cli::text_format::first_line;

/// Lines buffered until a start becomes slow.
const BUFFERED_LINES_MAX: usize = 100;
/// Most characters of a line.
const LINE_WIDTH_MAX: usize = 200;

/// How a server is restarted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StartMode {
    /// Stops it first if it runs.
    Plain,
    /// Without a gap.
    Rolling,
}

/// Requests a start, a restart or a stop by `method`, and waits for the result.
pub(super) fn start_and_watch(
    context: &CliContext,
    method: &str,
    doing: &str,
    id: &str,
    how: StartMode,
) -> Result<Server, Failure> {
    // JSON output has no other lines.
    let log = !context.json;
    let mut params = json!({"id": id, "log": log, "_meta": {"progressToken": 1}});
    if how == StartMode::Rolling {
        params["rolling"] = true.into();
    }
    let mut starting = StartObserver {
        progress: ProgressLine::new(format!("{doing} {id}")),
        buffered: Vec::new(),
        late: false,
    };
    parse_result(&context.call_about_server(id, method, &params, &mut starting)?)
}

/// Prints a server's output once its start is slow: a fast start needs no explanation.
struct StartObserver {
    progress: ProgressLine,
    buffered: Vec<String>,
    late: bool,
}

impl StartObserver {
    fn on_output(&mut self, log: &Log) {
        let line = format!("{}: {}", log.id, first_line(&log.line.text, LINE_WIDTH_MAX));
        match self.late {
            true => self.progress.print_above(&line),
            false if self.buffered.len() < BUFFERED_LINES_MAX => self.buffered.push(line),
            false => {}
        }
    }
}

impl RequestObserver for StartObserver {
    fn on_delay(&mut self) {
        self.late = true;
        self.progress.on_delay();
        for line in self.buffered.drain(..) {
            self.progress.print_above(&line);
        }
    }

    fn on_notification(&mut self, method: &str, params: &str) -> Result<(), Failure> {
        if method != Log::METHOD {
            return self.progress.on_notification(method, params);
        }
        if let Ok(log) = serde_json::from_str(params) {
            self.on_output(&log);
        }
        Ok(())
    }

    fn yield_terminal(&mut self, wanted: bool) {
        self.progress.yield_terminal(wanted);
    }
}
