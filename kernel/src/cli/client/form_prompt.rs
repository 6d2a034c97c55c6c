//! Prompts for a server's elicitation (`elicitation/create` with a form), and for missing required arguments of a tool,
//! field by field.

mod field;

use std::io::{self, BufRead, Write};

use serde_json::{Map, Value, json};

use crate::cli::text_format::{first_line, indent_continuations};
use field::{FormField, fields, missing_arguments};

/// Declines to answer.
const DECLINE_COMMAND: &str = "/decline";
/// Invalid answers to one field before the elicitation is cancelled.
const FIELD_ATTEMPTS: usize = 5;

/// Prompts on stderr and reads from stdin; returns the result of `elicitation/create`.
pub(in crate::cli) fn prompt_elicitation(params: &Value) -> Value {
    run_elicitation(params, &mut io::stdin().lock(), &mut io::stderr())
}

/// Most arguments to prompt for; tools with more are given them in a file.
const MISSING_ARGUMENTS_MAX: usize = 30;

/// Whether arguments are missing that can be prompted for.
pub(in crate::cli) fn has_promptable_missing(schema: &Value, given: &Map<String, Value>) -> bool {
    (1..=MISSING_ARGUMENTS_MAX).contains(&missing_arguments(schema, given).len())
}

/// Prompts for the missing required arguments of the tool `name`; `None` if the user declines.
pub(in crate::cli) fn prompt_missing_arguments(
    name: &str,
    schema: &Value,
    given: &Map<String, Value>,
) -> Option<Map<String, Value>> {
    // Not locked, so that an interrupt can be reported meanwhile.
    let (input, output) = (&mut io::stdin().lock(), &mut io::stderr());
    fill_missing(name, schema, given, input, output)
        .ok()
        .flatten()
}

fn fill_missing(
    name: &str,
    schema: &Value,
    given: &Map<String, Value>,
    input: &mut dyn BufRead,
    output: &mut dyn Write,
) -> io::Result<Option<Map<String, Value>>> {
    writeln!(
        output,
        "{} needs more (Enter takes what is in brackets, Ctrl-C ends):",
        first_line(name, 200)
    )?;
    let mut content = given.clone();
    for field in missing_arguments(schema, given) {
        // Any text may be an argument.
        match prompt_field(&field, None, input, output)? {
            Ok(value) => content.extend(value.map(|value| (field.name.to_owned(), value))),
            Err(FormAbort::Declined | FormAbort::InputClosed) => return Ok(None),
        }
    }
    Ok(Some(content))
}

/// An answer without content.
enum FormAbort {
    Declined,
    InputClosed,
}

fn run_elicitation(params: &Value, input: &mut dyn BufRead, output: &mut dyn Write) -> Value {
    match fill_form(params, input, output) {
        Ok(Ok(content)) => json!({"action": "accept", "content": content}),
        Ok(Err(FormAbort::Declined)) => json!({"action": "decline"}),
        Ok(Err(FormAbort::InputClosed)) | Err(_) => json!({"action": "cancel"}),
    }
}

fn fill_form(
    params: &Value,
    input: &mut dyn BufRead,
    output: &mut dyn Write,
) -> io::Result<Result<Map<String, Value>, FormAbort>> {
    if params["mode"].as_str().is_some_and(|mode| mode != "form") {
        return Ok(Err(FormAbort::Declined));
    }
    writeln!(
        output,
        "\n{}",
        indent_continuations(params["message"].as_str().unwrap_or_default(), "  | ")
    )?;
    writeln!(
        output,
        "(Enter takes what is in brackets, {DECLINE_COMMAND} declines)"
    )?;
    let mut content = Map::new();
    for field in fields(&params["requestedSchema"]) {
        match prompt_field(&field, Some(DECLINE_COMMAND), input, output)? {
            Ok(Some(value)) => {
                content.insert(field.name.to_owned(), value);
            }
            Ok(None) => {}
            Err(unanswered) => return Ok(Err(unanswered)),
        }
    }
    Ok(Ok(content))
}

