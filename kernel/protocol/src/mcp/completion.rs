//! `completion/*`.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

super::methods! { "completion/complete" => Complete<'_> }

/// `completion/complete`.
#[derive(Debug, Deserialize)]
pub struct Complete<'a> {
    /// The prompt or template whose argument is completed.
    #[serde(borrow, rename = "ref")]
    pub reference: Reference<'a>,
}

/// `ref`: a prompt by name or a template by URI.
#[derive(Debug, Deserialize)]
pub struct Reference<'a> {
    /// `ref/prompt` or `ref/resource`.
    #[serde(borrow, rename = "type")]
    pub kind: Cow<'a, str>,
    /// Name of the prompt.
    #[serde(borrow, default)]
    pub name: Option<&'a RawValue>,
    /// The template, or the URI of a resource.
    #[serde(borrow, default)]
    pub uri: Option<&'a RawValue>,
}
