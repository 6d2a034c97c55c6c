//! JSON without secrets. The text is copied, not built anew: what is no secret stays as its sender wrote it.

use std::borrow::Cow;

use mgp_json::{Token, Tokens, quote, unescape};
use serde_json::value::RawValue;

use super::{MASK, Masks, is_secret_key, normalize_key};

/// Texts of JSON in texts of JSON that are read as such; deeper ones are searched as texts.
const NESTING_MAX: usize = 4;
/// Below these, names are those of arguments, and their values descriptions of them.
const SCHEMA_MEMBERS: [&str; 3] = ["inputschema", "outputschema", "requestedschema"];
/// Named like a secret, and none: the token of a request's progress is chosen by who asks.
const NON_SECRET_NAME: &str = "progresstoken";

/// What the values here are.
#[derive(Clone, Copy, Default)]
struct ValueContext {
    /// They belong to a name that makes them secrets.
    is_secret: bool,
    /// They describe something.
    is_schema: bool,
    /// They are numbers of tokens.
    is_token_count: bool,
}

/// An object or an array that has begun.
struct OpenContainer {
    is_object: bool,
    /// In an object: the next text is a name.
    expects_name: bool,
    context: ValueContext,
    /// What the name before the next value says of it.
    value_context: ValueContext,
}

/// JSON on one line without secrets, and whether anything was masked. What is no JSON is copied as far as it goes.
pub(super) fn mask_json_text(masks: &Masks, text: &str, depth: usize) -> (String, bool) {
    let mut walk = MaskingCopy {
        masks,
        depth,
        out: String::with_capacity(text.len()),
        levels: Vec::new(),
        changed: false,
    };
    for token in Tokens::new(text) {
        match token {
            Token::String(raw) => walk.copy_string(raw),
            Token::Scalar(raw) => walk.copy_scalar(raw),
            Token::Mark(mark) => walk.copy_mark(mark),
        }
    }
    (walk.out, walk.changed)
}

struct MaskingCopy<'a> {
    masks: &'a Masks,
    depth: usize,
    out: String,
    levels: Vec<OpenContainer>,
    changed: bool,
}

impl MaskingCopy<'_> {
    fn copy_mark(&mut self, mark: u8) {
        self.out.push(char::from(mark));
        match mark {
            b'{' | b'[' => {
                let context = self.value_context();
                self.levels.push(OpenContainer {
                    is_object: mark == b'{',
                    expects_name: mark == b'{',
                    context,
                    value_context: context,
                });
            }
            b'}' | b']' => drop(self.levels.pop()),
            _ => {
                if let Some(level) = self.levels.last_mut() {
                    level.expects_name = level.is_object && mark == b',';
                }
            }
        }
    }

    /// What the next value is.
    fn value_context(&self) -> ValueContext {
        self.levels.last().map_or(ValueContext::default(), |level| {
            if level.is_object {
                level.value_context
            } else {
                level.context
            }
        })
    }

    /// A name or a value, with its quotes.
    fn copy_string(&mut self, raw: &str) {
        let inner = raw
            .strip_prefix('"')
            .and_then(|raw| raw.strip_suffix('"'))
            .unwrap_or(raw);
        let meant = unescape(inner);
        let name = self.levels.last().is_some_and(|level| level.expects_name);
        if name {
            self.apply_name(&meant);
        }
        let secret = !name && self.value_context().is_secret && !meant.is_empty();
        let shown = if secret {
            Cow::Borrowed(MASK)
        } else {
            self.mask_string(&meant)
        };
        if shown == meant {
            self.out.push_str(raw)
        } else {
            self.changed = true;
            self.out.push_str(&quote(&shown));
        }
    }

    /// What a name says of the value after it.
    fn apply_name(&mut self, name: &str) {
        let name = normalize_key(name);
        if let Some(level) = self.levels.last_mut() {
            let schema = level.context.is_schema || SCHEMA_MEMBERS.contains(&name.as_str());
            let named = is_secret_key(&name) && name != NON_SECRET_NAME;
            level.value_context = ValueContext {
                is_secret: !schema && (level.context.is_secret || named),
                is_schema: schema,
                is_token_count: name.ends_with("tokens"),
            };
        }
    }

    /// A text, read as JSON where it is that.
    fn mask_string<'a>(&self, text: &'a str) -> Cow<'a, str> {
        let trimmed = text.trim_start();
        if trimmed.starts_with(['{', '[', '"'])
            && self.depth < NESTING_MAX
            && serde_json::from_str::<&RawValue>(text).is_ok()
        {
            let (nested, changed) = mask_json_text(self.masks, text, self.depth + 1);
            if changed {
                return self.masks.mask_text(&nested).into_owned().into();
            }
        }
        self.masks.mask_text(text)
    }

    /// A number, or a word of JSON.
    fn copy_scalar(&mut self, raw: &str) {
        let number = raw.starts_with(|c: char| c == '-' || c.is_ascii_digit());
        let place = self.value_context();
        if number && (place.is_secret && !place.is_token_count || self.masks.contains_secret(raw)) {
            self.changed = true;
            self.out.push_str(&quote(MASK));
        } else {
            self.out.push_str(raw)
        }
    }
}
