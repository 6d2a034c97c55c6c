//! How far a number is above the others.

/// Numbers taken together, so that a processor can add them side by side.
const LANES: usize = 8;

/// The middle of many numbers and how far they lie from it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Deviation {
    pub(super) mean: f32,
    /// 1 where there is none, so that it can be divided by.
    pub(super) deviation: f32,
}

impl Deviation {
    /// Of what is known: what is no number is not counted.
    pub(super) fn from_values(numbers: &[f32]) -> Self {
        let mut lanes = [[0.0_f64; LANES]; 3];
        let chunks = numbers.chunks_exact(LANES);
        let rest = chunks.remainder();
        for chunk in chunks {
            accumulate(chunk, &mut lanes);
        }
        accumulate(rest, &mut lanes);
        let [count, sum, squares] = lanes.map(|lanes| lanes.iter().sum::<f64>());
        Self::from_sums(count, sum, squares)
    }

    /// Of so many numbers, all of which are nought but these.
    pub(super) fn from_sparse(numbers: impl Iterator<Item = f32>, count: usize) -> Self {
        let add = |(sum, squares): (f64, f64), number: f32| {
            let number = f64::from(number);
            (sum + number, squares + number * number)
        };
        let (sum, squares) = numbers.fold((0.0, 0.0), add);
        Self::from_sums(count as f64, sum, squares)
    }

    fn from_sums(count: f64, sum: f64, squares: f64) -> Self {
        if count == 0.0 {
            return Self {
                mean: 0.0,
                deviation: 1.0,
            };
        }
        let mean = sum / count;
        let spread = (squares / count - mean * mean).max(0.0).sqrt();
        Self {
            mean: mean as f32,
            deviation: if spread < 1e-6 { 1.0 } else { spread as f32 },
        }
    }

    /// By how many spreads a number stands out.
    pub(super) fn z_score(self, number: f32) -> f32 {
        (number - self.mean) / self.deviation
    }

    /// The same; what is not known does not stand out.
    pub(super) fn z_score_or_zero(self, number: f32) -> f32 {
        if number.is_nan() {
            0.0
        } else {
            self.z_score(number)
        }
    }
}

fn accumulate(numbers: &[f32], [count, sum, squares]: &mut [[f64; LANES]; 3]) {
    for (lane, number) in numbers.iter().enumerate() {
        let known = !number.is_nan();
        let number = if known { f64::from(*number) } else { 0.0 };
        count[lane] += f64::from(u8::from(known));
        sum[lane] += number;
        squares[lane] += number * number;
    }
}
