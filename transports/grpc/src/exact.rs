//! JSON objects as `google.protobuf.Struct`: exactly, or not at all.
//!
//! A `Struct` holds numbers only as doubles. A double distinguishes neighbouring integers only below 2^53, so a larger one
//! may have been another number before the sender's library encoded it: such numbers are rejected, never rounded
//! (LITE-075). Members keep their order, strings their characters.

mod decoder;
mod encoder;
mod number;

use std::borrow::Cow;

use prost::bytes::{Buf, BufMut};
use prost::encoding::{self, DecodeContext, WireType};
use prost::{DecodeError, Message};

/// Most nested messages. The readers of most languages accept 100 and count the outermost in different ways; an object
/// takes three, a list two.
pub(crate) const MAX_DEPTH: usize = 96;

/// Longest part of a rejected text that an error repeats, in bytes.
const ECHO_MAX_BYTES: usize = 64;

/// A `google.protobuf.Struct` in its wire format.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Struct(Vec<u8>);

/// Why a JSON object cannot be a `Struct`, or a `Struct` no JSON object.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}{why}", render_location(.path))]
pub struct StructError {
    /// The location as a JSON pointer (RFC 6901); empty for the whole.
    pub path: String,
    /// The reason.
    pub why: StructErrorKind,
}

/// The reason of a failed conversion.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StructErrorKind {
    /// A double of 2^53 or more without a fraction.
    #[error(
        "{0} may have been another number: a `Struct` holds numbers as doubles, which tell integers apart only below 2^53; send it as a string, or over HTTP"
    )]
    Ambiguous(String),
    /// A JSON number that no double holds exactly.
    #[error(
        "a double cannot hold {0} exactly, and a `Struct` holds numbers as doubles only; over HTTP it is told as it is"
    )]
    Rounded(String),
    /// NaN or infinity.
    #[error("{0} is no number in JSON")]
    NotFinite(String),
    /// More than [`MAX_DEPTH`].
    #[error("it is nested too deeply: {MAX_DEPTH} messages within one another are the limit")]
    TooDeep,
    /// Longer than the limit.
    #[error("it is longer than {0} bytes, the limit")]
    TooLong(usize),
    /// A duplicate member: readers differ on which one counts.
    #[error("the member {0} is there twice")]
    DuplicateMember(String),
    /// Bytes that are no `Struct`.
    #[error("it is no google.protobuf.Struct: {0}")]
    Malformed(&'static str),
    /// Text that is no JSON object.
    #[error("it is no JSON object: {0}")]
    NotAnObject(&'static str),
}

impl Struct {
    /// Encodes a JSON object in at most `longest` bytes.
    ///
    /// # Errors
    /// [`StructError`].
    pub fn from_json(text: &str, longest: usize) -> Result<Self, StructError> {
        encoder::encode_struct(text, longest).map(Self)
    }

    /// Decodes the object to JSON text of at most `longest` bytes.
    ///
    /// # Errors
    /// [`StructError`].
    pub fn to_json(&self, longest: usize) -> Result<String, StructError> {
        decoder::decode_struct(&self.0, longest)
    }

    /// Whether it is `{}`.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Stored unchanged: a second piece of the same field is appended, which is how fields merge.
impl Message for Struct {
    fn encode_raw(&self, buf: &mut impl BufMut) {
        buf.put_slice(&self.0);
    }

    fn merge_field(
        &mut self,
        tag: u32,
        wire_type: WireType,
        buf: &mut impl Buf,
        ctx: DecodeContext,
    ) -> Result<(), DecodeError> {
        if (tag, wire_type) != (1, WireType::LengthDelimited) {
            // Fields of later versions are skipped, as every reader does.
            return encoding::skip_field(wire_type, tag, buf, ctx);
        }
        let mut entry = bytes::Bytes::new();
        encoding::bytes::merge(wire_type, &mut entry, buf, ctx)?;
        encoding::bytes::encode(tag, &entry, &mut self.0);
        Ok(())
    }

    fn encoded_len(&self) -> usize {
        self.0.len()
    }

    fn clear(&mut self) {
        self.0.clear();
    }
}

impl StructError {
    fn new(why: StructErrorKind) -> Self {
        Self {
            path: String::new(),
            why,
        }
    }

    /// Prefixes the path with a member or an index.
    fn nested_in(mut self, name: &str) -> Self {
        if self.path.len() < ECHO_MAX_BYTES {
            let name = truncate(name).replace('~', "~0").replace('/', "~1");
            self.path.insert_str(0, &format!("/{name}"));
        }
        self
    }
}

impl From<StructErrorKind> for StructError {
    fn from(why: StructErrorKind) -> Self {
        Self::new(why)
    }
}

fn render_location(path: &str) -> String {
    match path {
        "" => String::new(),
        path => format!("at {path}: "),
    }
}

/// Rejects an object with a duplicate member.
fn reject_duplicate_keys(keys: &mut [Cow<'_, str>]) -> Result<(), StructError> {
    match mgp_json::find_duplicate(keys) {
        Some(key) => Err(StructErrorKind::DuplicateMember(truncate(key).into()).into()),
        None => Ok(()),
    }
}

/// Truncates a foreign text for display.
fn truncate(text: &str) -> &str {
    &text[..text.floor_char_boundary(ECHO_MAX_BYTES)]
}

#[cfg(test)]
mod tests;
