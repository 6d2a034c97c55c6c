//! The errors of MCPL (appendix A).

use mgp_json::quote;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::feature_sets::Capability;
use crate::jsonrpc::{INTERNAL_ERROR, INVALID_PARAMS, METHOD_NOT_FOUND};
use crate::refusal::Refusal;

/// "Feature set not enabled". Other programs use this code for their own timeouts (A-45): the subject is in
/// `data.featureSet`.
pub const NOT_ENABLED: i64 = -32001;
/// "Capability denied", of 0.5.
pub const CAPABILITY_DENIED: i64 = -32002;
/// "Unknown feature set".
pub const UNKNOWN_SET: i64 = -32003;
/// "Checkpoint not found".
pub const CHECKPOINT_NOT_FOUND: i64 = -32005;
/// "Channel not permitted".
pub const CHANNEL_NOT_PERMITTED: i64 = -32017;
/// "Unknown channel".
pub(crate) const UNKNOWN_CHANNEL: i64 = -32023;
/// "Channel open failed".
pub const CHANNEL_OPEN_FAILED: i64 = -32024;

/// An error answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct McplError {
    /// A code of this module, or one of JSON-RPC.
    pub code: i64,
    /// For people; for the codes of this module the document's own message, with more details if available.
    pub message: String,
    /// For programs, as JSON text.
    pub data: Option<String>,
}

/// The `data` of [`NOT_ENABLED`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DisabledSetDetails {
    /// The set.
    pub(crate) feature_set: String,
    /// True if the operator can enable it.
    pub(crate) can_enable: bool,
}

/// The declaration that lacks a use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MissingUse {
    /// The `uses` of the set.
    InSet,
    /// The server's declaration.
    InDeclaration,
}

impl McplError {
    /// An error without data.
    #[must_use]
    pub fn new(code: i64, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            data: None,
        }
    }

    fn with_member(code: i64, message: &str, member: &str, what: &str) -> Self {
        Self {
            code,
            message: message.to_owned(),
            data: Some(format!("{{{}:{}}}", quote(member), quote(what))),
        }
    }

    /// -32001: the set is declared and not enabled, or does not use the requested feature (MCPL §6.6).
    #[must_use]
    pub fn not_enabled(set: &str, can_enable: bool) -> Self {
        let data = format!(
            r#"{{"featureSet":{},"canEnable":{can_enable}}}"#,
            quote(set)
        );
        Self {
            code: NOT_ENABLED,
            message: "Feature set not enabled".to_owned(),
            data: Some(data),
        }
    }

    /// -32001: the set does not use this feature, or its server does not declare it. `missing` names the
    /// use.
    #[must_use]
    pub fn missing_use(set: &str, uses: Capability, lack: MissingUse) -> Self {
        let reason = match lack {
            MissingUse::InSet => "`uses` of the set lacks",
            MissingUse::InDeclaration => "the server does not declare",
        };
        Self {
            message: format!("Feature set not enabled: {reason} {uses}"),
            data: Some(format!(
                r#"{{"featureSet":{},"canEnable":false,"missing":{}}}"#,
                quote(set),
                quote(uses.as_str())
            )),
            ..Self::not_enabled(set, false)
        }
    }

    /// -32002: the grant lacks the capability (0.5 §6.6).
    #[must_use]
    pub fn capability_denied(capability: Capability) -> Self {
        Self::with_member(
            CAPABILITY_DENIED,
            "Capability denied",
            "capability",
            capability.as_str(),
        )
    }

    /// -32001 as 0.5 has it: nothing says whether asking would help (0.5 §6.6).
    #[must_use]
    pub fn set_disabled(set: &str) -> Self {
        Self::with_member(NOT_ENABLED, "Feature set not enabled", "featureSet", set)
    }

    /// -32003: the set is not declared (MCPL §6.6).
    #[must_use]
    pub fn unknown_set(set: &str) -> Self {
        Self::with_member(UNKNOWN_SET, "Unknown feature set", "featureSet", set)
    }

    /// -32005: the checkpoint does not exist, or no longer exists (MCPL §8.7).
    #[must_use]
    pub fn checkpoint_not_found(id: &str) -> Self {
        Self::with_member(
            CHECKPOINT_NOT_FOUND,
            "Checkpoint not found",
            "checkpoint",
            id,
        )
    }

    /// -32017: the scope does not allow the channel (MCPL §14.6).
    #[must_use]
    pub fn channel_not_permitted(id: &str) -> Self {
        Self::with_member(
            CHANNEL_NOT_PERMITTED,
            "Channel not permitted",
            "channelId",
            id,
        )
    }

    /// -32023: the channel is not registered (MCPL §14.6).
    #[must_use]
    pub fn unknown_channel(id: &str) -> Self {
        Self::with_member(UNKNOWN_CHANNEL, "Unknown channel", "channelId", id)
    }

    /// -32024: the server did not open it (MCPL §14.6).
    #[must_use]
    pub fn channel_open_failed(reason: &str) -> Self {
        Self::with_member(CHANNEL_OPEN_FAILED, "Channel open failed", "reason", reason)
    }

    /// -32602.
    #[must_use]
    pub fn bad_params(reason: impl std::fmt::Display) -> Self {
        Self::new(INVALID_PARAMS, format!("Invalid params: {reason}"))
    }

    /// -32601: the method has no handler here.
    #[must_use]
    pub fn method_not_found(method: &str) -> Self {
        Self::new(METHOD_NOT_FOUND, format!("Method not found: {method}"))
    }

    /// -32603: an internal error, or no peer that could answer.
    #[must_use]
    pub fn internal(reason: impl Into<String>) -> Self {
        Self::new(INTERNAL_ERROR, reason)
    }

    /// Renders the error object as JSON text.
    #[must_use]
    pub fn to_json(&self) -> String {
        let data = match &self.data {
            Some(data) => format!(r#","data":{data}"#),
            None => String::new(),
        };
        format!(
            r#"{{"code":{},"message":{}{data}}}"#,
            self.code,
            quote(&self.message)
        )
    }
}

