//! JSON-RPC 2.0 envelopes, parsed once and borrowed from the frame (MGP §1.5, MCP base protocol).

pub mod partial_message;

use std::borrow::Cow;
use std::fmt;
use std::hash::{Hash, Hasher};

use mgp_json::lookalike;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use self::partial_message::PartialMessage;

/// A request id in its original JSON text: a string or an integer, so that the answer has exactly the same
/// id. Ids are equal if their strings are equal, in any escaping.
#[derive(Clone, Debug)]
pub struct RequestId {
    text: Box<str>,
    /// The canonical JSON text, if the original is another one.
    canonical_text: Option<Box<str>>,
}

impl PartialEq for RequestId {
    fn eq(&self, other: &Self) -> bool {
        self.canonical() == other.canonical()
    }
}

impl Eq for RequestId {}

impl Hash for RequestId {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.canonical().hash(state);
    }
}

impl RequestId {
    /// Parses an id from its JSON text; `None` when it is neither a string nor an integer.
    #[must_use]
    pub fn from_json(text: &str) -> Option<Self> {
        let integer = || {
            let digits = text.strip_prefix('-').unwrap_or(text);
            !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit())
        };
        let is_string = text.starts_with('"');
        let escaped = is_string && memchr::memchr(b'\\', text.as_bytes()).is_some();
        let canonical_text = || {
            let string: String = serde_json::from_str(text).ok()?;
            Some(mgp_json::quote(&string).into())
        };
        (is_string || integer()).then(|| Self {
            text: text.into(),
            canonical_text: escaped.then(canonical_text).flatten(),
        })
    }

    fn canonical(&self) -> &str {
        self.canonical_text.as_deref().unwrap_or(&self.text)
    }

    /// The JSON text.
    #[must_use]
    pub fn as_json(&self) -> &str {
        &self.text
    }

    /// Parses the id of an answer to a request with a numeric id: some servers store numbers as doubles,
    /// and write `7.0`.
    #[must_use]
    pub fn from_response_id(text: &str) -> Option<Self> {
        Self::from_json(text).or_else(|| parse_whole_number(text).map(Self::from))
    }

    /// The number of the id in any form: some peers store numbers as strings, and write `"7"`.
    #[must_use]
    pub fn as_number(&self) -> Option<u64> {
        let digits = self.canonical().trim_matches('"');
        let plain = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
        digits.parse().ok().filter(|_| plain)
    }

    /// The id as a number of the kernel, if it is one.
    #[must_use]
    pub fn as_u64(&self) -> Option<u64> {
        self.text.parse().ok()
    }
}

/// Parses an integer that every double represents exactly.
fn parse_whole_number(text: &str) -> Option<u64> {
    const EXACT_INTEGER_LIMIT: f64 = 9_007_199_254_740_992.0;
    let number: f64 = serde_json::from_str(text).ok()?;
    let is_exact = number.fract() == 0.0 && (0.0..EXACT_INTEGER_LIMIT).contains(&number);
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "it is whole, not negative and below 2^53"
    )]
    is_exact.then_some(number as u64)
}

impl From<u64> for RequestId {
    fn from(n: u64) -> Self {
        Self {
            text: n.to_string().into(),
            canonical_text: None,
        }
    }
}

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// The original text, however large the number.
impl Serialize for RequestId {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let text = RawValue::from_string(self.text.clone().into());
        text.map_err(serde::ser::Error::custom)?
            .serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for RequestId {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Box::<RawValue>::deserialize(deserializer)?;
        let id = Self::from_json(text.get());
        id.ok_or_else(|| serde::de::Error::custom("an id is a string or an integer"))
    }
}

/// One message, borrowed from its frame. `params`, `result` and `error` are untouched JSON text.
#[derive(Debug)]
pub enum Message<'a> {
    /// Expects an answer with the same id.
    Request {
        /// The sender's id.
        id: RequestId,
        /// Its method.
        method: Cow<'a, str>,
        /// `params`, if present: an object.
        params: Option<&'a RawValue>,
        /// The `trace_id` beside them, as in requests extended by MGP (A-05).
        trace: Option<&'a RawValue>,
    },
    /// Expects no answer.
    Notification {
        /// Its method.
        method: Cow<'a, str>,
        /// `params`, if present and not null.
        params: Option<&'a RawValue>,
    },
    /// Answers a request.
    Response {
        /// The id of the request, `None` when the peer could not parse it (`"id": null`).
        id: Option<RequestId>,
        /// `result` or `error`.
        outcome: Result<&'a RawValue, &'a RawValue>,
    },
}

