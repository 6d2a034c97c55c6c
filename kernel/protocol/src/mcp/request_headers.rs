//! HTTP headers that repeat parts of the body of a stateless request (Streamable HTTP, "Request Metadata"),
//! so that intermediaries can route without parsing bodies. The receiver of the body checks them: otherwise
//! an intermediary could act on other values than the server.

mod params;
mod values;

use std::borrow::Cow;

use mgp_json::{lookalike, unquote};
pub use params::{BadAnnotation, ParamHeader, check_params, find_annotations, param_headers};
use serde::Deserialize;
use serde_json::value::RawValue;
pub(crate) use values::{decode, encode};

use crate::mcp::{Method as _, prompts, resources, tasks, tools};
use crate::refusal::Refusal;

/// Repeats the protocol version of `_meta`; required in every request.
pub const VERSION: &str = "MCP-Protocol-Version";

/// Repeats `method`; required in every request.
pub const METHOD: &str = "Mcp-Method";
/// Repeats the subject of the request; required if [`subject`] names a member.
pub(crate) const NAME: &str = "Mcp-Name";
/// The prefix of each header that repeats an argument of a tool.
pub(crate) const PARAM_PREFIX: &str = "Mcp-Param-";

/// The longest part of a value in an error, in characters: enough to find the mistake.
const ECHO_MAX: usize = 100;

/// The value of a header in a request. The caller compares names case-insensitively.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReceivedHeader<'h> {
    /// The header is absent.
    Absent,
    /// One header of visible ASCII, spaces and tabs, trimmed.
    Text(&'h str),
    /// Several headers of this name, or invalid characters.
    Unreadable,
}

impl<'h> ReceivedHeader<'h> {
    /// Combines all values of a header in a request.
    #[must_use]
    pub fn from_values(values: impl IntoIterator<Item = &'h [u8]>) -> Self {
        let mut values = values.into_iter();
        let Some(first) = values.next() else {
            return Self::Absent;
        };
        if values.next().is_some() {
            return Self::Unreadable;
        }
        match std::str::from_utf8(first) {
            Ok(text) if text.bytes().all(values::is_header_byte) => {
                Self::Text(text.trim_matches([' ', '\t']))
            }
            Ok(_) | Err(_) => Self::Unreadable,
        }
    }
}

const SUBJECTS: [(&str, &str); 6] = [
    (tools::Call::METHOD, "name"),
    (prompts::Get::METHOD, "name"),
    (resources::Read::METHOD, "uri"),
    (tasks::Get::METHOD, "taskId"),
    (tasks::Update::METHOD, "taskId"),
    (tasks::Cancel::METHOD, "taskId"),
];

/// The member of `params` that `Mcp-Name` repeats, for methods with that header.
#[must_use]
pub fn subject(method: &str) -> Option<&'static str> {
    let found = SUBJECTS.iter().find(|(known, _)| *known == method);
    found.map(|(_, subject)| *subject)
}

/// The expected headers of a request: its method and its subject.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestHeaders<'a> {
    /// `Mcp-Method`.
    pub method: &'a str,
    /// `Mcp-Name`, not encoded; `None` if the method has none or the body lacks it.
    pub name: Option<Cow<'a, str>>,
}

impl<'a> RequestHeaders<'a> {
    /// Derives the headers from a body.
    #[must_use]
    pub fn from_body(method: &'a str, params: Option<&'a str>) -> Self {
        let name = subject(method).zip(params).and_then(|(subject, params)| {
            let named: SubjectParams<'a> = lookalike::from_object(params).ok()?;
            let members = [
                ("name", named.name),
                ("uri", named.uri),
                ("taskId", named.task_id),
            ];
            let (_, raw) = members.into_iter().find(|(name, _)| *name == subject)?;
            unquote(raw?.get())
        });
        Self { method, name }
    }

