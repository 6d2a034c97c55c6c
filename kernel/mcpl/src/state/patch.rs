//! JSON Patch (RFC 6902): applied whole or not at all, with bounds on what it may make and on what it may cost.

use mgp_protocol::lookalike;
use mgp_protocol::splice::members;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::document::{
    JsonExtent, JsonMember, JsonNode, MAX_BYTES, MAX_DEPTH, PatchFault, PatchWork,
};

/// Operations of one patch. A server that changes more than this at once sends its state as a whole.
pub const MAX_OPERATIONS: usize = 10_000;

/// The text of `data` after `patch`, both as JSON text.
///
/// # Errors
/// [`PatchFault`]: nothing of the patch is applied.
pub fn patched(data: &str, patch: &str) -> Result<String, PatchFault> {
    if data.len() > MAX_BYTES || patch.len() > MAX_BYTES {
        return Err(PatchFault::TooLarge);
    }
    let operations: Vec<&RawValue> =
        serde_json::from_str(patch).map_err(|_| PatchFault::NoPatch)?;
    if operations.len() > MAX_OPERATIONS {
        return Err(PatchFault::NoPatch);
    }
    let mut patched = PatchedDocument::of(data)?;
    for (at, operation) in operations.into_iter().enumerate() {
        let operation = PatchOperation::read(operation.get());
        let applied = operation.and_then(|operation| patched.apply(&operation));
        applied.map_err(|refused| match refused {
            Unapplied::Fault(fault) => fault,
            Unapplied::Because(why) => PatchFault::Operation { at, why },
        })?;
    }
    patched.text()
}

/// The text of a whole state, without spaces, if it is one that can be kept.
///
/// # Errors
/// [`PatchFault`]
pub fn whole(data: &str) -> Result<String, PatchFault> {
    patched(data, "[]")
}

enum Unapplied {
    Fault(PatchFault),
    Because(&'static str),
}

impl From<PatchFault> for Unapplied {
    fn from(fault: PatchFault) -> Self {
        Self::Fault(fault)
    }
}

/// What an operation says, each value once.
#[derive(Debug, Deserialize)]
struct SaidOperation<'a> {
    op: &'a RawValue,
    path: &'a RawValue,
    #[serde(borrow, default)]
    from: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "there")]
    value: Option<&'a RawValue>,
}

/// `null` is a value, too.
fn there<'de: 'a, 'a, D: serde::Deserializer<'de>>(d: D) -> Result<Option<&'a RawValue>, D::Error> {
    <&RawValue>::deserialize(d).map(Some)
}

enum PatchOperation<'a> {
    Add(JsonPointer, JsonNode<'a>),
    Remove(JsonPointer),
    Replace(JsonPointer, JsonNode<'a>),
    Move { from: JsonPointer, to: JsonPointer },
    Copy { from: JsonPointer, to: JsonPointer },
    Test(JsonPointer, JsonNode<'a>),
}

impl<'a> PatchOperation<'a> {
    fn read(text: &'a str) -> Result<Self, Unapplied> {
        if members(text).is_none() {
            return Err(Unapplied::Because("it is no object"));
        }
        let said: SaidOperation<'a> = lookalike::from_object(text).map_err(|_| {
            Unapplied::Because("`op` or `path` is missing, or a member stands twice")
        })?;
        let path = JsonPointer::read(Some(said.path), "`path` is no JSON Pointer")?;
        let from = || JsonPointer::read(said.from, "`from` is missing, or no JSON Pointer");
        let value = || {
            let value = said.value.ok_or(Unapplied::Because("`value` is missing"))?;
            JsonNode::read(value.get()).map_err(Unapplied::from)
        };
        let op: String = serde_json::from_str(said.op.get())
            .map_err(|_| Unapplied::Because("`op` is no text"))?;
        Ok(match op.as_str() {
            "add" => Self::Add(path, value()?),
            "remove" => Self::Remove(path),
            "replace" => Self::Replace(path, value()?),
            "move" => Self::Move {
                from: from()?,
                to: path,
            },
            "copy" => Self::Copy {
                from: from()?,
                to: path,
            },
            "test" => Self::Test(path, value()?),
            _ => return Err(Unapplied::Because("`op` is none of RFC 6902")),
        })
    }
}

