//! What the index holds of a tool: what a result shows, and what the search reads.

use std::sync::Arc;

use mgp_json::lookalike;
use mgp_protocol::ids::ServerId;
use mgp_protocol::mgp::discovery::security::{RiskLevel, Security};
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::vectors::Vector;

/// Bytes of a description that are read. What follows is example and licence, not what a tool is.
const DESCRIPTION_BYTES_MAX: usize = 4096;
/// Bytes of a schema that are searched for parameters.
const SCHEMA_BYTES_MAX: usize = 1 << 18;
/// Parameters read, and how deep they may lie.
const PARAMETERS_MAX: usize = 64;
const DEPTH_MAX: usize = 4;
/// Bytes read of what is said of one parameter.
const PARAMETER_BYTES_MAX: usize = 256;
/// Categories and keywords read of a tool, and bytes of each.
const LABELS_MAX: usize = 32;
const LABEL_MAX: usize = 64;

/// A tool in the index.
#[derive(Clone, Debug, PartialEq)]
pub struct IndexedTool {
    /// Its server.
    pub server: ServerId,
    /// The server's own name for it.
    pub name: Arc<str>,
    /// The definition as the server sent it, with the whole schema.
    pub raw: Arc<str>,
    /// The kernel's own judgement, by which results are filtered.
    pub risk: RiskLevel,
    /// Where it stands in the order of things, the general first: `filesystem/read`.
    pub categories: Box<[Box<str>]>,
    /// Words it is also known by.
    pub(crate) keywords: Box<[Box<str>]>,
    /// What it needs, in the spelling of the server.
    pub(crate) permissions: Box<[String]>,
}

/// A tool on its way into the index, with what is read once and not kept.
#[derive(Clone, Debug, PartialEq)]
pub struct IndexDraft {
    /// What is kept.
    pub entry: IndexedTool,
    pub(super) title: Box<str>,
    pub(super) description: Box<str>,
    pub(super) parameters: Box<[Box<str>]>,
    pub(super) parameter_text: Box<str>,
    pub(super) embedding: Option<Box<[f32]>>,
    pub(super) vector: Option<Vector>,
}

#[derive(Default, Deserialize)]
struct IndexedDefinition<'a> {
    #[serde(default)]
    name: Option<Value>,
    #[serde(default)]
    title: Option<Value>,
    #[serde(default)]
    description: Option<Value>,
    #[serde(borrow, default, rename = "inputSchema")]
    schema: Option<&'a RawValue>,
    #[serde(default)]
    categories: Option<Value>,
    #[serde(default)]
    keywords: Option<Value>,
    #[serde(borrow, default)]
    embedding: Option<&'a RawValue>,
}

impl IndexDraft {
    /// Reads a definition. What is missing or of the wrong kind is not there: the catalog has judged
    /// the definition before, and a tool that is badly described can still be found by its name.
    #[must_use]
    pub fn parse(
        server: &ServerId,
        name: &Arc<str>,
        raw: &Arc<str>,
        security: Option<&Security>,
        risk: RiskLevel,
    ) -> Self {
        let definition: IndexedDefinition<'_> = lookalike::from_object(raw).unwrap_or_default();
        let text = |value: &Option<Value>, most: usize| -> Box<str> {
            let text = value.as_ref().and_then(Value::as_str).unwrap_or_default();
            text[..text.floor_char_boundary(most)].into()
        };
        let mut parameters = ParameterTexts::default();
        let schema = definition.schema.map(RawValue::get);
        let schema = schema.filter(|schema| schema.len() <= SCHEMA_BYTES_MAX);
        if let Some(schema) = schema.and_then(|schema| serde_json::from_str(schema).ok()) {
            parameters.collect(&schema, 0);
        }
        // What it is shown as, where that is another name than its server's.
        let called = definition.name.as_ref().and_then(Value::as_str);
        let called = called.filter(|called| *called != &**name && called.len() <= LABEL_MAX * 2);
        let keywords = parse_labels(definition.keywords.as_ref())
            .into_vec()
            .into_iter();
        let keywords = keywords.chain(called.map(Box::from)).collect();
        let permissions = security.map(|said| said.permissions_required.iter().cloned().collect());
        Self {
            entry: IndexedTool {
                server: server.clone(),
                name: Arc::clone(name),
                raw: Arc::clone(raw),
                risk,
                categories: parse_labels(definition.categories.as_ref()),
                keywords,
                permissions: permissions.unwrap_or_default(),
            },
            title: text(&definition.title, LABEL_MAX * 4),
            description: text(&definition.description, DESCRIPTION_BYTES_MAX),
            parameters: parameters.names.into(),
            parameter_text: parameters.descriptions.into(),
            embedding: definition
                .embedding
                .and_then(|raw| parse_embedding(raw.get())),
            vector: None,
        }
    }
}

