//! `mgp calls show`.

use mgp_protocol::mcp::Method;
use mgp_protocol::mgp::calls::{CallHistory, CallRecord, Show};
use mgp_protocol::refusal::CallOutcome;
use serde_json::json;

use crate::cli::args::{Calls, ShowCall};
use crate::cli::client::{CliContext, names};
use crate::cli::failure::Failure;
use crate::cli::print::{say, table};
use crate::cli::words::plain;

pub(super) fn run(context: &CliContext, typed: &Calls) -> Result<(), Failure> {
    match typed {
        Calls::Show(typed) => show(context, typed),
    }
}

fn show(context: &CliContext, ShowCall { id }: &ShowCall) -> Result<(), Failure> {
    let params = json!({"call_id": id.trim()});
    let answer = context.ask(Show::METHOD, &params, "reading the audit log")?;
    context.show(&answer, |history: CallHistory| {
        say(in_words(&history))?;
        if history.records.is_empty() {
            return Ok(());
        }
        let mut table = table(&["ENDED", "BY", "TOOL", "RESULT", "OUTCOME"]);
        for record in history.records {
            let (result, outcome) = (json!(record.result), word(record.outcome));
            let tool = tool(&record);
            table.add_row([
                plain(&record.timestamp),
                plain(&record.actor),
                plain(&tool),
                result.as_str().unwrap_or_default().to_owned(),
                outcome.to_owned(),
            ]);
        }
        say(table)
    })
}

fn in_words(history: &CallHistory) -> String {
    let why = history
        .reason
        .iter()
        .map(|why| format!("\nwhy: {}", plain(why)));
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
        plain(&history.call_id),
        word(history.outcome)
    )
}

fn word(outcome: CallOutcome) -> &'static str {
    match outcome {
        CallOutcome::NotExecuted => "not executed",
        CallOutcome::Done => "done",
        CallOutcome::Unknown => "unknown",
    }
}

fn tool(record: &CallRecord) -> String {
    match (&record.server_id, &record.tool_name) {
        (Some(server), tool) => names::place(server, tool.as_deref()),
        (None, tool) => tool.clone().unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_outcome_says_why_and_what_to_do() {
        let answer =
            json!({"call_id": "u", "outcome": "unknown", "reason": "it went away", "records": []});
        let history: CallHistory = serde_json::from_value(answer).unwrap();
        assert_eq!(
            in_words(&history),
            "call u: unknown\nwhy: it went away\nlook at what it would have changed before making it again"
        );
    }
}
