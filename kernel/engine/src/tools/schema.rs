//! Compiled `inputSchema`s and `outputSchema`s, and the judgement of values by them (CMCP-009..014).
//!
//! Schemas come from servers nobody vouched for, so everything about them is bounded: their size,
//! how their references hang together (`shape`), and the steps one check may take (`metered`).
//! Nothing is ever fetched.

mod cache;
mod metered;
mod of_tool;
mod shape;

use std::fmt::{self, Write};
use std::sync::Arc;

use jsonschema::error::ValidationErrorKind;
use jsonschema::{Draft, PatternOptions, ValidationError, Validator};
use serde_json::{Value, json};

use metered::{Meter, MeteredJson, OverBudget};
use shape::SchemaShape;

pub use cache::SchemaCache;
pub use of_tool::{SchemaReader, ToolSchema};

/// Longest schema, in bytes. The largest of known servers are a tenth of it.
pub const SCHEMA_MAX: usize = 256 << 10;
/// Deepest nesting of a schema, in arrays and objects.
pub const DEPTH_MAX: usize = 64;
/// Longest echo of a caller's value in a message, in characters.
const ECHO_MAX: usize = 200;
/// Memory of one compiled pattern, in bytes.
const PATTERN_SIZE: usize = 256 << 10;
/// Bytes of memory for each byte of a schema's text, without its patterns. One of 400 bytes takes some 8 KiB.
const KEYWORDS_SIZE: usize = 32;
/// Tries of one pattern with look-around on one text.
const BACKTRACK_MAX: usize = 10_000;
/// Steps of one check: some seconds on a slow machine at the very worst, and some thousand errors.
const STEPS_MAX: u64 = 5_000_000;

/// Keywords that hold values, not schemas.
const DATA: [&str; 5] = ["const", "enum", "default", "example", "examples"];

/// Why a schema was not taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadSchema {
    /// More than [`SCHEMA_MAX`] bytes.
    #[error("the schema has {0} bytes, over the limit of {SCHEMA_MAX}")]
    TooLarge(usize),
    /// No JSON.
    #[error("the schema is no JSON: {0}")]
    NotJson(String),
    /// The root of an `inputSchema` is not `{"type":"object", …}`.
    #[error("the schema's root must be an object with \"type\": \"object\"")]
    NotForObjects,
    /// More than [`DEPTH_MAX`] levels.
    #[error("the schema nests deeper than {DEPTH_MAX} levels")]
    TooDeep,
    /// More patterns than one schema may have.
    #[error("the schema has {0} patterns, over the limit of {max}", max = shape::PATTERNS_MAX)]
    TooManyPatterns(usize),
    /// A reference to another document: those are never fetched.
    #[error("the schema refers to {0:?}, and documents elsewhere are never fetched")]
    Remote(String),
    /// A reference to nothing.
    #[error("the schema refers to {0:?}, which is not in it")]
    Dangling(String),
    /// A reference leads back to itself without going into the value: checking would never end.
    #[error("the schema refers to itself without end")]
    Endless,
    /// References multiply or chain up beyond what a check can be allowed to cost.
    #[error("the schema's references and alternatives multiply beyond what can be checked")]
    TooComplex,
    /// Not valid by its own draft; the text says what and where.
    #[error("invalid schema: {0}")]
    Invalid(String),
}

/// A value that does not fit, as CMCP-010 wants it told.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message} (at {})", if path.is_empty() { "the root" } else { path })]
pub struct Mismatch {
    /// JSON pointer to the part that does not fit; empty for the value itself.
    pub path: String,
    /// The schema keyword that failed; `json`, `depth` or `steps` when the value could not be
    /// checked at all.
    pub keyword: String,
    /// What is wrong, in words, with at most some 200 characters of the value.
    pub message: String,
}

/// A compiled schema, which judges the arguments of a tool's calls or its structured results.
#[derive(Clone, Debug)]
pub struct Schema(SchemaCheck);

#[derive(Clone, Debug)]
enum SchemaCheck {
    /// Any object will do: nothing but the first byte is looked at.
    AnyObject,
    Whole(Arc<Compiled>),
}

#[derive(Debug)]
struct Compiled {
    validator: Validator<MeteredJson>,
    shape: SchemaShape,
    /// Bytes of its text.
    text: usize,
}

