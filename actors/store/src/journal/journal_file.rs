//! The journal's own thread: writes, syncs, and continues after the disk failed.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use mgp_engine::clock::MonotonicTime;
use mgp_engine::store::journal::{EntryHash, JOURNAL_MAX, JournalWriter, PAYLOAD_MAX};

use super::{AppendError, GROUP_MAX, JournalCommand, ResultSender, render_witness};
use crate::atomic_file::sync_folder;
use crate::health::{DiskHealth, explain_io_error};
use crate::regular_file;
use crate::witnesses::Witness;
use mgp_runtime::LatencyRecorder;
use mgp_runtime::time::monotonic_now;

/// The interval between attempts on a failed disk.
const RETRY: Duration = Duration::from_secs(1);
/// The delay after a write of a journal until its witness is synced.
const WITNESS_SYNC: Duration = Duration::from_secs(1);
/// Zeros that are written to test for free space, and truncated afterwards. A file that ends in zeros has an
/// incomplete last entry.
const PROBE: usize = 4096;

/// Durations of the syncs of all journals.
pub(super) static SYNCS: LatencyRecorder = LatencyRecorder::new();

pub(super) fn open(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).append(true).mode(0o600);
    match regular_file::open_with(path, &mut options) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        opened => return opened,
    }
    let file = options.create(true).open(path)?;
    file.sync_all()?;
    sync_folder(path)?;
    Ok(file)
}

/// The owner of the file.
#[derive(Debug)]
pub(super) struct JournalFile {
    pub(super) path: PathBuf,
    pub(super) kind: &'static str,
    pub(super) file: File,
    pub(super) writer: JournalWriter,
    /// The length of the intact part in bytes.
    pub(super) size: u64,
    /// Whether there may be bytes behind `size`, which are truncated before the next write.
    pub(super) is_torn: bool,
    pub(super) health: DiskHealth,
    pub(super) entries: u64,
    /// The witness, written after the entries and before they are acknowledged.
    pub(super) witness: Witness,
    /// When the witness is to be synced, if it was written since the last sync.
    pub(super) witness_due: Option<MonotonicTime>,
}

impl JournalFile {
    /// Executes commands until all handles are dropped.
    pub(super) fn run(mut self, receiver: &mpsc::Receiver<JournalCommand>) {
        let mut together = Vec::with_capacity(GROUP_MAX);
        loop {
            if self.witness_due.is_some_and(|due| due <= monotonic_now()) {
                self.sync_witness();
            }
            let first = match (self.health.failure(), self.witness_due) {
                (Some(_), _) => receiver.recv_timeout(RETRY),
                (None, Some(due)) => receiver.recv_timeout(due.duration_since(monotonic_now())),
                (None, None) => receiver.recv().map_err(|_| RecvTimeoutError::Disconnected),
            };
            let mut next = match first {
                Ok(first) => Some(first),
                Err(RecvTimeoutError::Timeout) => {
                    if self.health.failure().is_some() {
                        self.probe_capacity();
                    }
                    continue;
                }
                Err(RecvTimeoutError::Disconnected) => {
                    if self.witness_due.is_some() {
                        self.sync_witness();
                    }
                    return;
                }
            };
            while let Some(order) = next.take() {
                match order {
                    JournalCommand::Append(payloads, result_sender) => {
                        together.push((payloads, result_sender));
                    }
                    JournalCommand::Replace(entries, result_sender) => {
                        self.write_group(&mut together);
                        let _ = result_sender.send(self.replace(&entries));
                    }
                    JournalCommand::TruncateTornTail(result_sender) => {
                        self.write_group(&mut together);
                        let truncated = self.truncate_torn_tail();
                        let _ = result_sender.send(truncated.map_err(|error| self.fail(&error)));
                    }
                }
                if together.len() < GROUP_MAX {
                    next = receiver.try_recv().ok();
                }
            }
            self.write_group(&mut together);
        }
    }

    pub(super) fn write_group(&mut self, together: &mut Vec<(Vec<Vec<u8>>, ResultSender)>) {
        let mut bytes = Vec::new();
        let (mut writer, mut waiting) = (self.writer, Vec::with_capacity(together.len()));
        let mut entries = 0;
        for (payloads, result_sender) in together.drain(..) {
            let (before, from) = (writer, bytes.len());
            let mut all = payloads.iter();
            match all.try_for_each(|payload| self.encode_entry(payload, &mut writer, &mut bytes)) {
                Ok(()) => {
                    entries += payloads.len() as u64;
                    waiting.push(result_sender);
                }
                Err(refused) => {
                    writer = before;
                    bytes.truncate(from);
                    let _ = result_sender.send(Err(refused));
                }
            }
        }
        if waiting.is_empty() {
            return;
        }
        let outcome = self.write_bytes(&bytes);
        if outcome.is_ok() {
            self.writer = writer;
            self.size += bytes.len() as u64;
            self.entries += entries;
            self.witness
                .settle(&render_witness(self.entries, writer.head()));
            self.witness_due = self.witness_due.or(Some(monotonic_now() + WITNESS_SYNC));
        }
        for result_sender in waiting {
            let _ = result_sender.send(outcome.clone());
        }
    }

