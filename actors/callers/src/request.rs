//! A request as the rest of the kernel sees it, with its caller.

mod answer;
pub mod background_call;
pub mod server_input_required;
pub mod suspended_calls;
mod tap;

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
use crate::in_flight_call::InFlightCall;
use mgp_runtime::task::{self, TaskError};
use mgp_runtime::trace::Trace;

pub use self::answer::{render_answer, render_answer_parts};
pub use crate::agent::caller::{Caller, CallerSession, identity, principal};

/// One request. Method and params are slices of the frame it came in.
#[derive(Debug)]
pub struct Request {
    /// The sender.
    pub caller: Arc<Caller>,
    /// The in-flight state of the request.
    pub call: Arc<InFlightCall>,
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
pub type AnswerFuture<T = Outcome> = Pin<Box<dyn Future<Output = T> + Send>>;

/// A future that resolves with [`Refusal::Internal`] if its code panics, so that no caller waits for ever
/// and its resources are freed.
pub struct GuardedAnswer(AnswerFuture);

impl GuardedAnswer {
    /// Guards the future that `begin` returns; `begin` itself may panic too.
    #[must_use]
    pub fn new(begin: impl FnOnce() -> AnswerFuture) -> Self {
        let begun = task::catch_panic_sync(ANSWER_TASK, begin);
        Self(
            begun
                .unwrap_or_else(|broken| Box::pin(std::future::ready(Err(panic_refusal(&broken))))),
        )
    }
}

impl Future for GuardedAnswer {
    type Output = Outcome;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Outcome> {
        let polled = task::catch_panic_sync(ANSWER_TASK, || self.0.as_mut().poll(cx));
        polled.unwrap_or_else(|broken| Poll::Ready(Err(panic_refusal(&broken))))
    }
}

impl std::fmt::Debug for GuardedAnswer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("GuardedAnswer")
    }
}

/// The name under which panics of answers are counted.
const ANSWER_TASK: &str = "answer";

/// The refusal that a client gets after a panic. The panic's message goes to the kernel's log only.
#[must_use]
pub fn panic_refusal(broken: &TaskError) -> Refusal {
    Refusal::Internal(match broken {
        TaskError::Panicked { .. } => "the kernel failed at this; its log says where".into(),
        TaskError::Aborted => broken.to_string(),
    })
}

/// An image that clients load from this kernel.
#[derive(Debug)]
pub struct Icon {
    /// By its contents.
    pub media_type: &'static str,
    /// The image.
    pub bytes: Bytes,
}

/// The routing table of all methods (`kernel/src/routes.rs`).
pub trait Routes: Send + Sync + std::fmt::Debug + 'static {
    /// Answers a request.
    fn answer(&self, request: Request) -> AnswerFuture;

    /// Handles a notification.
    fn handle_notification(&self, caller: &Arc<Caller>, method: &str, params: Option<&str>);

    /// Finds the tool of that name, as visible in the view, if this caller may call it.
    fn find_tool(
        &self,
        view: &CatalogView,
        name: &str,
        principal: &Principal,
    ) -> Option<Arc<CatalogTool>>;

    /// The definitions of all tools that this caller may call, as pages of a list.
    fn all_tools(&self, caller: Arc<Caller>) -> AnswerFuture<Result<Vec<Bytes>, Refusal>>;

    /// The result of `initialize` for an agent with this view, as JSON text.
    fn initialize(&self, caller: Arc<Caller>) -> AnswerFuture;

    /// The icon of a definition by its name in an address of this kernel.
    fn icon(&self, _name: &str) -> AnswerFuture<Option<Icon>> {
        Box::pin(async { None })
    }

    /// True if the view names a server that exists and that this caller may know of.
    fn is_view_known(&self, view: &CatalogView, principal: &Principal) -> bool;

    /// The closest server name, for suggestions to the operator, who may know of all servers.
    fn nearest_server(&self, _typed: &ServerId) -> Option<ServerId> {
        None
    }

    /// Why grants for agents of other nodes are suspended at present, if they are.
    fn foreign_closure_reason(&self) -> Option<String> {
        None
    }

    /// Runs the checks again before a suspended call resumes.
    ///
    /// # Errors
    /// The refusal that the same call would get if it were new.
    fn recheck(&self, caller: &Caller, method: &str, params: &str) -> Result<(), Refusal>;

    /// Ends the subscriptions of an agent that has disconnected.
    fn handle_disconnect(&self, agent: &Agent);
}
