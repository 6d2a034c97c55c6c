//! Inference requests to an agent, and their chunks (MCPL §11.4).

use mgp_protocol::mcp::Method;
use mgp_protocol::mcpl::inference::{Chunk, Request};
use mgp_runtime::EventSink;

use super::{Agent, CallbackError, CallbackResult};
use crate::in_flight_call::InFlightCall;

impl Agent {
    /// Sends the client an inference request. `parts` receives the `params` of each `inference/chunk`
    /// before the answer.
    ///
    /// # Errors
    /// [`CallbackError`]: why there is no answer.
    pub async fn infer(
        &self,
        call: &InFlightCall,
        parts: EventSink<String>,
        params: &str,
    ) -> Result<CallbackResult, CallbackError> {
        let sinks = (None, Some(parts));
        self.send_callback_with_chunks(call, sinks, Request::METHOD, Some(params))
            .await
    }

    /// Handles an `inference/chunk` of the client. A chunk whose id this client was not asked with is
    /// dropped: request ids are scoped to a connection, so no client reaches another one's inference.
    pub fn handle_chunk(&self, params: &str) {
        let Ok(chunk) = Chunk::parse(params) else {
            return;
        };
        let id = chunk.request_id.as_u64();
        let number = id.and_then(|id| self.ids.decode(id));
        let sink = number.and_then(|n| {
            self.pending_callbacks
                .inspect(n, |asked| asked.chunks.clone())
        });
        if let Some(sink) = sink.flatten() {
            sink.send(params.to_owned());
        }
    }
}
