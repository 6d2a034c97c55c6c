//! Tools in short, for answers of searches that a model reads before it chooses.

use mgp_json::{elements, member, members, unquote};

/// Most bytes of a description in short.
const SENTENCE_MAX: usize = 120;
/// Most bytes of the arguments in short.
const ARGUMENTS_MAX: usize = 240;
/// Most bytes of the choices of one argument.
const CHOICES_MAX: usize = 60;

/// The first sentence of a description, on one line.
#[must_use]
pub fn first_sentence(description: &str) -> String {
    let line = description.trim().lines().next().unwrap_or_default().trim();
    let end = line.find(". ").map_or(line.len(), |at| at + 1);
    truncate(line[..end].to_owned(), SENTENCE_MAX)
}

/// The arguments of an input schema: `path, [limit: integer]`. Texts have no type, optional ones are in brackets;
/// those that do not fit are left out, and counted.
#[must_use]
pub fn arguments(schema: &str) -> String {
    let required = member(schema, "required").and_then(elements);
    let required: Vec<String> = required
        .into_iter()
        .flatten()
        .filter_map(|name| unquote(name.get()))
        .map(Into::into)
        .collect();
    let properties = member(schema, "properties").and_then(members);
    let mut all: Vec<_> = properties.unwrap_or_default();
    // Required ones first, each in the order of the schema.
    all.sort_by_key(|(name, _)| !required.iter().any(|needed| *needed == **name));
    let (mut text, mut left_out) = (String::new(), 0);
    for (name, value) in &all {
        let is_required = required.iter().any(|needed| *needed == **name);
        let one = match kind(value.get()) {
            Some(kind) => format!("{name}: {kind}"),
            None => name.to_string(),
        };
        let one = if is_required { one } else { format!("[{one}]") };
        if text.len() + one.len() > ARGUMENTS_MAX {
            left_out += 1;
            continue;
        }
        if !text.is_empty() {
            text.push_str(", ");
        }
        text.push_str(&one.replace(char::is_control, " "));
    }
    if left_out > 0 {
        text.push_str(&format!(", … {left_out} more"));
    }
    text
}

/// The type of an argument; `None` for a text.
fn kind(schema: &str) -> Option<String> {
    if let Some(choices) = member(schema, "enum") {
        let choices = elements(choices).unwrap_or_default();
        let choices: Vec<&str> = choices
            .iter()
            .map(|choice| choice.get().trim_matches('"'))
            .collect();
        return Some(truncate(choices.join("|"), CHOICES_MAX));
    }
    let kind = member(schema, "type").unwrap_or("\"any\"");
    match kind.trim_matches('"') {
        "string" => None,
        "array" => {
            let item = member(schema, "items").and_then(|items| member(items, "type"));
            Some(format!(
                "list of {}",
                item.unwrap_or("any").trim_matches('"')
            ))
        }
        kind => Some(truncate(kind.to_owned(), CHOICES_MAX)),
    }
}

fn truncate(mut text: String, max: usize) -> String {
    if text.len() > max {
        text.truncate(text.floor_char_boundary(max));
        text.push('…');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn description_is_its_first_sentence() {
        assert_eq!(first_sentence("Reads a file. Fails if…"), "Reads a file.");
        assert_eq!(
            first_sentence("\n  Reads v1.2 files\nmore"),
            "Reads v1.2 files"
        );
        assert_eq!(first_sentence(""), "");
    }

    #[test]
    fn arguments_are_named_with_their_types() {
        let schema = r#"{"type":"object","properties":{
            "limit":{"type":"integer"},"path":{"type":"string"},"unit":{"enum":["c","f"]},
            "tags":{"type":"array","items":{"type":"string"}},"any":{},"both":{"type":["string","null"]}
        },"required":["path","tags"]}"#;
        let wanted = r#"path, tags: list of string, [limit: integer], [unit: c|f], [any: any], [both: ["string","null"]]"#;
        assert_eq!(arguments(schema), wanted);
        assert_eq!(arguments("{}"), "");
    }

    #[test]
    fn arguments_that_do_not_fit_are_counted() {
        let many: Vec<String> = (0..100)
            .map(|n| format!(r#""argument{n}":{{"type":"string"}}"#))
            .collect();
        let text = arguments(&format!(r#"{{"properties":{{{}}}}}"#, many.join(",")));
        assert!(
            text.ends_with("… 81 more") || text.contains("more"),
            "{text}"
        );
        assert!(text.len() < 2 * ARGUMENTS_MAX, "{text}");
    }

    proptest! {
        #[test]
        fn result_is_one_bounded_line(name in ".{0,400}", description in "(?s).{0,400}") {
            let schema = serde_json::json!({"properties": {name: {"type": "string"}}}).to_string();
            let text = arguments(&schema);
            prop_assert!(text.len() <= 2 * ARGUMENTS_MAX && !text.contains('\n'));
            let text = first_sentence(&description);
            prop_assert!(text.len() <= SENTENCE_MAX + 3 && !text.contains('\n'));
        }
    }
}