impl From<McplError> for Refusal {
    fn from(error: McplError) -> Self {
        match RawValue::from_string(error.to_json()) {
            Ok(error) => Self::Peer(error),
            Err(broken) => Self::Internal(format!("an error that is no JSON: {broken}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// MCPL-136, MCPL-041, MCPL-042, MCPL-133, MCPL-134, MCPL-135: the codes and messages of appendix A.
    #[test]
    fn errors_are_those_of_the_document() {
        let all = [
            (
                McplError::not_enabled("a.b", true),
                -32001,
                "Feature set not enabled",
                r#"{"featureSet":"a.b","canEnable":true}"#,
            ),
            (
                McplError::missing_use("a", Capability::PushEvents, MissingUse::InSet),
                -32001,
                "Feature set not enabled: `uses` of the set lacks pushEvents",
                r#"{"featureSet":"a","canEnable":false,"missing":"pushEvents"}"#,
            ),
            (
                McplError::unknown_set("a\"b"),
                -32003,
                "Unknown feature set",
                r#"{"featureSet":"a\"b"}"#,
            ),
            (
                McplError::checkpoint_not_found("c"),
                -32005,
                "Checkpoint not found",
                r#"{"checkpoint":"c"}"#,
            ),
            (
                McplError::channel_not_permitted("x"),
                -32017,
                "Channel not permitted",
                r#"{"channelId":"x"}"#,
            ),
            (
                McplError::unknown_channel("x"),
                -32023,
                "Unknown channel",
                r#"{"channelId":"x"}"#,
            ),
            (
                McplError::channel_open_failed("no"),
                -32024,
                "Channel open failed",
                r#"{"reason":"no"}"#,
            ),
        ];
        for (error, code, message, data) in all {
            let text = format!(r#"{{"code":{code},"message":"{message}","data":{data}}}"#);
            assert_eq!(error.to_json(), text);
        }
        assert_eq!(
            McplError::capability_denied(Capability::InjectSystem).to_json(),
            r#"{"code":-32002,"message":"Capability denied","data":{"capability":"contextHooks.beforeInference.inject.system"}}"#
        );
        assert_eq!(
            McplError::set_disabled("a").to_json(),
            r#"{"code":-32001,"message":"Feature set not enabled","data":{"featureSet":"a"}}"#
        );
        let plain = McplError::bad_params("no label");
        assert_eq!(
            plain.to_json(),
            r#"{"code":-32602,"message":"Invalid params: no label"}"#
        );
    }
}
