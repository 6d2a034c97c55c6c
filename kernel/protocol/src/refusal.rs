//! The one internal error of a request, and its rendering for the caller's dialect (A-08).

use serde_json::json;
use serde_json::value::RawValue;

use crate::dialect::Version;
use crate::ids::ServerId;
use crate::jsonrpc::{
    ErrorObject, INTERNAL_ERROR, INVALID_PARAMS, INVALID_REQUEST, METHOD_NOT_FOUND,
};

/// Code of "resource not found" up to 2025-11-25; later versions say -32602.
pub const RESOURCE_NOT_FOUND: i64 = -32002;

/// Why a request was not done.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Refusal {
    /// No such method, or nobody offers its capability.
    #[error("Method not found: {0}")]
    UnknownMethod(String),
    /// `params` are not of the method's form.
    #[error("Invalid params: {0}")]
    BadParams(String),
    /// The request is not allowed in this state of the connection.
    #[error("Invalid Request: {0}")]
    BadRequest(String),
    /// Unknown or hidden: the same words for both, so that a policy does not leak.
    #[error("Unknown tool: {0}")]
    UnknownTool(String),
    /// Unknown or hidden.
    #[error("Unknown prompt: {0}")]
    UnknownPrompt(String),
    /// Unknown or hidden.
    #[error("Resource not found: {0}")]
    UnknownResource(String),
    /// Unknown server named in a request of the operator.
    #[error("Unknown server: {0}; `mgp servers list` shows the known ones")]
    UnknownServer(String),
    /// A list cursor this kernel did not make, or whose place is gone.
    #[error("Invalid cursor: ask for the list again from its start")]
    BadCursor,
    /// Arguments that do not fit the tool's `inputSchema`; the call did not leave the kernel.
    #[error("Invalid arguments for tool {tool}{}: {message}", at(.path))]
    BadArguments {
        /// As the caller named it.
        tool: String,
        /// JSON pointer into the arguments; empty for the arguments themselves.
        path: String,
        /// The schema keyword that failed.
        keyword: String,
        /// What is wrong, in words.
        message: String,
    },
    /// A structured result that does not fit the tool's `outputSchema`.
    #[error(
        "Server {server} answered tool {tool} against its own outputSchema{}: {message}", at(.path)
    )]
    BadResult {
        /// Who answered.
        server: ServerId,
        /// As the caller named it.
        tool: String,
        /// JSON pointer into `structuredContent`.
        path: String,
        /// The schema keyword that failed.
        keyword: String,
        /// What is wrong, in words.
        message: String,
    },
    /// The server is not connected.
    #[error("Server {server} is {state}{}", because(.reason.as_deref()))]
    NotReady {
        /// Whose tool it is.
        server: ServerId,
        /// MGP state.
        state: &'static str,
        /// Why, as far as known.
        reason: Option<String>,
        /// When the kernel tries again, in milliseconds from now.
        retry_after_ms: Option<u64>,
    },
    /// The server stopped or its connection broke while the call was under way.
    #[error(
        "Server {server} went away before it answered ({reason}); whether the call took effect is unknown"
    )]
    Lost {
        /// Who was asked.
        server: ServerId,
        /// What became of it.
        reason: String,
    },
    /// No answer and no progress in time. The server was told to stop.
    #[error(
        "Server {server} did not answer within {after_ms} ms; `call_timeout_secs` of that server sets the limit"
    )]
    TimedOut {
        /// Who was asked.
        server: ServerId,
        /// The limit that passed.
        after_ms: u64,
    },
    /// A queue is full.
    #[error("{what} is full; try again later")]
    Overloaded {
        /// Which queue, in words.
        what: String,
    },
    /// An answer over the frame limit was thrown away; said as soon as the limit is passed, so its
    /// length is not known.
    #[error(
        "Server {server} sent a message of more than {limit} bytes, the limit (`max_frame_bytes` of that server)"
    )]
    TooLarge {
        /// Who sent it.
        server: ServerId,
        /// The limit in bytes.
        limit: u64,
    },
    /// The caller may not do this.
    #[error("{0}")]
    Forbidden(String),
    /// The caller took its request back; nothing is answered.
    #[error("Cancelled")]
    Cancelled,
    /// Something in the kernel broke.
    #[error("Internal error: {0}")]
    Broken(String),
    /// The peer's own error, relayed as it is.
    #[error("{}", .0.get())]
    Peer(Box<RawValue>),
}

/// Where in a value; the value itself needs no place.
fn at(path: &str) -> String {
    match path {
        "" => String::new(),
        path => format!(" at {path}"),
    }
}

fn because(reason: Option<&str>) -> String {
    reason.map(|r| format!(": {r}")).unwrap_or_default()
}

/// A refusal on the wire.
#[derive(Debug)]
pub enum Rendered {
    /// The `error` member, as JSON text.
    Error(String),
    /// The `result` member, as JSON text: a tool's failure that the model can mend.
    Result(String),
}

