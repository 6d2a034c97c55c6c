//! Products of matrices. Weights are bytes; a panel of them at a time is widened to floats, for all rows.

use rten_simd::ops::{BitOps, NumOps};
use rten_simd::{Isa, SimdOp};

use crate::EmbedError;
use crate::weights::Tensors;

/// Columns of a panel: a multiple of two vectors on every processor.
pub(crate) const PANEL: usize = 32;
/// Rows that are multiplied at a time. With two vectors of columns their sums fit into 16 registers.
const TILE_ROWS: usize = 6;
const TILE_VECTORS: usize = 2;

/// Rows of a panel are a multiple of this: bounds are checked once for so many.
pub(crate) const STEP: usize = 8;

/// Some columns of a matrix, row by row.
pub(crate) type Panel = [PanelRow];

/// Aligned like the widest vectors, so that no load crosses a cache line.
#[derive(Clone, Copy)]
#[repr(align(64))]
pub(crate) struct PanelRow(pub(crate) [f32; PANEL]);

impl PanelRow {
    pub(crate) const ZERO: Self = Self([0.0; PANEL]);
}

/// Rows of floats, which start `stride` from one another.
#[derive(Clone, Copy)]
pub(crate) struct Rows<'a> {
    pub(crate) numbers: &'a [f32],
    pub(crate) stride: usize,
    pub(crate) count: usize,
}

/// A layer of a network: outputs are inputs by weights, and a bias.
pub(crate) struct Linear {
    /// Panel after panel.
    weights: &'static [u8],
    /// The factor of each output's weights.
    scales: Vec<f32>,
    bias: Vec<f32>,
    inputs: usize,
}

impl Linear {
    pub(crate) fn load(
        tensors: &Tensors,
        name: &str,
        inputs: usize,
        outputs: usize,
    ) -> Result<Self, EmbedError> {
        let panels = [outputs / PANEL, inputs, PANEL];
        Ok(Self {
            weights: tensors.bytes(&format!("{name}.weight"), &panels)?,
            scales: tensors.floats(&format!("{name}.scale"), &[outputs])?,
            bias: tensors.floats(&format!("{name}.bias"), &[outputs])?,
            inputs,
        })
    }

    /// The outputs for each row of inputs, row by row.
    pub(crate) fn apply(&self, inputs: &[f32], out: &mut [f32]) {
        let layer = self;
        Apply { layer, inputs, out }.dispatch();
    }
}

struct Apply<'a> {
    layer: &'a Linear,
    inputs: &'a [f32],
    out: &'a mut [f32],
}

impl SimdOp for Apply<'_> {
    type Output = ();

    #[inline(always)]
    fn eval<I: Isa>(self, isa: I) {
        let Self { layer, inputs, out } = self;
        let outputs = layer.bias.len();
        let rows = Rows {
            numbers: inputs,
            stride: layer.inputs,
            count: inputs.len() / layer.inputs,
        };
        let mut panel = vec![PanelRow::ZERO; layer.inputs];
        let weights = layer.weights.chunks_exact(layer.inputs * PANEL);
        for (at, weights) in weights.enumerate() {
            let columns = at * PANEL..(at + 1) * PANEL;
            widen(weights, &mut panel);
            multiply(isa, rows, &panel, &mut out[columns.start..], outputs);
            let (scales, bias) = (&layer.scales[columns.clone()], &layer.bias[columns.clone()]);
            for row in out.chunks_exact_mut(outputs) {
                for ((out, scale), bias) in row[columns.clone()].iter_mut().zip(scales).zip(bias) {
                    *out = *out * scale + bias;
                }
            }
        }
    }
}

#[inline(always)]
fn widen(weights: &[u8], panel: &mut Panel) {
    for (row, bytes) in panel.iter_mut().zip(weights.as_chunks::<PANEL>().0) {
        // By way of an array of its own, the compiler sees that nothing overlaps.
        let mut numbers = [0.0; PANEL];
        for (number, byte) in numbers.iter_mut().zip(bytes) {
            *number = f32::from(byte.cast_signed());
        }
        row.0 = numbers;
    }
}

