//! Which test programs run beside which.

use std::process::Command;

use crate::cargo;

/// The integration tests in two halves that take about as long. They wait for processes and clocks most of the time, so
/// that two programs side by side, of as many threads as there are cores each, take little longer than one.
const HALVES: [&[&str]; 2] = [
    &[
        "agents",
        "conformance",
        "eras",
        "lite",
        "mcpl",
        "mgp",
        "telemetry",
    ],
    &[
        "cluster",
        "console",
        "doors",
        "faults",
        "fixture",
        "guard",
        "house",
        "membership",
        "registered_code",
        "servers",
        "sim",
        "supervision",
        "validators",
    ],
];

/// All tests: the integration tests of one half, and those of the other with the unit tests.
pub(crate) fn tests() -> [Command; 2] {
    let [suites, others] = HALVES.map(|names| {
        let mut tests = cargo(&["test", "--workspace", "--no-fail-fast"]);
        tests.args(names.iter().flat_map(|name| ["--test", name]));
        tests
    });
    let mut others = others;
    others.args(["--lib", "--bins"]);
    [suites, others]
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    /// A test program that stands in no half would never run.
    #[test]
    fn every_test_program_stands_in_one_half() {
        let said = cargo(&["metadata", "--no-deps", "--offline", "--format-version=1"]).output();
        let said: Value = serde_json::from_slice(&said.unwrap().stdout).unwrap();
        let packages = said["packages"].as_array().unwrap().iter();
        let targets = packages.flat_map(|package| package["targets"].as_array().unwrap());
        let of_kind = |target: &&Value| target["kind"][0] == "test";
        let mut there: Vec<&str> = targets
            .filter(of_kind)
            .filter_map(|target| target["name"].as_str())
            .collect();
        let mut listed = HALVES.concat();
        there.sort_unstable();
        listed.sort_unstable();
        assert_eq!(there, listed);
    }
}