impl Refusal {
    /// Renders it for a plain MCP caller of this version.
    #[must_use]
    pub fn render(&self, version: Version) -> Rendered {
        if let Self::Peer(error) = self {
            return Rendered::Error(error.get().to_owned());
        }
        if matches!(self, Self::BadArguments { .. }) && version.reports_input_errors_as_results() {
            let content =
                json!({"content": [{"type": "text", "text": self.to_string()}], "isError": true});
            return Rendered::Result(content.to_string());
        }
        let mut error = ErrorObject::new(self.code(version), self.to_string());
        if let Some(data) = self.data() {
            error = error.with_data(&data);
        }
        Rendered::Error(serde_json::to_string(&error).expect("an error object is always JSON"))
    }

    /// The JSON-RPC code for a plain MCP caller of this version.
    #[must_use]
    pub fn code(&self, version: Version) -> i64 {
        match self {
            Self::UnknownMethod(_) => METHOD_NOT_FOUND,
            Self::BadRequest(_) => INVALID_REQUEST,
            Self::UnknownResource(_) if version.is_legacy() => RESOURCE_NOT_FOUND,
            Self::BadParams(_)
            | Self::UnknownTool(_)
            | Self::UnknownPrompt(_)
            | Self::UnknownResource(_)
            | Self::UnknownServer(_)
            | Self::BadCursor
            | Self::BadArguments { .. } => INVALID_PARAMS,
            Self::BadResult { .. }
            | Self::NotReady { .. }
            | Self::Lost { .. }
            | Self::TimedOut { .. }
            | Self::Overloaded { .. }
            | Self::TooLarge { .. }
            | Self::Forbidden(_)
            | Self::Cancelled
            | Self::Broken(_)
            | Self::Peer(_) => INTERNAL_ERROR,
        }
    }

    fn data(&self) -> Option<serde_json::Value> {
        match self {
            Self::BadArguments {
                path,
                keyword,
                message,
                ..
            } => Some(json!({"path": path, "keyword": keyword, "message": message})),
            Self::BadResult {
                server,
                path,
                keyword,
                message,
                ..
            } => Some(
                json!({"server": server, "path": path, "keyword": keyword, "message": message}),
            ),
            Self::UnknownResource(uri) => Some(json!({"uri": uri})),
            Self::NotReady {
                server,
                state,
                reason,
                retry_after_ms,
            } => Some(json!({
                "server": server, "state": state, "reason": reason, "retryAfterMs": retry_after_ms
            })),
            Self::Lost { server, reason } => {
                Some(json!({"server": server, "reason": reason, "outcome": "unknown"}))
            }
            Self::TimedOut { server, after_ms } => {
                Some(json!({"server": server, "timeoutMs": after_ms}))
            }
            Self::TooLarge { server, limit } => Some(json!({"server": server, "limit": limit})),
            Self::UnknownMethod(_)
            | Self::BadParams(_)
            | Self::BadRequest(_)
            | Self::UnknownTool(_)
            | Self::UnknownPrompt(_)
            | Self::UnknownServer(_)
            | Self::BadCursor
            | Self::Overloaded { .. }
            | Self::Forbidden(_)
            | Self::Cancelled
            | Self::Broken(_)
            | Self::Peer(_) => None,
        }
    }

    /// The whole answer to the request `id`, for a plain MCP caller of this version.
    #[must_use]
    pub fn answer(&self, id: &str, version: Version) -> Vec<u8> {
        match self.render(version) {
            Rendered::Error(error) => crate::jsonrpc::error(id, &error),
            Rendered::Result(result) => crate::jsonrpc::result(id, &result),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// CMCP-010, SEP-1303: older callers get -32602 with data, newer ones a result the model can read.
    #[test]
    fn bad_arguments_are_said_in_the_callers_dialect() {
        let refusal = Refusal::BadArguments {
            tool: "add".into(),
            path: "/a".into(),
            keyword: "type".into(),
            message: "\"x\" is not a number".into(),
        };
        match refusal.render(Version::V2025_06_18) {
            Rendered::Error(e) => {
                assert!(
                    e.contains("-32602") && e.contains(r#""keyword":"type""#),
                    "{e}"
                );
            }
            Rendered::Result(r) => panic!("{r}"),
        }
        match refusal.render(Version::V2025_11_25) {
            Rendered::Result(r) => assert!(r.contains(r#""isError":true"#), "{r}"),
            Rendered::Error(e) => panic!("{e}"),
        }
    }

    /// MCP-089: an unknown resource has the code of the caller's version.
    #[test]
    fn an_unknown_resource_has_the_code_of_its_version() {
        let refusal = Refusal::UnknownResource("x://y".into());
        assert_eq!(refusal.code(Version::V2025_11_25), -32002);
        assert_eq!(refusal.code(Version::V2026_07_28), -32602);
    }
}
