//! Messages that only 0.5 has: `inference/lifecycle` (0.5 §10.5) and `mcpl/*` (0.5 §17).

use std::borrow::Cow;

use mgp_json::lookalike;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::mcp::methods;

methods! {
    "inference/lifecycle" => Lifecycle<'_>,
    "mcpl/manifestChanged" => ManifestChanged,
    "mcpl/manifest" => Manifest,
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

/// The token usage of an inference.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TokenUsage {
    /// Of the prompt.
    #[serde(default)]
    pub input_tokens: u64,
    /// Of the answer.
    #[serde(default)]
    pub output_tokens: u64,
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

/// `mcpl/manifestChanged`: a hint. What changed is found by comparing the manifests.
#[derive(Debug)]
pub struct ManifestChanged;

/// `mcpl/manifest`: the whole manifest of the server.
#[derive(Debug)]
pub struct Manifest;

#[cfg(test)]
mod tests {
    use super::*;

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
