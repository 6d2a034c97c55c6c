//! A journal on disk: an entry is on disk before it is acknowledged.
//!
//! One thread owns the file, so that the disk does not block the threads that carry calls. Entries that arrive
//! during a sync are written as a group and share the next sync. After a failure, unsynced entries are truncated
//! first, because a second sync may report success for lost bytes.

mod journal_file;

use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::mpsc;

use mgp_engine::calls::telemetry::latency::LatencyHistogram;
use mgp_engine::store::journal::{
    EntryHash, JOURNAL_MAX, JournalFault, JournalReader, JournalWriter, PayloadTooLong,
};
use mgp_runtime::task::{self, SpawnThreadError};
use tokio::sync::oneshot;

use self::journal_file::{JournalFile, open};
use crate::health::{DiskHealth, explain_io_error};
use crate::regular_file;
use crate::witnesses::{Witness, WitnessedContents};

/// Maximum number of pending appends; more are refused. With a sync of 5 ms this is far more than people or programs
/// decide at once.
const QUEUE_MAX: usize = 4096;
/// Maximum number of entries per sync, which limits the delay of the first one.
const GROUP_MAX: usize = 1024;

/// Durations of journal syncs since the start of this process.
#[must_use]
pub fn sync_times() -> LatencyHistogram {
    journal_file::SYNCS.snapshot()
}

/// An open journal. All clones write to the same file.
#[derive(Debug, Clone)]
pub struct Journal {
    commands: mpsc::SyncSender<JournalCommand>,
    path: PathBuf,
    health: DiskHealth,
}

/// The contents of a journal when it was opened.
#[derive(Debug)]
pub struct OpenedJournal {
    /// The journal, for appending.
    pub journal: Journal,
    /// The payloads, in order.
    pub entries: Vec<Vec<u8>>,
    /// Description of an incomplete last write; [`Journal::truncate_torn_tail`] or the next append removes it.
    pub torn_tail: Option<String>,
    /// Set if the file differs from its witness. The witness is unchanged until the file or the witness is replaced.
    pub truncated: Option<TruncatedJournal>,
}

/// A journal with missing entries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TruncatedJournal {
    /// Its path.
    pub path: PathBuf,
    /// The number of entries found; `None` if the file is missing.
    pub(crate) actual_entries: Option<u64>,
    /// The number of entries it had.
    pub(crate) expected_entries: u64,
}

impl fmt::Display for TruncatedJournal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (path, expected_entries) = (self.path.display(), self.expected_entries);
        match self.actual_entries {
            None => write!(f, "{path} is missing: it held {expected_entries} entries"),
            Some(found) if found < expected_entries => write!(
                f,
                "{path} has been shortened: it held {expected_entries} entries, and has {found}"
            ),
            Some(_) => write!(f, "{path} is not the file that was written last"),
        }
    }
}

impl std::error::Error for TruncatedJournal {}

/// Why a journal cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// The file cannot be read or created.
    #[error("{}", explain_io_error(.path, .error))]
    Disk {
        /// Its path.
        path: PathBuf,
        /// The system's error.
        error: io::Error,
    },
    /// The journal's thread could not be started.
    #[error(transparent)]
    Thread(#[from] SpawnThreadError),
    /// The file was changed after it was written.
    #[error(
        "{}: {fault}. Nothing was changed. Put a copy of this file back that is whole; or, to go on with only what stands before that place, keep a copy and run `truncate -s {at} {}`: everything decided later is lost, revokes too",
        .path.display(), .path.display()
    )]
    Damaged {
        /// Its path.
        path: PathBuf,
        /// What is wrong with it.
        fault: JournalFault,
        /// The length of the intact part in bytes.
        at: u64,
    },
    /// The file exceeds the size limit.
    #[error("{} has {size} bytes, over the limit of {JOURNAL_MAX}", .path.display())]
    TooLarge {
        /// Its path.
        path: PathBuf,
        /// Its size.
        size: u64,
    },
}

/// Why an entry was not recorded.
#[derive(Debug, Clone, thiserror::Error)]
pub enum AppendError {
    /// Too many entries are pending.
    #[error("{QUEUE_MAX} entries wait for the disk already; try again")]
    Overloaded,
    /// The entry exceeds the maximum length.
    #[error(transparent)]
    TooLong(#[from] PayloadTooLong),
    /// The file has reached its limit.
    #[error("the file has reached its limit of {JOURNAL_MAX} bytes")]
    Full,
    /// The disk failed, and the entry is not in the file.
    #[error("the disk failed ({0}), and it is not recorded")]
    Failed(String),
    /// The disk failed. Whether the entry is in the file is known when the disk works again, or at the next
    /// start.
    #[error(
        "the disk failed ({0}); whether it is recorded shows when the disk takes something again"
    )]
    Broken(String),
}

/// Receives the outcome.
type ResultSender = oneshot::Sender<Result<(), AppendError>>;

#[derive(Debug)]
enum JournalCommand {
    Append(Vec<Vec<u8>>, ResultSender),
    Replace(Vec<Vec<u8>>, ResultSender),
    TruncateTornTail(ResultSender),
}

