//! How a schema's references and alternatives hang together, before anything runs on it.
//!
//! A check goes down two ways: into parts of the value, which is finite, and on the spot, from one
//! subschema to the next through references and alternatives. The second way is surveyed here: a
//! loop would never end, a long chain would use up the stack, and branches multiply.

use std::collections::{HashMap, HashSet};

use serde_json::{Map, Value};

use super::long_strings::STAND_IN_LEN;
use super::{BadSchema, DEPTH_MAX, render_truncated};
use crate::tools::uris;

/// Most patterns in one schema; each may take as much memory as the whole text.
pub(super) const PATTERNS_MAX: usize = 256;
/// Longest way from subschema to subschema on the spot.
const HEIGHT_MAX: usize = 64;
/// Most subschemas that may look at one part of a value.
const WORK_MAX: u64 = 10_000;
/// Subschemas on the stack at once: half of the 2 MiB of a thread, unoptimised.
const STACK_DEPTH_MAX: usize = 800;
/// Most subschemas see a part only to say that it is not theirs.
const WORK_PER_STEP: u64 = 16;
/// Deepest JSON that the parser takes.
const PARSER_DEPTH_MAX: usize = 127;

/// What the survey found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SchemaShape {
    /// Longest way on the spot, in subschemas.
    height: usize,
    /// Most subschemas that look at one part of a value.
    work: u64,
    /// Patterns in it.
    pub(super) patterns: usize,
    /// Whether a verdict depends on the characters of long strings, in place of their type alone.
    pub(super) reads_long_strings: bool,
}

impl SchemaShape {
    /// Surveys all of a schema that a check can reach.
    pub(super) fn survey(schema: &Value) -> Result<Self, BadSchema> {
        let mut survey = Survey::new(schema)?;
        let mut shape = Self {
            height: 1,
            work: 1,
            patterns: survey.patterns,
            reads_long_strings: survey.reads_long_strings,
        };
        survey.enqueue(schema);
        while let Some(part) = survey.queue.pop() {
            let cost = survey.compute_cost(part, 0)?;
            shape.height = shape.height.max(cost.height);
            shape.work = shape.work.max(cost.work);
        }
        Ok(shape)
    }

    /// What it costs in steps to hand out one part of a value.
    pub(super) fn steps_per_part(&self) -> u64 {
        1 + self.work / WORK_PER_STEP
    }

    /// How deep a value may nest so that checking it stays within the stack.
    pub(super) fn value_depth_max(&self) -> usize {
        (STACK_DEPTH_MAX / self.height).min(PARSER_DEPTH_MAX)
    }
}

#[derive(Clone, Copy)]
struct Cost {
    height: usize,
    work: u64,
}

/// Subschemas are told apart by where they lie in memory.
type SchemaAddress = *const Value;

struct Survey<'a> {
    root: &'a Value,
    /// Every object that `$id` (or draft 4's `id`) makes a document of its own.
    documents: Vec<&'a Value>,
    anchors: HashMap<&'a str, Vec<&'a Value>>,
    patterns: usize,
    reads_long_strings: bool,
    /// What has been costed; `None` while it is on the way.
    costs: HashMap<SchemaAddress, Option<Cost>>,
    /// What is looked at with parts of the value, still to be surveyed.
    queue: Vec<&'a Value>,
    queued: HashSet<SchemaAddress>,
}

impl<'a> Survey<'a> {
    fn new(root: &'a Value) -> Result<Self, BadSchema> {
        let mut survey = Self {
            root,
            documents: vec![root],
            anchors: HashMap::new(),
            patterns: 0,
            reads_long_strings: false,
            costs: HashMap::new(),
            queue: Vec::new(),
            queued: HashSet::new(),
        };
        survey.collect_documents(root, 0)?;
        if survey.patterns > PATTERNS_MAX {
            return Err(BadSchema::TooManyPatterns(survey.patterns));
        }
        Ok(survey)
    }

