//! The parts of MCP that the kernel reads or writes itself. What it only relays has no type here.

mod capabilities;
pub mod completion;
pub mod elicitation;
pub mod logging;
pub mod meta;
pub mod prompts;
mod related_call;
pub mod request_headers;
pub mod resources;
pub mod roots;
pub mod sampling;
pub mod server;
pub mod subscriptions;
pub mod tasks;
pub mod tools;

use std::borrow::Cow;

use mgp_json::lookalike::{self, AnyMember};
use serde::Deserialize;
use serde_json::value::RawValue;

pub use self::capabilities::{ClientCapabilities, ServerCapabilities};
pub use self::meta::{Meta, WithMeta};
pub use self::related_call::RelatedCall;
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
    #[serde(borrow, deserialize_with = "lookalike::required_object")]
    pub capabilities: &'a RawValue,
    /// Who the client says it is: a claim, shown to people.
    #[serde(borrow)]
    pub client_info: Implementation<'a>,
}

/// Who a peer says it is; what else it says of itself is not read.
#[derive(Debug, Deserialize)]
pub struct Implementation<'a> {
    /// What programs call it.
    #[serde(borrow)]
    pub name: Cow<'a, str>,
    /// Which one it is.
    #[serde(borrow)]
    pub version: Cow<'a, str>,
}

/// The result of `initialize`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct InitializeResult<'a> {
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
    /// Why, for people; one that is no text takes the request back all the same.
    #[serde(borrow, default)]
    reason: Option<&'a RawValue>,
}

impl Cancelled<'_> {
    /// Why, as far as it was said.
    #[must_use]
    pub fn reason(&self) -> Option<String> {
        serde_json::from_str(self.reason?.get()).ok()
    }
}

/// `notifications/progress`, either way.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Progress<'a> {
    /// The token of the request it is about.
    #[serde(borrow)]
    pub progress_token: &'a RawValue,
    /// Relayed verbatim, like all that follows.
    #[serde(default)]
    pub progress: Option<AnyMember>,
    /// How much there is to do.
    #[serde(default)]
    pub total: Option<AnyMember>,
    /// The message for people.
    #[serde(default)]
    pub message: Option<AnyMember>,
    /// Relayed verbatim.
    #[serde(default, rename = "_meta")]
    pub meta: Option<AnyMember>,
}

/// `notifications/message`: a log record of a server.
#[derive(Debug, Deserialize)]
pub struct Message<'a> {
    /// One of the eight levels of RFC 5424.
    #[serde(borrow)]
    pub level: Cow<'a, str>,
    /// The logger.
    #[serde(borrow, default)]
    pub logger: Option<&'a RawValue>,
}

/// `notifications/tasks` of the tasks extension: the whole state of a task, as `tasks/get` has it.
#[derive(Debug, Deserialize)]
pub struct Tasks<'a>(#[serde(borrow)] pub tasks::TaskParams<'a>);

/// `params` of any of the four list methods.
#[derive(Debug, Default, Deserialize)]
pub struct ListParams<'a> {
    /// Where to go on; the empty string is a cursor too.
    #[serde(borrow, default)]
    pub cursor: Option<Cow<'a, str>>,
}

/// Reads `params` as `T`. A member that some readers take for one of `T`, and the kernel does not, is
/// refused: else it would pass what the server reads unseen.
///
/// # Errors
/// [`Refusal::BadParams`] with serde's words, which name the member that is missing or wrong.
pub fn parse_params<'a, T: Deserialize<'a>>(params: Option<&'a str>) -> Result<T, Refusal> {
    lookalike::from_str(params.unwrap_or("{}"))
        .map_err(|e| Refusal::BadParams(lookalike::strip_position(&e)))
}

