//! Keeps secrets and what people typed out of the log. Every event passes here before it is sealed,
//! since nothing can be taken out of a chain afterwards.

use std::borrow::Cow;
use std::sync::Arc;

use serde_json::{Map, Value};

use crate::store::masks::{MASK, Masks, is_secret_key, normalize_key};

/// Longest text within details, in bytes.
pub const TEXT_MAX: usize = 1_024;
/// Longest text of a call's record before secrets are taken out of it, in bytes: what is left is cut at
/// [`TEXT_MAX`], and a secret that begins before that is whole.
pub(crate) const BUFFERED_TEXT_MAX: usize = 2 * TEXT_MAX;
/// Texts of a call's record that are as long as its caller likes: a name, and why it was refused.
const UNBOUNDED_TEXTS: usize = 2;
/// Arguments longer than this are kept as their digest even where they are kept whole, in bytes.
pub(crate) const ARGUMENTS_MAX: usize = 16 << 10;
/// Members that the details of a call usually have.
const DETAILS_CAPACITY: usize = 8;

/// Payloads of others: what was asked, said or answered. Only its shape is anybody's business.
const PAYLOADS: [&str; 8] = [
    "arguments",
    "content",
    "elicitation",
    "inputresponses",
    "params",
    "requeststate",
    "result",
    "structuredcontent",
];
/// `audit.arguments` of the settings: what is kept of a call's arguments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ArgumentRetention {
    /// A keyed hash and the length: enough to say later whether it was this.
    #[default]
    Digest,
    /// All of them, secrets masked.
    Full,
}

/// Makes of a call's arguments what is kept of them, while the call is under way: a record that waits
/// to be written holds no frame.
#[derive(Clone)]
pub struct ArgumentRecorder {
    arguments: ArgumentRetention,
    digest_key: [u8; blake3::KEY_LEN],
}

/// What is kept of a call's arguments.
#[derive(Clone, Debug)]
pub struct RecordedArguments {
    digest: blake3::Hash,
    bytes: usize,
    full_text: Option<Box<str>>,
}

impl ArgumentRecorder {
    /// The most that the record of a call with `params` of so many bytes holds of them, in bytes.
    #[must_use]
    pub fn recorded_bytes_max(&self, params: usize) -> usize {
        let texts = params.min(UNBOUNDED_TEXTS * BUFFERED_TEXT_MAX);
        match self.arguments {
            ArgumentRetention::Digest => texts,
            ArgumentRetention::Full => texts + params.min(ARGUMENTS_MAX),
        }
    }

    /// Reads all of them once.
    #[must_use]
    pub fn record(&self, text: &str) -> RecordedArguments {
        let whole = self.arguments == ArgumentRetention::Full && text.len() <= ARGUMENTS_MAX;
        RecordedArguments {
            digest: blake3::keyed_hash(&self.digest_key, text.as_bytes()),
            bytes: text.len(),
            full_text: whole.then(|| text.into()),
        }
    }
}

/// The rules of one kernel.
#[derive(Clone)]
pub struct Redaction {
    argument_recorder: ArgumentRecorder,
    masks: Arc<Masks>,
}

impl Redaction {
    /// `key` makes digests that cannot be guessed at by who has the log only. `secrets` are the values
    /// that the configuration resolved.
    #[must_use]
    pub fn new(
        arguments: ArgumentRetention,
        key: &[u8; blake3::KEY_LEN],
        secrets: impl IntoIterator<Item = String>,
    ) -> Self {
        Self {
            argument_recorder: ArgumentRecorder {
                arguments,
                digest_key: blake3::derive_key("mgp 2026-11 audit arguments", key),
            },
            masks: Arc::new(Masks::new(secrets)),
        }
    }

    /// These are the values that are secrets now.
    pub fn set_masks(&mut self, masks: Arc<Masks>) {
        self.masks = masks;
    }

    /// The values that are secrets.
    #[must_use]
    pub fn masks(&self) -> &Masks {
        &self.masks
    }

