//! `state/*`, and what stateful tools answer (MCPL §8).

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::mcp::methods;

methods! { "state/rollback" => Rollback }

/// `state/rollback`, from a host to a server: back to an earlier checkpoint (§8.5). Answers [`RollbackResult`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Rollback {
    /// The feature set; toward agents `SERVER.SET`.
    pub feature_set: String,
    /// Where to go back to.
    pub checkpoint: String,
}

/// Answer of `state/rollback` (§8.6).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RollbackResult {
    /// As it was asked for.
    pub checkpoint: String,
    /// False when what was done since cannot be undone.
    pub success: bool,
    /// Why not, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// The member `state` of a result of `tools/call` (§8.2). What else it holds is not read.
#[derive(Debug, Deserialize)]
pub struct ResultState<'a> {
    /// The new checkpoint.
    #[serde(borrow)]
    pub checkpoint: Cow<'a, str>,
    /// The one it came from.
    #[serde(borrow, default)]
    pub parent: Option<Cow<'a, str>>,
    /// The whole state; `null` is none.
    #[serde(borrow, default)]
    pub data: Option<&'a RawValue>,
    /// What makes it of the parent's, as RFC 6902 has it; `null` is none.
    #[serde(borrow, default)]
    pub patch: Option<&'a RawValue>,
}

/// The member of `_meta` in which an agent that is an MCPL host reads where its state stands, as a [`StateMeta`].
pub const STATE_META_KEY: &str = "mcpl/state";

/// Where the state of a call's tool stands after it, for agents that are MCPL hosts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StateMeta {
    /// `SERVER.SET`.
    pub feature_set: String,
    /// The checkpoint that the next call goes on from; absent where there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checkpoint: Option<String>,
    /// Why what the server answered is not kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mcp::parse_params;

    /// MCPL-061, MCPL-063, MCPL-064, MCPL-072, MCPL-074: the examples of §8, and members nobody knows.
    #[test]
    fn the_examples_of_the_document_are_read() {
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
        let no = r#"{"checkpoint":"chk_abc","success":false,"reason":"External API call cannot be undone"}"#;
        let answer: RollbackResult = parse_params(Some(no)).unwrap();
        assert_eq!(serde_json::to_string(&answer).unwrap(), no);
    }
}
