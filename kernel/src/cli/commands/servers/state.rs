//! The state of a server, as text and in a table.

use mgp_protocol::mgp::servers::{Instance, Server};

use crate::cli::client::CliContext;
use crate::cli::failure::Failure;
use crate::cli::print::{PlainTable, new_table, print_line};
use crate::cli::text_format::{
    first_line, format_bytes, format_duration, pluralize, sanitize_line,
};

/// The expected state after a start.
pub(super) const CONNECTED: &[&str] = &["connected"];
/// The expected states after a stop; a failed server stays in error.
pub(super) const STOPPED: &[&str] = &["disconnected", "registered", "error"];

/// Most characters of a reason, or of a server's output, in a table.
const CELL_WIDTH_MAX: usize = 120;

/// Prints the state of a server; a failure if it is not the wanted one.
pub(super) fn report_state(
    context: &CliContext,
    server: &Server,
    wanted: &[&str],
) -> Result<(), Failure> {
    let state = render_state(server);
    if context.json {
        print_line(serde_json::to_string(server).expect("a server is always JSON"))?;
    }
    if wanted.contains(&server.state.as_str()) {
        return if context.json {
            Ok(())
        } else {
            print_line(sanitize_line(&state))
        };
    }
    let logs = format!("`mgp servers logs {}` shows what it wrote", server.id);
    Err(Failure::Other(format!("{state}; {logs}")))
}

fn render_state(server: &Server) -> String {
    let mut text = format!("{} is {}", server.id, server.state);
    if let Some(reason) = render_reason(server, usize::MAX) {
        text += &format!(": {reason}");
    }
    if let Some(ms) = server.next_try_ms {
        text += &format!(" (next try in {})", format_duration(ms));
    }
    // The lists arrive a moment after the handshake.
    if server.state == "connected" && server.tools > 0 {
        text += &format!(", {}", pluralize(server.tools, "tool"));
    }
    text
}

/// The reason of the state, and the server's output about it, each shortened; for a server in the expected state,
/// what is pending or missing.
pub(in crate::cli::commands) fn render_reason(server: &Server, most: usize) -> Option<String> {
    if server.state != "connected" || server.waiting_turn > 0 {
        let reason = first_line(server.reason.as_deref()?, most);
        return Some(match &server.said {
            Some(said) => format!("{reason}: {}", first_line(said, most)),
            None => reason,
        });
    }
    if let Some(rolling) = &server.rolling {
        return Some(first_line(rolling, most));
    }
    let (word, list) = if !server.left_out.is_empty() {
        ("left out", &server.left_out)
    } else {
        ("repaired", &server.repaired)
    };
    let Some((first, more)) = list.split_first() else {
        return render_instances(server).map(|instance_owners| first_line(&instance_owners, most));
    };
    let first = first_line(first, most);
    Some(match more.len() {
        0 => format!("{word}: {first}"),
        more => format!("{word}: {first} (and {more} more)"),
    })
}

/// The owners of its instances.
fn render_instances(server: &Server) -> Option<String> {
    let instance_owners: Vec<_> = server.instances.iter().map(instance_owner).collect();
    match instance_owners.len() {
        0 => None,
        1 => Some(format!("1 instance: {}", instance_owners[0])),
        many => Some(format!("{many} instances: {}", instance_owners.join(", "))),
    }
}

/// The agent of an instance, and its folder.
pub(super) fn instance_owner(one: &Instance) -> String {
    match &one.folder {
        Some(folder) => sanitize_line(&format!("{} in {folder}", one.agent)),
        None => sanitize_line(&one.agent),
    }
}

/// Its state, and its health unless good.
pub(in crate::cli::commands) fn state_label(server: &Server) -> String {
    let state = sanitize_line(&server.state);
    match server.health.as_deref() {
        None | Some("healthy") => state,
        Some(health) => format!("{state} ({})", sanitize_line(health)),
    }
}

/// One row for each server.
pub(in crate::cli::commands) fn state_table(servers: &[Server]) -> PlainTable {
    let mut table = new_table(&[
        "SERVER", "STATE", "SINCE", "TOOLS", "PID", "MEMORY", "CPU", "RESTARTS", "NEXT TRY", "WHY",
    ]);
    for server in servers {
        let pid = server.pid.map(|pid| pid.to_string());
        let used = server.uses;
        let memory = used.map(|used| format_bytes(used.memory_bytes));
        let cpu = used.map(|used| format!("{:.1} s", used.cpu_seconds));
        let next = server
            .next_try_ms
            .map(|ms| format!("in {}", format_duration(ms)));
        table.add_row([
            sanitize_line(&server.id),
            state_label(server),
            format_duration(server.since_ms),
            server.tools.to_string(),
            pid.unwrap_or_default(),
            memory.unwrap_or_default(),
            cpu.unwrap_or_default(),
            server.restarts.to_string(),
            next.unwrap_or_default(),
            render_reason(server, CELL_WIDTH_MAX).unwrap_or_default(),
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
    fn a_server_that_is_down_shows_the_reason_and_the_next_retry() {
        let shown = state_table(&[down()]).to_string();
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
            render_state(&down()).ends_with("(next try in 12 s)"),
            "{}",
            render_state(&down())
        );
    }
}
