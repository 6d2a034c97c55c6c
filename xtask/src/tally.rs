//! Counts passed and failed tests in the output of test programs.

use std::fmt;
use std::ops::AddAssign;

/// Counts of tests.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Tally {
    passed: u64,
    failed: u64,
    ignored: u64,
    /// Printed `SKIPPED` and returned, which the test program counts as passed.
    skipped: u64,
}

impl Tally {
    /// Counts a line of output.
    pub(crate) fn read_line(&mut self, line: &str) {
        if let Some(result) = line.strip_prefix("test result: ") {
            self.passed += parse_count(result, "passed");
            self.failed += parse_count(result, "failed");
            self.ignored += parse_count(result, "ignored");
        }
        self.skipped += u64::from(line.starts_with("SKIPPED: "));
    }

    /// The tally if exactly these `failed` tests passed when rerun.
    pub(crate) fn merge_rerun(self, second: &Self, failed: usize) -> Option<Self> {
        let failed = u64::try_from(failed).ok()?;
        let all = self.failed == failed && second.failed == 0 && second.passed >= failed;
        all.then_some(Self {
            passed: self.passed + failed,
            failed: 0,
            ..self
        })
    }

    /// The command failed: a test program without a result, or one that was not built, counts as one failure.
    pub(crate) fn ensure_failure(&mut self) {
        self.failed = self.failed.max(1);
    }
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.ignored += other.ignored;
        self.skipped += other.skipped;
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let passed = self.passed.saturating_sub(self.skipped);
        write!(f, "{passed} passed, {} failed", self.failed)?;
        match self.ignored + self.skipped {
            0 => Ok(()),
            skipped => write!(f, ", {skipped} skipped"),
        }
    }
}

/// The number before `word` in `ok. 12 passed; 0 failed; 0 ignored; …`.
fn parse_count(result: &str, word: &str) -> u64 {
    let words: Vec<&str> = result.split([' ', ';']).filter(|w| !w.is_empty()).collect();
    let pair = words.windows(2).find(|pair| pair[1] == word);
    pair.and_then(|pair| pair[0].parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_that_skips_itself_is_not_counted_as_passed() {
        let mut tally = Tally::default();
        for line in [
            "SKIPPED: servers need Node",
            "test result: ok. 12 passed; 0 failed; 1 ignored; 0 measured; 3 filtered out",
            "test result: FAILED. 1 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out",
        ] {
            tally.read_line(line);
        }
        assert_eq!(tally.to_string(), "12 passed, 2 failed, 2 skipped");
    }

    #[test]
    fn a_rerun_counts_only_if_all_failed_tests_pass() {
        let read = |line: &str| {
            let mut tally = Tally::default();
            tally.read_line(line);
            tally
        };
        let first = read("test result: FAILED. 10 passed; 2 failed; 0 ignored");
        let good = read("test result: ok. 2 passed; 0 failed; 0 ignored");
        let not_found = read("test result: ok. 1 passed; 0 failed; 0 ignored");
        let settled = first.merge_rerun(&good, 2).map(|tally| tally.to_string());
        assert_eq!(settled.as_deref(), Some("12 passed, 0 failed"));
        assert!(first.merge_rerun(&not_found, 2).is_none());
        assert!(first.merge_rerun(&good, 1).is_none(), "one died unnamed");
        assert!(first.merge_rerun(&first, 2).is_none());
    }
}
