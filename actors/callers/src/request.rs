//! A request as the rest of the kernel sees it, with its caller.

mod answer;
pub mod background_call;
pub mod input_required;
pub mod suspended_calls;
mod tapped;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use bytestring::ByteString;
use mgp_engine::policy::access::Principal;
use mgp_engine::tools::catalog::{CatalogTool, CatalogView};
use mgp_protocol::ids::ServerId;
use mgp_protocol::refusal::Refusal;

use crate::agent::Agent;
use crate::exchange::Exchange;
use mgp_runtime::task::{self, TaskBroken};
use mgp_runtime::trace::Trace;

pub use self::answer::{answer_frame, answer_parts};
pub use crate::agent::caller::{Caller, CallerSession, identity, principal};

/// One request. Method and params are slices of the frame it came in.
#[derive(Debug)]
pub struct Request {
    /// The sender.
    pub caller: Arc<Caller>,
    /// The request's state while it is under way.
    pub exchange: Arc<Exchange>,
    /// The method.
    pub method: ByteString,
    /// The params, as JSON text.
    pub params: Option<ByteString>,
    /// The trace.
    pub trace: Trace,
}

/// The `result` of an answer as JSON text, or the refusal.
pub type Outcome = Result<Bytes, Refusal>;

/// A future that resolves with an answer.
pub type Answering<T = Outcome> = Pin<Box<dyn Future<Output = T> + Send>>;

/// A future that resolves with [`Refusal::Broken`] if the code behind it panics, so that nobody waits
/// for ever and its resources are freed.
pub struct GuardedAnswer(Answering);

impl GuardedAnswer {
    /// Guards what `begin` starts, which may itself panic.
    #[must_use]
    pub fn new(begin: impl FnOnce() -> Answering) -> Self {
        let begun = task::guarded(ANSWER, begin);
        Self(begun.unwrap_or_else(|broken| Box::pin(std::future::ready(Err(refused(&broken))))))
    }
}

impl Future for GuardedAnswer {
    type Output = Outcome;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Outcome> {
        let polled = task::guarded(ANSWER, || self.0.as_mut().poll(cx));
        polled.unwrap_or_else(|broken| Poll::Ready(Err(refused(&broken))))
    }
}

impl std::fmt::Debug for GuardedAnswer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("GuardedAnswer")
    }
}

/// The name under which panics of answers are counted.
const ANSWER: &str = "answer";

/// The answer to a client after a panic. The panic's message goes to the kernel's log only.
#[must_use]
pub fn refused(broken: &TaskBroken) -> Refusal {
    Refusal::Broken(match broken {
        TaskBroken::Panicked { .. } => "the kernel failed at this; its log says where".into(),
        TaskBroken::Aborted => broken.to_string(),
    })
}

/// The table of all methods (`kernel/src/routes.rs`).
pub trait Routes: Send + Sync + std::fmt::Debug + 'static {
    /// Answers a request.
    fn answer(&self, request: Request) -> Answering;

    /// Handles a notification.
    fn note(&self, caller: &Arc<Caller>, method: &str, params: Option<&str>);

    /// The tool of that name, as shown in the view, when this caller may call it.
    fn tool(&self, view: &CatalogView, name: &str, who: &Principal) -> Option<Arc<CatalogTool>>;

    /// The definitions of all tools that this caller may call, as pages of a list.
    fn all_tools(&self, caller: Arc<Caller>) -> Answering<Result<Vec<Bytes>, Refusal>>;

    /// The result of `initialize` for an agent with this view, as JSON text.
    fn welcome(&self, caller: Arc<Caller>) -> Answering;

    /// True when the view names a server that exists, as far as this caller may know.
    fn knows(&self, view: &CatalogView, who: &Principal) -> bool;

    /// The server that was probably meant. For the owner, who may know of all.
    fn nearest_server(&self, _typed: &ServerId) -> Option<ServerId> {
        None
    }

    /// Why what agents of other nodes are granted is closed to all of them at present.
    fn lapse(&self) -> Option<String> {
        None
    }

    /// Repeats the checks of a call that waited for its client.
    ///
    /// # Errors
    /// What a new call of the same would be answered.
    fn still(&self, caller: &Caller, method: &str, params: &str) -> Result<(), Refusal>;

    /// An agent has disconnected: its subscriptions end.
    fn farewell(&self, agent: &Agent);
}
