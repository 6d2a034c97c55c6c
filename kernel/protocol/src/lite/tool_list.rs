//! Lists of tools for a lite caller (§3.9, A.1).

use super::{REDEEM, REDEEM_TOOL};
use mgp_json::{Splice, members, quote};
use serde_json::value::RawValue;

/// One page of `tools/list`.
#[derive(Debug)]
pub struct ToolPage<'a> {
    /// The definitions.
    pub tools: Vec<&'a RawValue>,
    /// The cursor of the next page.
    pub next: Option<String>,
}

impl<'a> ToolPage<'a> {
    /// Parses the result of a `tools/list`; a malformed one has no tools.
    #[must_use]
    pub fn parse(result: &'a str) -> Self {
        #[derive(serde::Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct ToolsPage<'a> {
            #[serde(borrow, default)]
            tools: Vec<&'a RawValue>,
            #[serde(default)]
            next_cursor: Option<String>,
        }
        let page: Option<ToolsPage<'a>> = serde_json::from_str(result).ok();
        page.map_or_else(
            || Self {
                tools: Vec::new(),
                next: None,
            },
            |page| Self {
                tools: page.tools,
                next: page.next_cursor,
            },
        )
    }
}

/// The name of a tool.
#[must_use]
pub fn tool_name(definition: &str) -> Option<String> {
    let name = mgp_json::member(definition, "name")?;
    serde_json::from_str(name).ok()
}

/// Converts an MCP definition to MCP-lite: with a description, and with `@type`, which is the tool's own or
/// the first of its categories (A-38). `None` for the reserved name.
#[must_use]
pub fn to_lite_tool(definition: &str) -> Option<String> {
    let all = members(definition)?;
    let text = |name: &str| {
        let value = all.iter().find(|(n, _)| n == name)?.1;
        serde_json::from_str::<String>(value.get()).ok()
    };
    let name = text("name").filter(|name| name != REDEEM)?;
    let mut splice = Splice::new(definition);
    let mut new = Vec::new();
    if text("description").is_none_or(|description| description.trim().is_empty()) {
        let instead = quote(&text("title").unwrap_or(name));
        match all.iter().find(|(n, _)| n == "description") {
            Some((_, wrong)) => splice.replace(wrong.get(), instead),
            None => new.push(("description", instead)),
        }
    }
    if !all.iter().any(|(n, _)| n == "@type") {
        let categories = all.iter().find(|(n, _)| n == "categories");
        let categories = categories.and_then(|(_, v)| serde_json::from_str(v.get()).ok());
        let categories: Vec<String> = categories.unwrap_or_default();
        new.extend(categories.first().map(|kind| ("@type", quote(kind))));
    }
    let new: Vec<(&str, &str)> = new.iter().map(|(name, json)| (*name, &**json)).collect();
    if !new.is_empty() {
        splice.insert_members(definition, &new);
    }
    Some(splice.finish().into_owned())
}

/// Renders the whole list, `redeem` first: `{"tools":[…]}`.
#[must_use]
pub fn render_list(tools: &[String]) -> String {
    let rest: usize = tools.iter().map(|tool| tool.len() + 1).sum();
    let mut out = String::with_capacity(rest + REDEEM_TOOL.len() + 16);
    out.push_str(r#"{"tools":["#);
    out.push_str(REDEEM_TOOL);
    for tool in tools {
        out.push(',');
        out.push_str(tool);
    }
    out.push_str("]}");
    out
}

/// The array only (§4.2.1), of a list by [`render_list`].
#[must_use]
pub fn array_of_list(list: &str) -> &str {
    let inner = list.strip_prefix(r#"{"tools":"#);
    inner
        .and_then(|rest| rest.strip_suffix('}'))
        .unwrap_or("[]")
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    /// LITE-005, LITE-031: each tool has a name, a description and a schema; the kind is optional.
    #[test]
    fn every_tool_has_name_description_and_schema() {
        let convert =
            |text: &str| -> Value { serde_json::from_str(&to_lite_tool(text).unwrap()).unwrap() };
        let plain = convert(r#"{"name":"a","inputSchema":{"type":"object"}}"#);
        assert_eq!(plain["description"], "a");
        assert!(plain.get("@type").is_none());
        let placed = convert(
            r#"{"name":"a","title":"An A","description":null,"categories":["files/read","x"],"inputSchema":{}}"#,
        );
        assert_eq!(placed["description"], "An A");
        assert_eq!(placed["@type"], "files/read");
        let own = convert(r#"{"name":"a","@type":"query","description":"d","categories":["x"]}"#);
        assert_eq!(own["@type"], "query");
        assert_eq!(to_lite_tool(r#"{"name":"redeem","inputSchema":{}}"#), None);
    }

    /// LITE-006, LITE-036: `redeem` is first in each list, and the array has the same entries.
    #[test]
    fn list_begins_with_redeem() {
        let list = render_list(&[r#"{"name":"a"}"#.to_owned()]);
        let whole: Value = serde_json::from_str(&list).unwrap();
        let alone: Value = serde_json::from_str(array_of_list(&list)).unwrap();
        assert_eq!(whole["tools"], alone);
        assert_eq!(alone[0]["name"], "redeem");
        assert_eq!(alone[1]["name"], "a");
    }
}