    /// Checks a request's headers against its body. `header_value` looks a header up by name.
    ///
    /// # Errors
    /// [`Refusal::HeaderMismatch`]: a header is missing, unreadable, or different.
    pub fn check<'h>(
        &self,
        header_value: impl Fn(&str) -> ReceivedHeader<'h>,
    ) -> Result<(), Refusal> {
        check_plain(METHOD, self.method, header_value(METHOD))?;
        if subject(self.method).is_none() {
            return Ok(());
        }
        let received = decode_value(NAME, require(NAME, header_value(NAME))?)?;
        match self.name.as_deref() {
            Some(name) if received == name => Ok(()),
            Some(name) => Err(mismatch_error(NAME, &received, name)),
            None => Err(unexpected_error(NAME, &received)),
        }
    }

    /// The headers to send with this request.
    pub fn headers(&self) -> impl Iterator<Item = (&'static str, Cow<'_, str>)> {
        let name = self.name.as_deref().map(|name| (NAME, encode(name)));
        std::iter::once((METHOD, Cow::Borrowed(self.method))).chain(name)
    }
}

/// The members of `params` that a header may repeat.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct SubjectParams<'a> {
    #[serde(borrow, default)]
    name: Option<&'a RawValue>,
    #[serde(borrow, default)]
    uri: Option<&'a RawValue>,
    #[serde(borrow, default)]
    task_id: Option<&'a RawValue>,
}

/// Checks `MCP-Protocol-Version` against the version that `_meta` names.
///
/// # Errors
/// [`Refusal::HeaderMismatch`]: it is missing, unreadable, or different.
pub fn check_version(expected: &str, header_value: ReceivedHeader<'_>) -> Result<(), Refusal> {
    check_plain(VERSION, expected, header_value)
}

/// A header whose value is never encoded.
fn check_plain(
    header: &str,
    expected: &str,
    header_value: ReceivedHeader<'_>,
) -> Result<(), Refusal> {
    let received = require(header, header_value)?;
    if received == expected {
        return Ok(());
    }
    Err(mismatch_error(header, received, expected))
}

fn require<'h>(header: &str, header_value: ReceivedHeader<'h>) -> Result<&'h str, Refusal> {
    match header_value {
        ReceivedHeader::Text(text) => Ok(text),
        ReceivedHeader::Absent => Err(Refusal::HeaderMismatch(format!(
            "{header} header is missing"
        ))),
        ReceivedHeader::Unreadable => Err(unreadable_error(header)),
    }
}

fn decode_value<'h>(header: &str, received: &'h str) -> Result<Cow<'h, str>, Refusal> {
    decode(received).map_err(|error| {
        Refusal::HeaderMismatch(format!(
            "{header} header value '{}' {error}",
            truncate_value(received)
        ))
    })
}

fn unreadable_error(header: &str) -> Refusal {
    Refusal::HeaderMismatch(format!(
        "{header} header was sent more than once or has characters outside visible ASCII"
    ))
}

fn mismatch_error(header: &str, received: &str, expected: &str) -> Refusal {
    Refusal::HeaderMismatch(format!(
        "{header} header value '{}' does not match body value '{}'",
        truncate_value(received),
        truncate_value(expected)
    ))
}

/// The error for a header without its value in the body.
fn unexpected_error(header: &str, received: &str) -> Refusal {
    Refusal::HeaderMismatch(format!(
        "{header} header value '{}' has no value in the body",
        truncate_value(received)
    ))
}

