//! `scope/*`: leave for what a list does not allow (MCPL §7).

use std::borrow::Cow;

use mgp_json::lookalike;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

super::methods! { "scope/elevate" => Elevate<'_> }

/// What an action is about (MCPL §7.3).
#[derive(Clone, Debug, Deserialize)]
pub struct Scope<'a> {
    /// What people read, and what the lists are about.
    #[serde(borrow)]
    pub label: Cow<'a, str>,
    /// What the server needs of it; always an object.
    #[serde(borrow, default, deserialize_with = "lookalike::object")]
    pub payload: Option<&'a RawValue>,
}

/// `scope/elevate`: a server asks to act in a scope (MCPL §7.4).
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Elevate<'a> {
    /// One of its sets, which has scopes.
    #[serde(borrow)]
    pub feature_set: Cow<'a, str>,
    /// In which.
    #[serde(borrow)]
    pub scope: Scope<'a>,
}

/// Answer of `scope/elevate` (MCPL §7.5).
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ElevateResult {
    /// Whether it may.
    pub approved: bool,
    /// That of the request, with what the operator adds; only where it is approved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub payload: Option<Box<RawValue>>,
    /// Why not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}
