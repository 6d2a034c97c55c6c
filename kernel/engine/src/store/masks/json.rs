//! JSON without secrets. The text is copied, not built anew: what is no secret stays as its sender wrote it.

use std::borrow::Cow;

use mgp_protocol::splice::quoted;
use serde_json::value::RawValue;

use super::loosened::undone;
use super::{MASK, Masks, is_secret, plain};

/// Texts of JSON in texts of JSON that are read as such; deeper ones are searched as texts.
const NESTED: usize = 4;
/// Below these, names are those of arguments, and their values descriptions of them.
const SCHEMAS: [&str; 3] = ["inputschema", "outputschema", "requestedschema"];
/// Named like a secret, and none: the token of a request's progress is chosen by who asks.
const NO_SECRET: &str = "progresstoken";

/// What the values here are.
#[derive(Clone, Copy, Default)]
struct ValueUse {
    /// They belong to a name that makes them secrets.
    secret: bool,
    /// They describe something.
    schema: bool,
    /// They are numbers of tokens.
    counts: bool,
}

/// An object or an array that has begun.
struct OpenValue {
    object: bool,
    /// In an object: the next text is a name.
    name_next: bool,
    place: ValueUse,
    /// What the name before the next value says of it.
    value: ValueUse,
}

/// JSON on one line without secrets, and whether anything was masked. What is no JSON is copied as far as it goes.
pub(super) fn masked(masks: &Masks, text: &str, depth: usize) -> (String, bool) {
    let mut walk = MaskingCopy {
        masks,
        depth,
        out: String::with_capacity(text.len()),
        levels: Vec::new(),
        changed: false,
    };
    let mut at = 0;
    while let Some(&byte) = text.as_bytes().get(at) {
        at += match byte {
            b' ' | b'\t' | b'\n' | b'\r' => 1,
            b'"' => walk.string(string_at(&text[at..])),
            b'{' | b'[' => walk.opens(byte),
            b'}' | b']' => walk.closes(byte),
            b',' | b':' => walk.parts(byte),
            _ => walk.scalar(scalar_at(&text[at..])),
        };
    }
    (walk.out, walk.changed)
}

struct MaskingCopy<'a> {
    masks: &'a Masks,
    depth: usize,
    out: String,
    levels: Vec<OpenValue>,
    changed: bool,
}

impl MaskingCopy<'_> {
    fn opens(&mut self, byte: u8) -> usize {
        let place = self.place();
        self.levels.push(OpenValue {
            object: byte == b'{',
            name_next: byte == b'{',
            place,
            value: place,
        });
        self.parts_with(byte)
    }

    fn closes(&mut self, byte: u8) -> usize {
        self.levels.pop();
        self.parts_with(byte)
    }

    fn parts(&mut self, byte: u8) -> usize {
        if let Some(level) = self.levels.last_mut() {
            level.name_next = level.object && byte == b',';
        }
        self.parts_with(byte)
    }

    fn parts_with(&mut self, byte: u8) -> usize {
        self.out.push(char::from(byte));
        1
    }

    /// What the next value is.
    fn place(&self) -> ValueUse {
        self.levels.last().map_or(ValueUse::default(), |level| {
            if level.object {
                level.value
            } else {
                level.place
            }
        })
    }

    /// A name or a value, with its quotes.
    fn string(&mut self, raw: &str) -> usize {
        let inner = raw
            .strip_prefix('"')
            .and_then(|raw| raw.strip_suffix('"'))
            .unwrap_or(raw);
        let meant = undone(inner);
        let name = self.levels.last().is_some_and(|level| level.name_next);
        if name {
            self.names(&meant);
        }
        let secret = !name && self.place().secret && !meant.is_empty();
        let shown = match secret {
            true => Cow::Borrowed(MASK),
            false => self.shown(&meant),
        };
        match shown == meant {
            true => self.out.push_str(raw),
            false => {
                self.changed = true;
                self.out.push_str(&quoted(&shown));
            }
        }
        raw.len()
    }

    /// What a name says of the value after it.
    fn names(&mut self, name: &str) {
        let name = plain(name);
        if let Some(level) = self.levels.last_mut() {
            let schema = level.place.schema || SCHEMAS.contains(&name.as_str());
            let named = is_secret(&name) && name != NO_SECRET;
            level.value = ValueUse {
                secret: !schema && (level.place.secret || named),
                schema,
                counts: name.ends_with("tokens"),
            };
        }
    }

    /// A text, read as JSON where it is that.
    fn shown<'a>(&self, text: &'a str) -> Cow<'a, str> {
        let trimmed = text.trim_start();
        if trimmed.starts_with(['{', '[', '"'])
            && self.depth < NESTED
            && serde_json::from_str::<&RawValue>(text).is_ok()
        {
            let (nested, changed) = masked(self.masks, text, self.depth + 1);
            if changed {
                return self.masks.text(&nested).into_owned().into();
            }
        }
        self.masks.text(text)
    }

    /// A number, or a word of JSON.
    fn scalar(&mut self, raw: &str) -> usize {
        let number = raw.starts_with(|c: char| c == '-' || c.is_ascii_digit());
        let place = self.place();
        match number && (place.secret && !place.counts || self.masks.holds(raw)) {
            true => {
                self.changed = true;
                self.out.push_str(&quoted(MASK));
            }
            false => self.out.push_str(raw),
        }
        raw.len()
    }
}

/// The string at the start of a text, with its quotes.
fn string_at(text: &str) -> &str {
    let bytes = text.as_bytes();
    let mut at = 1;
    while let Some(byte) = bytes.get(at) {
        at += match byte {
            b'\\' => 2,
            b'"' => return &text[..=at],
            _ => 1,
        };
    }
    text
}

/// What stands until the next mark of JSON.
fn scalar_at(text: &str) -> &str {
    let ends =
        |c: char| matches!(c, ',' | ':' | '{' | '}' | '[' | ']' | '"') || c.is_ascii_whitespace();
    let len = text.find(ends).unwrap_or(text.len());
    // A character that is none of these is at least taken whole.
    let least = text.chars().next().map_or(1, char::len_utf8);
    &text[..len.max(least).min(text.len())]
}
