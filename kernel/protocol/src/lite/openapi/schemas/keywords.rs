//! The keywords of a schema with their forms (JSON Schema 2020-12, 10 and Validation 6 to 9).

use std::collections::HashSet;

use serde_json::{Map, Value, json};

use super::{DEPTH_MAX, TooManyValues, Translation};

/// The allowed types.
const TYPES: [&str; 7] = [
    "array", "boolean", "integer", "null", "number", "object", "string",
];

/// The form of a keyword's value.
#[derive(Clone, Copy)]
enum KeywordForm {
    /// Schemas by name.
    Schemas,
    /// A list of schemas.
    SchemaList,
    /// A schema.
    Schema,
    /// A schema, or a boolean that is kept.
    SchemaOrFlag,
    /// A schema for all items, or a list of schemas for the first ones.
    Items,
    /// The schema of the other items, after a list of items.
    RemainingItems,
    /// `dependencies` of older drafts.
    Dependencies,
    /// A constant value.
    Constant,
    /// Any value.
    Data,
    /// A list of values.
    DataList,
    /// An exclusive limit, with the keyword of the inclusive one.
    Limit(&'static str),
    /// A type or a list of types.
    Types,
    /// Unique names.
    Names,
    /// Lists of unique names, by name.
    NamesByName,
    Text,
    Flag,
    Number,
    Positive,
    Count,
}

/// The translated keywords with their forms.
const KEYWORDS: [(&str, KeywordForm); 50] = [
    ("type", KeywordForm::Types),
    ("properties", KeywordForm::Schemas),
    ("patternProperties", KeywordForm::Schemas),
    ("dependentSchemas", KeywordForm::Schemas),
    ("allOf", KeywordForm::SchemaList),
    ("anyOf", KeywordForm::SchemaList),
    ("oneOf", KeywordForm::SchemaList),
    ("prefixItems", KeywordForm::SchemaList),
    ("items", KeywordForm::Items),
    ("additionalItems", KeywordForm::RemainingItems),
    ("additionalProperties", KeywordForm::SchemaOrFlag),
    ("unevaluatedProperties", KeywordForm::SchemaOrFlag),
    ("unevaluatedItems", KeywordForm::SchemaOrFlag),
    ("not", KeywordForm::Schema),
    ("if", KeywordForm::Schema),
    ("then", KeywordForm::Schema),
    ("else", KeywordForm::Schema),
    ("contains", KeywordForm::Schema),
    ("propertyNames", KeywordForm::Schema),
    ("contentSchema", KeywordForm::Schema),
    ("dependencies", KeywordForm::Dependencies),
    ("const", KeywordForm::Constant),
    ("default", KeywordForm::Data),
    ("enum", KeywordForm::DataList),
    ("examples", KeywordForm::DataList),
    ("exclusiveMaximum", KeywordForm::Limit("maximum")),
    ("exclusiveMinimum", KeywordForm::Limit("minimum")),
    ("required", KeywordForm::Names),
    ("dependentRequired", KeywordForm::NamesByName),
    ("title", KeywordForm::Text),
    ("description", KeywordForm::Text),
    ("format", KeywordForm::Text),
    ("pattern", KeywordForm::Text),
    ("contentEncoding", KeywordForm::Text),
    ("contentMediaType", KeywordForm::Text),
    ("uniqueItems", KeywordForm::Flag),
    ("readOnly", KeywordForm::Flag),
    ("writeOnly", KeywordForm::Flag),
    ("deprecated", KeywordForm::Flag),
    ("maximum", KeywordForm::Number),
    ("minimum", KeywordForm::Number),
    ("multipleOf", KeywordForm::Positive),
    ("maxLength", KeywordForm::Count),
    ("minLength", KeywordForm::Count),
    ("maxItems", KeywordForm::Count),
    ("minItems", KeywordForm::Count),
    ("maxProperties", KeywordForm::Count),
    ("minProperties", KeywordForm::Count),
    ("maxContains", KeywordForm::Count),
    ("minContains", KeywordForm::Count),
];

impl Translation<'_> {
    /// Adds a keyword of `source` to the translation, if its value has the form.
    pub(super) fn translate_keyword(
        &mut self,
        source: &Map<String, Value>,
        (key, value): (&str, &Value),
        depth: usize,
        translated: &mut Map<String, Value>,
    ) -> Result<(), TooManyValues> {
        let Some((_, form)) = KEYWORDS.iter().find(|(known, _)| *known == key) else {
            return Ok(());
        };
        let read = match form {
            KeywordForm::Schemas => self.translate_named(value, depth)?,
            KeywordForm::SchemaList => self.translate_list(value, depth)?,
            KeywordForm::Items if value.is_array() => {
                let first = self.translate_list(value, depth)?;
                let first = first.filter(|_| !source.contains_key("prefixItems"));
                translated.extend(first.map(|first| ("prefixItems".to_owned(), first)));
                None
            }
            KeywordForm::RemainingItems => {
                if source.get("items").is_some_and(Value::is_array) {
                    translated.insert("items".into(), self.translate_schema(value, depth)?);
                }
                None
            }
            KeywordForm::SchemaOrFlag if value.is_boolean() => {
                (!has_ref_property(source)).then(|| value.clone())
            }
            KeywordForm::Items | KeywordForm::Schema | KeywordForm::SchemaOrFlag => {
                Some(self.translate_schema(value, depth)?)
            }
            KeywordForm::Dependencies => {
                self.translate_dependencies(value, depth, translated)?;
                None
            }
            // Rendered as a list of one: some programs reject a constant that is a list or an object.
            KeywordForm::Constant if value.is_array() || value.is_object() => {
                let value = self.copy_data(value)?;
                translated.extend(value.map(|value| ("enum".to_owned(), json!([value]))));
                None
            }
            KeywordForm::Constant | KeywordForm::Data => self.copy_data(value)?,
            KeywordForm::DataList => match value.as_array() {
                Some(all) if !all.is_empty() => self.copy_data(value)?,
                Some(_) | None => None,
            },
            KeywordForm::Limit(other) => exclusive_limit(value, source.get(*other)),
            KeywordForm::Types
            | KeywordForm::Names
            | KeywordForm::NamesByName
            | KeywordForm::Text
            | KeywordForm::Flag
            | KeywordForm::Number
            | KeywordForm::Positive
            | KeywordForm::Count => copy_plain(*form, value),
        };
        translated.extend(read.map(|read| (key.to_owned(), read)));
        Ok(())
    }

