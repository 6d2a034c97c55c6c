//! `mgp/door/*`: what a connection on the kernel's own socket says before it speaks MCP.

use serde::{Deserialize, Serialize};

use crate::mcp::methods;

methods! { "mgp/door/open" => Open }

/// `mgp/door/open`: chooses what this connection shows. First request on a connection, or never.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Open {
    /// Show this one server under its own names instead of everything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<String>,
    /// The agent that the owner of the socket speaks as from now on, with that agent's access and no
    /// more. Nobody else may say this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
}