    /// Bounds how long ago an acknowledged entry can be whose loss in a power cut goes unnoticed.
    fn sync_witness(&mut self) {
        self.witness_due = None;
        if let Err(error) = self.witness.sync() {
            // If this fails, the next change writes it.
            tracing::warn!(%error, path = %self.path.display(), "the witness of a journal is not synced");
        }
    }

    fn encode_entry(
        &self,
        payload: &[u8],
        writer: &mut JournalWriter,
        bytes: &mut Vec<u8>,
    ) -> Result<(), AppendError> {
        let room = JOURNAL_MAX.saturating_sub(self.size + bytes.len() as u64);
        if room < PAYLOAD_MAX as u64 * 2 {
            return Err(AppendError::Full);
        }
        Ok(writer.write_to_group(payload, bytes)?)
    }

    fn write_bytes(&mut self, bytes: &[u8]) -> Result<(), AppendError> {
        let done = self.truncate_torn_tail().and_then(|()| {
            self.is_torn = true;
            self.file.write_all(bytes)?;
            let began = monotonic_now();
            self.file.sync_data()?;
            SYNCS.record(monotonic_now().duration_since(began));
            Ok(())
        });
        done.map_err(|error| self.fail(&error))?;
        self.is_torn = false;
        self.health.clear_failure();
        Ok(())
    }

    /// Truncates everything behind the last entry.
    fn truncate_torn_tail(&mut self) -> io::Result<()> {
        if self.is_torn {
            self.file.set_len(self.size)?;
            self.file.sync_all()?;
            self.is_torn = false;
        }
        Ok(())
    }

    /// Checks whether there is free space again.
    pub(super) fn probe_capacity(&mut self) {
        let probe = self.truncate_torn_tail().and_then(|()| {
            self.is_torn = true;
            self.file.write_all(&[0; PROBE])?;
            self.file.sync_data()?;
            self.truncate_torn_tail()
        });
        match probe {
            Ok(()) => {
                tracing::info!(path = %self.path.display(), "the journal is written again");
                self.health.clear_failure();
            }
            Err(error) => drop(self.fail(&error)),
        }
    }

    fn replace(&mut self, entries: &[Vec<u8>]) -> Result<(), AppendError> {
        let mut writer = JournalWriter::resume(EntryHash::genesis(self.kind));
        let mut bytes = Vec::new();
        for entry in entries {
            writer.write(entry, &mut bytes)?;
        }
        if bytes.len() as u64 > JOURNAL_MAX {
            return Err(AppendError::Full);
        }
        let new = self.path.with_extension("new");
        let replaced = render_witness(entries.len() as u64, writer.head());
        let renamed = create_synced(&new, &bytes).and_then(|file| {
            self.witness.propose(&replaced)?;
            fs::rename(&new, &self.path)?;
            Ok(file)
        });
        self.file = renamed.map_err(|error| {
            // It takes up space and is of no use.
            let _ = fs::remove_file(&new);
            self.fail(&error)
        })?;
        self.writer = writer;
        self.size = bytes.len() as u64;
        self.entries = entries.len() as u64;
        self.is_torn = false;
        if let Err(error) = sync_folder(&self.path) {
            self.fail(&error);
            return Err(AppendError::Broken(explain_io_error(&self.path, &error)));
        }
        self.witness.settle(&replaced);
        self.health.clear_failure();
        Ok(())
    }

    /// Handles a disk failure. Unsynced entries are truncated if possible; then they are known not to be in the
    /// file.
    fn fail(&mut self, error: &io::Error) -> AppendError {
        let why = explain_io_error(&self.path, error);
        if self.health.failure().as_deref() != Some(&why) {
            tracing::error!(%why, "the journal cannot be written; it is tried again each second");
            self.health.set_failure(&why);
        }
        match self.truncate_torn_tail() {
            Ok(()) => AppendError::Failed(why),
            Err(_) => AppendError::Broken(why),
        }
    }
}

/// Creates a file with these bytes, synced and open for appending.
fn create_synced(path: &Path, bytes: &[u8]) -> io::Result<File> {
    // An existing one is left over from an interrupted replacement.
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        Ok(()) | Err(_) => {}
    }
    let mut file = open(path)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    Ok(file)
}
