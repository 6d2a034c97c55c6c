//! Verifies a whole log: every record, the last record known from elsewhere, and that the log exists at
//! all.

use std::io::{self, ErrorKind};

use mgp_engine::store::audit::chain::Head;
use mgp_engine::store::audit::verify::Report;

use super::files::Folder;
use super::head;

/// The result.
#[derive(Clone, Debug)]
pub struct Examined {
    /// About the records.
    pub report: Report,
    /// Faults of the files beside the log, in words.
    pub beside: Vec<String>,
}

impl Examined {
    /// True when nothing is wrong that the operator has not acknowledged.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.report.faults.is_empty() && self.report.damage.is_empty() && self.beside.is_empty()
    }

    /// All faults, in words.
    #[must_use]
    pub fn told(&self) -> Vec<String> {
        let faults = self.report.faults.iter().map(ToString::to_string);
        let damage = self.report.damage.iter().map(|record| {
            format!("record {record} tells of damage: `mgp audit acknowledge` takes note of it")
        });
        faults
            .chain(damage)
            .chain(self.beside.iter().cloned())
            .collect()
    }
}

/// Verifies all files. `running` is the last record of a running kernel.
///
/// # Errors
/// When a file cannot be read.
pub fn examine(folder: &Folder, running: Option<Head>) -> io::Result<Examined> {
    let (known, beside) = known(folder)?;
    let known = [known, running].into_iter().flatten();
    let known = known.max_by_key(|head| head.sequence);
    let report = folder.verify(known, None)?;
    Ok(Examined { report, beside })
}

/// The log's known last record, and faults of the files that hold it.
pub(super) fn known(folder: &Folder) -> io::Result<(Option<Head>, Vec<String>)> {
    let numbers = folder.numbers()?;
    let witness = match head::read(&folder.witness()) {
        Err(e) if e.kind() == ErrorKind::InvalidData => None,
        witness => witness?,
    };
    let mut wrong = Vec::new();
    let head = match head::read(&folder.head()) {
        Err(e) if e.kind() == ErrorKind::InvalidData => {
            wrong.push(e.to_string());
            None
        }
        head => head?,
    };
    let was_used = folder.beside();
    if let (None, true) = (head, wrong.is_empty()) {
        let place = folder.head();
        let path = place.display();
        match witness {
            Some(witness) => wrong.push(format!(
                "{path} is gone; the last record it named was record {} at least",
                witness.sequence
            )),
            None if !numbers.is_empty() => wrong.push(format!(
                "{path} is gone; records that were cut off the end cannot be named"
            )),
            None => {}
        }
    }
    if let (true, Some(sign)) = (numbers.is_empty(), was_used) {
        wrong.push(format!(
            "there is no log in {}, and {} shows that a kernel has run here",
            folder.folder().display(),
            sign.display()
        ));
    }
    let known = [head, witness].into_iter().flatten();
    Ok((known.max_by_key(|head| head.sequence), wrong))
}
