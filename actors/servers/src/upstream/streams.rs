//! What a call of a tool wants to hear before its result, and what of that its server can be asked for.

use std::sync::Arc;

use mgp_engine::callers::request_ids::WireId;
use mgp_protocol::dialect::ProtocolFamily;
use mgp_protocol::mgp::negotiation::Features;
use mgp_protocol::mgp::stream;
use serde_json::value::RawValue;

use crate::link::Link;
use mgp_callers::agent::supervisor::Agents;
use mgp_callers::request::Request;
use mgp_callers::{CallStreamHandle, ChunkForm, StreamBudgets};

/// The wish of a call.
#[derive(Debug)]
pub struct StreamOptions {
    agents: Agents,
    budgets: Arc<StreamBudgets>,
    form: ChunkForm,
    /// A server without chunks is asked for progress, with a token of the kernel's own.
    wants_mgp_progress: bool,
}

/// What a server is asked for.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RequestedStream<'a> {
    /// Where its chunks go.
    pub(super) stream: Option<&'a CallStreamHandle>,
    /// For progress under a token of the kernel's own.
    pub(super) wants_mgp_progress: bool,
}

impl StreamOptions {
    /// Chunks for a client that asks for them in the words of MGP; for any other client that gave a
    /// progress token, the same as progress. `None` for a call that wants its result alone.
    #[must_use]
    pub fn from_request(
        (agents, rooms): (&Agents, &Arc<StreamBudgets>),
        request: &Request,
        params: &str,
        token: Option<&RawValue>,
    ) -> Option<Self> {
        let features = request.caller.mgp.features();
        let knows = features.contains(Features::STREAMING);
        let form = match (knows, token) {
            (true, _) => stream::has_stream_request(params).then_some(ChunkForm::Chunk)?,
            (false, token) => ChunkForm::Progress(token?.get().into()),
        };
        Some(Self {
            agents: agents.clone(),
            budgets: rooms.clone(),
            form,
            wants_mgp_progress: knows && token.is_none() && features.contains(Features::PROGRESS),
        })
    }

    /// What of it is asked of this server; the stream is started when it is the first that has chunks.
    pub(super) fn for_server<'r>(
        &self,
        request: &'r Request,
        link: &Link,
        era: ProtocolFamily,
    ) -> RequestedStream<'r> {
        let (caller, exchange) = (&request.caller, &request.call);
        let knows = link.mgp_for(era).features().contains(Features::STREAMING);
        let start = || {
            let room = self.budgets.for_agent(&caller.agent);
            let parent = self.agents.get_cell();
            CallStreamHandle::start(parent, exchange, self.form.clone(), room)
        };
        RequestedStream {
            stream: knows.then(|| exchange.stream_or_start(start)).flatten(),
            wants_mgp_progress: self.wants_mgp_progress && !knows,
        }
    }
}

impl RequestedStream<'_> {
    /// The token by which the server reports progress to the kernel.
    pub(super) fn progress_token(&self, id: WireId) -> Option<WireId> {
        self.wants_mgp_progress.then_some(id)
    }
}
