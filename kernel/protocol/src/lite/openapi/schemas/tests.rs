use serde_json::json;

use super::*;

fn made(schema: &Value) -> Option<Value> {
    let mut names = UniqueNames::default();
    let name = names.reserve("t");
    translate(
        &schema.to_string(),
        &name,
        SchemaKind::Arguments,
        &mut names,
    )
    .map(Value::Object)
}

/// The root only.
fn root(schema: &Value) -> Value {
    made(schema).unwrap()["t"].take()
}

/// LITE-031: a plain schema is unchanged.
#[test]
fn plain_schema_is_unchanged() {
    let schema = json!({
        "type": "object",
        "required": ["query"],
        "properties": {
            "query": { "type": "string", "description": "Search query", "minLength": 1, "pattern": "^a" },
            "limit": { "type": ["integer", "null"], "default": 10, "minimum": 1, "maximum": 100 },
            "kind": { "enum": ["a", { "b": [1, null] }] },
            "all": { "type": "array", "items": {} },
        },
        "additionalProperties": false,
    });
    assert_eq!(made(&schema).unwrap(), json!({ "t": schema }));
    let mut with_more = schema.clone();
    with_more["$schema"] = "https://json-schema.org/draft/2020-12/schema".into();
    let list = &mut with_more["properties"]["all"];
    list.as_object_mut().unwrap().remove("items");
    with_more["$id"] = "https://example.com/s".into();
    with_more["x-own"] = json!({ "$ref": "file:///etc/passwd" });
    assert_eq!(root(&with_more), schema);
}

#[test]
fn referenced_part_becomes_a_component() {
    let schema = json!({
        "type": "object",
        "properties": {
            "a": { "$ref": "#/$defs/A" },
            "again": { "$ref": "#/$defs/A" },
            "old": { "$ref": "#/definitions/b~1%63" },
            "self": { "$ref": "#" },
            "deep": { "$ref": "#/properties/list/items" },
            "list": { "type": "array", "items": { "type": "number" } },
        },
        "$defs": { "A": { "type": "object", "properties": { "next": { "$ref": "#/$defs/A" } } }, "Unused": {} },
        "definitions": { "b/c": { "type": "string" } },
    });
    let made = made(&schema).unwrap();
    let to = |name: &str| json!({ "$ref": format!("#/components/schemas/{name}") });
    assert_eq!(made["t"]["properties"]["a"], to("t_A"));
    assert_eq!(made["t"]["properties"]["again"], to("t_A"));
    assert_eq!(made["t"]["properties"]["self"], to("t"));
    assert_eq!(made["t_A"]["properties"]["next"], to("t_A"));
    assert_eq!(made["t_b_1c"], json!({ "type": "string" }));
    assert_eq!(made["t_items"], json!({ "type": "number" }));
    assert_eq!(made.as_object().unwrap().len(), 4, "{made:#}");
}

#[test]
fn root_reference_is_replaced_by_its_target() {
    let schema = json!({
        "$schema": "http://json-schema.org/draft-07/schema#",
        "$ref": "#/definitions/Args",
        "definitions": { "Args": { "type": "object", "properties": { "x": { "$ref": "#/definitions/Args" } } } },
    });
    let want = json!({ "t": { "type": "object", "properties": { "x": { "$ref": "#/components/schemas/t" } } } });
    assert_eq!(made(&schema).unwrap(), want);
}

#[test]
fn external_and_dangling_references_are_left_out() {
    for external in [
        "https://example.com/other.json",
        "other.json#/a",
        "file:///etc/passwd",
        "#/$defs/missing",
        "#anchor",
        "#/properties/x/title",
        "#/%zz",
    ] {
        let schema = json!({ "properties": { "x": { "$ref": external, "title": "T" } } });
        assert_eq!(
            root(&schema)["properties"]["x"],
            json!({ "title": "T" }),
            "{external}"
        );
    }
    let hidden = [
        json!({ "$ref": "file:///x" }),
        json!([{ "a": { "$ref": 1 } }]),
    ];
    for hidden in hidden {
        let schema = json!({ "properties": { "x": { "default": hidden, "const": hidden, "enum": [hidden] } } });
        assert_eq!(root(&schema)["properties"]["x"], json!({}));
    }
    let named = json!({ "properties": { "$ref": { "type": "string" }, "a": true }, "additionalProperties": false });
    assert_eq!(
        root(&named),
        json!({ "properties": { "a": {} }, "type": "object" })
    );
}

