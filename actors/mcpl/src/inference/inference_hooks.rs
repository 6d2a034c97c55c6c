//! What stands before and behind the inferences that the kernel runs itself: hooks, handed in.

use std::fmt;
use std::pin::Pin;

use mgp_protocol::ids::ServerId;
use mgp_protocol::mcpl::inference::InferenceAnswer;
use mgp_protocol::mcpl::model::ModelDescription;

/// An inference of the kernel's own.
#[derive(Clone, Debug)]
pub struct KernelInference {
    /// The kernel's id of it.
    pub id: String,
    /// The asker's word for what it belongs to, or the id again.
    pub(crate) conversation: String,
    /// Who asked for it, or whose event it is.
    pub server: ServerId,
    /// How many inferences led to it.
    pub(crate) depth: u8,
    /// From 0.
    pub(crate) turn_index: usize,
    /// What the user said last.
    pub(crate) user: Option<String>,
    /// The model.
    pub(crate) model: ModelDescription,
}

/// What is added to a prompt, in its order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PromptAdditions {
    /// With what the model is to hold to.
    pub(crate) system: Vec<String>,
    /// Before what the user said.
    pub(crate) before_user: Vec<String>,
    /// After it.
    pub(crate) after_user: Vec<String>,
}

/// What goes on of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AnswerVerdict {
    /// All of it.
    Unchanged,
    /// This instead.
    Modified(String),
    /// Nothing; why, in words.
    Withheld(String),
}

/// What one of these resolves to.
pub(crate) type HookFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Is asked before and behind an inference of the kernel's own. Each answers within a time of its own.
pub trait InferenceHooks: fmt::Debug + Send + Sync {
    /// How many inferences led to one that this server asks for now.
    ///
    /// # Errors
    /// In words, why it gets none: a hook of it is pending (§10.7), or too many led to it.
    fn depth(&self, server: &ServerId) -> Result<u8, String>;

    /// What is added.
    fn before_inference<'a>(
        &'a self,
        inference: &'a KernelInference,
    ) -> HookFuture<'a, PromptAdditions>;

    /// Whether the answer has to wait for [`Self::after`].
    fn should_wait_after(&self, inference: &KernelInference) -> bool;

    /// What goes on of the answer.
    fn after_inference<'a>(
        &'a self,
        inference: &'a KernelInference,
        answer: &'a InferenceAnswer,
    ) -> HookFuture<'a, AnswerVerdict>;
}

/// Nothing.
#[derive(Clone, Copy, Debug)]
pub struct NoHooks;

impl InferenceHooks for NoHooks {
    fn depth(&self, _: &ServerId) -> Result<u8, String> {
        Ok(0)
    }

    fn before_inference<'a>(&'a self, _: &'a KernelInference) -> HookFuture<'a, PromptAdditions> {
        Box::pin(async { PromptAdditions::default() })
    }

    fn should_wait_after(&self, _: &KernelInference) -> bool {
        false
    }

    fn after_inference<'a>(
        &'a self,
        _: &'a KernelInference,
        _: &'a InferenceAnswer,
    ) -> HookFuture<'a, AnswerVerdict> {
        Box::pin(async { AnswerVerdict::Unchanged })
    }
}
