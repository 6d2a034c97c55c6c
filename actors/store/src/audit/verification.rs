//! Verifies a whole log: every record, the last record known from the head files, and that the log exists at
//! all.

use std::io::{self, ErrorKind};
use std::time::Duration;

use mgp_engine::store::audit::chain::Head;
use mgp_engine::store::audit::verify::Report;
use mgp_protocol::refusal::Refusal;
use mgp_runtime::task;
use tokio::sync::{oneshot, watch};

use super::files::LogFolder;
use super::{AuditHandle, head};
use crate::background::lower_priority;

/// How often the log of a running kernel is read if it has faults: a record that is being written and a file that is
/// being removed look like faults.
const TRIES: usize = 3;
/// The name of the verifying thread, also used to count its panics.
const VERIFIER_THREAD: &str = "audit.verify";
/// The delay between two reads.
const RETRY_DELAY: Duration = Duration::from_millis(200);

/// The result of a verification.
#[derive(Clone, Debug)]
pub struct VerificationResult {
    /// The report on the records.
    pub report: Report,
    /// Descriptions of faults of the files beside the log.
    pub file_faults: Vec<String>,
}

impl VerificationResult {
    /// Whether there are no faults except those that the operator acknowledged.
    #[must_use]
    pub fn is_intact(&self) -> bool {
        self.report.faults.is_empty()
            && self.report.damage.is_empty()
            && self.file_faults.is_empty()
    }

    /// Descriptions of all faults.
    #[must_use]
    pub fn describe_faults(&self) -> Vec<String> {
        let faults = self.report.faults.iter().map(ToString::to_string);
        let damage = self.report.damage.iter().map(|record| {
            format!("record {record} tells of damage: `mgp audit acknowledge` takes note of it")
        });
        faults
            .chain(damage)
            .chain(self.file_faults.iter().cloned())
            .collect()
    }
}

/// The number of log files read, and their total.
pub(crate) type VerifyProgress = (usize, usize);

impl AuditHandle {
    /// Verifies the log while it is written, on a thread of its own, a file at a time. Ends when the receiver of
    /// `so_far` is dropped.
    ///
    /// # Errors
    /// When no log is written, when it cannot be read, and while another verification is under way.
    pub async fn verify(
        &self,
        so_far: watch::Sender<VerifyProgress>,
    ) -> Result<VerificationResult, Refusal> {
        let queue = self.queue.as_ref().ok_or_else(log_disabled)?;
        let Ok(_permit) = queue.verifiers.try_acquire() else {
            return Err(Refusal::Overloaded {
                what: "what verifies the audit log".into(),
            });
        };
        let mut tries = 0;
        loop {
            tries += 1;
            let (folder, last) = (queue.folder.clone(), *queue.written.borrow());
            let sender = so_far.clone();
            let found = run_in_background(move || {
                verify_folder_in_steps(&folder, Some(last), &mut |read, of| {
                    sender.send((read, of)).map_err(io::Error::other)
                })
            });
            let found = found.await;
            let is_whole = found.as_ref().is_ok_and(VerificationResult::is_intact);
            if is_whole || tries == TRIES {
                return found.map_err(|e| Refusal::Internal(format!("the audit log: {e}")));
            }
            tokio::time::sleep(RETRY_DELAY).await;
        }
    }
}

/// Runs on a separate low-priority thread: a long log takes a core for seconds.
async fn run_in_background(
    verify: impl FnOnce() -> io::Result<VerificationResult> + Send + 'static,
) -> io::Result<VerificationResult> {
    let (sender, found) = oneshot::channel();
    let verify = move || {
        lower_priority("the verification of the audit log");
        let found = task::catch_panic_sync(VERIFIER_THREAD, verify);
        let _ = sender.send(found.unwrap_or_else(|e| Err(io::Error::other(e))));
    };
    task::spawn_thread(VERIFIER_THREAD, verify).map_err(io::Error::other)?;
    found.await.unwrap_or_else(|e| Err(io::Error::other(e)))
}

/// Verifies all files. `running` is the last record of a running kernel.
///
/// # Errors
/// When a file cannot be read.
pub fn verify_folder(folder: &LogFolder, running: Option<Head>) -> io::Result<VerificationResult> {
    verify_folder_in_steps(folder, running, &mut |_, _| Ok(()))
}

fn verify_folder_in_steps(
    folder: &LogFolder,
    running: Option<Head>,
    step: &mut dyn FnMut(usize, usize) -> io::Result<()>,
) -> io::Result<VerificationResult> {
    let (known, file_faults) = known_head(folder)?;
    let known = [known, running].into_iter().flatten();
    let known = known.max_by_key(|head| head.sequence);
    let report = folder.verify_in_steps(known, None, step)?;
    Ok(VerificationResult {
        report,
        file_faults,
    })
}

pub(super) fn log_disabled() -> Refusal {
    Refusal::BadRequest("no audit log is kept: `enabled` in [audit] is false".into())
}

/// The log's known last record, and faults of the files that hold it.
pub(super) fn known_head(folder: &LogFolder) -> io::Result<(Option<Head>, Vec<String>)> {
    let numbers = folder.numbers()?;
    let witness = match head::read(&folder.witness()) {
        Err(e) if e.kind() == ErrorKind::InvalidData => None,
        witness => witness?,
    };
    let mut faults = Vec::new();
    let head = match head::read(&folder.head()) {
        Err(e) if e.kind() == ErrorKind::InvalidData => {
            faults.push(e.to_string());
            None
        }
        head => head?,
    };
    let was_used = folder.marker();
    if let (None, true) = (head, faults.is_empty()) {
        let place = folder.head();
        let path = place.display();
        match witness {
            Some(witness) => faults.push(format!(
                "{path} is gone; the last record it named was record {} at least",
                witness.sequence
            )),
            None if !numbers.is_empty() => faults.push(format!(
                "{path} is gone; records that were cut off the end cannot be named"
            )),
            None => {}
        }
    }
    if let (true, Some(sign)) = (numbers.is_empty(), was_used) {
        faults.push(format!(
            "there is no log in {}, and {} shows that a kernel has run here",
            folder.folder().display(),
            sign.display()
        ));
    }
    let known = [head, witness].into_iter().flatten();
    Ok((known.max_by_key(|head| head.sequence), faults))
}
