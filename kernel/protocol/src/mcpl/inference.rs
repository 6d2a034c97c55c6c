//! `inference/*`: inference requests of servers (MCPL §11), and the phases of inferences (0.5 §10.5).

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
    "inference/lifecycle" => Lifecycle<'_>,
}

/// The kernel's own code for a failed inference; `data.reason` has the cause ([`InferenceFailure`]).
pub const INFERENCE_FAILED: i64 = -32010;
/// The longest `conversationId`, in bytes; it is stored in tables.
pub(crate) const CONVERSATION_ID_MAX: usize = 256;

/// `inference/request` of a server. Parsed by [`Request::parse`].
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Request<'a> {
    /// The feature set of the request.
    #[serde(borrow)]
    pub feature_set: Cow<'a, str>,
    /// The turns so far, as sent by the server.
    #[serde(borrow)]
    pub messages: &'a RawValue,
    /// The conversation, named by the server.
    #[serde(borrow, default)]
    pub conversation_id: Option<Cow<'a, str>>,
    /// True if chunks are wanted before the answer.
    #[serde(default)]
    pub stream: Option<bool>,
    /// The server's preferences, as sent.
    #[serde(borrow, default, deserialize_with = "lookalike::object")]
    pub preferences: Option<&'a RawValue>,
}

impl<'a> Request<'a> {
    /// Parses `params`. Unknown members are ignored.
    ///
    /// # Errors
    /// A description for `-32602` (MCPL-101).
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

    /// Parses the turns.
    ///
    /// # Errors
    /// A description for `-32602`.
    pub fn turns(&self) -> Result<Vec<PromptTurn>, String> {
        prompt::parse_turns(self.messages.get())
    }

    /// Parses the server's preferences. Unknown keys are ignored (MCPL-102).
    ///
    /// # Errors
    /// A description for `-32602`: a known key has an invalid value.
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

/// The two known preferences.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct InferencePreferences {
    /// The most tokens of the answer.
    #[serde(default)]
    pub max_tokens: Option<u64>,
    /// From 0 (most likely tokens) to 2.
    #[serde(default)]
    pub temperature: Option<f64>,
}

/// `inference/chunk`: a part of an answer. The kernel renders it for servers ([`render_chunk`]) and parses
/// it from agents.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Chunk<'a> {
    /// The id of the request, assigned by the requester.
    pub request_id: RequestId,
    /// The index, from 0.
    pub index: u64,
    /// The text of the part.
    #[serde(borrow)]
    pub delta: Cow<'a, str>,
}

impl<'a> Chunk<'a> {
    /// Parses `params`.
    ///
    /// # Errors
    /// The error of serde_json.
    pub fn parse(params: &'a str) -> Result<Self, serde_json::Error> {
        lookalike::from_object(params)
    }
}

/// Renders the `params` of an `inference/chunk` of the kernel: `id` as received from the requester
/// (MCPL-105).
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
    /// The generated text.
    pub content: String,
    /// The model.
    pub model: String,
    /// The reason why it stopped.
    pub finish_reason: FinishReason,
    /// The token usage.
    pub usage: TokenUsage,
}

impl InferenceAnswer {
    /// Parses the answer of an agent: a plain text, or one text block.
    ///
    /// # Errors
    /// The error of serde_json.
    pub fn parse(result: &str) -> Result<Self, serde_json::Error> {
        lookalike::from_object(result)
    }

    /// Renders JSON text.
    #[must_use]
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("an answer is always JSON")
    }
}

/// The reason why a model stopped (MCPL-139, appendix B.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FinishReason {
    /// The end of the turn.
    EndTurn,
    /// The limit of tokens.
    MaxTokens,
    /// A stop sequence.
    StopSequence,
}

/// The tokens of an inference.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TokenUsage {
    /// Input tokens.
    pub input_tokens: u64,
    /// Output tokens.
    pub output_tokens: u64,
}

impl TokenUsage {
    /// The sum of both.
    #[must_use]
    pub fn total(self) -> u64 {
        self.input_tokens.saturating_add(self.output_tokens)
    }
}

