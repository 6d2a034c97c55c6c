//! Converts a lite result to an MCP result: `content` of a lite server holds any objects (MCP-lite A.2), and MCP
//! has content blocks.

use mgp_json::{member, members, quote, remove_members, render_object};
use serde_json::value::RawValue;

/// Members of `_meta` that are only for the kernel.
const LITE_META_MEMBERS: [&str; 6] = [
    "response_type",
    "promise_token",
    "elicitation",
    "continuation",
    "estimated_completion",
    "expires_at",
];

/// Members that change the meaning of a result in MCP; a lite server cannot use them.
const MCP_RESERVED_MEMBERS: [&str; 7] = [
    "resultType",
    "inputRequests",
    "requestState",
    "task",
    "taskId",
    "ttlMs",
    "status",
];

/// The result of `tools/call`.
pub(super) fn to_mcp(result: &str, failed: bool) -> String {
    let Some(all) = members(result) else {
        return render_result(&[to_block(result)], None, failed, &[]);
    };
    let first = |name: &str| all.iter().find(|(n, _)| n == name).map(|(_, v)| v.get());
    let failed = failed || first("isError") == Some("true");
    let structured = first("structuredContent").filter(|json| json.starts_with('{'));
    let mut members: Vec<(&str, String)> = Vec::new();
    if let Some(meta) = first("_meta").and_then(strip_lite_members) {
        members.push(("_meta", meta));
    }
    let others = all.iter().filter(|(name, _)| {
        let known = ["content", "isError", "structuredContent", "_meta"];
        !known.contains(&&**name) && !MCP_RESERVED_MEMBERS.contains(&&**name)
    });
    let blocks = match (first("content"), structured) {
        (Some(content), _) => {
            members.extend(others.map(|(name, value)| (&**name, value.get().to_owned())));
            to_blocks(content)
        }
        (None, Some(structured)) => vec![to_block(structured)],
        // The whole result is the content.
        (None, None) => {
            let others: Vec<_> = others.map(|(name, value)| (name, value.get())).collect();
            if others.is_empty() {
                Vec::new()
            } else {
                vec![to_block(&render_object(others))]
            }
        }
    };
    render_result(&blocks, structured, failed, &members)
}

/// An error result with only this text.
pub(super) fn text_result(text: &str) -> String {
    render_result(&[to_block(&quote(text))], None, true, &[])
}

fn render_result(
    blocks: &[String],
    structured: Option<&str>,
    failed: bool,
    members: &[(&str, String)],
) -> String {
    let mut out = format!(r#"{{"content":[{}]"#, blocks.join(","));
    if let Some(structured) = structured {
        out.push_str(r#","structuredContent":"#);
        out.push_str(structured);
    }
    if failed {
        out.push_str(r#","isError":true"#);
    }
    for (name, value) in members {
        out.push(',');
        out.push_str(&quote(name));
        out.push(':');
        out.push_str(value);
    }
    out.push('}');
    out
}

fn to_blocks(content: &str) -> Vec<String> {
    let items: Result<Vec<&RawValue>, _> = serde_json::from_str(content);
    match items {
        Ok(items) => items.iter().map(|item| to_block(item.get())).collect(),
        Err(_) if content == "null" => Vec::new(),
        Err(_) => vec![to_block(content)],
    }
}

/// A block unchanged, or a text block with the JSON text.
fn to_block(json: &str) -> String {
    if is_block(json) {
        return json.to_owned();
    }
    let text: Option<String> = serde_json::from_str(json).ok();
    let text = text.as_deref().unwrap_or(json);
    format!(r#"{{"type":"text","text":{}}}"#, quote(text))
}

/// True for a block that every MCP client can read.
fn is_block(json: &str) -> bool {
    let text = |object: &str, name| member(object, name).is_some_and(|it| it.starts_with('"'));
    match member(json, "type") {
        Some("\"text\"") => text(json, "text"),
        Some("\"image\"" | "\"audio\"") => text(json, "data") && text(json, "mimeType"),
        Some("\"resource_link\"") => text(json, "uri") && text(json, "name"),
        Some("\"resource\"") => member(json, "resource").is_some_and(|inner| {
            text(inner, "uri") && (text(inner, "text") || text(inner, "blob"))
        }),
        _ => false,
    }
}

fn strip_lite_members(meta: &str) -> Option<String> {
    let rest = remove_members(meta, &LITE_META_MEMBERS).into_owned();
    let is_empty = members(&rest)?.is_empty();
    (!is_empty).then_some(rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// LITE-071: content that is not an MCP block becomes its exact text; MCP blocks stay.
    #[test]
    fn any_content_becomes_blocks() {
        let document = r#"{"document_id": "doc_123", "score":1.0e2,"big":12345678901234567890123}"#;
        let result = format!(
            r#"{{"content":[{document},"plain",7,{{"type":"text","text":"t"}},{{"type":"text"}}],"total":3,"_meta":{{"response_type":"answer","processing_time_ms":145}}}}"#
        );
        let expected = format!(
            r#"{{"content":[{{"type":"text","text":{}}},{{"type":"text","text":"plain"}},{{"type":"text","text":"7"}},{{"type":"text","text":"t"}},{{"type":"text","text":"{{\"type\":\"text\"}}"}}],"_meta":{{"processing_time_ms":145}},"total":3}}"#,
            quote(document)
        );
        assert_eq!(to_mcp(&result, false), expected);
        for (result, text) in [
            (r#"{"answer":42,"_meta":{}}"#, r#"{"answer":42}"#),
            ("[1,2]", "[1,2]"),
            (r#""hello""#, "hello"),
            (r#"{"structuredContent":{"a":1}}"#, r#"{"a":1}"#),
            (r#"{"content":{"a":1}}"#, r#"{"a":1}"#),
        ] {
            let made: serde_json::Value = serde_json::from_str(&to_mcp(result, false)).unwrap();
            assert_eq!(made["content"][0]["text"], text, "{result}");
        }
        for nothing in ["{}", r#"{"content":null}"#, r#"{"content":[]}"#] {
            assert_eq!(to_mcp(nothing, false), r#"{"content":[]}"#);
        }
    }

    /// LITE-014: a failure is a result with `isError`.
    #[test]
    fn failure_becomes_tool_error() {
        let result = r#"{"content":["no stock"],"_meta":{"response_type":"failure"}}"#;
        let expected = r#"{"content":[{"type":"text","text":"no stock"}],"isError":true}"#;
        assert_eq!(to_mcp(result, true), expected);
        assert_eq!(
            to_mcp(r#"{"content":[],"isError":true}"#, false),
            r#"{"content":[],"isError":true}"#
        );
    }

    /// No member of a lite result turns it into a task or an elicitation.
    #[test]
    fn reserved_mcp_members_are_removed() {
        let result = r#"{"content":[],"resultType":"task","taskId":"t","task":{"taskId":"t"},"inputRequests":{},"requestState":"s"}"#;
        assert_eq!(to_mcp(result, false), r#"{"content":[]}"#);
    }
}
