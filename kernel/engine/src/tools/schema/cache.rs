//! Schemas that were compiled when they were needed.

use std::collections::HashMap;

use super::Schema;

/// What a schema is known by: the hash of its text.
type TextHash = [u8; blake3::OUT_LEN];

/// The schemas that were needed lately, as many as the bound allows: those that are called stay.
///
/// It has two halves: what was asked for lately, and what was before. When the first is full the second is let
/// go. A schema heavier than a half is not kept: it is compiled for each call.
#[derive(Debug, Default)]
pub struct SchemaCache {
    lately: HashMap<TextHash, Schema>,
    before: HashMap<TextHash, Schema>,
    weight: usize,
    half: usize,
}

impl SchemaCache {
    /// For schemas that together take at most so many bytes.
    #[must_use]
    pub fn new(most: usize) -> Self {
        Self {
            half: most / 2,
            ..Self::default()
        }
    }

    /// How many it has.
    #[must_use]
    pub fn held(&self) -> usize {
        self.lately.len() + self.before.len()
    }

    /// What is known of a schema's text.
    pub fn get(&mut self, text: &str) -> Option<Schema> {
        let hash = *blake3::hash(text.as_bytes()).as_bytes();
        if let Some(schema) = self.lately.get(&hash) {
            return Some(schema.clone());
        }
        let schema = self.before.remove(&hash)?;
        self.insert(hash, schema.clone());
        Some(schema)
    }

    /// Keeps the compiled schema of a text.
    pub fn keep(&mut self, text: &str, schema: Schema) {
        self.insert(*blake3::hash(text.as_bytes()).as_bytes(), schema);
    }

    /// Bytes that its schemas take at most, nearly.
    #[must_use]
    pub fn weight(&self) -> usize {
        self.weight + weight(&self.before)
    }

    fn insert(&mut self, hash: TextHash, schema: Schema) {
        let its = schema.weight();
        if its > self.half {
            return;
        }
        if let Some(same) = self.lately.remove(&hash) {
            self.weight -= same.weight();
        }
        if self.weight + its > self.half {
            self.before = std::mem::take(&mut self.lately);
            self.weight = 0;
        }
        self.weight += its;
        self.lately.insert(hash, schema);
    }
}

fn weight(of: &HashMap<TextHash, Schema>) -> usize {
    of.values().map(Schema::weight).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(n: usize) -> String {
        format!(r#"{{"type":"object","properties":{{"a":{{"maximum":{n}}}}}}}"#)
    }

    fn compiled(text: &str) -> Schema {
        Schema::input(text).unwrap()
    }

    #[test]
    fn what_is_called_stays_and_the_rest_has_a_bound() {
        let each = compiled(&text(1)).weight();
        let mut cache = SchemaCache::new(10 * each);
        for n in 0..200 {
            cache.keep(&text(n), compiled(&text(n)));
            assert!(cache.get(&text(0)).is_some(), "after {n}");
            assert!(cache.weight() <= 10 * each, "after {n}");
        }
        assert!(cache.get(&text(1)).is_none());
        let last = cache.get(&text(199)).unwrap();
        assert_eq!(last.check(r#"{"a":199}"#), Ok(()));
        assert_eq!(last.check(r#"{"a":200}"#).unwrap_err().keyword, "maximum");
    }

    /// A text is never judged by the schema of another one, and patterns count for what they may grow to.
    #[test]
    fn a_schema_heavier_than_a_half_is_not_kept() {
        let pattern = r#"{"type":"object","patternProperties":{"^a":{}}}"#;
        let heavy = compiled(pattern);
        assert!(heavy.weight() > 2 * super::super::PATTERN_SIZE);
        let mut cache = SchemaCache::new(2 * heavy.weight() - 2);
        cache.keep(&text(1), compiled(&text(1)));
        cache.keep(pattern, heavy);
        assert!(cache.get(pattern).is_none());
        assert!(cache.get(&text(1)).is_some());
    }
}