impl<'a> Message<'a> {
    /// `params` as JSON text; answers have none.
    #[must_use]
    pub fn params(&self) -> Option<&'a str> {
        match self {
            Self::Request { params, .. } | Self::Notification { params, .. } => {
                params.map(RawValue::get)
            }
            Self::Response { .. } => None,
        }
    }
}

/// Distinguishes `"id": null`, `"params": null` and `"result": null` from absent members.
#[derive(Deserialize)]
struct Envelope<'a> {
    #[serde(borrow, default)]
    jsonrpc: Option<Cow<'a, str>>,
    #[serde(borrow, default, deserialize_with = "lookalike::raw_value")]
    id: Option<&'a RawValue>,
    #[serde(borrow, default)]
    method: Option<Cow<'a, str>>,
    #[serde(borrow, default, deserialize_with = "lookalike::raw_value")]
    params: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "lookalike::raw_value")]
    result: Option<&'a RawValue>,
    #[serde(borrow, default)]
    error: Option<&'a RawValue>,
    #[serde(borrow, default)]
    trace_id: Option<&'a RawValue>,
}

/// A malformed frame, with the data for the error response.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// Not JSON: -32700.
    #[error("Parse error: {0}")]
    NotJson(String),
    /// A JSON array: a batch, which only 2025-03-26 supports.
    #[error("Invalid Request: a batch is only allowed in 2025-03-26")]
    Batch,
    /// JSON, but not a JSON-RPC 2.0 message: -32600.
    #[error("Invalid Request: {why}")]
    NotAMessage {
        /// The id, if it could be parsed.
        id: Option<RequestId>,
        /// The problem, as text.
        why: Cow<'static, str>,
    },
    /// A request whose `params` are not an object, as MCP requires: -32602. Some parsers read the elements
    /// of an array as members.
    #[error("Invalid params: `params` must be an object")]
    BadParams {
        /// Its id.
        id: RequestId,
    },
    /// A notification with invalid params: it gets no error.
    #[error("`params` of a notification must be an object")]
    BadNotification,
}

impl Malformed {
    /// The JSON-RPC code of the error.
    #[must_use]
    pub fn code(&self) -> i64 {
        match self {
            Self::NotJson(_) => PARSE_ERROR,
            Self::Batch | Self::NotAMessage { .. } => INVALID_REQUEST,
            Self::BadParams { .. } | Self::BadNotification => INVALID_PARAMS,
        }
    }

    /// Renders the error response; its id is null if none could be parsed. A notification has none.
    #[must_use]
    pub fn to_frame(&self) -> Option<Vec<u8>> {
        let id = match self {
            Self::BadNotification => return None,
            Self::NotAMessage { id: Some(id), .. } | Self::BadParams { id } => id.as_json(),
            Self::NotAMessage { id: None, .. } | Self::NotJson(_) | Self::Batch => "null",
        };
        Some(self.to_frame_with_id(id))
    }

    /// Renders the error response without the id, for a malformed answer.
    #[must_use]
    pub fn to_frame_without_id(&self) -> Vec<u8> {
        self.to_frame_with_id("null")
    }

    fn to_frame_with_id(&self, id: &str) -> Vec<u8> {
        let error_object = ErrorObject::new(self.code(), self.to_string());
        let text = serde_json::to_string(&error_object).expect("an error object is always JSON");
        error(id, &text)
    }
}

/// Invalid JSON was received.
pub(crate) const PARSE_ERROR: i64 = -32700;
/// The JSON is not a valid request object.
pub const INVALID_REQUEST: i64 = -32600;
/// The method does not exist or is not available.
pub const METHOD_NOT_FOUND: i64 = -32601;
/// Invalid method parameters.
pub const INVALID_PARAMS: i64 = -32602;
/// Internal JSON-RPC error.
pub const INTERNAL_ERROR: i64 = -32603;

/// The `error` member of an answer.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ErrorObject {
    /// A JSON-RPC, MCP or MGP code.
    pub code: i64,
    /// The text for people.
    pub message: String,
    /// For programs; relayed verbatim.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<Box<RawValue>>,
}

impl ErrorObject {
    /// An error without data.
    #[must_use]
    pub fn new(code: i64, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            data: None,
        }
    }

    /// Adds data for programs.
    #[must_use]
    pub fn with_data(mut self, data: &serde_json::Value) -> Self {
        self.data = serde_json::value::to_raw_value(data).ok();
        self
    }
}

