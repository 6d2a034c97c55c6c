//! Stores the outcomes of a batch's mutants over several runs: a caught mutant is not tested again.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum MutantOutcome {
    Caught,
    Missed,
    TimedOut,
    Unviable,
}

/// The outcomes, with the files in which cargo-mutants lists them.
const ENDS: [(MutantOutcome, &str); 4] = [
    (MutantOutcome::Caught, "caught"),
    (MutantOutcome::Missed, "missed"),
    (MutantOutcome::TimedOut, "timeout"),
    (MutantOutcome::Unviable, "unviable"),
];
/// The outcomes of all runs.
const FILE: &str = "results.txt";
/// The total duration in seconds.
const SECONDS: &str = "seconds.txt";

#[derive(Default)]
pub(crate) struct Results {
    outcomes: BTreeMap<String, MutantOutcome>,
    seconds: u64,
}

impl Results {
    /// Adds the outcomes of the last run, even if it was interrupted.
    pub(crate) fn load(folder: &Path) -> Result<Self, String> {
        let mut ends = parse(&read_or_empty(&folder.join(FILE)));
        for (end, name) in ENDS {
            let found = read_or_empty(&folder.join("mutants.out").join(format!("{name}.txt")));
            ends.extend(found.lines().map(|mutant| (mutant.to_owned(), end)));
        }
        if folder.is_dir() {
            write_file(&folder.join(FILE), &render(&ends))?;
        }
        let seconds = read_seconds(folder);
        Ok(Self {
            outcomes: ends,
            seconds,
        })
    }

    pub(crate) fn outcome(&self, mutant: &str) -> Option<MutantOutcome> {
        self.outcomes.get(mutant).copied()
    }

    pub(crate) fn seconds(&self) -> u64 {
        self.seconds
    }
}

pub(crate) fn add_seconds(folder: &Path, more: u64) -> Result<(), String> {
    let sum = read_seconds(folder) + more;
    write_file(&folder.join(SECONDS), &sum.to_string())
}

/// Atomic: a full disk destroys no earlier results.
fn write_file(path: &Path, text: &str) -> Result<(), String> {
    let new = path.with_extension("new");
    let written = fs::write(&new, text).and_then(|()| fs::rename(&new, path));
    written.map_err(|error| format!("{}: {error}", path.display()))
}

fn read_seconds(folder: &Path) -> u64 {
    read_or_empty(&folder.join(SECONDS))
        .trim()
        .parse()
        .unwrap_or(0)
}

/// Empty if the file does not exist.
fn read_or_empty(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

fn parse(text: &str) -> BTreeMap<String, MutantOutcome> {
    let ends = text.lines().filter_map(|line| {
        let (word, mutant) = line.split_once(' ')?;
        let (end, _) = ENDS.into_iter().find(|(_, name)| *name == word)?;
        Some((mutant.to_owned(), end))
    });
    ends.collect()
}

fn render(ends: &BTreeMap<String, MutantOutcome>) -> String {
    let lines = ends.iter().map(|(mutant, end)| {
        let found = ENDS.iter().find(|(other, _)| other == end);
        let (_, word) = found.expect("every end has a word");
        format!("{word} {mutant}\n")
    });
    lines.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn later_runs_add_to_earlier_ones() {
        let folder = std::env::temp_dir().join(format!("mgp-mutants-{}", std::process::id()));
        let out = folder.join("mutants.out");
        fs::create_dir_all(&out).unwrap();
        fs::write(out.join("caught.txt"), "a\n").unwrap();
        fs::write(out.join("missed.txt"), "b\nc\n").unwrap();
        Results::load(&folder).unwrap();
        // cargo-mutants starts again with mutants that were not caught.
        fs::write(out.join("caught.txt"), "b\n").unwrap();
        fs::write(out.join("missed.txt"), "c\n").unwrap();
        let results = Results::load(&folder).unwrap();
        let ends = ["a", "b", "c", "d"].map(|mutant| results.outcome(mutant));
        let (caught, missed) = (Some(MutantOutcome::Caught), Some(MutantOutcome::Missed));
        assert_eq!(ends, [caught, caught, missed, None]);
        add_seconds(&folder, 7).unwrap();
        add_seconds(&folder, 5).unwrap();
        assert_eq!(Results::load(&folder).unwrap().seconds(), 12);
        fs::remove_dir_all(&folder).unwrap();
    }
}
