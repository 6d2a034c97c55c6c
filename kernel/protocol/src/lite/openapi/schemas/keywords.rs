//! The keywords of a schema, each with the form it must have (JSON Schema 2020-12, 10 and
//! Validation 6 to 9).

use std::collections::HashSet;

use serde_json::{Map, Value, json};

use super::{DEPTH_MAX, TooManyValues, Translation};

/// What a schema may say a value is.
const TYPES: [&str; 7] = [
    "array", "boolean", "integer", "null", "number", "object", "string",
];

impl Translation<'_> {
    /// Puts one keyword of `said` into what is made, if it has its form.
    pub(super) fn keyword(
        &mut self,
        said: &Map<String, Value>,
        (key, value): (&str, &Value),
        depth: usize,
        made: &mut Map<String, Value>,
    ) -> Result<(), TooManyValues> {
        let read = match key {
            "properties" | "patternProperties" | "dependentSchemas" => self.named(value, depth)?,
            "allOf" | "anyOf" | "oneOf" | "prefixItems" => self.listed(value, depth)?,
            "items" if value.is_array() => {
                if let Some(first) = self
                    .listed(value, depth)?
                    .filter(|_| !said.contains_key("prefixItems"))
                {
                    made.insert("prefixItems".into(), first);
                }
                None
            }
            // After a list of items, it says what the others are.
            "additionalItems" => {
                if said.get("items").is_some_and(Value::is_array) {
                    made.insert("items".into(), self.schema(value, depth)?);
                }
                None
            }
            "additionalProperties" | "unevaluatedProperties" | "unevaluatedItems" => {
                match value.is_boolean() {
                    true if names_a_reference(said) => None,
                    true => Some(value.clone()),
                    false => Some(self.schema(value, depth)?),
                }
            }
            "items" | "not" | "if" | "then" | "else" | "contains" | "propertyNames"
            | "contentSchema" => Some(self.schema(value, depth)?),
            "dependencies" => {
                self.dependencies(value, depth, made)?;
                None
            }
            // Said as a list of one: some programs take a constant that is a list or an object for an error.
            "const" if value.is_array() || value.is_object() => {
                if let Some(value) = self.data(value)? {
                    made.insert("enum".into(), json!([value]));
                }
                None
            }
            "const" | "default" => self.data(value)?,
            "enum" | "examples" => match value.as_array() {
                Some(all) if !all.is_empty() => self.data(value)?,
                Some(_) | None => None,
            },
            "exclusiveMaximum" => limit(value, said.get("maximum")),
            "exclusiveMinimum" => limit(value, said.get("minimum")),
            _ => plain(key, value),
        };
        if let Some(read) = read {
            made.insert(key.to_owned(), read);
        }
        Ok(())
    }

    fn named(&mut self, all: &Value, depth: usize) -> Result<Option<Value>, TooManyValues> {
        let Some(all) = all.as_object() else {
            return Ok(None);
        };
        let mut made = Map::new();
        for (name, schema) in all.iter().filter(|(name, _)| *name != "$ref") {
            made.insert(name.clone(), self.schema(schema, depth)?);
        }
        Ok(Some(made.into()))
    }

    fn listed(&mut self, all: &Value, depth: usize) -> Result<Option<Value>, TooManyValues> {
        let Some(all) = all.as_array().filter(|all| !all.is_empty()) else {
            return Ok(None);
        };
        let made: Result<Vec<Value>, _> = all.iter().map(|one| self.schema(one, depth)).collect();
        Ok(Some(made?.into()))
    }

    /// What drafts before 2019-09 say in one: names that must be there, or a schema that must hold, where
    /// another name is.
    fn dependencies(
        &mut self,
        all: &Value,
        depth: usize,
        made: &mut Map<String, Value>,
    ) -> Result<(), TooManyValues> {
        let (mut required, mut schemas) = (Map::new(), Map::new());
        for (name, what) in all
            .as_object()
            .into_iter()
            .flatten()
            .filter(|(name, _)| *name != "$ref")
        {
            match strings(what) {
                Some(names) => drop(required.insert(name.clone(), names)),
                None => drop(schemas.insert(name.clone(), self.schema(what, depth)?)),
            }
        }
        if !required.is_empty() {
            made.insert("dependentRequired".into(), required.into());
        }
        if !schemas.is_empty() {
            made.insert("dependentSchemas".into(), schemas.into());
        }
        Ok(())
    }

    /// A value that stands for itself. One that has a `$ref` in it is left out: programs that look for
    /// references everywhere would follow it.
    fn data(&mut self, value: &Value) -> Result<Option<Value>, TooManyValues> {
        let mut below = vec![(value, 0)];
        while let Some((value, depth)) = below.pop() {
            self.count()?;
            match value {
                _ if depth > DEPTH_MAX => return Ok(None),
                Value::Object(members) if members.contains_key("$ref") => return Ok(None),
                Value::Object(members) => {
                    below.extend(members.values().map(|one| (one, depth + 1)))
                }
                Value::Array(all) => below.extend(all.iter().map(|one| (one, depth + 1))),
                Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
            }
        }
        Ok(Some(value.clone()))
    }
}

