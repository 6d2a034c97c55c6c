//! `mgp state log|rollback`.

use std::fmt::Write;

use mgp_engine::doors::suggestions::nearest_name;
use mgp_protocol::mcp::Method;
use mgp_protocol::mcpl::error::CHECKPOINT_NOT_FOUND;
use mgp_protocol::mcpl::state::RollbackResult;
use mgp_protocol::mgp::kernel::state::{
    CheckpointEntry, Log, Rollback, StateHistory, StateHistoryList,
};
use serde::Serialize;
use serde_json::value::RawValue;

use crate::cli::args::{State, StateLog, StateRollback};
use crate::cli::client::{CliContext, KernelClient, name_resolution, parse_result};
use crate::cli::failure::Failure;
use crate::cli::print::print_line;
use crate::cli::text_format::sanitize_line;

pub(in crate::cli::commands) fn run(context: &CliContext, typed: &State) -> Result<(), Failure> {
    match typed {
        State::Log(typed) => show_log(context, typed),
        State::Rollback(typed) => rollback(context, typed),
    }
}

fn show_log(context: &CliContext, typed: &StateLog) -> Result<(), Failure> {
    let params = Log {
        server: typed.server.clone(),
        set: typed.set.clone(),
        agent: typed.agent.clone(),
    };
    let answer = call_about_server(context, &typed.server, Log::METHOD, &params)?;
    context.print_answer(&answer, |StateHistoryList { server_id, states }| {
        if states.is_empty() {
            return print_line(sanitize_line(&format!(
                "no state of {server_id} is kept: it begins with the first result that has one"
            )));
        }
        states
            .iter()
            .try_for_each(|state| print_line(render_tree(state)))
    })
}

fn rollback(context: &CliContext, typed: &StateRollback) -> Result<(), Failure> {
    let params = Rollback {
        server: typed.server.clone(),
        checkpoint: typed.checkpoint.clone(),
        set: typed.set.clone(),
        agent: typed.agent.clone(),
        session: typed.session.clone(),
    };
    let answer = context.with_kernel(async |client| {
        name_resolution::resolve_server(client, &typed.server).await?;
        let answer = client.call(Rollback::METHOD, &params, "rolling back").await;
        match answer.map_err(name_resolution::to_usage_failure) {
            Err(Failure::ErrorResponse { code, data, .. }) if code == CHECKPOINT_NOT_FOUND => {
                let message = unknown_checkpoint(client, typed).await?;
                Err(Failure::ErrorResponse {
                    code,
                    message,
                    data,
                })
            }
            answer => answer,
        }
    })?;
    let back: RollbackResult = parse_result(&answer)?;
    if !back.success {
        let why = back.reason.unwrap_or_else(|| "it says no reason".into());
        return Err(Failure::Other(sanitize_line(&format!(
            "{} cannot go back to {}: {why}; nothing was moved",
            typed.server, back.checkpoint
        ))));
    }
    context.print_answer(&answer, |back: RollbackResult| {
        print_line(sanitize_line(&format!(
            "{} is back at {}; what comes then is a branch beside what was there",
            typed.server, back.checkpoint
        )))
    })
}

/// The error for an unknown checkpoint.
async fn unknown_checkpoint(
    client: &mut KernelClient,
    typed: &StateRollback,
) -> Result<String, Failure> {
    let params = Log {
        server: typed.server.clone(),
        set: typed.set.clone(),
        agent: typed.agent.clone(),
    };
    let size = client.call(Log::METHOD, &params, "reading the checkpoints");
    let size: StateHistoryList = parse_result(&size.await?)?;
    let known = size.states.iter().flat_map(|state| &state.checkpoints);
    let known = known.map(|entry| entry.checkpoint.as_str());
    let nearest = nearest_name(&typed.checkpoint, known);
    let nearest = nearest.map_or_else(String::new, |nearest| format!("; did you mean {nearest}?"));
    Ok(sanitize_line(&format!(
        "no state of {0} has the checkpoint {1:?}{nearest} (`mgp state log {0}` shows those that are kept)",
        typed.server, typed.checkpoint
    )))
}

