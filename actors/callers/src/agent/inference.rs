//! Inferences that an agent is asked for, and their parts (MCPL §11.4).

use mgp_protocol::mcp::Method;
use mgp_protocol::mcpl::inference::{Chunk, Request};
use mgp_runtime::EventSink;

use super::{Agent, CallbackError, CallbackResult};
use crate::in_flight_call::InFlightCall;

impl Agent {
    /// Asks the client for an inference. `parts` hears the `params` of each `inference/chunk` of it before the
    /// answer is there.
    ///
    /// # Errors
    /// [`CallbackError`] says why there is no answer.
    pub async fn infer(
        &self,
        call: &InFlightCall,
        parts: EventSink<String>,
        params: &str,
    ) -> Result<CallbackResult, CallbackError> {
        let hearing = (None, Some(parts));
        self.ask_with_chunks(call, hearing, Request::METHOD, Some(params))
            .await
    }

    /// Takes an `inference/chunk` of the client. One with an id that this client was not asked with is dropped: the
    /// ids of a connection are its own, so nobody reaches another one's inference.
    pub fn handle_chunk(&self, params: &str) {
        let Ok(chunk) = Chunk::parse(params) else {
            return;
        };
        let id = chunk.request_id.as_u64();
        let number = id.and_then(|id| self.ids.decode(id));
        let heard = number.and_then(|n| {
            self.pending_callbacks
                .inspect(n, |asked| asked.chunks.clone())
        });
        if let Some(heard) = heard.flatten() {
            heard.send(params.to_owned());
        }
    }
}
