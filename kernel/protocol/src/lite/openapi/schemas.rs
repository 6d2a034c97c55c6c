//! Schemas of tools as schemas of a document (OpenAPI 3.1, 4.8.24: JSON Schema 2020-12).
//!
//! A schema is read keyword by keyword. What older drafts say otherwise is said as 2020-12 does; a reference
//! becomes one to a component made from what it points to; whatever is unknown, of a wrong form, or points out
//! of the schema is left out, so that the rest stays true and nobody who reads the document fetches anything.
//!
//! A schema that is left open where the tool's is not is no hole: calls are checked by the tool's own.

mod cycles;
mod keywords;

use std::collections::HashMap;

use serde_json::{Map, Value, json};

use super::names::UniqueNames;

/// Where references lead.
pub(super) const COMPONENTS: &str = "#/components/schemas/";

/// Bytes of one schema; one above is left open. Those that people and programs write have a few thousand.
pub(super) const SCHEMA_MAX: usize = 256 << 10;

/// Values of one schema after its references are followed, so that few bytes do not become many.
const VALUES_MAX: usize = 20_000;

/// Levels of one schema; what lies below is left open.
const DEPTH_MAX: usize = 48;

/// Places of one schema that are referred to; references to others are left out.
const PARTS_MAX: usize = 1000;

/// References that do nothing but refer, one after the other.
const HOPS_MAX: usize = 32;

/// What a schema is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SchemaKind {
    /// The arguments of a tool: an object.
    Arguments,
    /// The structured results of a tool.
    Result,
}

impl SchemaKind {
    /// The schema that says nothing.
    pub(super) fn unrestricted_schema(self) -> Value {
        match self {
            Self::Arguments => json!({ "type": "object" }),
            Self::Result => json!({}),
        }
    }
}

/// The schema under this name, and those it refers to under names of their own; `None` for text that is no
/// schema of this kind, or has too many values.
pub(super) fn translate(
    text: &str,
    name: &str,
    kind: SchemaKind,
    names: &mut UniqueNames,
) -> Option<Map<String, Value>> {
    let root: Value = serde_json::from_str(text).ok()?;
    let said = root.as_object()?;
    let schema = said
        .get("$schema")
        .and_then(Value::as_str)
        .unwrap_or_default();
    let mut translation = Translation {
        root: &root,
        own_id: said.get("$id").and_then(Value::as_str),
        is_old_draft: schema.contains("draft-0"),
        name,
        names,
        component_names: HashMap::new(),
        pending: Vec::new(),
        values_left: VALUES_MAX,
    };
    let begin = translation.follow_references(String::new())?;
    translation
        .component_names
        .insert(begin.clone(), name.to_owned());
    let mut made = Map::new();
    let first = translation
        .translate_schema(root.pointer(&begin)?, 0)
        .ok()?;
    made.insert(name.to_owned(), restrict_to_kind(first, kind)?);
    while let Some((pointer, name)) = translation.pending.pop() {
        let part = translation
            .translate_schema(root.pointer(&pointer)?, 0)
            .ok()?;
        made.insert(name, part);
    }
    cycles::break_cycles(&mut made);
    Some(made)
}

fn can_be_array(made: &Map<String, Value>) -> bool {
    match made.get("type") {
        Some(Value::Array(all)) => all.iter().any(|one| one == "array"),
        Some(one) => one == "array",
        None => false,
    }
}

/// Arguments are an object, whatever else they are.
fn restrict_to_kind(mut schema: Value, kind: SchemaKind) -> Option<Value> {
    if kind == SchemaKind::Arguments {
        let object = Value::from("object");
        let said = schema.get("type");
        if said.is_some_and(|said| *said != object) {
            return None;
        }
        schema["type"] = object;
    }
    Some(schema)
}

/// More values than a schema may have.
struct TooManyValues;

