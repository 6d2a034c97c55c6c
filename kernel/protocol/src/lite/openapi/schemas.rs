//! Translates the schemas of tools to schemas of a document (OpenAPI 3.1, 4.8.24: JSON Schema 2020-12).
//!
//! A schema is translated keyword by keyword. Keywords of older drafts are converted to 2020-12; a
//! reference becomes one to a component with the translated target; unknown, malformed or external parts
//! are left out, so that the rest stays valid and no reader of the document fetches anything.
//!
//! An unrestricted schema in place of the tool's is no security problem: calls are validated by the tool's
//! own.

mod cycles;
mod keywords;

use std::collections::HashMap;

use serde_json::{Map, Value, json};

use super::names::UniqueNames;

/// The prefix of references.
pub(super) const COMPONENTS: &str = "#/components/schemas/";

/// The most bytes of one schema; a longer one is left unrestricted. Usual ones have a few thousand.
pub(super) const SCHEMA_MAX: usize = 256 << 10;

/// The most values of one schema after its references are resolved, so that few bytes do not expand to
/// many.
const VALUES_MAX: usize = 20_000;

/// The most levels of one schema; deeper ones are left unrestricted.
const DEPTH_MAX: usize = 48;

/// The most referenced parts of one schema; further references are left out.
const PARTS_MAX: usize = 1000;

/// The most references in a chain.
const HOPS_MAX: usize = 32;

/// The use of a schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SchemaKind {
    /// The arguments of a tool: an object.
    Arguments,
    /// The structured results of a tool.
    Result,
}

impl SchemaKind {
    /// The schema that accepts every value of this kind.
    pub(super) fn unrestricted_schema(self) -> Value {
        match self {
            Self::Arguments => json!({ "type": "object" }),
            Self::Result => json!({}),
        }
    }
}

/// Translates the schema under this name, and the parts it references under names of their own; `None` for
/// text that is no schema of this kind, or has too many values.
pub(super) fn translate(
    text: &str,
    name: &str,
    kind: SchemaKind,
    names: &mut UniqueNames,
) -> Option<Map<String, Value>> {
    let root: Value = serde_json::from_str(text).ok()?;
    let source = root.as_object()?;
    let schema = source
        .get("$schema")
        .and_then(Value::as_str)
        .unwrap_or_default();
    let mut translation = Translation {
        root: &root,
        own_id: source.get("$id").and_then(Value::as_str),
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
    let mut translated = Map::new();
    let first = translation
        .translate_schema(root.pointer(&begin)?, 0)
        .ok()?;
    translated.insert(name.to_owned(), restrict_to_kind(first, kind)?);
    while let Some((pointer, name)) = translation.pending.pop() {
        let part = translation
            .translate_schema(root.pointer(&pointer)?, 0)
            .ok()?;
        translated.insert(name, part);
    }
    cycles::break_cycles(&mut translated);
    Some(translated)
}

fn can_be_array(translated: &Map<String, Value>) -> bool {
    match translated.get("type") {
        Some(Value::Array(all)) => all.iter().any(|one| one == "array"),
        Some(one) => one == "array",
        None => false,
    }
}

/// Restricts the schema to its kind: arguments are an object.
fn restrict_to_kind(mut schema: Value, kind: SchemaKind) -> Option<Value> {
    if kind == SchemaKind::Arguments {
        let object = Value::from("object");
        let source = schema.get("type");
        if source.is_some_and(|source| *source != object) {
            return None;
        }
        schema["type"] = object;
    }
    Some(schema)
}

/// The schema has too many values.
struct TooManyValues;

/// The state of a translation.
struct Translation<'a> {
    root: &'a Value,
    /// Its `$id`, by which it may reference itself.
    own_id: Option<&'a str>,
    /// A draft in which siblings of `$ref` are ignored.
    is_old_draft: bool,
    name: &'a str,
    names: &'a mut UniqueNames,
    /// The names of referenced parts, by pointers into the root.
    component_names: HashMap<String, String>,
    /// Referenced parts that are not translated yet.
    pending: Vec<(String, String)>,
    /// The remaining number of values.
    values_left: usize,
}

impl Translation<'_> {
    /// Translates one schema at any position.
    fn translate_schema(&mut self, schema: &Value, depth: usize) -> Result<Value, TooManyValues> {
        self.count_value()?;
        // Rendered as an object: some programs reject a boolean here.
        if schema.as_bool() == Some(false) {
            return Ok(json!({ "not": {} }));
        }
        let Some(source) = schema.as_object().filter(|_| depth < DEPTH_MAX) else {
            return Ok(json!({}));
        };
        let mut translated = Map::new();
        let reference_text = source.get("$ref").and_then(Value::as_str);
        if let Some(part) =
            reference_text.and_then(|reference_text| self.component_name(reference_text))
        {
            translated.insert("$ref".into(), format!("{COMPONENTS}{part}").into());
            if self.is_old_draft {
                return Ok(translated.into());
            }
        }
        for (key, value) in source {
            self.translate_keyword(source, (key, value), depth + 1, &mut translated)?;
        }
        // Some programs require a statement that the items are unrestricted.
        let has_keyword = |key| translated.contains_key(key);
        if !has_keyword("items") && !has_keyword("prefixItems") && can_be_array(&translated) {
            translated.insert("items".into(), json!({}));
        }
        Ok(translated.into())
    }

    /// The name of the component for a reference; `None` if its target is not in this schema.
    fn component_name(&mut self, reference_text: &str) -> Option<String> {
        let pointer = self.follow_references(self.resolve_pointer(reference_text)?)?;
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

    /// The pointer into the root (RFC 6901) for a reference.
    fn resolve_pointer(&self, reference_text: &str) -> Option<String> {
        let own = self
            .own_id
            .and_then(|id| reference_text.strip_prefix(id.trim_end_matches('#')));
        let rest = own.unwrap_or(reference_text);
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

    /// Resolves a pointer through chains of references.
    fn follow_references(&self, mut pointer: String) -> Option<String> {
        for _ in 0..HOPS_MAX {
            let source = match self.root.pointer(&pointer)? {
                Value::Object(source) => source,
                Value::Bool(_) => return Some(pointer),
                Value::Null | Value::Number(_) | Value::String(_) | Value::Array(_) => return None,
            };
            let further = source.get("$ref").and_then(Value::as_str);
            let has_more_keywords = || source.keys().any(|key| self.is_effective_beside_ref(key));
            match further {
                Some(further) if !has_more_keywords() => pointer = self.resolve_pointer(further)?,
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
