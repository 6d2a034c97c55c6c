//! `state/*`, and the state in results of stateful tools (MCPL §8).

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::mcp::methods;

methods! { "state/rollback" => Rollback }

/// `state/rollback`, from a host to a server: returns to an earlier checkpoint (§8.5). Answers
/// [`RollbackResult`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Rollback {
    /// The feature set; for agents `SERVER.SET`.
    pub feature_set: String,
    /// The checkpoint to return to.
    pub checkpoint: String,
}

/// The answer to `state/rollback` (§8.6).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RollbackResult {
    /// The requested checkpoint.
    pub checkpoint: String,
    /// False if the changes since cannot be undone.
    pub success: bool,
    /// The reason of a failure, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// The member `state` of a result of `tools/call` (§8.2). Other members are ignored.
#[derive(Debug, Deserialize)]
pub struct ResultState<'a> {
    /// The new checkpoint.
    #[serde(borrow)]
    pub checkpoint: Cow<'a, str>,
    /// The previous checkpoint.
    #[serde(borrow, default)]
    pub parent: Option<Cow<'a, str>>,
    /// The whole state; `null` counts as absent.
    #[serde(borrow, default)]
    pub data: Option<&'a RawValue>,
    /// The difference to the parent's state in RFC 6902; `null` counts as absent.
    #[serde(borrow, default)]
    pub patch: Option<&'a RawValue>,
}

/// The member of `_meta` with the state for agents that are MCPL hosts, as a [`StateMeta`].
pub const STATE_META_KEY: &str = "mcpl/state";

/// The state of a tool after its call, for agents that are MCPL hosts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StateMeta {
    /// `SERVER.SET`.
    pub feature_set: String,
    /// The checkpoint of the next call; absent if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checkpoint: Option<String>,
    /// Why the server's state was not stored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mcp::parse_params;

    /// MCPL-061, MCPL-063, MCPL-064, MCPL-072, MCPL-074: the examples of §8, and unknown members.
    #[test]
    fn examples_of_the_document_are_parsed() {
        let state = |text| parse_params::<ResultState<'_>>(Some(text));
        let whole =
            state(r#"{"checkpoint":"chk_abc","parent":null,"data":{"notes":[]},"x":1}"#).unwrap();
        assert_eq!(whole.data.unwrap().get(), r#"{"notes":[]}"#);
        assert!(whole.parent.is_none() && whole.patch.is_none());
        let opaque = state(r#"{"checkpoint":"chk_def","parent":"chk_abc","data":null}"#).unwrap();
        assert_eq!(opaque.parent.as_deref(), Some("chk_abc"));
        assert!(opaque.data.is_none());
        assert!(state(r#"{"parent":"chk_abc"}"#).is_err());
        assert!(state(r#"{"checkpoint":"a","Checkpoint":"b"}"#).is_err());
        let back: Rollback = parse_params(Some(
            r#"{"featureSet":"notes.edit","checkpoint":"chk_abc"}"#,
        ))
        .unwrap();
        assert_eq!(back.feature_set, "notes.edit");
        let text = r#"{"checkpoint":"chk_abc","success":false,"reason":"External API call cannot be undone"}"#;
        let answer: RollbackResult = parse_params(Some(text)).unwrap();
        assert_eq!(serde_json::to_string(&answer).unwrap(), text);
    }
}