/// Prompts for one field until the answer is valid.
fn prompt_field(
    field: &FormField<'_>,
    decline: Option<&str>,
    input: &mut dyn BufRead,
    output: &mut dyn Write,
) -> io::Result<Result<Option<Value>, FormAbort>> {
    for _ in 0..FIELD_ATTEMPTS {
        write!(output, "{}: ", field.prompt_text())?;
        output.flush()?;
        let mut line = String::new();
        if input.read_line(&mut line)? == 0 {
            return Ok(Err(FormAbort::InputClosed));
        }
        if decline == Some(line.trim()) {
            return Ok(Err(FormAbort::Declined));
        }
        match field.parse_input(line.trim()) {
            Ok(value) => return Ok(Ok(value)),
            Err(wrong) => writeln!(output, "  {wrong}")?,
        }
    }
    Ok(Err(FormAbort::InputClosed))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn form(typed: &str) -> (Value, String) {
        let params = json!({"message": "Who are you?", "requestedSchema": {
            "type": "object",
            "required": ["name"],
            "properties": {
                "name": {"type": "string", "title": "Name", "minLength": 2},
                "age": {"type": "integer", "minimum": 0, "maximum": 150},
                "colour": {"type": "string", "enum": ["red", "blue"], "default": "blue"},
                "tags": {"type": "array", "items": {"anyOf": [
                    {"const": "a", "title": "Alpha"}, {"const": "b", "title": "Beta"}]}},
                "spam": {"type": "boolean", "default": false},
            },
        }});
        let mut output = Vec::new();
        let answer = run_elicitation(&params, &mut typed.as_bytes(), &mut output);
        (answer, String::from_utf8(output).unwrap())
    }

    #[test]
    fn a_form_is_filled_in_field_by_field() {
        let (answer, shown) = form("Ada\n36\n1\n2, Alpha\ny\n");
        let content =
            json!({"name": "Ada", "age": 36, "colour": "red", "tags": ["b", "a"], "spam": true});
        assert_eq!(answer, json!({"action": "accept", "content": content}));
        assert!(shown.contains("Who are you?"), "{shown}");
        assert!(shown.contains("colour (1 red, 2 blue) [blue]: "), "{shown}");
    }

    #[test]
    fn defaults_apply_and_optional_fields_may_be_omitted() {
        let (answer, _) = form("Ada\n\n\n\n\n");
        let content = json!({"name": "Ada", "colour": "blue", "spam": false});
        assert_eq!(answer, json!({"action": "accept", "content": content}));
    }

    #[test]
    fn invalid_answers_are_asked_again() {
        let (answer, shown) = form("\nA\nAda\nold\n200\n36\ngreen\nred\n\n\n");
        let content = json!({"name": "Ada", "age": 36, "colour": "red", "spam": false});
        assert_eq!(answer, json!({"action": "accept", "content": content}));
        for said in [
            "needs an answer",
            "at least 2",
            "whole number",
            "at most 150",
            "one of",
        ] {
            assert!(shown.contains(said), "{said} is not in {shown}");
        }
    }

    #[test]
    fn the_user_may_decline_or_cancel() {
        assert_eq!(form("Ada\n/decline\n").0, json!({"action": "decline"}));
        assert_eq!(form("Ada\n").0, json!({"action": "cancel"}));
        assert_eq!(form(&"\n".repeat(9)).0, json!({"action": "cancel"}));
    }

    fn prompt_for(schema: &Value, given: Value, typed: &str) -> (Option<Value>, String) {
        let Value::Object(given) = given else {
            panic!("arguments are an object");
        };
        let mut output = Vec::new();
        let filled = fill_missing("it:x", schema, &given, &mut typed.as_bytes(), &mut output);
        (
            filled.unwrap().map(Value::Object),
            String::from_utf8(output).unwrap(),
        )
    }

    #[test]
    fn missing_arguments_are_prompted_by_type() {
        let schema = json!({
            "required": ["size", "path", "deep", "tags", "where", "any", "given"],
            "properties": {
                "path": {"type": "string", "title": "Something else", "description": "A folder"},
                "size": {"enum": [1, 2], "default": 2},
                "deep": {"type": ["null", "boolean"]},
                "tags": {"type": "array"}, "where": {"type": "object"},
                "given": {"type": "string"}, "optional": {"type": "string"},
            },
        });
        let typed = "/decline\n\nmaybe\ny\na, b\n[1]\n{\"x\": 1}\n7\n";
        let (filled, shown) = prompt_for(&schema, json!({"given": "g"}), typed);
        let want = json!({"given": "g", "path": "/decline", "size": 2, "deep": true, "tags": [1],
                          "where": {"x": 1}, "any": 7});
        assert_eq!(filled, Some(want));
        for said in [
            "path, A folder: ",
            "size (1 1, 2 2) [2]: ",
            "y or n",
            "a list in JSON",
        ] {
            assert!(shown.contains(said), "{said} is not in {shown}");
        }
        assert!(!shown.contains("optional") && !shown.contains("given"));
        assert_eq!(prompt_for(&schema, json!({}), "a\n").0, None);
        assert!(!has_promptable_missing(
            &json!({"required": ["a"]}),
            &Map::from_iter([("a".into(), json!(1))])
        ));
        let many: Vec<String> = (0..=MISSING_ARGUMENTS_MAX).map(|n| n.to_string()).collect();
        assert!(!has_promptable_missing(
            &json!({"required": many}),
            &Map::new()
        ));
    }
}
