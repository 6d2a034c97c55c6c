//! Masks secrets in JSON. The text is copied, so that everything else stays as its sender wrote it.

use std::borrow::Cow;

use mgp_json::{Token, Tokens, quote, unescape};
use serde_json::value::RawValue;

use super::{MASK, Masks, is_secret_key, normalize_key};

/// Levels of JSON in strings that are parsed; deeper ones are searched as plain text.
const NESTING_MAX: usize = 4;
/// Below these members, names are those of arguments, and values describe them.
const SCHEMA_MEMBERS: [&str; 3] = ["inputschema", "outputschema", "requestedschema"];
/// Has a secret's name, but is chosen by the client.
const NON_SECRET_NAME: &str = "progresstoken";

/// How values are treated.
#[derive(Clone, Copy, Default)]
struct ValueContext {
    /// The name makes them secrets.
    is_secret: bool,
    /// They are part of a schema.
    is_schema: bool,
    /// They count tokens.
    is_token_count: bool,
}

struct OpenContainer {
    is_object: bool,
    /// In an object: the next string is a name.
    expects_name: bool,
    context: ValueContext,
    /// The context set by the name of the next value.
    value_context: ValueContext,
}

/// Returns the masked JSON on one line, and whether anything was masked. Invalid JSON is copied up to the error.
pub(super) fn mask_json_text(masks: &Masks, text: &str, depth: usize) -> (String, bool) {
    let mut copy = MaskingCopy {
        masks,
        depth,
        out: String::with_capacity(text.len()),
        levels: Vec::new(),
        changed: false,
    };
    for token in Tokens::new(text) {
        match token {
            Token::String(raw) => copy.copy_string(raw),
            Token::Scalar(raw) => copy.copy_scalar(raw),
            Token::Mark(mark) => copy.copy_punctuation(mark),
        }
    }
    (copy.out, copy.changed)
}

struct MaskingCopy<'a> {
    masks: &'a Masks,
    depth: usize,
    out: String,
    levels: Vec<OpenContainer>,
    changed: bool,
}

impl MaskingCopy<'_> {
    fn copy_punctuation(&mut self, byte: u8) {
        self.out.push(char::from(byte));
        match byte {
            b'{' | b'[' => {
                let context = self.value_context();
                self.levels.push(OpenContainer {
                    is_object: byte == b'{',
                    expects_name: byte == b'{',
                    context,
                    value_context: context,
                });
            }
            b'}' | b']' => drop(self.levels.pop()),
            _ => {
                if let Some(level) = self.levels.last_mut() {
                    level.expects_name = level.is_object && byte == b',';
                }
            }
        }
    }

    fn value_context(&self) -> ValueContext {
        self.levels.last().map_or(ValueContext::default(), |level| {
            if level.is_object {
                level.value_context
            } else {
                level.context
            }
        })
    }

    /// Copies a name or a string value, with its quotes.
    fn copy_string(&mut self, raw: &str) {
        let inner = raw
            .strip_prefix('"')
            .and_then(|raw| raw.strip_suffix('"'))
            .unwrap_or(raw);
        let text = unescape(inner);
        let is_name = self.levels.last().is_some_and(|level| level.expects_name);
        if is_name {
            self.apply_name(&text);
        }
        let is_secret = !is_name && self.value_context().is_secret && !text.is_empty();
        let masked = if is_secret {
            Cow::Borrowed(MASK)
        } else {
            self.mask_string(&text)
        };
        if masked == text {
            self.out.push_str(raw)
        } else {
            self.changed = true;
            self.out.push_str(&quote(&masked));
        }
    }

    /// Sets the context of the value after a name.
    fn apply_name(&mut self, name: &str) {
        let name = normalize_key(name);
        if let Some(level) = self.levels.last_mut() {
            let is_schema = level.context.is_schema || SCHEMA_MEMBERS.contains(&name.as_str());
            let has_secret_name = is_secret_key(&name) && name != NON_SECRET_NAME;
            level.value_context = ValueContext {
                is_secret: !is_schema && (level.context.is_secret || has_secret_name),
                is_schema,
                is_token_count: name.ends_with("tokens"),
            };
        }
    }

    /// Masks a string, as JSON if it is JSON.
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

    /// Copies a number, `true`, `false` or `null`.
    fn copy_scalar(&mut self, raw: &str) {
        let is_number = raw.starts_with(|c: char| c == '-' || c.is_ascii_digit());
        let context = self.value_context();
        if is_number
            && (context.is_secret && !context.is_token_count || self.masks.contains_secret(raw))
        {
            self.changed = true;
            self.out.push_str(&quote(MASK));
        } else {
            self.out.push_str(raw)
        }
    }
}
