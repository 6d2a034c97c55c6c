//! Collects the failed tests and their output from the output of test programs.

use std::fmt;

/// Lines of output per test: a panic with its message.
const LINES_PER_TEST: usize = 12;
/// Tests reported by name: more failures usually have one cause.
const NAMED_TESTS_MAX: usize = 8;

/// The failed tests, in order.
#[derive(Debug, Clone, Default)]
pub(crate) struct Failures {
    tests: Vec<Failure>,
    is_reading_output: bool,
}

#[derive(Debug, Clone)]
struct Failure {
    name: String,
    output: Vec<String>,
}

impl Failures {
    /// Parses a line of output: `---- NAME stdout ----` starts the output of a failed test.
    pub(crate) fn read_line(&mut self, line: &str) {
        let line = line.trim_end();
        let begins = line.strip_prefix("---- ");
        if let Some(name) = begins.and_then(|rest| rest.strip_suffix(" stdout ----")) {
            self.is_reading_output = true;
            self.tests.push(Failure {
                name: name.to_owned(),
                output: Vec::new(),
            });
        } else if line == "failures:" {
            self.is_reading_output = false;
        } else if let (true, Some(failure)) = (self.is_reading_output, self.tests.last_mut()) {
            failure.add(line);
        }
    }

    /// The names of the failed tests.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.tests.iter().map(|failure| failure.name.as_str())
    }

    /// True when none failed.
    pub(crate) fn is_empty(&self) -> bool {
        self.tests.is_empty()
    }
}

impl Failure {
    fn add(&mut self, line: &str) {
        if self.output.len() < LINES_PER_TEST && !line.is_empty() {
            self.output.push(line.to_owned());
        }
    }
}

impl fmt::Display for Failures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for Failure {
            name,
            output: printed,
        } in self.tests.iter().take(NAMED_TESTS_MAX)
        {
            writeln!(f, "  {name}")?;
            printed
                .iter()
                .try_for_each(|line| writeln!(f, "    {line}"))?;
        }
        match self.tests.len().saturating_sub(NAMED_TESTS_MAX) {
            0 => Ok(()),
            more => writeln!(f, "  and {more} more"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_test_is_reported_with_its_output() {
        let mut failures = Failures::default();
        let output = "test a ... ok\ntest b::c ... FAILED\n\nfailures:\n\n---- b::c stdout ----\n\n\
                      thread 'b::c' panicked at b.rs:3:\nleft: 1\n\n\nfailures:\n    b::c\n\n\
                      test result: FAILED. 1 passed; 1 failed";
        output.lines().for_each(|line| failures.read_line(line));
        assert_eq!(
            failures.to_string(),
            "  b::c\n    thread 'b::c' panicked at b.rs:3:\n    left: 1\n"
        );
        assert_eq!(failures.names().collect::<Vec<_>>(), ["b::c"]);
    }
}