fn truncate_value(value: &str) -> &str {
    match value.char_indices().nth(ECHO_MAX) {
        Some((end, _)) => &value[..end],
        None => value,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_headers(headers: &[(&str, &str)], method: &str, params: &str) -> Result<(), String> {
        let header_value = |name: &str| {
            let found = headers.iter().filter(|(n, _)| n.eq_ignore_ascii_case(name));
            ReceivedHeader::from_values(found.map(|(_, value)| value.as_bytes()))
        };
        let mirrored = RequestHeaders::from_body(method, Some(params));
        mirrored.check(header_value).map_err(|e| e.to_string())
    }

    /// SEP-2243: the error names the header and both values.
    #[test]
    fn headers_that_differ_from_the_body_are_rejected() {
        let call = r#"{"name":"bar"}"#;
        let check = |headers: &[(&str, &str)]| check_headers(headers, "tools/call", call);
        assert_eq!(
            check(&[("mcp-method", "tools/call"), ("MCP-NAME", " bar ")]),
            Ok(())
        );
        for (headers, error) in [
            (
                &[("Mcp-Method", "tools/call"), ("Mcp-Name", "foo")][..],
                "Mcp-Name header value 'foo' does not match body value 'bar'",
            ),
            (
                &[("Mcp-Method", "tools/call")],
                "Mcp-Name header is missing",
            ),
            (&[("Mcp-Name", "bar")], "Mcp-Method header is missing"),
            (
                &[("Mcp-Method", "Tools/Call"), ("Mcp-Name", "bar")],
                "Mcp-Method header value 'Tools/Call' does not match body value 'tools/call'",
            ),
            (
                &[
                    ("Mcp-Method", "tools/call"),
                    ("Mcp-Name", "=?base64?YmFy=?="),
                ],
                "Mcp-Name header value '=?base64?YmFy=?=' is not base64 of a text",
            ),
            (
                &[
                    ("Mcp-Method", "tools/call"),
                    ("Mcp-Name", "bar"),
                    ("Mcp-Name", "bar"),
                ],
                "Mcp-Name header was sent more than once or has characters outside visible ASCII",
            ),
        ] {
            assert_eq!(check(headers), Err(format!("Header mismatch: {error}")));
        }
    }

    #[test]
    fn each_method_has_its_own_subject() {
        for (method, params, name) in [
            ("tools/call", r#"{"name":"a","uri":"b"}"#, Some("a")),
            ("prompts/get", r#"{"name":"a"}"#, Some("a")),
            ("resources/read", r#"{"name":"a","uri":"b"}"#, Some("b")),
            ("tasks/update", r#"{"taskId":"c"}"#, Some("c")),
            ("tasks/get", r#"{"taskId":7}"#, None),
            ("tools/list", r#"{"name":"a"}"#, None),
        ] {
            let mirrored = RequestHeaders::from_body(method, Some(params));
            assert_eq!(mirrored.name.as_deref(), name, "{method}");
        }
        assert_eq!(
            check_headers(&[("Mcp-Method", "tools/list")], "tools/list", "{}"),
            Ok(())
        );
        let unnamed = check_headers(
            &[("Mcp-Method", "tasks/get"), ("Mcp-Name", "7")],
            "tasks/get",
            "{}",
        );
        assert!(unnamed.unwrap_err().contains("has no value in the body"));
    }

    /// The headers of one side pass the check of the other, for any name.
    #[test]
    fn sent_headers_pass_the_check() {
        for name in [
            "plain",
            "a b",
            " padded ",
            "Zoë",
            "line\nbreak",
            "=?base64?x?=",
            "",
        ] {
            let params = serde_json::json!({"name": name}).to_string();
            let mirrored = RequestHeaders::from_body("prompts/get", Some(&params));
            let headers: Vec<_> = mirrored.headers().collect();
            let sent: Vec<(&str, &str)> = headers.iter().map(|(n, v)| (*n, v.as_ref())).collect();
            assert_eq!(
                check_headers(&sent, "prompts/get", &params),
                Ok(()),
                "{name:?}"
            );
        }
    }

    #[test]
    fn version_header_repeats_meta() {
        assert!(check_version("2026-07-28", ReceivedHeader::Text("2026-07-28")).is_ok());
        assert!(check_version("2026-07-28", ReceivedHeader::Text("2025-11-25")).is_err());
        assert!(check_version("2026-07-28", ReceivedHeader::Absent).is_err());
        assert_eq!(
            ReceivedHeader::from_values([&b"\xff"[..]]),
            ReceivedHeader::Unreadable
        );
        assert_eq!(
            ReceivedHeader::from_values([&b"a\x01b"[..]]),
            ReceivedHeader::Unreadable
        );
    }

    #[test]
    fn long_value_is_truncated_between_characters() {
        assert_eq!(truncate_value(&"é".repeat(200)).chars().count(), ECHO_MAX);
    }
}