    /// Finds the targets of references, wherever they may lie.
    fn collect_documents(&mut self, value: &'a Value, depth: usize) -> Result<(), BadSchema> {
        match value {
            Value::Array(_) | Value::Object(_) if depth >= DEPTH_MAX => {
                return Err(BadSchema::TooDeep);
            }
            Value::Array(items) => {
                for item in items {
                    self.collect_documents(item, depth + 1)?;
                }
            }
            Value::Object(members) => {
                self.collect_names(value, members);
                for member in members.values() {
                    self.collect_documents(member, depth + 1)?;
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
        Ok(())
    }

    fn collect_names(&mut self, value: &'a Value, members: &'a Map<String, Value>) {
        let text = |keyword: &str| members.get(keyword).and_then(Value::as_str);
        let id = text("$id").or_else(|| text("id"));
        if id.is_some() && !std::ptr::eq(value, self.root) {
            self.documents.push(value);
        }
        let old_anchor = id.and_then(|id| id.strip_prefix('#'));
        let anchors = [text("$anchor"), text("$dynamicAnchor"), old_anchor];
        for name in anchors.into_iter().flatten() {
            self.anchors.entry(name).or_default().push(value);
        }
        let lists = members.get("patternProperties").and_then(Value::as_object);
        self.patterns += lists.map_or(0, Map::len) + usize::from(text("pattern").is_some());
        self.reads_long_strings |= members.iter().any(reads_long_strings);
    }

    fn enqueue(&mut self, part: &'a Value) {
        if self.queued.insert(part) {
            self.queue.push(part);
        }
    }

    /// What looking at one part of a value with this subschema costs.
    fn compute_cost(&mut self, schema: &'a Value, above: usize) -> Result<Cost, BadSchema> {
        match self.costs.get(&(schema as SchemaAddress)) {
            Some(Some(known)) => return Ok(*known),
            Some(None) => return Err(BadSchema::InfiniteReference),
            None if above >= HEIGHT_MAX => return Err(BadSchema::TooComplex),
            None => {}
        }
        self.costs.insert(schema, None);
        let mut cost = Cost { height: 0, work: 1 };
        if let Value::Object(keywords) = schema {
            for next in self.in_place_subschemas(keywords)? {
                let below = self.compute_cost(next, above + 1)?;
                cost.height = cost.height.max(below.height);
                cost.work = cost.work.saturating_add(below.work);
            }
            cost.work = cost.work.saturating_add(pattern_work(keywords));
            if has_unevaluated(keywords) {
                cost.work = cost.work.saturating_mul(2);
            }
            self.enqueue_children(keywords);
        }
        cost.height += 1;
        if cost.height > HEIGHT_MAX || cost.work > WORK_MAX {
            return Err(BadSchema::TooComplex);
        }
        self.costs.insert(schema, Some(cost));
        Ok(cost)
    }

    /// Subschemas that see the same part of the value.
    fn in_place_subschemas(
        &self,
        keywords: &'a Map<String, Value>,
    ) -> Result<Vec<&'a Value>, BadSchema> {
        let mut next = Vec::new();
        for (keyword, value) in keywords {
            match (keyword.as_str(), value) {
                ("not" | "if" | "then" | "else", _) => next.push(value),
                ("allOf" | "anyOf" | "oneOf", Value::Array(schemas)) => next.extend(schemas),
                ("dependentSchemas" | "dependencies", Value::Object(schemas)) => {
                    next.extend(schemas.values());
                }
                ("$ref" | "$dynamicRef", Value::String(to)) => {
                    next.extend(self.resolve_reference(to)?)
                }
                ("$recursiveRef", Value::String(_)) => next.extend(&self.documents),
                _ => {}
            }
        }
        Ok(next)
    }

    /// Subschemas that see parts of the part.
    fn enqueue_children(&mut self, keywords: &'a Map<String, Value>) {
        for (keyword, value) in keywords {
            match (keyword.as_str(), value) {
                ("properties" | "patternProperties", Value::Object(schemas)) => {
                    schemas.values().for_each(|schema| self.enqueue(schema));
                }
                ("items" | "prefixItems", Value::Array(schemas)) => {
                    schemas.iter().for_each(|schema| self.enqueue(schema));
                }
                (
                    "items"
                    | "additionalItems"
                    | "contains"
                    | "additionalProperties"
                    | "propertyNames"
                    | "unevaluatedItems"
                    | "unevaluatedProperties",
                    Value::Object(_),
                ) => self.enqueue(value),
                _ => {}
            }
        }
    }

    /// All that a reference could mean, in whichever document of the schema it is resolved.
    fn resolve_reference(&self, reference: &str) -> Result<Vec<&'a Value>, BadSchema> {
        let (name, fragment) = reference.split_once('#').unwrap_or((reference, ""));
        let documents = self.documents_named(name);
        if documents.is_empty() {
            return Err(BadSchema::Remote(render_truncated(&reference)));
        }
        let fragment = uris::percent_decode(fragment).unwrap_or_else(|| fragment.to_owned());
        let targets = if fragment.is_empty() {
            documents
        } else if fragment.starts_with('/') {
            let found = documents.iter().filter_map(|d| d.pointer(&fragment));
            found.collect()
        } else {
            let named = self.anchors.get(fragment.as_str());
            named.cloned().unwrap_or_default()
        };
        if targets.is_empty() {
            return Err(BadSchema::Dangling(render_truncated(&reference)));
        }
        Ok(targets)
    }

    /// The documents within the schema that a reference could name, all of them when it names none.
    fn documents_named(&self, name: &str) -> Vec<&'a Value> {
        let last = name.rsplit('/').next().unwrap_or(name);
        let named = |document: &&&Value| {
            let id = document.get("$id").or_else(|| document.get("id"));
            let id = id.and_then(Value::as_str);
            name.is_empty() || id.is_some_and(|id| id.trim_end_matches('#').ends_with(last))
        };
        self.documents.iter().filter(named).copied().collect()
    }
}

/// Whether this member, if it is a keyword, looks at the characters of long strings.
fn reads_long_strings((keyword, value): (&String, &Value)) -> bool {
    match keyword.as_str() {
        "pattern" | "format" | "contentEncoding" | "contentMediaType" => value.is_string(),
        "minLength" | "maxLength" => value.is_number(),
        "uniqueItems" => value.as_bool() == Some(true),
        "enum" | "const" => has_long_string(value),
        _ => false,
    }
}

fn has_long_string(value: &Value) -> bool {
    match value {
        Value::String(text) => text.len() >= STAND_IN_LEN,
        Value::Array(items) => items.iter().any(has_long_string),
        Value::Object(members) => members.values().any(has_long_string),
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}

/// Each member's name meets each pattern.
fn pattern_work(keywords: &Map<String, Value>) -> u64 {
    let patterns = keywords.get("patternProperties").and_then(Value::as_object);
    patterns.map_or(0, |p| p.len() as u64)
}

/// `unevaluated…` asks all alternatives a second time what they have seen.
fn has_unevaluated(keywords: &Map<String, Value>) -> bool {
    keywords.contains_key("unevaluatedProperties") || keywords.contains_key("unevaluatedItems")
}