impl Schema {
    /// Compiles a tool's `inputSchema`.
    ///
    /// # Errors
    /// [`BadSchema`], with words for the operator.
    pub fn input(raw: &str) -> Result<Self, BadSchema> {
        let schema = read(raw)?;
        if schema.get("type").and_then(Value::as_str) != Some("object") {
            return Err(BadSchema::NotForObjects);
        }
        SchemaCheck::compile(&schema, raw.len()).map(Self)
    }

    /// Compiles a tool's `outputSchema`, whose root may be any schema since 2026-07-28.
    ///
    /// # Errors
    /// [`BadSchema`], with words for the operator.
    pub fn output(raw: &str) -> Result<Self, BadSchema> {
        SchemaCheck::compile(&read(raw)?, raw.len()).map(Self)
    }

    /// Judges a value, given as JSON text that a parser has already accepted.
    ///
    /// # Errors
    /// [`Mismatch`] tells the first part that does not fit.
    pub fn check(&self, value: &str) -> Result<(), Mismatch> {
        self.0.judge(value)
    }

    /// Most memory that it takes, in bytes, nearly: what its patterns may grow to counts in full.
    #[must_use]
    pub fn weight(&self) -> usize {
        match &self.0 {
            SchemaCheck::AnyObject => 0,
            SchemaCheck::Whole(compiled) => {
                let patterns = compiled.shape.patterns * 2 * PATTERN_SIZE;
                KEYWORDS_SIZE * compiled.text.max(128) + patterns
            }
        }
    }
}

fn read(raw: &str) -> Result<Value, BadSchema> {
    if raw.len() > SCHEMA_MAX {
        return Err(BadSchema::TooLarge(raw.len()));
    }
    serde_json::from_str(raw).map_err(|e| {
        let told = e.to_string();
        if told.starts_with("recursion limit") {
            BadSchema::TooDeep
        } else {
            BadSchema::NotJson(told)
        }
    })
}

impl SchemaCheck {
    fn compile(schema: &Value, text: usize) -> Result<Self, BadSchema> {
        if takes_any_object(schema) {
            return Ok(Self::AnyObject);
        }
        let shape = SchemaShape::survey(schema)?;
        let validator = build(schema, shape.patterns > 0)
            .or_else(|error| match without_unreadable_patterns(schema) {
                Some(rest) if shape.patterns > 0 => build(&rest, true),
                Some(_) | None => Err(error),
            })
            .map_err(|e| BadSchema::Invalid(told(&e)))?;
        let compiled = Compiled {
            validator,
            shape,
            text,
        };
        Ok(Self::Whole(Arc::new(compiled)))
    }

    fn judge(&self, text: &str) -> Result<(), Mismatch> {
        match self {
            Self::AnyObject if text.trim_ascii_start().starts_with('{') => Ok(()),
            Self::AnyObject => Err(Mismatch {
                path: String::new(),
                keyword: "type".into(),
                message: format!("{} is not of type \"object\"", cut(&text)),
            }),
            Self::Whole(compiled) => compiled.judge(text),
        }
    }
}

impl Compiled {
    fn judge(&self, text: &str) -> Result<(), Mismatch> {
        let value: Value = serde_json::from_str(text).map_err(|e| Mismatch {
            path: String::new(),
            keyword: "json".into(),
            message: cut(&e),
        })?;
        let meter = self.meter();
        let fits = self.validator.is_valid(meter.root(&value));
        match meter.over() {
            Some(over) => Err(over.into()),
            None if fits => Ok(()),
            None => Err(self.explain(&value)),
        }
    }

    fn explain(&self, value: &Value) -> Mismatch {
        let meter = self.meter();
        let error = self.validator.validate(meter.root(value)).err();
        match error.filter(|_| meter.over().is_none()) {
            Some(error) => Mismatch {
                path: cut(error.instance_path()),
                keyword: error.kind().keyword().to_owned(),
                message: in_words(&error),
            },
            None => Mismatch {
                path: String::new(),
                keyword: "steps".into(),
                message: "the value does not fit the schema; it is too large to tell where".into(),
            },
        }
    }

    fn meter(&self) -> Meter {
        Meter::new(STEPS_MAX, self.shape.price(), self.shape.deepest_value())
    }
}

/// What is wrong. Items beyond those that are listed are counted and not repeated: the library repeats those of
/// values it holds itself, and panics at ours.
fn in_words(error: &ValidationError<'_>) -> String {
    if let ValidationErrorKind::AdditionalItems { limit } = error.kind() {
        return format!("more than {limit} items are not allowed");
    }
    cut(error)
}