/// Rows by a panel. The products of a row start `stride` from those of the one before.
#[inline(always)]
pub(crate) fn multiply<I: Isa>(
    isa: I,
    rows: Rows<'_>,
    panel: &Panel,
    out: &mut [f32],
    stride: usize,
) {
    debug_assert!(panel.len().is_multiple_of(STEP));
    for first in (0..rows.count).step_by(TILE_ROWS) {
        let out = &mut out[first * stride..];
        match rows.count - first {
            1 => multiply_tile::<I, 1>(isa, rows, first, panel, out, stride),
            2 => multiply_tile::<I, 2>(isa, rows, first, panel, out, stride),
            3 => multiply_tile::<I, 3>(isa, rows, first, panel, out, stride),
            4 => multiply_tile::<I, 4>(isa, rows, first, panel, out, stride),
            5 => multiply_tile::<I, 5>(isa, rows, first, panel, out, stride),
            _ => multiply_tile::<I, TILE_ROWS>(isa, rows, first, panel, out, stride),
        }
    }
}

#[inline(always)]
fn multiply_tile<I: Isa, const ROWS: usize>(
    isa: I,
    rows: Rows<'_>,
    first: usize,
    panel: &Panel,
    out: &mut [f32],
    stride: usize,
) {
    let ops = isa.f32();
    let row = |at: usize| rows.numbers[(first + at) * rows.stride..].as_chunks().0;
    let rows: [&[[f32; STEP]]; ROWS] = std::array::from_fn(row);
    for column in (0..PANEL).step_by(TILE_VECTORS * ops.len()) {
        let mut sums = [[ops.zero(); TILE_VECTORS]; ROWS];
        for (step, factors) in panel.as_chunks::<STEP>().0.iter().enumerate() {
            let rows: [&[f32; STEP]; ROWS] = std::array::from_fn(|at| &rows[at][step]);
            for (at, factors) in factors.iter().enumerate() {
                let factors = ops.load_many::<TILE_VECTORS>(&factors.0[column..]);
                for (row, sums) in rows.iter().zip(&mut sums) {
                    let number = ops.splat(row[at]);
                    for (factor, sum) in factors.iter().zip(sums) {
                        *sum = ops.mul_add(number, *factor, *sum);
                    }
                }
            }
        }
        for (row, sums) in sums.iter().enumerate() {
            for (at, sum) in sums.iter().enumerate() {
                ops.store(*sum, &mut out[row * stride + column + at * ops.len()..]);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn random_bytes(count: usize, seed: u64) -> Vec<u8> {
        let hash = blake3::Hasher::new()
            .update(&seed.to_le_bytes())
            .finalize_xof();
        let mut bytes = vec![0; count];
        let mut hash = hash;
        hash.fill(&mut bytes);
        bytes
    }

    fn random_floats(count: usize, seed: u64) -> Vec<f32> {
        let bytes = random_bytes(count, seed);
        let numbers = bytes.iter().map(|byte| f32::from(byte.cast_signed()));
        numbers.map(|number| number / 37.0).collect()
    }

    proptest! {
        #[test]
        fn outputs_are_those_of_the_definition(
            rows in 1..20_usize,
            inputs in (1..24_usize).prop_map(|steps| steps * STEP),
            panels in 1..4_usize,
            seed: u64,
        ) {
            let outputs = panels * PANEL;
            let layer = Linear {
                weights: random_bytes(inputs * outputs, seed).leak(),
                scales: random_floats(outputs, seed ^ 1),
                bias: random_floats(outputs, seed ^ 2),
                inputs,
            };
            let numbers = random_floats(rows * inputs, seed ^ 3);
            let mut out = vec![f32::NAN; rows * outputs];
            layer.apply(&numbers, &mut out);
            for (at, out) in out.iter().enumerate() {
                let (row, column) = (at / outputs, at % outputs);
                let panel = &layer.weights[column / PANEL * inputs * PANEL..];
                let (mut sum, mut size) = (0.0, 0.0);
                for input in 0..inputs {
                    let weight = panel[input * PANEL + column % PANEL].cast_signed();
                    let product = f64::from(weight) * f64::from(numbers[row * inputs + input]);
                    sum += product;
                    size += product.abs();
                }
                let scale = f64::from(layer.scales[column]);
                let expected = sum * scale + f64::from(layer.bias[column]);
                let tolerance = 1e-5 * (1.0 + size * scale.abs());
                prop_assert!((f64::from(*out) - expected).abs() < tolerance, "{out} {expected}");
            }
        }
    }
}
