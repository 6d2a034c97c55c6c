//! The meta tools of the kernel, listed in place of all tools (MGP §16.2). Their definitions never change,
//! so that an agent can cache them.

use serde_json::json;

use super::session::Evict;
use super::{Call, Discover, Request, Session};
use crate::mcp::Method;
use crate::mgp::matches_method;

/// A meta tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum MetaTool {
    /// Finds tools.
    Discover,
    /// Requests the tools for a task.
    Request,
    /// Calls a found tool.
    Call,
    /// Lists the tools of the session.
    Session,
    /// Evicts tools from the session.
    Evict,
    /// Calls a found tool that only reads.
    CallRead,
    /// Calls a found tool that destroys nothing.
    CallWrite,
    /// Shows the whole definitions of found tools.
    Describe,
}

impl MetaTool {
    /// All meta tools.
    pub const ALL: [Self; 8] = [
        Self::Discover,
        Self::Request,
        Self::Call,
        Self::Session,
        Self::Evict,
        Self::CallRead,
        Self::CallWrite,
        Self::Describe,
    ];
    /// Those of the document, with those of a session.
    pub const SESSION_TOOLS: [Self; 5] = [
        Self::Discover,
        Self::Request,
        Self::Call,
        Self::Session,
        Self::Evict,
    ];
    /// The tools for discovering and calling tools.
    pub const DISCOVERY_TOOLS: [Self; 3] = [Self::Discover, Self::Request, Self::Call];