/// Sends a request about an existing server; a misspelled one is reported with a suggestion.
fn call_about_server(
    context: &CliContext,
    server: &str,
    method: &str,
    params: &impl Serialize,
) -> Result<Box<RawValue>, Failure> {
    context.with_kernel(async |client| {
        name_resolution::resolve_server(client, server).await?;
        let answer = client.call(method, params, "reading the checkpoints").await;
        answer.map_err(name_resolution::to_usage_failure)
    })
}

/// A state as a tree, in the order of its checkpoints.
fn render_tree(state: &StateHistory) -> String {
    let mut text = render_heading(state);
    for at in 0..state.checkpoints.len() {
        if state.checkpoints[at].parent_at.is_none() {
            render_branch(&state.checkpoints, at, "", "", &mut text);
        }
    }
    if state.pruned > 0 {
        let _ = write!(
            text,
            "\n({} older ones were taken out for room)",
            state.pruned
        );
    }
    text
}

fn render_heading(state: &StateHistory) -> String {
    let mut text = sanitize_line(&state.feature_set);
    match &state.agent_id {
        Some(agent) => {
            let _ = write!(text, ", {}", sanitize_line(agent));
        }
        None => text.push_str(", everyone"),
    }
    if let Some(session) = &state.session {
        let _ = write!(text, ", session {}", sanitize_line(session));
    }
    if let Some(ended) = &state.ended_at {
        let _ = write!(text, " (ended {})", sanitize_line(ended));
    }
    text
}

/// A chain without branches stays in one column, so that it fits on the page.
fn render_branch(all: &[CheckpointEntry], at: usize, mark: &str, below: &str, text: &mut String) {
    let (mut at, mut mark) = (at, mark);
    loop {
        let entry = &all[at];
        let lost = match (&entry.parent, entry.parent_at) {
            (Some(parent), None) => {
                format!(" (after {}, which is not kept)", sanitize_line(parent))
            }
            (Some(_), Some(_)) | (None, _) => String::new(),
        };
        let size = entry
            .bytes
            .map_or("kept by the server".to_owned(), |bytes| {
                format!("{bytes} bytes")
            });
        let star = if entry.current { "*" } else { " " };
        let _ = write!(
            text,
            "\n{star} {}{mark}{}  {}  {size}{lost}",
            &below[..below.len() - mark.len().min(below.len())],
            sanitize_line(&entry.checkpoint),
            sanitize_line(&entry.at),
        );
        let next: Vec<usize> = (at + 1..all.len())
            .filter(|other| all[*other].parent_at == Some(at))
            .collect();
        match next.as_slice() {
            [] => return,
            [only] => (at, mark) = (*only, ""),
            [branches @ .., last] => {
                for entry in branches {
                    render_branch(all, *entry, "|- ", &format!("{below}|  "), text);
                }
                render_branch(all, *last, "`- ", &format!("{below}   "), text);
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checkpoint(
        id: &str,
        parent: Option<(&str, Option<usize>)>,
        current: bool,
    ) -> CheckpointEntry {
        CheckpointEntry {
            checkpoint: id.into(),
            parent: parent.map(|(parent, _)| parent.into()),
            parent_at: parent.and_then(|(_, at)| at),
            at: "2026-03-05T10:30:00.000Z".into(),
            bytes: (id != "c").then_some(12),
            current,
        }
    }

    /// MCPL-063, MCPL-075: a branch is drawn next to the earlier states, and a long chain stays on the page.
    #[test]
    fn a_state_is_drawn_as_a_tree() {
        let state = StateHistory {
            feature_set: "notes.edit".into(),
            agent_id: Some("agent.a".into()),
            session: Some("1f-3".into()),
            checkpoints: vec![
                checkpoint("a", Some(("gone", None)), false),
                checkpoint("b", Some(("a", Some(0))), false),
                checkpoint("c", Some(("b", Some(1))), false),
                checkpoint("d", Some(("c", Some(2))), false),
                checkpoint("x", Some(("b", Some(1))), true),
            ],
            pruned: 1,
            ..StateHistory::default()
        };
        let at = "  2026-03-05T10:30:00.000Z  ";
        let drawn = render_tree(&state).replace(at, " ");
        assert_eq!(
            drawn,
            "notes.edit, agent.a, session 1f-3\n  \
             a 12 bytes (after gone, which is not kept)\n  \
             b 12 bytes\n  \
             |- c kept by the server\n  \
             |  d 12 bytes\n\
             * `- x 12 bytes\n\
             (1 older ones were taken out for room)"
        );
    }
}
