//! Sends the chunks of an answer to the server that requested it (MCPL §11.4).

use mgp_mcpl_engine::inference::provider::CONTENT_MAX;
use mgp_protocol::ids::ServerId;
use mgp_protocol::jsonrpc::RequestId;
use mgp_protocol::mcp::Method;
use mgp_protocol::mcpl::inference::{Chunk, InferenceFailure, render_chunk};

use super::providers::InferenceError;
use crate::host::McplHost;

/// Sends each chunk with the server's own id and the next index. All chunks together are the answer, or there is none.
pub(super) struct AnswerParts<'a> {
    host: &'a McplHost,
    server: &'a ServerId,
    /// `None` if no chunks were requested.
    id: Option<RequestId>,
    index: u64,
    sent: String,
}

impl<'a> AnswerParts<'a> {
    pub(super) fn new(host: &'a McplHost, server: &'a ServerId, id: Option<RequestId>) -> Self {
        Self {
            host,
            server,
            id,
            index: 0,
            sent: String::new(),
        }
    }

    pub(super) fn is_wanted(&self) -> bool {
        self.id.is_some()
    }

    /// Sends a chunk.
    pub(super) fn add(&mut self, delta: &str) -> Result<(), InferenceFailure> {
        let Some(id) = self.id.as_ref().filter(|_| !delta.is_empty()) else {
            return Ok(());
        };
        if self.sent.len() + delta.len() > CONTENT_MAX {
            return Err(InferenceFailure::Failed);
        }
        let params = render_chunk(id, self.index, delta);
        let sent = self.host.notify(self.server, Chunk::METHOD, &params);
        sent.map_err(|_| InferenceFailure::NotThere)?;
        self.sent.push_str(delta);
        self.index += 1;
        Ok(())
    }

    /// Sends the rest of the complete answer.
    ///
    /// # Errors
    /// The earlier chunks are not its beginning.
    pub(super) fn send_rest(&mut self, content: &str) -> Result<(), InferenceError> {
        if !self.is_wanted() {
            return Ok(());
        }
        let Some(rest) = content.strip_prefix(self.sent.as_str()) else {
            let words = "the parts of the answer are not the answer";
            return Err(InferenceError::started(InferenceFailure::Failed, words));
        };
        let gone = |reason| InferenceError::started(reason, "the server takes no parts any more");
        self.add(rest).map_err(gone)
    }
}
