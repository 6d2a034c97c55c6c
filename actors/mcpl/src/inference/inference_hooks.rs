//! The interface of the hooks around the kernel's own inferences.

use std::fmt;
use std::pin::Pin;

use mgp_protocol::ids::ServerId;
use mgp_protocol::mcpl::inference::InferenceAnswer;
use mgp_protocol::mcpl::model::ModelDescription;

/// An inference of the kernel.
#[derive(Clone, Debug)]
pub struct KernelInference {
    /// The kernel's id of it.
    pub id: String,
    /// The requester's conversation id, or the id again.
    pub(crate) conversation: String,
    /// The server that requested it, or that pushed the event.
    pub server: ServerId,
    /// The number of inferences that led to it.
    pub(crate) depth: u8,
    /// Counted from 0.
    pub(crate) turn_index: usize,
    /// The user's last turn.
    pub(crate) user: Option<String>,
    /// The model.
    pub(crate) model: ModelDescription,
}

/// The additions to a prompt, in their order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PromptAdditions {
    /// Added to the system prompt.
    pub(crate) system: Vec<String>,
    /// Added before the user's last turn.
    pub(crate) before_user: Vec<String>,
    /// Added after it.
    pub(crate) after_user: Vec<String>,
}

/// The decision about an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AnswerVerdict {
    /// Sent unchanged.
    Unchanged,
    /// Sent with this text instead.
    Modified(String),
    /// Withheld, with the reason.
    Withheld(String),
}

/// The future of a hook.
pub(crate) type HookFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// The hooks before and after an inference of the kernel. Each has its own timeout.
pub trait InferenceHooks: fmt::Debug + Send + Sync {
    /// The number of inferences that led to one that this server requests now.
    ///
    /// # Errors
    /// The reason why it gets none: a hook of it is pending (§10.7), or the depth limit is reached.
    fn depth(&self, server: &ServerId) -> Result<u8, String>;

    /// The additions to the prompt.
    fn before_inference<'a>(
        &'a self,
        inference: &'a KernelInference,
    ) -> HookFuture<'a, PromptAdditions>;

    /// Whether the answer has to wait for [`Self::after_inference`].
    fn should_wait_after(&self, inference: &KernelInference) -> bool;

    /// The decision about the answer.
    fn after_inference<'a>(
        &'a self,
        inference: &'a KernelInference,
        answer: &'a InferenceAnswer,
    ) -> HookFuture<'a, AnswerVerdict>;
}
