//! Renders requests and parses answers in either wire format.

use super::provider::{
    AnswerError, PartialAnswer, PromptOrder, ProviderAnswer, ProviderKind, ProviderSpec,
};
use super::{anthropic, openai};

impl ProviderSpec {
    /// The body of a request.
    ///
    /// # Errors
    /// The prompt has content that the format does not support.
    pub fn render_body(&self, order: &PromptOrder<'_>) -> Result<String, String> {
        match self.kind {
            ProviderKind::OpenAi => openai::render_body(&self.model, self.limit_member, order),
            ProviderKind::Anthropic => anthropic::render_body(&self.model, order),
        }
    }

    /// Authentication and version headers of a request. They contain the key.
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

    /// Parses a whole answer.
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

/// An answer in chunks.
#[derive(Clone, Debug)]
pub struct ProviderStream {
    kind: ProviderKind,
    partial: PartialAnswer,
}

impl ProviderStream {
    /// Before the first chunk.
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
        // Anything after the end is ignored.
        if self.partial.done {
            return Ok(None);
        }
        match self.kind {
            ProviderKind::OpenAi => openai::parse_event(&mut self.partial, data),
            ProviderKind::Anthropic => anthropic::parse_event(&mut self.partial, data),
        }
    }

    /// True after the last event.
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
