//! `mgp/approvals/list`: what waits for the operator, also as a resource.

use mgp_callers::request::{Outcome, Request};
use mgp_protocol::mgp::approvals::PendingList;
use mgp_protocol::refusal::Refusal;

use crate::Context;

/// `mgp/approvals/list`.
///
/// # Errors
/// When the pairing actor does not answer.
pub async fn list(cx: &Context, _request: &Request) -> Outcome {
    Ok(render_pending(cx).await?.into())
}

/// The list as JSON text.
///
/// # Errors
/// When the pairing actor does not answer.
pub(crate) async fn render_pending(cx: &Context) -> Result<String, Refusal> {
    let list = list_pending(cx).await?;
    Ok(serde_json::to_string(&list).expect("a list is always JSON"))
}

/// Pending entries, nodes that ask to join, and logins that servers want.
///
/// # Errors
/// When the pairing actor does not answer.
pub async fn list_pending(cx: &Context) -> Result<PendingList, Refusal> {
    let (view, servers) = (cx.replication.view(), cx.servers.load());
    let nodes = cx.pairing.waiting_nodes(&view).await;
    Ok(PendingList {
        pending: cx.policies.approvals.list(),
        nodes: nodes.map_err(|error| Refusal::Internal(error.to_string()))?,
        logins: cx.logins.wanted(|id| servers.contains_key(id)),
    })
}
