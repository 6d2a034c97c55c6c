//! The state of a server, in words and in a table.

use mgp_protocol::mgp::servers::{Instance, Server};

use crate::cli::client::CliContext;
use crate::cli::failure::Failure;
use crate::cli::print::{PlainTable, say, table};
use crate::cli::words::{bytes, counted, one_line, plain, time};

/// The state of a server that was to start.
pub(super) const CONNECTED: &[&str] = &["connected"];
/// The states of a server that was to stop; one that had failed stays in error.
pub(super) const STOPPED: &[&str] = &["disconnected", "registered", "error"];

/// Most characters of a reason, and of what a server says of it, in a table.
const CELL: usize = 120;

/// Says where a server is now; a failure when that is not where it should be.
pub(super) fn tell(context: &CliContext, server: &Server, wanted: &[&str]) -> Result<(), Failure> {
    let state = in_words(server);
    if context.json {
        say(serde_json::to_string(server).expect("a server is always JSON"))?;
    }
    if wanted.contains(&server.state.as_str()) {
        return if context.json {
            Ok(())
        } else {
            say(plain(&state))
        };
    }
    let logs = format!("`mgp servers logs {}` shows what it wrote", server.id);
    Err(Failure::Other(format!("{state}; {logs}")))
}

fn in_words(server: &Server) -> String {
    let mut text = format!("{} is {}", server.id, server.state);
    if let Some(reason) = why(server, usize::MAX) {
        text += &format!(": {reason}");
    }
    if let Some(ms) = server.next_try_ms {
        text += &format!(" (next try in {})", time(ms));
    }
    // The lists come a moment after the handshake.
    if server.state == "connected" && server.tools > 0 {
        text += &format!(", {}", counted(server.tools, "tool"));
    }
    text
}

/// Why a server is where it is, and what it wrote of that itself, each in so many characters; of one that is
/// where it should be, who waits or what is missing all the same.
pub(in crate::cli::commands) fn why(server: &Server, most: usize) -> Option<String> {
    if server.state != "connected" || server.waiting_turn > 0 {
        let reason = one_line(server.reason.as_deref()?, most);
        return Some(match &server.said {
            Some(said) => format!("{reason}: {}", one_line(said, most)),
            None => reason,
        });
    }
    if let Some(rolling) = &server.rolling {
        return Some(one_line(rolling, most));
    }
    let (word, list) = match server.left_out.is_empty() {
        false => ("left out", &server.left_out),
        true => ("repaired", &server.repaired),
    };
    let Some((first, more)) = list.split_first() else {
        return instances(server).map(|whose| one_line(&whose, most));
    };
    let first = one_line(first, most);
    Some(match more.len() {
        0 => format!("{word}: {first}"),
        more => format!("{word}: {first} (and {more} more)"),
    })
}

/// Whose instances of it there are.
fn instances(server: &Server) -> Option<String> {
    let whose: Vec<_> = server.instances.iter().map(whose).collect();
    match whose.len() {
        0 => None,
        1 => Some(format!("1 instance: {}", whose[0])),
        many => Some(format!("{many} instances: {}", whose.join(", "))),
    }
}

/// The agent of an instance, and the folder it runs in.
pub(super) fn whose(one: &Instance) -> String {
    match &one.folder {
        Some(folder) => plain(&format!("{} in {folder}", one.agent)),
        None => plain(&one.agent),
    }
}

/// Its state, and how it is unless that is well.
pub(in crate::cli::commands) fn standing(server: &Server) -> String {
    let state = plain(&server.state);
    match server.health.as_deref() {
        None | Some("healthy") => state,
        Some(health) => format!("{state} ({})", plain(health)),
    }
}

/// One row for each server.
pub(in crate::cli::commands) fn rows(servers: &[Server]) -> PlainTable {
    let mut table = table(&[
        "SERVER", "STATE", "SINCE", "TOOLS", "PID", "MEMORY", "CPU", "RESTARTS", "NEXT TRY", "WHY",
    ]);
    for server in servers {
        let pid = server.pid.map(|pid| pid.to_string());
        let used = server.uses;
        let memory = used.map(|used| bytes(used.memory_bytes));
        let cpu = used.map(|used| format!("{:.1} s", used.cpu_seconds));
        let next = server.next_try_ms.map(|ms| format!("in {}", time(ms)));
        table.add_row([
            plain(&server.id),
            standing(server),
            time(server.since_ms),
            server.tools.to_string(),
            pid.unwrap_or_default(),
            memory.unwrap_or_default(),
            cpu.unwrap_or_default(),
            server.restarts.to_string(),
            next.unwrap_or_default(),
            why(server, CELL).unwrap_or_default(),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    fn down() -> Server {
        Server {
            id: "files".into(),
            state: "restarting".into(),
            reason: Some("exited with 1\nsecond line".into()),
            said: Some("Error: \u{1b}[31mno such folder".into()),
            since_ms: 3000,
            next_try_ms: Some(12_000),
            restarts: 2,
            ..Server::default()
        }
    }

    #[test]
    fn a_server_that_is_down_shows_why_and_when_it_is_tried_again() {
        let shown = rows(&[down()]).to_string();
        let row: Vec<_> = shown
            .lines()
            .nth(1)
            .unwrap()
            .split("  ")
            .map(str::trim)
            .collect();
        let row: Vec<_> = row.into_iter().filter(|cell| !cell.is_empty()).collect();
        assert_eq!(
            row,
            [
                "files",
                "restarting",
                "3 s",
                "0",
                "2",
                "in 12 s",
                "exited with 1: Error: no such folder"
            ]
        );
        assert!(
            in_words(&down()).ends_with("(next try in 12 s)"),
            "{}",
            in_words(&down())
        );
    }
}