/// The cause of a failed inference, in `data.reason`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum InferenceFailure {
    /// No rule of the operator matches.
    NoRoute,
    /// The target is not available.
    NotThere,
    /// A hook of the same server waits for its answer (§10.7).
    Nested,
    /// The daily token budget is exhausted, or would be.
    Budget,
    /// Too many inferences are in flight or queued.
    Busy,
    /// No answer in time.
    TimedOut,
    /// The target refused, or answered with an invalid result.
    Failed,
    /// A hook withheld the answer.
    Withheld,
}

impl InferenceFailure {
    /// The value of `data.reason`.
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

/// The position in the life of an inference.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    /// It began.
    Started,
    /// It ended with an answer.
    Completed,
    /// Somebody ended it.
    Aborted,
    /// It ended without an answer.
    Failed,
}

/// `inference/lifecycle`, from a host to a server. It carries nothing of what was said: a member that is not listed
/// here is not relayed.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Lifecycle<'a> {
    /// The id of the inference.
    #[serde(borrow)]
    pub inference_id: Cow<'a, str>,
    /// The conversation, equal in all its turns.
    #[serde(borrow)]
    pub conversation_id: Cow<'a, str>,
    /// The turn, from 0.
    pub turn_index: u64,
    /// The position.
    pub phase: Phase,
    /// The model, for servers with `modelInfo`.
    #[serde(
        borrow,
        default,
        deserialize_with = "lookalike::object",
        skip_serializing_if = "Option::is_none"
    )]
    pub model: Option<&'a RawValue>,
    /// The token usage, of a completed one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<TokenUsage>,
}

impl<'a> Lifecycle<'a> {
    /// Parses it; unknown members are left out.
    ///
    /// # Errors
    /// The missing or invalid member, as text.
    pub fn read(text: &'a str) -> Result<Self, String> {
        let mut read: Self =
            lookalike::from_object(text).map_err(|error| lookalike::strip_position(&error))?;
        if read.phase != Phase::Completed {
            read.usage = None;
        }
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ASKED: &str = r#"{"featureSet":"memory.consolidation","conversationId":"conv_123","stream":false,
        "messages":[{"role":"user","content":"Summarize these memories: ..."}],
        "preferences":{"maxTokens":500,"temperature":0.7}}"#;

    /// MCPL-101: the example of §11.1, and invalid requests.
    #[test]
    fn request_is_parsed_as_in_the_document() {
        let request = Request::parse(ASKED).unwrap();
        assert_eq!(request.feature_set, "memory.consolidation");
        assert_eq!(request.conversation_id.as_deref(), Some("conv_123"));
        assert_eq!(request.stream, Some(false));
        let preferences = request.preferences().unwrap();
        assert_eq!(
            (preferences.max_tokens, preferences.temperature),
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

    /// MCPL-102: unknown preferences are ignored.
    #[test]
    fn unknown_preferences_are_ignored_and_invalid_ones_rejected() {
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

    /// MCPL-105: the id of a chunk is the server's own, number or text, unchanged.
    #[test]
    fn chunk_has_the_id_unchanged() {
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

    /// MCPL-103, MCPL-139: the answer of §11.3, and unknown finish reasons.
    #[test]
    fn answer_round_trips_as_in_the_document() {
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

    /// NEW-030: nothing of what was said is relayed, whatever the message carries.
    #[test]
    fn lifecycle_carries_no_content() {
        let text = r#"{"inferenceId":"i","conversationId":"c","turnIndex":7,"phase":"completed","userMessage":"secret",
            "assistantMessage":"secret","model":{"id":"m"},"usage":{"inputTokens":1,"outputTokens":2,"text":"secret"}}"#;
        let read = Lifecycle::read(text).unwrap();
        assert_eq!(
            serde_json::to_string(&read).unwrap(),
            r#"{"inferenceId":"i","conversationId":"c","turnIndex":7,"phase":"completed","model":{"id":"m"},"usage":{"inputTokens":1,"outputTokens":2}}"#
        );
        let started = text.replace("completed", "started");
        assert_eq!(Lifecycle::read(&started).unwrap().usage, None);
        for bad in [
            text.replace("completed", "ended"),
            text.replace("completed", "Completed"),
            text.replace(r#""turnIndex":7,"#, ""),
            "[]".to_owned(),
        ] {
            assert!(Lifecycle::read(&bad).is_err(), "{bad}");
        }
    }
}
