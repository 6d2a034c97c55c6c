//! The internal error type of all requests, and its rendering for the caller's dialect (A-08).

mod audit_outcome;
mod code;
mod denial;
pub mod mgp;
pub mod owner_refusal;
mod reason;
mod relayed_error;
mod spec;
mod tool_rejection;
mod unanswered_call;

use serde_json::json;
use serde_json::value::RawValue;

use crate::dialect::{Dialect, ProtocolFamily, Version};
use crate::ids::ServerId;
use crate::jsonrpc::ErrorObject;

pub use self::audit_outcome::{Failure, Outcome as AuditOutcome};
pub use self::denial::{Denial, NextCall};
use self::owner_refusal::{OwnerAnswer, OwnerRefusal};
pub use self::reason::RefusalReason;
use self::relayed_error::peer_http_status;
pub(crate) use self::spec::RefusalSpec;
pub(crate) use self::spec::legacy_code;
pub use self::tool_rejection::{PeerRejection, ToolRejection};
pub use self::unanswered_call::{CallOutcome, UnansweredCall};

/// The code of "resource not found" up to 2025-11-25; later versions use -32602.
pub const RESOURCE_NOT_FOUND: i64 = -32002;
/// The headers of a stateless request differ from its body.
pub(crate) const HEADER_MISMATCH: i64 = -32020;
/// A stateless request does not declare a required capability.
pub(crate) const MISSING_CAPABILITY: i64 = -32021;
/// A stateless request names an unsupported version.
pub(crate) const UNSUPPORTED_VERSION: i64 = -32022;
/// In 2025-11-25: the call works once the person has visited the URLs in `data.elicitations`.
pub const URL_ELICITATION_REQUIRED: i64 = -32042;

