//! A server's question (`elicitation/create` with a form), asked at the terminal field by field.

mod field;

use std::io::{self, BufRead, Write};

use serde_json::{Map, Value, json};

use crate::cli::words::plain;
use field::{FormField, fields};

/// Typed for "I do not want to answer".
const DECLINE: &str = "/decline";
/// Wrong answers to one field before the whole question is given up.
const TRIES: usize = 5;

/// Asks on stderr and reads from stdin; answers the result of `elicitation/create`.
pub(in crate::cli) fn ask_here(params: &Value) -> Value {
    ask(params, &mut io::stdin().lock(), &mut io::stderr().lock())
}

/// An answer that is no content.
enum NotAnswered {
    Declined,
    Gone,
}

fn ask(params: &Value, input: &mut dyn BufRead, output: &mut dyn Write) -> Value {
    match fill(params, input, output) {
        Ok(Ok(content)) => json!({"action": "accept", "content": content}),
        Ok(Err(NotAnswered::Declined)) => json!({"action": "decline"}),
        Ok(Err(NotAnswered::Gone)) | Err(_) => json!({"action": "cancel"}),
    }
}

fn fill(
    params: &Value,
    input: &mut dyn BufRead,
    output: &mut dyn Write,
) -> io::Result<Result<Map<String, Value>, NotAnswered>> {
    if params["mode"].as_str().is_some_and(|mode| mode != "form") {
        return Ok(Err(NotAnswered::Declined));
    }
    writeln!(
        output,
        "\n{}",
        plain(params["message"].as_str().unwrap_or_default())
    )?;
    writeln!(
        output,
        "(Enter takes what is in brackets, {DECLINE} declines)"
    )?;
    let mut content = Map::new();
    for field in fields(&params["requestedSchema"]) {
        match one(&field, input, output)? {
            Ok(Some(value)) => {
                content.insert(field.name.to_owned(), value);
            }
            Ok(None) => {}
            Err(unanswered) => return Ok(Err(unanswered)),
        }
    }
    Ok(Ok(content))
}

/// Asks for one field until the answer fits.
fn one(
    field: &FormField<'_>,
    input: &mut dyn BufRead,
    output: &mut dyn Write,
) -> io::Result<Result<Option<Value>, NotAnswered>> {
    for _ in 0..TRIES {
        write!(output, "{}: ", field.prompt())?;
        output.flush()?;
        let mut line = String::new();
        if input.read_line(&mut line)? == 0 {
            return Ok(Err(NotAnswered::Gone));
        }
        if line.trim() == DECLINE {
            return Ok(Err(NotAnswered::Declined));
        }
        match field.read(line.trim()) {
            Ok(value) => return Ok(Ok(value)),
            Err(wrong) => writeln!(output, "  {wrong}")?,
        }
    }
    Ok(Err(NotAnswered::Gone))
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
        let answer = ask(&params, &mut typed.as_bytes(), &mut output);
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
    fn defaults_are_taken_and_what_is_optional_may_stay_away() {
        let (answer, _) = form("Ada\n\n\n\n\n");
        let content = json!({"name": "Ada", "colour": "blue", "spam": false});
        assert_eq!(answer, json!({"action": "accept", "content": content}));
    }

    #[test]
    fn what_does_not_fit_is_asked_again() {
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
    fn a_person_may_decline_or_leave() {
        assert_eq!(form("Ada\n/decline\n").0, json!({"action": "decline"}));
        assert_eq!(form("Ada\n").0, json!({"action": "cancel"}));
        assert_eq!(form(&"\n".repeat(9)).0, json!({"action": "cancel"}));
    }
}