/// A schema with a property called `$ref`, which cannot be said in a document where every such member is a
/// reference. Then it must not say either that there are no others.
fn names_a_reference(said: &Map<String, Value>) -> bool {
    let names = |key| said.get(key).is_some_and(|all| all.get("$ref").is_some());
    names("properties") || names("patternProperties")
}

/// The keywords that hold no schemas.
fn plain(key: &str, value: &Value) -> Option<Value> {
    let fits = match key {
        "type" => return types(value),
        "required" => {
            return strings(value)
                .filter(|names| names.as_array().is_some_and(|all| !all.is_empty()));
        }
        "dependentRequired" => {
            let all = value
                .as_object()?
                .iter()
                .filter(|(name, _)| *name != "$ref");
            let all = all.map(|(name, names)| Some((name.clone(), strings(names)?)));
            return Some(Value::Object(all.collect::<Option<Map<_, _>>>()?));
        }
        "title" | "description" | "format" | "pattern" | "contentEncoding" | "contentMediaType" => {
            value.is_string()
        }
        "uniqueItems" | "readOnly" | "writeOnly" | "deprecated" => value.is_boolean(),
        "maximum" | "minimum" => value.is_number(),
        "multipleOf" => value.as_f64().is_some_and(|by| by > 0.0),
        "maxLength" | "minLength" | "maxItems" | "minItems" | "maxProperties" | "minProperties"
        | "maxContains" | "minContains" => value.is_u64(),
        _ => false,
    };
    fits.then(|| value.clone())
}

fn types(value: &Value) -> Option<Value> {
    let known = |one: &Value| one.as_str().is_some_and(|one| TYPES.contains(&one));
    match value {
        Value::String(_) => known(value).then(|| value.clone()),
        Value::Array(all) => {
            let mut seen = HashSet::new();
            let fits = !all.is_empty()
                && all
                    .iter()
                    .all(|one| known(one) && seen.insert(one.as_str()));
            fits.then(|| value.clone())
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => None,
    }
}

/// A list of strings, each of them once.
fn strings(value: &Value) -> Option<Value> {
    let mut seen = HashSet::new();
    let all: Option<Vec<&str>> = value.as_array()?.iter().map(Value::as_str).collect();
    let once: Vec<&str> = all?.into_iter().filter(|one| seen.insert(*one)).collect();
    Some(json!(once))
}

/// A limit that excludes itself: a number; up to draft 4 it is a word about the other limit.
fn limit(value: &Value, other: Option<&Value>) -> Option<Value> {
    match value {
        Value::Number(_) => Some(value.clone()),
        Value::Bool(true) => other.filter(|other| other.is_number()).cloned(),
        Value::Null
        | Value::Bool(false)
        | Value::String(_)
        | Value::Array(_)
        | Value::Object(_) => None,
    }
}