/// Why a request failed.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Refusal {
    /// The method is unknown, or no server has its capability.
    #[error("Method not found: {0}")]
    UnknownMethod(String),
    /// `params` are invalid.
    #[error("Invalid params: {0}")]
    BadParams(String),
    /// `_meta` of a stateless request lacks a required member.
    #[error("Invalid params: {0}")]
    BadMeta(String),
    /// Headers and body of a stateless HTTP request differ. The message names the header and both values.
    #[error("Header mismatch: {0}")]
    HeaderMismatch(String),
    /// The caller did not declare a required capability.
    #[error("Missing required client capability: {}; declare it to make this request", .required.get())]
    MissingCapability {
        /// A `ClientCapabilities` object with the missing capabilities.
        required: Box<RawValue>,
    },
    /// `_meta` names a version that is not supported for stateless requests.
    #[error(
        "Unsupported protocol version: {requested}; supported: {}",
        Version::STATELESS
    )]
    UnsupportedVersion {
        /// The requested version.
        requested: String,
    },
    /// A `requestState` of another kernel or caller, or of a call that has ended.
    #[error(
        "Invalid params: requestState is no longer valid ({0}); whether the call that it continues took effect \
         is unknown; a request without it is a new call"
    )]
    Expired(String),
    /// The request is not allowed in this state of the connection.
    #[error("Invalid Request: {0}")]
    BadRequest(String),
    /// Unknown or hidden: with the same message, so that a policy is not revealed.
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
    /// No object has this id, or no longer. The message names it.
    #[error("{0}")]
    UnknownId(String),
    /// The time window of the request has passed.
    #[error("{0}")]
    WindowExpired(String),
    /// A list cursor of another kernel, or one whose position no longer exists.
    #[error("Invalid cursor: ask for the list again from its start")]
    BadCursor,
    /// Arguments that do not match the tool's `inputSchema`; the call did not leave the kernel.
    #[error("Invalid arguments for tool {tool}{}: {message}", render_location(.path))]
    BadArguments {
        /// The caller's name of the tool.
        tool: String,
        /// JSON pointer into the arguments; empty for the arguments themselves.
        path: String,
        /// The schema keyword that failed.
        keyword: String,
        /// The problem, as text.
        message: String,
    },
    /// A structured result that does not match the tool's `outputSchema`.
    #[error(
        "Server {server} answered tool {tool} against its own outputSchema{}: {message}", render_location(.path)
    )]
    BadResult {
        /// The server.
        server: ServerId,
        /// The caller's name of the tool.
        tool: String,
        /// JSON pointer into `structuredContent`.
        path: String,
        /// The schema keyword that failed.
        keyword: String,
        /// The problem, as text.
        message: String,
    },
    /// The server is not connected.
    #[error("Server {server} is {state}{}{}", render_reason(.reason.as_deref()), render_retry(*.retry_after_ms))]
    NotReady {
        /// The server.
        server: ServerId,
        /// MGP state.
        state: &'static str,
        /// The reason, if known.
        reason: Option<String>,
        /// The time until the next retry, in milliseconds.
        retry_after_ms: Option<u64>,
        /// True for a remote server that is unreachable or was lost.
        unreachable: bool,
    },
    /// The server stopped or its connection was lost while the call was in flight.
    #[error(
        "Server {server} went away before it answered ({reason}); whether the call took effect is unknown"
    )]
    ServerLost {
        /// The server.
        server: ServerId,
        /// The reason.
        reason: String,
    },
    /// The server sent an invalid answer.
    #[error("Server {server} failed ({reason}); whether the call took effect is unknown")]
    InvalidAnswer {
        /// The server.
        server: ServerId,
        /// The problem.
        reason: String,
    },
    /// No answer and no progress before the deadline. The server was notified to cancel.
    #[error(
        "Server {server} did not answer within {after_ms} ms; `call_timeout_secs` of that server sets the limit"
    )]
    TimedOut {
        /// The server.
        server: ServerId,
        /// The deadline.
        after_ms: u64,
        /// True for a remote server, which is no child of the kernel.
        remote: bool,
    },
    /// The call waited in the server's queue until its deadline; the server has not received it.
    #[error(
        "Server {server} was busy with another client's call for {after_ms} ms: it asks its clients without \
         saying in which call, so they get their turns one after the other, and this call was not made; \
         `questions = \"by-call\"` of that server lets it say so"
    )]
    QueueTimeout {
        /// The server.
        server: ServerId,
        /// How long the call waited.
        after_ms: u64,
    },
    /// A queue is full.
    #[error("{what} is full; try again later")]
    Overloaded {
        /// The queue, as text.
        what: String,
    },
    /// An oversized answer was discarded; reported as soon as the limit is exceeded, so its length is
    /// unknown.
    #[error(
        "Server {server} sent a message of more than {limit} bytes, the limit (`max_frame_bytes` of that server)"
    )]
    TooLarge {
        /// The server.
        server: ServerId,
        /// The limit in bytes.
        limit: u64,
    },
    /// An answer was dropped: the caller's unread responses use up their limit.
    #[error(
        "Server {server} has answered, and the answer is dropped: responses that this agent has not read take the \
         {limit} bytes they may; read them before the next call"
    )]
    Undelivered {
        /// The server.
        server: ServerId,
        /// The limit for unread responses of one agent, in bytes.
        limit: u64,
    },
    /// A result that the kernel does not pass on, although the call was made.
    #[error("The result of server {server} is withheld: {reason}")]
    Withheld {
        /// The server.
        server: ServerId,
        /// Why.
        reason: String,
    },
    /// The caller is not authorized.
    #[error("{0}")]
    Forbidden(String),
    /// The owner node does not grant the caller access: nothing was executed, and another owner of the same
    /// server may allow it.
    #[error("{0}")]
    ClosedByOwner(String),
    /// Denied by policy, a validator or a limit.
    #[error("{0}")]
    Denied(Box<Denial>),
    /// A tool call that policy denied, for a caller that speaks tool rejections (MGP 0.6.1 §14.7).
    #[error("{}", .0.refusal)]
    Rejected(Box<ToolRejection>),
    /// A tool call without an answer of its server, with its known outcome.
    #[error("{0}")]
    Unanswered(Box<UnansweredCall>),
    /// The caller cancelled the request; there is no answer.
    #[error("Cancelled")]
    Cancelled,
    /// An internal error of the kernel.
    #[error("Internal error: {0}")]
    Internal(String),
    /// The peer's own error, relayed unchanged.
    #[error("{}", .0.get())]
    Peer(Box<RawValue>),
    /// The kernel of another node refused a call of one of its servers, and states its outcome.
    #[error("{}", .0.as_json())]
    Owner(Box<OwnerRefusal>),
    /// An error that may not be the server's: from a node of an older version it may be its server's or its
    /// kernel's; or it is a client's answer to a callback.
    #[error("{}", .0.get())]
    Unattributed(Box<RawValue>),
}

/// Renders the location in a value; empty for the value itself.
fn render_location(path: &str) -> String {
    match path {
        "" => String::new(),
        path => format!(" at {path}"),
    }
}

fn render_reason(reason: Option<&str>) -> String {
    reason.map(|r| format!(": {r}")).unwrap_or_default()
}

fn render_retry(retry_after_ms: Option<u64>) -> String {
    match retry_after_ms {
        None | Some(0) => String::new(),
        Some(ms) => format!("; next try in {} s", ms.div_ceil(1000)),
    }
}