impl Journal {
    /// Opens the journal of this kind at `path`, or creates it. Reads the whole file; blocks.
    ///
    /// # Errors
    /// [`JournalError`], as a text for the person who starts the kernel.
    pub fn open(path: &Path, kind: &'static str) -> Result<OpenedJournal, JournalError> {
        Self::open_witnessed(path, kind, Witness::default())
    }

    /// As [`Self::open`], for a journal with a witness, which is compared and then updated.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn open_witnessed(
        path: &Path,
        kind: &'static str,
        witness: Witness,
    ) -> Result<OpenedJournal, JournalError> {
        let explain = |error| JournalError::Disk {
            path: path.to_owned(),
            error,
        };
        let is_there = path.exists();
        let mut file = open(path).map_err(explain)?;
        let bytes = read_bounded(path, &mut file)?;
        let reader = JournalReader::new(kind, &bytes);
        let mut comparison = WitnessComparison::new(&witness, &reader);
        let mut reader = reader.with_acknowledged(comparison.acknowledged_entries());
        let (mut entries, mut torn_tail) = (Vec::new(), None);
        while let Some(entry) = reader.next() {
            match entry {
                Ok(payload) => {
                    entries.push(payload.to_vec());
                    comparison.compare(&reader);
                }
                Err(fault @ JournalFault::Torn { .. }) => {
                    torn_tail = Some(format!("{}: {fault}; they are cut off", path.display()));
                    break;
                }
                Err(fault @ JournalFault::Damaged { at, .. }) => {
                    let path = path.to_owned();
                    return Err(JournalError::Damaged { path, fault, at });
                }
            }
        }
        let truncated = comparison.to_truncation(path, is_there);
        let witness = match &truncated {
            None => {
                witness.settle(&render_witness(comparison.entries, comparison.last));
                witness
            }
            Some(_) => Witness::default(),
        };
        let health = DiskHealth::default();
        let journal_file = JournalFile {
            path: path.to_owned(),
            kind,
            size: reader.position(),
            writer: JournalWriter::resume(reader.head()),
            file,
            is_torn: torn_tail.is_some(),
            health: health.clone(),
            entries: entries.len() as u64,
            witness,
            witness_due: None,
        };
        let (commands, receiver) = mpsc::sync_channel(QUEUE_MAX);
        let run = move || journal_file.run(&receiver);
        task::spawn_thread(format!("journal of {kind}"), run)?;
        let journal = Self {
            commands,
            path: path.to_owned(),
            health,
        };
        Ok(OpenedJournal {
            journal,
            entries,
            torn_tail,
            truncated,
        })
    }

    /// Compares a closed journal with its witness without changing either; blocks.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn compare(
        path: &Path,
        kind: &'static str,
        witness: &Witness,
    ) -> Result<Option<TruncatedJournal>, JournalError> {
        let bytes = match regular_file::open(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => {
                let path = path.to_owned();
                return Err(JournalError::Disk { path, error });
            }
            Ok(mut file) => Some(read_bounded(path, &mut file)?),
        };
        let is_there = bytes.is_some();
        let bytes = bytes.unwrap_or_default();
        let mut reader = JournalReader::new(kind, &bytes);
        let mut comparison = WitnessComparison::new(witness, &reader);
        while let Some(Ok(_)) = reader.next() {
            comparison.compare(&reader);
        }
        Ok(comparison.to_truncation(path, is_there))
    }

    /// The payloads of a journal, which may be open; blocks.
    pub fn read(path: &Path, kind: &'static str) -> Result<Vec<Vec<u8>>, JournalError> {
        let explain = |error| JournalError::Disk {
            path: path.to_owned(),
            error,
        };
        let mut file = regular_file::open(path).map_err(explain)?;
        let bytes = read_bounded(path, &mut file)?;
        let entries = JournalReader::new(kind, &bytes).map(|entry| match entry {
            Ok(payload) => Ok(payload.to_vec()),
            Err(fault @ (JournalFault::Torn { at, .. } | JournalFault::Damaged { at, .. })) => {
                let path = path.to_owned();
                Err(JournalError::Damaged { path, fault, at })
            }
        });
        entries.collect()
    }

    /// Appends an entry. Resolves when it is on disk. Entries keep the order of the calls.
    ///
    /// # Errors
    /// [`AppendError`]: the entry must not be acknowledged.
    #[cfg(test)]
    pub(crate) async fn append(&self, payload: Vec<u8>) -> Result<(), AppendError> {
        self.append_all(vec![payload]).await
    }

    /// Appends related entries as one group.
    ///
    /// # Errors
    /// As [`Self::append`].
    pub async fn append_all(&self, payloads: Vec<Vec<u8>>) -> Result<(), AppendError> {
        self.send_command(|result_sender| JournalCommand::Append(payloads, result_sender))
            .await
    }

    /// Replaces all entries with these in one step: after a crash either the old or the new ones are there.
    /// For journals whose state is small.
    ///
    /// # Errors
    /// [`AppendError`]; then the old entries are unchanged.
    pub async fn replace(&self, entries: Vec<Vec<u8>>) -> Result<(), AppendError> {
        self.send_command(|result_sender| JournalCommand::Replace(entries, result_sender))
            .await
    }

    /// As [`Self::append`] and [`Self::replace`], for callers that hold a lock: the position of the entries is fixed
    /// when this returns, and the outcome is sent later.
    pub fn enqueue_append(
        &self,
        payload: Vec<u8>,
    ) -> impl Future<Output = Result<(), AppendError>> + Send + use<> {
        self.enqueue_command(|result_sender| JournalCommand::Append(vec![payload], result_sender))
    }

    /// See [`Self::enqueue_append`].
    pub fn enqueue_replace(
        &self,
        entries: Vec<Vec<u8>>,
    ) -> impl Future<Output = Result<(), AppendError>> + Send + use<> {
        self.enqueue_command(|result_sender| JournalCommand::Replace(entries, result_sender))
    }

    /// Truncates an incomplete last entry.
    ///
    /// # Errors
    /// [`AppendError`]; then it is still there.
    pub async fn truncate_torn_tail(&self) -> Result<(), AppendError> {
        self.send_command(JournalCommand::TruncateTornTail).await
    }

    /// Its path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether it can be written.
    #[must_use]
    pub fn health(&self) -> DiskHealth {
        self.health.clone()
    }

    async fn send_command(
        &self,
        order: impl FnOnce(ResultSender) -> JournalCommand,
    ) -> Result<(), AppendError> {
        self.enqueue_command(order).await
    }

    /// The command is queued when this returns; its outcome is sent later.
    fn enqueue_command<O: FnOnce(ResultSender) -> JournalCommand>(
        &self,
        order: O,
    ) -> impl Future<Output = Result<(), AppendError>> + Send + use<O> {
        let (result_sender, outcome) = oneshot::channel();
        let sent = self
            .commands
            .try_send(order(result_sender))
            .map_err(|e| match e {
                mpsc::TrySendError::Full(_) => AppendError::Overloaded,
                mpsc::TrySendError::Disconnected(_) => closed_error(),
            });
        async move {
            sent?;
            outcome.await.unwrap_or_else(|_| Err(closed_error()))
        }
    }
}

