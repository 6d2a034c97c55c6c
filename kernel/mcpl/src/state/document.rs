//! A JSON document that is edited without being understood: numbers keep their digits, strings their escapes, members
//! their order. Read from text that serde_json has judged.

use std::borrow::Cow;
use std::collections::HashSet;

use super::numbers;

/// Deepest nesting of a document. A server that holds a state needs a handful; readers of it, of this kernel and of
/// others, recurse.
pub const MAX_DEPTH: usize = 64;
/// Largest document, in bytes of text: it goes with every call.
pub const MAX_BYTES: usize = 512 << 10;
/// Steps that one patch may take: every node that is looked at, moved or compared is one. More than the largest
/// document needs many times over, and less than a tenth of a second.
pub(super) const MAX_WORK: usize = 16 << 20;

/// Why a text is no document of a state, or a patch cannot be applied.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PatchFault {
    /// More than [`MAX_BYTES`].
    #[error("it has more than {MAX_BYTES} bytes")]
    TooLarge,
    /// Deeper than [`MAX_DEPTH`].
    #[error("it is nested deeper than {MAX_DEPTH}")]
    TooDeep,
    /// It would take too long.
    #[error("it takes more work than a patch may")]
    TooMuchWork,
    /// One name twice in an object.
    #[error("an object has the member {0:?} twice")]
    Duplicate(String),
    /// No JSON that every reader reads alike.
    #[error("it holds text that not every reader of JSON reads alike")]
    Unreadable,
    /// Not an array of operations.
    #[error(
        "a patch is an array of at most {} operations",
        super::patch::MAX_OPERATIONS
    )]
    NoPatch,
    /// An operation that is none.
    #[error("operation {at}: {why}")]
    Operation {
        /// Which one, from 0.
        at: usize,
        /// What is wrong with it.
        why: &'static str,
    },
}

/// What may still be done for one patch.
#[derive(Debug)]
pub(super) struct PatchWork(usize);

impl PatchWork {
    pub(super) fn new() -> Self {
        Self(MAX_WORK)
    }

    pub(super) fn take(&mut self, steps: usize) -> Result<(), PatchFault> {
        self.0 = self.0.checked_sub(steps).ok_or(PatchFault::TooMuchWork)?;
        Ok(())
    }
}

/// One value of a document.
#[derive(Clone, Debug)]
pub(super) enum JsonNode<'a> {
    /// A string, number, `true`, `false` or `null`, as it was written.
    Scalar(&'a str),
    Array(Vec<JsonNode<'a>>),
    Object(Vec<JsonMember<'a>>),
}

/// A member of an object.
#[derive(Clone, Debug)]
pub(super) struct JsonMember<'a> {
    /// Its name as it is meant.
    pub(super) name: Cow<'a, str>,
    /// Its name as it was written, quotes included.
    written: Cow<'a, str>,
    pub(super) value: JsonNode<'a>,
}

impl<'a> JsonMember<'a> {
    /// A member of this name.
    pub(super) fn new(name: String, value: JsonNode<'a>) -> Self {
        let written = mgp_protocol::splice::quoted(&name);
        Self {
            name: name.into(),
            written: written.into(),
            value,
        }
    }
}

/// How large and deep a value is.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct JsonExtent {
    /// Of its text without spaces.
    pub(super) bytes: usize,
    /// 0 for what holds nothing.
    pub(super) depth: usize,
}

impl<'a> JsonNode<'a> {
    /// Reads a text that serde_json took for JSON.
    pub(super) fn read(text: &'a str) -> Result<Self, PatchFault> {
        let mut reader = JsonReader { text, at: 0 };
        let node = reader.value(MAX_DEPTH)?;
        reader.space();
        match reader.at == text.len() {
            true => Ok(node),
            false => Err(PatchFault::Unreadable),
        }
    }

    /// How large and deep it is.
    pub(super) fn extent(&self, work: &mut PatchWork) -> Result<JsonExtent, PatchFault> {
        work.take(1)?;
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
                    bytes += within.bytes + member.written.len() + 1;
                    depth = depth.max(within.depth + 1);
                }
            }
        }
        Ok(JsonExtent { bytes, depth })
    }

    /// True for the same value (RFC 6902, section 4.6): numbers by what they are, members in any order.
    pub(super) fn equals(&self, other: &Self, work: &mut PatchWork) -> Result<bool, PatchFault> {
        work.take(1)?;
        match (self, other) {
            (Self::Scalar(one), Self::Scalar(other)) => {
                work.take(one.len() / 8)?;
                Ok(scalars_equal(one, other))
            }
            (Self::Array(one), Self::Array(other)) if one.len() == other.len() => {
                for (one, other) in one.iter().zip(other) {
                    if !one.equals(other, work)? {
                        return Ok(false);
                    }
                }
                Ok(true)
            }
            (Self::Object(one), Self::Object(other)) if one.len() == other.len() => {
                let (one, other) = (by_name(one, work)?, by_name(other, work)?);
                for (one, other) in one.into_iter().zip(other) {
                    if one.name != other.name || !one.value.equals(&other.value, work)? {
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
                    out.push_str(&member.written);
                    out.push(':');
                    member.value.write(out);
                }
                out.push('}');
            }
        }
    }
}