/// A rendered refusal.
#[derive(Debug)]
pub enum Rendered {
    /// The `error` member, as JSON text.
    Error(String),
    /// The `result` member, as JSON text: a tool failure that the model can correct.
    Result(String),
}

impl Refusal {
    /// Renders it for a caller without MGP, in this version.
    #[must_use]
    pub fn render(&self, version: Version) -> Rendered {
        if let Self::Rejected(rejection) = self {
            return Rendered::Result(rejection.render(version));
        }
        if let Some(error) = self.relayed_error() {
            let plain = mgp::strip_mgp(error);
            return Rendered::Error(plain.unwrap_or_else(|| error.to_owned()));
        }
        if let Self::Owner(refusal) = self
            && let OwnerAnswer::Result(result) = &refusal.answer
        {
            return Rendered::Result(result.clone());
        }
        if let Some(text) = self
            .model_message()
            .filter(|_| version.has_input_errors_as_results())
        {
            let mut result = json!({"content": [{"type": "text", "text": text}], "isError": true});
            if version.family() == ProtocolFamily::Stateless {
                result["resultType"] = "complete".into();
            }
            return Rendered::Result(result.to_string());
        }
        let mut error = ErrorObject::new(self.code(version), self.to_string());
        if let Some(data) = self.data() {
            error = error.with_data(&data);
        }
        Rendered::Error(serde_json::to_string(&error).expect("an error object is always JSON"))
    }

    /// The message of a failure that a model can correct by other arguments.
    fn model_message(&self) -> Option<String> {
        if let Self::Denied(denial) = self {
            return denial.model_message();
        }
        matches!(self, Self::BadArguments { .. }).then(|| self.to_string())
    }

    /// The JSON-RPC code for a caller without MGP, in this version.
    #[must_use]
    pub fn code(&self, version: Version) -> i64 {
        self.spec().jsonrpc.for_version(version)
    }

    /// The HTTP status for a stateless caller: 200 for a valid request that failed, because its error is
    /// the method's.
    #[must_use]
    pub fn http_status(&self) -> u16 {
        let relayed = || self.root().relayed_error().map_or(200, peer_http_status);
        self.spec().http_status.unwrap_or_else(relayed)
    }