/// A schema while it is read.
struct Translation<'a> {
    root: &'a Value,
    /// Its `$id`, by which it may refer to itself.
    own_id: Option<&'a str>,
    /// Of a draft in which what stands beside `$ref` counts for nothing.
    is_old_draft: bool,
    name: &'a str,
    names: &'a mut UniqueNames,
    /// The names of what is referred to, by pointers into the root.
    component_names: HashMap<String, String>,
    /// Those that are not made yet.
    pending: Vec<(String, String)>,
    /// How many values there may still be.
    values_left: usize,
}

impl Translation<'_> {
    /// One schema, at any place.
    fn translate_schema(&mut self, schema: &Value, depth: usize) -> Result<Value, TooManyValues> {
        self.count_value()?;
        // Said as an object: some programs take a boolean here for an error.
        if schema.as_bool() == Some(false) {
            return Ok(json!({ "not": {} }));
        }
        let Some(said) = schema.as_object().filter(|_| depth < DEPTH_MAX) else {
            return Ok(json!({}));
        };
        let mut made = Map::new();
        let referred = said.get("$ref").and_then(Value::as_str);
        if let Some(part) = referred.and_then(|referred| self.component_name(referred)) {
            made.insert("$ref".into(), format!("{COMPONENTS}{part}").into());
            if self.is_old_draft {
                return Ok(made.into());
            }
        }
        for (key, value) in said {
            self.translate_keyword(said, (key, value), depth + 1, &mut made)?;
        }
        // Some programs want to be told that the items may be anything.
        let says = |key| made.contains_key(key);
        if !says("items") && !says("prefixItems") && can_be_array(&made) {
            made.insert("items".into(), json!({}));
        }
        Ok(made.into())
    }

    /// The name of the component for what this refers to; `None` for nothing in this schema.
    fn component_name(&mut self, referred: &str) -> Option<String> {
        let pointer = self.follow_references(self.resolve_pointer(referred)?)?;
        if let Some(name) = self.component_names.get(&pointer) {
            return Some(name.clone());
        }
        if self.component_names.len() >= PARTS_MAX {
            return None;
        }
        let last = pointer.rsplit('/').next().unwrap_or_default();
        let name = self.names.reserve(&format!("{}_{last}", self.name));
        self.component_names.insert(pointer.clone(), name.clone());
        self.pending.push((pointer, name.clone()));
        Some(name)
    }

    /// The place in the root (RFC 6901) that a reference names.
    fn resolve_pointer(&self, referred: &str) -> Option<String> {
        let own = self
            .own_id
            .and_then(|id| referred.strip_prefix(id.trim_end_matches('#')));
        let rest = own.unwrap_or(referred);
        let fragment = match rest.strip_prefix('#') {
            Some(fragment) => fragment,
            None => rest.is_empty().then_some("")?,
        };
        let pointer = match fragment {
            "" => String::new(),
            fragment => super::names::percent_decode(fragment)?,
        };
        (pointer.is_empty() || pointer.starts_with('/')).then_some(pointer)
    }

    /// Where a pointer leads, over places that only refer to others.
    fn follow_references(&self, mut pointer: String) -> Option<String> {
        for _ in 0..HOPS_MAX {
            let said = match self.root.pointer(&pointer)? {
                Value::Object(said) => said,
                Value::Bool(_) => return Some(pointer),
                Value::Null | Value::Number(_) | Value::String(_) | Value::Array(_) => return None,
            };
            let further = said.get("$ref").and_then(Value::as_str);
            let says_more = || said.keys().any(|key| self.is_effective_beside_ref(key));
            match further {
                Some(further) if !says_more() => pointer = self.resolve_pointer(further)?,
                Some(_) | None => return Some(pointer),
            }
        }
        None
    }

    fn is_effective_beside_ref(&self, key: &str) -> bool {
        !self.is_old_draft
            && !matches!(
                key,
                "$ref" | "$schema" | "$id" | "$defs" | "definitions" | "$comment"
            )
    }

    fn count_value(&mut self) -> Result<(), TooManyValues> {
        self.values_left = self.values_left.checked_sub(1).ok_or(TooManyValues)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests;
