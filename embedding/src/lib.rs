//! Embeds texts with the model all-MiniLM-L6-v2, which is part of the program and runs on the CPU. Bytes
//! in, numbers out; it reads no file and uses no network.

#![cfg_attr(test, allow(clippy::unwrap_used))]

mod attention;
mod linear;
mod math;
mod model;
mod tokenizer;
mod weights;

use std::sync::Arc;

use model::Model;
use tokenizer::Tokenizer;

/// What the vectors of this model are called where they are kept: those of another model are not
/// compared with them.
pub const NAME: &str = "all-MiniLM-L6-v2-int8";
/// How many numbers a vector has.
pub const DIMENSION: usize = 384;
/// Most words or parts of words that are read of a text, as the model was trained; what follows is
/// not read.
pub(crate) const TOKENS_MAX: usize = 256;
/// Bytes that are looked at of a text: texts without end are not read to it.
pub const BYTES_MAX: usize = TOKENS_MAX * tokenizer::BYTES_PER_TOKEN;

/// Most words that go through the model together, which bounds its memory; a text is never split.
const BATCH_TOKENS_MAX: usize = TOKENS_MAX;

/// BLAKE3 of the model.
const CHECKSUM: &str = "33f581dcc8a1b1d7b3ce0d7f43d9ee21530b67df9d37387dab6dfca577445918";

static WEIGHTS: &[u8] = include_bytes!("../model/model.safetensors");
static TOKENIZER: &str = include_str!("../model/tokenizer.json");

