//! Removes secrets and user input from audit events before they are hashed: nothing can be removed from a chain
//! afterwards.

use std::borrow::Cow;
use std::sync::Arc;

use serde_json::{Map, Value};

use mgp_screening::masks::{MASK, Masks, is_secret_key, normalize_key};

/// Longest text within details, in bytes.
pub(crate) const TEXT_MAX: usize = 1_024;
/// Longest text of a call's record before masking, in bytes: the masked text is truncated to [`TEXT_MAX`], and a secret
/// that begins before that is complete.
pub(crate) const BUFFERED_TEXT_MAX: usize = 2 * TEXT_MAX;
/// Texts of a call's record whose length the caller controls: a name, and the reason of a refusal.
const UNBOUNDED_TEXTS: usize = 2;
/// Longer arguments are recorded as a digest even with [`ArgumentRetention::Full`], in bytes.
pub(crate) const ARGUMENTS_MAX: usize = 16 << 10;
/// Members that the details of a call usually have.
const DETAILS_CAPACITY: usize = 8;

/// Members with payloads of clients and servers, which are never recorded.
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
/// The setting `audit.arguments`: how a call's arguments are recorded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ArgumentRetention {
    /// A keyed hash and the length: enough to verify known arguments later.
    #[default]
    Digest,
    /// The arguments, with secrets masked.
    Full,
}

/// Records a call's arguments during the call, so that a record that waits to be written holds no frame.
#[derive(Clone)]
pub struct ArgumentRecorder {
    arguments: ArgumentRetention,
    digest_key: [u8; blake3::KEY_LEN],
}

/// The recorded form of a call's arguments.
#[derive(Clone, Debug)]
pub struct RecordedArguments {
    digest: blake3::Hash,
    bytes: usize,
    full_text: Option<Box<str>>,
}

impl ArgumentRecorder {
    /// The most bytes that the record of a call holds of `params` bytes of parameters.
    #[must_use]
    pub fn recorded_bytes_max(&self, params: usize) -> usize {
        let texts = params.min(UNBOUNDED_TEXTS * BUFFERED_TEXT_MAX);
        match self.arguments {
            ArgumentRetention::Digest => texts,
            ArgumentRetention::Full => texts + params.min(ARGUMENTS_MAX),
        }
    }

    /// Hashes the arguments, and copies them if they are recorded in full.
    #[must_use]
    pub fn record(&self, text: &str) -> RecordedArguments {
        let is_full = self.arguments == ArgumentRetention::Full && text.len() <= ARGUMENTS_MAX;
        RecordedArguments {
            digest: blake3::keyed_hash(&self.digest_key, text.as_bytes()),
            bytes: text.len(),
            full_text: is_full.then(|| text.into()),
        }
    }
}

impl RecordedArguments {
    /// Whether only the digest is recorded.
    #[must_use]
    pub fn is_digest_only(&self) -> bool {
        self.full_text.is_none()
    }

    pub(super) fn len(&self) -> usize {
        self.bytes
    }

    pub(super) fn digest(&self) -> blake3::Hash {
        self.digest
    }
}

/// The redaction rules of one kernel.
#[derive(Clone)]
pub struct Redaction {
    argument_recorder: ArgumentRecorder,
    masks: Arc<Masks>,
}

impl Redaction {
    /// Without `key`, arguments cannot be guessed from their digests. `secrets` are the resolved values of the
    /// configuration.
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

    /// Replaces the masks.
    pub fn set_masks(&mut self, masks: Arc<Masks>) {
        self.masks = masks;
    }

    /// The current masks.
    #[must_use]
    pub fn masks(&self) -> &Masks {
        &self.masks
    }

    /// The recorder of arguments.
    #[must_use]
    pub fn argument_recorder(&self) -> &ArgumentRecorder {
        &self.argument_recorder
    }

    /// Renders recorded arguments, to be merged with scrubbed details.
    #[must_use]
    pub fn render_arguments(&self, recorded: &RecordedArguments) -> Map<String, Value> {
        let mut out = Map::with_capacity(DETAILS_CAPACITY);
        out.insert("arguments_bytes".into(), recorded.bytes.into());
        let digest = recorded.digest.to_hex();
        out.insert("arguments_digest".into(), digest.as_str().into());
        let full_text = recorded.full_text.as_deref();
        // Invalid JSON is recorded as a digest only.
        if let Some(Ok(mut value)) = full_text.map(serde_json::from_str) {
            self.mask_value(&mut value);
            out.insert("arguments".into(), value);
        }
        out
    }

    /// Removes payloads from details, masks secrets by name and value, and truncates long texts.
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

    /// Masks secrets and truncates texts, but removes nothing.
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

    /// Masks secrets of the configuration in a text, and truncates it to [`TEXT_MAX`] bytes.
    pub fn mask_text(&self, text: &mut String) {
        if let Cow::Owned(masked) = self.masked_text(text) {
            *text = masked;
        }
    }

    /// Borrows the text if it needs no change, which is the usual case.
    pub(super) fn masked_text<'a>(&self, text: &'a str) -> Cow<'a, str> {
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

/// Truncates a text that waits to be written to [`BUFFERED_TEXT_MAX`] bytes.
#[must_use]
pub fn truncate_to_buffer(text: &str) -> &str {
    &text[..text.floor_char_boundary(BUFFERED_TEXT_MAX)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use mgp_screening::masks::MASKED_VALUES_MAX;
    use proptest::prelude::*;
    use serde_json::json;

    fn rules(arguments: ArgumentRetention) -> Redaction {
        Redaction::new(
            arguments,
            &[7; 32],
            ["hunter2-hunter2".to_owned(), "abc".to_owned()],
        )
    }

    fn rendered(rules: &Redaction, text: &str) -> Map<String, Value> {
        rules.render_arguments(&rules.argument_recorder().record(text))
    }

    fn scrubbed(details: &Value) -> Value {
        let mut details = details.as_object().unwrap().clone();
        rules(ArgumentRetention::Digest).scrub(&mut details);
        details.into()
    }

    #[test]
    fn payloads_are_removed_and_secrets_masked() {
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
        let digest = rendered(&rules(ArgumentRetention::Digest), text);
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
        let whole = rendered(&rules, text);
        assert_eq!(whole["arguments_digest"], digest["arguments_digest"]);
        let masked = json!({"query": "who is Ada", "password": "[redacted]", "note": "[redacted]"});
        assert_eq!(whole["arguments"], masked);
        let long = format!("\"{}\"", "x".repeat(ARGUMENTS_MAX));
        assert!(!rendered(&rules, &long).contains_key("arguments"));
    }

    #[test]
    fn long_texts_are_truncated_at_a_character() {
        let mut cut = "é".repeat(TEXT_MAX);
        rules(ArgumentRetention::Digest).mask_text(&mut cut);
        assert!(
            cut.len() < TEXT_MAX + 40 && cut.ends_with("bytes more)"),
            "{cut}"
        );
    }

    /// Secrets of the old and the new configuration are masked.
    #[test]
    fn secrets_added_later_are_masked() {
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
        #[test]
        fn no_secret_is_recorded(before in ".{0,30}", after in ".{0,30}", key in "[a-z]{1,8}", depth in 0usize..4) {
            let mut value = json!(format!("{before}hunter2-hunter2{after}"));
            for n in 0..depth {
                value = if n % 2 == 0 { json!([value]) } else { json!({key.as_str(): value}) };
            }
            let kept = scrubbed(&json!({key: value})).to_string();
            prop_assert!(!kept.contains("hunter2"), "{}", kept);
        }
    }
}
