//! `mgp/callback/respond`: tells a server what was answered.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use mgp_protocol::dialect::Era;
use mgp_protocol::jsonrpc;
use mgp_protocol::mcp::Method;
use mgp_protocol::mgp::callback::Respond;
use mgp_protocol::mgp::negotiation::Features;
use mgp_protocol::refusal::Refusal;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use crate::link::Alongside;
use crate::link::calls::Forget;
use crate::link::{InFlight, Link, MirroredHeaders, envelope};
use mgp_callers::exchange::{Exchange, ReplyPath};
use mgp_runtime::task;

/// Answers on their way to one server. They are beside the bound on its calls, which wait for them, and
/// are let through where no new call is.
pub(in crate::link) const MAX_RESPONSES: usize = 16;
/// How long a server may take to say that it has the answer.
const TAKEN: Duration = Duration::from_secs(10);

/// The places for answers on their way.
#[derive(Debug)]
pub(super) struct Responses(Arc<Semaphore>);

impl Default for Responses {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(MAX_RESPONSES)))
    }
}

impl Link {
    /// Tells the server, as soon as there is a place.
    pub(super) async fn respond(self: &Arc<Self>, params: String) {
        let places = self.callbacks.responses.0.clone();
        if let Ok(place) = places.acquire_owned().await {
            self.send_response(&params, place).await;
        }
    }

    /// Tells the server something it can ask for again. Without a place it is not said.
    pub(super) fn respond_if_room(self: &Arc<Self>, params: String) {
        let places = self.callbacks.responses.0.clone();
        let Ok(place) = places.try_acquire_owned() else {
            return;
        };
        let link = self.clone();
        task::detached("callbacks.respond", async move {
            link.send_response(&params, place).await;
        });
    }

    async fn send_response(self: &Arc<Self>, params: &str, _place: OwnedSemaphorePermit) {
        let Some(era) = self.era_of(Features::CALLBACKS) else {
            return;
        };
        let (answer, settled) = oneshot::channel();
        let in_flight = InFlight {
            answer,
            exchange: Exchange::new(ReplyPath::Nowhere),
            caller: None,
            token: None,
            stream: None,
            reports: false,
            era,
            listens: false,
            channel: None,
            touched: AtomicU64::new(0),
        };
        let Ok(id) = self.insert(in_flight) else {
            return;
        };
        let _forget = Forget { link: self, id };
        let whole = match era {
            Era::Legacy => params.to_owned(),
            Era::Modern => envelope::wrap(Some(params), &self.own_meta),
        };
        let id_text = self.ids.shown(id).to_string();
        let frame = jsonrpc::request(&id_text, Respond::METHOD, Some(&whole));
        let mirror = MirroredHeaders {
            method: Respond::METHOD,
            name: None,
            params: &[],
        };
        tokio::select! {
            biased;
            outcome = settled => self.heard_response(outcome.unwrap_or(Err(Refusal::Cancelled))),
            never = self.wire.carry(self, id, frame.into(), era, mirror, Alongside::default()) => match never {},
            () = tokio::time::sleep(TAKEN) => self.log.note("it did not say that it has the answer to its callback"),
        }
    }

    /// What the server says to it is for its log: nobody waits for that.
    fn heard_response(&self, outcome: mgp_callers::request::Outcome) {
        if let Err(refusal) = outcome
            && let Some(words) = refusal.relayed_error()
        {
            self.log.note(&format!(
                "it did not take the answer to its callback: {words}"
            ));
        }
    }
}