/// Why there is no vector.
#[derive(Debug, thiserror::Error)]
pub enum EmbedError {
    /// The program was built with another file.
    #[error("the tokenizer in the program cannot be read: {0}")]
    Tokenizer(#[from] serde_json::Error),
    /// The checksum is not that of the model.
    #[error("the model in the program is damaged: the program file is not what was built")]
    Damaged,
    /// The model's file ends before its header does.
    #[error("the model in the program cannot be read: it is too short")]
    Truncated,
    /// The header of the model's file is not JSON of the expected form.
    #[error("the model in the program cannot be read: {0}")]
    Weights(#[source] serde_json::Error),
    /// A tensor is missing, or has another type or shape.
    #[error("the model in the program has no tensor {0} of the expected shape")]
    Tensor(String),
    /// The tokenizer knows a word that the model does not.
    #[error("the tokenizer does not belong to the model in the program")]
    Token,
}

/// The model, ready to run. Loading takes some 15 ms. The weights are read in the program file, which takes
/// 22 MiB of its pages; private memory is 4 MiB, and up to 6 MiB more during a batch.
pub struct Embedder {
    model: Arc<LoadedModel>,
    threads: usize,
}

struct LoadedModel {
    tokens: Tokenizer,
    model: Model,
}

impl Embedder {
    /// Checks and opens the model. No text is ever worked on by more than so many threads.
    ///
    /// # Errors
    /// [`EmbedError`] when the program carries something else than the model.
    pub fn load(threads: usize) -> Result<Self, EmbedError> {
        if blake3::hash(WEIGHTS).to_hex().as_str() != CHECKSUM {
            return Err(EmbedError::Damaged);
        }
        let tokens = Tokenizer::parse(TOKENIZER)?;
        let model = Model::load(WEIGHTS)?;
        let model = Arc::new(LoadedModel { tokens, model });
        let threads = threads.max(1);
        Ok(Self { model, threads })
    }

    /// Shares the model, with another number of threads. The thread that embeds starts them for each batch;
    /// they inherit its priority.
    #[must_use]
    pub fn clone_with_threads(&self, threads: usize) -> Self {
        let model = self.model.clone();
        let threads = threads.max(1);
        Self { model, threads }
    }

    /// The meaning of a text, as a vector of length 1. Blocks for about 1 ms and 0.2 ms for each word
    /// (twice that without AVX-512), so do not call it on a thread that others wait for. The same text
    /// has the same vector each time.
    ///
    /// # Errors
    /// [`EmbedError`] when the program carries something else than the model; no text is to blame.
    pub fn embed(&self, text: &str) -> Result<Vec<f32>, EmbedError> {
        let vectors = self.embed_all(&[text])?;
        Ok(vectors.into_iter().flatten().collect())
    }

    /// The meanings of several texts, in their order. Short texts go through the model together, which
    /// takes less time than one after the other. A vector does not depend on its batch: it is, to the
    /// last bit, the one that [`Self::embed`] returns.
    ///
    /// # Errors
    /// As with [`Self::embed`].
    pub fn embed_all(&self, texts: &[&str]) -> Result<Vec<Vec<f32>>, EmbedError> {
        let encode = |text: &&str| self.model.tokens.encode(text, TOKENS_MAX);
        let tokens: Vec<Vec<i32>> = texts.iter().map(encode).collect();
        let mut texts: Vec<&[i32]> = tokens.iter().map(Vec::as_slice).collect();
        let mut out = Vec::with_capacity(texts.len());
        while !texts.is_empty() {
            let mut total = 0;
            let fits = texts.iter().take_while(|text| {
                total += text.len();
                total <= BATCH_TOKENS_MAX
            });
            let rest = texts.split_off(fits.count().max(1));
            let states = self.model.model.run(&texts, self.threads)?;
            let mut states = states.as_slice();
            for text in texts {
                let (own, others) = states.split_at(text.len() * DIMENSION);
                out.push(normalized_mean(own));
                states = others;
            }
            texts = rest;
        }
        Ok(out)
    }
}

/// The mean of the words' states, scaled to length 1.
fn normalized_mean(states: &[f32]) -> Vec<f32> {
    let mut sum = vec![0.0; DIMENSION];
    for word in states.chunks_exact(DIMENSION) {
        for (sum, number) in sum.iter_mut().zip(word) {
            *sum += number;
        }
    }
    let length = sum.iter().map(|n| n * n).sum::<f32>().sqrt();
    for number in &mut sum {
        *number /= length.max(f32::MIN_POSITIVE);
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A text, so many times, and how its vector starts.
    #[derive(serde::Deserialize)]
    struct KnownVector {
        text: String,
        times: usize,
        start: Vec<f32>,
    }

    fn dot_product(a: &[f32], b: &[f32]) -> f32 {
        a.iter().zip(b).map(|(a, b)| a * b).sum()
    }

    /// MGP-239, A-10: texts that share no word but mean the same are near each other.
    #[test]
    fn texts_of_like_meaning_are_near() {
        let model = Embedder::load(1).unwrap();
        let near =
            |a: &str, b: &str| dot_product(&model.embed(a).unwrap(), &model.embed(b).unwrap());
        let same = near("read the contents of a file", "load text from disk");
        let other = near("read the contents of a file", "tomorrow's weather in Paris");
        assert!(same > other + 0.2, "{same} {other}");
    }

    /// The numbers that onnxruntime gives for the graph the weights were taken from.
    #[test]
    fn vectors_are_those_of_the_original_graph() {
        let known: Vec<KnownVector> =
            serde_json::from_str(include_str!("../model/known_vectors.json")).unwrap();
        let model = Embedder::load(1).unwrap();
        assert_eq!(known.len(), 12);
        for KnownVector { text, times, start } in known {
            let vector = model.embed(&text.repeat(times)).unwrap();
            assert_eq!(vector.len(), DIMENSION);
            assert!((dot_product(&vector, &vector) - 1.0).abs() < 1e-5);
            assert_eq!(start.len(), 16);
            for (ours, known) in vector.iter().zip(start) {
                assert!((ours - known).abs() < 1e-5, "{text:?}: {ours} {known}");
            }
        }
    }

    #[test]
    fn a_vector_depends_neither_on_its_batch_nor_on_threads() {
        let model = Embedder::load(1).unwrap();
        let long = "a sentence that goes on ".repeat(400);
        let texts = [
            "send a mail",
            "weather",
            "",
            &long,
            "list the folders of a disk",
            &long[..800],
            "新闻",
        ];
        let alone = texts.map(|text| model.embed(text).unwrap());
        for threads in [1, 2, 3, 100] {
            let model = model.clone_with_threads(threads);
            assert_eq!(model.embed_all(&texts).unwrap(), alone, "{threads}");
        }
        assert_eq!(model.embed_all(&[]).unwrap(), Vec::<Vec<f32>>::new());
    }
}