/// The witness of a journal: the number of entries and the hash of the last one.
fn render_witness(entries: u64, last: EntryHash) -> String {
    format!("{entries} {last}")
}

/// Compares a journal with its witness while it is read.
struct WitnessComparison {
    /// The expected entry counts; empty without a witness.
    expected: Vec<(u64, String)>,
    is_matched: bool,
    entries: u64,
    last: EntryHash,
}

impl WitnessComparison {
    fn new(witness: &Witness, reader: &JournalReader<'_>) -> Self {
        let expected = witness.contents();
        let expected = expected
            .iter()
            .flat_map(WitnessedContents::possible_contents);
        let expected = expected.filter_map(|it| {
            let entries = it.split(' ').next()?.parse().ok()?;
            Some((entries, it.to_owned()))
        });
        let expected: Vec<(u64, String)> = expected.collect();
        let mut comparison = Self {
            is_matched: expected.is_empty(),
            expected,
            entries: 0,
            last: reader.head(),
        };
        comparison.check_entry();
        comparison
    }

    /// The number of entries that were certainly acknowledged, even if a replacement was interrupted.
    fn acknowledged_entries(&self) -> Option<u64> {
        self.expected.iter().map(|(entries, _)| *entries).min()
    }

    fn compare(&mut self, reader: &JournalReader<'_>) {
        self.entries += 1;
        self.last = reader.head();
        self.check_entry();
    }

    fn check_entry(&mut self) {
        let matches_expected = |(entries, it): &(u64, String)| {
            *entries == self.entries && *it == render_witness(self.entries, self.last)
        };
        self.is_matched = self.is_matched || self.expected.iter().any(matches_expected);
    }

    fn to_truncation(&self, path: &Path, is_there: bool) -> Option<TruncatedJournal> {
        let expected_entries = self.expected.first().map(|(entries, _)| *entries);
        (!self.is_matched).then(|| TruncatedJournal {
            path: path.to_owned(),
            actual_entries: is_there.then_some(self.entries),
            expected_entries: expected_entries.unwrap_or_default(),
        })
    }
}

/// The bytes of a journal, if it is not larger than allowed.
fn read_bounded(path: &Path, file: &mut File) -> Result<Vec<u8>, JournalError> {
    let read = |file: &mut File| {
        let size = file.metadata()?.len();
        let mut bytes = Vec::new();
        if size <= JOURNAL_MAX {
            file.read_to_end(&mut bytes)?;
        }
        Ok((bytes, size))
    };
    let path = path.to_owned();
    match read(file) {
        Ok((bytes, size)) if size <= JOURNAL_MAX => Ok(bytes),
        Ok((_, size)) => Err(JournalError::TooLarge { path, size }),
        Err(error) => Err(JournalError::Disk { path, error }),
    }
}

fn closed_error() -> AppendError {
    AppendError::Broken("its thread has ended".into())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
