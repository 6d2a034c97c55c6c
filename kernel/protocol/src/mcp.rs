//! The parts of MCP that the kernel reads or writes itself. Relayed messages have no types here.

mod capabilities;
pub mod completion;
pub mod elicitation;
pub mod extensions;
pub mod logging;
pub mod meta;
pub mod prompts;
mod related_call;
pub mod request_headers;
pub mod resources;
pub mod roots;
pub mod sampling;
pub mod server;
pub mod skills;
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
    /// The client's self-description, unverified; shown to people.
    #[serde(borrow)]
    pub client_info: Implementation<'a>,
}

/// The self-description of a peer; other members are ignored.
#[derive(Debug, Deserialize)]
pub struct Implementation<'a> {
    /// Its name for programs.
    #[serde(borrow)]
    pub name: Cow<'a, str>,
    /// Its version.
    #[serde(borrow)]
    pub version: Cow<'a, str>,
}

/// The result of `initialize`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct InitializeResult<'a> {
    /// The version chosen by the server.
    #[serde(borrow)]
    pub protocol_version: Cow<'a, str>,
    /// The capabilities of the server.
    #[serde(borrow, default)]
    pub capabilities: Option<&'a RawValue>,
    /// The server's self-description.
    #[serde(borrow, default)]
    pub server_info: Option<&'a RawValue>,
    /// Hints for the model.
    #[serde(borrow, default)]
    pub instructions: Option<Cow<'a, str>>,
}

/// `notifications/initialized`: the client is ready.
#[derive(Debug)]
pub struct Initialized;

/// `ping`, in either direction; answered with `{}`.
#[derive(Debug)]
pub struct Ping;

/// `notifications/cancelled`, in either direction.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Cancelled<'a> {
    /// The id of the cancelled request.
    #[serde(borrow)]
    pub request_id: &'a RawValue,
    /// The reason, for people; a malformed one is ignored.
    #[serde(borrow, default)]
    reason: Option<&'a RawValue>,
}

impl Cancelled<'_> {
    /// The reason, if it is a text.
    #[must_use]
    pub fn reason(&self) -> Option<String> {
        serde_json::from_str(self.reason?.get()).ok()
    }
}

/// `notifications/progress`, in either direction.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Progress<'a> {
    /// The token of the request.
    #[serde(borrow)]
    pub progress_token: &'a RawValue,
    /// The progress; relayed verbatim, like all following members.
    #[serde(default)]
    pub progress: Option<AnyMember>,
    /// The total amount.
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

/// The `params` of any of the four list methods.
#[derive(Debug, Default, Deserialize)]
pub struct ListParams<'a> {
    /// The cursor of the page; the empty string is a cursor too.
    #[serde(borrow, default)]
    pub cursor: Option<Cow<'a, str>>,
}

/// Parses `params` as `T`. A member that a lenient parser would read as one of `T`, and the kernel would
/// not, is rejected: otherwise the server would read unchecked data.
///
/// # Errors
/// [`Refusal::BadParams`] with serde's message, which names the missing or invalid member.
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

    /// MCP-012: the missing member is named.
    #[test]
    fn bad_params_name_the_member() {
        let error = parse_params::<tools::Call<'_>>(Some("{}")).unwrap_err();
        assert_eq!(error.to_string(), "Invalid params: missing field `name`");
    }

    /// An MCP object must be an object, at every depth that the kernel reads.
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

    /// The `params` of an `initialize` that is well-formed except for one member; `""` omits it.
    fn hello(member: &str, value: &str) -> String {
        let well = [
            ("protocolVersion", r#""2025-11-25""#),
            ("capabilities", "{}"),
            (
                "clientInfo",
                r#"{"name":"a","version":"1","title":"A","icons":[]}"#,
            ),
        ];
        let rendered = well.map(|(name, well)| (name, if name == member { value } else { well }));
        let rendered = rendered.iter().filter(|(_, value)| !value.is_empty());
        let rendered: Vec<String> = rendered
            .map(|(name, value)| format!(r#""{name}":{value}"#))
            .collect();
        format!("{{{}}}", rendered.join(","))
    }

    /// CMCP-020: an `initialize` without client information or capabilities is rejected.
    #[test]
    fn incomplete_initialize_is_rejected() {
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

    /// Look-alikes of all members of these params are rejected; members within them may have any name.
    #[test]
    fn lookalike_members_are_rejected() {
        let refused = |error: Refusal, member: &str| {
            let message = error.to_string();
            assert!(
                message.starts_with(&format!("Invalid params: member {member:?}")),
                "{message}"
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
