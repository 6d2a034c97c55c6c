//! The journal's own thread: writes, syncs, and continues after the disk failed.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use mgp_engine::clock::MonotonicTime;
use mgp_engine::store::journal::{JOURNAL_MAX, JournalLink, JournalWriter, PAYLOAD_MAX};

use super::{JournalOrder, NotAppended, TOGETHER, Told, contents};
use crate::atomic_file::sync_folder;
use crate::regular_file;
use crate::trouble::{Trouble, explained};
use crate::witnesses::Witness;
use mgp_runtime::metrics::Latencies;
use mgp_runtime::time::moment;

/// How often a failed disk is tried again.
const RETRY: Duration = Duration::from_secs(1);
/// How much later than its entries the witness of a journal may be synced.
const WITNESS_SYNC: Duration = Duration::from_secs(1);
/// Zeros that are written to see whether there is room, and cut off again. A file that ends in zeros is one
/// whose last entry was not finished.
const PROBE: usize = 4096;

/// How long syncs of all journals took.
pub(super) static SYNCS: Latencies = Latencies::new();

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

/// Owns the file.
#[derive(Debug)]
pub(super) struct JournalFile {
    pub(super) path: PathBuf,
    pub(super) kind: &'static str,
    pub(super) file: File,
    pub(super) writer: JournalWriter,
    /// How many bytes of the file are intact.
    pub(super) size: u64,
    /// There may be bytes behind `size`, which are cut off before the next write.
    pub(super) torn: bool,
    pub(super) trouble: Trouble,
    pub(super) entries: u64,
    /// Written after the entries and before they are acknowledged.
    pub(super) witness: Witness,
    /// When it is to be synced, where it was written since.
    pub(super) witness_due: Option<MonotonicTime>,
}

