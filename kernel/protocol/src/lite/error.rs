//! Refusals for a lite caller: an error of the five codes of §4.4, or a `failure` that a model can correct.

use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;

use crate::dialect::Version;
use crate::jsonrpc::{
    ErrorObject, INTERNAL_ERROR, INVALID_PARAMS, INVALID_REQUEST, METHOD_NOT_FOUND, PARSE_ERROR,
};
use crate::mgp::audit::Outcome;
use crate::refusal::{Refusal, Rendered};

/// The most names in `available_tools`: enough for a person, without the whole list in each error.
pub(crate) const NAMES_MAX: usize = 50;

/// The most characters of a name in an error.
const ECHO_MAX: usize = 256;

/// The kind of an error, the same over HTTP and gRPC (§7.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LiteErrorKind {
    /// Not JSON, or not a request.
    InvalidRequest,
    /// No such tool, or no such method.
    NotFound,
    /// The params or the arguments are invalid.
    InvalidParams,
    /// There was no answer in time, and no promise.
    Timeout,
    /// All other errors.
    Internal,
}

impl LiteErrorKind {
    fn from_code(code: i64) -> Self {
        match code {
            PARSE_ERROR | INVALID_REQUEST => Self::InvalidRequest,
            METHOD_NOT_FOUND => Self::NotFound,
            INVALID_PARAMS => Self::InvalidParams,
            _ => Self::Internal,
        }
    }
}

/// An error of MCP-lite.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{message}")]
pub struct LiteError {
    /// Its kind.
    pub kind: LiteErrorKind,
    /// The JSON-RPC code; a server's own code is relayed.
    pub code: i64,
    /// The text for people.
    pub message: String,
    /// The JSON for programs.
    pub data: Option<Box<RawValue>>,
    /// The HTTP status: 400 for a malformed request, otherwise 200.
    pub status: u16,
}

/// The answer to a refused call.
#[derive(Clone, Debug)]
pub enum LiteRefusal {
    /// An error.
    Error(LiteError),
    /// A result with `isError`.
    Failure(String),
}

impl LiteError {
    /// An error without data.
    #[must_use]
    pub fn new(kind: LiteErrorKind, message: impl Into<String>) -> Self {
        let code = match kind {
            LiteErrorKind::InvalidRequest => INVALID_REQUEST,
            LiteErrorKind::NotFound => METHOD_NOT_FOUND,
            LiteErrorKind::InvalidParams => INVALID_PARAMS,
            LiteErrorKind::Timeout | LiteErrorKind::Internal => INTERNAL_ERROR,
        };
        Self {
            kind,
            code,
            message: message.into(),
            data: None,
            status: 200,
        }
    }

    /// The error when the caller's deadline passed before an answer, and it accepts no promise. The call
    /// was cancelled.
    #[must_use]
    pub fn deadline_exceeded(waited_ms: u64) -> Self {
        let message =
            format!("no answer and no promise within {waited_ms} ms; the call was cancelled");
        Self::new(LiteErrorKind::Timeout, message).with_data(&json!({"timeoutMs": waited_ms}))
    }

    /// The error for a promise that cannot be redeemed: the same whether it is expired, another caller's,
    /// or invalid.
    #[must_use]
    pub fn unknown_promise() -> Self {
        let message = "Unknown promise: it was not given to this caller, or has expired";
        Self::new(LiteErrorKind::InvalidParams, message)
    }

    /// The error for a tool that this caller cannot call (A.5). `available` are names of callable tools.
    #[must_use]
    pub fn tool_not_found(name: &str, available: &[&str], suggestion: Option<&str>) -> Self {
        let mut data = json!({
            "requested_tool": name.chars().take(ECHO_MAX).collect::<String>(),
            "available_tools": available.iter().take(NAMES_MAX).collect::<Vec<_>>(),
        });
        if let Some(meant) = suggestion {
            data["suggestion"] = format!("Did you mean '{meant}'?").into();
        }
        Self::new(LiteErrorKind::NotFound, "Tool not found").with_data(&data)
    }

    fn with_data(mut self, data: &serde_json::Value) -> Self {
        self.data = RawValue::from_string(data.to_string()).ok();
        self
    }

    /// Parses an error of a server, or a rendered one, from JSON text.
    #[must_use]
    pub fn parse(error: &str) -> Self {
        #[derive(Deserialize)]
        struct ErrorText {
            #[serde(default)]
            code: Option<i64>,
            #[serde(default)]
            message: Option<String>,
            #[serde(default)]
            data: Option<Box<RawValue>>,
        }
        let parsed: Option<ErrorText> = serde_json::from_str(error).ok();
        let code = parsed.as_ref().and_then(|parsed| parsed.code);
        let code = code.unwrap_or(INTERNAL_ERROR);
        let (message, data) = parsed.map_or((None, None), |parsed| (parsed.message, parsed.data));
        Self {
            kind: LiteErrorKind::from_code(code),
            code,
            message: message.unwrap_or_else(|| "Internal error".into()),
            data,
            status: 200,
        }
    }

