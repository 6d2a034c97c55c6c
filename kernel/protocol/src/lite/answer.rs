//! Results for a lite caller: those of MCP, with MCP-lite's members in `_meta` (§3.3).

use std::borrow::Cow;

use mgp_json::{Splice, can_contain_string, members, quote, remove_members, render_object};

use super::ResponseType;
use crate::dialect::Version;
use crate::versions::to_legacy_result;

/// The members of `_meta` that are MCP-lite's. Those of a server are overwritten, because they describe the
/// kernel's behaviour, such as a promise to redeem.
const RESERVED_META: [&str; 9] = [
    "response_type",
    "timestamp",
    "processing_time_ms",
    "server_version",
    "promise_token",
    "estimated_completion",
    "expires_at",
    "elicitation",
    "continuation",
];

/// The `_meta` of each result (§3.3).
#[derive(Clone, Copy, Debug)]
pub struct AnswerMeta<'a> {
    /// The kind of the answer.
    pub response_type: ResponseType,
    /// When it was created (RFC 3339).
    pub timestamp: &'a str,
    /// How long the request took, in milliseconds.
    pub processing_time_ms: u64,
    /// The kernel's version.
    pub server_version: &'a str,
    /// Further members for this kind of answer: names, and values as JSON text.
    pub extra: &'a [(&'a str, String)],
}

impl AnswerMeta<'_> {
    /// Renders the members of `_meta`, with the existing ones after them.
    fn render_with(&self, existing: Option<&str>) -> String {
        let existing = existing.and_then(members).unwrap_or_default();
        let remaining = existing
            .iter()
            .filter(|(name, _)| !RESERVED_META.contains(&&**name));
        let reserved = [
            ("response_type", quote(self.response_type.as_str())),
            ("timestamp", quote(self.timestamp)),
            ("processing_time_ms", self.processing_time_ms.to_string()),
            ("server_version", quote(self.server_version)),
        ];
        let reserved = reserved.iter().map(|(name, json)| (*name, &**json));
        let extra = self.extra.iter().map(|(name, json)| (&**name, &**json));
        let remaining = remaining.map(|(name, value)| (&**name, value.get()));
        render_object(reserved.chain(extra).chain(remaining))
    }
}

/// Adds this `_meta` to a result and removes the members of MCP 2026-07-28 and MGP. All else stays
/// byte-identical.
#[must_use]
pub fn with_meta(result: &str, meta: &AnswerMeta<'_>) -> String {
    let plain = to_plain_result(result);
    if !can_contain_string(plain.as_bytes(), "_meta")
        && let Some(open) = plain.trim_end().strip_suffix('}')
        && let Some(content) = plain.trim_start().strip_prefix('{')
    {
        let comma = match content.trim_start().starts_with('}') {
            true => "",
            false => ",",
        };
        let meta = meta.render_with(None);
        return [open, comma, r#""_meta":"#, &meta, "}"].concat();
    }
    let Some(all) = members(&plain) else {
        return format!(r#"{{"_meta":{}}}"#, meta.render_with(None));
    };
    let reserved: Vec<&str> = all
        .iter()
        .filter(|(name, _)| name == "_meta")
        .map(|(_, value)| value.get())
        .collect();
    match reserved[..] {
        [existing] => {
            let mut splice = Splice::new(&plain);
            splice.replace(existing, meta.render_with(Some(existing)));
            splice.finish().into_owned()
        }
        // None: another member's text names it. Several: parsers differ in which of them counts.
        [..] => {
            let rest = all.iter().filter(|(name, _)| name != "_meta");
            let rest = rest.map(|(name, value)| (&**name, value.get()));
            render_object(rest.chain([("_meta", &*meta.render_with(None))]))
        }
    }
}

fn to_plain_result(result: &str) -> Cow<'_, str> {
    let plain = to_legacy_result(result, Version::LATEST_LEGACY);
    if !can_contain_string(plain.as_bytes(), "_mgp") {
        return plain;
    }
    remove_members(&plain, &["_mgp"]).into_owned().into()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn written(result: &str) -> Value {
        let more = [("promise_token", r#""p""#.to_owned())];
        let meta = AnswerMeta {
            response_type: ResponseType::Answer,
            timestamp: "2024-01-01T12:00:00Z",
            processing_time_ms: 145,
            server_version: "1",
            extra: &more,
        };
        serde_json::from_str(&with_meta(result, &meta)).unwrap()
    }

    /// LITE-008, LITE-009: each result has its `_meta`, whatever the server sent.
    #[test]
    fn every_result_gets_its_meta() {
        for result in [
            "{}",
            "{ }",
            "7",
            "",
            r#"{"_meta":7}"#,
            r#"{"_meta":{},"_meta":{"response_type":"x"}}"#,
        ] {
            let written = written(result);
            assert_eq!(written["_meta"]["response_type"], "answer", "{result}");
            assert_eq!(written["_meta"]["processing_time_ms"], 145, "{result}");
        }
        let whole = written(
            r#"{"content":[{"n":12345678901234567890}],"resultType":"complete","_mgp":{"a":1},"_meta":{"response_type":"promise","promise_token":"forged","mine":1.0e2}}"#,
        );
        assert_eq!(whole["_meta"]["response_type"], "answer");
        assert_eq!(whole["_meta"]["promise_token"], "p");
        assert_eq!(whole["_meta"]["mine"], json!(1.0e2));
        assert!(whole.get("resultType").is_none() && whole.get("_mgp").is_none());
    }

    #[test]
    fn server_members_stay_byte_identical() {
        let meta = AnswerMeta {
            response_type: ResponseType::Failure,
            timestamp: "t",
            processing_time_ms: 0,
            server_version: "1",
            extra: &[],
        };
        let result = r#"{ "content":[1.0e2, 12345678901234567890123],"isError":true}"#;
        let written = with_meta(result, &meta);
        assert!(
            written.starts_with(&result[..result.len() - 1]),
            "{written}"
        );
    }
}
