//! Embeds texts with the model all-MiniLM-L6-v2, which is part of the program and runs on the CPU. Bytes
//! in, numbers out; it reads no file and uses no network.

#![cfg_attr(test, allow(clippy::unwrap_used))]

mod tokenizer;

use std::sync::Arc;

use rten::{ModelOptions, NodeId, OpRegistry, RunOptions, ThreadPool, op_registry};
use rten_tensor::NdTensor;
use rten_tensor::prelude::*;

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

/// Most texts that go through the model together, which bounds its memory.
const BATCH_MAX: usize = 16;
/// How much longer than the one before a text may be to go with it.
const PADDING_MAX: usize = 24;

/// BLAKE3 of the model.
const CHECKSUM: &str = "b2a68b34a45c28477ee9619f6f1ed03064209e3c3dae66aac2cedc4ee59c286d";

static WEIGHTS: &[u8] = include_bytes!("../model/model.onnx");
static TOKENIZER: &str = include_str!("../model/tokenizer.json");

/// Why there is no vector.
#[derive(Debug, thiserror::Error)]
pub enum EmbedError {
    /// The words of the model could not be read: the program was built with another file.
    #[error("the tokenizer in the program cannot be read: {0}")]
    Tokenizer(#[from] serde_json::Error),
    /// The model could not be read: the program was built with another file.
    #[error("the model in the program cannot be read: {0}")]
    Weights(#[from] rten::LoadError),
    /// Its checksum is not that of the model.
    #[error("the model in the program is damaged: the program file is not what was built")]
    Damaged,
    /// The model could not be run.
    #[error("the model failed: {0}")]
    Run(#[from] rten::RunError),
    /// The model gave something else than one vector for each word.
    #[error("the model answered in another shape than it should")]
    Shape,
}

/// The model, ready to run. It takes 110 MiB of memory and a tenth of a second to make, so it is
/// made when the first text comes, in a process that ends when no more do.
pub struct Embedder {
    model: Arc<LoadedModel>,
    threads: Arc<ThreadPool>,
}

/// What takes the memory: several may work with it at once.
struct LoadedModel {
    tokens: Tokenizer,
    model: rten::Model,
    inputs: [NodeId; 3],
    output: NodeId,
}

impl Embedder {
    /// Unpacks the model. No text is ever worked on by more than so many threads.
    ///
    /// # Errors
    /// [`EmbedError`] when the program carries something else than the model.
    pub fn load(threads: usize) -> Result<Self, EmbedError> {
        if blake3::hash(WEIGHTS).to_hex().as_str() != CHECKSUM {
            return Err(EmbedError::Damaged);
        }
        let tokens = Tokenizer::parse(TOKENIZER)?;
        let model = ModelOptions::with_ops(operator_registry()).load_static_slice(WEIGHTS)?;
        let inputs = [
            model.node_id("input_ids")?,
            model.node_id("attention_mask")?,
            model.node_id("token_type_ids")?,
        ];
        let output = *model.output_ids().first().ok_or(EmbedError::Shape)?;
        let model = LoadedModel {
            tokens,
            model,
            inputs,
            output,
        };
        Ok(Self::from_model(Arc::new(model), threads))
    }

    /// Another one beside it, with threads of its own: the model is there once. Threads are started by
    /// the thread that calls this, and have its priority.
    #[must_use]
    pub fn clone_with_threads(&self, threads: usize) -> Self {
        Self::from_model(self.model.clone(), threads)
    }

    fn from_model(model: Arc<LoadedModel>, threads: usize) -> Self {
        let threads = Arc::new(ThreadPool::with_num_threads(threads.max(1)));
        Self { model, threads }
    }

    /// The meaning of a text, as a vector of length 1. Blocks for about 4 ms and 0.12 ms for each
    /// word, so not a thing to do on a thread that others wait for. The same text has the same
    /// vector each time.
    ///
    /// # Errors
    /// [`EmbedError`] when the model does not do what it should; no text is to blame.
    pub fn embed(&self, text: &str) -> Result<Vec<f32>, EmbedError> {
        let tokens = [self.model.tokens.encode(text, TOKENS_MAX)];
        self.run(&tokens).map(|mut vectors| vectors.swap_remove(0))
    }

    /// The meanings of several texts, in their order. Those of like length go through the model
    /// together, which takes less time than one after the other; it rounds over all of them, so a
    /// vector is not to the last digit the one that [`Self::embed`] gives.
    ///
    /// # Errors
    /// As with [`Self::embed`].
    pub fn embed_all(&self, texts: &[&str]) -> Result<Vec<Vec<f32>>, EmbedError> {
        let tokens = texts
            .iter()
            .map(|text| self.model.tokens.encode(text, TOKENS_MAX));
        let mut tokens: Vec<(usize, Vec<i32>)> = tokens.enumerate().collect();
        tokens.sort_by_key(|(_, tokens)| tokens.len());
        let mut out = vec![Vec::new(); texts.len()];
        for alike in tokens.chunk_by(|a, b| b.1.len() <= a.1.len() + PADDING_MAX) {
            for batch in alike.chunks(BATCH_MAX) {
                let ids: Vec<_> = batch.iter().map(|(_, ids)| ids.as_slice()).collect();
                for ((at, _), vector) in batch.iter().zip(self.run(&ids)?) {
                    out[*at] = vector;
                }
            }
        }
        Ok(out)
    }

    /// One pass of the model; shorter texts are filled up with words that it is told not to read.
    fn run<T: AsRef<[i32]>>(&self, texts: &[T]) -> Result<Vec<Vec<f32>>, EmbedError> {
        let counts: Vec<usize> = texts.iter().map(|ids| ids.as_ref().len()).collect();
        let longest = counts.iter().copied().max().unwrap_or_default();
        let shape = [texts.len(), longest];
        let mut ids = vec![0; texts.len() * longest];
        let mut mask = ids.clone();
        for (row, text) in texts.iter().enumerate() {
            let text = text.as_ref();
            let at = row * longest;
            ids[at..at + text.len()].copy_from_slice(text);
            mask[at..at + text.len()].fill(1);
        }
        let [words, read, sentence] = self.model.inputs;
        let inputs = vec![
            (words, NdTensor::from_data(shape, ids).into()),
            (read, NdTensor::from_data(shape, mask).into()),
            (sentence, NdTensor::<i32, 2>::zeros(shape).into()),
        ];
        let options = RunOptions::default().with_thread_pool(Some(Arc::clone(&self.threads)));
        let answer = self
            .model
            .model
            .run(inputs, &[self.model.output], Some(options))?;
        let states = answer.into_iter().next().ok_or(EmbedError::Shape)?;
        let states: NdTensor<f32, 3> = states.try_into().map_err(|_| EmbedError::Shape)?;
        if states.shape() != [texts.len(), longest, DIMENSION] {
            return Err(EmbedError::Shape);
        }
        let states = states.to_contiguous();
        let rows = states.data().chunks_exact(longest * DIMENSION);
        let texts = rows.zip(counts);
        Ok(texts
            .map(|(row, count)| normalized_mean(&row[..count * DIMENSION]))
            .collect())
    }
}

/// What the model is made of; the program carries nothing else of what the runtime knows.
fn operator_registry() -> OpRegistry {
    op_registry!(
        Add,
        And,
        Cast,
        Concat,
        Div,
        Erf,
        Expand,
        Gather,
        GatherND,
        GreaterOrEqual,
        IsNaN,
        LayerNormalization,
        MatMul,
        Max,
        Mul,
        Range,
        Reshape,
        Shape,
        Slice,
        Softmax,
        Squeeze,
        Transpose,
        Unsqueeze,
        Where
    )
}

/// The middle of the words' vectors, stretched to length 1.
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

    const KNOWN_TEXT: &str = "Café: reads https://example.com/a_b, 3.5 km — 搜索新闻!";
    const KNOWN_VECTOR: [f32; 8] = [
        0.0559, 0.0179, 0.0304, -0.0023, -0.0033, 0.0056, 0.0242, -0.0469,
    ];

    fn likeness(a: &[f32], b: &[f32]) -> f32 {
        a.iter().zip(b).map(|(a, b)| a * b).sum()
    }

    /// MGP-239, A-10: texts that share no word but mean the same are near each other.
    #[test]
    fn what_means_the_same_is_near() {
        let model = Embedder::load(1).unwrap();
        let near = |a: &str, b: &str| likeness(&model.embed(a).unwrap(), &model.embed(b).unwrap());
        let same = near("read the contents of a file", "load text from disk");
        let other = near("read the contents of a file", "tomorrow's weather in Paris");
        assert!(same > other + 0.2, "{same} {other}");
        let vector = model.embed("").unwrap();
        assert!((likeness(&vector, &vector) - 1.0).abs() < 1e-3);
    }

    /// The numbers of one text, as another runtime gives them for the same model.
    #[test]
    fn the_model_is_run_as_it_was_made() {
        let model = Embedder::load(1).unwrap();
        let vector = model.embed(KNOWN_TEXT).unwrap();
        assert_eq!(vector.len(), DIMENSION);
        for (ours, known) in vector.iter().zip(KNOWN_VECTOR) {
            assert!((ours - known).abs() < 0.005, "{ours} {known}");
        }
    }

    #[test]
    fn together_is_as_one_by_one() {
        let model = Embedder::load(1).unwrap();
        let long = "a sentence that goes on ".repeat(400);
        let texts = [
            "send a mail",
            "weather",
            "",
            &long,
            "list the folders of a disk",
            "新闻",
        ];
        let all = model.embed_all(&texts).unwrap();
        for (text, together) in texts.iter().zip(&all) {
            let alone = model.embed(text).unwrap();
            let like = likeness(&alone, together);
            assert!(like > 0.97, "{text:.40}: {like}");
        }
        assert_eq!(model.embed_all(&[]).unwrap(), Vec::<Vec<f32>>::new());
    }
}
