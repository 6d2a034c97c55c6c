//! The two wire formats behind one door: what is said to a provider, and what is read of it.

use super::provider::{
    BadAnswer, Gathered, PromptOrder, ProviderAnswer, ProviderKind, ProviderSpec,
};
use super::{anthropic, openai};

impl ProviderSpec {
    /// The body of a request.
    ///
    /// # Errors
    /// In words: the prompt holds what the format has no place for.
    pub fn body(&self, order: &PromptOrder<'_>) -> Result<String, String> {
        match self.kind {
            ProviderKind::OpenAi => openai::body(&self.model, self.limit_member, order),
            ProviderKind::Anthropic => anthropic::body(&self.model, order),
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
    /// [`BadAnswer`].
    pub fn read(&self, body: &[u8]) -> Result<ProviderAnswer, BadAnswer> {
        match self.kind {
            ProviderKind::OpenAi => openai::read(body),
            ProviderKind::Anthropic => anthropic::read(body),
        }
    }
}

/// An answer that comes in parts.
#[derive(Clone, Debug)]
pub struct ProviderStream {
    kind: ProviderKind,
    gathered: Gathered,
}

impl ProviderStream {
    /// Before the first part.
    #[must_use]
    pub fn new(kind: ProviderKind) -> Self {
        let gathered = Gathered::default();
        Self { kind, gathered }
    }

    /// Takes the data of an event; the text it adds, if any.
    ///
    /// # Errors
    /// [`BadAnswer`].
    pub fn event(&mut self, data: &str) -> Result<Option<String>, BadAnswer> {
        // What comes after the end is nothing.
        if self.gathered.done {
            return Ok(None);
        }
        match self.kind {
            ProviderKind::OpenAi => openai::event(&mut self.gathered, data),
            ProviderKind::Anthropic => anthropic::event(&mut self.gathered, data),
        }
    }

    /// Nothing more is to be read.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.gathered.done
    }

    /// The whole, once the stream ended.
    ///
    /// # Errors
    /// [`BadAnswer::Cut`]: it ended before the model did.
    pub fn end(self) -> Result<ProviderAnswer, BadAnswer> {
        self.gathered.end()
    }
}