    fn translate_named(
        &mut self,
        all: &Value,
        depth: usize,
    ) -> Result<Option<Value>, TooManyValues> {
        let Some(all) = all.as_object() else {
            return Ok(None);
        };
        let mut translated = Map::new();
        for (name, schema) in all.iter().filter(|(name, _)| *name != "$ref") {
            translated.insert(name.clone(), self.translate_schema(schema, depth)?);
        }
        Ok(Some(translated.into()))
    }

    fn translate_list(
        &mut self,
        all: &Value,
        depth: usize,
    ) -> Result<Option<Value>, TooManyValues> {
        let Some(all) = all.as_array().filter(|all| !all.is_empty()) else {
            return Ok(None);
        };
        let translated: Result<Vec<Value>, _> = all
            .iter()
            .map(|one| self.translate_schema(one, depth))
            .collect();
        Ok(Some(translated?.into()))
    }

    /// `dependencies` of drafts before 2019-09: required names, or a schema that applies, if another name
    /// is present.
    fn translate_dependencies(
        &mut self,
        all: &Value,
        depth: usize,
        translated: &mut Map<String, Value>,
    ) -> Result<(), TooManyValues> {
        let (mut required, mut schemas) = (Map::new(), Map::new());
        for (name, dependency) in all
            .as_object()
            .into_iter()
            .flatten()
            .filter(|(name, _)| *name != "$ref")
        {
            match unique_strings(dependency) {
                Some(names) => drop(required.insert(name.clone(), names)),
                None => {
                    drop(schemas.insert(name.clone(), self.translate_schema(dependency, depth)?))
                }
            }
        }
        if !required.is_empty() {
            translated.insert("dependentRequired".into(), required.into());
        }
        if !schemas.is_empty() {
            translated.insert("dependentSchemas".into(), schemas.into());
        }
        Ok(())
    }

    /// A literal value. One that contains a `$ref` is left out: programs that search for references
    /// everywhere would follow it.
    fn copy_data(&mut self, value: &Value) -> Result<Option<Value>, TooManyValues> {
        let mut below = vec![(value, 0)];
        while let Some((value, depth)) = below.pop() {
            self.count_value()?;
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

/// True for a schema with a property called `$ref`, which cannot be expressed in a document where every
/// such member is a reference. Then additional properties must not be forbidden.
fn has_ref_property(source: &Map<String, Value>) -> bool {
    let names = |key| source.get(key).is_some_and(|all| all.get("$ref").is_some());
    names("properties") || names("patternProperties")
}

/// Copies keywords that contain no schemas and have one form only.
fn copy_plain(form: KeywordForm, value: &Value) -> Option<Value> {
    let is_valid = match form {
        KeywordForm::Types => return normalize_types(value),
        KeywordForm::Names => return unique_strings(value).filter(|names| *names != json!([])),
        KeywordForm::NamesByName => {
            let all = value
                .as_object()?
                .iter()
                .filter(|(name, _)| *name != "$ref");
            let all = all.map(|(name, names)| Some((name.clone(), unique_strings(names)?)));
            return Some(Value::Object(all.collect::<Option<Map<_, _>>>()?));
        }
        KeywordForm::Text => value.is_string(),
        KeywordForm::Flag => value.is_boolean(),
        KeywordForm::Number => value.is_number(),
        KeywordForm::Positive => value.as_f64().is_some_and(|by| by > 0.0),
        KeywordForm::Count => value.is_u64(),
        KeywordForm::Schemas
        | KeywordForm::SchemaList
        | KeywordForm::Schema
        | KeywordForm::SchemaOrFlag
        | KeywordForm::Items
        | KeywordForm::RemainingItems
        | KeywordForm::Dependencies
        | KeywordForm::Constant
        | KeywordForm::Data
        | KeywordForm::DataList
        | KeywordForm::Limit(_) => false,
    };
    is_valid.then(|| value.clone())
}

fn normalize_types(value: &Value) -> Option<Value> {
    let known = |one: &Value| one.as_str().is_some_and(|one| TYPES.contains(&one));
    match value {
        Value::String(_) => known(value).then(|| value.clone()),
        Value::Array(all) => {
            let mut seen = HashSet::new();
            let is_valid = !all.is_empty()
                && all
                    .iter()
                    .all(|one| known(one) && seen.insert(one.as_str()));
            is_valid.then(|| value.clone())
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => None,
    }
}

/// A list of distinct strings.
fn unique_strings(value: &Value) -> Option<Value> {
    let mut seen = HashSet::new();
    let all: Option<Vec<&str>> = value.as_array()?.iter().map(Value::as_str).collect();
    let distinct: Vec<&str> = all?.into_iter().filter(|one| seen.insert(*one)).collect();
    Some(json!(distinct))
}

/// An exclusive limit: a number; up to draft 4 a boolean beside the other limit.
fn exclusive_limit(value: &Value, other: Option<&Value>) -> Option<Value> {
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
