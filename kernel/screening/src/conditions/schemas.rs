//! Compares the members that a condition reads with the schema of a tool.

use serde_json::Value;

use super::names::nearest;
use super::syntax::{Expression, Fact, Node};

/// Keywords with which a schema may have more members than its `properties` name.
const OPEN_KEYWORDS: [&str; 10] = [
    "$ref",
    "$dynamicRef",
    "allOf",
    "anyOf",
    "oneOf",
    "if",
    "patternProperties",
    "dependentSchemas",
    "unevaluatedProperties",
    "propertyNames",
];

/// The members of the arguments that an expression reads, each as its path from the arguments on.
pub(super) fn read_members<'n>(node: &'n Node, paths: &mut Vec<Vec<&'n str>>) {
    if let Some(path) = argument_path(node).filter(|path| !path.is_empty()) {
        paths.push(path);
        return;
    }
    for child in node.children() {
        read_members(child, paths);
    }
}

fn argument_path(node: &Node) -> Option<Vec<&str>> {
    match &node.expression {
        Expression::Fact(Fact::Arguments) => Some(Vec::new()),
        Expression::Member(object, name) | Expression::Has(object, name) => {
            let mut path = argument_path(object)?;
            path.push(name);
            Some(path)
        }
        _ => None,
    }
}

/// Why a member cannot be there by this schema, if so.
pub(super) fn find_misspelt(path: &[&str], schema: &Value) -> Option<String> {
    let mut schema = schema;
    let mut before = "args".to_owned();
    for name in path {
        let is_open = OPEN_KEYWORDS.iter().any(|word| schema.get(word).is_some());
        let properties = schema.get("properties").and_then(Value::as_object);
        let additional = schema.get("additionalProperties");
        let is_open = is_open || additional.is_some_and(|more| *more != Value::Bool(false));
        match properties.and_then(|all| all.get(*name)) {
            Some(inner) => schema = inner,
            None if is_open => return None,
            // An inner schema that says nothing of members.
            None if properties.is_none() && before != "args" => return None,
            None => {
                let known = properties
                    .into_iter()
                    .flatten()
                    .map(|(name, _)| name.as_str());
                let hint = nearest(name, known);
                return Some(format!("{before}.{name} is no argument of the tool{hint}"));
            }
        }
        before = format!("{before}.{name}");
    }
    None
}
