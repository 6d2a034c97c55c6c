//! Compiled `inputSchema`s and `outputSchema`s, and the judgement of values by them (CMCP-009..014).
//!
//! Schemas come from servers nobody vouched for, so everything about them is bounded: their size,
//! how their references hang together (`shape`), and the steps one check may take (`metered`).
//! Nothing is ever fetched.

mod cache;
mod long_strings;
mod metered;
mod shape;
mod tool_schema;

use std::borrow::Cow;
use std::fmt::{self, Write};
use std::sync::Arc;

use jsonschema::error::ValidationErrorKind;
use jsonschema::{Draft, PatternOptions, ValidationError, Validator};
use serde_json::{Value, json};

use long_strings::replace_long_strings;
use metered::{BudgetExceeded, Meter, MeteredJson};
use shape::SchemaShape;

pub use cache::SchemaCache;
pub(crate) use tool_schema::SchemaReader;
pub use tool_schema::ToolSchema;

/// Longest schema, in bytes. The largest of known servers are a tenth of it.
pub(crate) const SCHEMA_MAX: usize = 256 << 10;
/// Deepest nesting of a schema, in arrays and objects.
pub(crate) const DEPTH_MAX: usize = 64;
/// Longest echo of a caller's value in a message, in characters.
const ECHO_MAX: usize = 200;
/// Memory of one compiled pattern, in bytes.
const PATTERN_BYTES_MAX: usize = 256 << 10;
/// Bytes of memory for each byte of a schema's text, without its patterns. One of 400 bytes takes some 8 KiB.
const BYTES_PER_TEXT_BYTE: usize = 32;
/// Tries of one pattern with look-around on one text.
const BACKTRACKS_MAX: usize = 10_000;
/// Steps of one check: some seconds on a slow machine at the very worst, and some thousand errors.
const STEPS_MAX: u64 = 5_000_000;

/// Keywords that hold values, not schemas.
const DATA_KEYWORDS: [&str; 5] = ["const", "enum", "default", "example", "examples"];

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
    InfiniteReference,
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
    Compiled(Arc<CompiledSchema>),
}

#[derive(Debug)]
struct CompiledSchema {
    validator: Validator<MeteredJson>,
    shape: SchemaShape,
    /// Bytes of its text.
    text_len: usize,
}

impl Schema {
    /// Compiles a tool's `inputSchema`.
    ///
    /// # Errors
    /// [`BadSchema`], with words for the operator.
    pub fn compile_input(raw: &str) -> Result<Self, BadSchema> {
        let schema = parse_schema(raw)?;
        if schema.get("type").and_then(Value::as_str) != Some("object") {
            return Err(BadSchema::NotForObjects);
        }
        SchemaCheck::compile(&schema, raw.len(), Formats::Ignored).map(Self)
    }

    /// Compiles a tool's `outputSchema`, whose root may be any schema since 2026-07-28.
    ///
    /// # Errors
    /// [`BadSchema`], with words for the operator.
    pub fn compile_output(raw: &str) -> Result<Self, BadSchema> {
        SchemaCheck::compile(&parse_schema(raw)?, raw.len(), Formats::Ignored).map(Self)
    }

    /// Compiles an `outputSchema` whose formats are asserted, too, as some clients do.
    ///
    /// # Errors
    /// [`BadSchema`], with words for the operator.
    pub fn compile_with_formats(raw: &str) -> Result<Self, BadSchema> {
        SchemaCheck::compile(&parse_schema(raw)?, raw.len(), Formats::Asserted).map(Self)
    }

    /// Judges a value, given as JSON text that a parser has already accepted.
    ///
    /// # Errors
    /// [`Mismatch`] tells the first part that does not fit.
    pub fn check(&self, value: &str) -> Result<(), Mismatch> {
        self.0.check(value)
    }

    /// Most memory that it takes, in bytes, nearly: what its patterns may grow to counts in full.
    #[must_use]
    pub(crate) fn memory_estimate(&self) -> usize {
        match &self.0 {
            SchemaCheck::AnyObject => 0,
            SchemaCheck::Compiled(compiled) => {
                let patterns = compiled.shape.patterns * 2 * PATTERN_BYTES_MAX;
                BYTES_PER_TEXT_BYTE * compiled.text_len.max(128) + patterns
            }
        }
    }
}

fn parse_schema(raw: &str) -> Result<Value, BadSchema> {
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

/// Whether `format` is asserted: JSON Schema leaves that open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Formats {
    Ignored,
    Asserted,
}

impl SchemaCheck {
    fn compile(schema: &Value, text: usize, formats: Formats) -> Result<Self, BadSchema> {
        if accepts_any_object(schema) {
            return Ok(Self::AnyObject);
        }
        let shape = SchemaShape::survey(schema)?;
        let validator = build_validator(schema, formats)
            .or_else(|error| match without_unreadable_patterns(schema) {
                Some(rest) => build_validator(&rest, formats),
                None => Err(error),
            })
            .map_err(|e| BadSchema::Invalid(render_with_path(&e)))?;
        let compiled = CompiledSchema {
            validator,
            shape,
            text_len: text,
        };
        Ok(Self::Compiled(Arc::new(compiled)))
    }

