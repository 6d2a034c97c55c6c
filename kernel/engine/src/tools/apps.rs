//! MCP Apps (SEP-1865): what a tool declares about its UI, and the `ui://` URIs in definitions and results.

use std::borrow::Cow;

use mgp_json::{Splice, can_contain_strings, elements, member, quote, unquote};
use mgp_protocol::ids::ServerId;
use serde_json::value::RawValue;

use super::uris;

/// The starts of JSON strings with a URI whose scheme stays in a merged view, for a search before parsing.
const URI_STRINGS: [&str; 2] = ["\"ui:", "\"skill:"];

/// The members of `_meta` with the URI of a UI, besides `ui.resourceUri`: a deprecated form, and that of the Apps SDK.
const FLAT_URI_MEMBERS: [&str; 2] = ["ui/resourceUri", "openai/outputTemplate"];

/// What a tool's definition declares about its UI.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ToolUi {
    /// It is for apps: hosts do not show it to models.
    pub is_app_only: bool,
}

impl ToolUi {
    /// Parses a definition; `None` without a UI.
    #[must_use]
    pub(crate) fn parse(definition: &str) -> Option<Self> {
        let names = ["\"ui", "\"openai/outputTemplate\""];
        if !can_contain_strings(definition.as_bytes(), names).contains(&true) {
            return None;
        }
        let meta = member(definition, "_meta")?;
        let ui = member(meta, "ui").filter(|ui| ui.starts_with('{'));
        let is_flat = || {
            FLAT_URI_MEMBERS
                .iter()
                .any(|name| member(meta, name).is_some())
        };
        (ui.is_some() || is_flat()).then(|| Self {
            is_app_only: ui
                .and_then(|ui| member(ui, "visibility"))
                .is_some_and(is_hidden_from_models),
        })
    }
}

/// Hosts hide a tool if its visibility does not include `model`; by default it does. An invalid value hides it, too.
fn is_hidden_from_models(visibility: &str) -> bool {
    let audiences: Option<Option<Vec<Cow<'_, str>>>> = serde_json::from_str(visibility).ok();
    match audiences {
        Some(Some(audiences)) => !audiences.iter().any(|audience| audience == "model"),
        Some(None) => false,
        None => true,
    }
}

/// A tool's definition with its `ui://` URIs as visible in a merged view; `None` if it has none.
#[must_use]
pub(crate) fn wrap_in_definition(definition: &str, server: &ServerId) -> Option<String> {
    let mut splice = UriSplice::new(definition, server);
    splice.wrap_in_meta(definition);
    splice.finish()
}

/// A result with the `ui://` URIs that the specification has as data as visible in a merged view; `None` if it has none.
/// Texts, such as that of an app, stay as they are.
#[must_use]
pub fn wrap_in_result(result: &[u8], server: &ServerId) -> Option<String> {
    if !can_contain_strings(result, URI_STRINGS).contains(&true) {
        return None;
    }
    let result = std::str::from_utf8(result).ok()?;
    let mut splice = UriSplice::new(result, server);
    splice.wrap_in_result(result);
    // `tasks/get` has the result of the call as a member.
    if let Some(inner) = member(result, "result") {
        splice.wrap_in_result(inner);
    }
    splice.finish()
}

/// Replaces own URIs of a server by those of a merged view.
struct UriSplice<'a> {
    splice: Splice<'a>,
    server: &'a ServerId,
    is_changed: bool,
}

impl<'a> UriSplice<'a> {
    fn new(text: &'a str, server: &'a ServerId) -> Self {
        Self {
            splice: Splice::new(text),
            server,
            is_changed: false,
        }
    }

    fn finish(self) -> Option<String> {
        self.is_changed.then(|| self.splice.finish().into_owned())
    }

    /// Replaces a JSON string, if it is such a URI.
    fn wrap_uri(&mut self, json: Option<&'a str>) {
        if let Some(json) = json
            && let Some(uri) = unquote(json).filter(|uri| uris::keeps_scheme(uri))
        {
            self.splice
                .replace(json, quote(&uris::wrap(self.server, &uri)));
            self.is_changed = true;
        }
    }

    /// The URIs in the `_meta` of this object.
    fn wrap_in_meta(&mut self, object: &'a str) {
        let Some(meta) = member(object, "_meta") else {
            return;
        };
        self.wrap_uri(member(meta, "ui").and_then(|ui| member(ui, "resourceUri")));
        for name in FLAT_URI_MEMBERS {
            self.wrap_uri(member(meta, name));
        }
    }

    /// The URIs in a result of `tools/call`, `prompts/get` or `resources/read`.
    fn wrap_in_result(&mut self, result: &'a str) {
        self.wrap_in_meta(result);
        self.wrap_in_content(member(result, "content"));
        let list = |name| member(result, name).and_then(elements).unwrap_or_default();
        for message in list("messages") {
            self.wrap_in_content(member(message.get(), "content"));
        }
        for contents in list("contents") {
            self.wrap_uri(member(contents.get(), "uri"));
        }
    }

