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
    recent: HashMap<TextHash, Schema>,
    previous: HashMap<TextHash, Schema>,
    weight: usize,
    half_capacity: usize,
}

impl SchemaCache {
    /// For schemas that together take at most so many bytes.
    #[must_use]
    pub fn new(most: usize) -> Self {
        Self {
            half_capacity: most / 2,
            ..Self::default()
        }
    }

    /// How many it has.
    #[must_use]
    pub fn schema_count(&self) -> usize {
        self.recent.len() + self.previous.len()
    }

    /// What is known of a schema's text.
    pub fn get(&mut self, text: &str) -> Option<Schema> {
        let hash = *blake3::hash(text.as_bytes()).as_bytes();
        if let Some(schema) = self.recent.get(&hash) {
            return Some(schema.clone());
        }
        let schema = self.previous.remove(&hash)?;
        self.insert_hashed(hash, schema.clone());
        Some(schema)
    }

    /// Keeps the compiled schema of a text.
    pub fn insert(&mut self, text: &str, schema: Schema) {
        self.insert_hashed(*blake3::hash(text.as_bytes()).as_bytes(), schema);
    }

    /// Bytes that its schemas take at most, nearly.
    #[must_use]
    pub fn weight(&self) -> usize {
        self.weight + total_weight(&self.previous)
    }

    fn insert_hashed(&mut self, hash: TextHash, schema: Schema) {
        let its = schema.memory_estimate();
        if its > self.half_capacity {
            return;
        }
        if let Some(same) = self.recent.remove(&hash) {
            self.weight -= same.memory_estimate();
        }
        if self.weight + its > self.half_capacity {
            self.previous = std::mem::take(&mut self.recent);
            self.weight = 0;
        }
        self.weight += its;
        self.recent.insert(hash, schema);
    }
}

fn total_weight(of: &HashMap<TextHash, Schema>) -> usize {
    of.values().map(Schema::memory_estimate).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(n: usize) -> String {
        format!(r#"{{"type":"object","properties":{{"a":{{"maximum":{n}}}}}}}"#)
    }

    fn compiled(text: &str) -> Schema {
        Schema::compile_input(text).unwrap()
    }

    #[test]
    fn schemas_in_use_stay_and_others_are_bounded() {
        let each = compiled(&text(1)).memory_estimate();
        let mut cache = SchemaCache::new(10 * each);
        for n in 0..200 {
            cache.insert(&text(n), compiled(&text(n)));
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
    fn a_schema_larger_than_half_the_cache_is_not_cached() {
        let pattern = r#"{"type":"object","patternProperties":{"^a":{}}}"#;
        let heavy = compiled(pattern);
        assert!(heavy.memory_estimate() > 2 * super::super::PATTERN_BYTES_MAX);
        let mut cache = SchemaCache::new(2 * heavy.memory_estimate() - 2);
        cache.insert(&text(1), compiled(&text(1)));
        cache.insert(pattern, heavy);
        assert!(cache.get(pattern).is_none());
        assert!(cache.get(&text(1)).is_some());
    }
}
