//! Reads the pins of a server.

use mgp_protocol::mcp::Method;
use mgp_protocol::mgp::servers::pins::{List, PinnedTool, PinnedTools};

use super::{KernelClient, parse_result};
use crate::cli::failure::Failure;

/// What is listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::cli) enum Pinned {
    Tools,
    Skills,
}

/// All pins of a server's tools or skills.
pub(in crate::cli) async fn list_all(
    client: &mut KernelClient,
    server: &str,
    pinned: Pinned,
) -> Result<Vec<PinnedTool>, Failure> {
    let mut all: Vec<PinnedTool> = Vec::new();
    loop {
        let params = List {
            id: server.to_owned(),
            skills: pinned == Pinned::Skills,
            after: all.last().map(|last| last.tool.clone()),
            limit: None,
        };
        let page = client.call(List::METHOD, &params, "reading its pins").await;
        let page: PinnedTools = parse_result(&page?)?;
        all.extend(page.pins);
        if !page.has_more {
            return Ok(all);
        }
    }
}
