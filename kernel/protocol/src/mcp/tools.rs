//! `tools/*`.

use mgp_json::lookalike::{AnyMember, is_there};
use serde::Deserialize;
use serde_json::value::RawValue;

super::methods! {
    "tools/list" => List,
    "tools/call" => Call<'_>,
    "notifications/tools/list_changed" => ListChanged,
}

/// `tools/list`.
#[derive(Debug)]
pub struct List;

/// `tools/call`: only the members for routing and checks; the rest of `params` is relayed unchanged.
#[derive(Debug, Deserialize)]
pub struct Call<'a> {
    /// The tool's name, as raw text so that its position in the frame is known.
    #[serde(borrow)]
    pub name: &'a RawValue,
    /// Relayed verbatim.
    #[serde(borrow, default)]
    pub arguments: Option<&'a RawValue>,
    /// Relayed verbatim except for the progress token.
    #[serde(borrow, default, rename = "_meta")]
    pub meta: Option<&'a RawValue>,
    /// Listed so that look-alikes are rejected; relayed verbatim, like all following members.
    #[serde(default, rename = "inputResponses")]
    pub input_responses: Option<AnyMember>,
    /// The server's state to return.
    #[serde(default, rename = "requestState")]
    pub request_state: Option<AnyMember>,
    /// Requests a task (2025-11-25).
    #[serde(default)]
    pub task: Option<AnyMember>,
    /// True if MGP's trace id is present.
    #[serde(default, deserialize_with = "is_there")]
    pub trace_id: bool,
    /// True if MGP's own member is present.
    #[serde(default, rename = "_mgp", deserialize_with = "is_there")]
    pub mgp: bool,
}

/// The members of a call's result that are checked.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CallResult<'a> {
    /// For people and models.
    #[serde(borrow, default)]
    pub content: Option<&'a RawValue>,
    /// For programs; must match the tool's `outputSchema`.
    #[serde(borrow, default)]
    pub structured_content: Option<&'a RawValue>,
    /// The tool ran and failed.
    #[serde(default)]
    pub is_error: bool,
    /// Relayed verbatim.
    #[serde(default, rename = "_meta")]
    pub meta: Option<AnyMember>,
    /// Relayed verbatim.
    #[serde(default)]
    pub result_type: Option<AnyMember>,
}

/// `notifications/tools/list_changed`.
#[derive(Debug)]
pub struct ListChanged;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mcp::parse_params;

    /// Point 9: MGP's members beside those of a call are detected with any value, and only at that level.
    #[test]
    fn mgp_members_are_detected() {
        let seen = |params: &str| {
            let call: Call<'_> = parse_params(Some(params)).unwrap();
            (call.trace_id, call.mgp)
        };
        for value in ["null", "\"x\"", "{}"] {
            let params = format!(r#"{{"trace_id":{value},"name":"a","\u005fmgp":{value}}}"#);
            assert_eq!(seen(&params), (true, true), "{params}");
        }
        let within = r#"{"name":"a","arguments":{"trace_id":1,"_mgp":2}}"#;
        assert_eq!(seen(within), (false, false));
    }
}
