use std::collections::HashSet;

use super::*;

const TERMS: DocumentOptions<'_> = DocumentOptions {
    server: "http://127.0.0.1:7332/mcp-lite/v1",
    requires_token: true,
    version: "0.1.0",
};

fn made(tools: &Value) -> Value {
    let text = tools.to_string();
    let tools: Vec<&RawValue> = serde_json::from_str(&text).unwrap();
    serde_json::from_str(&render_document(&tools, &TERMS)).unwrap()
}

/// LITE-005: each tool is an operation, with its own description.
#[test]
fn each_tool_is_an_operation() {
    let document = made(&json!([
        {
            "name": "docs__search",
            "title": "Search",
            "description": "Search through documents.\nMore.",
            "inputSchema": { "type": "object", "properties": { "q": { "type": "string" } }, "required": ["q"] },
            "outputSchema": { "type": "object", "properties": { "hits": { "type": "integer" } } },
        },
        { "name": "redeem", "@type": "system", "description": "First line\nSecond", "inputSchema": { "type": "object" } },
    ]));
    assert_eq!(document["openapi"], "3.1.0");
    assert_eq!(document["servers"][0]["url"], TERMS.server);
    let search = &document["paths"]["/tools/docs__search"]["post"];
    assert_eq!(search["operationId"], "docs__search");
    assert_eq!(search["summary"], "Search");
    assert_eq!(search["tags"], json!(["docs"]));
    let schema = &search["requestBody"]["content"]["application/json"]["schema"];
    assert_eq!(
        schema["$ref"],
        "#/components/schemas/docs__search_arguments"
    );
    let schemas = &document["components"]["schemas"];
    assert_eq!(schemas["docs__search_arguments"]["required"], json!(["q"]));
    let answer = &schemas["docs__search_answer"]["properties"]["structuredContent"];
    assert_eq!(answer["$ref"], "#/components/schemas/docs__search_result");
    assert_eq!(
        document["paths"]["/tools/redeem"]["post"]["summary"],
        "First line"
    );
    for status in ["200", "202", "400", "401", "404", "default"] {
        assert!(search["responses"][status].is_object(), "{status}");
    }
    assert_eq!(document["security"], json!([{ "bearer": [] }]));
    let tools: [&RawValue; 0] = [];
    let open = super::render_document(
        &tools,
        &DocumentOptions {
            requires_token: false,
            ..TERMS
        },
    );
    assert!(!open.contains("security") && !open.contains("\"401\""));
}

/// Every reference resolves, operations are distinct, and no tool removes another one.
#[test]
fn any_tools_yield_a_valid_document() {
    let long = "x".repeat(SCHEMA_MAX);
    let document = made(&json!([
        { "name": "a", "inputSchema": { "type": "object", "properties": { "b": { "$ref": "#/$defs/B" } }, "$defs": { "B": {} } } },
        { "name": "a_arguments", "inputSchema": { "type": "object" } },
        { "name": "A", "inputSchema": 7 },
        { "name": "ToolAnswer", "inputSchema": { "type": "string" }, "outputSchema": "none", "title": 3 },
        { "name": "a/b {c}", "inputSchema": { "description": long }, "description": "d" },
        { "name": ".." }, { "name": "" }, { "name": 1 }, 7,
        { "name": "last" },
    ]));
    let paths = document["paths"].as_object().unwrap();
    assert_eq!(paths.len(), 6, "{:?}", paths.keys());
    assert!(paths.contains_key("/tools/a%2Fb%20%7Bc%7D"));
    let ids: HashSet<String> = paths
        .values()
        .map(|path| path["post"]["operationId"].as_str().unwrap().to_lowercase())
        .collect();
    assert_eq!(ids.len(), 6);
    let cut = paths["/tools/a%2Fb%20%7Bc%7D"]["post"]["description"]
        .as_str()
        .unwrap();
    assert!(cut.contains("too large"), "{cut}");
    let mut references = 0;
    let mut below = vec![&document];
    while let Some(value) = below.pop() {
        if let Some(to) = value.get("$ref").and_then(Value::as_str) {
            references += 1;
            assert!(
                document.pointer(to.strip_prefix('#').unwrap()).is_some(),
                "{to}"
            );
        }
        match value {
            Value::Object(members) => below.extend(members.values()),
            Value::Array(all) => below.extend(all),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
    assert!(references > 20, "{references}");
}

#[test]
fn schemas_of_a_document_are_bounded_in_total() {
    let words = "w".repeat(SCHEMA_MAX - 100);
    let tool = |n: usize| json!({ "name": format!("t{n}"), "inputSchema": { "type": "object", "description": words } });
    let all: Vec<Value> = (0..=SCHEMAS_MAX / SCHEMA_MAX + 2).map(tool).collect();
    let document = made(&Value::from(all));
    let schemas = &document["components"]["schemas"];
    assert!(schemas["t0_arguments"]["description"].is_string());
    let last = format!("t{}_arguments", SCHEMAS_MAX / SCHEMA_MAX + 2);
    assert_eq!(schemas[last], json!({ "type": "object" }));
}