/// The same for params of a message that was parsed: they are JSON, so what is not read costs little.
///
/// # Errors
/// As [`parse_params`].
pub fn parse_accepted_params<'a, T: Deserialize<'a>>(
    params: Option<&'a str>,
) -> Result<T, Refusal> {
    lookalike::from_accepted(params.unwrap_or("{}"))
        .map_err(|e| Refusal::BadParams(lookalike::strip_position(&e)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// MCP-012: what is missing is named.
    #[test]
    fn bad_params_name_the_member() {
        let error = parse_params::<tools::Call<'_>>(Some("{}")).unwrap_err();
        assert_eq!(error.to_string(), "Invalid params: missing field `name`");
    }

    /// What MCP has as an object is one, at every depth that the kernel reads.
    #[test]
    fn an_array_is_never_an_object() {
        assert!(parse_params::<tools::Call<'_>>(Some(r#"["a",{}]"#)).is_err());
        for params in [
            r#"{"ref":["ref/prompt","p"]}"#,
            r#"{"ref":{"type":"ref/prompt"},"argument":["a",""]}"#,
            r#"{"ref":{"type":"ref/prompt"},"context":[{}]}"#,
        ] {
            let error = parse_params::<completion::Complete<'_>>(Some(params)).unwrap_err();
            assert!(error.to_string().contains("expected an object"), "{error}");
        }
        for member in ["clientInfo", "capabilities"] {
            let params = hello(member, r#"["x"]"#);
            let error = parse_params::<Initialize<'_>>(Some(&params)).unwrap_err();
            assert!(error.to_string().contains("expected an object"), "{error}");
        }
    }

    /// `params` of an `initialize` that is well-formed but for one member; `""` leaves that out.
    fn hello(member: &str, value: &str) -> String {
        let well = [
            ("protocolVersion", r#""2025-11-25""#),
            ("capabilities", "{}"),
            (
                "clientInfo",
                r#"{"name":"a","version":"1","title":"A","icons":[]}"#,
            ),
        ];
        let said = well.map(|(name, well)| (name, if name == member { value } else { well }));
        let said = said.iter().filter(|(_, value)| !value.is_empty());
        let said: Vec<String> = said
            .map(|(name, value)| format!(r#""{name}":{value}"#))
            .collect();
        format!("{{{}}}", said.join(","))
    }

    /// CMCP-020: who does not say who it is, or what it can, has not shaken hands.
    #[test]
    fn an_initialize_is_whole_or_none() {
        assert!(parse_params::<Initialize<'_>>(Some(&hello("", ""))).is_ok());
        for member in ["protocolVersion", "capabilities", "clientInfo"] {
            for value in ["", "null", "1", "[]", "true"] {
                let params = hello(member, value);
                let error = parse_params::<Initialize<'_>>(Some(&params)).unwrap_err();
                assert!(matches!(error, Refusal::BadParams(_)), "{params}");
            }
        }
        for info in ["{}", r#"{"name":"a"}"#, r#"{"name":1,"version":"1"}"#] {
            let params = hello("clientInfo", info);
            assert!(
                parse_params::<Initialize<'_>>(Some(&params)).is_err(),
                "{params}"
            );
        }
    }

    /// Every member that MCP gives these params has no lookalike; what is within them may.
    #[test]
    fn no_member_that_a_server_reads_has_a_lookalike() {
        let refused = |error: Refusal, member: &str| {
            let words = error.to_string();
            assert!(
                words.starts_with(&format!("Invalid params: member {member:?}")),
                "{words}"
            );
        };
        for member in [
            "Name",
            "Arguments",
            "_META",
            "Task",
            "InputResponses",
            "requeststate",
        ] {
            let params = format!(r#"{{"name":"a","{member}":1}}"#);
            refused(
                parse_params::<tools::Call<'_>>(Some(&params)).unwrap_err(),
                member,
            );
        }
        for member in ["Name", "argument\u{17f}", "_Meta"] {
            let params = format!(r#"{{"name":"a","{member}":1}}"#);
            refused(
                parse_params::<prompts::Get<'_>>(Some(&params)).unwrap_err(),
                member,
            );
        }
        for member in ["URI", "_Meta"] {
            let params = format!(r#"{{"uri":"a:b","{member}":1}}"#);
            refused(
                parse_params::<resources::Read<'_>>(Some(&params)).unwrap_err(),
                member,
            );
        }
        for member in ["Ref", "Argument", "conteXt"] {
            let params = format!(r#"{{"ref":{{"type":"ref/prompt"}},"{member}":1}}"#);
            refused(
                parse_params::<completion::Complete<'_>>(Some(&params)).unwrap_err(),
                member,
            );
        }
        let params = r#"{"ref":{"type":"ref/prompt","Name":1}}"#;
        refused(
            parse_params::<completion::Complete<'_>>(Some(params)).unwrap_err(),
            "Name",
        );
        for (member, inside) in [
            ("Name", r#""argument":{"name":"a","value":"","Name":"q"}"#),
            ("VALUE", r#""argument":{"VALUE":"q"}"#),
            ("Arguments", r#""context":{"arguments":{},"Arguments":{}}"#),
        ] {
            let params = format!(r#"{{"ref":{{"type":"ref/prompt"}},{inside}}}"#);
            refused(
                parse_params::<completion::Complete<'_>>(Some(&params)).unwrap_err(),
                member,
            );
        }
        let inside = r#"{"ref":{"type":"ref/prompt"},"argument":{"name":"a","value":""},
            "context":{"arguments":{"Name":"x","name":"y"}}}"#;
        assert!(parse_params::<completion::Complete<'_>>(Some(inside)).is_ok());
        let params = r#"{"taskId":"a","TaskID":1}"#;
        refused(
            parse_params::<tasks::Get<'_>>(Some(params)).unwrap_err(),
            "TaskID",
        );
        let params = r#"{"progressToken":1,"ProgressToken":2}"#;
        refused(
            parse_params::<Progress<'_>>(Some(params)).unwrap_err(),
            "ProgressToken",
        );
        let inside = r#"{"name":"a","arguments":{"Name":1},"_meta":{"ProgressToken":1}}"#;
        assert!(parse_params::<tools::Call<'_>>(Some(inside)).is_ok());
    }
}
