//! Names of agents, servers and tools as typed: the kernel reads them, and suggests the nearest when one
//! does not exist.

use mgp_engine::tool_names::canonical;
use mgp_protocol::ids::ServerId;
use mgp_protocol::jsonrpc::INVALID_PARAMS;
use mgp_protocol::mcp::Method;
use mgp_protocol::mgp::names::{Meant, Read};

use super::answer::read;
use super::connection::KernelClient;
use crate::cli::failure::Failure;
use crate::cli::print::report;
use crate::cli::words::plain;

/// What stands before the kernel's words for what was typed wrongly.
const WRONG: &str = "Invalid params: ";

/// Has the kernel read names, of things that are there or not.
pub(in crate::cli) async fn meant(
    client: &mut KernelClient,
    asked: &Read,
) -> Result<Meant, Failure> {
    let answer = client.request(Read::METHOD, asked, &mut ()).await;
    read(&answer.map_err(wrong)?)
}

/// The same, of things that are there.
pub(in crate::cli) async fn there(
    client: &mut KernelClient,
    asked: &Read,
) -> Result<Meant, Failure> {
    let meant = meant(client, asked).await?;
    match meant.unknown.is_empty() {
        true => Ok(meant),
        false => Err(Failure::Usage(meant.unknown.join("\n"))),
    }
}

/// A server that is there, by its id.
pub(in crate::cli) async fn server(client: &mut KernelClient, typed: &str) -> Result<(), Failure> {
    let server = Some(typed.to_owned());
    let asked = Read {
        server,
        ..Read::default()
    };
    there(client, &asked).await.map(drop)
}

/// An agent that is there, by its id.
pub(in crate::cli) async fn agent(
    client: &mut KernelClient,
    typed: &str,
) -> Result<Option<String>, Failure> {
    let agent = Some(typed.to_owned());
    let asked = Read {
        agent,
        ..Read::default()
    };
    Ok(there(client, &asked).await?.agent_id)
}

/// A server or tool as it is printed everywhere.
pub(in crate::cli) fn place(server: &str, tool: Option<&str>) -> String {
    match tool {
        Some(tool) => canonical(&ServerId::new(server), tool),
        None => server.to_owned(),
    }
}

/// Says on stderr what is not there, or could not be looked up.
pub(in crate::cli) fn tell(notes: &[String]) {
    for note in notes {
        report(format_args!("note: {}", plain(note)));
    }
}

/// A name that cannot be read is a command line that is wrong.
pub(in crate::cli) fn wrong(failure: Failure) -> Failure {
    if let Failure::Refused { code, message, .. } = &failure
        && *code == INVALID_PARAMS
    {
        let words = message.strip_prefix(WRONG).unwrap_or(message);
        return Failure::Usage(words.to_owned());
    }
    failure
}
