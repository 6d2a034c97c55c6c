//! How many tests passed, out of what the test programs print.

use std::fmt;
use std::ops::AddAssign;

/// Counts of tests.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Tally {
    ended_well: u64,
    failed: u64,
    ignored: u64,
    /// Said `SKIPPED` and returned, which the test program takes for a good end.
    returned_early: u64,
}

impl Tally {
    /// Takes a line of output into account.
    pub(crate) fn read(&mut self, line: &str) {
        if let Some(result) = line.strip_prefix("test result: ") {
            self.ended_well += counted(result, "passed");
            self.failed += counted(result, "failed");
            self.ignored += counted(result, "ignored");
        }
        self.returned_early += u64::from(line.starts_with("SKIPPED: "));
    }

    /// The tally when these `failed` tests, and no others, passed at a second try.
    pub(crate) fn settled_by(self, second: &Self, failed: usize) -> Option<Self> {
        let failed = u64::try_from(failed).ok()?;
        let all = self.failed == failed && second.failed == 0 && second.ended_well >= failed;
        all.then_some(Self {
            ended_well: self.ended_well + failed,
            failed: 0,
            ..self
        })
    }

    /// The command failed: a test program that prints no result, or that was not even built, counts
    /// as one.
    pub(crate) fn at_least_one_failed(&mut self) {
        self.failed = self.failed.max(1);
    }
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        self.ended_well += other.ended_well;
        self.failed += other.failed;
        self.ignored += other.ignored;
        self.returned_early += other.returned_early;
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let passed = self.ended_well.saturating_sub(self.returned_early);
        write!(f, "{passed} passed, {} failed", self.failed)?;
        match self.ignored + self.returned_early {
            0 => Ok(()),
            skipped => write!(f, ", {skipped} skipped"),
        }
    }
}

/// The number before `word` in `ok. 12 passed; 0 failed; 0 ignored; …`.
fn counted(result: &str, word: &str) -> u64 {
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
            tally.read(line);
        }
        assert_eq!(tally.to_string(), "12 passed, 2 failed, 2 skipped");
    }

    #[test]
    fn a_second_try_settles_only_what_failed_and_all_of_it() {
        let read = |line: &str| {
            let mut tally = Tally::default();
            tally.read(line);
            tally
        };
        let first = read("test result: FAILED. 10 passed; 2 failed; 0 ignored");
        let good = read("test result: ok. 2 passed; 0 failed; 0 ignored");
        let not_found = read("test result: ok. 1 passed; 0 failed; 0 ignored");
        let settled = first.settled_by(&good, 2).map(|tally| tally.to_string());
        assert_eq!(settled.as_deref(), Some("12 passed, 0 failed"));
        assert!(first.settled_by(&not_found, 2).is_none());
        assert!(first.settled_by(&good, 1).is_none(), "one died unnamed");
        assert!(first.settled_by(&first, 2).is_none());
    }
}
