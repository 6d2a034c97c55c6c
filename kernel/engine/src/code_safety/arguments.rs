//! Which arguments of a call are code: those named so, and those whose schema says so.

use serde_json::Value;

/// Names under which tools take code.
const NAMES: [&str; 3] = ["code", "source", "script"];

/// A piece of code within the arguments of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Code<'a> {
    /// Name of the argument.
    pub argument: &'a str,
    /// The code itself.
    pub text: &'a str,
}

/// The code in the arguments of a call: every string in an argument that is named `code`, `source` or
/// `script` in any case, or whose property in `inputSchema` has the format `code`.
#[must_use]
pub fn code_arguments<'a>(input_schema: &Value, arguments: &'a Value) -> Vec<Code<'a>> {
    let formats = |name: &str| {
        let property = input_schema.get("properties").and_then(|p| p.get(name));
        property
            .and_then(|p| p.get("format"))
            .and_then(Value::as_str)
            == Some("code")
    };
    let mut out = Vec::new();
    for (name, value) in arguments.as_object().into_iter().flatten() {
        if NAMES.iter().any(|n| name.eq_ignore_ascii_case(n)) || formats(name) {
            strings(name, value, &mut out);
        }
    }
    out
}

/// Every string in a value; JSON that was read is at most 128 deep.
fn strings<'a>(argument: &'a str, value: &'a Value, out: &mut Vec<Code<'a>>) {
    match value {
        Value::String(text) => out.push(Code { argument, text }),
        Value::Array(list) => list.iter().for_each(|v| strings(argument, v, out)),
        Value::Object(members) => members.values().for_each(|v| strings(argument, v, out)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// MGP-104, A-24: code is found by name and by format, and nothing else is taken for code.
    #[test]
    fn code_is_found_by_name_and_by_format() {
        let schema = json!({"properties": {"body": {"type": "string", "format": "code"}}});
        let arguments = json!({
            "Code": "a", "script": ["b", {"x": "c"}], "body": "d", "name": "e", "language": "python"
        });
        let found: Vec<&str> = code_arguments(&schema, &arguments)
            .iter()
            .map(|c| c.text)
            .collect();
        assert_eq!(found, ["a", "b", "c", "d"]);
        assert!(code_arguments(&schema, &json!("code")).is_empty());
    }
}
