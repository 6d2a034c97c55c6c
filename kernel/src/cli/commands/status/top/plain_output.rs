//! `mgp top --once` and `--json`: the screen as text and for programs.

use mgp_engine::timestamps::render_rfc3339_ms;
use serde_json::{Value, json};

use super::history::Rates;
use super::metrics::CallTotals;
use super::model::Model;
use super::number_format::{format_cpu, format_latency, format_rate};
use super::pending_entries::PendingRow;
use super::rows::Row;
use super::summary::total_server_memory;
use crate::cli::print::new_table;
use crate::cli::text_format::{first_line, format_bytes};

/// Most characters of an entry's text.
const TEXT_WIDTH_MAX: usize = 300;

/// The summary, the table, and the pending entries.
pub(super) fn render_text(model: &Model) -> String {
    let mut text = String::new();
    for (title, line) in model.summary.titled_lines() {
        text += &match title {
            "" => format!("{line}\n"),
            title => format!("{title:<7} {line}\n"),
        };
    }
    if !model.rows.is_empty() {
        text += &format!("\n{}\n", render_servers(&model.rows));
    }
    if !model.questions.is_empty() {
        text += &format!("\n{}\n", render_pending(&model.questions));
    }
    text
}

fn render_servers(rows: &[Row]) -> String {
    let mut table = new_table(&[
        "SERVER", "STATE", "CALLS/S", "ERR/S", "P50", "P99", "MEMORY", "CPU", "RESTARTS", "CALLS",
        "WHY",
    ]);
    for row in rows {
        table.add_row([
            row.name.clone(),
            row.state_label.clone(),
            format_rate(row.rates.calls),
            format_rate(row.rates.errors),
            format_latency(row.rates.p50_us),
            format_latency(row.rates.p99_us),
            row.memory.map_or("–".into(), format_bytes),
            format_cpu(row.rates.cpu),
            row.restarts.to_string(),
            row.calls.to_string(),
            row.reason.clone(),
        ]);
    }
    table.trim_fmt()
}

fn render_pending(questions: &[PendingRow]) -> String {
    let mut table = new_table(&["WAITS", "KIND", "WHAT IS ASKED", "ANSWER"]);
    for question in questions {
        table.add_row([
            question.name.clone(),
            question.kind.into(),
            first_line(&question.text, TEXT_WIDTH_MAX),
            question.approve_command.clone(),
        ]);
    }
    table.trim_fmt()
}

/// One object per sample. Unknown values are null.
pub(super) fn to_json(model: &Model) -> Value {
    let Some(last) = model.last_sample() else {
        return Value::Null;
    };
    let (status, all) = (&last.status, last.metrics.total());
    let cluster = last.cluster.id.as_ref().map(|id| {
        let nodes = last.cluster.nodes.iter();
        let nodes = nodes.map(|node| json!({"name": node.name, "state": node.standing.as_str()}));
        json!({"id": id, "confirmed": last.cluster.confirmed, "nodes": nodes.collect::<Vec<_>>()})
    });
    let mut object = json!({
        "at": render_rfc3339_ms(last.unix_ms),
        "version": status.version,
        "pid": status.pid,
        "uptime_secs": status.uptime_secs,
        "agents": status.connections,
        "under_way": last.metrics.in_flight,
        "memory_bytes": status.uses.map(|uses| uses.memory_bytes),
        "servers_memory_bytes": total_server_memory(status),
        "audit_queue": last.metrics.audit_queue,
        "troubles": status.troubles,
        "cluster": cluster,
        "servers": model.rows.iter().map(server_to_json).collect::<Vec<_>>(),
        "waiting": model.questions.iter().map(pending_to_json).collect::<Vec<_>>(),
    });
    add_call_stats(&mut object, all, model.history().total_rates());
    object
}

fn server_to_json(row: &Row) -> Value {
    let mut object = json!({
        "id": row.id,
        "state": row.state_name,
        "why": row.reason,
        "restarts": row.restarts,
        "next_try_ms": row.next_try_ms,
        "under_way": row.in_flight,
        "memory_bytes": row.memory,
    });
    let calls = CallTotals {
        finished: row.calls,
        errors: row.errors,
        ..CallTotals::default()
    };
    add_call_stats(&mut object, calls, row.rates);
    object
}

/// Counts since the kernel's start, and rates.
fn add_call_stats(object: &mut Value, calls: CallTotals, rates: Rates) {
    let short = |number: Option<f64>| number.map(|number| (number * 1000.0).round() / 1000.0);
    let ms = |micros: Option<u64>| micros.map(|micros| micros as f64 / 1000.0);
    object["calls"] = calls.finished.into();
    object["errors"] = calls.errors.into();
    object["calls_per_second"] = short(rates.calls).into();
    object["errors_per_second"] = short(rates.errors).into();
    object["p50_ms"] = ms(rates.p50_us).into();
    object["p99_ms"] = ms(rates.p99_us).into();
    object["cpu"] = short(rates.cpu).into();
}

fn pending_to_json(question: &PendingRow) -> Value {
    json!({
        "name": question.name,
        "kind": question.kind,
        "text": question.text,
        "since": question.since_ms.map(render_rfc3339_ms),
        "command": question.approve_command,
    })
}

#[cfg(test)]
mod tests {
    use mgp_protocol::mgp::servers::{PendingLogin, Server};

    use super::super::sample::Sample;
    use super::*;

    fn model(looks: &[(u64, u64)]) -> Model {
        let mut model = Model::default();
        for (at_ms, ended) in looks {
            let mut last = Sample {
                taken_at_ms: *at_ms,
                unix_ms: 1_000_000_000_500,
                ..Sample::default()
            };
            last.status.pid = 7;
            last.status.servers = vec![Server {
                id: "it\u{1b}[2J".into(),
                state: "connected".into(),
                ..Server::default()
            }];
            let calls = CallTotals {
                finished: *ended,
                ..CallTotals::default()
            };
            last.metrics.calls = [("it\u{1b}[2J".to_owned(), calls)].into();
            let wanted = PendingLogin {
                why: "its token\u{7} ended".into(),
                command: "mgp logins add it".into(),
                ..PendingLogin::default()
            };
            last.pending.logins = [("it".to_owned(), wanted)].into();
            model.add_sample(last);
        }
        model
    }

    #[test]
    fn programs_get_numbers_or_null() {
        let first = to_json(&model(&[(0, 10)]));
        assert_eq!(first["calls"], 10);
        assert_eq!(
            (&first["calls_per_second"], &first["p99_ms"]),
            (&Value::Null, &Value::Null)
        );
        let second = to_json(&model(&[(0, 10), (2000, 20)]));
        assert_eq!(second["calls_per_second"], 5.0);
        assert_eq!(second["at"], "2001-09-09T01:46:40.500Z");
        assert_eq!(second["servers"][0]["calls_per_second"], 5.0);
        assert_eq!(second["waiting"][0]["command"], "mgp logins add it");
        assert_eq!(second["cluster"], Value::Null);
        // One line without control characters.
        let line = second.to_string();
        assert!(!line.contains(['\n', '\u{1b}', '\u{7}']), "{line}");
        assert_eq!(to_json(&Model::default()), Value::Null);
    }

    #[test]
    fn a_table_has_no_control_characters() {
        let text = render_text(&model(&[(0, 10), (2000, 20)]));
        assert!(text.contains("SERVER  STATE"), "{text}");
        assert!(text.contains("5.0"), "{text}");
        assert!(text.contains("mgp logins add it"), "{text}");
        assert!(!text.contains(['\u{1b}', '\u{7}']), "{text}");
    }
}
