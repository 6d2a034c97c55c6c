//! `scope/*`: approval of actions that the allow lists do not cover (MCPL §7).

use std::borrow::Cow;

use mgp_json::lookalike;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

super::methods! { "scope/elevate" => Elevate<'_> }

/// The scope of an action (MCPL §7.3).
#[derive(Clone, Debug, Deserialize)]
pub struct Scope<'a> {
    /// The label shown to people, and matched by the lists.
    #[serde(borrow)]
    pub label: Cow<'a, str>,
    /// The server's data; always an object.
    #[serde(borrow, default, deserialize_with = "lookalike::object")]
    pub payload: Option<&'a RawValue>,
}

/// `scope/elevate`: a server's request to act in a scope (MCPL §7.4).
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Elevate<'a> {
    /// One of its scoped feature sets.
    #[serde(borrow)]
    pub feature_set: Cow<'a, str>,
    /// The scope.
    #[serde(borrow)]
    pub scope: Scope<'a>,
}

/// The answer to `scope/elevate` (MCPL §7.5).
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ElevateResult {
    /// True if approved.
    pub approved: bool,
    /// The payload of the request, with the operator's additions; only if approved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub payload: Option<Box<RawValue>>,
    /// The reason of a denial.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}