impl IndexDraft {
    /// The same tool, standing where the operator says that its server stands, as well.
    #[must_use]
    pub fn with_categories(mut self, categories: &[String]) -> Self {
        let added = categories.iter();
        let added = added.map(|label| label.to_lowercase().trim_matches('/').into());
        let mut all = self.entry.categories.into_vec();
        for label in added {
            if !all.contains(&label) {
                all.push(label);
            }
        }
        self.entry.categories = all.into();
        self
    }

    /// The same tool without a vector that could not be held against those of a model of this
    /// dimension; without any when there is no model.
    #[must_use]
    pub fn with_compatible_embedding(mut self, dimension: Option<usize>) -> Self {
        let fits = |given: &[f32]| Some(given.len()) == dimension;
        self.embedding = self.embedding.filter(|given| fits(given));
        self
    }

    /// The same tool with the vector that its node made of it by the model that is used here: none is made
    /// anew.
    #[must_use]
    pub fn with_vector(mut self, vector: Option<Vector>) -> Self {
        self.vector = vector;
        self
    }
}

impl IndexedTool {
    /// True when the tool stands in that category or in one below it: `filesystem` has
    /// `filesystem/read` and not `filesystems`. Its server's name is a category, too.
    #[must_use]
    pub(crate) fn is_in_category(&self, category: &str) -> bool {
        let wanted = category.trim_matches('/');
        let own = self.categories.iter().map(|own| &**own);
        own.chain([self.server.as_str()]).any(|own| {
            let head = own.get(..wanted.len());
            head.is_some_and(|head| head.eq_ignore_ascii_case(wanted))
                && matches!(own.as_bytes().get(wanted.len()), None | Some(b'/' | b'.'))
        })
    }
}

/// `["Filesystem", "read"]`, in small letters and without what is too long.
fn parse_labels(value: Option<&Value>) -> Box<[Box<str>]> {
    let labels = value.and_then(Value::as_array).into_iter().flatten();
    let labels = labels.filter_map(Value::as_str);
    let short = labels.filter(|label| (1..=LABEL_MAX).contains(&label.len()));
    let kept = short.take(LABELS_MAX);
    kept.map(|label| label.to_lowercase().trim_matches('/').into())
        .collect()
}

/// A vector that the server sends along; anything that is none is not there.
fn parse_embedding(raw: &str) -> Option<Box<[f32]>> {
    let numbers: Vec<f32> = serde_json::from_str(raw).ok()?;
    let sound = !numbers.is_empty() && numbers.iter().all(|n| n.is_finite());
    sound.then(|| numbers.into())
}

#[derive(Default)]
struct ParameterTexts {
    names: Vec<Box<str>>,
    descriptions: String,
}

impl ParameterTexts {
    fn collect(&mut self, schema: &Value, depth: usize) {
        if depth >= DEPTH_MAX {
            return;
        }
        let properties = schema.get("properties").and_then(Value::as_object);
        for (name, below) in properties.into_iter().flatten() {
            if self.names.len() >= PARAMETERS_MAX {
                return;
            }
            self.names
                .push(name[..name.floor_char_boundary(LABEL_MAX)].into());
            if let Some(remark) = below.get("description").and_then(Value::as_str) {
                let end = remark.floor_char_boundary(PARAMETER_BYTES_MAX);
                self.descriptions.push_str(&remark[..end]);
                self.descriptions.push('\n');
            }
            self.collect(below, depth + 1);
        }
        if let Some(items) = schema.get("items") {
            self.collect(items, depth + 1);
        }
    }
}
