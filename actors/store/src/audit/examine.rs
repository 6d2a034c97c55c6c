//! Verifies a whole log: every record, the last record known from elsewhere, and that the log exists at
//! all.

use std::io::{self, ErrorKind};
use std::time::Duration;

use mgp_engine::store::audit::chain::Head;
use mgp_engine::store::audit::verify::Report;
use mgp_protocol::refusal::Refusal;
use mgp_runtime::task;
use tokio::sync::{oneshot, watch};

use super::files::Folder;
use super::{AuditHandle, head};
use crate::background::after_calls;

/// How often the log of a running kernel is read, where something is wrong with it: a record that is just being
/// written and a file that is just removed look like faults.
const TRIES: usize = 3;
/// The thread that reads it, and what its panic is counted as.
const VERIFIES: &str = "audit.verify";
/// How long until it is read again.
const AGAIN: Duration = Duration::from_millis(200);

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

/// How many files of the log were read, and of how many.
pub type FilesRead = (usize, usize);

impl AuditHandle {
    /// Verifies the log that is written meanwhile, on a thread of its own, a file at a time. Ends when nobody
    /// hears of `so_far` any more.
    ///
    /// # Errors
    /// When no log is kept, when it cannot be read, and while another verification is under way.
    pub async fn verify(&self, so_far: watch::Sender<FilesRead>) -> Result<Examined, Refusal> {
        let ledger = self.ledger.as_ref().ok_or_else(none_kept)?;
        let Ok(_one) = ledger.verifiers.try_acquire() else {
            return Err(Refusal::Overloaded {
                what: "what verifies the audit log".into(),
            });
        };
        let mut tries = 0;
        loop {
            tries += 1;
            let (folder, last) = (ledger.folder.clone(), *ledger.written.borrow());
            let told = so_far.clone();
            let found = in_background(move || {
                examine_in_steps(&folder, Some(last), &mut |read, of| {
                    told.send((read, of)).map_err(io::Error::other)
                })
            });
            let found = found.await;
            let is_whole = found.as_ref().is_ok_and(Examined::is_whole);
            if is_whole || tries == TRIES {
                return found.map_err(|e| Refusal::Broken(format!("the audit log: {e}")));
            }
            tokio::time::sleep(AGAIN).await;
        }
    }
}

/// Reads on a thread of its own that comes after those of calls: a long log takes a core for seconds.
async fn in_background(
    look: impl FnOnce() -> io::Result<Examined> + Send + 'static,
) -> io::Result<Examined> {
    let (told, found) = oneshot::channel();
    let verify = move || {
        after_calls("the verification of the audit log");
        let found = task::guarded(VERIFIES, look);
        let _ = told.send(found.unwrap_or_else(|e| Err(io::Error::other(e))));
    };
    task::thread(VERIFIES, verify).map_err(io::Error::other)?;
    found.await.unwrap_or_else(|e| Err(io::Error::other(e)))
}

/// Verifies all files. `running` is the last record of a running kernel.
///
/// # Errors
/// When a file cannot be read.
pub fn examine(folder: &Folder, running: Option<Head>) -> io::Result<Examined> {
    examine_in_steps(folder, running, &mut |_, _| Ok(()))
}

fn examine_in_steps(
    folder: &Folder,
    running: Option<Head>,
    step: &mut dyn FnMut(usize, usize) -> io::Result<()>,
) -> io::Result<Examined> {
    let (known, beside) = known(folder)?;
    let known = [known, running].into_iter().flatten();
    let known = known.max_by_key(|head| head.sequence);
    let report = folder.verify_in_steps(known, None, step)?;
    Ok(Examined { report, beside })
}

pub(super) fn none_kept() -> Refusal {
    Refusal::BadRequest("no audit log is kept: `enabled` in [audit] is false".into())
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
