//! JSON Patch (RFC 6902): atomic, with bounds on its result and its work.

use mgp_json::{lookalike, members, unquote};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::document::{
    JsonExtent, JsonMember, JsonNode, MAX_BYTES, MAX_DEPTH, PatchError, WorkBudget,
};

/// Most operations of one patch. A server with more changes sends its whole state.
pub(crate) const MAX_OPERATIONS: usize = 10_000;

/// The text of `data` after `patch`, both as JSON text.
///
/// # Errors
/// [`PatchError`]: no operation is applied.
pub fn apply_patch(data: &str, patch: &str) -> Result<String, PatchError> {
    if data.len() > MAX_BYTES || patch.len() > MAX_BYTES {
        return Err(PatchError::TooLarge);
    }
    let operations: Vec<&RawValue> =
        serde_json::from_str(patch).map_err(|_| PatchError::NotAPatch)?;
    if operations.len() > MAX_OPERATIONS {
        return Err(PatchError::NotAPatch);
    }
    let mut patched = PatchedDocument::parse(data)?;
    for (at, operation) in operations.into_iter().enumerate() {
        let operation = PatchOperation::parse(operation.get());
        let applied = operation.and_then(|operation| patched.apply(&operation));
        applied.map_err(|refused| match refused {
            ApplyError::Fault(fault) => fault,
            ApplyError::Reason(why) => PatchError::Operation { at, why },
        })?;
    }
    patched.into_text()
}

/// The text of a valid state, without spaces.
///
/// # Errors
/// [`PatchError`]
pub fn normalize_state(data: &str) -> Result<String, PatchError> {
    apply_patch(data, "[]")
}

enum ApplyError {
    Fault(PatchError),
    Reason(&'static str),
}

impl From<PatchError> for ApplyError {
    fn from(fault: PatchError) -> Self {
        Self::Fault(fault)
    }
}

/// A parsed operation; duplicate members are rejected.
#[derive(Debug, Deserialize)]
struct RawOperation<'a> {
    op: &'a RawValue,
    path: &'a RawValue,
    #[serde(borrow, default)]
    from: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "lookalike::raw_value")]
    value: Option<&'a RawValue>,
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
    fn parse(text: &'a str) -> Result<Self, ApplyError> {
        if members(text).is_none() {
            return Err(ApplyError::Reason("it is no object"));
        }
        let raw: RawOperation<'a> = lookalike::from_object(text).map_err(|_| {
            ApplyError::Reason("`op` or `path` is missing, or a member stands twice")
        })?;
        let path = JsonPointer::parse(Some(raw.path), "`path` is no JSON Pointer")?;
        let from = || JsonPointer::parse(raw.from, "`from` is missing, or no JSON Pointer");
        let value = || {
            let value = raw.value.ok_or(ApplyError::Reason("`value` is missing"))?;
            JsonNode::read(value.get()).map_err(ApplyError::from)
        };
        let op = unquote(raw.op.get()).ok_or(ApplyError::Reason("`op` is no text"))?;
        Ok(match &*op {
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
            _ => return Err(ApplyError::Reason("`op` is none of RFC 6902")),
        })
    }
}

/// A JSON Pointer (RFC 6901): the names of its path.
struct JsonPointer(Vec<String>);

impl JsonPointer {
    fn parse(raw: Option<&RawValue>, error: &'static str) -> Result<Self, ApplyError> {
        let text = raw.and_then(|raw| unquote(raw.get()));
        let text = text.ok_or(ApplyError::Reason(error))?;
        let mut words = text.split('/');
        if words.next() != Some("") {
            return Err(ApplyError::Reason(error));
        }
        let mut names = Vec::new();
        for word in words {
            if names.len() == MAX_DEPTH {
                return Err(PatchError::TooDeep.into());
            }
            names.push(unescape_token(word).ok_or(ApplyError::Reason(error))?);
        }
        Ok(Self(names))
    }

    fn is_before(&self, other: &Self) -> bool {
        self.0.len() < other.0.len() && other.0.starts_with(&self.0)
    }
}

/// Unescapes a token: `~1` is `/`, `~0` is `~`, any other `~` is invalid.
fn unescape_token(word: &str) -> Option<String> {
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

/// An array index: digits without leading zeros.
fn parse_index(name: &str, below: usize) -> Result<usize, ApplyError> {
    let digits = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_digit());
    if !digits || (name.len() > 1 && name.starts_with('0')) {
        return Err(ApplyError::Reason("an index of an array is a plain number"));
    }
    match name.parse() {
        Ok(index) if index < below => Ok(index),
        _ => Err(ApplyError::Reason("the array has no such place")),
    }
}

const NOT_THERE: ApplyError = ApplyError::Reason("there is no such place");

/// A document during a patch, with its size.
struct PatchedDocument<'a> {
    root: JsonNode<'a>,
    bytes: usize,
    work: WorkBudget,
}

impl<'a> PatchedDocument<'a> {
    fn parse(data: &'a str) -> Result<Self, PatchError> {
        let (root, mut work) = (JsonNode::read(data)?, WorkBudget::new());
        let bytes = root.extent(&mut work)?.bytes;
        Ok(Self { root, bytes, work })
    }

