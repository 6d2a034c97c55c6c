//! Providers, their requests and answers, in either wire format.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use mgp_protocol::mcpl::inference::{FinishReason, PromptPart, PromptTurn, TokenUsage};
use mgp_protocol::mcpl::model::ModelDescription;
use serde_json::Value;

/// Longest accepted answer, in bytes of text: far more than any real one.
pub const CONTENT_MAX: usize = 1 << 20;
/// Longest accepted body or stream, in bytes: envelopes take up to a few hundred bytes per token.
pub const BODY_MAX: usize = 16 << 20;
/// Longest event of a stream, in bytes.
pub const EVENT_MAX: usize = 1 << 20;
/// Longest model name passed on, in bytes.
const MODEL_MAX: usize = 256;
/// Longest error code reported to the operator.
const CODE_MAX: usize = 64;

/// A provider of the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProviderSpec {
    /// Its name in the configuration.
    pub name: Arc<str>,
    /// Its wire format.
    pub kind: ProviderKind,
    /// The full URL.
    pub url: String,
    /// The provider's name of the model.
    pub model: String,
    /// The credential.
    pub key: ProviderKey,
    /// Timeout from the first byte of the request to the last one of the answer.
    pub timeout: Duration,
    /// Concurrent inferences.
    pub concurrency: usize,
    /// Queued inferences; further ones are rejected.
    pub queue_limit: usize,
    /// The member with the answer's token limit, where the format has two.
    pub limit_member: LimitMember,
    /// The model for `model/info`.
    pub info: ModelDescription,
}

/// A key. Its `Debug` shows nothing.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct ProviderKey(pub String);

impl fmt::Debug for ProviderKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_empty() { "none" } else { "…" })
    }
}

/// The wire formats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProviderKind {
    /// `POST …/chat/completions`, as OpenAI made it and most others answer it.
    OpenAi,
    /// `POST …/messages` of Anthropic.
    Anthropic,
}

/// The token limit's member in OpenAI's format.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LimitMember {
    /// `max_tokens`, which most servers know.
    #[default]
    MaxTokens,
    /// `max_completion_tokens`, which some models of OpenAI require.
    MaxCompletionTokens,
}

/// A request.
#[derive(Clone, Copy, Debug)]
pub struct PromptOrder<'a> {
    /// The turns.
    pub turns: &'a [PromptTurn],
    /// Most tokens of the answer.
    pub max_tokens: u64,
    /// From 0 to 2.
    pub temperature: Option<f64>,
    /// Whether to stream.
    pub stream: bool,
}

/// A provider's answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProviderAnswer {
    /// The text.
    pub content: String,
    /// The model, if reported.
    pub model: Option<String>,
    /// Why it ended.
    pub finish: FinishReason,
    /// The usage, if reported.
    pub usage: Option<TokenUsage>,
}

/// Why an answer failed. Messages never quote the provider, which may repeat the key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AnswerError {
    /// Unknown form.
    #[error("its answer is none of the configured kind")]
    Unreadable,
    /// Longer than any real answer.
    #[error("its answer is longer than {CONTENT_MAX} bytes")]
    TooLong,
    /// The stream ended in the middle.
    #[error("its answer broke off")]
    Truncated,
    /// The provider withheld it.
    #[error("it withheld the answer")]
    Withheld,
    /// The provider reported a failure, with its code if that is a word.
    #[error("it failed{}", describe_code(.0.as_deref()))]
    Failed(Option<String>),
}

fn describe_code(code: Option<&str>) -> String {
    code.map(|code| format!(" ({code})")).unwrap_or_default()
}

impl AnswerError {
    /// A failure with the provider's code, kept only if it is a word such as `overloaded_error`.
    #[must_use]
    pub(crate) fn from_code(code: Option<&str>) -> Self {
        let word = |code: &&str| {
            let letters = |b: u8| b.is_ascii_lowercase() || b == b'_';
            !code.is_empty() && code.len() <= CODE_MAX && code.bytes().all(letters)
        };
        Self::Failed(code.filter(word).map(str::to_owned))
    }
}

