//! Sends events of the audit log to servers that keep audit logs of their own (MGP §6.3).

use std::io;
use std::sync::Arc;

use mgp_protocol::dialect::Era;
use mgp_protocol::mcp::{Method, Ping};
use mgp_protocol::mgp::Audit;
use mgp_protocol::mgp::negotiation::Features;

use crate::link::Link;
use mgp_runtime::task;
use mgp_store::audit::{AuditHandle, EventBatch};

/// Sends a server every event since the last one it was sent, for as long as the connection lasts. Does
/// nothing when the server did not negotiate `audit`.
pub fn forward(audit: &AuditHandle, link: &Arc<Link>) {
    if !(audit.is_on() && link.mgp().features().contains(Features::AUDIT)) {
        return;
    }
    let (audit, link) = (audit.clone(), link.clone());
    task::detached("audit.forward", async move {
        let told = tokio::select! {
            told = forwarded(&audit, &link) => told,
            () = link.over() => return,
        };
        if let Err(error) = told {
            link.log.note(&format!("audit: {error}"));
        }
    });
}

/// Runs until the connection or the log ends.
async fn forwarded(audit: &AuditHandle, link: &Arc<Link>) -> io::Result<()> {
    let Some(mut log) = audit.follow(&link.server).await? else {
        return Ok(());
    };
    while let Some(batch) = log.next().await? {
        tell(link, &batch);
        if !has_read(link).await {
            return Ok(());
        }
        log.has_read(&batch).await;
    }
    Ok(())
}

fn tell(link: &Arc<Link>, batch: &EventBatch) {
    if let Some((from, to)) = batch.trimmed {
        let words = format!("audit: events {from} to {to} were trimmed before it was told them");
        tracing::warn!(server = %link.server, "{words}");
        link.log.note(&words);
    }
    for params in &batch.events {
        link.notify(Audit::METHOD, Some(params));
    }
}

/// True once the server answered a request sent after the last event: then it has read that event.
async fn has_read(link: &Arc<Link>) -> bool {
    let answer = match link.peer_in(Era::Legacy) {
        Some(_) => link.ask_in(Era::Legacy, Ping::METHOD, None).await,
        None => {
            link.ask_in(Era::Modern, "server/discover", Some("{}"))
                .await
        }
    };
    answer.map_or_else(|refusal| refusal.is_answer(), |_| true)
}
