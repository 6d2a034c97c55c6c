//! Caches the vectors of texts.

use std::collections::HashMap;

use mgp_embedding::Embedder;
use mgp_engine::tools::index::{EmbeddingText, SearchRequest, Vector};

pub(crate) struct VectorCache<'a> {
    model: &'a Embedder,
    texts: HashMap<[u8; 32], Vector>,
    requests: HashMap<String, Vec<Vector>>,
}

impl<'a> VectorCache<'a> {
    pub(crate) fn new(model: &'a Embedder) -> Self {
        Self {
            model,
            texts: HashMap::new(),
            requests: HashMap::new(),
        }
    }

    /// Embeds one text at a time, as the kernel does.
    pub(crate) fn text_vector(&mut self, text: &EmbeddingText) -> Option<Vector> {
        let make = || Vector::quantize(&self.model.embed(&text.text).expect("a vector"));
        let vector = self
            .texts
            .entry(text.hash)
            .or_insert_with(|| make().expect("a direction"));
        Some(vector.clone())
    }

    /// The cached vectors of texts, without the model.
    pub(crate) fn text_vectors(&self) -> Vec<Vector> {
        let mut all: Vec<_> = self.texts.iter().collect();
        all.sort_by_key(|(hash, _)| **hash);
        all.into_iter().map(|(_, vector)| vector.clone()).collect()
    }

    pub(crate) fn request_vectors(&mut self, text: &str) -> Vec<Vector> {
        if !self.requests.contains_key(text) {
            self.requests
                .insert(text.to_owned(), embed_request(self.model, text));
        }
        self.requests[text].clone()
    }
}

/// The vectors that a search with this text needs.
pub(crate) fn embed_request(model: &Embedder, text: &str) -> Vec<Vector> {
    let request = SearchRequest::parse(text);
    let texts: Vec<&str> = request
        .embedding_texts()
        .iter()
        .map(String::as_str)
        .collect();
    let vectors = model.embed_all(&texts).expect("vectors");
    let vectors = vectors
        .iter()
        .map(|vector| Vector::quantize(vector).expect("a direction"));
    vectors.collect()
}
