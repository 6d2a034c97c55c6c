//! `completion/*`.

use std::borrow::Cow;

use mgp_json::lookalike::AnyMember;
use serde::Deserialize;
use serde_json::value::RawValue;

super::methods! { "completion/complete" => Complete<'_> }

/// `completion/complete`.
#[derive(Debug, Deserialize)]
pub struct Complete<'a> {
    /// The prompt or template whose argument is completed.
    #[serde(borrow, rename = "ref")]
    pub reference: Reference<'a>,
    /// The argument to complete; relayed verbatim, like all following members.
    #[serde(default)]
    pub argument: Option<Argument>,
    /// The values chosen so far.
    #[serde(default)]
    pub context: Option<Context>,
    /// Relayed verbatim.
    #[serde(default, rename = "_meta")]
    pub meta: Option<AnyMember>,
}

/// The `argument`: its members are listed so that look-alikes are rejected.
#[derive(Clone, Copy, Debug, Deserialize)]
pub struct Argument {
    /// Its name.
    #[serde(default)]
    pub name: Option<AnyMember>,
    /// The text typed so far.
    #[serde(default)]
    pub value: Option<AnyMember>,
}

/// The `context`: listed for the same reason; the contents of `arguments` are the server's own.
#[derive(Clone, Copy, Debug, Deserialize)]
pub struct Context {
    /// Values by argument name.
    #[serde(default)]
    pub arguments: Option<AnyMember>,
}

/// The `ref`: a prompt by name or a template by URI.
#[derive(Debug, Deserialize)]
pub struct Reference<'a> {
    /// `ref/prompt` or `ref/resource`.
    #[serde(borrow, rename = "type")]
    pub kind: Cow<'a, str>,
    /// The name of the prompt.
    #[serde(borrow, default)]
    pub name: Option<&'a RawValue>,
    /// The template, or the URI of a resource.
    #[serde(borrow, default)]
    pub uri: Option<&'a RawValue>,
}