/// Parses one frame to its envelope.
///
/// # Errors
/// [`Malformed`], with the code and the id of the error response.
pub fn parse(frame: &[u8]) -> Result<Message<'_>, Malformed> {
    parse_text(std::str::from_utf8(frame).map_err(|e| Malformed::NotJson(e.to_string()))?)
}

/// Parses a frame that is valid UTF-8.
///
/// # Errors
/// As [`parse`].
pub fn parse_text(text: &str) -> Result<Message<'_>, Malformed> {
    match text.trim_start().as_bytes().first() {
        Some(b'{') => {}
        Some(b'[') => return classify_array(text),
        _ => return Err(reject_non_object(text)),
    }
    let envelope: Envelope<'_> = lookalike::from_str(text).map_err(|e| classify(text, &e))?;
    envelope.into_message()
}

/// Splits a batch into its messages, each as JSON text; `None` when the frame is no array.
#[must_use]
pub fn split_batch(frame: &[u8]) -> Option<Vec<&RawValue>> {
    serde_json::from_slice(frame).ok()
}

fn classify_array<'a>(text: &'a str) -> Result<Message<'a>, Malformed> {
    match serde_json::from_str::<Vec<&'a RawValue>>(text) {
        Ok(_) => Err(Malformed::Batch),
        Err(e) => Err(Malformed::NotJson(e.to_string())),
    }
}

fn reject_non_object(text: &str) -> Malformed {
    match serde_json::from_str::<serde::de::IgnoredAny>(text) {
        Ok(_) => Malformed::NotAMessage {
            id: None,
            why: "a message is a JSON object".into(),
        },
        Err(e) => Malformed::NotJson(e.to_string()),
    }
}

/// Serde stops at the first invalid member; the error must distinguish bad JSON from a bad message.
fn classify(text: &str, error: &serde_json::Error) -> Malformed {
    if !error.is_data() {
        return Malformed::NotJson(error.to_string());
    }
    Malformed::NotAMessage {
        id: PartialMessage::scan(text.as_bytes()).id(),
        why: lookalike::as_lookalike_message(error).map_or(
            Cow::Borrowed("`jsonrpc` and `method` are strings, and each member stands once"),
            Cow::Owned,
        ),
    }
}

impl<'a> Envelope<'a> {
    fn into_message(self) -> Result<Message<'a>, Malformed> {
        let id = self
            .id
            .map(|raw| (RequestId::from_json(raw.get()), raw.get()));
        let parsed_id = id.as_ref().and_then(|(id, _)| id.clone());
        let answered = || {
            id.as_ref()
                .and_then(|(_, raw)| RequestId::from_response_id(raw))
        };
        let wrong = |why: &'static str| Malformed::NotAMessage {
            id: parsed_id.clone(),
            why: why.into(),
        };
        if self.jsonrpc.as_deref() != Some("2.0") {
            return Err(wrong("`jsonrpc` must be \"2.0\""));
        }
        let params = self.params.map_or("{}", RawValue::get);
        // Some clients write null for absent params; a notification with them could not be answered with an
        // error.
        let object = params.starts_with('{') || id.is_none() && params == "null";
        match (self.method, self.result, self.error) {
            (Some(method), None, None) => match id {
                None if !object => Err(Malformed::BadNotification),
                Some((Some(id), _)) if !object => Err(Malformed::BadParams { id }),
                None => Ok(Message::Notification {
                    method,
                    params: self.params.filter(|params| params.get() != "null"),
                }),
                Some((Some(id), _)) => Ok(Message::Request {
                    id,
                    method,
                    params: self.params,
                    trace: self.trace_id,
                }),
                Some((None, "null")) => Err(wrong("`id` may not be null")),
                Some((None, _)) => Err(wrong("`id` must be a string or an integer")),
            },
            (None, Some(result), None) => Ok(Message::Response {
                id: answered(),
                outcome: Ok(result),
            }),
            (None, None, Some(error)) => Ok(Message::Response {
                id: answered(),
                outcome: Err(error),
            }),
            (None, None, None) => Err(wrong("neither `method` nor `result` nor `error`")),
            (Some(_), _, _) | (None, Some(_), Some(_)) => {
                Err(wrong("only one of `method`, `result` and `error`"))
            }
        }
    }
}

/// Renders `{"jsonrpc":"2.0","id":ID,"method":METHOD,"params":PARAMS}`; `params` is JSON text.
#[must_use]
pub fn request(id: &str, method: &str, params: Option<&str>) -> Vec<u8> {
    message(Some(id), method, params)
}

