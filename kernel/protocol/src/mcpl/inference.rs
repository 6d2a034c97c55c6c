//! `inference/*`: what servers ask a model (MCPL §11).

mod prompt;

use std::borrow::Cow;

use mgp_json::{lookalike, quote};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::jsonrpc::RequestId;
use crate::mcp::methods;

pub use self::prompt::{PromptPart, PromptRole, PromptTurn};

methods! {
    "inference/request" => Request<'_>,
    "inference/chunk" => Chunk<'_>,
}

/// The kernel's own code for an inference that is not run; `data.reason` says why ([`InferenceFailure`]).
pub const INFERENCE_FAILED: i64 = -32010;
/// Longest `conversationId` taken, in bytes; it is kept in tables.
pub(crate) const CONVERSATION_ID_MAX: usize = 256;

/// `inference/request` of a server. Read by [`Request::parse`].
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Request<'a> {
    /// The set it is asked for.
    #[serde(borrow)]
    pub feature_set: Cow<'a, str>,
    /// The turns so far, as the server wrote them.
    #[serde(borrow)]
    pub messages: &'a RawValue,
    /// Which conversation it belongs to, in the server's words.
    #[serde(borrow, default)]
    pub conversation_id: Option<Cow<'a, str>>,
    /// Whether parts are sent before the whole.
    #[serde(default)]
    pub stream: Option<bool>,
    /// What the server would like, as it wrote it.
    #[serde(borrow, default, deserialize_with = "lookalike::object")]
    pub preferences: Option<&'a RawValue>,
}

impl<'a> Request<'a> {
    /// Reads `params`. Members that are not known are passed over.
    ///
    /// # Errors
    /// In words, for `-32602` (MCPL-101).
    pub fn parse(params: &'a str) -> Result<Self, String> {
        let request: Self = lookalike::from_str(params).map_err(|e| e.to_string())?;
        let named = request.conversation_id.as_deref();
        match named.map(str::len) {
            Some(0) => Err("`conversationId` is empty".to_owned()),
            Some(length) if length > CONVERSATION_ID_MAX => Err(format!(
                "`conversationId` has {length} bytes; at most {CONVERSATION_ID_MAX} are taken"
            )),
            Some(_) | None => Ok(request),
        }
    }

    /// The turns.
    ///
    /// # Errors
    /// In words, for `-32602`.
    pub fn turns(&self) -> Result<Vec<PromptTurn>, String> {
        prompt::parse_turns(self.messages.get())
    }

    /// What the server would like. Other keys bind nobody and are passed over (MCPL-102).
    ///
    /// # Errors
    /// In words, for `-32602`: one of the two that are known is of the wrong kind.
    pub fn preferences(&self) -> Result<InferencePreferences, String> {
        let Some(text) = self.preferences else {
            return Ok(InferencePreferences::default());
        };
        let read: InferencePreferences =
            lookalike::from_object(text.get()).map_err(|e| format!("`preferences`: {e}"))?;
        let temperature = read.temperature.unwrap_or_default();
        match (read.max_tokens, temperature) {
            (Some(0), _) => Err("`preferences.maxTokens` must be at least 1".to_owned()),
            (_, t) if !t.is_finite() || !(0.0..=2.0).contains(&t) => {
                Err("`preferences.temperature` must lie between 0 and 2".to_owned())
            }
            (Some(_) | None, _) => Ok(read),
        }
    }
}

/// The two preferences that have a meaning of their own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct InferencePreferences {
    /// Most tokens of the answer.
    #[serde(default)]
    pub max_tokens: Option<u64>,
    /// From 0, the likeliest words, to 2.
    #[serde(default)]
    pub temperature: Option<f64>,
}

/// `inference/chunk`: a part of an answer before the whole. Toward a server the kernel writes it
/// ([`render_chunk`]); of an agent it is read.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Chunk<'a> {
    /// The id of the request it is of: the asker's own.
    pub request_id: RequestId,
    /// Its place, from 0.
    pub index: u64,
    /// The text that follows.
    #[serde(borrow)]
    pub delta: Cow<'a, str>,
}

impl<'a> Chunk<'a> {
    /// Reads `params`.
    ///
    /// # Errors
    /// As serde_json.
    pub fn parse(params: &'a str) -> Result<Self, serde_json::Error> {
        lookalike::from_object(params)
    }
}

/// The `params` of an `inference/chunk` of the kernel: `id` as its asker wrote it (MCPL-105).
#[must_use]
pub fn render_chunk(id: &RequestId, index: u64, delta: &str) -> String {
    let delta = quote(delta);
    format!(
        r#"{{"requestId":{},"index":{index},"delta":{delta}}}"#,
        id.as_json()
    )
}

/// The `result` of `inference/request` (MCPL-103).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct InferenceAnswer {
    /// What was generated.
    pub content: String,
    /// The model that did.
    pub model: String,
    /// Why it ended.
    pub finish_reason: FinishReason,
    /// What it took.
    pub usage: TokenUsage,
}

impl InferenceAnswer {
    /// Reads the answer of an agent. A plain text is asked for; one text block is taken as well.
    ///
    /// # Errors
    /// As serde_json.
    pub fn parse(result: &str) -> Result<Self, serde_json::Error> {
        lookalike::from_object(result)
    }

    /// As JSON text.
    #[must_use]
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("an answer is always JSON")
    }
}

/// Why a model stopped (MCPL-139, appendix B.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FinishReason {
    /// It was done.
    EndTurn,
    /// It had written as many tokens as it might.
    MaxTokens,
    /// It wrote what it was told to stop at.
    StopSequence,
}

/// The tokens of an inference.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TokenUsage {
    /// Read.
    pub input_tokens: u64,
    /// Written.
    pub output_tokens: u64,
}

