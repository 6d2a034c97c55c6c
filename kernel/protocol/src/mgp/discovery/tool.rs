//! The tools of the kernel for these methods, for agents without MGP.

use serde_json::json;

use super::{Deregister, List, Register};
use crate::mcp::Method;

/// A discovery tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DiscoveryTool {
    /// Lists servers.
    List,
    /// Registers a server.
    Register,
    /// Deregisters a server.
    Deregister,
}

impl DiscoveryTool {
    /// All discovery tools.
    pub const ALL: [Self; 3] = [Self::List, Self::Register, Self::Deregister];

    /// The method of the tool.
    #[must_use]
    pub const fn method(self) -> &'static str {
        match self {
            Self::List => List::METHOD,
            Self::Register => Register::METHOD,
            Self::Deregister => Deregister::METHOD,
        }
    }

    /// The name visible to agents, in characters that every model API accepts (A-11).
    #[must_use]
    pub(crate) const fn tool_name(self) -> &'static str {
        match self {
            Self::List => "mgp_discovery_list",
            Self::Register => "mgp_discovery_register",
            Self::Deregister => "mgp_discovery_deregister",
        }
    }

    /// The definition, in one line. `security` is added for clients that support it.
    #[must_use]
    pub fn definition(self, security: bool) -> String {
        let schema: serde_json::Value =
            serde_json::from_str(self.input_schema()).expect("the schemas below are JSON");
        let reads = self == Self::List;
        let mut definition = json!({
            "name": self.tool_name(),
            "title": self.title(),
            "description": self.description(),
            "inputSchema": schema,
            "annotations": {
                "readOnlyHint": reads, "destructiveHint": !reads, "openWorldHint": false
            },
        });
        if security {
            definition["security"] = match self {
                Self::List => json!({
                    "risk_level": "safe", "permissions_required": [], "side_effects": [],
                    "reversible": true
                }),
                Self::Register => json!({
                    "risk_level": "dangerous", "permissions_required": ["code_execution"],
                    "reversible": true
                }),
                Self::Deregister => json!({
                    "risk_level": "moderate", "permissions_required": [], "reversible": false
                }),
            };
        }
        definition.to_string()
    }

    const fn title(self) -> &'static str {
        match self {
            Self::List => "List servers",
            Self::Register => "Register a server",
            Self::Deregister => "Take a server out",
        }
    }

    const fn description(self) -> &'static str {
        match self {
            Self::List => "Lists the servers you may know of, their state and their tools.",
            Self::Register => {
                "Registers an MCP server and starts it in a sandbox, so that its tools can be found and called. Send its program as `code` with command python or node and no args. `remarks` say why it does not start, and what it wrote: take it out, mend it and register it again. With `preview` it is only judged."
            }
            Self::Deregister => {
                "Stops a server that you registered and forgets it. Its name is free again."
            }
        }
    }

    /// The schema of its arguments, which are the params of its method.
    #[must_use]
    pub(crate) const fn input_schema(self) -> &'static str {
        match self {
            Self::List => {
                r#"{"type":"object","properties":{"filter":{"type":"object","properties":{"extensions":{"type":"array","items":{"type":"string"}},"permissions":{"type":"array","items":{"type":"string"}},"status":{"enum":["all","registered","connecting","connected","draining","disconnected","error","restarting"]}},"additionalProperties":false}},"additionalProperties":false}"#
            }
            Self::Register => {
                r#"{"type":"object","properties":{"id":{"type":"string","description":"Such as dynamic.csv_tools"},"command":{"type":"string"},"args":{"type":"array","items":{"type":"string"}},"env":{"type":"object","additionalProperties":{"type":"string"}},"url":{"type":"string"},"transport":{"enum":["stdio","http"]},"code":{"type":"object","properties":{"language":{"enum":["python","javascript"]},"text":{"type":"string"}},"required":["language","text"],"additionalProperties":false},"mgp":{"type":"object","properties":{"extensions":{"type":"array","items":{"type":"string"}},"permissions_required":{"type":"array","items":{"type":"string"}},"trust_level":{"type":"string"}},"additionalProperties":false},"created_by":{"type":"string"},"justification":{"type":"string","description":"What it is for, for the person who decides"},"session_scoped":{"type":"boolean"},"preview":{"type":"boolean"}},"required":["id"],"additionalProperties":false}"#
            }
            Self::Deregister => {
                r#"{"type":"object","properties":{"id":{"type":"string"},"reason":{"type":"string"}},"required":["id"],"additionalProperties":false}"#
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mgp::discovery::security::Security;
    use crate::mgp::matches_method;

    /// MGP-224, A-11: one name for each method, with its security for clients that support it.
    #[test]
    fn tools_have_the_names_and_risks_of_their_methods() {
        for tool in DiscoveryTool::ALL {
            assert!(matches_method(tool.method(), tool.tool_name()), "{tool:?}");
            let security = Security::from_definition(&tool.definition(true)).unwrap();
            assert!(security.unreadable.is_empty() && security.risk_level.is_some());
            assert_eq!(Security::from_definition(&tool.definition(false)), None);
        }
    }
}
