//! The connected clients in `mgp status`.

use mgp_protocol::mgp::kernel::{Client, KernelStatus};

use crate::cli::print::new_table;
use crate::cli::text_format::{first_line, format_duration, sanitize_line};

/// Most rows; more are counted.
const ROWS_MAX: usize = 20;

/// One row for each client, in the order of connecting.
pub(super) fn render_clients(status: &KernelStatus) -> String {
    let mut table = new_table(&[
        "AGENT",
        "CLIENT",
        "SPEAKS",
        "DOOR",
        "SINCE",
        "CALLS",
        "SILENT FOR",
    ]);
    for client in status.clients.iter().take(ROWS_MAX) {
        table.add_row([
            sanitize_line(&client.agent),
            program_label(client),
            client
                .speaks
                .as_deref()
                .map(sanitize_line)
                .unwrap_or_default(),
            endpoint_label(client),
            format_duration(client.since_ms),
            client.calls.to_string(),
            format_duration(client.silent_ms),
        ]);
    }
    let shown = status.clients.len().min(ROWS_MAX) as u64;
    match status.connections.saturating_sub(shown) {
        0 => table.to_string(),
        more => format!("{table}\nand {more} more; --json shows the first 1000"),
    }
}

/// Its name and version.
fn program_label(client: &Client) -> String {
    let words = [client.name.as_deref(), client.version.as_deref()];
    let words: Vec<_> = words.into_iter().flatten().collect();
    if words.is_empty() {
        "(does not say)".into()
    } else {
        first_line(&words.join(" "), 60)
    }
}

fn endpoint_label(client: &Client) -> String {
    match (&client.server, &client.set) {
        (Some(server), _) => format!("{} {}", sanitize_line(&client.door), sanitize_line(server)),
        (None, Some(set)) => format!("{} set {}", sanitize_line(&client.door), sanitize_line(set)),
        (None, None) => sanitize_line(&client.door),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(clients: usize) -> KernelStatus {
        let client = Client {
            agent: "agent.claude".into(),
            name: Some("claude\u{1b}[2J".into()),
            version: Some("2.1".into()),
            speaks: Some("2025-11-25".into()),
            door: "http".into(),
            server: Some("git".into()),
            set: None,
            since_ms: 300_000,
            silent_ms: 900,
            calls: 12,
            holds: 0,
            held: Vec::new(),
        };
        KernelStatus {
            connections: clients as u64,
            clients: vec![client; clients],
            ..KernelStatus::default()
        }
    }

    #[test]
    fn a_client_is_one_row_and_cannot_move_the_cursor() {
        let shown = render_clients(&status(1));
        let row: Vec<_> = shown.lines().nth(1).unwrap().split("  ").collect();
        let row: Vec<_> = row.iter().map(|cell| cell.trim()).collect();
        let row: Vec<_> = row.into_iter().filter(|cell| !cell.is_empty()).collect();
        assert_eq!(row[0], "agent.claude");
        assert!(
            row[1].starts_with("claude") && row[1].ends_with("2.1"),
            "{row:?}"
        );
        assert_eq!(
            row[2..],
            ["2025-11-25", "http git", "5 min", "12", "900 ms"]
        );
        assert!(!shown.contains('\u{1b}'));
    }

    #[test]
    fn rows_beyond_the_limit_are_counted() {
        let shown = render_clients(&status(ROWS_MAX + 7));
        assert!(shown.contains("and 7 more"), "{shown}");
        assert_eq!(shown.lines().count(), 1 + ROWS_MAX + 1);
    }
}
