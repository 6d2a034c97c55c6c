//! The capabilities of a peer. Parsed for each stateless request, so nothing is allocated except the
//! result.

use serde::Deserialize;
use serde_json::value::RawValue;

/// A member that counts as declared if it is present and not null.
type Declared<'a> = Option<&'a RawValue>;

/// Parses a declaration as `T`; a malformed one counts as absent. Serde would accept an array too.
fn parse_or_default<'a, T: Deserialize<'a> + Default>(raw: Declared<'a>) -> T {
    raw.filter(|raw| is_object(Some(raw)))
        .and_then(|raw| serde_json::from_str(raw.get()).ok())
        .unwrap_or_default()
}

/// True for the literal `true` only.
fn is_true(raw: Declared<'_>) -> bool {
    raw.is_some_and(|raw| raw.get() == "true")
}

fn is_object(raw: Declared<'_>) -> bool {
    raw.is_some_and(|raw| raw.get().starts_with('{'))
}

#[derive(Default, Deserialize)]
struct Extensions<'a> {
    #[serde(borrow, default, rename = "io.modelcontextprotocol/tasks")]
    tasks: Declared<'a>,
    #[serde(borrow, default, rename = "io.modelcontextprotocol/ui")]
    ui: Declared<'a>,
}

/// The capabilities of a client (`capabilities` of `initialize`, `clientCapabilities` of `_meta`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClientCapabilities {
    /// `sampling/createMessage`.
    pub sampling: bool,
    /// `tools` and `toolChoice` in `sampling/createMessage`.
    pub sampling_tools: bool,
    /// `includeContext` in `sampling/createMessage`.
    pub sampling_context: bool,
    /// `roots/list`.
    pub roots: bool,
    /// `notifications/roots/list_changed`.
    pub roots_list_changed: bool,
    /// `elicitation/create` with a form.
    pub elicitation_form: bool,
    /// `elicitation/create` with a URL.
    pub elicitation_url: bool,
    /// The extension `io.modelcontextprotocol/tasks`: a call may be answered with a task.
    pub tasks: bool,
    /// The extension `io.modelcontextprotocol/ui`: its host renders MCP Apps.
    pub ui: bool,
}

impl ClientCapabilities {
    /// True if a server may send it any request.
    #[must_use]
    pub fn can_receive_requests(&self) -> bool {
        self.sampling || self.roots || self.elicitation_form || self.elicitation_url
    }
}

#[derive(Default, Deserialize)]
struct Client<'a> {
    #[serde(borrow, default)]
    sampling: Declared<'a>,
    #[serde(borrow, default)]
    roots: Declared<'a>,
    #[serde(borrow, default)]
    elicitation: Declared<'a>,
    #[serde(borrow, default)]
    extensions: Declared<'a>,
}

#[derive(Default, Deserialize)]
struct Sampling<'a> {
    #[serde(borrow, default)]
    tools: Declared<'a>,
    #[serde(borrow, default)]
    context: Declared<'a>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Listing<'a> {
    #[serde(borrow, default)]
    list_changed: Declared<'a>,
}

#[derive(Default, Deserialize)]
struct Elicitation<'a> {
    #[serde(borrow, default)]
    form: Declared<'a>,
    #[serde(borrow, default)]
    url: Declared<'a>,
}

impl ClientCapabilities {
    /// Parses a capabilities object; malformed members count as absent.
    #[must_use]
    pub fn parse(raw: Option<&RawValue>) -> Self {
        let declared: Client<'_> = parse_or_default(raw);
        let sampling: Sampling<'_> = parse_or_default(declared.sampling);
        let roots: Listing<'_> = parse_or_default(declared.roots);
        let elicitation: Elicitation<'_> = parse_or_default(declared.elicitation);
        let extensions: Extensions<'_> = parse_or_default(declared.extensions);
        Self {
            sampling: declared.sampling.is_some(),
            sampling_tools: sampling.tools.is_some(),
            sampling_context: sampling.context.is_some(),
            roots: declared.roots.is_some(),
            roots_list_changed: is_true(roots.list_changed),
            // CMCP-090: the flat form `elicitation: {}` of 2025-06-18 means forms.
            elicitation_form: is_object(declared.elicitation)
                && (elicitation.form.is_some() || elicitation.url.is_none()),
            elicitation_url: elicitation.url.is_some(),
            tasks: extensions.tasks.is_some(),
            ui: is_object(extensions.ui),
        }
    }
}

/// The capabilities of a server (`capabilities` of its initialize or discover result).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ServerCapabilities {
    /// `tools/*`.
    pub tools: bool,
    /// `notifications/tools/list_changed`.
    pub tools_list_changed: bool,
    /// `prompts/*`.
    pub prompts: bool,
    /// `notifications/prompts/list_changed`.
    pub prompts_list_changed: bool,
    /// `resources/*`.
    pub resources: bool,
    /// `notifications/resources/list_changed`.
    pub resources_list_changed: bool,
    /// `resources/subscribe`; for a stateless server, `resourceSubscriptions` in `subscriptions/listen`.
    pub resources_subscribe: bool,
    /// `completion/complete`.
    pub completions: bool,
    /// `logging/setLevel`.
    pub logging: bool,
    /// The experimental tasks of 2025-11-25, any part of them.
    pub(crate) tasks: bool,
    /// `tasks/list` of 2025-11-25.
    pub tasks_list: bool,
    /// `tasks/cancel` of 2025-11-25.
    pub(crate) tasks_cancel: bool,
    /// `params.task` in `tools/call` of 2025-11-25.
    pub tasks_call: bool,
    /// The extension `io.modelcontextprotocol/tasks`.
    pub tasks_extension: bool,
}

