//! Attention: each word of a text takes from the others' values what its query finds in their keys.

use std::ops::Range;

use rten_simd::{Isa, SimdOp};

use crate::DIMENSION as HIDDEN;
use crate::linear::{PANEL, PanelRow, Rows, STEP, multiply};
use crate::math::softmax;

/// Numbers of a head.
const WIDTH: usize = HIDDEN / 12;
// The values of a head are one panel.
const _: () = assert!(WIDTH == PANEL);
/// Width of a row with query, key and value of a word.
const STRIDE: usize = 3 * HIDDEN;
/// Queries that are worked on at once.
const QUERIES: usize = 24;

/// Attention of the words in `rows` to all words of their text. `text` holds query, key and value of each word.
pub(crate) struct Attention<'a> {
    pub(crate) text: &'a [f32],
    pub(crate) rows: Range<usize>,
    pub(crate) out: &'a mut [f32],
}

impl SimdOp for Attention<'_> {
    type Output = ();

    #[inline(always)]
    fn eval<I: Isa>(self, isa: I) {
        let words = self.text.len() / STRIDE;
        let panels = words.div_ceil(PANEL);
        // Panels of words: one row for each number of a key. Beyond the last word are zeros.
        let mut keys = vec![PanelRow::ZERO; panels * WIDTH];
        let mut values = vec![PanelRow::ZERO; words.next_multiple_of(STEP)];
        let mut scores = vec![0.0; QUERIES * panels * PANEL];
        let scale = 1.0 / (WIDTH as f32).sqrt();
        for head in (0..HIDDEN).step_by(WIDTH) {
            for (word, row) in self.text.chunks_exact(STRIDE).enumerate() {
                let panel = &mut keys[word / PANEL * WIDTH..][..WIDTH];
                for (number, out) in row[HIDDEN + head..].iter().zip(panel) {
                    out.0[word % PANEL] = number * scale;
                }
                values[word]
                    .0
                    .copy_from_slice(&row[2 * HIDDEN + head..][..WIDTH]);
            }
            for first in self.rows.clone().step_by(QUERIES) {
                let queries = Rows {
                    numbers: &self.text[first * STRIDE + head..],
                    stride: STRIDE,
                    count: QUERIES.min(self.rows.end - first),
                };
                let stride = panels * PANEL;
                for (at, keys) in keys.chunks_exact(WIDTH).enumerate() {
                    multiply(isa, queries, keys, &mut scores[at * PANEL..], stride);
                }
                for row in scores.chunks_exact_mut(stride).take(queries.count) {
                    softmax(&mut row[..words]);
                }
                let weights = Rows {
                    numbers: &scores,
                    stride,
                    count: queries.count,
                };
                let out = &mut self.out[(first - self.rows.start) * HIDDEN + head..];
                multiply(isa, weights, &values, out, HIDDEN);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_take_from_the_values_what_softmax_gives_them() {
        for words in [1, 7, 8, 33, 50] {
            let number = |at: usize| ((at * 7919 + 13) % 2003) as f32 / 1000.0 - 1.0;
            let text: Vec<f32> = (0..words * STRIDE).map(number).collect();
            let rows = words / 3..words;
            let mut out = vec![f32::NAN; rows.len() * HIDDEN];
            let attention = Attention {
                text: &text,
                rows: rows.clone(),
                out: &mut out,
            };
            attention.dispatch();
            let part = |word: usize, kind: usize, head: usize| {
                let part = &text[word * STRIDE + kind * HIDDEN + head * WIDTH..][..WIDTH];
                part.iter().map(|n| f64::from(*n))
            };
            for (word, out) in rows.zip(out.chunks_exact(HIDDEN)) {
                for (head, out) in out.chunks_exact(WIDTH).enumerate() {
                    let score = |other| {
                        let pairs = part(word, 0, head).zip(part(other, 1, head));
                        let product: f64 = pairs.map(|(a, b)| a * b).sum();
                        (product / (WIDTH as f64).sqrt()).exp()
                    };
                    let scores: Vec<f64> = (0..words).map(score).collect();
                    let total: f64 = scores.iter().sum();
                    for (at, out) in out.iter().enumerate() {
                        let values = (0..words).map(|other| part(other, 2, head).nth(at).unwrap());
                        let sum: f64 = values.zip(&scores).map(|(a, b)| a * b).sum();
                        assert!((f64::from(*out) - sum / total).abs() < 1e-5, "{words}");
                    }
                }
            }
        }
    }
}
