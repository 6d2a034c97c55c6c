//! `context/*`: hooks before and after an inference (MCPL §10).

use std::borrow::Cow;
use std::fmt;

use mgp_json::{lookalike, member, unquote};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::mcp::methods;

methods! {
    "context/beforeInference" => BeforeInference<'_>,
    "context/afterInference" => AfterInference<'_>,
}

/// `context/beforeInference` (§10.1, §14.4). Members that the kernel does not read keep their original
/// text.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BeforeInference<'a> {
    /// The id of the inference.
    #[serde(borrow)]
    pub inference_id: Cow<'a, str>,
    /// The conversation, equal in all its turns.
    #[serde(borrow)]
    pub conversation_id: Cow<'a, str>,
    /// The turn, from 0.
    pub turn_index: u64,
    /// The user's message; none if the model continues by itself.
    #[serde(borrow, deserialize_with = "nullable")]
    pub user_message: Option<Cow<'a, str>>,
    /// The model, as in `model/info`.
    #[serde(borrow, deserialize_with = "model")]
    pub model: &'a RawValue,
    /// The channel of the message and of the answer (§14.4).
    #[serde(
        borrow,
        default,
        deserialize_with = "lookalike::object",
        skip_serializing_if = "Option::is_none"
    )]
    pub channels: Option<&'a RawValue>,
}

/// `context/afterInference` (§10.5): a notification, or a request whose answer is awaited.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AfterInference<'a> {
    /// The id of the inference.
    #[serde(borrow)]
    pub inference_id: Cow<'a, str>,
    /// The conversation, equal in all its turns.
    #[serde(borrow)]
    pub conversation_id: Cow<'a, str>,
    /// The turn, from 0.
    pub turn_index: u64,
    /// The user's message; none if the model continued by itself.
    #[serde(borrow, deserialize_with = "nullable")]
    pub user_message: Option<Cow<'a, str>>,
    /// The model's answer.
    #[serde(borrow)]
    pub assistant_message: Cow<'a, str>,
    /// The model, as in `model/info`.
    #[serde(borrow, deserialize_with = "model")]
    pub model: &'a RawValue,
    /// The token usage: `{inputTokens, outputTokens}`.
    #[serde(
        borrow,
        default,
        deserialize_with = "lookalike::object",
        skip_serializing_if = "Option::is_none"
    )]
    pub usage: Option<&'a RawValue>,
}

/// Parses a model, as in `model/info`: an object with an `id`, relayed verbatim.
fn model<'de: 'a, 'a, D: serde::Deserializer<'de>>(d: D) -> Result<&'a RawValue, D::Error> {
    let raw = lookalike::required_object(d)?;
    let id = member(raw.get(), "id").and_then(unquote);
    if id.is_some_and(|id| !id.is_empty()) {
        Ok(raw)
    } else {
        Err(serde::de::Error::custom("a model has an `id`"))
    }
}

/// Parses a required member that may be `null`.
fn nullable<'de: 'a, 'a, D: serde::Deserializer<'de>>(
    d: D,
) -> Result<Option<Cow<'a, str>>, D::Error> {
    struct Nullable;
    impl<'de> serde::de::Visitor<'de> for Nullable {
        type Value = Option<Cow<'de, str>>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a string or null")
        }

        fn visit_unit<E>(self) -> Result<Self::Value, E> {
            Ok(None)
        }

        fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
            Ok(Some(Cow::Borrowed(text)))
        }

        fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
            Ok(Some(Cow::Owned(text.to_owned())))
        }
    }
    d.deserialize_any(Nullable)
}

/// The position of an injection in the context (B.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Position {
    /// With the system instructions.
    System,
    /// Before the user's message.
    BeforeUser,
    /// After the user's message.
    AfterUser,
}

/// A server's answer to `context/beforeInference` (§10.2). Each injection is validated by itself.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BeforeInferenceResult<'a> {
    /// The feature set that answers.
    #[serde(borrow)]
    pub feature_set: Cow<'a, str>,
    /// The injections.
    #[serde(borrow, default)]
    pub context_injections: Vec<&'a RawValue>,
}