/// A JSON Pointer (RFC 6901): the names on the way.
struct JsonPointer(Vec<String>);

impl JsonPointer {
    fn read(said: Option<&RawValue>, no: &'static str) -> Result<Self, Unapplied> {
        let text: Option<String> = said.and_then(|said| serde_json::from_str(said.get()).ok());
        let text = text.ok_or(Unapplied::Because(no))?;
        let mut words = text.split('/');
        if words.next() != Some("") {
            return Err(Unapplied::Because(no));
        }
        let mut names = Vec::new();
        for word in words {
            if names.len() == MAX_DEPTH {
                return Err(PatchFault::TooDeep.into());
            }
            names.push(plain(word).ok_or(Unapplied::Because(no))?);
        }
        Ok(Self(names))
    }

    fn is_before(&self, other: &Self) -> bool {
        self.0.len() < other.0.len() && other.0.starts_with(&self.0)
    }
}

/// A word of a pointer as it is meant: `~1` is `/`, `~0` is `~`, and nothing else begins with `~`.
fn plain(word: &str) -> Option<String> {
    let mut parts = word.split('~');
    let mut all = parts.next()?.to_owned();
    for part in parts {
        all.push(match part.as_bytes().first()? {
            b'0' => '~',
            b'1' => '/',
            _ => return None,
        });
        all.push_str(&part[1..]);
    }
    Some(all)
}

/// An index of an array: digits, no zero before others.
fn index(name: &str, below: usize) -> Result<usize, Unapplied> {
    let digits = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_digit());
    if !digits || (name.len() > 1 && name.starts_with('0')) {
        return Err(Unapplied::Because("an index of an array is a plain number"));
    }
    match name.parse() {
        Ok(index) if index < below => Ok(index),
        _ => Err(Unapplied::Because("the array has no such place")),
    }
}

const NOT_THERE: Unapplied = Unapplied::Because("there is no such place");

/// A document that is being changed, with its size.
struct PatchedDocument<'a> {
    root: JsonNode<'a>,
    bytes: usize,
    work: PatchWork,
}

impl<'a> PatchedDocument<'a> {
    fn of(data: &'a str) -> Result<Self, PatchFault> {
        let (root, mut work) = (JsonNode::read(data)?, PatchWork::new());
        let bytes = root.extent(&mut work)?.bytes;
        Ok(Self { root, bytes, work })
    }

    /// Its text; what moved deeper than allowed shows here.
    fn text(mut self) -> Result<String, PatchFault> {
        let JsonExtent { bytes, depth } = self.root.extent(&mut PatchWork::new())?;
        if depth > MAX_DEPTH {
            return Err(PatchFault::TooDeep);
        }
        if bytes > MAX_BYTES {
            return Err(PatchFault::TooLarge);
        }
        let mut text = String::with_capacity(bytes);
        self.root.write(&mut text);
        self.bytes = text.len();
        Ok(text)
    }

    fn apply(&mut self, operation: &PatchOperation<'a>) -> Result<(), Unapplied> {
        self.work.take(1)?;
        match operation {
            PatchOperation::Add(path, value) => self.add(path, value.clone()),
            PatchOperation::Remove(path) => self.remove(path).map(|_| ()),
            PatchOperation::Replace(path, value) => {
                let grown = value.extent(&mut self.work)?;
                let place = reach(&mut self.root, &path.0, &mut self.work)?;
                let was = place.extent(&mut self.work)?;
                *place = value.clone();
                self.bytes = self.bytes.saturating_sub(was.bytes);
                self.grows(grown, path)
            }
            PatchOperation::Move { from, to } => {
                if from.is_before(to) {
                    return Err(Unapplied::Because("a value cannot move into itself"));
                }
                if from.0.is_empty() {
                    return Ok(());
                }
                let value = self.remove(from)?;
                self.add(to, value)
            }
            PatchOperation::Copy { from, to } => {
                let value = reach(&mut self.root, &from.0, &mut self.work)?;
                let grown = value.extent(&mut self.work)?;
                // Before it is copied: a patch that doubles its document ends here.
                if self.bytes + grown.bytes > MAX_BYTES {
                    return Err(PatchFault::TooLarge.into());
                }
                let value = value.clone();
                self.add(to, value)
            }
            PatchOperation::Test(path, value) => {
                let place = reach(&mut self.root, &path.0, &mut self.work)?;
                match place.equals(value, &mut self.work)? {
                    true => Ok(()),
                    false => Err(Unapplied::Because("the test does not hold")),
                }
            }
        }
    }

