//! What a layer does with single numbers and rows. The loops are plain: dispatched as a [`SimdOp`], the
//! compiler makes of them what the processor can do.

use rten_simd::{Isa, SimdOp};

/// Numbers that are summed side by side.
const LANES: usize = 16;
/// Added to a variance, as in training.
const EPSILON: f32 = 1e-12;

/// Layer normalisation of rows, in place.
pub(crate) struct NormalizeRows<'a> {
    pub(crate) rows: &'a mut [f32],
    pub(crate) weight: &'a [f32],
    pub(crate) bias: &'a [f32],
}

/// The activation of the model, in place: x/2 · (1 + erf(x/√2)).
pub(crate) struct Gelu<'a>(pub(crate) &'a mut [f32]);

impl SimdOp for NormalizeRows<'_> {
    type Output = ();

    #[inline(always)]
    fn eval<I: Isa>(self, _: I) {
        for row in self.rows.chunks_exact_mut(self.weight.len()) {
            normalize_row(row, self.weight, self.bias);
        }
    }
}

impl SimdOp for Gelu<'_> {
    type Output = ();

    #[inline(always)]
    fn eval<I: Isa>(self, _: I) {
        for number in self.0 {
            *number *= 0.5 * (1.0 + erf(*number * std::f32::consts::FRAC_1_SQRT_2));
        }
    }
}

#[inline(always)]
fn normalize_row(row: &mut [f32], weight: &[f32], bias: &[f32]) {
    let count = row.len() as f32;
    let mean = sum_of(row, |n| n) / count;
    let variance = sum_of(row, |n| (n - mean) * (n - mean)) / count;
    let scale = 1.0 / (variance + EPSILON).sqrt();
    for ((number, weight), bias) in row.iter_mut().zip(weight).zip(bias) {
        *number = (*number - mean) * scale * weight + bias;
    }
}

/// Sums what `map` makes of each number.
#[inline(always)]
fn sum_of(row: &[f32], map: impl Fn(f32) -> f32) -> f32 {
    let mut sums = [0.0; LANES];
    let (parts, rest) = row.as_chunks::<LANES>();
    for part in parts {
        for (sum, number) in sums.iter_mut().zip(part) {
            *sum += map(*number);
        }
    }
    for (sum, number) in sums.iter_mut().zip(rest) {
        *sum += map(*number);
    }
    sums.iter().sum()
}

/// Softmax of one row, in place.
#[inline(always)]
pub(crate) fn softmax(row: &mut [f32]) {
    let mut largest = [f32::MIN; LANES];
    for part in row.chunks(LANES) {
        for (largest, number) in largest.iter_mut().zip(part) {
            *largest = if *number > *largest {
                *number
            } else {
                *largest
            };
        }
    }
    let largest = largest.into_iter().fold(f32::MIN, f32::max);
    for number in &mut *row {
        *number = exp(*number - largest);
    }
    let scale = 1.0 / sum_of(row, |n| n);
    for number in row {
        *number *= scale;
    }
}

/// e to a number that is not above 0: 2 to its whole part by exponent bits, to the rest by polynomial.
#[inline(always)]
fn exp(x: f32) -> f32 {
    const ROUND: f32 = 12_582_912.0;
    let x = if x > -87.0 { x } else { -87.0 };
    let shifted = x * std::f32::consts::LOG2_E + ROUND;
    let whole = shifted - ROUND;
    // ln 2 in two parts, so that the difference is exact.
    let rest = (x - whole * 0.693_359_4) - whole * -2.121_944_4e-4;
    let mut sum = 1.987_569_1e-4;
    for factor in [
        1.398_199_9e-3,
        8.333_452e-3,
        4.166_579_6e-2,
        1.666_666_5e-1,
        0.5,
        1.0,
        1.0,
    ] {
        sum = sum * rest + factor;
    }
    let exponent = shifted.to_bits().wrapping_sub(ROUND.to_bits()) << 23;
    f32::from_bits(sum.to_bits().wrapping_add(exponent))
}

