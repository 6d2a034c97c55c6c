//! A server that is started from the command line: what it writes is shown while that takes its time.

use mgp_protocol::mcp::Method;
use mgp_protocol::mgp::servers::{Log, Server};
use serde_json::json;

use super::client::{Listener, Opening, read};
use super::context::Context;
use super::failure::Failure;
use super::names;
use super::progress::Progress;
use super::words::one_line;

/// Lines kept for the moment a start becomes slow.
const KEPT: usize = 100;
/// Most characters of a line.
const WIDTH: usize = 200;

/// Asks for a start, a restart or its end by `method`, and waits until that has come to something.
pub(super) fn watch(
    context: &Context,
    method: &str,
    doing: &str,
    id: &str,
) -> Result<Server, Failure> {
    // A program that reads JSON is told nothing else.
    let log = !context.json;
    let params = json!({"id": id, "log": log, "_meta": {"progressToken": 1}});
    let mut starting = Starting {
        progress: Progress::of(format!("{doing} {id}")),
        kept: Vec::new(),
        late: false,
    };
    context.with_kernel(Opening::default(), async |client| {
        names::server(client, id).await?;
        read(&client.request(method, &params, &mut starting).await?)
    })
}

/// Shows what a server writes from the moment its start is slow: one that is there at once has nothing
/// to explain.
struct Starting {
    progress: Progress,
    kept: Vec<String>,
    late: bool,
}

impl Starting {
    fn wrote(&mut self, log: &Log) {
        let line = format!("{}: {}", log.id, one_line(&log.line.text, WIDTH));
        match self.late {
            true => self.progress.above(&line),
            false if self.kept.len() < KEPT => self.kept.push(line),
            false => {}
        }
    }
}

impl Listener for Starting {
    fn late(&mut self) {
        self.late = true;
        self.progress.late();
        for line in self.kept.drain(..) {
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

    fn make_way(&mut self, wanted: bool) {
        self.progress.make_way(wanted);
    }
}
