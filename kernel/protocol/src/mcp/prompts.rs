//! `prompts/*`.

use mgp_json::lookalike::{self, AnyMember};
use serde::Deserialize;
use serde_json::value::RawValue;

super::methods! {
    "prompts/list" => List,
    "prompts/get" => Get<'_>,
    "notifications/prompts/list_changed" => ListChanged,
}

/// `prompts/list`.
#[derive(Debug)]
pub struct List;

/// `prompts/get`.
#[derive(Debug, Deserialize)]
pub struct Get<'a> {
    /// The prompt's name, as raw text so that its position in the frame is known.
    #[serde(borrow)]
    pub name: &'a RawValue,
    /// Strings by argument name; relayed verbatim.
    #[serde(borrow, default, deserialize_with = "lookalike::object")]
    pub arguments: Option<&'a RawValue>,
    /// Relayed verbatim.
    #[serde(default, rename = "_meta")]
    pub meta: Option<AnyMember>,
    /// Listed so that look-alikes are rejected; relayed verbatim, like all following members.
    #[serde(default, rename = "inputResponses")]
    pub input_responses: Option<AnyMember>,
    /// The server's state to return.
    #[serde(default, rename = "requestState")]
    pub request_state: Option<AnyMember>,
}

/// `notifications/prompts/list_changed`.
#[derive(Debug)]
pub struct ListChanged;
