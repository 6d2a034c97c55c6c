//! The streams that carry pages: one pull for each request of this node, any number of answers.

use std::sync::Arc;

use bytes::Bytes;
use mgp_engine::cluster::tool_index::PULL_TIMEOUT;
use mgp_protocol::federation::sync::SyncOpening;
use mgp_protocol::federation::tool_index::{IndexPage, PullFailure, PullIndex};
use mgp_protocol::ids::NodeId;
use mgp_runtime::Mailbox;
use mgp_transports::quic::SyncStream;
use tokio::time::Instant;

use super::ToolIndexMsg;
use crate::links::PeerLink;

/// Pulls a page.
pub(super) async fn pull(
    link: Arc<PeerLink>,
    pull: PullIndex,
) -> Result<Box<IndexPage>, PullFailure> {
    match fetch_page(&link, &pull).await {
        Ok(page) => Ok(Box::new(page)),
        Err(error) => {
            let node = link.link.peer().short_id();
            tracing::debug!(node, why = %error, "a pull of another node's index failed");
            Err(PullFailure::Lost)
        }
    }
}

async fn fetch_page(link: &PeerLink, pull: &PullIndex) -> Result<IndexPage, String> {
    let until = Instant::now() + PULL_TIMEOUT;
    let mut stream = link.link.open_sync(until).await.map_err(to_text)?;
    let opening = Bytes::from(SyncOpening::Index.encode());
    stream.send(opening).await.map_err(to_text)?;
    stream.send(pull.encode().into()).await.map_err(to_text)?;
    stream.finish();
    let page = stream.next().await.map_err(to_text)?;
    let page = page.ok_or_else(|| "the stream ended without it".to_owned())?;
    IndexPage::decode(&page).map_err(to_text)
}

/// Answers pulls until the peer sends no more. The link bounds the number of a peer's streams and their
/// duration.
pub(super) async fn serve(
    mailbox: Mailbox<ToolIndexMsg>,
    node: NodeId,
    mut stream: Box<SyncStream>,
) {
    let error = loop {
        match answer(&mailbox, node, &mut stream).await {
            Ok(true) => {}
            Ok(false) => break "it asks no more".to_owned(),
            Err(error) => break error,
        }
    };
    stream.finish();
    let node = node.short_id();
    tracing::debug!(node, error, "a node stopped pulling this node's index");
}

/// Answers one pull; false after the last.
async fn answer(
    mailbox: &Mailbox<ToolIndexMsg>,
    node: NodeId,
    stream: &mut SyncStream,
) -> Result<bool, String> {
    let Some(message) = stream.next().await.map_err(to_text)? else {
        return Ok(false);
    };
    let pull = PullIndex::decode(&message).map_err(to_text)?;
    let ask = |reply| ToolIndexMsg::Page(node, pull, reply);
    let page = mailbox.ask(ask).await.map_err(to_text)?;
    let page = page.ok_or_else(|| "it is not of the cluster".to_owned())?;
    stream.send(page.encode().into()).await.map_err(to_text)?;
    Ok(true)
}

fn to_text(error: impl std::fmt::Display) -> String {
    error.to_string()
}
