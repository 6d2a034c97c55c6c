//! `mgp audit find`.

use mgp_protocol::mcp::Method;
use mgp_protocol::mgp::audit::{Find, FindResult};
use mgp_protocol::mgp::names::{Read, ResolvedNames};

use super::event_lines::EventPrinter;
use crate::cli::args::FindAudit;
use crate::cli::client::{CliContext, KernelClient, name_resolution, parse_result};
use crate::cli::failure::Failure;

/// Progress title.
const PROGRESS_TITLE: &str = "looking through the audit log";

pub(super) fn find(context: &CliContext, typed: FindAudit) -> Result<(), Failure> {
    context.with_kernel(async |client| {
        let most = typed.limit;
        let mut lines = EventPrinter::new(context.json, typed.parts);
        let mut query = resolve_query(client, typed).await?;
        let (mut shown, mut said) = (0, None);
        loop {
            query.limit = Some(most - shown);
            let answer = client.call(Find::METHOD, &query, PROGRESS_TITLE).await?;
            let found: FindResult = parse_result(&answer)?;
            for event in &found.events {
                lines.show(client, event).await?;
            }
            shown += found.events.len() as u64;
            said = said.or(found.note);
            query.cursor = found.next_cursor;
            // A truncated answer may have no events, and continues towards the beginning.
            if shown >= most || query.cursor.is_none() {
                break;
            }
        }
        let nothing = (shown == 0 && said.is_none())
            .then(|| "no record of the audit log matches all of these filters".to_owned());
        let notes: Vec<String> = said.into_iter().chain(nothing).collect();
        name_resolution::print_notes(&notes);
        Ok(())
    })
}

/// Resolves the names. An unknown one is searched anyway, with a note: the log is about the past.
async fn resolve_query(client: &mut KernelClient, typed: FindAudit) -> Result<Find, Failure> {
    let mut query = Find {
        trace: typed.trace,
        result: typed.result,
        since_ms: typed.since,
        until_ms: typed.until,
        ..Find::default()
    };
    if let Some(agent) = typed.agent {
        let read = Read {
            agent: Some(agent),
            ..Read::default()
        };
        let resolved = resolve_names(client, read).await?;
        query.agent = resolved.agent_id;
    }
    if let Some(server) = typed.server {
        let read = Read {
            server: Some(server),
            ..Read::default()
        };
        let resolved = resolve_names(client, read).await?;
        query.server = resolved.server_id;
    }
    match typed.tool {
        // The server's own name of a tool that may no longer exist.
        Some(tool) if query.server.is_some() => query.tool = Some(tool),
        Some(tool) => {
            let read = Read {
                tool: Some(tool),
                ..Read::default()
            };
            let resolved = resolve_names(client, read).await?;
            (query.server, query.tool) = (resolved.server_id, resolved.tool_name);
        }
        None => {}
    }
    Ok(query)
}

async fn resolve_names(client: &mut KernelClient, query: Read) -> Result<ResolvedNames, Failure> {
    let resolved = name_resolution::resolve(client, &query).await?;
    name_resolution::print_notes(&resolved.unknown);
    name_resolution::print_notes(&resolved.doubts);
    Ok(resolved)
}