    /// The cause of an unanswered call; the refusal itself for others.
    pub(crate) fn root(&self) -> &Self {
        if let Self::Unanswered(call) = self {
            return call.refusal.root();
        }
        if let Self::Rejected(rejection) = self {
            return rejection.refusal.root();
        }
        self
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
                ..
            } => Some(json!({
                "server": server, "state": state, "reason": reason, "retryAfterMs": retry_after_ms
            })),
            Self::ServerLost { server, reason } | Self::InvalidAnswer { server, reason } => {
                Some(json!({"server": server, "reason": reason, "outcome": CallOutcome::Unknown}))
            }
            Self::TimedOut {
                server, after_ms, ..
            } => Some(json!({"server": server, "timeoutMs": after_ms})),
            Self::QueueTimeout { server, after_ms } => Some(
                json!({"server": server, "waitedMs": after_ms, "outcome": CallOutcome::NotExecuted}),
            ),
            Self::TooLarge { server, limit } => Some(json!({"server": server, "limit": limit})),
            Self::Undelivered { server, limit } => {
                Some(json!({"server": server, "limit": limit, "outcome": CallOutcome::Done}))
            }
            Self::Expired(_) => Some(json!({"outcome": CallOutcome::Unknown})),
            Self::ClosedByOwner(_) => {
                Some(json!({"closed": true, "outcome": CallOutcome::NotExecuted}))
            }
            Self::MissingCapability { required } => Some(json!({"requiredCapabilities": required})),
            Self::Denied(denial) => denial.data(),
            Self::Rejected(rejection) => rejection.refusal.data(),
            Self::Unanswered(call) => Some(call.data("callId")),
            // Legacy versions are negotiated by `initialize`, not named in `_meta`.
            Self::UnsupportedVersion { requested } => {
                Some(json!({"supported": [Version::STATELESS.as_str()], "requested": requested}))
            }
            Self::UnknownMethod(_)
            | Self::BadParams(_)
            | Self::BadMeta(_)
            | Self::HeaderMismatch(_)
            | Self::BadRequest(_)
            | Self::UnknownTool(_)
            | Self::UnknownPrompt(_)
            | Self::UnknownServer(_)
            | Self::UnknownId(_)
            | Self::WindowExpired(_)
            | Self::BadCursor
            | Self::Overloaded { .. }
            | Self::Withheld { .. }
            | Self::Forbidden(_)
            | Self::Cancelled
            | Self::Internal(_)
            | Self::Peer(_)
            | Self::Owner(_)
            | Self::Unattributed(_) => None,
        }
    }

    /// Renders it in the caller's dialect.
    #[must_use]
    pub fn render_for_dialect(&self, dialect: Dialect) -> Rendered {
        if dialect.mgp {
            self.render_mgp(dialect.version)
        } else {
            self.render(dialect.version)
        }
    }

    /// Renders the whole response to the request `id`.
    #[must_use]
    pub fn render_response(&self, id: &str, dialect: impl Into<Dialect>) -> Vec<u8> {
        match self.render_for_dialect(dialect.into()) {
            Rendered::Error(error) => crate::jsonrpc::error(id, &error),
            Rendered::Result(result) => crate::jsonrpc::result(id, &result),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// CMCP-010, SEP-1303: older callers get -32602 with data, newer ones a result for the model.
    #[test]
    fn bad_arguments_are_rendered_in_the_callers_dialect() {
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
            Rendered::Result(r) => {
                assert!(r.contains(r#""isError":true"#), "{r}");
                assert!(!r.contains("resultType"), "{r}");
            }
            Rendered::Error(e) => panic!("{e}"),
        }
        match refusal.render(Version::STATELESS) {
            Rendered::Result(r) => assert!(r.contains(r#""resultType":"complete""#), "{r}"),
            Rendered::Error(e) => panic!("{e}"),
        }
    }

    /// MCP-089: an unknown resource has the code of the caller's version.
    #[test]
    fn unknown_resource_has_the_code_of_its_version() {
        let refusal = Refusal::UnknownResource("x://y".into());
        assert_eq!(refusal.code(Version::V2025_11_25), -32002);
        assert_eq!(refusal.code(Version::V2026_07_28), -32602);
    }

    /// The message includes the time of the next retry.
    #[test]
    fn unavailable_server_message_has_the_next_retry() {
        let message_with = |retry_after_ms| {
            let refusal = Refusal::NotReady {
                server: ServerId::new("it"),
                state: "error",
                reason: Some("exited with code 1".into()),
                retry_after_ms,
                unreachable: false,
            };
            refusal.to_string()
        };
        let why = "Server it is error: exited with code 1";
        assert_eq!(message_with(Some(1200)), format!("{why}; next try in 2 s"));
        assert_eq!(message_with(None), why);
        assert_eq!(message_with(Some(0)), why, "it may be asked again at once");
    }

    fn error(refusal: &Refusal, version: Version) -> serde_json::Value {
        match refusal.render(version) {
            Rendered::Error(e) => serde_json::from_str(&e).unwrap(),
            Rendered::Result(r) => panic!("{r}"),
        }
    }

    /// The codes from -32020 on are for stateless callers only; data is for all.
    #[test]
    fn reserved_codes_are_for_stateless_callers_only() {
        let required = RawValue::from_string(r#"{"elicitation":{"url":{}}}"#.into()).unwrap();
        let missing = Refusal::MissingCapability { required };
        let rendered = error(&missing, Version::STATELESS);
        assert_eq!(rendered["code"], -32021);
        assert!(rendered["data"]["requiredCapabilities"]["elicitation"]["url"].is_object());
        assert_eq!(error(&missing, Version::V2025_11_25)["code"], -32600);
        let version = Refusal::UnsupportedVersion {
            requested: "1900-01-01".into(),
        };
        let rendered = error(&version, Version::STATELESS);
        assert_eq!(rendered["code"], -32022);
        assert_eq!(
            rendered["data"],
            json!({"supported": ["2026-07-28"], "requested": "1900-01-01"})
        );
        assert_eq!(error(&version, Version::V2024_11_05)["code"], -32602);
        let headers = Refusal::HeaderMismatch("Mcp-Name is 'a', the body says 'b'".into());
        assert_eq!(error(&headers, Version::STATELESS)["code"], -32020);
        assert_eq!(error(&headers, Version::V2025_06_18)["code"], -32600);
    }

    #[test]
    fn stateless_response_has_the_http_status_of_its_refusal() {
        let peer = |code: i64| {
            let text = format!(r#"{{"code":{code},"message":"m"}}"#);
            Refusal::Peer(RawValue::from_string(text).unwrap()).http_status()
        };
        assert_eq!(
            [-32601, -32020, -32021, -32022, -32602, -32603].map(peer),
            [404, 400, 400, 400, 200, 200]
        );
        assert_eq!(Refusal::BadMeta("m".into()).http_status(), 400);
        assert_eq!(Refusal::BadParams("m".into()).http_status(), 200);
        assert_eq!(Refusal::UnknownMethod("m".into()).http_status(), 404);
        assert_eq!(Refusal::Expired("late".into()).http_status(), 200);
    }
}