    /// The URIs in one content block or several: links, and embedded resources.
    fn wrap_in_content(&mut self, content: Option<&'a str>) {
        let blocks = content.and_then(elements);
        let blocks = blocks.map(|blocks| blocks.into_iter().map(RawValue::get).collect());
        let blocks: Vec<&str> = blocks.unwrap_or_else(|| content.into_iter().collect());
        for block in blocks {
            self.wrap_uri(member(block, "uri"));
            let resource = member(block, "resource");
            self.wrap_uri(resource.and_then(|resource| member(resource, "uri")));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn app_only(meta: &str) -> Option<bool> {
        let definition = format!(r#"{{"name":"t","inputSchema":{{}},"_meta":{meta}}}"#);
        ToolUi::parse(&definition).map(|ui| ui.is_app_only)
    }

    /// EXT-023, EXT-026: a tool is for apps only if its visibility is declared without `model`.
    #[test]
    fn visibility_without_model_is_app_only() {
        assert_eq!(app_only("{}"), None);
        assert_eq!(app_only(r#"{"ui":null}"#), None);
        assert_eq!(app_only(r#"{"other":"ui"}"#), None);
        for both in [
            "",
            r#""visibility":["model","app"],"#,
            r#""visibility":null,"#,
        ] {
            let meta = format!(r#"{{"ui":{{{both}"resourceUri":"ui://a/b"}}}}"#);
            assert_eq!(app_only(&meta), Some(false), "{meta}");
        }
        for hidden in [r#"["app"]"#, "[]", r#""app""#, "7", r#"["Model"]"#] {
            let meta = format!(r#"{{"ui":{{"visibility":{hidden}}}}}"#);
            assert_eq!(app_only(&meta), Some(true), "{meta}");
        }
        assert_eq!(
            app_only(r#"{"\u0075i":{"visibility":["app"]}}"#),
            Some(true)
        );
        for flat in FLAT_URI_MEMBERS {
            assert_eq!(app_only(&format!(r#"{{"{flat}":"ui://a"}}"#)), Some(false));
        }
    }

    /// EXT-021: the URIs of a definition are those of the view, in all three forms; nothing else changes.
    #[test]
    fn uris_of_definitions_are_wrapped() {
        let server = ServerId::new("time");
        let definition = |uri: &str| {
            format!(
                r#"{{"name":"t", "description":"see \"ui://a/b\"","inputSchema":{{"default":"ui://a/b"}},"_meta":{{"n":1.0,"ui":{{"resourceUri":"{uri}","x":"ui://a/b"}},"ui/resourceUri":"{uri}","openai/outputTemplate":"{uri}"}}}}"#
            )
        };
        let wrapped = wrap_in_definition(&definition("ui://a/b"), &server);
        assert_eq!(wrapped, Some(definition("ui://time/a/b")));
        let escaped = wrap_in_definition(&definition(r"ui:\/\/a\/b"), &server);
        assert_eq!(escaped, Some(definition("ui://time/a/b")));
        assert_eq!(
            wrap_in_definition(&definition("https://a/b"), &server),
            None
        );
    }

    /// EXT-022, EXT-028: links and embedded resources of results are wrapped; text and structured content stay.
    #[test]
    fn uris_of_results_are_wrapped() {
        let server = ServerId::new("time");
        for form in [
            r#"{"content":[{"type":"resource_link","uri":"URI","name":"n"},{"type":"text","text":"ui://a"}],"structuredContent":{"uri":"ui://a"}}"#,
            r#"{"content":[{"type":"resource","resource":{"uri":"URI","mimeType":"text/html","text":"<a href=\"ui://a\">"}}]}"#,
            r#"{"messages":[{"role":"user","content":{"type":"resource","resource":{"uri":"URI","text":""}}}]}"#,
            r#"{"contents":[{"uri":"URI","text":"\"ui://a\"","_meta":{"ui":{"csp":{"connectDomains":["https://a"]}}}}]}"#,
            r#"{"content":[],"_meta":{"ui":{"resourceUri":"URI"}}}"#,
            r#"{"taskId":"t","result":{"content":[{"type":"resource_link","uri":"URI","name":"n"}]}}"#,
        ] {
            let own = form.replace("URI", "ui://a");
            let wrapped = form.replace("URI", "ui://time/a");
            assert_eq!(wrap_in_result(own.as_bytes(), &server), Some(wrapped));
        }
        for other in [
            r#"{"content":[{"type":"text","text":"ui://a"}]}"#,
            r#"{"content":[{"type":"resource_link","uri":"uix://a"}],"structuredContent":"ui://a"}"#,
            "no JSON \"ui://a",
        ] {
            assert_eq!(wrap_in_result(other.as_bytes(), &server), None, "{other}");
        }
    }
}
