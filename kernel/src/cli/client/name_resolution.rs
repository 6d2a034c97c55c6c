//! Resolves typed names of agents, servers and tools through the kernel, with suggestions for unknown ones.
//! does not exist.

use mgp_engine::tool_names::canonical_name;
use mgp_protocol::ids::ServerId;
use mgp_protocol::jsonrpc::INVALID_PARAMS;
use mgp_protocol::mcp::Method;
use mgp_protocol::mgp::names::{Read, ResolvedNames};

use super::connection::KernelClient;
use super::response::parse_result;
use crate::cli::failure::Failure;
use crate::cli::print::print_error;
use crate::cli::text_format::sanitize_line;

/// The prefix of the kernel's messages about invalid input.
const INVALID_PARAMS_PREFIX: &str = "Invalid params: ";

/// Resolves names, existing or not.
pub(in crate::cli) async fn resolve(
    client: &mut KernelClient,
    query: &Read,
) -> Result<ResolvedNames, Failure> {
    let answer = client.request(Read::METHOD, query, &mut ()).await;
    parse_result(&answer.map_err(to_usage_failure)?)
}

/// Resolves existing names.
pub(in crate::cli) async fn resolve_existing(
    client: &mut KernelClient,
    query: &Read,
) -> Result<ResolvedNames, Failure> {
    let resolved = resolve(client, query).await?;
    if resolved.unknown.is_empty() {
        Ok(resolved)
    } else {
        Err(Failure::Usage(resolved.unknown.join("\n")))
    }
}

/// The id of an existing server.
pub(in crate::cli) async fn resolve_server(
    client: &mut KernelClient,
    typed: &str,
) -> Result<(), Failure> {
    let server = Some(typed.to_owned());
    let query = Read {
        server,
        ..Read::default()
    };
    resolve_existing(client, &query).await.map(drop)
}

/// The id of an existing agent.
pub(in crate::cli) async fn resolve_agent(
    client: &mut KernelClient,
    typed: &str,
) -> Result<Option<String>, Failure> {
    let agent = Some(typed.to_owned());
    let query = Read {
        agent,
        ..Read::default()
    };
    Ok(resolve_existing(client, &query).await?.agent_id)
}

/// A server or tool in the common notation.
pub(in crate::cli) fn render_target(server: &str, tool: Option<&str>) -> String {
    match tool {
        Some(tool) => canonical_name(&ServerId::new(server), tool),
        None => server.to_owned(),
    }
}

/// Prints on stderr which names are unknown or could not be looked up.
pub(in crate::cli) fn print_notes(notes: &[String]) {
    for note in notes {
        print_error(format_args!("note: {}", sanitize_line(note)));
    }
}

/// An invalid name is a usage error.
pub(in crate::cli) fn to_usage_failure(failure: Failure) -> Failure {
    if let Failure::ErrorResponse { code, message, .. } = &failure
        && *code == INVALID_PARAMS
    {
        let words = message
            .strip_prefix(INVALID_PARAMS_PREFIX)
            .unwrap_or(message);
        return Failure::Usage(words.to_owned());
    }
    failure
}