    fn add(&mut self, path: &JsonPointer, value: JsonNode<'a>) -> Result<(), Unapplied> {
        let grown = value.extent(&mut self.work)?;
        let Some((last, before)) = path.0.split_last() else {
            self.root = value;
            self.bytes = 0;
            return self.grows(grown, path);
        };
        let place = reach(&mut self.root, before, &mut self.work)?;
        let mut gone = 0;
        match place {
            JsonNode::Array(items) => {
                let at = match last.as_str() {
                    "-" => items.len(),
                    name => index(name, items.len() + 1)?,
                };
                self.work.take(items.len() - at)?;
                items.insert(at, value);
            }
            JsonNode::Object(members) => {
                self.work.take(members.len())?;
                match members.iter_mut().find(|member| member.name == *last) {
                    Some(member) => {
                        gone = member.value.extent(&mut self.work)?.bytes;
                        member.value = value;
                    }
                    None => members.push(JsonMember::new(last.clone(), value)),
                }
            }
            JsonNode::Scalar(_) => return Err(NOT_THERE),
        }
        self.bytes = (self.bytes + last.len() + 4).saturating_sub(gone);
        self.grows(grown, path)
    }

    fn remove(&mut self, path: &JsonPointer) -> Result<JsonNode<'a>, Unapplied> {
        let (last, before) = path.0.split_last().ok_or(NOT_THERE)?;
        let place = reach(&mut self.root, before, &mut self.work)?;
        let gone = match place {
            JsonNode::Array(items) => {
                let at = index(last, items.len())?;
                self.work.take(items.len() - at)?;
                items.remove(at)
            }
            JsonNode::Object(members) => {
                self.work.take(members.len())?;
                let at = members.iter().position(|member| member.name == *last);
                members.remove(at.ok_or(NOT_THERE)?).value
            }
            JsonNode::Scalar(_) => return Err(NOT_THERE),
        };
        let bytes = gone.extent(&mut self.work)?.bytes;
        self.bytes = self.bytes.saturating_sub(bytes);
        Ok(gone)
    }

    /// Counts what was put at `path`.
    fn grows(&mut self, by: JsonExtent, path: &JsonPointer) -> Result<(), Unapplied> {
        self.bytes += by.bytes;
        if self.bytes > MAX_BYTES {
            // What was counted is never too little; now it is counted anew.
            self.bytes = self.root.extent(&mut self.work)?.bytes;
        }
        if self.bytes > MAX_BYTES {
            return Err(PatchFault::TooLarge.into());
        }
        match path.0.len() + by.depth > MAX_DEPTH {
            true => Err(PatchFault::TooDeep.into()),
            false => Ok(()),
        }
    }
}

/// The value at the end of this way.
fn reach<'n, 'a>(
    root: &'n mut JsonNode<'a>,
    names: &[String],
    work: &mut PatchWork,
) -> Result<&'n mut JsonNode<'a>, Unapplied> {
    let mut place = root;
    for name in names {
        place = match place {
            JsonNode::Array(items) => {
                let at = index(name, items.len())?;
                items.get_mut(at).ok_or(NOT_THERE)?
            }
            JsonNode::Object(members) => {
                work.take(members.len())?;
                let member = members.iter_mut().find(|member| member.name == *name);
                &mut member.ok_or(NOT_THERE)?.value
            }
            JsonNode::Scalar(_) => return Err(NOT_THERE),
        };
    }
    Ok(place)
}
