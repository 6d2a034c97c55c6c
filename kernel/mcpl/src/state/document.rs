//! An editable JSON document: numbers keep their digits, strings their escapes, members their order. Parsed from text
//! that serde_json has accepted.

use std::borrow::Cow;

use mgp_json::{Token, Tokens, find_duplicate, number, quote, unquote};

/// Deepest nesting of a document. States need a handful of levels, and readers recurse.
pub(crate) const MAX_DEPTH: usize = 64;
/// Largest document, in bytes of text: every call carries it.
pub(crate) const MAX_BYTES: usize = 512 << 10;
/// Steps of one patch: each node that is visited, moved or compared is one. Many times what the largest document
/// needs, and less than a tenth of a second.
pub(super) const MAX_WORK: usize = 16 << 20;

/// Why a state's text is invalid, or a patch cannot be applied.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PatchError {
    /// More than [`MAX_BYTES`].
    #[error("it has more than {MAX_BYTES} bytes")]
    TooLarge,
    /// Deeper than [`MAX_DEPTH`].
    #[error("it is nested deeper than {MAX_DEPTH}")]
    TooDeep,
    /// More than the work budget.
    #[error("it takes more work than a patch may")]
    TooMuchWork,
    /// A duplicate name in an object.
    #[error("an object has the member {0:?} twice")]
    Duplicate(String),
    /// Text that JSON readers disagree on.
    #[error("it holds text that not every reader of JSON reads alike")]
    Unreadable,
    /// Not an array of operations.
    #[error(
        "a patch is an array of at most {} operations",
        super::patch::MAX_OPERATIONS
    )]
    NotAPatch,
    /// An invalid operation.
    #[error("operation {at}: {why}")]
    Operation {
        /// Its index.
        at: usize,
        /// What is wrong with it.
        why: &'static str,
    },
}

/// Remaining steps of one patch.
#[derive(Debug)]
pub(super) struct WorkBudget(usize);

impl WorkBudget {
    pub(super) fn new() -> Self {
        Self(MAX_WORK)
    }

    pub(super) fn spend(&mut self, steps: usize) -> Result<(), PatchError> {
        self.0 = self.0.checked_sub(steps).ok_or(PatchError::TooMuchWork)?;
        Ok(())
    }
}

/// One value of a document.
#[derive(Clone, Debug)]
pub(super) enum JsonNode<'a> {
    /// A string, number, `true`, `false` or `null`, verbatim.
    Scalar(&'a str),
    Array(Vec<JsonNode<'a>>),
    Object(Vec<JsonMember<'a>>),
}

/// A member of an object.
#[derive(Clone, Debug)]
pub(super) struct JsonMember<'a> {
    /// Its name, unescaped.
    pub(super) name: Cow<'a, str>,
    /// Its name verbatim, quotes included.
    raw_name: Cow<'a, str>,
    pub(super) value: JsonNode<'a>,
}

impl<'a> JsonMember<'a> {
    /// A member of this name.
    pub(super) fn new(name: String, value: JsonNode<'a>) -> Self {
        let written = quote(&name);
        Self {
            name: name.into(),
            raw_name: written.into(),
            value,
        }
    }
}

/// Size and depth of a value.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct JsonExtent {
    /// Bytes of its text without spaces.
    pub(super) bytes: usize,
    /// 0 for an empty or scalar value.
    pub(super) depth: usize,
}

impl<'a> JsonNode<'a> {
    /// Parses text that serde_json has accepted.
    pub(super) fn read(text: &'a str) -> Result<Self, PatchError> {
        let mut tokens = Tokens::new(text);
        let node = parse_value(tokens.next(), &mut tokens, MAX_DEPTH)?;
        match tokens.next() {
            None => Ok(node),
            Some(_) => Err(PatchError::Unreadable),
        }
    }

    /// Its size and depth.
    pub(super) fn extent(&self, work: &mut WorkBudget) -> Result<JsonExtent, PatchError> {
        work.spend(1)?;
        let (mut bytes, mut depth) = (2, 0);
        match self {
            Self::Scalar(text) => bytes = text.len(),
            Self::Array(items) => {
                bytes += items.len().saturating_sub(1);
                for item in items {
                    let within = item.extent(work)?;
                    bytes += within.bytes;
                    depth = depth.max(within.depth + 1);
                }
            }
            Self::Object(members) => {
                bytes += members.len().saturating_sub(1);
                for member in members {
                    let within = member.value.extent(work)?;
                    bytes += within.bytes + member.raw_name.len() + 1;
                    depth = depth.max(within.depth + 1);
                }
            }
        }
        Ok(JsonExtent { bytes, depth })
    }