/// Renders `{"jsonrpc":"2.0","method":METHOD,"params":PARAMS}`; `params` is JSON text.
#[must_use]
pub fn notification(method: &str, params: Option<&str>) -> Vec<u8> {
    message(None, method, params)
}

fn message(id: Option<&str>, method: &str, params: Option<&str>) -> Vec<u8> {
    let size = 64 + method.len() + id.map_or(0, str::len) + params.map_or(0, str::len);
    let mut out = Vec::with_capacity(size);
    out.extend_from_slice(br#"{"jsonrpc":"2.0""#);
    if let Some(id) = id {
        out.extend_from_slice(br#","id":"#);
        out.extend_from_slice(id.as_bytes());
    }
    out.extend_from_slice(br#","method":"#);
    out.extend_from_slice(mgp_json::quote(method).as_bytes());
    if let Some(params) = params {
        out.extend_from_slice(br#","params":"#);
        out.extend_from_slice(params.as_bytes());
    }
    out.push(b'}');
    out
}

/// Renders `{"jsonrpc":"2.0","id":ID,"result":RESULT}`; `result` is JSON text.
#[must_use]
pub fn result(id: &str, result: &str) -> Vec<u8> {
    response(id, br#","result":"#, result)
}

/// Renders `{"jsonrpc":"2.0","id":ID,"error":ERROR}`; `error` is JSON text.
#[must_use]
pub fn error(id: &str, error: &str) -> Vec<u8> {
    response(id, br#","error":"#, error)
}

fn response(id: &str, member: &[u8], value: &str) -> Vec<u8> {
    let mut out = Vec::with_capacity(40 + id.len() + value.len());
    out.extend_from_slice(br#"{"jsonrpc":"2.0","id":"#);
    out.extend_from_slice(id.as_bytes());
    out.extend_from_slice(member);
    out.extend_from_slice(value.as_bytes());
    out.push(b'}');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    /// MCP-004, MCP-006: ids keep their type and text.
    #[test]
    fn ids_keep_their_type() {
        for (text, want) in [("7", "7"), (r#""7""#, r#""7""#), ("-3", "-3")] {
            let frame = format!(r#"{{"jsonrpc":"2.0","id":{text},"method":"ping"}}"#);
            match parse(frame.as_bytes()) {
                Ok(Message::Request { id, .. }) => assert_eq!(id.as_json(), want),
                other => panic!("{other:?}"),
            }
        }
    }

    /// CMCP-004: every frame is a request, an answer or a notification, by its members and in any order of them.
    #[test]
    fn frames_are_classified_by_their_members() {
        let kind = |frame: &str| match parse(frame.as_bytes()) {
            Ok(Message::Request { .. }) => "request",
            Ok(Message::Notification { .. }) => "notification",
            Ok(Message::Response { outcome: Ok(_), .. }) => "result",
            Ok(Message::Response {
                outcome: Err(_), ..
            }) => "error",
            Err(_) => "none",
        };
        for (frame, expected) in [
            (r#"{"jsonrpc":"2.0","id":0,"method":"x"}"#, "request"),
            (
                r#"{"params":{},"method":"x","id":"","jsonrpc":"2.0"}"#,
                "request",
            ),
            (r#"{"jsonrpc":"2.0","method":"x"}"#, "notification"),
            (
                r#"{"method":"x","params":{"id":1,"result":2},"jsonrpc":"2.0"}"#,
                "notification",
            ),
            (
                r#"{"jsonrpc":"2.0","id":1,"result":{"method":"x"}}"#,
                "result",
            ),
            (
                r#"{"error":{"code":1,"message":"m"},"id":1,"jsonrpc":"2.0"}"#,
                "error",
            ),
            (
                r#"{"jsonrpc":"2.0","id":1,"method":"x","result":{}}"#,
                "none",
            ),
            (r#"{"jsonrpc":"2.0"}"#, "none"),
        ] {
            assert_eq!(kind(frame), expected, "{frame}");
        }
    }

    /// MCP-004: a string has several escapings; a number is not a string.
    #[test]
    fn ids_are_compared_by_their_decoded_value() {
        let id = |text| RequestId::from_json(text).unwrap();
        for (one, other) in [
            (r#""\u0061""#, r#""a""#),
            (r#""\/""#, r#""/""#),
            (r#""\u00E9\u000a""#, r#""é\n""#),
        ] {
            assert_eq!(id(one), id(other));
            assert_eq!(id(one).as_json(), one);
            assert!(std::collections::HashSet::from([id(one)]).contains(&id(other)));
        }
        for (one, other) in [
            ("5", r#""5""#),
            (r#""k""#, r#""K""#),
            (r#""\\u0061""#, r#""a""#),
        ] {
            assert_ne!(id(one), id(other));
        }
    }

    /// MCP-005, MCP-006, MCP-009, MCP-010: each kind of malformed frame has its code.
    #[test]
    fn malformed_frames_have_distinct_codes() {
        let code = |text: &str| parse(text.as_bytes()).map(|_| ()).map_err(|e| e.code());
        assert_eq!(code("{"), Err(PARSE_ERROR));
        assert_eq!(code("hello"), Err(PARSE_ERROR));
        assert_eq!(code("[1"), Err(PARSE_ERROR));
        assert_eq!(code("1"), Err(INVALID_REQUEST));
        assert_eq!(code(r#"[{"jsonrpc":"2.0"}]"#), Err(INVALID_REQUEST));
        for bad in [
            r#"{"id":1,"method":"x"}"#,
            r#"{"jsonrpc":"1.0","id":1,"method":"x"}"#,
            r#"{"jsonrpc":"2.0","id":null,"method":"x"}"#,
            r#"{"jsonrpc":"2.0","id":1.5,"method":"x"}"#,
            r#"{"jsonrpc":"2.0","id":{},"method":"x"}"#,
            r#"{"jsonrpc":"2.0","id":1,"method":7}"#,
            r#"{"jsonrpc":"2.0","id":1}"#,
            r#"{"jsonrpc":"2.0","id":1,"result":1,"error":{}}"#,
        ] {
            assert_eq!(code(bad), Err(INVALID_REQUEST), "{bad}");
        }
    }

    /// Go's encoding/json matches member names case-insensitively.
    #[test]
    fn member_names_are_case_sensitive() {
        let bad =
            r#"{"jsonrpc":"2.0","id":7,"method":"ping","Method":"tools/call","PARAM\u017f":{}}"#;
        let error = parse(bad.as_bytes()).unwrap_err();
        assert_eq!(error.code(), INVALID_REQUEST);
        let message = error.to_string();
        assert!(
            message.contains(r#"member "Method" is not "method""#),
            "{message}"
        );
        let answer = String::from_utf8(error.to_frame().unwrap()).unwrap();
        assert!(answer.contains(r#""id":7"#), "{answer}");
    }

    /// MCP-012: JSON-RPC has positional params, MCP does not.
    #[test]
    fn params_must_be_an_object() {
        for bad in [r#"["echo",{"k":1}]"#, "[]", "7", "\"a\"", "true", "null"] {
            let frame = format!(r#"{{"jsonrpc":"2.0","id":7,"method":"x","params":{bad}}}"#);
            let error = parse(frame.as_bytes()).unwrap_err();
            assert_eq!(error.code(), INVALID_PARAMS, "{bad}");
            let answer = String::from_utf8(error.to_frame().unwrap()).unwrap();
            assert!(answer.contains(r#""id":7,"#), "{answer}");
            let frame = format!(r#"{{"jsonrpc":"2.0","method":"x","params":{bad}}}"#);
            let read = parse(frame.as_bytes());
            if bad == "null" {
                assert!(read.is_ok_and(|notice| notice.params().is_none()));
                continue;
            }
            assert_eq!(read.unwrap_err().to_frame(), None, "{bad}");
        }
        for good in ["{}", " {\"a\":[]}"] {
            let frame = format!(r#"{{"jsonrpc":"2.0","id":7,"method":"x","params":{good}}}"#);
            assert!(parse(frame.as_bytes()).is_ok(), "{good}");
        }
    }

    #[test]
    fn a_null_result_is_a_result() {
        assert!(matches!(
            parse(br#"{"jsonrpc":"2.0","id":1,"result":null}"#),
            Ok(Message::Response { outcome: Ok(_), .. })
        ));
    }

    /// CMCP-032: no bytes make the parser panic.
    #[test]
    fn perturbed_bytes_never_panic() {
        let good =
            br#"{"jsonrpc":"2.0","id":"a\u00e9","method":"tools/call","params":{"name":"x"}}"#;
        for at in 0..good.len() {
            for byte in [0u8, b'"', b'{', b'\\', 0xff, b'0'] {
                let mut frame = good.to_vec();
                frame[at] = byte;
                let _ = parse(&frame);
                let _ = parse(&good[..at]);
            }
        }
    }
}