    /// The method of the tool.
    #[must_use]
    pub const fn method(self) -> &'static str {
        match self {
            Self::Discover => Discover::METHOD,
            Self::Request => Request::METHOD,
            Self::Call => Call::METHOD,
            Self::Session => Session::METHOD,
            Self::Evict => Evict::METHOD,
            // They are tools only.
            Self::CallRead => "mgp/tools/call_read",
            Self::CallWrite => "mgp/tools/call_write",
            Self::Describe => "mgp/tools/describe",
        }
    }

    /// The name visible to agents, in characters that every model API accepts (A-11).
    #[must_use]
    pub const fn tool_name(self) -> &'static str {
        match self {
            Self::Discover => "mgp_tools_discover",
            Self::Request => "mgp_tools_request",
            Self::Call => "mgp_tools_call",
            Self::Session => "mgp_tools_session",
            Self::Evict => "mgp_tools_session_evict",
            Self::CallRead => "mgp_tools_call_read",
            Self::CallWrite => "mgp_tools_call_write",
            Self::Describe => "mgp_tools_describe",
        }
    }

    /// Finds a tool by its method, or one of its names as a tool: with dots as in later drafts, or as in
    /// [`MetaTool::tool_name`].
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        let mut all = Self::ALL.into_iter();
        all.find(|tool| matches_method(tool.method(), name))
    }

    /// The definition, in one line. `security` is added for clients that support it.
    #[must_use]
    pub fn definition(self, security: bool) -> String {
        self.definition_with(security, self.description())
    }

    /// The definition with an extended description, which mentions the tools that can be found.
    #[must_use]
    pub fn definition_with(self, security: bool, description: &str) -> String {
        let schema: serde_json::Value =
            serde_json::from_str(self.input_schema()).expect("the schemas below are JSON");
        let mut definition = json!({
            "name": self.tool_name(),
            "title": self.title(),
            "description": description,
            "inputSchema": schema,
            "annotations": self.annotations(),
            // Hosts with a tool search of their own would hide the tools that find the others.
            "_meta": {"anthropic/alwaysLoad": true},
        });
        if security {
            definition["security"] = self.security();
        }
        definition.to_string()
    }

    const fn title(self) -> &'static str {
        match self {
            Self::Discover => "Find tools",
            Self::Request => "Request tools",
            Self::Call => "Call a tool",
            Self::Session => "Tools in this session",
            Self::Evict => "Let go of tools",
            Self::CallRead => "Call a tool that only reads",
            Self::CallWrite => "Call a tool that destroys nothing",
            Self::Describe => "Describe tools",
        }
    }

    /// The description for a model.
    #[must_use]
    pub const fn description(self) -> &'static str {
        match self {
            Self::Discover => {
                "Finds tools by what they do. Many more tools exist than are listed here: search before you say that something cannot be done. Results carry their whole inputSchema."
            }
            Self::Request => {
                "Gets tools for several capabilities at once and keeps them in this session. Use it when you notice during a task that a tool is missing."
            }
            Self::Call => {
                "Calls a tool that was found, by the name in the result and with arguments that fit its inputSchema. For tools that are not in your own list."
            }
            Self::Session => "Tells which tools this session holds and what they cost in tokens.",
            Self::Evict => {
                "Lets go of tools this session holds, to make room. They can be found again."
            }
            Self::CallRead => "The same for tools whose `effect` is `read`.",
            Self::CallWrite => "The same for tools whose `effect` is `read` or `write`.",
            Self::Describe => "Shows found tools with their whole inputSchema.",
        }
    }

    /// The schema of its arguments, which are the params of its method.
    #[must_use]
    pub const fn input_schema(self) -> &'static str {
        match self {
            Self::Discover => {
                r#"{"type":"object","properties":{"query":{"type":"string","description":"What the tool should do, in your own words"},"strategy":{"enum":["hybrid","keyword","semantic","category"]},"max_results":{"type":"integer","minimum":1,"maximum":100,"default":5},"filter":{"type":"object","properties":{"categories":{"type":"array","items":{"type":"string"}},"risk_level_max":{"enum":["safe","moderate","dangerous"]},"status":{"enum":["connected","all"]}},"additionalProperties":false}},"required":["query"],"additionalProperties":false}"#
            }
            Self::Request => {
                r#"{"type":"object","properties":{"reason":{"enum":["capability_gap","performance","preference"]},"context":{"type":"string","description":"What you are doing"},"requirements":{"type":"object","properties":{"capabilities":{"type":"array","items":{"type":"string"},"minItems":1,"maxItems":16,"description":"One thing each"},"input_types":{"type":"array","items":{"type":"string"}},"output_types":{"type":"array","items":{"type":"string"}},"preferred_risk_level":{"enum":["safe","moderate","dangerous"]}},"required":["capabilities"],"additionalProperties":false},"task_trace_id":{"type":"string"}},"required":["requirements"],"additionalProperties":false}"#
            }
            Self::Call | Self::CallRead | Self::CallWrite => {
                r#"{"type":"object","properties":{"name":{"type":"string"},"arguments":{"type":"object"}},"required":["name"],"additionalProperties":false}"#
            }
            Self::Describe => {
                r#"{"type":"object","properties":{"names":{"type":"array","items":{"type":"string"},"minItems":1,"maxItems":16}},"required":["names"],"additionalProperties":false}"#
            }
            Self::Session => r#"{"type":"object","properties":{},"additionalProperties":false}"#,
            Self::Evict => {
                r#"{"type":"object","properties":{"tools":{"type":"array","items":{"type":"string"}},"reason":{"type":"string"}},"required":["tools"],"additionalProperties":false}"#
            }
        }
    }

    /// Hints for clients without MGP.
    fn annotations(self) -> serde_json::Value {
        match self {
            Self::Discover | Self::Session | Self::Describe => {
                json!({"readOnlyHint": true, "openWorldHint": false})
            }
            Self::CallRead => json!({"readOnlyHint": true, "openWorldHint": true}),
            Self::CallWrite => {
                json!({"readOnlyHint": false, "destructiveHint": false, "openWorldHint": true})
            }
            Self::Request | Self::Evict => json!({
                "readOnlyHint": false, "destructiveHint": false, "idempotentHint": true,
                "openWorldHint": false
            }),
            // The effects depend on the called tool.
            Self::Call => {
                json!({"readOnlyHint": false, "destructiveHint": true, "openWorldHint": true})
            }
        }
    }

    /// The security declaration of MGP §4.
    fn security(self) -> serde_json::Value {
        match self {
            Self::Discover | Self::Session | Self::Request | Self::Evict | Self::Describe => {
                json!({
                    "risk_level": "safe", "permissions_required": [], "side_effects": [],
                    "reversible": true
                })
            }
            // Each call is checked as the called tool; nothing better can be declared before.
            Self::Call | Self::CallRead | Self::CallWrite => json!({
                "risk_level": "dangerous", "permissions_required": [], "reversible": false
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mcp::parse_params;
    use crate::mgp::discovery::security::{RiskLevel, Security};
    use crate::mgp::tools::Describe;

    /// MGP-247, A-11: one tool under the names of the document, of its later drafts, and of model APIs.
    #[test]
    fn meta_tool_is_found_by_each_spelling() {
        for tool in MetaTool::ALL {
            let method = tool.method();
            let dotted = method.replace('/', ".");
            assert_eq!(tool.tool_name(), method.replace('/', "_"));
            for name in [method, &dotted, tool.tool_name()] {
                assert_eq!(MetaTool::from_name(name), Some(tool), "{name}");
            }
            for name in [&*dotted, tool.tool_name()] {
                let fits = |c: char| c.is_ascii_alphanumeric() || "_.-".contains(c);
                assert!(name.len() <= 64 && name.chars().all(fits), "{name}");
            }
        }
        for name in [
            "mgp.tools_discover",
            "discover",
            "mgp/tools",
            "mgp_tools_discovery",
        ] {
            assert_eq!(MetaTool::from_name(name), None, "{name}");
        }
    }

    /// MGP-281: the kernel's own tools declare their risk, for clients that support it.
    #[test]
    fn definitions_are_complete_with_security() {
        for tool in MetaTool::ALL {
            let text = tool.definition(true);
            let security = Security::from_definition(&text).unwrap();
            assert!(security.unreadable.is_empty(), "{text}");
            let risk = match tool {
                MetaTool::Call | MetaTool::CallRead | MetaTool::CallWrite => RiskLevel::Dangerous,
                MetaTool::Discover
                | MetaTool::Request
                | MetaTool::Session
                | MetaTool::Evict
                | MetaTool::Describe => RiskLevel::Safe,
            };
            assert_eq!(security.risk_level, Some(risk));
            let plain = tool.definition(false);
            assert_eq!(Security::from_definition(&plain), None);
            let value: serde_json::Value = serde_json::from_str(&plain).unwrap();
            assert_eq!(value["name"], tool.tool_name());
            assert_eq!(value["inputSchema"]["type"], "object");
            assert!(!plain.contains('\n'));
        }
    }

    /// MGP-241, MGP-248, MGP-261: the schema lists exactly the members that are parsed.
    #[test]
    fn schemas_match_the_parsed_members() {
        let properties = |tool: MetaTool| {
            let schema: serde_json::Value = serde_json::from_str(tool.input_schema()).unwrap();
            let names = schema["properties"].as_object().unwrap().keys().cloned();
            names.collect::<Vec<_>>()
        };
        let discover = r#"{"query":"q","strategy":"hybrid","max_results":1,"filter":
            {"categories":[],"risk_level_max":"safe","status":"all"}}"#;
        parse_params::<Discover>(Some(discover)).unwrap();
        let request = r#"{"reason":"preference","context":"c","requirements":{"capabilities":["a"],
            "input_types":[],"output_types":[],"preferred_risk_level":"safe"},"task_trace_id":"t"}"#;
        parse_params::<Request>(Some(request)).unwrap();
        let call = r#"{"name":"n","arguments":{}}"#;
        parse_params::<Call<'_>>(Some(call)).unwrap();
        let evict = r#"{"tools":[],"reason":"r"}"#;
        parse_params::<Evict>(Some(evict)).unwrap();
        parse_params::<Session>(Some("{}")).unwrap();
        let describe = r#"{"names":["n"]}"#;
        parse_params::<Describe>(Some(describe)).unwrap();
        for (tool, example) in [
            (MetaTool::Discover, discover),
            (MetaTool::Request, request),
            (MetaTool::Call, call),
            (MetaTool::Evict, evict),
            (MetaTool::Session, "{}"),
            (MetaTool::CallRead, call),
            (MetaTool::CallWrite, call),
            (MetaTool::Describe, describe),
        ] {
            let example: serde_json::Value = serde_json::from_str(example).unwrap();
            let given: Vec<String> = example.as_object().unwrap().keys().cloned().collect();
            assert_eq!(properties(tool), given);
        }
    }
}