    /// What makes of arguments what is kept.
    #[must_use]
    pub fn argument_recorder(&self) -> &ArgumentRecorder {
        &self.argument_recorder
    }

    /// What is kept of the arguments of a call, to be joined with details that were scrubbed.
    #[must_use]
    pub fn render_arguments(&self, kept: &RecordedArguments) -> Map<String, Value> {
        let mut out = Map::with_capacity(DETAILS_CAPACITY);
        out.insert("arguments_bytes".into(), kept.bytes.into());
        let digest = kept.digest.to_hex();
        out.insert("arguments_digest".into(), digest.as_str().into());
        let whole = kept.full_text.as_deref();
        // What is no JSON is kept by its digest alone.
        if let Some(Ok(mut value)) = whole.map(serde_json::from_str) {
            self.mask_value(&mut value);
            out.insert("arguments".into(), value);
        }
        out
    }

    /// Takes out of details what does not belong there: payloads altogether, secrets by their name and
    /// by their value, and the rest of long texts.
    pub fn scrub(&self, details: &mut Map<String, Value>) {
        details.retain(|key, value| {
            let key = normalize_key(key);
            if PAYLOADS.contains(&key.as_str()) {
                return false;
            }
            if is_secret_key(&key) && !value.is_boolean() {
                *value = MASK.into();
            } else if let Value::Object(inner) = value {
                self.scrub(inner);
            } else if let Value::Array(items) = value {
                items.iter_mut().for_each(|item| self.redact_value(item));
            } else {
                self.mask_value(value);
            }
            true
        });
    }

    fn redact_value(&self, value: &mut Value) {
        match value {
            Value::Object(inner) => self.scrub(inner),
            Value::Array(items) => items.iter_mut().for_each(|item| self.redact_value(item)),
            Value::String(_) | Value::Null | Value::Bool(_) | Value::Number(_) => {
                self.mask_value(value)
            }
        }
    }

