//! The two wire formats behind one door: what is said to a provider, and what is read of it.

use super::provider::{
    AnswerError, PartialAnswer, PromptOrder, ProviderAnswer, ProviderKind, ProviderSpec,
};
use super::{anthropic, openai};

impl ProviderSpec {
    /// The body of a request.
    ///
    /// # Errors
    /// In words: the prompt holds what the format has no place for.
    pub fn render_body(&self, order: &PromptOrder<'_>) -> Result<String, String> {
        match self.kind {
            ProviderKind::OpenAi => openai::render_body(&self.model, self.limit_member, order),
            ProviderKind::Anthropic => anthropic::render_body(&self.model, order),
        }
    }

    /// The headers of a request that say who asks, and in which version. They hold the key.
    #[must_use]
    pub fn headers(&self) -> Vec<(&'static str, String)> {
        let key = (!self.key.0.is_empty()).then_some(&self.key.0);
        match self.kind {
            ProviderKind::OpenAi => {
                let bearer = key.map(|key| ("authorization", format!("Bearer {key}")));
                bearer.into_iter().collect()
            }
            ProviderKind::Anthropic => {
                let version = ("anthropic-version", anthropic::VERSION.to_owned());
                let key = key.map(|key| ("x-api-key", key.clone()));
                key.into_iter().chain([version]).collect()
            }
        }
    }

    /// An answer that came whole.
    ///
    /// # Errors
    /// [`AnswerError`].
    pub fn parse_answer(&self, body: &[u8]) -> Result<ProviderAnswer, AnswerError> {
        match self.kind {
            ProviderKind::OpenAi => openai::parse_answer(body),
            ProviderKind::Anthropic => anthropic::parse_answer(body),
        }
    }
}

/// An answer that comes in parts.
#[derive(Clone, Debug)]
pub struct ProviderStream {
    kind: ProviderKind,
    partial: PartialAnswer,
}

impl ProviderStream {
    /// Before the first part.
    #[must_use]
    pub fn new(kind: ProviderKind) -> Self {
        let partial = PartialAnswer::default();
        Self { kind, partial }
    }

    /// Takes the data of an event; the text it adds, if any.
    ///
    /// # Errors
    /// [`AnswerError`].
    pub fn push_event(&mut self, data: &str) -> Result<Option<String>, AnswerError> {
        // What comes after the end is nothing.
        if self.partial.done {
            return Ok(None);
        }
        match self.kind {
            ProviderKind::OpenAi => openai::parse_event(&mut self.partial, data),
            ProviderKind::Anthropic => anthropic::parse_event(&mut self.partial, data),
        }
    }

    /// Nothing more is to be read.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.partial.done
    }

    /// The whole, once the stream ended.
    ///
    /// # Errors
    /// [`AnswerError::Truncated`]: it ended before the model did.
    pub fn finish(self) -> Result<ProviderAnswer, AnswerError> {
        self.partial.finish()
    }
}
