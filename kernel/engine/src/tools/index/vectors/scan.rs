//! Vectors against vectors, as many at once as the processor can.

use rten_simd::{Isa, SimdOp};

use super::Vector;

/// The meanings of a request, side by side, widened to what a processor multiplies by the dozen.
pub(in crate::tools::index) struct Probes {
    dimension: usize,
    numbers: Vec<i16>,
    units: Vec<f32>,
}

impl Probes {
    /// `None` when there are none, or they are not of one dimension.
    pub(in crate::tools::index) fn from_vectors(meanings: &[Vector]) -> Option<Self> {
        let dimension = meanings.first()?.dimension();
        let alike = meanings.iter().all(|one| one.dimension() == dimension);
        let parts = meanings.iter().map(Vector::parts);
        alike.then(|| Self {
            dimension,
            numbers: parts
                .clone()
                .flat_map(|(_, numbers)| numbers)
                .map(|n| i16::from(*n))
                .collect(),
            units: parts.map(|(unit, _)| unit).collect(),
        })
    }

    pub(in crate::tools::index) fn dimension(&self) -> usize {
        self.dimension
    }

    pub(in crate::tools::index) fn scales(&self) -> &[f32] {
        &self.units
    }

    /// The products of each of these rows with each probe, row by row.
    pub(in crate::tools::index) fn dot_products(&self, rows: &[i8]) -> Vec<i32> {
        let mut out = vec![0; rows.len() / self.dimension * self.units.len()];
        let scan = VectorScan {
            probes: self,
            rows,
            out: &mut out,
        };
        scan.dispatch();
        out
    }
}

/// The same loop for each kind of processor; the compiler makes of it what that kind can do.
struct VectorScan<'a> {
    probes: &'a Probes,
    rows: &'a [i8],
    out: &'a mut [i32],
}

impl SimdOp for VectorScan<'_> {
    type Output = ();

    #[inline(always)]
    fn eval<I: Isa>(self, _: I) {
        let Probes {
            dimension,
            numbers,
            units,
        } = self.probes;
        let rows = self.rows.chunks_exact(*dimension);
        for (row, out) in rows.zip(self.out.chunks_exact_mut(units.len())) {
            for (probe, out) in numbers.chunks_exact(*dimension).zip(out) {
                *out = dot_product(row, probe);
            }
        }
    }
}

#[inline(always)]
pub(in crate::tools::index) fn dot_product<N: Copy + Into<i32>>(row: &[i8], probe: &[N]) -> i32 {
    let pairs = row.iter().zip(probe);
    pairs.map(|(a, b)| i32::from(*a) * (*b).into()).sum()
}