/// A quotient of polynomials, as in Eigen; beyond 4 it is 1 to the last digit.
#[inline(always)]
fn erf(x: f32) -> f32 {
    let x = if x > 4.0 { 4.0 } else { x };
    let x = if x < -4.0 { -4.0 } else { x };
    let square = x * x;
    let mut above = -2.726_142_3e-10;
    for factor in [
        2.770_681_4e-8,
        -2.101_024e-6,
        -5.692_506_6e-5,
        -7.349_906_5e-4,
        -2.954_6e-3,
        -1.609_603_3e-2,
    ] {
        above = above * square + factor;
    }
    let mut below = -1.456_607_2e-5;
    for factor in [
        -2.133_740_5e-4,
        -1.682_827e-3,
        -7.373_329e-3,
        -1.426_473_9e-2,
    ] {
        below = below * square + factor;
    }
    x * above / below
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(from: f32, to: f32) -> Vec<f32> {
        let step = (to - from) / 10_007.0;
        (0..=10_007).map(|at| from + at as f32 * step).collect()
    }

    /// By its series, which converges for all that occurs here.
    fn exact_erf(x: f64) -> f64 {
        let mut term = x;
        let mut sum = x;
        for n in 1..200 {
            term *= 2.0 * x * x / f64::from(2 * n + 1);
            sum += term;
        }
        sum * (-x * x).exp() * std::f64::consts::FRAC_2_SQRT_PI
    }

    #[test]
    fn gelu_is_exact() {
        let inputs = range(-8.0, 8.0);
        let mut out = inputs.clone();
        Gelu(&mut out).dispatch();
        for (input, out) in inputs.into_iter().map(f64::from).zip(out) {
            let expected = input / 2.0 * (1.0 + exact_erf(input / 2.0_f64.sqrt()));
            let difference = (f64::from(out) - expected).abs();
            assert!(difference < 1e-6, "{input}: {out} {expected}");
        }
        let mut out = [-1e30, 1e30];
        Gelu(&mut out).dispatch();
        assert!(
            out[0].abs() < 1e24 && (out[1] - 1e30).abs() < 1e24,
            "{out:?}"
        );
    }

    #[test]
    fn exp_is_exact() {
        for input in range(-87.0, 0.0) {
            let expected = f64::from(input).exp();
            let out = f64::from(exp(input));
            assert!(
                (out / expected - 1.0).abs() < 3e-7,
                "{input}: {out} {expected}"
            );
        }
        assert_eq!(exp(0.0), 1.0);
        assert!(exp(f32::MIN) < 1e-37);
    }

    #[test]
    fn softmax_is_exact() {
        for count in [1, 2, 15, 16, 17, 100, 256] {
            let mut row = range(-30.0, 12.5);
            row.truncate(count * 39);
            let mut row: Vec<f32> = row.into_iter().step_by(39).collect();
            let exact: Vec<f64> = row.iter().map(|n| f64::from(*n).exp()).collect();
            let sum: f64 = exact.iter().sum();
            softmax(&mut row);
            assert_eq!(row.len(), count);
            for (out, exact) in row.iter().zip(exact) {
                assert!((f64::from(*out) - exact / sum).abs() < 1e-6, "{count}");
            }
        }
    }

    #[test]
    fn rows_are_normalized_exactly() {
        let numbers = range(-3.0, 40.0);
        let (weight, bias) = (range(0.5, 2.0), range(-1.0, 1.0));
        for width in [5, 16, 384] {
            let mut rows = numbers[..3 * width].to_vec();
            let normalize = NormalizeRows {
                rows: &mut rows,
                weight: &weight[..width],
                bias: &bias[..width],
            };
            normalize.dispatch();
            for (out, row) in rows.chunks(width).zip(numbers.chunks(width)) {
                let row: Vec<f64> = row.iter().map(|n| f64::from(*n)).collect();
                let mean = row.iter().sum::<f64>() / width as f64;
                let squares = row.iter().map(|n| (n - mean).powi(2)).sum::<f64>();
                let deviation = (squares / width as f64 + f64::from(EPSILON)).sqrt();
                for (at, out) in out.iter().enumerate() {
                    let expected = (row[at] - mean) / deviation * f64::from(weight[at]);
                    let expected = expected + f64::from(bias[at]);
                    assert!(
                        (f64::from(*out) - expected).abs() < 1e-3,
                        "{out} {expected}"
                    );
                }
            }
        }
    }
}
