//! Validates the entries of another node: an admitted node may be faulty or compromised.
//!
//! Accepted entries are listed under the names of their node only. So a name need not be unique among nodes, but must
//! not contain hidden characters.

use std::borrow::Cow;
use std::sync::Arc;

use mgp_json::lookalike;
use mgp_protocol::federation::to_printable;
use mgp_protocol::federation::tool_index::{IndexRoot, ServerRecord, ToolRecord, ToolVector};
use mgp_protocol::ids::{BadServerId, ServerId, describe_char};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::{DEFINITION_MAX, IndexKey, NAME_MAX, REMOTE_BYTES_MAX};

/// Most dimensions of a vector. The largest models in use give 4096.
const DIMENSIONS_MAX: usize = 4096;
/// Longest id of a model, in bytes.
const MODEL_MAX: usize = 128;
/// How far the length of a vector may be from 1: its numbers are rounded to integers.
const UNIT_TOLERANCE: f32 = 0.02;

/// Longest text of an entry's error, in bytes.
const ERROR_TEXT_MAX: usize = 200;

/// An accepted entry of another node.
#[derive(Clone, Debug, PartialEq)]
pub enum RemoteEntry {
    /// A server.
    Server(ServerRecord),
    /// A tool.
    Tool(RemoteTool),
}

/// A tool of another node.
#[derive(Clone, Debug, PartialEq)]
pub struct RemoteTool {
    /// The definition, as its server sent it.
    pub definition: Arc<str>,
    /// The hash of its schemas.
    pub(crate) schemas: IndexRoot,
    /// The owner's operator confirmed that it is idempotent.
    pub idempotent: bool,
    /// Its embedding, of length 1.
    pub vector: Option<Arc<ToolVector>>,
}

impl RemoteTool {
    /// The record it was parsed from, without members unknown to this version.
    #[must_use]
    pub fn to_record(&self) -> ToolRecord {
        ToolRecord {
            definition: self.definition.to_string(),
            schemas: self.schemas,
            idempotent: self.idempotent,
            vector: self.vector.as_deref().cloned(),
        }
    }
}

/// Why an entry is rejected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EntryError {
    /// The id of the server is invalid.
    #[error(transparent)]
    Server(#[from] BadServerId),
    /// The name is empty or too long.
    #[error("a tool's name has between 1 and {NAME_MAX} bytes, this one has {0}")]
    NameLength(usize),
    /// It contains a character that displays as something else.
    #[error("{} does not show in a text, or turns it around", describe_char(*.0))]
    HiddenCharacter(char),
    /// The record is too long.
    #[error("a definition has at most {DEFINITION_MAX} bytes, this one has {0}")]
    TooLong(usize),
    /// It is not a record of this protocol, or its definition is ambiguous between parsers.
    #[error("it cannot be read: {0}")]
    Unreadable(String),
    /// The definition is that of another tool.
    #[error("its definition names another tool")]
    NameMismatch,
    /// The hash does not match the schemas.
    #[error("its schemas are not those its hash is of")]
    SchemaMismatch,
    /// The vector does not have length 1.
    #[error("its vector is not one of length 1 with a model's id")]
    Vector,
    /// The kernel has reached its limit.
    #[error("this kernel holds {REMOTE_BYTES_MAX} bytes of other nodes' definitions and no more")]
    KernelFull,
}

/// What is parsed of a definition.
#[derive(Deserialize)]
struct ParsedDefinition<'a> {
    #[serde(borrow)]
    name: Cow<'a, str>,
    #[serde(borrow, rename = "inputSchema", default)]
    input: Option<&'a RawValue>,
    #[serde(borrow, rename = "outputSchema", default)]
    output: Option<&'a RawValue>,
}

impl ParsedDefinition<'_> {
    fn schemas_hash(&self) -> IndexRoot {
        let mut hasher = blake3::Hasher::new_derive_key("mgp 2026-11 tool schemas");
        for schema in [self.input, self.output] {
            let text = schema.map_or("", RawValue::get);
            hasher
                .update(&(text.len() as u64).to_le_bytes())
                .update(text.as_bytes());
        }
        IndexRoot(hasher.finalize().into())
    }
}

