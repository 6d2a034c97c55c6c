//! Starts a server from the command line, and shows its output while that takes time.

use mgp_protocol::mcp::Method;
use mgp_protocol::mgp::servers::{Log, Server};
use serde_json::json;

use crate::cli::client::{CliContext, ProgressLine, RequestObserver, read};
use crate::cli::failure::Failure;
use crate::cli::words::one_line;

/// Lines held back for the moment a start becomes slow.
const HELD_BACK: usize = 100;
/// Most characters of a line.
const WIDTH: usize = 200;

/// How a server is started again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StartMode {
    /// Where it runs, it is stopped first.
    Plain,
    /// Without a gap.
    Rolling,
}

/// Asks for a start, a restart or its end by `method`, and waits until that has come to something.
pub(super) fn watch(
    context: &CliContext,
    method: &str,
    doing: &str,
    id: &str,
    how: StartMode,
) -> Result<Server, Failure> {
    // A program that reads JSON is told nothing else.
    let log = !context.json;
    let mut params = json!({"id": id, "log": log, "_meta": {"progressToken": 1}});
    if how == StartMode::Rolling {
        params["rolling"] = true.into();
    }
    let mut starting = Starting {
        progress: ProgressLine::of(format!("{doing} {id}")),
        held_back: Vec::new(),
        late: false,
    };
    read(&context.ask_about(id, method, &params, &mut starting)?)
}

/// Shows what a server writes from the moment its start is slow: one that is there at once has nothing
/// to explain.
struct Starting {
    progress: ProgressLine,
    held_back: Vec<String>,
    late: bool,
}

impl Starting {
    fn wrote(&mut self, log: &Log) {
        let line = format!("{}: {}", log.id, one_line(&log.line.text, WIDTH));
        match self.late {
            true => self.progress.above(&line),
            false if self.held_back.len() < HELD_BACK => self.held_back.push(line),
            false => {}
        }
    }
}

impl RequestObserver for Starting {
    fn late(&mut self) {
        self.late = true;
        self.progress.late();
        for line in self.held_back.drain(..) {
            self.progress.above(&line);
        }
    }

    fn notified(&mut self, method: &str, params: &str) -> Result<(), Failure> {
        if method != Log::METHOD {
            return self.progress.notified(method, params);
        }
        if let Ok(log) = serde_json::from_str(params) {
            self.wrote(&log);
        }
        Ok(())
    }

    fn yield_terminal(&mut self, wanted: bool) {
        self.progress.yield_terminal(wanted);
    }
}
