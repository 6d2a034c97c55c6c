//! Names of agents, servers and tools as typed: the kernel reads them, and suggests the nearest when one
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

/// What stands before the kernel's words for what was typed wrongly.
const INVALID_PARAMS_PREFIX: &str = "Invalid params: ";

/// Has the kernel read names, of things that are there or not.
pub(in crate::cli) async fn resolve(
    client: &mut KernelClient,
    asked: &Read,
) -> Result<ResolvedNames, Failure> {
    let answer = client.request(Read::METHOD, asked, &mut ()).await;
    parse_result(&answer.map_err(to_usage_failure)?)
}

/// The same, of things that are there.
pub(in crate::cli) async fn resolve_existing(
    client: &mut KernelClient,
    asked: &Read,
) -> Result<ResolvedNames, Failure> {
    let meant = resolve(client, asked).await?;
    if meant.unknown.is_empty() {
        Ok(meant)
    } else {
        Err(Failure::Usage(meant.unknown.join("\n")))
    }
}

/// A server that is there, by its id.
pub(in crate::cli) async fn resolve_server(
    client: &mut KernelClient,
    typed: &str,
) -> Result<(), Failure> {
    let server = Some(typed.to_owned());
    let asked = Read {
        server,
        ..Read::default()
    };
    resolve_existing(client, &asked).await.map(drop)
}

/// An agent that is there, by its id.
pub(in crate::cli) async fn resolve_agent(
    client: &mut KernelClient,
    typed: &str,
) -> Result<Option<String>, Failure> {
    let agent = Some(typed.to_owned());
    let asked = Read {
        agent,
        ..Read::default()
    };
    Ok(resolve_existing(client, &asked).await?.agent_id)
}

/// A server or tool as it is printed everywhere.
pub(in crate::cli) fn render_target(server: &str, tool: Option<&str>) -> String {
    match tool {
        Some(tool) => canonical_name(&ServerId::new(server), tool),
        None => server.to_owned(),
    }
}

/// Says on stderr what is not there, or could not be looked up.
pub(in crate::cli) fn print_notes(notes: &[String]) {
    for note in notes {
        print_error(format_args!("note: {}", sanitize_line(note)));
    }
}

/// A name that cannot be read is a command line that is wrong.
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