    fn check(&self, text: &str) -> Result<(), Mismatch> {
        match self {
            Self::AnyObject if text.trim_ascii_start().starts_with('{') => Ok(()),
            Self::AnyObject => Err(Mismatch {
                path: String::new(),
                keyword: "type".into(),
                message: format!("{} is not of type \"object\"", render_truncated(&text)),
            }),
            Self::Compiled(compiled) => compiled.check(text),
        }
    }
}

impl CompiledSchema {
    fn check(&self, text: &str) -> Result<(), Mismatch> {
        if !self.shape.reads_long_strings
            && let Cow::Owned(short) = replace_long_strings(text)
            && self.check_all(&short).is_ok()
        {
            return Ok(());
        }
        self.check_all(text)
    }

    fn check_all(&self, text: &str) -> Result<(), Mismatch> {
        let value: Value = serde_json::from_str(text).map_err(|e| Mismatch {
            path: String::new(),
            keyword: "json".into(),
            message: render_truncated(&e),
        })?;
        let meter = self.meter();
        let fits = self.validator.is_valid(meter.root(&value));
        match meter.exceeded() {
            Some(over) => Err(over.into()),
            None if fits => Ok(()),
            None => Err(self.explain(&value)),
        }
    }

    fn explain(&self, value: &Value) -> Mismatch {
        let meter = self.meter();
        let error = self.validator.validate(meter.root(value)).err();
        match error.filter(|_| meter.exceeded().is_none()) {
            Some(error) => Mismatch {
                path: render_truncated(error.instance_path()),
                keyword: error.kind().keyword().to_owned(),
                message: render_error(&error),
            },
            None => Mismatch {
                path: String::new(),
                keyword: "steps".into(),
                message: "the value does not fit the schema; it is too large to tell where".into(),
            },
        }
    }

    fn meter(&self) -> Meter {
        Meter::new(
            STEPS_MAX,
            self.shape.steps_per_part(),
            self.shape.value_depth_max(),
        )
    }
}

/// What is wrong. Items beyond those that are listed are counted and not repeated: the library repeats those of
/// values it holds itself, and panics at ours.
fn render_error(error: &ValidationError<'_>) -> String {
    if let ValidationErrorKind::AdditionalItems { limit } = error.kind() {
        return format!("more than {limit} items are not allowed");
    }
    render_truncated(error)
}

impl From<BudgetExceeded> for Mismatch {
    fn from(over: BudgetExceeded) -> Self {
        let (keyword, message) = match over {
            BudgetExceeded::Steps => ("steps", "the value takes too many steps to check"),
            BudgetExceeded::Depth => ("depth", "the value nests too deep for this schema"),
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
fn build_validator(
    schema: &Value,
    formats: Formats,
) -> Result<Validator<MeteredJson>, ValidationError<'static>> {
    let named = Draft::default().detect(schema);
    let known = named != Draft::Unknown;
    let options = jsonschema::options_for::<MeteredJson>()
        .with_draft(if known { named } else { Draft::default() })
        .offline();
    let options = match formats {
        Formats::Ignored => options,
        Formats::Asserted => options.should_validate_formats(true),
    };
    let linear = PatternOptions::regex()
        .size_limit(PATTERN_BYTES_MAX)
        .dfa_size_limit(PATTERN_BYTES_MAX);
    let built = options.clone().with_pattern_options(linear).build(schema);
    if built.is_ok() {
        return built;
    }
    let backtracking = PatternOptions::fancy_regex()
        .backtrack_limit(BACKTRACKS_MAX)
        .size_limit(PATTERN_BYTES_MAX)
        .dfa_size_limit(PATTERN_BYTES_MAX);
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
            let readable = |pattern: &Value| {
                build_validator(&json!({ "pattern": pattern }), Formats::Ignored).is_ok()
            };
            let drops = pattern.is_some_and(|pattern| !readable(pattern));
            if drops {
                members.remove("pattern");
            }
            let inner = members
                .iter_mut()
                .filter(|(keyword, _)| !DATA_KEYWORDS.contains(&keyword.as_str()));
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
fn accepts_any_object(schema: &Value) -> bool {
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

fn render_with_path(error: &ValidationError<'_>) -> String {
    match error.instance_path().as_str() {
        "" => render_truncated(error),
        path => format!(
            "{} (at {})",
            render_truncated(error),
            render_truncated(&path)
        ),
    }
}

/// The beginning of what something prints, without printing the rest of it.
fn render_truncated(what: &dyn fmt::Display) -> String {
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
