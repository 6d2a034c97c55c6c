//! Meanings as vectors: 384 numbers of one byte each, compared by a scan of all of them.
//!
//! A scan reads 4 MB for 10,000 tools; a graph of neighbours would read less and cost its building,
//! its memory and its misses.

pub(super) mod scan;

use std::sync::Arc;

use self::scan::{Probes, dot_product};

/// Most numbers of a vector. The largest models in use give 4096.
pub const DIMENSIONS_MAX: usize = 4096;

/// A direction: numbers from -127 to 127, and what one of them is worth.
///
/// One byte instead of four moves a similarity by less than 0.01, which is less than what two ways
/// to say the same thing differ by.
#[derive(Clone, Debug, PartialEq)]
pub struct Vector {
    numbers: Arc<[i8]>,
    scale: f32,
}

impl Vector {
    /// Rounds a vector of any length; `None` when it has no direction: empty, too long, all zero, or
    /// with numbers that are none.
    #[must_use]
    pub fn quantize(numbers: &[f32]) -> Option<Self> {
        if numbers.is_empty() || numbers.len() > DIMENSIONS_MAX {
            return None;
        }
        let length = numbers.iter().map(|n| n * n).sum::<f32>().sqrt();
        let largest = numbers.iter().fold(0.0_f32, |most, n| most.max(n.abs()));
        if !(length.is_normal() && largest.is_normal()) {
            return None;
        }
        let step = largest / 127.0;
        Some(Self {
            numbers: numbers.iter().map(|n| (n / step).round() as i8).collect(),
            scale: step / length,
        })
    }

    /// The direction between several, each of which counts the same; `None` when there is none, or
    /// they are not of one dimension.
    #[must_use]
    pub fn mean(parts: &[&Self]) -> Option<Self> {
        Self::weighted_mean(parts.iter().map(|part| (*part, 1.0)))
    }

    /// The same, where each has a weight.
    pub(super) fn weighted_mean<'a>(parts: impl Iterator<Item = (&'a Self, f32)>) -> Option<Self> {
        let mut sum = Vec::new();
        for (part, weight) in parts {
            if sum.is_empty() {
                sum.resize(part.dimension(), 0.0);
            }
            if part.dimension() != sum.len() {
                return None;
            }
            for (sum, number) in sum.iter_mut().zip(&*part.numbers) {
                *sum += f32::from(*number) * part.scale * weight;
            }
        }
        Self::quantize(&sum)
    }

    /// As it is kept: what one is worth, and the numbers.
    #[must_use]
    pub fn parts(&self) -> (f32, &[i8]) {
        (self.scale, &self.numbers)
    }

    /// As it was kept; `None` when that was none of ours.
    #[must_use]
    pub fn from_parts(unit: f32, numbers: &[i8]) -> Option<Self> {
        let sound = (1..=DIMENSIONS_MAX).contains(&numbers.len()) && unit.is_normal() && unit > 0.0;
        sound.then(|| Self {
            numbers: numbers.into(),
            scale: unit,
        })
    }

    /// How many numbers it has.
    #[must_use]
    pub fn dimension(&self) -> usize {
        self.numbers.len()
    }

    /// The cosine of the angle to another; 0 when they are not of one dimension.
    #[must_use]
    pub(crate) fn similarity(&self, other: &Self) -> f32 {
        if self.dimension() != other.dimension() {
            return 0.0;
        }
        dot_product(&self.numbers, &other.numbers) as f32 * (self.scale * other.scale)
    }
}

/// The vectors of one server's tools, side by side.
#[derive(Debug, Default, PartialEq)]
pub(super) struct VectorRows {
    dimension: usize,
    numbers: Box<[i8]>,
    /// 0 where a tool has no vector.
    scales: Box<[f32]>,
}

impl VectorRows {
    /// One row for each tool. Of several dimensions the first counts; tools of another have none.
    pub(super) fn from_vectors(vectors: &[Option<Vector>]) -> Self {
        let dimension = vectors.iter().flatten().next().map_or(0, Vector::dimension);
        let mut numbers = Vec::with_capacity(dimension * vectors.len());
        let mut units = Vec::with_capacity(vectors.len());
        for vector in vectors {
            match vector {
                Some(vector) if vector.dimension() == dimension => {
                    numbers.extend_from_slice(&vector.numbers);
                    units.push(vector.scale);
                }
                _ => {
                    numbers.resize(numbers.len() + dimension, 0);
                    units.push(0.0);
                }
            }
        }
        Self {
            dimension,
            numbers: numbers.into(),
            scales: units.into(),
        }
    }

