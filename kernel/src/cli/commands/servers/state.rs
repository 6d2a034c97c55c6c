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

/// How the state of a server is shown that nobody uses and a call starts.
pub(in crate::cli::commands) const SLEEPING: &str = "sleeping";

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
    let state = if server.sleeping {
        SLEEPING
    } else {
        &server.state
    };
    let mut text = format!("{} is {state}", server.id);
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
    if server.sleeping {
        return Some(match server.start_ms {
            Some(ms) => format!(
                "a call starts it, which took {}.{} s",
                ms / 1000,
                ms % 1000 / 100
            ),
            None => "a call starts it".to_owned(),
        });
    }
    if server.state != "connected" || server.waiting_turn > 0 {
        let reason = first_line(server.reason.as_deref()?, most);
        return Some(match &server.said {
            Some(said) => format!("{reason}: {}", first_line(said, most)),
            None => reason,
        });
    }
    let refused = server.sandbox.as_ref().map(|sandbox| &sandbox.refused);
    if let Some([first, more @ ..]) = refused.map(Vec::as_slice) {
        let first = first_line(first, most);
        return Some(match more.len() {
            0 => format!("egress refused: {first}"),
            more => format!("egress refused: {first} (and {more} more)"),
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
    if server.sleeping {
        return SLEEPING.to_owned();
    }
    let state = sanitize_line(&server.state);
    match server.health.as_deref() {
        None | Some("healthy") => state,
        Some(health) => format!("{state} ({})", sanitize_line(health)),
    }
}

/// The number of servers, of those that run and that sleep, and their memory; `None` without servers.
pub(in crate::cli::commands) fn count_servers(servers: &[Server]) -> Option<String> {
    let is_running = |server: &&Server| server.pid.is_some() || server.state == "connected";
    let running = servers.iter().filter(is_running).count();
    let sleeping = servers.iter().filter(|server| server.sleeping).count();
    let used = servers.iter().filter_map(|server| server.uses);
    let memory: u64 = used.map(|used| used.memory_bytes).sum();
    let mut text = match servers.len() {
        0 => return None,
        1 => "1 server".to_owned(),
        many => format!("{many} servers"),
    };
    text += &format!(", {running} running");
    if sleeping > 0 {
        text += &format!(", {sleeping} sleeping");
    }
    if memory > 0 {
        text += &format!(", {}", format_bytes(memory));
    }
    Some(text)
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

    /// PRJ-021
    #[test]
    fn sleeping_servers_are_counted_and_named() {
        let running = Server {
            state: "connected".into(),
            pid: Some(7),
            uses: Some(mgp_protocol::mgp::health::ResourcesInUse {
                memory_bytes: 112 << 20,
                ..Default::default()
            }),
            ..Server::default()
        };
        let sleeping = Server {
            id: "fetch".into(),
            state: "disconnected".into(),
            sleeping: true,
            start_ms: Some(840),
            reason: Some("sleeping: a call starts it".into()),
            ..Server::default()
        };
        assert_eq!(state_label(&sleeping), "sleeping");
        let shown = render_state(&sleeping);
        assert_eq!(
            shown,
            "fetch is sleeping: a call starts it, which took 0.8 s"
        );
        let counted = count_servers(&[running, sleeping]).unwrap();
        assert_eq!(counted, "2 servers, 1 running, 1 sleeping, 112 MiB");
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
