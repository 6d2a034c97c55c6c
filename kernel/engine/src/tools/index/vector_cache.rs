//! Vectors that were made before, by the content they were made from.

use std::collections::HashMap;

use super::server_index::EmbeddingText;
use super::vectors::Vector;

/// What a model has made of texts. A text that comes again, with the same server or another, is not
/// made again.
///
/// It has two halves: what was asked for lately, and what was before. When the first is full the
/// second is let go, so what is in use stays and no look-up costs more than two.
#[derive(Debug, Default)]
pub struct VectorCache {
    recent: HashMap<[u8; 32], Vector>,
    previous: HashMap<[u8; 32], Vector>,
    half_capacity: usize,
}

impl VectorCache {
    /// For at most so many vectors. One of 384 numbers takes about half a KiB.
    #[must_use]
    pub fn new(most: usize) -> Self {
        Self {
            half_capacity: most.div_ceil(2).max(1),
            ..Self::default()
        }
    }

    /// What is known of a text.
    pub fn get(&mut self, text: &EmbeddingText) -> Option<Vector> {
        if let Some(vector) = self.recent.get(&text.hash) {
            return Some(vector.clone());
        }
        let vector = self.previous.remove(&text.hash)?;
        self.insert(text.hash, vector.clone());
        Some(vector)
    }

    /// Learns a text, or reads what was kept of it.
    pub fn insert(&mut self, hash: [u8; 32], vector: Vector) {
        if self.recent.len() >= self.half_capacity && !self.recent.contains_key(&hash) {
            self.previous = std::mem::take(&mut self.recent);
        }
        self.recent.insert(hash, vector);
    }

    /// All that is known, for keeping.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8; 32], &Vector)> {
        let before = self.previous.iter();
        let before = before.filter(|(hash, _)| !self.recent.contains_key(*hash));
        self.recent.iter().chain(before)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(n: u8) -> EmbeddingText {
        EmbeddingText {
            hash: [n; 32],
            text: "".into(),
        }
    }

    #[test]
    fn vectors_in_use_stay_and_others_are_bounded() {
        let mut memo = VectorCache::new(10);
        let vector = Vector::quantize(&[1.0, 2.0]).unwrap();
        for n in 0..200 {
            memo.insert([n; 32], vector.clone());
            assert_eq!(memo.get(&text(0)), Some(vector.clone()), "after {n}");
            assert!(memo.iter().count() <= 10);
        }
        assert_eq!(memo.get(&text(1)), None);
        assert_eq!(memo.get(&text(199)), Some(vector));
    }
}
