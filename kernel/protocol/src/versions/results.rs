//! Converts results: a stateless one has a type and a lifetime, and its structured content may be any
//! value.

use std::borrow::Cow;

use mgp_json::{Splice, member, quote};

use super::content::{has_all_blocks, to_version};
use super::object::{
    Member, can_mention, join_array, join_members, last_value, split_members, strip_meta,
};
use crate::dialect::{ProtocolFamily, Version};
use crate::mcp::meta::SERVER_INFO;

/// The members of stateless results only.
const STATELESS_MEMBERS: [&str; 3] = ["resultType", "ttlMs", "cacheScope"];
const STRUCTURED: &str = "structuredContent";

/// The members to add to a legacy server's result.
#[derive(Clone, Copy, Debug, Default)]
pub struct StatelessExtras<'a> {
    /// `ttlMs` in milliseconds and `cacheScope` (`public` or `private`), for methods that have them. Not
    /// added to incomplete results.
    pub caching: Option<(u64, &'a str)>,
    /// An `Implementation` object, as JSON text.
    pub server_info: Option<&'a str>,
}

/// Converts a legacy server's result for a stateless caller. Existing members stay.
#[must_use]
pub fn to_stateless_result(result: &str, extra: StatelessExtras<'_>) -> String {
    let trimmed = result.trim();
    let Some(all) = split_members(trimmed) else {
        return result.to_owned();
    };
    let mut splice = Splice::new(trimmed);
    let mut new = Vec::new();
    let kind = last_value(&all, "resultType");
    if kind.is_none() {
        new.push(("resultType", r#""complete""#.to_owned()));
    }
    if let Some((ttl, scope)) = extra.caching
        && kind.is_none_or(|kind| kind == r#""complete""#)
    {
        let caching = [("ttlMs", ttl.to_string()), ("cacheScope", quote(scope))];
        new.extend(
            caching
                .into_iter()
                .filter(|(name, _)| last_value(&all, name).is_none()),
        );
    }
    if let Some(info) = extra.server_info {
        match last_value(&all, "_meta") {
            Some(meta) if meta.starts_with('{') => {
                if member(meta, SERVER_INFO).is_none() {
                    splice.insert_member(meta, SERVER_INFO, info);
                }
            }
            Some(other) => splice.replace(other, server_info_meta(info)),
            None => new.push(("_meta", server_info_meta(info))),
        }
    }
    let new: Vec<(&str, &str)> = new.iter().map(|(name, json)| (*name, &**json)).collect();
    splice.insert_members(trimmed, &new);
    splice.finish().into_owned()
}

fn server_info_meta(info: &str) -> String {
    format!("{{{}:{info}}}", quote(SERVER_INFO))
}

/// Converts a result for a legacy caller of version `to`: without unknown members, with content blocks of
/// that version. Unchanged for a stateless caller.
#[must_use]
pub fn to_legacy_result(result: &str, to: Version) -> Cow<'_, str> {
    let [kind, ttl, scope] = STATELESS_MEMBERS;
    let words = [kind, ttl, scope, STRUCTURED, SERVER_INFO_WORD];
    let old_blocks = has_all_blocks(to) || !can_mention(result, &["audio", "resource_link"]);
    if to.family() == ProtocolFamily::Stateless || (old_blocks && !can_mention(result, &words)) {
        return Cow::Borrowed(result);
    }
    let Some(mut all) = split_members(result) else {
        return Cow::Borrowed(result);
    };
    let before = all.len();
    all.retain(|part| !STATELESS_MEMBERS.contains(&&*part.name));
    let mut changed = all.len() != before;
    changed |= strip_meta(&mut all, &[SERVER_INFO]);
    changed |= strip_non_object_structure(&mut all);
    for part in &mut all {
        let blocks = match &*part.name {
            "content" | "messages" => to_version(part.value, to),
            _ => None,
        };
        if let Some(blocks) = blocks {
            part.replace(&blocks);
            changed = true;
        }
    }
    if changed {
        return Cow::Owned(join_members(&all));
    }
    Cow::Borrowed(result)
}

/// The part of [`SERVER_INFO`] that is the same in any escaping.
const SERVER_INFO_WORD: &str = "serverInfo";

/// Removes a structure that is no object, as legacy ones must be; its text remains in the content.
fn strip_non_object_structure(all: &mut Vec<Member<'_>>) -> bool {
    let Some(structure) = last_value(all, STRUCTURED).filter(|json| !json.starts_with('{')) else {
        return false;
    };
    all.retain(|part| part.name != STRUCTURED);
    if last_value(all, "content").is_none() {
        let block = format!(r#"{{"type":"text","text":{}}}"#, quote(structure));
        let mut content = Member::new("content", "[]");
        content.replace(&join_array([&*block]));
        all.push(content);
    }
    true
}

/// Converts a tool's definition for a legacy caller: removes an `outputSchema` whose root is no object,
/// like the structure it describes.
#[must_use]
pub fn to_legacy_tool(definition: &str) -> Cow<'_, str> {
    if !can_mention(definition, &["outputSchema"]) {
        return Cow::Borrowed(definition);
    }
    let Some(mut all) = split_members(definition) else {
        return Cow::Borrowed(definition);
    };
    match last_value(&all, "outputSchema") {
        Some(schema) if member(schema, "type") != Some(r#""object""#) => {
            all.retain(|part| part.name != "outputSchema");
            Cow::Owned(join_members(&all))
        }
        Some(_) | None => Cow::Borrowed(definition),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn legacy_result_gets_stateless_members() {
        let extra = StatelessExtras {
            caching: Some((0, "private")),
            server_info: Some(r#"{"name":"s"}"#),
        };
        let info = r#""io.modelcontextprotocol/serverInfo":{"name":"s"}"#;
        assert_eq!(
            to_stateless_result(r#"{"contents":[1.0]}"#, extra),
            format!(
                r#"{{"resultType":"complete","ttlMs":0,"cacheScope":"private","_meta":{{{info}}},"contents":[1.0]}}"#
            )
        );
        assert_eq!(
            to_stateless_result(r#"{"_meta":{"a":1},"ttlMs":5}"#, extra),
            format!(
                r#"{{"resultType":"complete","cacheScope":"private","_meta":{{{info},"a":1}},"ttlMs":5}}"#
            )
        );
        assert_eq!(
            to_stateless_result("{}", StatelessExtras::default()),
            r#"{"resultType":"complete"}"#
        );
        let asking = r#"{"resultType":"input_required","requestState":"s"}"#;
        let caching_only = StatelessExtras {
            server_info: None,
            ..extra
        };
        assert_eq!(to_stateless_result(asking, caching_only), asking);
        let whole = to_stateless_result("{}", extra);
        assert_eq!(to_stateless_result(&whole, extra), whole);
    }

    #[test]
    fn stateless_result_loses_unknown_members() {
        let result = r#"{"resultType":"complete","content":[{"type":"text","text":"resultType"}],"ttlMs":0,"cacheScope":"private","structuredContent":{"n":1.0},"_meta":{"io.modelcontextprotocol\/serverInfo":{"name":"s"},"k":1}}"#;
        assert_eq!(
            to_legacy_result(result, Version::V2025_11_25),
            r#"{"content":[{"type":"text","text":"resultType"}],"structuredContent":{"n":1.0},"_meta":{"k":1}}"#
        );
        assert_eq!(to_legacy_result(result, Version::STATELESS), result);
        let empty =
            r#"{"resultType":"complete","_meta":{"io.modelcontextprotocol/serverInfo":{}}}"#;
        assert_eq!(to_legacy_result(empty, Version::V2024_11_05), "{}");
    }

    #[test]
    fn non_object_structure_remains_as_text() {
        let bare = r#"{"structuredContent":[1.0,"a"]}"#;
        assert_eq!(
            to_legacy_result(bare, Version::V2025_06_18),
            r#"{"content":[{"type":"text","text":"[1.0,\"a\"]"}]}"#
        );
        let told = r#"{"structuredContent":7,"content":[]}"#;
        assert_eq!(
            to_legacy_result(told, Version::V2025_11_25),
            r#"{"content":[]}"#
        );
    }

    #[test]
    fn valid_result_is_unchanged() {
        for result in [
            r#"{ "content":[{"type":"resource_link"},{"type":"audio"}] , "structuredContent":{} }"#,
            r#"{"content":[{"type":"text","text":"ttlMs \u00e9"}]}"#,
            "[not an object]",
        ] {
            let same = to_legacy_result(result, Version::V2025_11_25);
            assert!(
                matches!(same, Cow::Borrowed(text) if text == result),
                "{result}"
            );
        }
    }

    #[test]
    fn legacy_callers_receive_object_output_schemas_only() {
        let object = r#"{"name":"t","outputSchema":{"type":"object"}}"#;
        assert_eq!(to_legacy_tool(object), object);
        for schema in [r#"{"type":"array"}"#, "true", r#"{"anyOf":[]}"#] {
            let tool = format!(r#"{{"name":"t","outputSchema":{schema},"x":1.0}}"#);
            assert_eq!(to_legacy_tool(&tool), r#"{"name":"t","x":1.0}"#);
        }
    }
}
