//! The network: a BERT of six layers, over rows of several texts at once.

use std::ops::Range;
use std::thread;

use rten_simd::SimdOp;

use crate::DIMENSION as HIDDEN;
use crate::EmbedError;
use crate::attention::Attention;
use crate::linear::Linear;
use crate::math::{Gelu, NormalizeRows};
use crate::weights::Tensors;

const LAYERS: usize = 6;
const INTERMEDIATE: usize = 1536;
const VOCABULARY: usize = 30522;
const POSITIONS: usize = 512;
/// Fewest rows that are worth a thread.
const THREAD_ROWS_MIN: usize = 32;

pub(crate) struct Model {
    words: Embeddings,
    positions: Embeddings,
    /// Added to each word: the model tells two sentences apart, and there is one.
    sentence: Vec<f32>,
    norm: Norm,
    layers: Vec<Layer>,
}

/// Rows of signed bytes, and the factor of each row.
struct Embeddings {
    bytes: &'static [u8],
    scales: Vec<f32>,
}

struct Layer {
    /// Query, key and value side by side.
    attention: Linear,
    attention_output: Linear,
    attention_norm: Norm,
    intermediate: Linear,
    output: Linear,
    output_norm: Norm,
}

struct Norm {
    weight: Vec<f32>,
    bias: Vec<f32>,
}

impl Model {
    pub(crate) fn load(file: &'static [u8]) -> Result<Self, EmbedError> {
        let tensors = Tensors::parse(file)?;
        let mut sentence = tensors.floats("token_type_embeddings", &[2, HIDDEN])?;
        sentence.truncate(HIDDEN);
        let layers = (0..LAYERS).map(|layer| Layer::load(&tensors, layer));
        Ok(Self {
            words: Embeddings::load(&tensors, "word_embeddings", VOCABULARY)?,
            positions: Embeddings::load(&tensors, "position_embeddings", POSITIONS)?,
            sentence,
            norm: Norm::load(&tensors, "norm")?,
            layers: layers.collect::<Result<_, _>>()?,
        })
    }

    /// The states of all words of some texts, one row for each, text after text.
    pub(crate) fn run(&self, texts: &[&[i32]], threads: usize) -> Result<Vec<f32>, EmbedError> {
        let mut states = Vec::new();
        let mut ranges = Vec::new();
        for text in texts {
            let start = states.len() / HIDDEN;
            for (position, word) in text.iter().enumerate() {
                states.extend(self.embed_word(*word, position)?);
            }
            ranges.push(start..start + text.len());
        }
        let rows = states.len() / HIDDEN;
        let block = rows.div_ceil(threads).max(THREAD_ROWS_MIN);
        let mut attention = vec![0.0; rows * 3 * HIDDEN];
        for layer in &self.layers {
            let inputs = states.chunks(block * HIDDEN);
            let jobs = inputs.zip(attention.chunks_mut(block * 3 * HIDDEN));
            run_jobs(jobs.map(|(states, out)| || layer.attention.apply(states, out)));
            let jobs = states.chunks_mut(block * HIDDEN).enumerate();
            run_jobs(jobs.map(|(at, states)| {
                let (ranges, attention) = (&ranges, &attention);
                move || layer.update(at * block, states, ranges, attention)
            }));
        }
        Ok(states)
    }

    fn embed_word(&self, word: i32, position: usize) -> Result<[f32; HIDDEN], EmbedError> {
        let word = usize::try_from(word).map_err(|_| EmbedError::Token)?;
        let mut state = [0.0; HIDDEN];
        self.words.add_row(word, &mut state)?;
        add(&mut state, &self.sentence);
        self.positions.add_row(position, &mut state)?;
        self.norm.apply(&mut state);
        Ok(state)
    }
}

impl Embeddings {
    fn load(tensors: &Tensors, name: &str, rows: usize) -> Result<Self, EmbedError> {
        Ok(Self {
            bytes: tensors.bytes(&format!("{name}.weight"), &[rows, HIDDEN])?,
            scales: tensors.floats(&format!("{name}.scale"), &[rows])?,
        })
    }

    fn add_row(&self, row: usize, state: &mut [f32]) -> Result<(), EmbedError> {
        let scale = self.scales.get(row).ok_or(EmbedError::Token)?;
        let bytes = &self.bytes[row * HIDDEN..][..HIDDEN];
        for (state, byte) in state.iter_mut().zip(bytes) {
            *state += f32::from(byte.cast_signed()) * scale;
        }
        Ok(())
    }
}

impl Layer {
    fn load(tensors: &Tensors, layer: usize) -> Result<Self, EmbedError> {
        let linear = |name: &str, inputs, outputs| {
            Linear::load(tensors, &format!("layer.{layer}.{name}"), inputs, outputs)
        };
        let norm = |name: &str| Norm::load(tensors, &format!("layer.{layer}.{name}"));
        Ok(Self {
            attention: linear("attention", HIDDEN, 3 * HIDDEN)?,
            attention_output: linear("attention_output", HIDDEN, HIDDEN)?,
            attention_norm: norm("attention_norm")?,
            intermediate: linear("intermediate", HIDDEN, INTERMEDIATE)?,
            output: linear("output", INTERMEDIATE, HIDDEN)?,
            output_norm: norm("output_norm")?,
        })
    }

    /// Replaces some rows of states, the first of which is `first`; `attention` holds queries, keys and values
    /// of all rows.
    fn update(&self, first: usize, states: &mut [f32], texts: &[Range<usize>], attention: &[f32]) {
        let rows = first..first + states.len() / HIDDEN;
        let mut context = vec![0.0; states.len()];
        for text in texts {
            let (start, end) = (text.start.max(rows.start), text.end.min(rows.end));
            if start < end {
                let out = &mut context[(start - first) * HIDDEN..(end - first) * HIDDEN];
                let text_rows = &attention[text.start * 3 * HIDDEN..text.end * 3 * HIDDEN];
                let attention = Attention {
                    text: text_rows,
                    rows: start - text.start..end - text.start,
                    out,
                };
                attention.dispatch();
            }
        }
        let mut change = vec![0.0; states.len()];
        self.attention_output.apply(&context, &mut change);
        add(states, &change);
        self.attention_norm.apply(states);
        let mut intermediate = vec![0.0; rows.len() * INTERMEDIATE];
        self.intermediate.apply(states, &mut intermediate);
        Gelu(&mut intermediate).dispatch();
        self.output.apply(&intermediate, &mut change);
        add(states, &change);
        self.output_norm.apply(states);
    }
}

impl Norm {
    fn load(tensors: &Tensors, name: &str) -> Result<Self, EmbedError> {
        Ok(Self {
            weight: tensors.floats(&format!("{name}.weight"), &[HIDDEN])?,
            bias: tensors.floats(&format!("{name}.bias"), &[HIDDEN])?,
        })
    }

    fn apply(&self, states: &mut [f32]) {
        let rows = NormalizeRows {
            rows: states,
            weight: &self.weight,
            bias: &self.bias,
        };
        rows.dispatch();
    }
}

fn add(states: &mut [f32], change: &[f32]) {
    for (state, change) in states.iter_mut().zip(change) {
        *state += change;
    }
}

/// Runs jobs side by side, the last of them on this thread.
fn run_jobs<F: FnOnce() + Send>(jobs: impl Iterator<Item = F>) {
    thread::scope(|scope| {
        let mut jobs = jobs.peekable();
        while let Some(job) = jobs.next() {
            if jobs.peek().is_some() {
                scope.spawn(job);
            } else {
                job();
            }
        }
    });
}
