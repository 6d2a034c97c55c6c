//! Chunks and progress that a tool call requests, and what its server supports of them.

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

/// The chunks and progress that a call requests.
#[derive(Debug)]
pub struct StreamOptions {
    agents: Agents,
    budgets: Arc<StreamBudgets>,
    form: ChunkForm,
    /// True if a server without chunks is asked for progress, with a token of the kernel.
    wants_mgp_progress: bool,
}

/// The chunks and progress to request from one server.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RequestedStream<'a> {
    /// The receiver of the chunks.
    pub(super) stream: Option<&'a CallStreamHandle>,
    /// True to request progress with a token of the kernel.
    pub(super) wants_mgp_progress: bool,
}

impl StreamOptions {
    /// Chunks for a client that requests them in MGP's format; for any other client with a progress token,
    /// chunks as progress. `None` for a call that only wants its result.
    #[must_use]
    pub fn from_request(
        (agents, budgets): (&Agents, &Arc<StreamBudgets>),
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
            budgets: budgets.clone(),
            form,
            wants_mgp_progress: knows && token.is_none() && features.contains(Features::PROGRESS),
        })
    }

    /// What to request from this server; starts the stream at the first server with chunks.
    pub(super) fn for_server<'r>(
        &self,
        request: &'r Request,
        link: &Link,
        family: ProtocolFamily,
    ) -> RequestedStream<'r> {
        let (caller, in_flight) = (&request.caller, &request.call);
        let knows = link
            .mgp_for(family)
            .features()
            .contains(Features::STREAMING);
        let start = || {
            let budget = self.budgets.for_agent(&caller.agent);
            let parent = self.agents.get_cell();
            CallStreamHandle::start(parent, in_flight, self.form.clone(), budget)
        };
        RequestedStream {
            stream: knows.then(|| in_flight.stream_or_start(start)).flatten(),
            wants_mgp_progress: self.wants_mgp_progress && !knows,
        }
    }
}

impl RequestedStream<'_> {
    /// The token with which the server reports progress to the kernel.
    pub(super) fn progress_token(&self, id: WireId) -> Option<WireId> {
        self.wants_mgp_progress.then_some(id)
    }
}