/// The answer so far.
#[derive(Clone, Debug, Default)]
pub(super) struct PartialAnswer {
    pub(super) content: String,
    pub(super) model: Option<String>,
    pub(super) finish: Option<FinishReason>,
    pub(super) input: Option<u64>,
    pub(super) output: Option<u64>,
    /// The provider has finished.
    pub(super) done: bool,
}

impl PartialAnswer {
    /// Adds a chunk; returns it unless empty.
    pub(super) fn add(&mut self, delta: String) -> Result<Option<String>, AnswerError> {
        if self.content.len() + delta.len() > CONTENT_MAX {
            return Err(AnswerError::TooLong);
        }
        self.content.push_str(&delta);
        Ok(Some(delta).filter(|delta| !delta.is_empty()))
    }

    pub(super) fn set_model(&mut self, named: Option<&str>) {
        if let (None, Some(named)) = (&self.model, named) {
            self.model = Some(named.to_owned());
        }
    }

    /// The whole, once the stream ended.
    ///
    /// # Errors
    /// [`AnswerError::Truncated`]: it ended before the model did.
    pub(super) fn finish(self) -> Result<ProviderAnswer, AnswerError> {
        let PartialAnswer {
            content,
            model,
            finish,
            input,
            output,
            ..
        } = self;
        let finish = finish.ok_or(AnswerError::Truncated)?;
        let usage = input
            .zip(output)
            .map(|(input_tokens, output_tokens)| TokenUsage {
                input_tokens,
                output_tokens,
            });
        Ok(ProviderAnswer {
            content,
            model: model.as_deref().and_then(sanitize_model_name),
            finish,
            usage,
        })
    }
}

/// The content of a turn. Many servers accept only a string, so a single text stays one.
pub(super) fn render_content(
    turn: &PromptTurn,
    part: impl FnMut(&PromptPart) -> Result<Value, String>,
) -> Result<Value, String> {
    match turn.parts.as_slice() {
        [PromptPart::Text(text)] => Ok(text.as_str().into()),
        parts => parts.iter().map(part).collect(),
    }
}

/// The error for a block that only an agent may support.
pub(super) fn unsupported_block(kind: &str) -> String {
    let excerpt: String = kind
        .chars()
        .filter(|c| !c.is_control())
        .take(CODE_MAX)
        .collect();
    format!(
        "a block of the type {excerpt:?} cannot be sent to a provider: text, and images with `data`, can"
    )
}

/// The code in the body of an error, for the operator.
#[must_use]
pub fn parse_error(body: &[u8]) -> AnswerError {
    #[derive(serde::Deserialize)]
    struct ErrorBody {
        error: serde_json::Value,
    }
    let error = serde_json::from_slice(body)
        .ok()
        .map(|body: ErrorBody| body.error);
    let code = |member: &str| error.as_ref()?.get(member)?.as_str();
    AnswerError::from_code(code("code").or_else(|| code("type")))
}

/// A model name that is safe to pass on.
pub(super) fn sanitize_model_name(named: &str) -> Option<String> {
    let fit = !named.is_empty() && named.len() <= MODEL_MAX && !named.contains(char::is_control);
    fit.then(|| named.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_hidden_and_errors_never_quote_the_provider() {
        let debug_text = format!("{:?}", ProviderKey("sk-secret".to_owned()));
        assert_eq!(debug_text, "…");
        let echo = br#"{"error":{"message":"Incorrect API key provided: sk-secret","type":"sk-secret","code":"invalid_api_key"}}"#;
        let words = parse_error(echo).to_string();
        assert_eq!(words, "it failed (invalid_api_key)");
        for bad in [
            &br#"{"error":{"message":"x","type":"sk-secret"}}"#[..],
            br#"{"error":{"code":"Bearer sk"}}"#,
            br#"{"error":"sk-secret"}"#,
            b"<html>sk-secret",
            b"",
        ] {
            assert_eq!(parse_error(bad).to_string(), "it failed");
        }
        let long = format!(r#"{{"error":{{"code":"{}"}}}}"#, "a".repeat(CODE_MAX + 1));
        assert_eq!(parse_error(long.as_bytes()), AnswerError::Failed(None));
    }
}
