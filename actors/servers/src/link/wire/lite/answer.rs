//! What the result of a call says: MCP-lite §3.3 and §3.4, and what decision 64 makes of the words that the
//! document leaves open (A-17, A-37).

use mgp_json::{lookalike, members};
use mgp_protocol::lite::ResponseType;
use serde::Deserialize;
use serde_json::value::RawValue;

/// Longest promise token that is kept and sent back, in bytes: a hundred times as long as one that cannot be
/// guessed has to be, and shorter than any server's limit for a request.
pub(super) const TOKEN_BYTES_MAX: usize = 4096;

/// What follows from a result.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum LiteResult {
    /// It is the result.
    Final {
        /// The tool failed.
        failed: bool,
    },
    /// The result comes later, for this token.
    Promise(String),
    /// More is needed, and then the call is made again.
    NeedsInput(InputNeed),
}

/// What more is needed.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct InputNeed {
    /// What a person is asked.
    pub(super) message: Option<String>,
    /// The schema of the arguments to be added, as JSON text: an object with `properties`.
    pub(super) schema: Option<String>,
    /// By which a server that has kept the call knows it again, as other kernels do.
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
    /// Reads a result, which may be any JSON.
    ///
    /// # Errors
    /// What is wrong with it, in words.
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
                None => Err("it promises a result and gives no `promise_token`".into()),
                Some(token) if token.len() > TOKEN_BYTES_MAX => Err(format!(
                    "its promise token is {} bytes long; the limit is {TOKEN_BYTES_MAX}",
                    token.len()
                )),
                Some(token) => Ok(Self::Promise(token)),
            },
            // The last is in one list of the document only; it means that something has to be given first (A-17).
            ResponseType::Elicitation | ResponseType::MoreResource => {
                Ok(Self::NeedsInput(InputNeed::from_meta(meta)))
            }
        }
    }
}

impl InputNeed {
    /// A question that cannot be read is one without a form: its caller is told in words.
    fn from_meta(meta: LiteMeta<'_>) -> Self {
        let asked = meta
            .elicitation
            .and_then(|text| lookalike::from_object(text.get()).ok());
        let asked: LiteElicitation<'_> = asked.unwrap_or_default();
        let form = |schema: &&RawValue| {
            let all = members(schema.get()).unwrap_or_default();
            let mut all = all.iter();
            all.any(|(name, value)| name == "properties" && value.get().starts_with('{'))
        };
        Self {
            message: asked.message.filter(|message| !message.trim().is_empty()),
            schema: asked
                .schema
                .filter(form)
                .map(|schema| schema.get().to_owned()),
            continuation: meta.continuation.filter(|it| it.len() <= TOKEN_BYTES_MAX),
        }
    }
}

/// `_meta` of a result; where there is none nothing is said.
fn parse_meta(result: &str) -> Result<LiteMeta<'_>, String> {
    let all = members(result).unwrap_or_default();
    let mut found = all.iter().filter(|(name, _)| name == "_meta");
    let Some((_, meta)) = found.next() else {
        return Ok(LiteMeta::default());
    };
    if found.next().is_some() {
        return Err("`_meta` stands twice in its result".into());
    }
    if meta.get() == "null" {
        return Ok(LiteMeta::default());
    }
    lookalike::from_str(meta.get()).map_err(|why| format!("`_meta` of its result: {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// LITE-010, LITE-015: nothing said is an answer; what is only in the enumeration asks for more.
    #[test]
    fn each_kind_of_answer_is_told_from_the_others() {
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
            let asked = format!(
                r#"{{"_meta":{{"response_type":"{word}","elicitation":{{"message":"size?","requestedSchema":{{"properties":{{}}}}}}}}}}"#
            );
            let need = InputNeed {
                message: Some("size?".into()),
                schema: Some(r#"{"properties":{}}"#.into()),
                continuation: None,
            };
            assert_eq!(read(&asked), LiteResult::NeedsInput(need));
        }
    }

    /// LITE-017: a token is kept as it is, and one that nobody could send back is refused.
    #[test]
    fn what_cannot_be_followed_is_refused_in_words() {
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
            (r#"{"_meta":{},"_meta":{}}"#, "twice"),
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
