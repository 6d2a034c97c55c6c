//! `extensions` in the capabilities of both sides (MCP 2026-07-28, extension negotiation; SEP-2133).

use std::borrow::Cow;

use mgp_json::{Splice, can_contain_string, member, members, render_object};
use serde_json::value::RawValue;

use super::meta::{MGP, SKILLS, TASKS, UI};
use crate::dialect::Version;

/// Longest declaration that is relayed, in bytes: each session stores that of its client.
const DECLARATION_MAX: usize = 16 << 10;

/// What clients of MCP Apps declare: the MIME type of the specification (SEP-1865).
pub const UI_CLIENT_SETTINGS: &str = r#"{"mimeTypes":["text/html;profile=mcp-app"]}"#;

/// True for an extension that the kernel negotiates itself on both sides.
#[must_use]
pub fn is_negotiated_by_kernel(id: &str) -> bool {
    id == TASKS || id == MGP
}

/// Whether the kernel knows an extension to be specified for this version. Skills are specified for the stateless one:
/// clients of others see plain resources (SEP-2640).
#[must_use]
pub fn is_specified_for(id: &str, version: Version) -> bool {
    id != SKILLS || !version.is_legacy()
}

/// True for an identifier in the form of the specification: a prefix is mandatory.
#[must_use]
pub fn is_identifier(id: &str) -> bool {
    let is_label = |text: &str| {
        let is_inner = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
        let ends = [text.chars().next(), text.chars().next_back()];
        text.chars().all(is_inner)
            && ends
                .into_iter()
                .all(|end| end.is_some_and(|c| c.is_ascii_alphanumeric()))
    };
    id.split_once('/')
        .is_some_and(|(prefix, name)| is_label(prefix) && is_label(name))
}

/// The extensions in these capabilities that the kernel relays: all but those it negotiates itself, with their settings.
/// Malformed ones count as absent.
#[must_use]
pub fn relayed_extensions(capabilities: &str) -> Vec<(Cow<'_, str>, &RawValue)> {
    if !can_contain_string(capabilities.as_bytes(), "\"extensions\"") {
        return Vec::new();
    }
    let declared = member(capabilities, "extensions").filter(|all| all.len() <= DECLARATION_MAX);
    let mut extensions = declared.and_then(members).unwrap_or_default();
    extensions.retain(|(id, settings)| {
        is_identifier(id) && !is_negotiated_by_kernel(id) && settings.get().starts_with('{')
    });
    extensions
}

/// The same as a JSON object; `None` without any.
#[must_use]
pub fn relayed_extensions_object(capabilities: &str) -> Option<String> {
    let extensions = relayed_extensions(capabilities);
    let extensions = extensions.iter().map(|(id, settings)| (id, settings.get()));
    Some(render_object(extensions)).filter(|object| object != "{}")
}

/// True if these capabilities have an extension whose methods the kernel does not know.
#[must_use]
pub fn has_unknown_extension(capabilities: &str) -> bool {
    let extensions = relayed_extensions(capabilities);
    extensions.iter().any(|(id, _)| *id != UI && *id != SKILLS)
}

/// Capabilities with these extensions, an object, beside those that they have.
#[must_use]
pub fn with_extensions(capabilities: &str, extensions: &str) -> String {
    let added = members(extensions).unwrap_or_default();
    let added: Vec<(&str, &str)> = added.iter().map(|(id, json)| (&**id, json.get())).collect();
    let mut splice = Splice::new(capabilities);
    match member(capabilities, "extensions").filter(|there| there.starts_with('{')) {
        Some(there) => splice.insert_members(there, &added),
        None if added.is_empty() => {}
        None => splice.insert_member(capabilities, "extensions", extensions),
    }
    splice.finish().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// EXT-001, EXT-005: identifiers have a prefix; those that the kernel negotiates itself, and malformed ones, are not
    /// relayed. Settings stay as they are.
    #[test]
    fn extensions_are_relayed_verbatim() {
        let capabilities = r#"{"tools":{},"extensions":{"com.example/a":{"n":1.0, "x":[]},"dev.cloto/mgp":{},"io.modelcontextprotocol/tasks":{},"noprefix":{},"com.example/":{},"com.example/b":true,"io.modelcontextprotocol/ui":{}}}"#;
        assert_eq!(
            relayed_extensions_object(capabilities).as_deref(),
            Some(r#"{"com.example/a":{"n":1.0, "x":[]},"io.modelcontextprotocol/ui":{}}"#)
        );
        assert!(has_unknown_extension(capabilities));
        for none in [
            "{}",
            r#"{"extensions":[]}"#,
            r#"{"extensions":{"io.modelcontextprotocol/tasks":{}}}"#,
            r#"{"a":"\"extensions\""}"#,
        ] {
            assert_eq!(relayed_extensions_object(none), None, "{none}");
            assert!(!has_unknown_extension(none));
        }
        let known = r#"{"extensions":{"io.modelcontextprotocol/ui":{},"io.modelcontextprotocol/skills":{}}}"#;
        assert!(!has_unknown_extension(known));
        let long = format!(
            r#"{{"extensions":{{"a.b/c":{{"x":"{}"}}}}}}"#,
            "x".repeat(DECLARATION_MAX)
        );
        assert_eq!(relayed_extensions_object(&long), None);
    }

    #[test]
    fn extensions_are_added_beside_others() {
        let add = |capabilities| with_extensions(capabilities, r#"{"a.b/c":{"x":1}}"#);
        assert_eq!(add("{}"), r#"{"extensions":{"a.b/c":{"x":1}}}"#);
        assert_eq!(
            add(r#"{"tools":{},"extensions":{"d.e/f":{}}}"#),
            r#"{"tools":{},"extensions":{"a.b/c":{"x":1},"d.e/f":{}}}"#
        );
        assert_eq!(
            add(r#"{"extensions":{}}"#),
            r#"{"extensions":{"a.b/c":{"x":1}}}"#
        );
        assert_eq!(with_extensions(r#"{"x":1}"#, "{}"), r#"{"x":1}"#);
    }
}