/// The hash of a definition's schemas as written; `None` for a definition that cannot be parsed.
#[must_use]
pub fn hash_schemas(definition: &str) -> Option<IndexRoot> {
    let read: Result<ParsedDefinition<'_>, _> = lookalike::from_str(definition);
    read.ok().map(|definition| definition.schemas_hash())
}

/// Validates an entry.
pub(super) fn validate(key: &IndexKey, record: &[u8]) -> Result<RemoteEntry, EntryError> {
    ServerId::parse(key.server.as_str())?;
    let unreadable = |error: &dyn std::fmt::Display| {
        // The error quotes the peer's text, and is stored as long as the entry.
        EntryError::Unreadable(to_printable(&error.to_string(), ERROR_TEXT_MAX))
    };
    let Some(name) = &key.tool else {
        let record = ServerRecord::decode(record);
        return record
            .map(RemoteEntry::Server)
            .map_err(|error| unreadable(&error));
    };
    if name.is_empty() || name.len() > NAME_MAX {
        return Err(EntryError::NameLength(name.len()));
    }
    if let Some(c) = name
        .chars()
        .find(|c| c.is_whitespace() || is_hidden_in_names(*c))
    {
        return Err(EntryError::HiddenCharacter(c));
    }
    let record = ToolRecord::decode(record).map_err(|error| unreadable(&error))?;
    if record.definition.len() > DEFINITION_MAX {
        return Err(EntryError::TooLong(record.definition.len()));
    }
    let definition: ParsedDefinition<'_> =
        lookalike::from_str(&record.definition).map_err(|error| unreadable(&error))?;
    if definition.name != **name {
        return Err(EntryError::NameMismatch);
    }
    if definition.schemas_hash() != record.schemas {
        return Err(EntryError::SchemaMismatch);
    }
    if let Some(c) = find_hidden_char(&record.definition) {
        return Err(EntryError::HiddenCharacter(c));
    }
    if record
        .vector
        .as_ref()
        .is_some_and(|vector| !is_unit_vector(vector))
    {
        return Err(EntryError::Vector);
    }
    Ok(RemoteEntry::Tool(RemoteTool {
        definition: record.definition.into(),
        schemas: record.schemas,
        idempotent: record.idempotent,
        vector: record.vector.map(Arc::new),
    }))
}

/// A vector longer than 1 would be closer to every query than any other tool.
fn is_unit_vector(vector: &ToolVector) -> bool {
    let squares = vector.numbers.iter();
    let squares = squares.map(|number| f32::from(number.cast_signed()).powi(2));
    let length = squares.sum::<f32>().sqrt() * vector.unit;
    let id = (1..=MODEL_MAX).contains(&vector.model.len());
    let plain = vector.model.bytes().all(|byte| byte.is_ascii_graphic());
    let fits = (1..=DIMENSIONS_MAX).contains(&vector.numbers.len());
    id && plain && fits && vector.unit > 0.0 && (length - 1.0).abs() <= UNIT_TOLERANCE
}

/// Control characters, bidirectional marks, and invisible tag characters.
fn is_hidden(c: char) -> bool {
    let turns = matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    turns || matches!(c, '\u{e0000}'..='\u{e007f}') || (c.is_control() && !"\t\r\n".contains(c))
}

/// Names are compared by eye: characters without a visible shape are hidden.
fn is_hidden_in_names(c: char) -> bool {
    let shapeless = matches!(
        c,
        '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}'
            | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{2060}'..='\u{206f}'
            | '\u{3164}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}'
            | '\u{fff0}'..='\u{fffb}' | '\u{e0000}'..='\u{e0fff}'
    );
    shapeless || c.is_control() || is_hidden(c)
}

/// The first hidden character in a JSON text, literal or escaped.
fn find_hidden_char(text: &str) -> Option<char> {
    let mut rest = text.chars();
    while let Some(c) = rest.next() {
        if is_hidden(c) {
            return Some(c);
        }
        if c != '\\' || rest.next() != Some('u') {
            continue;
        }
        let digits = rest.as_str().get(..4)?;
        let unit = u32::from_str_radix(digits, 16).ok()?;
        // Tag characters follow this high surrogate; so do some rare variation selectors.
        let unit = if unit == 0xdb40 { 0xe0000 } else { unit };
        if let Some(c) = char::from_u32(unit).filter(|c| is_hidden(*c)) {
            return Some(c);
        }
    }
    None
}