#[test]
fn cycles_without_a_step_are_broken() {
    let schema = json!({
        "properties": {
            "a": { "$ref": "#/$defs/A" }, "s": { "$ref": "#/$defs/S" }, "t": { "$ref": "#/$defs/Tree" },
            "d": { "$ref": "#/$defs/D" },
        },
        "$defs": {
            "A": { "allOf": [{ "$ref": "#/$defs/B" }, { "$ref": "#/$defs/D" }] },
            "B": { "not": { "anyOf": [{ "$ref": "#/$defs/A" }] } },
            "S": { "$ref": "#/$defs/S" },
            "D": { "type": "string" },
            "Tree": { "anyOf": [{ "type": "null" }, { "items": { "$ref": "#/$defs/Tree" } }] },
        },
    });
    let made = made(&schema).unwrap();
    let to = |name: &str| json!({ "$ref": format!("#/components/schemas/{name}") });
    assert_eq!(made["t"]["properties"]["s"], json!({}));
    assert_eq!(made["t_A"]["allOf"], json!([{}, to("t_D")]));
    assert_eq!(made["t_B"]["not"]["anyOf"], json!([{}]));
    assert_eq!(made["t_Tree"]["anyOf"][1]["items"], to("t_Tree"));
}

#[test]
fn older_drafts_are_converted_to_the_newest() {
    let schema = json!({
        "$schema": "http://json-schema.org/draft-07/schema#",
        "type": "object",
        "properties": {
            "pair": { "items": [{ "type": "string" }, true], "additionalItems": false },
            "more": { "maximum": 5, "exclusiveMaximum": true, "minimum": 1, "exclusiveMinimum": false },
            "n": { "$ref": "#/definitions/N", "type": "boolean" },
        },
        "dependencies": { "a": ["b"], "c": { "required": ["d"] } },
        "definitions": { "N": { "type": "number" } },
    });
    let read = root(&schema);
    let pair = json!({ "prefixItems": [{ "type": "string" }, {}], "items": { "not": {} } });
    assert_eq!(read["properties"]["pair"], pair);
    assert_eq!(
        read["properties"]["more"],
        json!({ "maximum": 5, "exclusiveMaximum": 5, "minimum": 1 })
    );
    assert_eq!(
        read["properties"]["n"],
        json!({ "$ref": "#/components/schemas/t_N" })
    );
    assert_eq!(read["dependentRequired"], json!({ "a": ["b"] }));
    assert_eq!(
        read["dependentSchemas"],
        json!({ "c": { "required": ["d"] } })
    );
}

#[test]
fn keywords_of_a_wrong_form_are_left_out() {
    let schema = json!({
        "properties": {
            "x": {
                "type": "strin", "required": true, "enum": [], "minLength": -1, "maxItems": "3", "multipleOf": 0,
                "pattern": 7, "properties": [], "allOf": {}, "anyOf": [], "items": 3, "title": "stays",
                "discriminator": { "mapping": { "a": "#/$defs/A" } }, "nullable": true, "examples": "x",
                "dependentRequired": { "a": "b" }, "uniqueItems": 1, "$dynamicRef": "#x", "$anchor": "y",
            },
            "y": 7,
            "z": null,
        },
        "required": ["x", "x", "y"],
    });
    let want = json!({ "properties": { "x": { "items": {}, "title": "stays" }, "y": {}, "z": {} }, "required": ["x", "y"],
        "type": "object" });
    assert_eq!(root(&schema), want);
}

#[test]
fn non_object_arguments_are_not_described() {
    for schema in [
        json!({ "type": "string" }),
        json!([]),
        json!(true),
        json!({ "type": ["object", "null"] }),
    ] {
        assert!(made(&schema).is_none(), "{schema}");
    }
    let mut names = UniqueNames::default();
    assert!(translate("{", "t", SchemaKind::Result, &mut names).is_none());
    let text = translate(r#"{"type":"string"}"#, "t", SchemaKind::Result, &mut names).unwrap();
    assert_eq!(text["t"], json!({ "type": "string" }));
}

#[test]
fn schema_expansion_is_bounded() {
    // Each part of the tree is referenced, and contains all below it.
    let mut tree = json!({ "type": "object" });
    for _ in 0..40 {
        tree = json!({ "properties": { "a": tree, "b": { "enum": ["some", "more", "values"] } } });
    }
    let pointers = (0..40).map(|n| "/properties/a".repeat(n));
    tree["allOf"] = pointers
        .map(|p| json!({ "items": { "$ref": format!("#{p}") } }))
        .collect();
    let made = made(&tree).map(|made| made.to_string().len());
    assert!(made.is_none_or(|bytes| bytes < 1 << 20), "{made:?}");
    let wide: Vec<usize> = (0..VALUES_MAX).collect();
    assert!(super::tests::made(&json!({ "enum": wide })).is_none());
    let mut deep = json!({ "title": "bottom" });
    for _ in 0..60 {
        deep = json!({ "items": deep });
    }
    assert!(!root(&deep).to_string().contains("bottom"));
}
