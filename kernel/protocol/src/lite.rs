//! MCP-lite 0.042: the types of its HTTP binding, shared with the gRPC binding.
//!
//! A lite caller has no session and no handshake. It lists tools, calls them, and redeems promises.

pub mod answer;
pub mod elicitation;
pub mod error;
pub mod openapi;
pub mod preferences;
pub mod tool_list;

/// The version of the document.
pub const VERSION: &str = "0.042";
/// The base path of the HTTP binding (§4.1).
pub const BASE: &str = "/mcp-lite/v1";

/// The tool that resolves promises (§3.6). The name is reserved: no server's tool has it.
pub const REDEEM: &str = "redeem";
/// Its definition, as in A.1.
pub const REDEEM_TOOL: &str = r#"{"name":"redeem","@type":"system","description":"Redeem a promise token to get the result of a long-running operation","inputSchema":{"type":"object","required":["promise"],"properties":{"promise":{"type":"string","description":"The promise token received from a previous operation"}}}}"#;

/// The operation of an endpoint (§4.2, A.1, A.4). The document has several names for the same (A-18).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LiteEndpoint {
    /// Lists tools: `/listtools`, `/tools`.
    List,
    /// Handles a JSON-RPC request: `/calltools`, `/calltool`, `/rpc`.
    Call,
}

impl LiteEndpoint {
    /// Parses the last segment of a path.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        match name {
            "listtools" | "tools" => Some(Self::List),
            "calltools" | "calltool" | "rpc" => Some(Self::Call),
            _ => None,
        }
    }
}

/// The kind of an answer (§3.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResponseType {
    /// The final result.
    Answer,
    /// The call continues; its result is redeemed later.
    Promise,
    /// The tool needs input to continue.
    Elicitation,
    /// The tool ran and failed.
    Failure,
    /// Only in the list of §3.3: accepted from peers, never sent (A-17).
    MoreResource,
}

impl ResponseType {
    const ALL: [Self; 5] = [
        Self::Answer,
        Self::Promise,
        Self::Elicitation,
        Self::Failure,
        Self::MoreResource,
    ];

    /// The value on the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Answer => "answer",
            Self::Promise => "promise",
            Self::Elicitation => "elicitation",
            Self::Failure => "failure",
            Self::MoreResource => "request-for-more-resource",
        }
    }

    /// Parses the value on the wire.
    #[must_use]
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == word)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// LITE-025: the definition of `redeem` is that of A.1.
    #[test]
    fn redeem_is_defined_as_in_the_document() {
        let defined: serde_json::Value = serde_json::from_str(REDEEM_TOOL).unwrap();
        assert_eq!(defined["name"], REDEEM);
        assert_eq!(defined["@type"], "system");
        assert_eq!(defined["inputSchema"]["required"][0], "promise");
        assert_eq!(
            defined["inputSchema"]["properties"]["promise"]["type"],
            "string"
        );
    }

    /// LITE-008, LITE-015: five values, each round-trips.
    #[test]
    fn response_types_round_trip() {
        for kind in ResponseType::ALL {
            assert_eq!(ResponseType::parse(kind.as_str()), Some(kind));
        }
        assert_eq!(ResponseType::parse("Answer"), None);
    }

    /// LITE-035 to LITE-039: the document's names of the endpoints, verbatim.
    #[test]
    fn endpoints_have_the_names_of_the_document() {
        assert_eq!(LiteEndpoint::from_name("tools"), Some(LiteEndpoint::List));
        assert_eq!(LiteEndpoint::from_name("rpc"), Some(LiteEndpoint::Call));
        for other in ["", "Tools", "calltoolsEndpoint", "prompts", "tools/"] {
            assert_eq!(LiteEndpoint::from_name(other), None, "{other}");
        }
    }
}
