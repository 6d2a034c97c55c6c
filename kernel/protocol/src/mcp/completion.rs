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
    /// What is completed; relayed verbatim, like all that follows.
    #[serde(default)]
    pub argument: Option<Argument>,
    /// What was chosen before.
    #[serde(default)]
    pub context: Option<Context>,
    /// Relayed verbatim.
    #[serde(default, rename = "_meta")]
    pub meta: Option<AnyMember>,
}

/// `argument`: its members are known so that nothing else can pass for them.
#[derive(Clone, Copy, Debug, Deserialize)]
pub struct Argument {
    /// Its name.
    #[serde(default)]
    pub name: Option<AnyMember>,
    /// What is typed so far.
    #[serde(default)]
    pub value: Option<AnyMember>,
}

/// `context`: known for the same reason; what is within `arguments` is the server's own.
#[derive(Clone, Copy, Debug, Deserialize)]
pub struct Context {
    /// Values by the name of the argument.
    #[serde(default)]
    pub arguments: Option<AnyMember>,
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