    /// Renders the `error` member of an answer, or the data of the event `error` (A-37).
    #[must_use]
    pub fn to_json(&self) -> String {
        let object = ErrorObject {
            code: self.code,
            message: self.message.clone(),
            data: self.data.clone(),
        };
        serde_json::to_string(&object).expect("an error object is always JSON")
    }
}

impl LiteRefusal {
    /// The answer to a call with this refusal.
    #[must_use]
    pub fn from_refusal(refusal: &Refusal) -> Self {
        if let Refusal::UnknownTool(name) = refusal {
            return Self::Error(LiteError::tool_not_found(name, &[], None));
        }
        let why = refusal.root();
        if let Refusal::MissingCapability { required } = why {
            let message = format!(
                "the tool sent a callback that MCP-lite does not support: {}",
                required.get()
            );
            return Self::Error(LiteError::new(LiteErrorKind::Internal, message));
        }
        // Invalid arguments are an error here (§4.4, §5.5), not a result as in newer versions of MCP.
        let version = if matches!(refusal, Refusal::BadArguments { .. }) {
            Version::V2025_06_18
        } else {
            Version::STATELESS
        };
        match refusal.render(version) {
            Rendered::Result(result) => Self::Failure(result),
            Rendered::Error(error) => {
                let mut error = LiteError::parse(&error);
                if why.spec().outcome == Outcome::Timeout && !why.is_answer() {
                    error.kind = LiteErrorKind::Timeout;
                }
                if error.kind == LiteErrorKind::InvalidRequest && !refusal.is_answer() {
                    error.status = 400;
                }
                Self::Error(error)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::ids::ServerId;

    fn error(refusal: &Refusal) -> LiteError {
        match LiteRefusal::from_refusal(refusal) {
            LiteRefusal::Error(error) => error,
            LiteRefusal::Failure(result) => panic!("{result}"),
        }
    }

    /// LITE-050: invalid arguments are -32602, with the location and the reason.
    #[test]
    fn invalid_arguments_are_an_error_with_location() {
        let parsed = error(&Refusal::BadArguments {
            tool: "add".into(),
            path: "/a".into(),
            keyword: "type".into(),
            message: "\"x\" is not a number".into(),
        });
        assert_eq!(
            (parsed.code, parsed.kind),
            (-32602, LiteErrorKind::InvalidParams)
        );
        let data: Value = serde_json::from_str(parsed.data.unwrap().get()).unwrap();
        assert_eq!(data["path"], "/a");
    }

    /// LITE-049, LITE-052: the unknown name, the available tools, and the suggestion.
    #[test]
    fn unknown_tool_error_lists_available_tools() {
        let many: Vec<String> = (0..200).map(|n| format!("tool_{n}")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        let parsed = LiteError::tool_not_found("tol_1", &many, Some("tool_1"));
        assert_eq!(
            (parsed.code, parsed.kind),
            (-32601, LiteErrorKind::NotFound)
        );
        let data: Value = serde_json::from_str(parsed.data.unwrap().get()).unwrap();
        assert_eq!(data["suggestion"], "Did you mean 'tool_1'?");
        assert_eq!(data["available_tools"].as_array().unwrap().len(), NAMES_MAX);
    }

    /// LITE-063, LITE-067: a timeout has the same kind in both bindings, and codes beyond JSON-RPC's are
    /// not used.
    #[test]
    fn error_kinds_are_distinguished() {
        let late = error(&Refusal::TimedOut {
            server: ServerId::new("it"),
            after_ms: 5,
            remote: false,
        });
        assert_eq!((late.code, late.kind), (-32603, LiteErrorKind::Timeout));
        let required = RawValue::from_string(r#"{"sampling":{}}"#.into()).unwrap();
        assert_eq!(error(&Refusal::MissingCapability { required }).code, -32603);
        let own = RawValue::from_string(r#"{"code":-32000,"message":"m","data":[1]}"#.into());
        let own = error(&Refusal::Peer(own.unwrap()));
        assert_eq!((own.code, &*own.message), (-32000, "m"));
        assert_eq!(error(&Refusal::BadRequest("b".into())).status, 400);
        assert_eq!(LiteError::parse("[]").code, -32603);
    }
}
