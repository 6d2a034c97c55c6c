//! Breaks reference cycles without a step into the value: they have no meaning, and programs that follow
//! them do not terminate.

use std::collections::{HashMap, HashSet};

use serde_json::{Map, Value};

use super::COMPONENTS;

/// Removes the references of such cycles. Those through properties and items stay.
pub(super) fn break_cycles(schemas: &mut Map<String, Value>) {
    let mut ahead: HashMap<String, HashSet<String>> = HashMap::new();
    for (name, schema) in schemas.iter_mut() {
        let all = ahead.entry(name.clone()).or_default();
        retain_references(schema, &mut |to| {
            all.insert(to.to_owned());
            true
        });
    }
    // A schema that references nothing is in no cycle; neither is one that references only such.
    loop {
        let ends: Vec<String> = ahead
            .iter()
            .filter(|(_, to)| to.is_empty())
            .map(|(name, _)| name.clone())
            .collect();
        if ends.is_empty() {
            break;
        }
        for end in ends {
            ahead.remove(&end);
            for to in ahead.values_mut() {
                to.remove(&end);
            }
        }
    }
    for (name, schema) in schemas
        .iter_mut()
        .filter(|(name, _)| ahead.contains_key(*name))
    {
        let circle = &ahead[name];
        retain_references(schema, &mut |to| !circle.contains(to));
    }
}

/// Keeps the references to the same value that `stays` accepts.
fn retain_references(schema: &mut Value, stays: &mut impl FnMut(&str) -> bool) {
    let Some(said) = schema.as_object_mut() else {
        return;
    };
    let referred = said.get("$ref").and_then(Value::as_str);
    let to = referred.and_then(|referred| referred.strip_prefix(COMPONENTS));
    if to.is_some_and(|to| !stays(to)) {
        said.remove("$ref");
    }
    for (key, value) in said {
        match (key.as_str(), value) {
            ("allOf" | "anyOf" | "oneOf", Value::Array(all)) => {
                all.iter_mut().for_each(|one| retain_references(one, stays));
            }
            ("not" | "if" | "then" | "else", one) => retain_references(one, stays),
            _ => {}
        }
    }
}
