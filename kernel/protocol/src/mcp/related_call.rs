//! The call that a server's callback belongs to. MCP has no member for it on line connections; three
//! members of `params._meta` may identify it.

use mgp_json::lookalike;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::meta::{RELATED_CALL, WithMeta};
use crate::refusal::Refusal;

/// The call identified by a callback, with the ids that its server received.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RelatedCall {
    /// The id of the call: [`RELATED_CALL`].
    pub call: Option<u64>,
    /// A progress token: that of the call, or one of the server's own.
    pub token: Option<u64>,
    /// The server's task of 2025-11-25.
    pub task: Option<String>,
}

#[derive(Default, Deserialize)]
struct RelatedMeta<'a> {
    #[serde(borrow, default, rename = "mgp/relatedRequestId")]
    call: Option<&'a RawValue>,
    #[serde(borrow, default, rename = "progressToken")]
    token: Option<&'a RawValue>,
    #[serde(default, rename = "io.modelcontextprotocol/related-task")]
    task: Option<RelatedTask>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RelatedTask {
    task_id: String,
}

impl RelatedCall {
    /// Parses it from the params of a callback.
    ///
    /// # Errors
    /// [`Refusal::BadParams`]: `_meta` is no object, or one of the three members is malformed or occurs
    /// twice, so that the call is ambiguous.
    pub fn from_params(params: Option<&str>) -> Result<Self, Refusal> {
        let bad = |error: serde_json::Error| {
            Refusal::BadParams(format!("`_meta`: {}", lookalike::strip_position(&error)))
        };
        let wrapper: WithMeta<'_> = lookalike::from_object(params.unwrap_or("{}")).map_err(bad)?;
        let Some(meta) = wrapper.meta else {
            return Ok(Self::default());
        };
        let parsed: RelatedMeta<'_> = lookalike::from_object(meta.get()).map_err(bad)?;
        let call = match parsed.call {
            None => None,
            Some(raw) => Some(parse_call_id(raw).ok_or_else(|| {
                let message = format!("`_meta`: `{RELATED_CALL}` is no id of a request");
                Refusal::BadParams(message)
            })?),
        };
        Ok(Self {
            call,
            token: parsed.token.and_then(parse_call_id),
            task: parsed.task.map(|task| task.task_id),
        })
    }

    /// True if it identifies no call.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// An id of the kernel: a number, or its digits in a string, as some libraries pass it to a tool.
fn parse_call_id(raw: &RawValue) -> Option<u64> {
    let digits: Option<String> = serde_json::from_str(raw.get()).ok();
    digits.as_deref().unwrap_or(raw.get()).parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(meta: &str) -> Result<RelatedCall, Refusal> {
        RelatedCall::from_params(Some(&format!(r#"{{"message":"?","_meta":{meta}}}"#)))
    }

    /// The renamed members are equal to the constants.
    #[test]
    fn callback_identifies_its_call_by_id_token_or_task() {
        let by_id = read(&format!(r#"{{"{RELATED_CALL}":7}}"#)).unwrap();
        assert_eq!(by_id.call, Some(7));
        let in_a_string = read(&format!(r#"{{"{RELATED_CALL}":"7"}}"#)).unwrap();
        assert_eq!(in_a_string, by_id);
        let token = read(r#"{"progressToken":8,"x":{}}"#).unwrap();
        assert_eq!(token.token, Some(8));
        let task = read(&format!(
            r#"{{"{}":{{"taskId":"t"}}}}"#,
            crate::mcp::meta::RELATED_TASK
        ));
        assert_eq!(task.unwrap().task.as_deref(), Some("t"));
        assert!(RelatedCall::from_params(None).unwrap().is_empty());
        assert!(read("{}").unwrap().is_empty());
    }

    /// The kernel would use one of the two calls, and a person might be asked for the other.
    #[test]
    fn callback_with_two_calls_is_rejected() {
        for bad in [
            r#"{"mgp/relatedRequestId":7,"mgp/relatedRequestId":8}"#,
            r#"{"mgp/relatedRequestId":7,"mgp\/relatedRequestId":8}"#,
            r#"{"mgp/relatedRequestId":{}}"#,
            r#"{"io.modelcontextprotocol/related-task":"t"}"#,
            "[]",
        ] {
            let error = read(bad).unwrap_err().to_string();
            assert!(error.starts_with("Invalid params: `_meta`: "), "{error}");
        }
    }
}