impl TokenUsage {
    /// Both together.
    #[must_use]
    pub fn total(self) -> u64 {
        self.input_tokens.saturating_add(self.output_tokens)
    }
}

/// Why there is no inference, as `data.reason` says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum InferenceFailure {
    /// No rule of the operator leads anywhere.
    NoRoute,
    /// Who would answer is not there.
    NotThere,
    /// A hook of the same server waits for its answer (§10.7).
    Nested,
    /// The tokens of the day are used up, or would be.
    Budget,
    /// Too many are under way or waiting.
    Busy,
    /// No answer in time.
    TimedOut,
    /// Who was asked refused, or answered what is no answer.
    Failed,
    /// A hook withheld the answer.
    Withheld,
}

impl InferenceFailure {
    /// `data.reason`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NoRoute => "noRoute",
            Self::NotThere => "notThere",
            Self::Nested => "nested",
            Self::Budget => "budget",
            Self::Busy => "busy",
            Self::TimedOut => "timedOut",
            Self::Failed => "failed",
            Self::Withheld => "withheld",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ASKED: &str = r#"{"featureSet":"memory.consolidation","conversationId":"conv_123","stream":false,
        "messages":[{"role":"user","content":"Summarize these memories: ..."}],
        "preferences":{"maxTokens":500,"temperature":0.7}}"#;

    /// MCPL-101: the example of §11.1, and what is no request.
    #[test]
    fn a_request_is_read_as_the_document_shows_it() {
        let request = Request::parse(ASKED).unwrap();
        assert_eq!(request.feature_set, "memory.consolidation");
        assert_eq!(request.conversation_id.as_deref(), Some("conv_123"));
        assert_eq!(request.stream, Some(false));
        let wants = request.preferences().unwrap();
        assert_eq!(
            (wants.max_tokens, wants.temperature),
            (Some(500), Some(0.7))
        );
        assert_eq!(request.turns().unwrap().len(), 1);
        for bad in [
            r#"{"messages":[]}"#,
            r#"{"featureSet":"a"}"#,
            r#"{"featureSet":1,"messages":[]}"#,
            r#"{"featureSet":"a","messages":[],"stream":"yes"}"#,
            r#"{"featureSet":"a","messages":[],"preferences":[]}"#,
            r#"{"featureSet":"a","messages":[],"conversationId":""}"#,
            r#"{"featureSet":"a","FeatureSet":"b","messages":[]}"#,
            r#"{"featureSet":"a","featureSet":"b","messages":[]}"#,
        ] {
            assert!(Request::parse(bad).is_err(), "{bad}");
        }
        let long = "c".repeat(CONVERSATION_ID_MAX + 1);
        let long = format!(r#"{{"featureSet":"a","messages":[],"conversationId":"{long}"}}"#);
        assert!(Request::parse(&long).is_err());
    }

    /// MCPL-102: what the host does not know of preferences is passed over, and binds nobody.
    #[test]
    fn unknown_preferences_are_tolerated_and_wrong_ones_are_not() {
        let with = |preferences: &str| {
            let text = format!(r#"{{"featureSet":"a","messages":[],"preferences":{preferences}}}"#);
            Request::parse(&text).unwrap().preferences()
        };
        let known = with(r#"{"modelTier":"big","costTier":{"a":[1]},"model":7,"maxTokens":2}"#);
        assert_eq!(known.unwrap().max_tokens, Some(2));
        for bad in [
            r#"{"maxTokens":0}"#,
            r#"{"maxTokens":-1}"#,
            r#"{"maxTokens":1.5}"#,
            r#"{"maxTokens":"9"}"#,
            r#"{"temperature":-0.1}"#,
            r#"{"temperature":2.1}"#,
            r#"{"temperature":"hot"}"#,
        ] {
            assert!(with(bad).is_err(), "{bad}");
        }
    }

    /// MCPL-105: the id of a chunk is the server's own, number or text, as it wrote it.
    #[test]
    fn a_chunk_carries_the_id_as_it_was_written() {
        for id in [
            "1",
            r#""req-7""#,
            "-3",
            "123456789012345678901234567890",
            r#""\u00e9""#,
        ] {
            let text = render_chunk(&RequestId::from_json(id).unwrap(), 0, "Con\"so\n");
            assert!(
                text.starts_with(&format!(r#"{{"requestId":{id},"index":0,"#)),
                "{text}"
            );
            let read = Chunk::parse(&text).unwrap();
            assert_eq!((read.request_id.as_json(), &*read.delta), (id, "Con\"so\n"));
        }
        assert!(Chunk::parse(r#"{"requestId":null,"index":0,"delta":""}"#).is_err());
        assert!(Chunk::parse(r#"{"requestId":1,"index":-1,"delta":""}"#).is_err());
    }

    /// MCPL-103, MCPL-139: the answer of §11.3, and reasons that there are not.
    #[test]
    fn an_answer_is_read_and_written_as_the_document_shows_it() {
        let text = r#"{"content":"Consolidated memory summary...","model":"claude-haiku-4-5-20251001","finishReason":"end_turn","usage":{"inputTokens":450,"outputTokens":120}}"#;
        let answer = InferenceAnswer::parse(text).unwrap();
        assert_eq!(
            (answer.to_json(), answer.usage.total()),
            (text.to_owned(), 570)
        );
        for reason in ["max_tokens", "stop_sequence"] {
            assert!(InferenceAnswer::parse(&text.replace("end_turn", reason)).is_ok());
        }
        for bad in ["stop", "EndTurn", "length", ""] {
            assert!(
                InferenceAnswer::parse(&text.replace("end_turn", bad)).is_err(),
                "{bad}"
            );
        }
    }
}
