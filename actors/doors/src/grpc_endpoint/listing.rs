//! Converts the list of tools to a `ToolsList`.

use std::borrow::Cow;

use mgp_grpc::exact::Struct;
use mgp_grpc::mcplite::{Tool, ToolsList};
use mgp_json::quote;
use serde::Deserialize;
use serde_json::value::RawValue;

/// The longest schema on the wire, in bytes.
const LONGEST: usize = 4 << 20;

#[derive(Deserialize)]
struct RpcList<'a> {
    #[serde(borrow, default)]
    tools: Vec<&'a RawValue>,
}

#[derive(Deserialize)]
struct RpcTool<'a> {
    #[serde(borrow)]
    name: Cow<'a, str>,
    #[serde(borrow, default, rename = "@type")]
    kind: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    description: Option<Cow<'a, str>>,
    #[serde(borrow, default, rename = "inputSchema")]
    input_schema: Option<&'a RawValue>,
}

/// Converts the list that is `{"tools":[…]}` over HTTP. An unreadable definition does not remove others.
pub(super) fn to_tools_list(list: &str) -> ToolsList {
    let listed: Option<RpcList<'_>> = serde_json::from_str(list).ok();
    let listed = listed.map(|listed| listed.tools).unwrap_or_default();
    let tools = listed.iter().filter_map(|tool| {
        let tool: RpcTool<'_> = serde_json::from_str(tool.get()).ok()?;
        Some(Tool {
            input_schema: Some(to_schema_struct(
                tool.input_schema.map_or("{}", RawValue::get),
            )),
            name: tool.name.into_owned(),
            r#type: tool.kind.unwrap_or_default().into_owned(),
            description: tool.description.unwrap_or_default().into_owned(),
        })
    });
    ToolsList {
        tools: tools.collect(),
    }
}

/// Converts the schema, or returns one that refers to the exact one: no schema is sent with altered numbers
/// (LITE-075).
fn to_schema_struct(text: &str) -> Struct {
    Struct::from_json(text, LONGEST).unwrap_or_else(|error| {
        let message = format!(
            "The schema is not told over gRPC: {error}. POST /mcp-lite/v1/listtools has it."
        );
        let open = format!(r#"{{"type":"object","description":{}}}"#, quote(&message));
        Struct::from_json(&open, usize::MAX).expect("it has strings only")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// LITE-056, LITE-075: a schema with a number that no double represents does not affect others.
    #[test]
    fn every_tool_is_listed() {
        let list = r#"{"tools":[
            {"name":"a","@type":"query","description":"A\u0061","inputSchema":{"type":"object"}},
            {"name":7},
            {"name":"b","description":"B","inputSchema":{"properties":{"n":{"maximum":18446744073709551615}}}}]}"#;
        let tools = to_tools_list(list).tools;
        let names: Vec<&str> = tools.iter().map(|tool| tool.name.as_str()).collect();
        assert_eq!(names, ["a", "b"]);
        assert_eq!((&*tools[0].r#type, &*tools[0].description), ("query", "Aa"));
        let schema = |nth: usize| {
            let schema = tools[nth].input_schema.as_ref().unwrap();
            schema.to_json(LONGEST).unwrap()
        };
        assert_eq!(schema(0), r#"{"type":"object"}"#);
        let listed = schema(1);
        assert!(
            listed.contains("/properties/n/maximum") && listed.contains("listtools"),
            "{listed}"
        );
    }
}
