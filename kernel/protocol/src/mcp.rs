//! The words of MCP that the kernel reads or says itself. What it only relays has no type here.

mod capabilities;
pub mod completion;
pub mod elicitation;
pub mod logging;
pub mod meta;
pub mod prompts;
pub mod resources;
pub mod roots;
pub mod sampling;
pub mod server;
pub mod subscriptions;
pub mod tasks;
pub mod tools;

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

pub use self::capabilities::{ClientCapabilities, ServerCapabilities};
pub use self::meta::{Meta, WithMeta};
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
    "notifications/tasks" => Tasks<'_>,
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

/// `notifications/tasks` of the tasks extension: the whole state of a task, as `tasks/get` has it.
#[derive(Debug, Deserialize)]
pub struct Tasks<'a>(#[serde(borrow)] pub tasks::About<'a>);

/// `params` of any of the four list methods.
#[derive(Debug, Default, Deserialize)]
pub struct Listing<'a> {
    /// Where to go on; the empty string is a cursor too.
    #[serde(borrow, default)]
    pub cursor: Option<Cow<'a, str>>,
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

    /// MCP-012: what is missing is named.
    #[test]
    fn bad_params_name_the_member() {
        let error = read::<tools::Call<'_>>(Some("{}")).unwrap_err();
        assert_eq!(error.to_string(), "Invalid params: missing field `name`");
    }
}
