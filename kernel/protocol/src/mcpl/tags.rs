//! Event tags of MCPL 0.5 (§16): untrusted labels of what an event is. They admit nothing and grant nothing.

use std::collections::BTreeSet;

use serde::Serialize;
use serde_json::value::RawValue;

/// The most tags of one event that are read; the vocabulary of chats has 22.
const TAGS_MAX: usize = 64;
/// The most bytes of a tag.
const TAG_MAX: usize = 128;
/// What follows from a tag without consulting anybody (0.5 §16.3).
const CLOSURE: [(&str, &[&str]); 3] = [
    ("chat:mention", &[ADDRESSED]),
    ("chat:reply", &[ADDRESSED]),
    ("chat:dm", &[ADDRESSED, "chat:private"]),
];
const ADDRESSED: &str = "chat:addressed";
/// The opposite of [`ADDRESSED`], which goes before it.
const AMBIENT: &str = "chat:ambient";

/// The tags of an event, with what they imply.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct EventTags(BTreeSet<String>);

impl EventTags {
    /// Reads a list of tags. What is none is left out: a tag without a namespace, or a list that is no list of texts.
    #[must_use]
    pub fn read(written: Option<&RawValue>) -> Self {
        let list = written.and_then(|list| serde_json::from_str(list.get()).ok());
        let list: Vec<String> = list.unwrap_or_default();
        let valid = list.into_iter().filter(|tag| is_tag(tag)).take(TAGS_MAX);
        let mut tags: BTreeSet<String> = valid.collect();
        for (tag, implied) in CLOSURE {
            if tags.contains(tag) {
                tags.extend(implied.iter().map(|tag| (*tag).to_owned()));
            }
        }
        if tags.contains(ADDRESSED) {
            tags.remove(AMBIENT);
        }
        Self(tags)
    }

    /// As JSON; `None` without tags.
    #[must_use]
    pub fn to_json(&self) -> Option<String> {
        let is_tagged = !self.0.is_empty();
        is_tagged.then(|| serde_json::to_string(self).expect("texts are always JSON"))
    }
}

/// `namespace:value`, or `namespace:key=value`.
fn is_tag(tag: &str) -> bool {
    let is_plain = |text: &str| {
        !text.is_empty() && text.chars().all(|c| !c.is_whitespace() && !c.is_control())
    };
    tag.len() <= TAG_MAX
        && tag
            .split_once(':')
            .is_some_and(|(namespace, value)| is_plain(namespace) && is_plain(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// NEW-060: the core closure is expanded whatever a producer declares, and addressed goes before ambient.
    #[test]
    fn tags_are_a_set_with_its_core_closure() {
        for (written, read) in [
            (
                r#"["chat:dm","chat:dm","git:ref=main"]"#,
                Some(r#"["chat:addressed","chat:dm","chat:private","git:ref=main"]"#),
            ),
            (
                r#"["chat:ambient","chat:mention"]"#,
                Some(r#"["chat:addressed","chat:mention"]"#),
            ),
            (
                r#"["chat:ambient","chat:group"]"#,
                Some(r#"["chat:ambient","chat:group"]"#),
            ),
            (r#"["mention",":x","chat:","a b:c","chat:a\nb"]"#, None),
            (r#"["chat:reply",7]"#, None),
            (r#""chat:reply""#, None),
            ("[]", None),
        ] {
            let raw: &RawValue = serde_json::from_str(written).unwrap();
            assert_eq!(
                EventTags::read(Some(raw)).to_json().as_deref(),
                read,
                "{written}"
            );
        }
        let many: Vec<String> = (0..100).map(|i| format!("a:{i}")).collect();
        let many = serde_json::value::to_raw_value(&many).unwrap();
        assert_eq!(EventTags::read(Some(&many)).0.len(), TAGS_MAX);
        assert_eq!(EventTags::read(None).to_json(), None);
    }
}