    /// Masks secrets and cuts texts, and takes nothing out.
    fn mask_value(&self, value: &mut Value) {
        match value {
            Value::String(text) => self.mask_text(text),
            Value::Array(items) => items.iter_mut().for_each(|item| self.mask_value(item)),
            Value::Object(members) => {
                for (key, value) in members.iter_mut() {
                    if is_secret_key(&normalize_key(key)) {
                        *value = MASK.into();
                    } else {
                        self.mask_value(value);
                    }
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }

    /// Takes the secrets of the configuration out of a text, and cuts it at [`TEXT_MAX`] bytes.
    pub fn mask_text(&self, text: &mut String) {
        if let Cow::Owned(masked) = self.masked_text(text) {
            *text = masked;
        }
    }

    /// The same text where nothing had to be changed, which is nearly always.
    fn masked_text<'a>(&self, text: &'a str) -> Cow<'a, str> {
        let mut out = self.masks.mask_values(text);
        if out.len() > TEXT_MAX {
            let end = (0..=TEXT_MAX).rev().find(|at| out.is_char_boundary(*at));
            let dropped = out.len() - end.unwrap_or(0);
            let out = out.to_mut();
            out.truncate(end.unwrap_or(0));
            out.push_str(&format!("… ({dropped} bytes more)"));
        }
        out
    }
}

/// The beginning of a text that waits to be written, at most [`BUFFERED_TEXT_MAX`] bytes of it.
#[must_use]
pub fn truncate_to_buffer(text: &str) -> &str {
    &text[..text.floor_char_boundary(BUFFERED_TEXT_MAX)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::masks::MASKED_VALUES_MAX;
    use proptest::prelude::*;
    use serde_json::json;

    fn rules(arguments: ArgumentRetention) -> Redaction {
        Redaction::new(
            arguments,
            &[7; 32],
            ["hunter2-hunter2".to_owned(), "abc".to_owned()],
        )
    }

    fn kept(rules: &Redaction, text: &str) -> Map<String, Value> {
        rules.render_arguments(&rules.argument_recorder().record(text))
    }

    fn scrubbed(details: &Value) -> Value {
        let mut details = details.as_object().unwrap().clone();
        rules(ArgumentRetention::Digest).scrub(&mut details);
        details.into()
    }

    /// Neither what a person typed nor what a tool was asked or answered is kept, nor any secret.
    #[test]
    fn payloads_go_and_secrets_are_masked() {
        let details = json!({
            "duration_ms": 12,
            "reason": "login with hunter2-hunter2 failed",
            "content": {"name": "Ada"},
            "inputResponses": [1],
            "request_state": "mgp1.x",
            "headers": {"Authorization": "Bearer x", "X-API-Key": 7, "arguments": 1},
            "list": ["hunter2-hunter2", [{"refresh_token": "r", "content": 1}]]
        });
        let want = json!({
            "duration_ms": 12,
            "reason": "login with [redacted] failed",
            "headers": {"Authorization": "[redacted]", "X-API-Key": "[redacted]"},
            "list": ["[redacted]", [{"refresh_token": "[redacted]"}]]
        });
        assert_eq!(scrubbed(&details), want);
    }

    #[test]
    fn arguments_are_a_digest_unless_configured() {
        let text = r#"{"query":"who is Ada","password":"p","note":"hunter2-hunter2"}"#;
        let digest = kept(&rules(ArgumentRetention::Digest), text);
        assert_eq!(
            digest.keys().collect::<Vec<_>>(),
            ["arguments_bytes", "arguments_digest"]
        );
        assert_eq!(digest["arguments_bytes"], text.len());
        assert_ne!(
            digest["arguments_digest"],
            blake3::hash(text.as_bytes()).to_string()
        );
        let rules = rules(ArgumentRetention::Full);
        let whole = kept(&rules, text);
        assert_eq!(whole["arguments_digest"], digest["arguments_digest"]);
        let masked = json!({"query": "who is Ada", "password": "[redacted]", "note": "[redacted]"});
        assert_eq!(whole["arguments"], masked);
        let long = format!("\"{}\"", "x".repeat(ARGUMENTS_MAX));
        assert!(!kept(&rules, &long).contains_key("arguments"));
    }

    #[test]
    fn long_texts_are_cut_at_a_letter() {
        let mut cut = "é".repeat(TEXT_MAX);
        rules(ArgumentRetention::Digest).mask_text(&mut cut);
        assert!(
            cut.len() < TEXT_MAX + 40 && cut.ends_with("bytes more)"),
            "{cut}"
        );
    }

    /// What a new configuration holds is masked as well, and what the old one held still is.
    #[test]
    fn what_was_learnt_later_is_masked_too() {
        let mut rules = rules(ArgumentRetention::Digest);
        let mut masks = rules.masks().clone();
        masks.add_secrets(["correct-horse".to_owned(), "short".to_owned()]);
        rules.set_masks(Arc::new(masks.clone()));
        let text = |rules: &Redaction, text: &str| rules.masked_text(text).into_owned();
        assert_eq!(
            text(&rules, "hunter2-hunter2 correct-horse short"),
            "[redacted] [redacted] short"
        );
        let many = (0..MASKED_VALUES_MAX).map(|n| format!("number-{n}"));
        masks.add_secrets(many);
        rules.set_masks(Arc::new(masks));
        assert_eq!(rules.masks.len(), MASKED_VALUES_MAX);
        assert_eq!(text(&rules, "number-4095"), "[redacted]");
    }

    proptest! {
        /// Wherever a secret of the configuration stands, it is not in what is kept.
        #[test]
        fn no_secret_is_kept(before in ".{0,30}", after in ".{0,30}", key in "[a-z]{1,8}", depth in 0usize..4) {
            let mut value = json!(format!("{before}hunter2-hunter2{after}"));
            for n in 0..depth {
                value = if n % 2 == 0 { json!([value]) } else { json!({key.as_str(): value}) };
            }
            let kept = scrubbed(&json!({key: value})).to_string();
            prop_assert!(!kept.contains("hunter2"), "{}", kept);
        }
    }
}