    /// How like each row is to each of these, row by row; no number where there is no vector, or one
    /// of another dimension.
    pub(super) fn similarities(&self, to: &Probes, out: &mut Vec<f32>) {
        out.clear();
        out.resize(self.scales.len() * to.scales().len(), f32::NAN);
        if self.dimension != to.dimension() {
            return;
        }
        let products = to.dot_products(&self.numbers);
        let products = products.chunks_exact(to.scales().len());
        let rows = out.chunks_exact_mut(to.scales().len());
        for ((row, products), unit) in rows.zip(products).zip(&self.scales) {
            if *unit > 0.0 {
                let one = products.iter().zip(to.scales());
                let one = one.map(|(product, to)| *product as f32 * (unit * to));
                row.iter_mut().zip(one).for_each(|(row, like)| *row = like);
            }
        }
    }

    /// The vector of a row.
    pub(super) fn vector(&self, row: usize) -> Option<Vector> {
        let at = row * self.dimension;
        let numbers = self.numbers[at..at + self.dimension].into();
        let unit = self.scales[row];
        (unit > 0.0).then_some(Vector {
            numbers,
            scale: unit,
        })
    }

    /// How many tools have one.
    pub(super) fn vector_count(&self) -> usize {
        self.scales.iter().filter(|unit| **unit > 0.0).count()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn quantization_barely_changes_similarity(
            a in proptest::collection::vec(-1.0_f32..1.0, 384),
            b in proptest::collection::vec(-1.0_f32..1.0, 384),
        ) {
            let exact: f32 = a.iter().zip(&b).map(|(a, b)| a * b).sum();
            let length = |v: &[f32]| v.iter().map(|n| n * n).sum::<f32>().sqrt();
            let exact = exact / length(&a) / length(&b);
            let (a, b) = (Vector::quantize(&a).unwrap(), Vector::quantize(&b).unwrap());
            prop_assert!((a.similarity(&b) - exact).abs() < 0.01);
            prop_assert!((a.similarity(&a) - 1.0).abs() < 0.01);
        }
    }

    #[test]
    fn a_zero_vector_is_rejected() {
        for numbers in [&[][..], &[0.0; 8], &[f32::NAN, 1.0], &[f32::INFINITY, 1.0]] {
            assert_eq!(Vector::quantize(numbers), None);
        }
        assert_eq!(Vector::quantize(&vec![1.0; DIMENSIONS_MAX + 1]), None);
    }

    #[test]
    fn stored_vectors_survive_a_round_trip() {
        let vector = Vector::quantize(&[3.0, -1.0, 0.5]).unwrap();
        let (unit, numbers) = vector.parts();
        assert_eq!(Vector::from_parts(unit, numbers), Some(vector.clone()));
        for unit in [0.0, -1.0, f32::NAN] {
            assert_eq!(Vector::from_parts(unit, &[1]), None);
        }
        assert_eq!(Vector::from_parts(1.0, &[]), None);
    }

    #[test]
    fn the_mean_of_two_vectors_is_equally_similar_to_both() {
        let (x, y) = (
            Vector::quantize(&[9.0, 0.0]).unwrap(),
            Vector::quantize(&[0.0, 1.0]).unwrap(),
        );
        let between = Vector::mean(&[&x, &y]).unwrap();
        assert!((between.similarity(&x) - between.similarity(&y)).abs() < 0.01);
        let odd = Vector::quantize(&[1.0]).unwrap();
        assert_eq!(Vector::mean(&[&x, &odd]), None);
        assert_eq!(x.similarity(&odd), 0.0);
    }

    #[test]
    fn a_vector_of_another_dimension_has_no_similarity() {
        let (flat, deep) = (
            Vector::quantize(&[1.0, 0.0]).unwrap(),
            Vector::quantize(&[1.0]).unwrap(),
        );
        let rows = VectorRows::from_vectors(&[None, Some(flat.clone()), Some(deep.clone())]);
        let like = |to: &Vector| {
            let mut out = Vec::new();
            rows.similarities(
                &Probes::from_vectors(std::slice::from_ref(to)).unwrap(),
                &mut out,
            );
            out.iter().map(|like| !like.is_nan()).collect::<Vec<_>>()
        };
        assert_eq!(like(&flat), [false, true, false]);
        assert_eq!(like(&deep), [false; 3]);
        assert!(Probes::from_vectors(&[flat, deep]).is_none());
        assert_eq!(rows.vector_count(), 1);
    }
}