fn by_name<'m, 'a>(
    members: &'m [JsonMember<'a>],
    work: &mut PatchWork,
) -> Result<Vec<&'m JsonMember<'a>>, PatchFault> {
    work.take(members.len().saturating_mul(4))?;
    let mut sorted: Vec<_> = members.iter().collect();
    sorted.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(sorted)
}

fn scalars_equal(one: &str, other: &str) -> bool {
    let kind = |text: &str| text.as_bytes().first().copied();
    match (kind(one), kind(other)) {
        (Some(b'"'), Some(b'"')) => one == other || unescaped(one) == unescaped(other),
        (Some(b'-' | b'0'..=b'9'), Some(b'-' | b'0'..=b'9')) => numbers::equal(one, other),
        _ => one == other,
    }
}

/// What a string in quotes says; `None` where readers differ on it (a half of a surrogate pair).
fn unescaped(quoted: &str) -> Option<String> {
    serde_json::from_str(quoted).ok()
}

/// Splits a text into its values. Whatever is no JSON is [`PatchFault::Unreadable`].
struct JsonReader<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> JsonReader<'a> {
    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\r' | b'\n')) {
            self.at += 1;
        }
    }

    /// Takes this byte if it is the next one.
    fn takes(&mut self, byte: u8) -> bool {
        self.space();
        let is = self.peek() == Some(byte);
        self.at += usize::from(is);
        is
    }

    fn value(&mut self, deeper: usize) -> Result<JsonNode<'a>, PatchFault> {
        self.space();
        match self.peek() {
            Some(b'[') => self.array(deeper),
            Some(b'{') => self.object(deeper),
            Some(b'"') => self.string().map(JsonNode::Scalar),
            Some(_) => self.literal().map(JsonNode::Scalar),
            None => Err(PatchFault::Unreadable),
        }
    }

    fn array(&mut self, deeper: usize) -> Result<JsonNode<'a>, PatchFault> {
        let deeper = deeper.checked_sub(1).ok_or(PatchFault::TooDeep)?;
        self.at += 1;
        let mut items = Vec::new();
        if self.takes(b']') {
            return Ok(JsonNode::Array(items));
        }
        loop {
            items.push(self.value(deeper)?);
            if self.takes(b']') {
                return Ok(JsonNode::Array(items));
            }
            self.comma()?;
        }
    }

    fn object(&mut self, deeper: usize) -> Result<JsonNode<'a>, PatchFault> {
        let deeper = deeper.checked_sub(1).ok_or(PatchFault::TooDeep)?;
        self.at += 1;
        let mut members: Vec<JsonMember<'a>> = Vec::new();
        if self.takes(b'}') {
            return Ok(JsonNode::Object(members));
        }
        loop {
            self.space();
            let written = self.string()?;
            let plain = &written[1..written.len() - 1];
            let name = match plain.contains('\\') {
                false => Cow::Borrowed(plain),
                true => unescaped(written).ok_or(PatchFault::Unreadable)?.into(),
            };
            if !self.takes(b':') {
                return Err(PatchFault::Unreadable);
            }
            let value = self.value(deeper)?;
            members.push(JsonMember {
                name,
                written: written.into(),
                value,
            });
            if self.takes(b'}') {
                return once(members).map(JsonNode::Object);
            }
            self.comma()?;
        }
    }

    fn comma(&mut self) -> Result<(), PatchFault> {
        match self.takes(b',') {
            true => Ok(()),
            false => Err(PatchFault::Unreadable),
        }
    }

    /// A string with its quotes.
    fn string(&mut self) -> Result<&'a str, PatchFault> {
        let from = self.at;
        if !self.takes(b'"') {
            return Err(PatchFault::Unreadable);
        }
        loop {
            match self.peek().ok_or(PatchFault::Unreadable)? {
                b'"' => {
                    self.at += 1;
                    return self.text.get(from..self.at).ok_or(PatchFault::Unreadable);
                }
                b'\\' => self.at += 2,
                _ => self.at += 1,
            }
        }
    }

    fn literal(&mut self) -> Result<&'a str, PatchFault> {
        let from = self.at;
        let ends = |byte: u8| matches!(byte, b',' | b']' | b'}' | b' ' | b'\t' | b'\r' | b'\n');
        while self.peek().is_some_and(|byte| !ends(byte)) {
            self.at += 1;
        }
        match self.text.get(from..self.at) {
            Some(text) if !text.is_empty() => Ok(text),
            _ => Err(PatchFault::Unreadable),
        }
    }
}

/// The members, unless two have one name: which of them counts, readers disagree on.
fn once(members: Vec<JsonMember<'_>>) -> Result<Vec<JsonMember<'_>>, PatchFault> {
    let mut seen = HashSet::with_capacity(members.len());
    let twice = members.iter().find(|member| !seen.insert(&*member.name));
    match twice.map(|member| shortened(&member.name)) {
        Some(name) => Err(PatchFault::Duplicate(name)),
        None => Ok(members),
    }
}

/// The beginning of a name, for a report.
fn shortened(name: &str) -> String {
    name.chars().take(64).collect()
}
