//! The words of MCP that the kernel reads or says itself. What it only relays has no type here.

pub mod completion;
pub mod elicitation;
pub mod logging;
pub mod prompts;
pub mod resources;
pub mod roots;
pub mod sampling;
pub mod tools;

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::refusal::Refusal;

/// A method or notification: its name on the wire is its address in this crate.
pub trait Method {
    /// The name on the wire.
    const METHOD: &'static str;
}

macro_rules! methods {
    ($($(#[$doc:meta])* $name:literal => $type:ty),* $(,)?) => {
        $(impl $crate::mcp::Method for $type { const METHOD: &'static str = $name; })*
    };
}
pub(crate) use methods;

methods! {
    "initialize" => Initialize<'_>,
    "notifications/initialized" => Initialized,
    "ping" => Ping,
    "notifications/cancelled" => Cancelled<'_>,
    "notifications/progress" => Progress<'_>,
    "notifications/message" => Message<'_>,
}

/// `initialize`: opens a legacy connection.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Initialize<'a> {
    /// The version the client would like.
    #[serde(borrow)]
    pub protocol_version: Cow<'a, str>,
    /// What the client can be asked for.
    #[serde(borrow, default)]
    pub capabilities: Option<&'a RawValue>,
    /// Who the client says it is: a claim, shown to people.
    #[serde(borrow, default)]
    pub client_info: Option<&'a RawValue>,
}

/// The result of `initialize`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Initialization<'a> {
    /// The version the server chose.
    #[serde(borrow)]
    pub protocol_version: Cow<'a, str>,
    /// What the server offers.
    #[serde(borrow, default)]
    pub capabilities: Option<&'a RawValue>,
    /// Who the server says it is.
    #[serde(borrow, default)]
    pub server_info: Option<&'a RawValue>,
    /// Hints for the model.
    #[serde(borrow, default)]
    pub instructions: Option<Cow<'a, str>>,
}

/// `notifications/initialized`: the client is ready.
#[derive(Debug)]
pub struct Initialized;

/// `ping`, either way; answered `{}`.
#[derive(Debug)]
pub struct Ping;

/// `notifications/cancelled`, either way.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Cancelled<'a> {
    /// Id of the request taken back.
    #[serde(borrow)]
    pub request_id: &'a RawValue,
    /// Why, for people.
    #[serde(borrow, default)]
    pub reason: Option<Cow<'a, str>>,
}

/// `notifications/progress`, either way.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Progress<'a> {
    /// The token of the request it is about.
    #[serde(borrow)]
    pub progress_token: &'a RawValue,
}

/// `notifications/message`: a log record of a server.
#[derive(Debug, Deserialize)]
pub struct Message<'a> {
    /// One of the eight levels of RFC 5424.
    #[serde(borrow)]
    pub level: Cow<'a, str>,
    /// Who logs.
    #[serde(borrow, default)]
    pub logger: Option<&'a RawValue>,
}

/// What a client can be asked for (`capabilities` of `initialize`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClientCapabilities {
    /// `sampling/createMessage`.
    pub sampling: bool,
    /// `roots/list`.
    pub roots: bool,
    /// `notifications/roots/list_changed`.
    pub roots_list_changed: bool,
    /// `elicitation/create` with a form.
    pub elicitation_form: bool,
    /// `elicitation/create` with a URL.
    pub elicitation_url: bool,
}

impl ClientCapabilities {
    /// Reads a capabilities object; what is not understood is not there.
    #[must_use]
    pub fn read(raw: Option<&RawValue>) -> Self {
        let value: serde_json::Value = raw
            .and_then(|r| serde_json::from_str(r.get()).ok())
            .unwrap_or_default();
        let elicitation = value.get("elicitation").and_then(|e| e.as_object());
        Self {
            sampling: value.get("sampling").is_some(),
            roots: value.get("roots").is_some(),
            roots_list_changed: value.pointer("/roots/listChanged") == Some(&true.into()),
            // CMCP-090: the flat form `elicitation: {}` of 2025-06-18 means forms.
            elicitation_form: elicitation
                .is_some_and(|e| e.contains_key("form") || !e.contains_key("url")),
            elicitation_url: elicitation.is_some_and(|e| e.contains_key("url")),
        }
    }
}

