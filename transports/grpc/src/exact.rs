//! JSON objects as `google.protobuf.Struct`: exactly, or not at all.
//!
//! A `Struct` holds numbers as doubles and nothing else. A double tells an integer from its neighbours only
//! below 2^53, so one that is larger was perhaps another one before its sender's library wrote it down:
//! such numbers are refused, never rounded (LITE-075). Members keep their order, strings their characters.

mod decoder;
mod encoder;
mod number;

use std::borrow::Cow;

use prost::bytes::{Buf, BufMut};
use prost::encoding::{self, DecodeContext, WireType};
use prost::{DecodeError, Message};

/// Most messages within one another. The readers of most languages take 100 and count the outermost in
/// different ways; an object takes three, a list two.
pub(crate) const MAX_DEPTH: usize = 96;

/// Longest piece of what is refused that is repeated in the words of a refusal, in bytes.
const ECHO_MAX_BYTES: usize = 64;

/// A `google.protobuf.Struct`, as it is on the wire.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Struct(Vec<u8>);

/// Why a JSON object cannot be a `Struct`, or a `Struct` no JSON object.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}{why}", render_location(.path))]
pub struct StructError {
    /// Where, as a JSON pointer (RFC 6901); empty for the whole.
    pub path: String,
    /// What is in the way.
    pub why: StructErrorKind,
}

/// What is in the way.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StructErrorKind {
    /// An integer of 2^53 or more, as a double.
    #[error(
        "{0} may have been another number: a `Struct` holds numbers as doubles, which tell integers apart only below 2^53; send it as a string, or over HTTP"
    )]
    Ambiguous(String),
    /// A number as JSON text that no double holds.
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
    /// Longer than agreed.
    #[error("it is longer than {0} bytes, the limit")]
    TooLong(usize),
    /// A member that is there twice: readers differ on which one counts.
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
    /// The object in JSON text, on the wire in at most `longest` bytes.
    ///
    /// # Errors
    /// [`StructError`].
    pub fn from_json(text: &str, longest: usize) -> Result<Self, StructError> {
        encoder::encode_struct(text, longest).map(Self)
    }

    /// The object as JSON text of at most `longest` bytes.
    ///
    /// # Errors
    /// [`StructError`].
    pub fn to_json(&self, longest: usize) -> Result<String, StructError> {
        decoder::decode_struct(&self.0, longest)
    }

    /// True for `{}`.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Kept as it came: a second piece of the same field is appended, which is what merging means.
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
            // What later versions may add is passed over, as every reader does.
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

    /// The same, seen from outside the member or item of this name.
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

/// Refuses an object that has a member twice.
fn reject_duplicate_keys(keys: &mut [Cow<'_, str>]) -> Result<(), StructError> {
    match mgp_json::find_duplicate(keys) {
        Some(key) => Err(StructErrorKind::DuplicateMember(truncate(key).into()).into()),
        None => Ok(()),
    }
}

/// The beginning of a text that is not ours.
fn truncate(text: &str) -> &str {
    &text[..text.floor_char_boundary(ECHO_MAX_BYTES)]
}

#[cfg(test)]
mod tests;
