//! `mgp servers logs`.

use mgp_protocol::mcp::Method;
use mgp_protocol::mgp::servers::{Log, LogLine, LogLines, Logs};

use super::client::{Listener, Opening, read};
use super::command;
use super::context::Context;
use super::failure::Failure;
use super::names;
use super::output::say;
use super::words::plain;
use mgp_engine::timestamps::rfc3339;

pub(super) fn show(context: &Context, logs: command::Logs) -> Result<(), Failure> {
    let params = Logs {
        id: logs.id,
        lines: Some(logs.lines),
        follow: logs.follow,
    };
    let mut tail = Tail { json: context.json };
    let answer = context.with_kernel(Opening::default(), async |client| {
        names::server(client, &params.id).await?;
        client.request(Logs::METHOD, &params, &mut tail).await
    })?;
    if params.follow {
        return Ok(());
    }
    read::<LogLines>(&answer)?
        .lines
        .iter()
        .try_for_each(|line| tail.line(line))
}

/// Prints lines as they come.
struct Tail {
    json: bool,
}

impl Tail {
    fn line(&self, line: &LogLine) -> Result<(), Failure> {
        match self.json {
            true => say(serde_json::to_string(line).expect("a line is always JSON")),
            false => say(told(line)),
        }
    }
}

impl Listener for Tail {
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

fn told(line: &LogLine) -> String {
    let at = rfc3339(i64::try_from(line.at_ms / 1000).unwrap_or(i64::MAX), 0);
    let by = if line.from == "kernel" {
        " kernel:"
    } else {
        ""
    };
    format!("{at}{by} {}", plain(&line.text))
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
        assert_eq!(told(&line("server")), "1970-01-01T00:00:01Z hi");
        assert_eq!(told(&line("kernel")), "1970-01-01T00:00:01Z kernel: hi");
    }
}