/// What a server offers (`capabilities` of its initialize result).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ServerCapabilities {
    /// `tools/*`.
    pub tools: bool,
    /// `prompts/*`.
    pub prompts: bool,
    /// `resources/*`.
    pub resources: bool,
    /// `resources/subscribe`.
    pub resources_subscribe: bool,
    /// `completion/complete`.
    pub completions: bool,
    /// `logging/setLevel`.
    pub logging: bool,
    /// The experimental tasks of 2025-11-25.
    pub tasks: bool,
}

impl ServerCapabilities {
    /// Reads a capabilities object; what is not understood is not there.
    #[must_use]
    pub fn read(raw: Option<&RawValue>) -> Self {
        let value: serde_json::Value = raw
            .and_then(|r| serde_json::from_str(r.get()).ok())
            .unwrap_or_default();
        let has = |name: &str| value.get(name).is_some_and(|v| !v.is_null());
        Self {
            tools: has("tools"),
            prompts: has("prompts"),
            resources: has("resources"),
            resources_subscribe: value.pointer("/resources/subscribe") == Some(&true.into()),
            completions: has("completions"),
            logging: has("logging"),
            tasks: has("tasks"),
        }
    }

    /// What both offer together.
    #[must_use]
    pub fn union(self, other: Self) -> Self {
        Self {
            tools: self.tools | other.tools,
            prompts: self.prompts | other.prompts,
            resources: self.resources | other.resources,
            resources_subscribe: self.resources_subscribe | other.resources_subscribe,
            completions: self.completions | other.completions,
            logging: self.logging | other.logging,
            tasks: self.tasks | other.tasks,
        }
    }
}

/// `params` of any of the four list methods.
#[derive(Debug, Default, Deserialize)]
pub struct Listing<'a> {
    /// Where to go on; the empty string is a cursor too.
    #[serde(borrow, default)]
    pub cursor: Option<Cow<'a, str>>,
}

/// `params._meta` as far as the kernel reads it.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Meta<'a> {
    /// The sender would like `notifications/progress` with this token.
    #[serde(borrow, default)]
    pub progress_token: Option<&'a RawValue>,
}

/// `params` that carry only `_meta` for the kernel.
#[derive(Debug, Default, Deserialize)]
pub struct WithMeta<'a> {
    /// Verbatim.
    #[serde(borrow, default, rename = "_meta")]
    pub meta: Option<&'a RawValue>,
}

/// Reads `params` as `T`.
///
/// # Errors
/// [`Refusal::BadParams`] with serde's words, which name the member that is missing or wrong.
pub fn read<'a, T: Deserialize<'a>>(params: Option<&'a str>) -> Result<T, Refusal> {
    serde_json::from_str(params.unwrap_or("{}")).map_err(|e| Refusal::BadParams(plain(&e)))
}

/// Serde's words without its position: params are one line of a frame, a column means nothing there.
fn plain(error: &serde_json::Error) -> String {
    let text = error.to_string();
    match text.rfind(" at line ") {
        Some(at) => text[..at].to_owned(),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// CMCP-090: URL elicitation only where it was declared.
    #[test]
    fn elicitation_is_a_form_unless_said_otherwise() {
        let caps = |text: &str| {
            let raw: Box<RawValue> = serde_json::from_str(text).unwrap();
            let c = ClientCapabilities::read(Some(&raw));
            (c.elicitation_form, c.elicitation_url)
        };
        assert_eq!(caps("{}"), (false, false));
        assert_eq!(caps(r#"{"elicitation":{}}"#), (true, false));
        assert_eq!(caps(r#"{"elicitation":{"url":{}}}"#), (false, true));
        assert_eq!(
            caps(r#"{"elicitation":{"form":{},"url":{}}}"#),
            (true, true)
        );
    }

    /// MCP-012: what is missing is named.
    #[test]
    fn bad_params_name_the_member() {
        let error = read::<tools::Call<'_>>(Some("{}")).unwrap_err();
        assert_eq!(error.to_string(), "Invalid params: missing field `name`");
    }
}
