//! What an expression may be, as far as it can be told without running it.

use std::collections::HashMap;

/// Values that one expression or name may have. Beyond it the name counts as unknown, and as too
/// complex if paths would be lost.
pub(super) const MAX_VALUES: usize = 24;
/// Bytes of a folded text; a longer one is unknown.
pub(super) const MAX_TEXT: usize = 4096;
/// Names in a path; more of them are no known module.
const MAX_PATH: usize = 24;

/// Where a path begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Root {
    /// At an imported module.
    Module,
    /// At a name that the language or the host provides.
    Global,
    /// At something unknown.
    Unknown,
}

/// One possible value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Value {
    Unknown,
    Text(String),
    Path(Root, Vec<String>),
}

impl Value {
    pub(super) fn global(name: &str) -> Self {
        Self::Path(Root::Global, vec![name.to_owned()])
    }

    pub(super) fn module(name: &str) -> Self {
        let names = name.split(['.', '/']).filter(|n| !n.is_empty());
        Self::Path(Root::Module, names.map(str::to_owned).collect())
    }

    /// The member of this name.
    pub(super) fn member(&self, name: &str) -> Self {
        match self {
            Self::Path(root, names) if names.len() < MAX_PATH => {
                let mut names = names.clone();
                names.push(name.to_owned());
                Self::Path(*root, names)
            }
            Self::Path(..) | Self::Unknown | Self::Text(_) => {
                Self::Path(Root::Unknown, vec![name.to_owned()])
            }
        }
    }
}

/// All that an expression may be.
pub(super) type Values = Vec<Value>;

/// Adds what is not there yet.
pub(super) fn merge(into: &mut Values, from: impl IntoIterator<Item = Value>) {
    for value in from {
        if into.len() < MAX_VALUES && !into.contains(&value) {
            into.push(value);
        }
    }
}

/// The texts it may be, or nothing if it may be anything else.
pub(super) fn texts(values: &[Value]) -> Option<Vec<&str>> {
    fn text(value: &Value) -> Option<&str> {
        match value {
            Value::Text(t) => Some(t),
            Value::Unknown | Value::Path(..) => None,
        }
    }
    let all: Option<Vec<&str>> = values.iter().map(text).collect();
    all.filter(|t| !t.is_empty())
}

/// Both texts in a row, for each pair.
pub(super) fn joined(left: &[Value], right: &[Value]) -> Values {
    let mut out = Values::new();
    for l in left {
        for r in right {
            let value = match (l, r) {
                (Value::Text(l), Value::Text(r)) if l.len() + r.len() <= MAX_TEXT => {
                    Value::Text(format!("{l}{r}"))
                }
                _ => Value::Unknown,
            };
            if out.len() == MAX_VALUES {
                return vec![Value::Unknown];
            }
            merge(&mut out, [value]);
        }
    }
    out
}

/// What each name is bound to anywhere in the code: scopes and order are not told apart, so a name is
/// whatever it is anywhere.
#[derive(Debug, Default)]
pub(super) struct Names {
    bound: HashMap<String, Values>,
    changed: bool,
    lost: bool,
}

impl Names {
    pub(super) fn bind(&mut self, name: &str, values: impl IntoIterator<Item = Value>) {
        let known = self.bound.entry(name.to_owned()).or_insert_with(|| {
            self.changed = true;
            Values::new()
        });
        for value in values {
            if known.contains(&value) {
                continue;
            }
            self.changed = true;
            if known.len() < MAX_VALUES {
                known.push(value);
            } else {
                // Too many texts are any text; a path that is lost could be a dangerous one.
                let text = known.iter().position(|v| matches!(v, Value::Text(_)));
                self.changed = false;
                self.lost |= matches!(value, Value::Path(..));
                match text {
                    Some(at) if !known.contains(&Value::Unknown) => known[at] = Value::Unknown,
                    Some(_) => {}
                    None => self.lost |= !known.contains(&Value::Unknown),
                }
            }
        }
    }

    pub(super) fn get(&self, name: &str) -> Option<&Values> {
        self.bound.get(name)
    }

    /// Whether anything was learnt since this was last asked.
    pub(super) fn take_changed(&mut self) -> bool {
        std::mem::take(&mut self.changed)
    }

    /// Whether a name had more paths than are kept.
    pub(super) fn lost(&self) -> bool {
        self.lost
    }
}
