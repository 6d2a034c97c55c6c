//! `mgp top --once` and `--json`: what is on the screen, as text and for programs.

use mgp_engine::timestamps::rfc3339_ms;
use serde_json::{Value, json};

use super::figures::TopCalls;
use super::history::TopRates;
use super::model::TopModel;
use super::questions::TopQuestion;
use super::rows::TopRow;
use super::summary::servers_memory;
use super::words::{rate, share, span};
use crate::cli::print::table;
use crate::cli::words::{bytes, one_line};

/// Most characters of what is asked.
const TEXT: usize = 300;

/// The lines above the table, the table, and what waits.
pub(super) fn text(model: &TopModel) -> String {
    let mut text = String::new();
    for (title, line) in model.summary.titled() {
        text += &match title {
            "" => format!("{line}\n"),
            title => format!("{title:<7} {line}\n"),
        };
    }
    if !model.rows.is_empty() {
        text += &format!("\n{}\n", servers(&model.rows));
    }
    if !model.questions.is_empty() {
        text += &format!("\n{}\n", questions(&model.questions));
    }
    text
}

fn servers(rows: &[TopRow]) -> String {
    let mut table = table(&[
        "SERVER", "STATE", "CALLS/S", "ERR/S", "P50", "P99", "MEMORY", "CPU", "RESTARTS", "CALLS",
        "WHY",
    ]);
    for row in rows {
        table.add_row([
            row.name.clone(),
            row.state.clone(),
            rate(row.rates.calls),
            rate(row.rates.errors),
            span(row.rates.p50_us),
            span(row.rates.p99_us),
            row.memory.map_or("–".into(), bytes),
            share(row.rates.cpu),
            row.restarts.to_string(),
            row.calls.to_string(),
            row.why.clone(),
        ]);
    }
    table.trim_fmt()
}

fn questions(questions: &[TopQuestion]) -> String {
    let mut table = table(&["WAITS", "KIND", "WHAT IS ASKED", "ANSWER"]);
    for question in questions {
        table.add_row([
            question.name.clone(),
            question.kind.into(),
            one_line(&question.text, TEXT),
            question.command.clone(),
        ]);
    }
    table.trim_fmt()
}

/// One object for each look. What is not known is null.
pub(super) fn object(model: &TopModel) -> Value {
    let Some(look) = model.look() else {
        return Value::Null;
    };
    let (status, all) = (&look.status, look.figures.total());
    let cluster = look.cluster.id.as_ref().map(|id| {
        let nodes = look.cluster.nodes.iter();
        let nodes = nodes.map(|node| json!({"name": node.name, "state": node.standing.as_str()}));
        json!({"id": id, "confirmed": look.cluster.confirmed, "nodes": nodes.collect::<Vec<_>>()})
    });
    let mut object = json!({
        "at": rfc3339_ms(look.unix_ms),
        "version": status.version,
        "pid": status.pid,
        "uptime_secs": status.uptime_secs,
        "agents": status.connections,
        "under_way": look.figures.under_way,
        "memory_bytes": status.uses.map(|uses| uses.memory_bytes),
        "servers_memory_bytes": servers_memory(status),
        "audit_queue": look.figures.audit_queue,
        "troubles": status.troubles,
        "cluster": cluster,
        "servers": model.rows.iter().map(server).collect::<Vec<_>>(),
        "waiting": model.questions.iter().map(question).collect::<Vec<_>>(),
    });
    add(&mut object, all, model.history().of_all());
    object
}

fn server(row: &TopRow) -> Value {
    let mut object = json!({
        "id": row.id,
        "state": row.word,
        "why": row.why,
        "restarts": row.restarts,
        "next_try_ms": row.next_try_ms,
        "under_way": row.in_flight,
        "memory_bytes": row.memory,
    });
    let calls = TopCalls {
        ended: row.calls,
        errors: row.errors,
        ..TopCalls::default()
    };
    add(&mut object, calls, row.rates);
    object
}

/// Counts since the kernel's start, and rates.
fn add(object: &mut Value, calls: TopCalls, rates: TopRates) {
    let short = |number: Option<f64>| number.map(|number| (number * 1000.0).round() / 1000.0);
    let ms = |micros: Option<u64>| micros.map(|micros| micros as f64 / 1000.0);
    object["calls"] = calls.ended.into();
    object["errors"] = calls.errors.into();
    object["calls_per_second"] = short(rates.calls).into();
    object["errors_per_second"] = short(rates.errors).into();
    object["p50_ms"] = ms(rates.p50_us).into();
    object["p99_ms"] = ms(rates.p99_us).into();
    object["cpu"] = short(rates.cpu).into();
}

fn question(question: &TopQuestion) -> Value {
    json!({
        "name": question.name,
        "kind": question.kind,
        "text": question.text,
        "since": question.since_ms.map(rfc3339_ms),
        "command": question.command,
    })
}

#[cfg(test)]
mod tests {
    use mgp_protocol::mgp::servers::{Server, WantedLogin};

    use super::super::look::TopLook;
    use super::*;

    fn model(looks: &[(u64, u64)]) -> TopModel {
        let mut model = TopModel::default();
        for (at_ms, ended) in looks {
            let mut look = TopLook {
                at_ms: *at_ms,
                unix_ms: 1_000_000_000_500,
                ..TopLook::default()
            };
            look.status.pid = 7;
            look.status.servers = vec![Server {
                id: "it\u{1b}[2J".into(),
                state: "connected".into(),
                ..Server::default()
            }];
            let calls = TopCalls {
                ended: *ended,
                ..TopCalls::default()
            };
            look.figures.calls = [("it\u{1b}[2J".to_owned(), calls)].into();
            let wanted = WantedLogin {
                why: "its token\u{7} ended".into(),
                command: "mgp logins add it".into(),
                ..WantedLogin::default()
            };
            look.pending.logins = [("it".to_owned(), wanted)].into();
            model.take(look);
        }
        model
    }

    #[test]
    fn a_program_reads_numbers_and_null_where_none_is_known() {
        let first = object(&model(&[(0, 10)]));
        assert_eq!(first["calls"], 10);
        assert_eq!(
            (&first["calls_per_second"], &first["p99_ms"]),
            (&Value::Null, &Value::Null)
        );
        let second = object(&model(&[(0, 10), (2000, 20)]));
        assert_eq!(second["calls_per_second"], 5.0);
        assert_eq!(second["at"], "2001-09-09T01:46:40.500Z");
        assert_eq!(second["servers"][0]["calls_per_second"], 5.0);
        assert_eq!(second["waiting"][0]["command"], "mgp logins add it");
        assert_eq!(second["cluster"], Value::Null);
        // One line, and nothing in it that a terminal would take for more.
        let line = second.to_string();
        assert!(!line.contains(['\n', '\u{1b}', '\u{7}']), "{line}");
        assert_eq!(object(&TopModel::default()), Value::Null);
    }

    #[test]
    fn a_table_is_text_that_moves_no_cursor() {
        let text = text(&model(&[(0, 10), (2000, 20)]));
        assert!(text.contains("SERVER  STATE"), "{text}");
        assert!(text.contains("5.0"), "{text}");
        assert!(text.contains("mgp logins add it"), "{text}");
        assert!(!text.contains(['\u{1b}', '\u{7}']), "{text}");
    }
}
