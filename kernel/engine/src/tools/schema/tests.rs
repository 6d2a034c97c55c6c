use super::*;
use proptest::prelude::*;
use serde_json::json;

fn input(schema: &Value) -> Result<Schema, BadSchema> {
    Schema::compile_input(&schema.to_string())
}

fn check(schema: &Value, args: &Value) -> Result<(), Mismatch> {
    input(schema).unwrap().check(&args.to_string())
}

fn keyword(schema: &Value, args: &Value) -> Option<String> {
    check(schema, args).err().map(|mismatch| mismatch.keyword)
}

/// A value that nests `levels` deep through its member `c`.
fn nested(levels: usize) -> String {
    format!("{}1{}", r#"{"c":"#.repeat(levels), "}".repeat(levels))
}

/// CMCP-010: path, keyword and words.
#[test]
fn a_mismatch_has_its_reason_and_path() {
    let schema = json!({
        "type": "object",
        "properties": {
            "count": {"type": "integer", "minimum": 1},
            "tags": {"type": "array", "items": {"enum": ["a", "b"]}},
        },
        "required": ["count"],
        "additionalProperties": false,
    });
    assert_eq!(check(&schema, &json!({"count": 3, "tags": ["a"]})), Ok(()));
    for (args, path, keyword, word) in [
        (json!({}), "", "required", "\"count\""),
        (json!({"count": "x"}), "/count", "type", "integer"),
        (json!({"count": 0}), "/count", "minimum", "1"),
        (
            json!({"count": 1, "tags": ["a", "z"]}),
            "/tags/1",
            "enum",
            "\"z\"",
        ),
        (
            json!({"count": 1, "more": 1}),
            "",
            "additionalProperties",
            "more",
        ),
        (json!([1]), "", "type", "object"),
    ] {
        let mismatch = check(&schema, &args).unwrap_err();
        assert_eq!(mismatch.path, path, "{mismatch}");
        assert_eq!(mismatch.keyword, keyword, "{mismatch}");
        assert!(mismatch.message.contains(word), "{mismatch}");
    }
}

/// Long strings are decoded only where a keyword looks at their characters; the verdict is the same. Each value that does
/// not fit would fit with its stand-in.
#[test]
fn a_long_string_is_judged_as_a_short_one() {
    let long = |end: &str| format!("a\n{}{end}", "x".repeat(10_000));
    for (part, fits, broken, keyword) in [
        (
            json!({"type": "string"}),
            json!(long("")),
            json!([long("")]),
            "type",
        ),
        (
            json!({"pattern": "^x*$"}),
            json!("x".repeat(10_000)),
            json!(long("")),
            "pattern",
        ),
        (
            json!({"maxLength": 10_002}),
            json!(long("")),
            json!(long("y")),
            "maxLength",
        ),
        (
            json!({"not": {"minLength": 10_003}}),
            json!(long("")),
            json!(long("y")),
            "not",
        ),
        (
            json!({"not": {"const": long("")}}),
            json!(long("y")),
            json!(long("")),
            "not",
        ),
        (
            json!({"not": {"enum": ["a", long("")]}}),
            json!(long("y")),
            json!(long("")),
            "not",
        ),
        (
            json!({"enum": ["a", "x".repeat(511)]}),
            json!("a"),
            json!(long("")),
            "enum",
        ),
        (
            json!({"not": {"uniqueItems": true}}),
            json!([long(""), long("")]),
            json!([long(""), long("y")]),
            "not",
        ),
        (
            json!({"propertyNames": {"type": "string"}, "required": [long("y")]}),
            json!({long("y"): long("")}),
            json!({long(""): long("y")}),
            "required",
        ),
    ] {
        let schema = json!({"type": "object", "properties": {"a": part}});
        assert_eq!(
            check(&schema, &json!({"a": fits, "b": long("")})),
            Ok(()),
            "{schema:.200}"
        );
        let args = json!({"b": long(""), "a": broken});
        let found = self::keyword(&schema, &args);
        assert_eq!(found.as_deref(), Some(keyword), "{schema:.200}");
    }
    let draft_7 = "http://json-schema.org/draft-07/schema#";
    let mail = format!("{}@example.com", "x".repeat(10_000));
    for (part, fits, broken, keyword) in [
        (
            json!({"format": "regex"}),
            mail.clone(),
            format!("{mail}("),
            "format",
        ),
        (
            json!({"contentEncoding": "base64"}),
            "x".repeat(8_000),
            mail.clone(),
            "contentEncoding",
        ),
        (
            json!({"not": {"contentMediaType": "application/json"}}),
            mail.clone(),
            format!("{mail:?}"),
            "not",
        ),
    ] {
        let schema = json!({"$schema": draft_7, "type": "object", "properties": {"a": part}});
        assert_eq!(check(&schema, &json!({"a": fits})), Ok(()), "{schema}");
        let found = self::keyword(&schema, &json!({"a": broken}));
        assert_eq!(found.as_deref(), Some(keyword), "{schema}");
    }
    let schema = json!({"type": "object", "properties": {"a": {"type": "string"}}});
    let half = format!(r#"{{"a":"{}\ud800"}}"#, long("").replace('\n', ""));
    let refused = input(&schema).unwrap().check(&half).unwrap_err();
    assert_eq!(refused.keyword, "json", "half of a surrogate pair");
}

/// Found by schemathesis: items beyond those of an older draft's list are a mismatch like any other.
#[test]
fn excess_items_are_reported() {
    let list = json!([{"type": "string"}, {"type": "integer"}]);
    let schema = json!({
        "$schema": "http://json-schema.org/draft-07/schema#",
        "type": "object",
        "properties": {"pair": {"type": "array", "items": list, "additionalItems": false}},
    });
    assert_eq!(check(&schema, &json!({"pair": ["a", 0]})), Ok(()));
    for more in [json!(["a", 0, {}]), json!(["a", 0, "b", [1]])] {
        let mismatch = check(&schema, &json!({ "pair": more })).unwrap_err();
        assert_eq!(
            (mismatch.path.as_str(), mismatch.keyword.as_str()),
            ("/pair", "additionalItems")
        );
        assert!(mismatch.message.contains("more than 2 items"), "{mismatch}");
    }
}

/// CMCP-011, A-19: what the older text left out is there, each keyword with a value that fits and
/// one that does not.
#[test]
fn all_of_draft_2020_12_is_understood() {
    for (part, good, bad) in [
        (json!({"$ref": "#/$defs/s"}), json!("x"), json!(1)),
        (json!({"$ref": "#named"}), json!("x"), json!(1)),
        (
            json!({"oneOf": [{"const": 1}, {"const": 2}]}),
            json!(1),
            json!(3),
        ),
        (
            json!({"anyOf": [{"type": "null"}, {"type": "string"}]}),
            json!(null),
            json!(3),
        ),
        (json!({"not": {"type": "string"}}), json!(1), json!("x")),
        (json!({"pattern": "^a+$"}), json!("aa"), json!("b")),
        (json!({"pattern": "^(?!a)"}), json!("b"), json!("a")),
        (
            json!({"if": {"const": 1}, "else": {"type": "null"}}),
            json!(1),
            json!(2),
        ),
        (
            json!({"prefixItems": [{"type": "null"}]}),
            json!([null]),
            json!([1]),
        ),
        (json!({"uniqueItems": true}), json!([1, 2]), json!([1, 1.0])),
        (json!({"contains": {"const": 1}}), json!([1]), json!([2])),
        (
            json!({"propertyNames": {"maxLength": 1}}),
            json!({"a": 1}),
            json!({"ab": 1}),
        ),
        (
            json!({"patternProperties": {"^a": {"const": 1}}}),
            json!({"ab": 1}),
            json!({"ab": 2}),
        ),
        (
            json!({"unevaluatedProperties": false}),
            json!({}),
            json!({"a": 1}),
        ),
        (
            json!({"dependentRequired": {"a": ["b"]}}),
            json!({"b": 1}),
            json!({"a": 1}),
        ),
        (json!({"multipleOf": 0.1}), json!(0.3), json!(0.35)),
        (json!({"maxLength": 1}), json!("é"), json!("ab")),
    ] {
        let schema = json!({
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "type": "object",
            "properties": {"v": part},
            "$defs": {"s": {"$anchor": "named", "type": "string"}},
        });
        assert_eq!(check(&schema, &json!({"v": good})), Ok(()), "{schema}");
        assert!(check(&schema, &json!({"v": bad})).is_err(), "{schema}");
    }
}

#[test]
fn the_draft_is_the_one_the_schema_names() {
    // `items` with a list is a tuple up to 2019-09 and invalid since; `dependencies` is gone.
    let tuple = |draft: &str| {
        json!({"$schema": draft, "type": "object",
            "properties": {"v": {"items": [{"type": "null"}], "additionalItems": false}}})
    };
    for old in [
        "http://json-schema.org/draft-07/schema#",
        "https://json-schema.org/draft/2019-09/schema",
    ] {
        assert_eq!(check(&tuple(old), &json!({"v": [null]})), Ok(()));
        assert!(check(&tuple(old), &json!({"v": [1]})).is_err());
    }
    for new in [
        "https://json-schema.org/draft/2020-12/schema",
        "https://example.org/own",
    ] {
        assert!(
            matches!(input(&tuple(new)), Err(BadSchema::Invalid(_))),
            "{new}"
        );
    }
}

/// CMCP-014: garbage is refused when it comes, with its reason.
#[test]
fn malformed_schemas_are_rejected() {
    let refused = |raw: &str| Schema::compile_input(raw).unwrap_err();
    for raw in [
        "\"garbage\"",
        "[]",
        "true",
        "{}",
        r#"{"type":"string"}"#,
        r#"{"type":["object"]}"#,
    ] {
        assert_eq!(refused(raw), BadSchema::NotForObjects, "{raw}");
    }
    assert!(matches!(refused("{"), BadSchema::NotJson(_)));
    let padded = |length: usize| r#"{"type":"object"}"#.to_owned() + &" ".repeat(length - 17);
    assert!(Schema::compile_input(&padded(262_144)).is_ok());
    assert_eq!(refused(&padded(262_145)), BadSchema::TooLarge(262_145));
    for (part, word) in [
        (json!({"type": "text"}), "text"),
        (json!({"properties": 7}), "7"),
        (json!({"minLength": -1}), "-1"),
    ] {
        let schema = json!({"type": "object", "properties": {"v": part}});
        let told = input(&schema).unwrap_err().to_string();
        assert!(
            told.starts_with("invalid schema") && told.contains(word),
            "{told}"
        );
    }
}

#[test]
fn an_output_schema_may_have_any_root() {
    let numbers = Schema::compile_output(r#"{"type":"array","items":{"type":"number"}}"#).unwrap();
    assert_eq!(numbers.check("[1, 2.5]"), Ok(()));
    assert_eq!(numbers.check("[1, null]").unwrap_err().path, "/1");
    assert!(Schema::compile_output("true").is_ok());
}

#[test]
fn nothing_is_ever_fetched() {
    for reference in [
        "https://example.org/schema.json",
        "http://127.0.0.1:9/schema.json#/$defs/a",
        "file:///etc/passwd",
        "other.json",
        "https://json-schema.org/draft/2020-12/schema",
    ] {
        let schema = json!({"type": "object", "properties": {"v": {"$ref": reference}}});
        assert_eq!(
            input(&schema).unwrap_err(),
            BadSchema::Remote(reference.into())
        );
        let dynamic = json!({"type": "object", "anyOf": [{"$dynamicRef": reference}]});
        assert!(input(&dynamic).is_err());
    }
    // With a base of its own the reference looks like one into the schema, and still is none.
    let based = json!({"type": "object", "$id": "https://example.org/a/schema.json",
        "properties": {"v": {"$ref": "https://example.org/b/schema.json"}}});
    assert!(matches!(input(&based).unwrap_err(), BadSchema::Invalid(_)));
    let dangling = json!({"type": "object", "properties": {"v": {"$ref": "#/$defs/none"}}});
    assert_eq!(
        input(&dangling).unwrap_err(),
        BadSchema::Dangling("#/$defs/none".into())
    );
    // What only looks like a reference is data.
    let data = json!({"type": "object", "properties": {"$ref": {"const": {"$ref": "http://x/"}}}});
    assert_eq!(
        check(&data, &json!({"$ref": {"$ref": "http://x/"}})),
        Ok(())
    );
}

#[test]
fn a_bundle_refers_within_itself() {
    let schema = json!({
        "$id": "https://example.org/root.json",
        "type": "object",
        "properties": {"v": {"$ref": "part.json"}, "w": {"$ref": "part.json#/$defs/deep%20er"}},
        "$defs": {"part": {"$id": "part.json", "type": "string", "$defs": {"deep er": {"type": "null"}}}},
    });
    assert_eq!(check(&schema, &json!({"v": "x", "w": null})), Ok(()));
    assert_eq!(check(&schema, &json!({"v": 1})).unwrap_err().path, "/v");
    assert_eq!(check(&schema, &json!({"w": 1})).unwrap_err().path, "/w");
}

#[test]
fn an_any_object_schema_checks_only_the_root() {
    for schema in [
        json!({"type": "object"}),
        json!({"type": "object", "properties": {}, "required": [], "title": "t",
            "description": "d", "additionalProperties": true, "$schema": "http://x/"}),
    ] {
        let any = input(&schema).unwrap();
        assert!(matches!(any, Schema(SchemaCheck::AnyObject)));
        assert_eq!(any.check(" \n{\"a\": 1}"), Ok(()));
        let mismatch = any.check(&format!("[{}]", "1,".repeat(999))).unwrap_err();
        assert_eq!(
            (mismatch.path.as_str(), mismatch.keyword.as_str()),
            ("", "type")
        );
        assert!(mismatch.message.chars().count() < 250, "{mismatch}");
    }
    let strict = input(&json!({"type": "object", "additionalProperties": false})).unwrap();
    assert!(strict.check(r#"{"a":1}"#).is_err());
}

/// The cache's bound rests on it: 32 bytes for one of text, and each pattern twice what one may grow to.
#[test]
fn memory_is_estimated_from_text_and_patterns() {
    let estimate = |raw: &str| Schema::compile_output(raw).unwrap().memory_estimate();
    assert_eq!(estimate(r#"{"type":"object"}"#), 0);
    assert_eq!(estimate(r#"{"minLength":1}"#), 32 * 128);
    assert_eq!(estimate(&format!("{:500}", r#"{"minLength":1}"#)), 32 * 500);
    let patterns = r#"{"pattern":"a","patternProperties":{"b":{}}}"#;
    assert_eq!(estimate(patterns), 32 * 128 + 2 * 2 * 262_144);
}

#[test]
fn messages_stay_short() {
    let schema = json!({"type": "object", "properties": {
        "n": {"type": "integer"}, "o": {"anyOf": [{"type": "string"}, {"type": "null"}]},
        "m": {"maxProperties": 1}}, "additionalProperties": false});
    let long = "s3cret ".repeat(1000);
    let many: Value = (0..1000)
        .map(|n| (format!("key{n}"), json!(long)))
        .collect();
    let unknown: Value = (0..1000).map(|n| (format!("key{n}"), json!(1))).collect();
    for args in [
        json!({"n": long}),
        json!({"n": many}),
        json!({"o": many}),
        json!({"m": many}),
        unknown,
    ] {
        let mismatch = check(&schema, &args).unwrap_err();
        let echoed = mismatch.message.chars().count() + mismatch.path.chars().count();
        assert!(echoed <= 2 * (ECHO_MAX + 1), "{echoed} {mismatch}");
    }
}

#[test]
fn invalid_json_and_deep_nesting_are_mismatches() {
    let schema = json!({"type": "object", "maxProperties": 9});
    let schema = input(&schema).unwrap();
    assert_eq!(schema.check("{").unwrap_err().keyword, "json");
    let deep = schema.check(&nested(200)).unwrap_err();
    assert!(deep.message.contains("recursion limit"), "{deep}");
    let mut deep = json!({"type": "object"});
    for _ in 0..40 {
        deep = json!({"allOf": [deep]});
    }
    deep["type"] = json!("object");
    assert_eq!(input(&deep).unwrap_err(), BadSchema::TooDeep);
    let deep = format!(r#"{{"type":"object","a":{}}}"#, nested(200));
    assert_eq!(
        Schema::compile_input(&deep).unwrap_err(),
        BadSchema::TooDeep
    );
}

#[test]
fn circular_references_are_rejected() {
    for schema in [
        json!({"type": "object", "$ref": "#"}),
        json!({"type": "object", "allOf": [{"$ref": "#"}]}),
        json!({"type": "object", "not": {"$ref": "#"}}),
        json!({"type": "object", "$ref": "#/$defs/a",
            "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"anyOf": [{"$ref": "#/$defs/a"}]}}}),
        json!({"type": "object", "$dynamicAnchor": "x", "anyOf": [{"$dynamicRef": "#x"}]}),
        json!({"type": "object", "$schema": "https://json-schema.org/draft/2019-09/schema",
            "if": {"$recursiveRef": "#"}}),
    ] {
        assert_eq!(
            input(&schema).unwrap_err(),
            BadSchema::InfiniteReference,
            "{schema}"
        );
    }
    // Through the value they are fine.
    let tree =
        json!({"type": "object", "properties": {"c": {"anyOf": [{"$ref": "#"}, {"const": 1}]}}});
    let tree = input(&tree).unwrap();
    assert_eq!(tree.check(&nested(100)), Ok(()));
    let wrong = nested(3).replace('1', "2");
    assert_eq!(tree.check(&wrong).unwrap_err().keyword, "anyOf");
}

/// A chain of definitions, each made of the next one by `link`.
fn chain(length: usize, link: impl Fn(Value) -> Value, last: Value) -> Value {
    let mut defs = serde_json::Map::new();
    for n in 0..length {
        let next = json!({"$ref": format!("#/$defs/n{}", n + 1)});
        defs.insert(format!("n{n}"), link(next));
    }
    defs.insert(format!("n{length}"), last);
    json!({"type": "object", "$ref": "#/$defs/n0", "$defs": defs})
}

/// Each of these took minutes or the stack of the whole process before it was bounded.
#[test]
fn hostile_schemas_are_rejected_cheaply() {
    let end = json!({"type": "string"});
    let long = chain(4000, |next| next, end.clone());
    assert_eq!(input(&long).unwrap_err(), BadSchema::TooComplex);
    let doubling = chain(25, |next| json!({"anyOf": [next, next]}), end.clone());
    assert_eq!(input(&doubling).unwrap_err(), BadSchema::TooComplex);
    let patterns: Value = (0..300)
        .map(|n| (format!("{n}"), json!({"pattern": "a"})))
        .collect();
    let patterns = json!({"type": "object", "properties": patterns});
    assert_eq!(
        input(&patterns).unwrap_err(),
        BadSchema::TooManyPatterns(300)
    );
    // Far down, but never twice on the same part of the value.
    let down = chain(2000, |next| json!({"properties": {"c": next}}), end.clone());
    assert_eq!(input(&down).unwrap().check(&nested(100)), Ok(()));
    let spread = chain(
        40,
        |next| json!({"properties": {"c": next, "d": next}}),
        end,
    );
    assert_eq!(input(&spread).unwrap().check(&nested(39)), Ok(()));
}

/// Two alternatives that both go into the same member look at the innermost part 2^100 times.
#[test]
fn checks_of_hostile_values_are_bounded() {
    let branch =
        |name: &str| json!({"properties": {"c": {"$ref": "#/$defs/n"}}, "required": [name]});
    let n = json!({"anyOf": [branch("y"), branch("z")]});
    let schema = json!({"type": "object", "$ref": "#/$defs/n", "$defs": {"n": n}});
    let schema = input(&schema).unwrap();
    assert_eq!(schema.check(&nested(100)).unwrap_err().keyword, "steps");
    assert_eq!(schema.check(&nested(4)).unwrap_err().keyword, "anyOf");
    assert_eq!(schema.check(r#"{"c":{"c":{"z":1},"y":1},"z":1}"#), Ok(()));
    // A thousand looks at each of many items.
    let looks = vec![json!({"items": {"type": "integer"}}); 1000];
    let schema = json!({"type": "object", "properties": {"v": {"allOf": looks}}});
    let many = json!({"v": vec![1; 30_000]});
    assert_eq!(keyword(&schema, &many).as_deref(), Some("steps"));
    assert_eq!(check(&schema, &json!({"v": vec![1; 50]})), Ok(()));
}

/// Whatever stands between two levels of a value, checking one that nests as deep as its schema
/// allows stays within the stack of a thread.
#[test]
fn the_deepest_value_fits_the_stack() {
    let links: [fn(Value) -> Value; 8] = [
        |next| next,
        |next| json!({"allOf": [next]}),
        |next| json!({"anyOf": [{"type": "null"}, next]}),
        |next| json!({"oneOf": [next, {"type": "null"}]}),
        |next| json!({"if": next, "then": true}),
        |next| json!({"not": {"not": next}}),
        |next| json!({"dependentSchemas": {"c": next}}),
        |next| json!({"allOf": [next], "unevaluatedProperties": true}),
    ];
    for link in links {
        for length in [1, 3, 7, 11, 20, 30, 60] {
            // The innermost part does not fit, so the whole way is gone once for the verdict and
            // once, with more on the stack, for its reason.
            let deeper = json!({"$ref": "#/$defs/n0"});
            let ways = [
                json!({"type": "object", "properties": {"c": deeper}}),
                json!({"type": "object", "additionalProperties": deeper}),
                json!({"type": "object", "patternProperties": {"c": deeper}}),
            ];
            for way in ways {
                let Ok(schema) = input(&chain(length, link, way)) else {
                    continue;
                };
                for levels in [1, 10, 20, 40, 60, 120] {
                    let verdict = schema.check(&nested(levels));
                    let cut_off = verdict.is_err_and(|mismatch| mismatch.keyword == "depth");
                    assert!(
                        !cut_off || length * levels > 100,
                        "{length} links, {levels} levels"
                    );
                }
            }
        }
    }
}

#[test]
fn schemas_are_shared_between_threads() {
    fn shared<T: Send + Sync>() {}
    shared::<Schema>();
}

/// The representation keeps to what the validator expects of one.
#[test]
fn metered_values_validate_like_plain_ones() {
    let value = json!({"a": [1, 1.0, "x", null, true, {"b": []}], "c": {"d": 1e300}});
    for part in [
        json!({"properties": {"a": {"contains": {"type": "string"}, "minContains": 2}}}),
        json!({"properties": {"a": {"minItems": 6, "uniqueItems": true}}}),
        json!({"properties": {"c": {"const": {"d": 1e300}}}}),
        json!({"properties": {"c": {"enum": [1, {"d": 1}]}}}),
        json!({"maxProperties": 2, "propertyNames": {"pattern": "^.$"}}),
        json!({"additionalProperties": {"type": ["array", "null"]}}),
        json!({"properties": {"a": {"items": {"type": ["integer", "string", "null", "boolean"]}}}}),
    ] {
        let plain = jsonschema::validator_for(&part).unwrap().is_valid(&value);
        let mut schema = part;
        schema["type"] = json!("object");
        assert_eq!(check(&schema, &value).is_ok(), plain, "{schema}");
    }
}

proptest! {
    /// CMCP-011: bounded or not, the verdict on small values is the validator's own.
    #[test]
    fn the_verdict_equals_that_of_the_validator(
        minimum in 0i64..4, required in proptest::collection::vec("[ab]", 0..2),
        values in proptest::collection::btree_map("[abc]", -2i64..6, 0..4),
    ) {
        let schema = json!({"type": "object", "required": required,
            "properties": {"a": {"minimum": minimum}, "b": {"not": {"const": 3}}},
            "additionalProperties": {"$ref": "#/properties/a"}});
        let value = json!(values);
        let plain = jsonschema::validator_for(&schema).unwrap().is_valid(&value);
        prop_assert_eq!(keyword(&schema, &value).is_none(), plain);
    }

    #[test]
    fn no_text_breaks_compiling(raw in r#"[{}\[\]":,a$ref/#typeobjc0-9]{0,60}"#) {
        let _ = Schema::compile_input(&raw);
        let _ = Schema::compile_output(&raw);
        let wrapped = format!(r#"{{"type":"object","properties":{raw}}}"#);
        let _ = Schema::compile_input(&wrapped);
    }
}

/// A pattern that is no regular expression in Unicode mode, or too large a one, is its server's to judge: all else of the
/// schema is judged here, and what looks like a pattern in a value stays.
#[test]
fn unreadable_patterns_are_skipped() {
    let email = r"^[\w-\.]+@([\w-]+\.)+[\w-]{2,4}$";
    for pattern in [email, "(", "(a{1000}){1000}"] {
        let schema = json!({
            "type": "object",
            "properties": {
                "a": {"type": "string", "pattern": pattern, "minLength": 3},
                "b": {"type": "string", "pattern": "^b$"},
                "c": {"const": {"pattern": pattern}},
            },
        });
        assert_eq!(keyword(&schema, &json!({"a": "any", "b": "b"})), None);
        let wrong = [
            (json!({"a": "x"}), "minLength"),
            (json!({"b": "x"}), "pattern"),
            (json!({"c": {}}), "const"),
        ];
        for (args, failed) in wrong {
            assert_eq!(
                keyword(&schema, &args).as_deref(),
                Some(failed),
                "{pattern}"
            );
        }
    }
}
