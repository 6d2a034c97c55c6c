//! `initialize` toward a server, and what it answered.

use std::sync::Arc;

use mgp_protocol::dialect::{Era, Version};
use mgp_protocol::mcp::{self, Initialization, ServerCapabilities};
use mgp_protocol::splice::quoted;

use crate::link::{Link, Peer, Wire};

/// `params` of our `initialize`. A shared server learns once what it can ask, so everything is
/// declared that the kernel can pass on to some client; what the client at hand cannot answer is
/// refused question by question.
#[must_use]
pub(super) fn params(version: &str) -> String {
    format!(
        r#"{{"protocolVersion":"{}","capabilities":{{"roots":{{"listChanged":true}},"sampling":{{}},"elicitation":{{"form":{{}},"url":{{}}}}}},"clientInfo":{{"name":"mgp","title":"MGP kernel","version":{}}}}}"#,
        Version::LATEST_LEGACY,
        quoted(version)
    )
}

/// Shakes hands over a link: `initialize`, its answer, `notifications/initialized`.
///
/// # Errors
/// In words, what went wrong.
pub(super) async fn shake(link: &Arc<Link>, version: &str) -> Result<(), String> {
    let answer = link
        .ask_in(Era::Legacy, "initialize", Some(&params(version)))
        .await
        .map_err(|e| format!("initialize: {e}"))?;
    complete(link, std::str::from_utf8(&answer).unwrap_or("")).await
}

/// Takes the result of `initialize` and says that we are ready.
///
/// # Errors
/// In words, what is wrong with the answer.
pub(super) async fn complete(link: &Arc<Link>, result: &str) -> Result<(), String> {
    link.set_peer(read(result)?);
    let ready = mgp_protocol::jsonrpc::notification("notifications/initialized", None);
    match link.wire() {
        Wire::Http(http) => http
            .deliver(ready.into())
            .await
            .map_err(|e| format!("notifications/initialized: {e}")),
        Wire::Child(_) | Wire::Sse(_) => {
            link.notify("notifications/initialized", None);
            Ok(())
        }
    }
}

fn read(result: &str) -> Result<Peer, String> {
    let hello: Initialization<'_> =
        mcp::read(Some(result)).map_err(|e| format!("the answer to initialize: {e}"))?;
    let version = Version::parse(&hello.protocol_version)
        .filter(|v| v.is_legacy())
        .ok_or_else(|| {
            format!(
                "it speaks MCP {}, which no `initialize` can agree on",
                hello.protocol_version
            )
        })?;
    Ok(Peer {
        version,
        capabilities: ServerCapabilities::read(hello.capabilities),
        raw_capabilities: hello.capabilities.map_or("{}", |c| c.get()).into(),
        info: hello.server_info.map(|i| i.get().into()),
        instructions: hello.instructions.as_deref().map(Into::into),
    })
}
