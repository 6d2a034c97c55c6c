//! Parses the results of calls (MCP-lite §3.3 and §3.4); decision 64 defines what the document leaves open
//! (A-17, A-37).

use mgp_json::{lookalike, members};
use mgp_protocol::lite::ResponseType;
use serde::Deserialize;
use serde_json::value::RawValue;

/// The longest promise token, in bytes: a hundred times as long as an unguessable token needs to be, and shorter
/// than any server's request limit.
pub(super) const TOKEN_BYTES_MAX: usize = 4096;

/// The meaning of a result.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum LiteResult {
    /// The final result.
    Final {
        /// True if the tool failed.
        failed: bool,
    },
    /// The result comes later, for this token.
    Promise(String),
    /// Input is needed, and then the call is repeated.
    NeedsInput(InputNeed),
}

/// The input that is needed.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct InputNeed {
    /// The message for the person.
    pub(super) message: Option<String>,
    /// The schema of the additional arguments, as JSON text: an object with `properties`.
    pub(super) schema: Option<String>,
    /// The token with which a server that stored the call continues it, as other kernels do.
    pub(super) continuation: Option<String>,
}

#[derive(Default, Deserialize)]
struct LiteMeta<'a> {
    #[serde(default)]
    response_type: Option<String>,
    #[serde(default)]
    promise_token: Option<String>,
    #[serde(borrow, default)]
    elicitation: Option<&'a RawValue>,
    #[serde(default)]
    continuation: Option<String>,
}

#[derive(Default, Deserialize)]
struct LiteElicitation<'a> {
    #[serde(default)]
    message: Option<String>,
    #[serde(borrow, default, rename = "requestedSchema")]
    schema: Option<&'a RawValue>,
}

impl LiteResult {
    /// Parses a result, which may be any JSON.
    ///
    /// # Errors
    /// What is wrong with it, as text.
    pub(super) fn parse(result: &str) -> Result<Self, String> {
        let meta = parse_meta(result)?;
        let kind = match meta.response_type.as_deref() {
            None => ResponseType::Answer,
            Some(word) => ResponseType::parse(word).ok_or_else(|| {
                let word: String = word.chars().filter(|c| !c.is_control()).take(40).collect();
                format!("its answer is of a kind that is not known here (`response_type` {word:?})")
            })?,
        };
        match kind {
            ResponseType::Answer => Ok(Self::Final { failed: false }),
            ResponseType::Failure => Ok(Self::Final { failed: true }),
            ResponseType::Promise => match meta.promise_token.filter(|token| !token.is_empty()) {
                None => Err("it returned a promise without `promise_token`".into()),
                Some(token) if token.len() > TOKEN_BYTES_MAX => Err(format!(
                    "its promise token is {} bytes long; the limit is {TOKEN_BYTES_MAX}",
                    token.len()
                )),
                Some(token) => Ok(Self::Promise(token)),
            },
            // The last type is in only one list of the document; it means that input is needed first (A-17).
            ResponseType::Elicitation | ResponseType::MoreResource => {
                Ok(Self::NeedsInput(InputNeed::from_meta(meta)))
            }
        }
    }
}

impl InputNeed {
    /// Reads the input need; one that cannot be parsed has no form, and its caller gets a text.
    fn from_meta(meta: LiteMeta<'_>) -> Self {
        let elicitation = meta
            .elicitation
            .and_then(|text| lookalike::from_object(text.get()).ok());
        let elicitation: LiteElicitation<'_> = elicitation.unwrap_or_default();
        let form = |schema: &&RawValue| {
            let all = members(schema.get()).unwrap_or_default();
            let mut all = all.iter();
            all.any(|(name, value)| name == "properties" && value.get().starts_with('{'))
        };
        Self {
            message: elicitation
                .message
                .filter(|message| !message.trim().is_empty()),
            schema: elicitation
                .schema
                .filter(form)
                .map(|schema| schema.get().to_owned()),
            continuation: meta.continuation.filter(|it| it.len() <= TOKEN_BYTES_MAX),
        }
    }
}

/// Parses `_meta` of a result; empty if there is none.
fn parse_meta(result: &str) -> Result<LiteMeta<'_>, String> {
    let all = members(result).unwrap_or_default();
    let mut found = all.iter().filter(|(name, _)| name == "_meta");
    let Some((_, meta)) = found.next() else {
        return Ok(LiteMeta::default());
    };
    if found.next().is_some() {
        return Err("duplicate `_meta` in its result".into());
    }
    if meta.get() == "null" {
        return Ok(LiteMeta::default());
    }
    lookalike::from_str(meta.get()).map_err(|why| format!("`_meta` of its result: {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// LITE-010, LITE-015: a result without a type is final; types that are only in the enumeration need input.
    #[test]
    fn result_types_are_distinguished() {
        let read = |text: &str| LiteResult::parse(text).unwrap();
        let answer = LiteResult::Final { failed: false };
        for text in [
            r#"{"content":[]}"#,
            r#"{"_meta":{}}"#,
            r#"{"_meta":null}"#,
            r#"{"_meta":{"response_type":"answer","promise_token":"unused"}}"#,
            "[1]",
            "\"text\"",
            "null",
        ] {
            assert_eq!(read(text), answer, "{text}");
        }
        let failure = read(r#"{"_meta":{"response_type":"failure"}}"#);
        assert_eq!(failure, LiteResult::Final { failed: true });
        let promise = r#"{"_meta":{"response_type":"promise","promise_token":"p\u00e4"}}"#;
        assert_eq!(read(promise), LiteResult::Promise("p\u{e4}".into()));
        for word in ["elicitation", "request-for-more-resource"] {
            let bare = format!(r#"{{"_meta":{{"response_type":"{word}"}}}}"#);
            assert_eq!(read(&bare), LiteResult::NeedsInput(InputNeed::default()));
            let result = format!(
                r#"{{"_meta":{{"response_type":"{word}","elicitation":{{"message":"size?","requestedSchema":{{"properties":{{}}}}}}}}}}"#
            );
            let need = InputNeed {
                message: Some("size?".into()),
                schema: Some(r#"{"properties":{}}"#.into()),
                continuation: None,
            };
            assert_eq!(read(&result), LiteResult::NeedsInput(need));
        }
    }

    /// LITE-017: a token is stored unchanged, and one too long to send back is refused.
    #[test]
    fn unusable_results_are_refused_with_reason() {
        let long = "x".repeat(TOKEN_BYTES_MAX + 1);
        let huge = format!(r#"{{"_meta":{{"response_type":"promise","promise_token":"{long}"}}}}"#);
        for (text, word) in [
            (r#"{"_meta":{"response_type":"promise"}}"#, "promise_token"),
            (
                r#"{"_meta":{"response_type":"promise","promise_token":""}}"#,
                "promise_token",
            ),
            (
                r#"{"_meta":{"response_type":"promise","promise_token":7}}"#,
                "_meta",
            ),
            (&huge, "4096"),
            (r#"{"_meta":{"response_type":"maybe"}}"#, "maybe"),
            (r#"{"_meta":[]}"#, "_meta"),
            (r#"{"_meta":{},"_meta":{}}"#, "duplicate"),
            (
                r#"{"_meta":{"response_type":"answer","Response_Type":"promise"}}"#,
                "_meta",
            ),
        ] {
            let why = LiteResult::parse(text).unwrap_err();
            assert!(why.contains(word), "{text}: {why}");
        }
    }
}