    /// True for equal values (RFC 6902, section 4.6): numbers by value, members in any order.
    pub(super) fn equals(&self, right: &Self, work: &mut WorkBudget) -> Result<bool, PatchError> {
        work.spend(1)?;
        match (self, right) {
            (Self::Scalar(left), Self::Scalar(right)) => {
                work.spend(left.len() / 8)?;
                Ok(scalars_equal(left, right))
            }
            (Self::Array(left), Self::Array(right)) if left.len() == right.len() => {
                for (left, right) in left.iter().zip(right) {
                    if !left.equals(right, work)? {
                        return Ok(false);
                    }
                }
                Ok(true)
            }
            (Self::Object(left), Self::Object(right)) if left.len() == right.len() => {
                let (left, right) = (sort_by_name(left, work)?, sort_by_name(right, work)?);
                for (left, right) in left.into_iter().zip(right) {
                    if left.name != right.name || !left.value.equals(&right.value, work)? {
                        return Ok(false);
                    }
                }
                Ok(true)
            }
            (Self::Scalar(_) | Self::Array(_) | Self::Object(_), _) => Ok(false),
        }
    }

    /// Writes it without spaces.
    pub(super) fn write(&self, out: &mut String) {
        match self {
            Self::Scalar(text) => out.push_str(text),
            Self::Array(items) => {
                out.push('[');
                for (n, item) in items.iter().enumerate() {
                    if n > 0 {
                        out.push(',');
                    }
                    item.write(out);
                }
                out.push(']');
            }
            Self::Object(members) => {
                out.push('{');
                for (n, member) in members.iter().enumerate() {
                    if n > 0 {
                        out.push(',');
                    }
                    out.push_str(&member.raw_name);
                    out.push(':');
                    member.value.write(out);
                }
                out.push('}');
            }
        }
    }
}

fn sort_by_name<'m, 'a>(
    members: &'m [JsonMember<'a>],
    work: &mut WorkBudget,
) -> Result<Vec<&'m JsonMember<'a>>, PatchError> {
    work.spend(members.len().saturating_mul(4))?;
    let mut sorted: Vec<_> = members.iter().collect();
    sorted.sort_by(|left, right| left.name.cmp(&right.name));
    Ok(sorted)
}

fn scalars_equal(left: &str, right: &str) -> bool {
    let kind = |text: &str| text.as_bytes().first().copied();
    match (kind(left), kind(right)) {
        (Some(b'"'), Some(b'"')) => left == right || unquote(left) == unquote(right),
        (Some(b'-' | b'0'..=b'9'), Some(b'-' | b'0'..=b'9')) => number::are_equal(left, right),
        _ => left == right,
    }
}

/// The value that begins with this token.
fn parse_value<'a>(
    first: Option<Token<'a>>,
    rest: &mut Tokens<'a>,
    levels: usize,
) -> Result<JsonNode<'a>, PatchError> {
    let levels = || levels.checked_sub(1).ok_or(PatchError::TooDeep);
    match first {
        Some(Token::String(text) | Token::Scalar(text)) => Ok(JsonNode::Scalar(text)),
        Some(Token::Mark(b'[')) => parse_items(rest, levels()?).map(JsonNode::Array),
        Some(Token::Mark(b'{')) => parse_members(rest, levels()?).map(JsonNode::Object),
        Some(Token::Mark(_)) | None => Err(PatchError::Unreadable),
    }
}

fn parse_items<'a>(rest: &mut Tokens<'a>, levels: usize) -> Result<Vec<JsonNode<'a>>, PatchError> {
    let mut items = Vec::new();
    while let Some(first) = next_entry(rest, items.is_empty(), b']')? {
        items.push(parse_value(Some(first), rest, levels)?);
    }
    Ok(items)
}

fn parse_members<'a>(
    rest: &mut Tokens<'a>,
    levels: usize,
) -> Result<Vec<JsonMember<'a>>, PatchError> {
    let mut members = Vec::new();
    while let Some(name) = next_entry(rest, members.is_empty(), b'}')? {
        let (Token::String(raw_name), Some(Token::Mark(b':'))) = (name, rest.next()) else {
            return Err(PatchError::Unreadable);
        };
        members.push(JsonMember {
            name: name.as_text().ok_or(PatchError::Unreadable)?,
            raw_name: raw_name.into(),
            value: parse_value(rest.next(), rest, levels)?,
        });
    }
    check_unique(members)
}

/// The token that an item or a member begins with; `None` at the end of its array or object.
fn next_entry<'a>(
    rest: &mut Tokens<'a>,
    is_first: bool,
    end: u8,
) -> Result<Option<Token<'a>>, PatchError> {
    let next = rest.next().ok_or(PatchError::Unreadable)?;
    if next == Token::Mark(end) {
        Ok(None)
    } else if is_first {
        Ok(Some(next))
    } else if next == Token::Mark(b',') {
        rest.next().map(Some).ok_or(PatchError::Unreadable)
    } else {
        Err(PatchError::Unreadable)
    }
}

/// Rejects duplicate names, on which readers disagree.
fn check_unique(members: Vec<JsonMember<'_>>) -> Result<Vec<JsonMember<'_>>, PatchError> {
    let mut names: Vec<&str> = members.iter().map(|member| &*member.name).collect();
    match find_duplicate(&mut names) {
        Some(name) => Err(PatchError::Duplicate(truncate_name(name))),
        None => Ok(members),
    }
}

/// The beginning of a name, for a report.
fn truncate_name(name: &str) -> String {
    name.chars().take(64).collect()
}
