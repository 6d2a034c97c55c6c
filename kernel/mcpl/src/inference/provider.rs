//! Providers: what is said to one, and what comes back, in either wire format.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use mgp_protocol::mcpl::inference::{FinishReason, PromptPart, PromptTurn, TokenUsage};
use mgp_protocol::mcpl::model::ModelDescription;
use serde_json::Value;

/// Longest answer taken, in bytes of text: far more than the tokens of any real one.
pub const CONTENT_MAX: usize = 1 << 20;
/// Longest body taken, in bytes, and all of a stream: its envelopes are up to a few hundred bytes for each token.
pub const BODY_MAX: usize = 16 << 20;
/// Longest event of a stream, in bytes.
pub const EVENT_MAX: usize = 1 << 20;
/// Longest name of a model that is repeated, in bytes.
const MODEL_MAX: usize = 256;
/// Longest code of an error that is told to the operator.
const CODE_MAX: usize = 64;

/// A provider of the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProviderSpec {
    /// What it is called here.
    pub name: Arc<str>,
    /// How it is talked to.
    pub kind: ProviderKind,
    /// Where it answers: the whole address.
    pub url: String,
    /// What it calls the model.
    pub model: String,
    /// What it is shown.
    pub key: ProviderKey,
    /// How long an answer may take, from the first byte asked to the last one answered.
    pub timeout: Duration,
    /// Inferences at once.
    pub concurrency: usize,
    /// Inferences that wait for their turn; a further one is refused.
    pub queue_limit: usize,
    /// The member that says how long an answer may be, where the format has two names for it.
    pub limit_member: LimitMember,
    /// The model as `model/info` tells it.
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

/// How OpenAI's format says the length of an answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LimitMember {
    /// `max_tokens`, which most servers know.
    #[default]
    MaxTokens,
    /// `max_completion_tokens`, which some models of OpenAI insist on.
    MaxCompletionTokens,
}

/// What is asked.
#[derive(Clone, Copy, Debug)]
pub struct PromptOrder<'a> {
    /// The turns.
    pub turns: &'a [PromptTurn],
    /// Most tokens of the answer.
    pub max_tokens: u64,
    /// From 0 to 2.
    pub temperature: Option<f64>,
    /// Whether it comes in parts.
    pub stream: bool,
}

/// What a provider answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProviderAnswer {
    /// The text.
    pub content: String,
    /// The model, where it says one.
    pub model: Option<String>,
    /// Why it ended.
    pub finish: FinishReason,
    /// What it took, where it says so.
    pub usage: Option<TokenUsage>,
}

/// What is no answer. The words hold nothing that the provider wrote: it may repeat the key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AnswerError {
    /// It is of no form that is known.
    #[error("its answer is none of the configured kind")]
    Unreadable,
    /// Longer than any real one.
    #[error("its answer is longer than {CONTENT_MAX} bytes")]
    TooLong,
    /// The stream ended in the middle.
    #[error("its answer broke off")]
    Truncated,
    /// The provider held it back.
    #[error("it withheld the answer")]
    Withheld,
    /// It said that it failed; a code of its own, as far as that is a word.
    #[error("it failed{}", describe_code(.0.as_deref()))]
    Failed(Option<String>),
}

fn describe_code(code: Option<&str>) -> String {
    code.map(|code| format!(" ({code})")).unwrap_or_default()
}

impl AnswerError {
    /// A failure with the provider's code for it: told only where it is a word, as `overloaded_error` is.
    #[must_use]
    pub(crate) fn from_code(code: Option<&str>) -> Self {
        let word = |code: &&str| {
            let letters = |b: u8| b.is_ascii_lowercase() || b == b'_';
            !code.is_empty() && code.len() <= CODE_MAX && code.bytes().all(letters)
        };
        Self::Failed(code.filter(word).map(str::to_owned))
    }
}

/// What came so far.
#[derive(Clone, Debug, Default)]
pub(super) struct PartialAnswer {
    pub(super) content: String,
    pub(super) model: Option<String>,
    pub(super) finish: Option<FinishReason>,
    pub(super) input: Option<u64>,
    pub(super) output: Option<u64>,
    /// The provider said that it is done.
    pub(super) done: bool,
}

impl PartialAnswer {
    /// Adds a part; gives it back where it says something.
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

/// The content of a turn, of parts in a format's own words. Many servers know a text only, so one text stays one.
pub(super) fn render_content(
    turn: &PromptTurn,
    part: impl FnMut(&PromptPart) -> Result<Value, String>,
) -> Result<Value, String> {
    match turn.parts.as_slice() {
        [PromptPart::Text(text)] => Ok(text.as_str().into()),
        parts => parts.iter().map(part).collect(),
    }
}

/// The words about a block that only an agent may know what to do with.
pub(super) fn unsupported_block(kind: &str) -> String {
    let shown: String = kind
        .chars()
        .filter(|c| !c.is_control())
        .take(CODE_MAX)
        .collect();
    format!(
        "a block of the type {shown:?} cannot be sent to a provider: text, and images with `data`, can"
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

/// A name that is fit to be repeated.
pub(super) fn sanitize_model_name(named: &str) -> Option<String> {
    let fit = !named.is_empty() && named.len() <= MODEL_MAX && !named.contains(char::is_control);
    fit.then(|| named.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_shows_a_key_and_no_error_repeats_what_a_provider_wrote() {
        let shown = format!("{:?}", ProviderKey("sk-secret".to_owned()));
        assert_eq!(shown, "…");
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