impl JournalFile {
    /// Carries out orders until all handles are dropped.
    pub(super) fn keep(mut self, orders: &mpsc::Receiver<JournalOrder>) {
        let mut together = Vec::with_capacity(TOGETHER);
        loop {
            if self.witness_due.is_some_and(|due| due <= moment()) {
                self.sync_witness();
            }
            let first = match (self.trouble.why(), self.witness_due) {
                (Some(_), _) => orders.recv_timeout(RETRY),
                (None, Some(due)) => orders.recv_timeout(due.since(moment())),
                (None, None) => orders.recv().map_err(|_| RecvTimeoutError::Disconnected),
            };
            let mut next = match first {
                Ok(first) => Some(first),
                Err(RecvTimeoutError::Timeout) => {
                    if self.trouble.why().is_some() {
                        self.probe();
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
                    JournalOrder::Append(payloads, told) => together.push((payloads, told)),
                    JournalOrder::Replace(entries, told) => {
                        self.write(&mut together);
                        let _ = told.send(self.replace(&entries));
                    }
                    JournalOrder::Mend(told) => {
                        self.write(&mut together);
                        let mended = self.mend();
                        let _ = told.send(mended.map_err(|error| self.fail(&error)));
                    }
                }
                if together.len() < TOGETHER {
                    next = orders.try_recv().ok();
                }
            }
            self.write(&mut together);
        }
    }

    pub(super) fn write(&mut self, together: &mut Vec<(Vec<Vec<u8>>, Told)>) {
        let mut bytes = Vec::new();
        let (mut writer, mut waiting) = (self.writer, Vec::with_capacity(together.len()));
        let mut entries = 0;
        for (payloads, told) in together.drain(..) {
            let (before, from) = (writer, bytes.len());
            let mut all = payloads.iter();
            match all.try_for_each(|payload| self.take(payload, &mut writer, &mut bytes)) {
                Ok(()) => {
                    entries += payloads.len() as u64;
                    waiting.push(told);
                }
                Err(refused) => {
                    writer = before;
                    bytes.truncate(from);
                    let _ = told.send(Err(refused));
                }
            }
        }
        if waiting.is_empty() {
            return;
        }
        let outcome = self.put(&bytes);
        if outcome.is_ok() {
            self.writer = writer;
            self.size += bytes.len() as u64;
            self.entries += entries;
            self.witness.settle(&contents(self.entries, writer.head()));
            self.witness_due = self.witness_due.or(Some(moment() + WITNESS_SYNC));
        }
        for told in waiting {
            let _ = told.send(outcome.clone());
        }
    }

    /// Of what was acknowledged longer ago, a power cut takes nothing that is not noticed.
    fn sync_witness(&mut self) {
        self.witness_due = None;
        if let Err(error) = self.witness.sync() {
            // What the disk does not take is written with the next change.
            tracing::warn!(%error, path = %self.path.display(), "the witness of a journal is not synced");
        }
    }

    fn take(
        &self,
        payload: &[u8],
        writer: &mut JournalWriter,
        bytes: &mut Vec<u8>,
    ) -> Result<(), NotAppended> {
        let room = JOURNAL_MAX.saturating_sub(self.size + bytes.len() as u64);
        if room < PAYLOAD_MAX as u64 * 2 {
            return Err(NotAppended::Full);
        }
        Ok(writer.write_to_group(payload, bytes)?)
    }

    fn put(&mut self, bytes: &[u8]) -> Result<(), NotAppended> {
        let done = self.mend().and_then(|()| {
            self.torn = true;
            self.file.write_all(bytes)?;
            let began = moment();
            self.file.sync_data()?;
            SYNCS.record(moment().since(began));
            Ok(())
        });
        done.map_err(|error| self.fail(&error))?;
        self.torn = false;
        self.trouble.end();
        Ok(())
    }

    /// Cuts off what is behind the last entry.
    fn mend(&mut self) -> io::Result<()> {
        if self.torn {
            self.file.set_len(self.size)?;
            self.file.sync_all()?;
            self.torn = false;
        }
        Ok(())
    }

    /// Checks whether there is room again.
    pub(super) fn probe(&mut self) {
        let there_is = self.mend().and_then(|()| {
            self.torn = true;
            self.file.write_all(&[0; PROBE])?;
            self.file.sync_data()?;
            self.mend()
        });
        match there_is {
            Ok(()) => {
                tracing::info!(path = %self.path.display(), "the journal is written again");
                self.trouble.end();
            }
            Err(error) => drop(self.fail(&error)),
        }
    }

    fn replace(&mut self, entries: &[Vec<u8>]) -> Result<(), NotAppended> {
        let mut writer = JournalWriter::after(JournalLink::start(self.kind));
        let mut bytes = Vec::new();
        for entry in entries {
            writer.write(entry, &mut bytes)?;
        }
        if bytes.len() as u64 > JOURNAL_MAX {
            return Err(NotAppended::Full);
        }
        let new = self.path.with_extension("new");
        let replaced = contents(entries.len() as u64, writer.head());
        let renamed = written(&new, &bytes).and_then(|file| {
            self.witness.propose(&replaced)?;
            fs::rename(&new, &self.path)?;
            Ok(file)
        });
        self.file = renamed.map_err(|error| {
            // It takes room and is of no use.
            let _ = fs::remove_file(&new);
            self.fail(&error)
        })?;
        self.writer = writer;
        self.size = bytes.len() as u64;
        self.entries = entries.len() as u64;
        self.torn = false;
        if let Err(error) = sync_folder(&self.path) {
            self.fail(&error);
            return Err(NotAppended::Broken(explained(&self.path, &error)));
        }
        self.witness.settle(&replaced);
        self.trouble.end();
        Ok(())
    }

    /// The disk failed. Unsynced entries are cut off if possible; then they are known not to be in the
    /// file.
    fn fail(&mut self, error: &io::Error) -> NotAppended {
        let why = explained(&self.path, error);
        if self.trouble.why().as_deref() != Some(&why) {
            tracing::error!(%why, "the journal cannot be written; it is tried again each second");
            self.trouble.begin(&why);
        }
        match self.mend() {
            Ok(()) => NotAppended::Failed(why),
            Err(_) => NotAppended::Broken(why),
        }
    }
}

/// A new file with these bytes, on disk, open for appending.
fn written(path: &Path, bytes: &[u8]) -> io::Result<File> {
    // An existing one is left over from an unfinished replacement.
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        Ok(()) | Err(_) => {}
    }
    let mut file = open(path)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    Ok(file)
}
