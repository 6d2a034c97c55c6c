//! Counts of mutants by batch and package, and the remaining survivors.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::AddAssign;

use super::reasons::Reasons;
use super::results::{MutantOutcome, Results};
use super::{Batch, Kind};

/// Counts of mutants by outcome.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
struct Counts {
    mutants: usize,
    caught: usize,
    missed: usize,
    /// Missed ones with a written reason.
    explained: usize,
    timed_out: usize,
    unviable: usize,
    not_run: usize,
    seconds: u64,
}

impl AddAssign for Counts {
    fn add_assign(&mut self, other: Self) {
        self.mutants += other.mutants;
        self.caught += other.caught;
        self.missed += other.missed;
        self.explained += other.explained;
        self.timed_out += other.timed_out;
        self.unviable += other.unviable;
        self.not_run += other.not_run;
        self.seconds += other.seconds;
    }
}

/// The counts of a batch.
pub(crate) struct BatchResult {
    name: String,
    package: &'static str,
    kind: Kind,
    counts: Counts,
    /// Missed without a reason.
    survivors: Vec<String>,
    /// Reasons without a missed mutant.
    unused: Vec<String>,
}

impl BatchResult {
    /// Every mutant has an outcome, and none was missed without a reason: nothing remains to run.
    pub(crate) fn is_complete(&self) -> bool {
        self.counts.not_run == 0 && self.survivors.is_empty()
    }

    fn is_passed(&self) -> bool {
        match self.kind {
            Kind::Decision => self.is_complete() && self.unused.is_empty(),
            Kind::Other => true,
        }
    }
}

/// Counts the mutants of a batch, and looks up reasons of missed ones.
pub(crate) fn count_batch(
    batch: &Batch,
    mutants: &[String],
    results: &Results,
    reasons: &mut Reasons,
) -> BatchResult {
    let mut counts = Counts {
        mutants: mutants.len(),
        seconds: results.seconds(),
        ..Counts::default()
    };
    let mut survivors = Vec::new();
    for mutant in mutants {
        match results.outcome(mutant) {
            Some(MutantOutcome::Caught) => counts.caught += 1,
            Some(MutantOutcome::TimedOut) => counts.timed_out += 1,
            Some(MutantOutcome::Unviable) => counts.unviable += 1,
            None => counts.not_run += 1,
            Some(MutantOutcome::Missed) => {
                counts.missed += 1;
                if reasons.take_reason(mutant) {
                    counts.explained += 1
                } else {
                    survivors.push(mutant.clone())
                }
            }
        }
    }
    // Unused reasons are known once all mutants were run.
    let files = mutants.iter().filter_map(|mutant| mutant.split(':').next());
    let files: BTreeSet<&str> = files.filter(|_| counts.not_run == 0).collect();
    let unused = files
        .into_iter()
        .flat_map(|file| reasons.unused_for_file(file));
    BatchResult {
        name: batch.name(),
        package: batch.package(),
        kind: batch.kind,
        counts,
        survivors,
        unused: unused.map(str::to_owned).collect(),
    }
}

/// The counts of all selected batches.
#[derive(Default)]
pub(crate) struct BatchResults(Vec<BatchResult>);

impl BatchResults {
    pub(crate) fn add(&mut self, judgement: BatchResult) {
        self.0.push(judgement);
    }

    /// Whether all mutants of decisions were run, and none was missed without a reason.
    pub(crate) fn is_passed(&self) -> bool {
        self.0.iter().all(BatchResult::is_passed)
    }
}

impl fmt::Display for BatchResults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "\n| | mutants | caught | missed | with a reason | timed out | unviable | not run | time |"
        )?;
        writeln!(f, "|---|---:|---:|---:|---:|---:|---:|---:|---:|")?;
        let mut packages: BTreeMap<&str, Counts> = BTreeMap::new();
        for batch in &self.0 {
            row(f, &batch.name, &batch.counts)?;
            *packages.entry(batch.package).or_default() += batch.counts;
        }
        for (package, counts) in packages {
            row(f, &format!("**{package}**"), &counts)?;
        }
        for batch in &self.0 {
            for mutant in &batch.survivors {
                writeln!(f, "missed: {mutant}")?;
            }
            for reason in &batch.unused {
                writeln!(f, "a reason without a missed mutant: {reason}")?;
            }
        }
        for batch in self.0.iter().filter(|batch| !batch.is_passed()) {
            writeln!(
                f,
                "{}: a decision needs a test or a reason for every mutant",
                batch.name
            )?;
        }
        Ok(())
    }
}

fn row(f: &mut fmt::Formatter<'_>, name: &str, counts: &Counts) -> fmt::Result {
    let Counts {
        mutants,
        caught,
        missed,
        explained: excused,
        timed_out,
        unviable,
        not_run,
        seconds,
    } = counts;
    let minutes = seconds.div_ceil(60);
    writeln!(
        f,
        "| {name} | {mutants} | {caught} | {missed} | {excused} | {timed_out} | {unviable} | {not_run} | {minutes} min |"
    )
}
