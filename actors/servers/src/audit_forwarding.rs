//! Forwards audit events to servers that keep an audit log of their own (MGP §6.3). The operator must approve
//! it, because the events concern all agents and servers.

use std::io;
use std::sync::Arc;

use mgp_protocol::dialect::ProtocolFamily;
use mgp_protocol::ids::ServerId;
use mgp_protocol::mcp::{Method, Ping};
use mgp_protocol::mgp::Audit;
use mgp_protocol::mgp::negotiation::Features;

use crate::link::Link;
use mgp_policy::PermissionsHandle;
use mgp_runtime::task;
use mgp_store::audit::{AuditHandle, EventBatch};

/// The permission that lets a server read the audit log. It is requested for servers that negotiate `audit`.
pub(crate) const AUDIT_LOG: &str = "dev.cloto.mgp.audit_log";

/// Forwards all events since the last one sent, while the connection and the approval last. Does nothing if the
/// server did not negotiate `audit`.
pub(crate) fn forward(audit: &AuditHandle, permissions: &PermissionsHandle, link: &Arc<Link>) {
    if !(audit.is_enabled() && link.mgp().features().contains(Features::AUDIT)) {
        return;
    }
    let (audit, permissions, link) = (audit.clone(), permissions.clone(), link.clone());
    task::spawn_detached("audit.forward", async move {
        let outcome = tokio::select! {
            outcome = run_forwarding(&audit, &permissions, &link) => outcome,
            () = link.wait_until_closed() => return,
        };
        if let Err(error) = outcome {
            link.log.push_note(&format!("audit: {error}"));
        }
    });
}

/// True if the operator approved that this server reads the audit log. A server without a permission gate, such
/// as one on another node, cannot be approved.
pub(crate) fn can_read_audit_log(permissions: &PermissionsHandle, server: &ServerId) -> bool {
    let has = permissions.granted_among(server, &[AUDIT_LOG.to_owned()]);
    has.iter().any(|one| one.as_str() == AUDIT_LOG)
}

/// Runs until the connection, the approval or the log ends.
async fn run_forwarding(
    audit: &AuditHandle,
    permissions: &PermissionsHandle,
    link: &Arc<Link>,
) -> io::Result<()> {
    let why =
        "it wants every event of the audit log: what each agent calls, where and with what result";
    let needs = [AUDIT_LOG.to_owned()];
    permissions
        .wait_until_decided(&link.server, &needs, why)
        .await;
    if !can_read_audit_log(permissions, &link.server) {
        return Ok(());
    }
    let Some(mut log) = audit.follow(&link.server).await? else {
        return Ok(());
    };
    while let Some(batch) = log.next().await? {
        if !can_read_audit_log(permissions, &link.server) {
            link.log
                .push_note("audit: no events are sent, because it has no permission for that");
            return Ok(());
        }
        send_batch(link, &batch);
        if !confirm_read(link).await {
            return Ok(());
        }
        log.confirm(&batch).await;
    }
    Ok(())
}

fn send_batch(link: &Arc<Link>, batch: &EventBatch) {
    if let Some((from, to)) = batch.trimmed {
        let words = format!("audit: events {from} to {to} were trimmed before they were sent");
        tracing::warn!(server = %link.server, "{words}");
        link.log.push_note(&words);
    }
    for params in &batch.events {
        link.notify(Audit::METHOD, Some(params));
    }
}

/// True once the server has answered a request sent after the last event, and therefore has read the event.
async fn confirm_read(link: &Arc<Link>) -> bool {
    let answer = match link.peer_for(ProtocolFamily::Legacy) {
        Some(_) => {
            link.request_in(ProtocolFamily::Legacy, Ping::METHOD, None)
                .await
        }
        None => {
            link.request_in(ProtocolFamily::Stateless, "server/discover", Some("{}"))
                .await
        }
    };
    answer.map_or_else(|refusal| refusal.is_answer(), |_| true)
}