#[derive(Default, Deserialize)]
struct Server<'a> {
    #[serde(borrow, default)]
    tools: Declared<'a>,
    #[serde(borrow, default)]
    prompts: Declared<'a>,
    #[serde(borrow, default)]
    resources: Declared<'a>,
    #[serde(borrow, default)]
    completions: Declared<'a>,
    #[serde(borrow, default)]
    logging: Declared<'a>,
    #[serde(borrow, default)]
    tasks: Declared<'a>,
    #[serde(borrow, default)]
    extensions: Declared<'a>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Resources<'a> {
    #[serde(borrow, default)]
    subscribe: Declared<'a>,
    #[serde(borrow, default)]
    list_changed: Declared<'a>,
}

#[derive(Default, Deserialize)]
struct Tasks<'a> {
    #[serde(borrow, default)]
    list: Declared<'a>,
    #[serde(borrow, default)]
    cancel: Declared<'a>,
    #[serde(borrow, default)]
    requests: Declared<'a>,
}

#[derive(Default, Deserialize)]
struct Requests<'a> {
    #[serde(borrow, default)]
    tools: Declared<'a>,
}

#[derive(Default, Deserialize)]
struct ToolRequests<'a> {
    #[serde(borrow, default)]
    call: Declared<'a>,
}

impl ServerCapabilities {
    /// Parses a capabilities object; malformed members count as absent.
    #[must_use]
    pub fn parse(raw: Option<&RawValue>) -> Self {
        let declared: Server<'_> = parse_or_default(raw);
        let tools: Listing<'_> = parse_or_default(declared.tools);
        let prompts: Listing<'_> = parse_or_default(declared.prompts);
        let resources: Resources<'_> = parse_or_default(declared.resources);
        let tasks: Tasks<'_> = parse_or_default(declared.tasks);
        let requests: Requests<'_> = parse_or_default(tasks.requests);
        let as_task: ToolRequests<'_> = parse_or_default(requests.tools);
        let extensions: Extensions<'_> = parse_or_default(declared.extensions);
        Self {
            tools: declared.tools.is_some(),
            tools_list_changed: is_true(tools.list_changed),
            prompts: declared.prompts.is_some(),
            prompts_list_changed: is_true(prompts.list_changed),
            resources: declared.resources.is_some(),
            resources_list_changed: is_true(resources.list_changed),
            resources_subscribe: is_true(resources.subscribe),
            completions: declared.completions.is_some(),
            logging: declared.logging.is_some(),
            tasks: declared.tasks.is_some(),
            tasks_list: tasks.list.is_some(),
            tasks_cancel: tasks.cancel.is_some(),
            tasks_call: as_task.call.is_some(),
            tasks_extension: extensions.tasks.is_some(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(text: &str) -> ClientCapabilities {
        let raw: Box<RawValue> = serde_json::from_str(text).unwrap();
        ClientCapabilities::parse(Some(&raw))
    }

    fn server(text: &str) -> ServerCapabilities {
        let raw: Box<RawValue> = serde_json::from_str(text).unwrap();
        ServerCapabilities::parse(Some(&raw))
    }

    /// CMCP-090: URL elicitation only if declared.
    #[test]
    fn elicitation_defaults_to_forms() {
        let caps = |text: &str| {
            let c = client(text);
            (c.elicitation_form, c.elicitation_url)
        };
        assert_eq!(caps("{}"), (false, false));
        assert_eq!(caps(r#"{"elicitation":{}}"#), (true, false));
        assert_eq!(caps(r#"{"elicitation":{"url":{}}}"#), (false, true));
        assert_eq!(
            caps(r#"{"elicitation":{"form":{},"url":{}}}"#),
            (true, true)
        );
        assert_eq!(caps(r#"{"elicitation":true}"#), (false, false));
    }

    #[test]
    fn null_and_malformed_members_are_not_declared() {
        let c = client(r#"{"sampling":null,"roots":{"listChanged":"yes"},"extensions":[],"x":1}"#);
        let roots_only = ClientCapabilities {
            roots: true,
            ..ClientCapabilities::default()
        };
        assert_eq!(c, roots_only);
        assert_eq!(client("[1]"), ClientCapabilities::default());
        let tools_only = ServerCapabilities {
            tools: true,
            ..ServerCapabilities::default()
        };
        assert_eq!(server(r#"{"tools":{},"prompts":null}"#), tools_only);
    }

    #[test]
    fn nested_capabilities_and_extensions_are_parsed() {
        let c = client(
            r#"{"sampling":{"tools":{},"context":{}},
                "extensions":{"io.modelcontextprotocol/tasks":{},"io.modelcontextprotocol/ui":{}}}"#,
        );
        assert!(c.sampling && c.sampling_tools && c.sampling_context && c.tasks && c.ui);
        let s = server(r#"{"tasks":{"cancel":{},"requests":{"tools":{"call":{}}}}}"#);
        assert!(s.tasks && s.tasks_cancel && s.tasks_call);
        assert!(!s.tasks_list && !s.tasks_extension);
        let s = server(r#"{"extensions":{"io.modelcontextprotocol/tasks":{}}}"#);
        assert!(s.tasks_extension && !s.tasks);
    }
}
