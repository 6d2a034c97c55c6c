//! The progress reported to a plain client: MCP requires each number above the one before.

use std::sync::{Mutex, PoisonError};

/// The highest number that is forwarded. Chunks after it are counted on, and readers that use 64-bit
/// floating-point numbers must be able to distinguish each number from the one before.
const NUMBER_MAX: f64 = (1_u64 << 52) as f64;

/// The number reported last under one progress token.
#[derive(Debug, Default)]
pub struct ReportedProgress(Mutex<Option<f64>>);

impl ReportedProgress {
    /// The number of the next chunk, above all before.
    #[must_use]
    pub(crate) fn next_chunk(&self) -> u64 {
        let mut reported = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let next = reported.unwrap_or(0.0).max(0.0).floor() + 1.0;
        *reported = Some(next);
        next as u64
    }

    /// Records a report of the server; false when it must not be forwarded.
    #[must_use]
    pub fn advance(&self, progress: f64) -> bool {
        let mut reported = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_forwarded = progress <= NUMBER_MAX && reported.is_none_or(|last| progress > last);
        if is_forwarded {
            *reported = Some(progress);
        }
        is_forwarded
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_numbers_increase() {
        let reported = ReportedProgress::default();
        assert!(reported.advance(0.25) && !reported.advance(0.25) && reported.advance(0.5));
        assert_eq!([reported.next_chunk(), reported.next_chunk()], [1, 2]);
        assert!(!reported.advance(1.5) && reported.advance(70.0));
        assert_eq!(reported.next_chunk(), 71);
        for unusable in [f64::INFINITY, f64::NAN, 1e300] {
            assert!(!reported.advance(unusable));
        }
        assert!(reported.advance(NUMBER_MAX));
        let (one, next) = (reported.next_chunk(), reported.next_chunk());
        assert!(next as f64 > one as f64 && one as f64 > NUMBER_MAX);
    }
}
