//! The arguments of a tool, as typed.

use std::fs;

use serde_json::{Map, Value};

use crate::cli::failure::Failure;

/// The arguments after the tool's name.
pub(super) enum TypedArguments {
    /// The whole object.
    Object(Map<String, Value>),
    /// Keys and values, parsed by the tool's schema.
    Pairs(Vec<(String, String)>),
}

/// Parses `KEY=VALUE …`, `@FILE` or `--json-args`.
pub(super) fn parse(words: &[String], json: Option<&str>) -> Result<TypedArguments, Failure> {
    match (json, words) {
        (Some(json), _) => parse_object(json, "--json-args").map(TypedArguments::Object),
        (None, [one]) if one.starts_with('@') => {
            let file = &one[1..];
            let text =
                fs::read_to_string(file).map_err(|e| usage_failure(format!("{file}: {e}")))?;
            parse_object(&text, file).map(TypedArguments::Object)
        }
        (None, [one]) if one.starts_with('{') => {
            parse_object(one, "the argument").map(TypedArguments::Object)
        }
        (None, pairs) => pairs
            .iter()
            .map(|word| parse_pair(word))
            .collect::<Result<_, _>>()
            .map(TypedArguments::Pairs),
    }
}

fn parse_pair(word: &str) -> Result<(String, String), Failure> {
    match word.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err(usage_failure(format!(
            "`{word}` is not KEY=VALUE; a JSON object, or @FILE with one, stands alone"
        ))),
    }
}

fn parse_object(text: &str, from: &str) -> Result<Map<String, Value>, Failure> {
    serde_json::from_str(text)
        .map_err(|e| usage_failure(format!("{from} wants a JSON object: {e}")))
}

fn usage_failure(message: String) -> Failure {
    Failure::Usage(message)
}

/// Parses `KEY=VALUE …` with text values.
pub(in crate::cli::commands) fn parse_text_pairs(
    words: &[String],
) -> Result<Map<String, Value>, Failure> {
    let mut object = Map::new();
    for word in words {
        let (key, text) = parse_pair(word)?;
        if object.insert(key.clone(), text.into()).is_some() {
            return Err(usage_failure(format!("`{key}` is given twice")));
        }
    }
    Ok(object)
}

/// Parses each value by the tool's `inputSchema`; without one, by its form.
pub(super) fn parse_by_schema(
    pairs: Vec<(String, String)>,
    schema: Option<&Value>,
) -> Result<Map<String, Value>, Failure> {
    let mut object = Map::new();
    for (key, text) in pairs {
        let property = schema.map(|schema| &schema["properties"][&key]);
        let value = parse_value(&key, &text, &json_types(property))?;
        if object.insert(key.clone(), value).is_some() {
            return Err(usage_failure(format!("`{key}` is given twice")));
        }
    }
    Ok(object)
}

/// The possible JSON types of a property; none if the schema does not declare them simply.
fn json_types(property: Option<&Value>) -> Vec<&str> {
    match property.map(|property| &property["type"]) {
        Some(Value::String(kind)) => vec![kind],
        Some(Value::Array(kinds)) => kinds.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    }
}

fn parse_value(key: &str, text: &str, kinds: &[&str]) -> Result<Value, Failure> {
    let json = || serde_json::from_str::<Value>(text).ok();
    if kinds.is_empty() {
        return Ok(json().unwrap_or_else(|| text.into()));
    }
    let fits = |value: &Value| kinds.iter().any(|kind| has_json_type(value, kind));
    match json().filter(|value| fits(value) && !value.is_string()) {
        Some(value) => Ok(value),
        None if kinds.contains(&"string") => Ok(text.into()),
        None => Err(usage_failure(format!(
            "`{key}` wants {}, not `{text}`",
            kinds.join(" or ")
        ))),
    }
}

fn has_json_type(value: &Value, kind: &str) -> bool {
    match value {
        Value::Null => kind == "null",
        Value::Bool(_) => kind == "boolean",
        Value::Number(n) => kind == "number" || (kind == "integer" && !n.is_f64()),
        Value::String(_) => kind == "string",
        Value::Array(_) => kind == "array",
        Value::Object(_) => kind == "object",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn words(words: &[&str]) -> Vec<String> {
        words.iter().map(|w| (*w).to_owned()).collect()
    }

    fn pairs(given: &[&str], schema: Option<&Value>) -> Result<Value, String> {
        match parse(&words(given), None).map_err(|e| e.to_string())? {
            TypedArguments::Pairs(pairs) => parse_by_schema(pairs, schema)
                .map(Value::Object)
                .map_err(|e| e.to_string()),
            TypedArguments::Object(object) => Ok(object.into()),
        }
    }

    #[test]
    fn arguments_can_be_one_object() {
        let given = json!({"path": "/x", "deep": [1]});
        assert_eq!(pairs(&[&given.to_string()], None), Ok(given));
        let broken = pairs(&["{\"path\": "], None).unwrap_err();
        assert!(broken.contains("wants a JSON object"), "{broken}");
        let two = pairs(&["{}", "a=1"], None).unwrap_err();
        assert!(two.contains("stands alone"), "{two}");
    }

    #[test]
    fn values_are_parsed_by_the_schema() {
        let schema = json!({"properties": {
            "s": {"type": "string"}, "n": {"type": "integer"}, "b": {"type": "boolean"},
            "l": {"type": "array"}, "m": {"type": ["string", "null"]},
        }});
        let given = ["s=7", "n=7", "b=true", "l=[1]", "m=null", "other=x=y"];
        let want = json!({"s": "7", "n": 7, "b": true, "l": [1], "m": null, "other": "x=y"});
        assert_eq!(pairs(&given, Some(&schema)), Ok(want));
        for (given, why) in [
            ("n=seven", "`n` wants integer"),
            ("n=1.5", "integer"),
            ("l=a", "array"),
        ] {
            let error = pairs(&[given], Some(&schema)).unwrap_err();
            assert!(error.contains(why), "{error}");
        }
    }

    #[test]
    fn without_a_schema_values_are_parsed_by_their_form() {
        let want = json!({"a": 1, "b": "text", "c": {"d": []}, "e": "x"});
        assert_eq!(
            pairs(&["a=1", "b=text", r#"c={"d":[]}"#, r#"e="x""#], None),
            Ok(want)
        );
    }

    #[test]
    fn invalid_arguments_are_rejected_before_any_call() {
        assert!(pairs(&["lonely"], None).unwrap_err().contains("KEY=VALUE"));
        assert!(pairs(&["a=1", "a=2"], None).unwrap_err().contains("twice"));
        assert!(parse(&[], Some("[1]")).is_err_and(|e| e.exit_code() == 2));
    }

    #[test]
    fn a_file_holds_all_arguments() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a.json");
        fs::write(&file, r#"{"a": 1}"#).unwrap();
        let word = format!("@{}", file.display());
        assert_eq!(pairs(&[&word], None), Ok(json!({"a": 1})));
    }
}
