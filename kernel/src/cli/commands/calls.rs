//! `mgp calls show`.

use mgp_protocol::mcp::Method;
use mgp_protocol::mgp::calls::{CallHistory, CallRecord, Show};
use mgp_protocol::refusal::CallOutcome;
use serde_json::json;

use crate::cli::args::{Calls, ShowCall};
use crate::cli::client::{CliContext, name_resolution};
use crate::cli::failure::Failure;
use crate::cli::print::{new_table, print_line};
use crate::cli::text_format::sanitize_line;

pub(super) fn run(context: &CliContext, typed: &Calls) -> Result<(), Failure> {
    match typed {
        Calls::Show(typed) => show(context, typed),
    }
}

fn show(context: &CliContext, ShowCall { id }: &ShowCall) -> Result<(), Failure> {
    let params = json!({"call_id": id.trim()});
    let answer = context.call(Show::METHOD, &params, "reading the audit log")?;
    context.print_answer(&answer, |history: CallHistory| {
        print_line(render_history(&history))?;
        if history.records.is_empty() {
            return Ok(());
        }
        let mut table = new_table(&["ENDED", "BY", "TOOL", "RESULT", "OUTCOME"]);
        for record in history.records {
            let (result, outcome) = (json!(record.result), outcome_label(record.outcome));
            let tool = tool_label(&record);
            table.add_row([
                sanitize_line(&record.timestamp),
                sanitize_line(&record.actor),
                sanitize_line(&tool),
                result.as_str().unwrap_or_default().to_owned(),
                outcome.to_owned(),
            ]);
        }
        print_line(table)
    })
}

fn render_history(history: &CallHistory) -> String {
    let why = history
        .reason
        .iter()
        .map(|why| format!("\nwhy: {}", sanitize_line(why)));
    let advice = match history.outcome {
        CallOutcome::Unknown if history.records.iter().all(|r| r.task_id.is_none()) => {
            "\nlook at what it would have changed before making it again"
        }
        CallOutcome::NotExecuted => "\nit may be made again",
        CallOutcome::Done | CallOutcome::Unknown => "",
    };
    let why: String = why.collect();
    format!(
        "call {}: {}{why}{advice}",
        sanitize_line(&history.call_id),
        outcome_label(history.outcome)
    )
}

fn outcome_label(outcome: CallOutcome) -> &'static str {
    match outcome {
        CallOutcome::NotExecuted => "not executed",
        CallOutcome::Done => "done",
        CallOutcome::Unknown => "unknown",
    }
}

fn tool_label(record: &CallRecord) -> String {
    match (&record.server_id, &record.tool_name) {
        (Some(server), tool) => name_resolution::render_target(server, tool.as_deref()),
        (None, tool) => tool.clone().unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_outcome_has_a_reason_and_a_remedy() {
        let answer =
            json!({"call_id": "u", "outcome": "unknown", "reason": "it went away", "records": []});
        let history: CallHistory = serde_json::from_value(answer).unwrap();
        assert_eq!(
            render_history(&history),
            "call u: unknown\nwhy: it went away\nlook at what it would have changed before making it again"
        );
    }
}