    /// Its text; checks the depth, which moves may have increased.
    fn into_text(mut self) -> Result<String, PatchError> {
        let JsonExtent { bytes, depth } = self.root.extent(&mut WorkBudget::new())?;
        if depth > MAX_DEPTH {
            return Err(PatchError::TooDeep);
        }
        if bytes > MAX_BYTES {
            return Err(PatchError::TooLarge);
        }
        let mut text = String::with_capacity(bytes);
        self.root.write(&mut text);
        self.bytes = text.len();
        Ok(text)
    }

    fn apply(&mut self, operation: &PatchOperation<'a>) -> Result<(), ApplyError> {
        self.work.spend(1)?;
        match operation {
            PatchOperation::Add(path, value) => self.add(path, value.clone()),
            PatchOperation::Remove(path) => self.remove(path).map(|_| ()),
            PatchOperation::Replace(path, value) => {
                let grown = value.extent(&mut self.work)?;
                let target = resolve(&mut self.root, &path.0, &mut self.work)?;
                let was = target.extent(&mut self.work)?;
                *target = value.clone();
                self.bytes = self.bytes.saturating_sub(was.bytes);
                self.account_growth(grown, path)
            }
            PatchOperation::Move { from, to } => {
                if from.is_before(to) {
                    return Err(ApplyError::Reason("a value cannot move into itself"));
                }
                if from.0.is_empty() {
                    return Ok(());
                }
                let value = self.remove(from)?;
                self.add(to, value)
            }
            PatchOperation::Copy { from, to } => {
                let value = resolve(&mut self.root, &from.0, &mut self.work)?;
                let grown = value.extent(&mut self.work)?;
                // Checked before the copy, to stop patches that double their document.
                if self.bytes + grown.bytes > MAX_BYTES {
                    return Err(PatchError::TooLarge.into());
                }
                let value = value.clone();
                self.add(to, value)
            }
            PatchOperation::Test(path, value) => {
                let target = resolve(&mut self.root, &path.0, &mut self.work)?;
                if target.equals(value, &mut self.work)? {
                    Ok(())
                } else {
                    Err(ApplyError::Reason("the test does not hold"))
                }
            }
        }
    }

    fn add(&mut self, path: &JsonPointer, value: JsonNode<'a>) -> Result<(), ApplyError> {
        let grown = value.extent(&mut self.work)?;
        let Some((last, before)) = path.0.split_last() else {
            self.root = value;
            self.bytes = 0;
            return self.account_growth(grown, path);
        };
        let target = resolve(&mut self.root, before, &mut self.work)?;
        let mut removed = 0;
        match target {
            JsonNode::Array(items) => {
                let at = match last.as_str() {
                    "-" => items.len(),
                    name => parse_index(name, items.len() + 1)?,
                };
                self.work.spend(items.len() - at)?;
                items.insert(at, value);
            }
            JsonNode::Object(members) => {
                self.work.spend(members.len())?;
                match members.iter_mut().find(|member| member.name == *last) {
                    Some(member) => {
                        removed = member.value.extent(&mut self.work)?.bytes;
                        member.value = value;
                    }
                    None => members.push(JsonMember::new(last.clone(), value)),
                }
            }
            JsonNode::Scalar(_) => return Err(NOT_THERE),
        }
        self.bytes = (self.bytes + last.len() + 4).saturating_sub(removed);
        self.account_growth(grown, path)
    }

    fn remove(&mut self, path: &JsonPointer) -> Result<JsonNode<'a>, ApplyError> {
        let (last, before) = path.0.split_last().ok_or(NOT_THERE)?;
        let target = resolve(&mut self.root, before, &mut self.work)?;
        let removed = match target {
            JsonNode::Array(items) => {
                let at = parse_index(last, items.len())?;
                self.work.spend(items.len() - at)?;
                items.remove(at)
            }
            JsonNode::Object(members) => {
                self.work.spend(members.len())?;
                let at = members.iter().position(|member| member.name == *last);
                members.remove(at.ok_or(NOT_THERE)?).value
            }
            JsonNode::Scalar(_) => return Err(NOT_THERE),
        };
        let bytes = removed.extent(&mut self.work)?.bytes;
        self.bytes = self.bytes.saturating_sub(bytes);
        Ok(removed)
    }

    /// Accounts for the value added at `path`.
    fn account_growth(&mut self, by: JsonExtent, path: &JsonPointer) -> Result<(), ApplyError> {
        self.bytes += by.bytes;
        if self.bytes > MAX_BYTES {
            // The count is an upper bound; measure again.
            self.bytes = self.root.extent(&mut self.work)?.bytes;
        }
        if self.bytes > MAX_BYTES {
            return Err(PatchError::TooLarge.into());
        }
        if path.0.len() + by.depth > MAX_DEPTH {
            Err(PatchError::TooDeep.into())
        } else {
            Ok(())
        }
    }
}

/// The value at this path.
fn resolve<'n, 'a>(
    root: &'n mut JsonNode<'a>,
    names: &[String],
    work: &mut WorkBudget,
) -> Result<&'n mut JsonNode<'a>, ApplyError> {
    let mut target = root;
    for name in names {
        target = match target {
            JsonNode::Array(items) => {
                let at = parse_index(name, items.len())?;
                items.get_mut(at).ok_or(NOT_THERE)?
            }
            JsonNode::Object(members) => {
                work.spend(members.len())?;
                let member = members.iter_mut().find(|member| member.name == *name);
                &mut member.ok_or(NOT_THERE)?.value
            }
            JsonNode::Scalar(_) => return Err(NOT_THERE),
        };
    }
    Ok(target)
}