impl From<OverBudget> for Mismatch {
    fn from(over: OverBudget) -> Self {
        let (keyword, message) = match over {
            OverBudget::Steps => ("steps", "the value takes too many steps to check"),
            OverBudget::Depth => ("depth", "the value nests too deep for this schema"),
        };
        Self {
            path: String::new(),
            keyword: keyword.into(),
            message: message.into(),
        }
    }
}

/// Patterns run on an engine that takes time in proportion to the text. Look-around is beyond it, but
/// common in what zod writes for e-mail addresses: such schemas get the other engine, on a short leash.
fn build(
    schema: &Value,
    patterns: bool,
) -> Result<Validator<MeteredJson>, ValidationError<'static>> {
    let named = Draft::default().detect(schema);
    let known = named != Draft::Unknown;
    let options = jsonschema::options_for::<MeteredJson>()
        .with_draft(if known { named } else { Draft::default() })
        .offline();
    let linear = PatternOptions::regex()
        .size_limit(PATTERN_SIZE)
        .dfa_size_limit(PATTERN_SIZE);
    let built = options.clone().with_pattern_options(linear).build(schema);
    if built.is_ok() || !patterns {
        return built;
    }
    let backtracking = PatternOptions::fancy_regex()
        .backtrack_limit(BACKTRACK_MAX)
        .size_limit(PATTERN_SIZE)
        .dfa_size_limit(PATTERN_SIZE);
    options.with_pattern_options(backtracking).build(schema)
}

/// The same schema without the patterns that are no regular expressions of ECMA-262 in Unicode mode: other clients read
/// some of them otherwise, as the widely copied one of e-mail addresses, so their server judges them. `None` where there
/// are none.
fn without_unreadable_patterns(schema: &Value) -> Option<Value> {
    let mut rest = schema.clone();
    drop_unreadable_patterns(&mut rest).then_some(rest)
}

fn drop_unreadable_patterns(schema: &mut Value) -> bool {
    match schema {
        Value::Object(members) => {
            let pattern = members.get("pattern").filter(|pattern| pattern.is_string());
            let readable = |pattern: &Value| build(&json!({ "pattern": pattern }), true).is_ok();
            let drops = pattern.is_some_and(|pattern| !readable(pattern));
            if drops {
                members.remove("pattern");
            }
            let inner = members
                .iter_mut()
                .filter(|(keyword, _)| !DATA.contains(&keyword.as_str()));
            inner.fold(drops, |dropped, (_, value)| {
                drop_unreadable_patterns(value) | dropped
            })
        }
        Value::Array(items) => items.iter_mut().fold(false, |dropped, item| {
            drop_unreadable_patterns(item) | dropped
        }),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

/// Only keywords that constrain nothing beside `"type": "object"`.
fn takes_any_object(schema: &Value) -> bool {
    let Value::Object(members) = schema else {
        return false;
    };
    members.get("type").and_then(Value::as_str) == Some("object")
        && members
            .iter()
            .all(|(keyword, value)| match keyword.as_str() {
                "type" => true,
                "title" | "description" | "$comment" | "$schema" => value.is_string(),
                "properties" => value.as_object().is_some_and(serde_json::Map::is_empty),
                "required" => value.as_array().is_some_and(Vec::is_empty),
                "additionalProperties" => value.as_bool() == Some(true),
                _ => false,
            })
}

fn told(error: &ValidationError<'_>) -> String {
    match error.instance_path().as_str() {
        "" => cut(error),
        path => format!("{} (at {})", cut(error), cut(&path)),
    }
}

/// The beginning of what something prints, without printing the rest of it.
fn cut(what: &dyn fmt::Display) -> String {
    struct Short {
        text: String,
        left: usize,
    }
    impl Write for Short {
        fn write_str(&mut self, piece: &str) -> fmt::Result {
            for c in piece.chars() {
                self.left = self.left.checked_sub(1).ok_or(fmt::Error)?;
                self.text.push(c);
            }
            Ok(())
        }
    }
    let mut short = Short {
        text: String::new(),
        left: ECHO_MAX,
    };
    if write!(short, "{what}").is_err() {
        short.text.push('…');
    }
    short.text
}

#[cfg(test)]
mod tests;
