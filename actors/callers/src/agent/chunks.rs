//! Inferences that an agent is asked for, and their parts (MCPL §11.4).

use mgp_protocol::mcp::Method;
use mgp_protocol::mcpl::inference::{Chunk, Request};
use mgp_runtime::event_sink::EventSink;

use super::{Agent, ClientAnswer, Unanswered};
use crate::exchange::Exchange;

impl Agent {
    /// Asks the client for an inference. `parts` hears the `params` of each `inference/chunk` of it before the
    /// answer is there.
    ///
    /// # Errors
    /// [`Unanswered`] says why there is no answer.
    pub async fn infer(
        &self,
        exchange: &Exchange,
        parts: EventSink<String>,
        params: &str,
    ) -> Result<ClientAnswer, Unanswered> {
        let hearing = (None, Some(parts));
        self.ask_and_hear(exchange, hearing, Request::METHOD, Some(params))
            .await
    }

    /// Takes an `inference/chunk` of the client. One with an id that this client was not asked with is dropped: the
    /// ids of a connection are its own, so nobody reaches another one's inference.
    pub fn chunked(&self, params: &str) {
        let Ok(chunk) = Chunk::read(params) else {
            return;
        };
        let id = chunk.request_id.as_u64();
        let number = id.and_then(|id| self.ids.number(id));
        let heard = number.and_then(|n| self.asked.with(n, |asked| asked.parts.clone()));
        if let Some(heard) = heard.flatten() {
            heard.send(params.to_owned());
        }
    }
}
