//! `prompts/*`.

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
    /// The prompt's name, as raw text so that its place in the frame is known.
    #[serde(borrow)]
    pub name: &'a RawValue,
    /// Strings by argument name; relayed verbatim.
    #[serde(borrow, default)]
    pub arguments: Option<&'a RawValue>,
}

/// `notifications/prompts/list_changed`.
#[derive(Debug)]
pub struct ListChanged;