/// One injection of a server (§10.4).
#[derive(Debug, Deserialize)]
pub struct Injection<'a> {
    /// The server's name for this kind of injection.
    #[serde(borrow)]
    pub namespace: Cow<'a, str>,
    /// Its position.
    pub position: Position,
    /// The content: a text, or blocks.
    #[serde(borrow)]
    pub content: &'a RawValue,
    /// Further data of the server.
    #[serde(borrow, default, deserialize_with = "lookalike::object")]
    pub metadata: Option<&'a RawValue>,
}

/// A server's answer to `context/afterInference` as a request (§10.5).
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AfterInferenceResult<'a> {
    /// The feature set that answers.
    #[serde(borrow)]
    pub feature_set: Cow<'a, str>,
    /// The replacement of the model's answer.
    #[serde(borrow, default)]
    pub modified_response: Option<Cow<'a, str>>,
    /// Further data of the server.
    #[serde(borrow, default, deserialize_with = "lookalike::object")]
    pub metadata: Option<&'a RawValue>,
}

macro_rules! read {
    ($($word:ident),*) => {
        $(impl<'a> $word<'a> {
            /// Parses it; unknown members are ignored.
            ///
            /// # Errors
            /// The missing or invalid member, as text.
            pub fn read(text: &'a str) -> Result<Self, String> {
                lookalike::from_object(text).map_err(|e| lookalike::strip_position(&e))
            }
        })*
    };
}

read!(
    BeforeInference,
    AfterInference,
    BeforeInferenceResult,
    Injection,
    AfterInferenceResult
);

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of §10.1, verbatim.
    const BEFORE: &str = r#"{
        "inferenceId": "inf_xyz", "conversationId": "conv_123", "turnIndex": 7, "userMessage": null,
        "model": { "id": "claude-opus-4-5-20251101", "vendor": "anthropic", "contextWindow": 200000, "capabilities": ["vision", "tools"] }
    }"#;

    /// MCPL-086: `userMessage` is required and may be null; a turn is an integer from 0.
    #[test]
    fn before_inference_requires_all_members() {
        let read = BeforeInference::read(BEFORE).unwrap();
        assert_eq!((read.turn_index, read.user_message), (7, None));
        let whole: serde_json::Value = serde_json::from_str(BEFORE).unwrap();
        for member in [
            "inferenceId",
            "conversationId",
            "turnIndex",
            "userMessage",
            "model",
        ] {
            let mut less = whole.clone();
            less.as_object_mut().unwrap().remove(member);
            let message = BeforeInference::read(&less.to_string()).unwrap_err();
            assert!(message.contains(&format!("`{member}`")), "{message}");
        }
        for (from, to) in [
            (r#""turnIndex": 7"#, r#""turnIndex": -1"#),
            (r#""turnIndex": 7"#, r#""turnIndex": 7.5"#),
            (r#""userMessage": null"#, r#""userMessage": 7"#),
            (
                r#""id": "claude-opus-4-5-20251101""#,
                r#""name": "claude-opus-4-5-20251101""#,
            ),
            (r#""id": "claude-opus-4-5-20251101""#, r#""id": """#),
        ] {
            assert!(
                BeforeInference::read(&BEFORE.replace(from, to)).is_err(),
                "{to}"
            );
        }
    }

    /// A parsed request is rendered with all its members, and no more.
    #[test]
    fn request_round_trips_as_in_the_document() {
        let said = BEFORE.replace("null", r#""a \"b\"""#);
        let read = BeforeInference::read(&said).unwrap();
        assert_eq!(read.user_message.as_deref(), Some("a \"b\""));
        let written = serde_json::to_string(&read).unwrap();
        let same = |text: &str| serde_json::from_str::<serde_json::Value>(text).unwrap();
        assert_eq!(same(&written), same(&said));
    }

    /// B.3: three positions, in the spelling of the document.
    #[test]
    fn positions_are_those_of_the_document() {
        for (text, position) in [
            (r#""system""#, Position::System),
            (r#""beforeUser""#, Position::BeforeUser),
            (r#""afterUser""#, Position::AfterUser),
        ] {
            assert_eq!(serde_json::from_str::<Position>(text).unwrap(), position);
        }
        for other in [r#""System""#, r#""before_user""#, r#""""#, "null", "0"] {
            assert!(serde_json::from_str::<Position>(other).is_err(), "{other}");
        }
    }
}
