//! What a call of a tool wants to hear before its result, and what of that its server can be asked for.

use std::sync::Arc;

use mgp_engine::callers::request_ids::WireId;
use mgp_protocol::dialect::Era;
use mgp_protocol::mgp::negotiation::Features;
use mgp_protocol::mgp::stream;
use serde_json::value::RawValue;

use crate::link::Link;
use mgp_callers::agent::supervisor::Agents;
use mgp_callers::exchange::call_stream::room::StreamRooms;
use mgp_callers::exchange::call_stream::{CallStreamHandle, ChunkForm};
use mgp_callers::request::Request;

/// The wish of a call.
#[derive(Debug)]
pub struct StreamWish {
    agents: Agents,
    rooms: Arc<StreamRooms>,
    form: ChunkForm,
    /// A server without chunks is asked for progress, with a token of the kernel's own.
    reports: bool,
}

/// What a server is asked for.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct StreamAsked<'a> {
    /// Where its chunks go.
    pub(super) stream: Option<&'a CallStreamHandle>,
    /// For progress under a token of the kernel's own.
    pub(super) reports: bool,
}

impl StreamWish {
    /// Chunks for a client that asks for them in the words of MGP; for any other client that gave a
    /// progress token, the same as progress. `None` for a call that wants its result alone.
    #[must_use]
    pub fn of(
        (agents, rooms): (&Agents, &Arc<StreamRooms>),
        request: &Request,
        params: &str,
        token: Option<&RawValue>,
    ) -> Option<Self> {
        let features = request.caller.mgp.features();
        let knows = features.contains(Features::STREAMING);
        let form = match (knows, token) {
            (true, _) => stream::asks(params).then_some(ChunkForm::Chunk)?,
            (false, token) => ChunkForm::Progress(token?.get().into()),
        };
        Some(Self {
            agents: agents.clone(),
            rooms: rooms.clone(),
            form,
            reports: knows && token.is_none() && features.contains(Features::PROGRESS),
        })
    }

    /// What of it is asked of this server; the stream is started when it is the first that has chunks.
    pub(super) fn at<'r>(&self, request: &'r Request, link: &Link, era: Era) -> StreamAsked<'r> {
        let (caller, exchange) = (&request.caller, &request.exchange);
        let knows = link.mgp_in(era).features().contains(Features::STREAMING);
        let start = || {
            let room = self.rooms.of(&caller.agent);
            let parent = self.agents.get_cell();
            CallStreamHandle::start(parent, exchange, self.form.clone(), room)
        };
        StreamAsked {
            stream: knows.then(|| exchange.stream_or_start(start)).flatten(),
            reports: self.reports && !knows,
        }
    }
}

impl StreamAsked<'_> {
    /// The token by which the server reports progress to the kernel.
    pub(super) fn token(&self, id: WireId) -> Option<WireId> {
        self.reports.then_some(id)
    }
}
