//! The log's files: numbered, one record to a line, the last one open. Read here by the kernel at its
//! start and by whoever verifies the log without one.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use mgp_engine::store::audit::chain::Head;
use mgp_engine::store::audit::reader::LogReader;
use mgp_engine::store::audit::record::{AuditRecord, EVENT_MAX};
use mgp_engine::store::audit::verify::{Report, Verifier};

use mgp_protocol::ids::ServerId;

use crate::atomic_file::create_folder;
use crate::regular_file;

/// Exceeds the maximum line length, so that the last record of a file lies within this many bytes of its end.
const TAIL_BYTES: u64 = 2 * EVENT_MAX as u64;
const EXTENSION: &str = ".jsonl";

/// The folder of a log.
#[derive(Debug, Clone)]
pub struct LogFolder(PathBuf);

impl LogFolder {
    /// The log folder below a data folder, whether or not it exists.
    #[must_use]
    pub fn new(data_dir: &Path) -> Self {
        Self(data_dir.join("audit"))
    }

    /// The head file, beside the folder, so that removing the log does not remove it.
    #[must_use]
    pub fn head(&self) -> PathBuf {
        self.0.with_extension("head")
    }

    /// The second head file, under a name that does not suggest the log.
    #[must_use]
    pub(crate) fn witness(&self) -> PathBuf {
        self.0.with_file_name("node.witness")
    }

    /// Marks that a kernel has run on the data folder; created after the first log.
    #[must_use]
    pub fn marker(&self) -> Option<PathBuf> {
        let others = ["node.key", "grants.journal"];
        let others = others.map(|name| self.0.with_file_name(name));
        others.into_iter().find(|path| path.exists())
    }

    /// The temporary name of a file until it is complete.
    pub(super) fn temporary_path(&self) -> PathBuf {
        self.0.join("next")
    }

    /// The path of the folder.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.0
    }

    /// Marks the log as closed, with this as its last record.
    pub(super) fn mark_closed(&self, last: Head) -> io::Result<()> {
        let mut open = OpenOptions::new();
        open.write(true).create(true).truncate(true).mode(0o600);
        let mut file = open.open(self.closed_mark())?;
        file.write_all(format!("{} {}\n", last.sequence, last.hash).as_bytes())?;
        file.sync_all()?;
        self.sync()
    }

    /// Whether the log was closed with this as its last record. Removes the marker, since the log is open
    /// again.
    pub(super) fn take_closed_mark(&self, last: Head) -> io::Result<bool> {
        let content = match regular_file::read(&self.closed_mark()) {
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(false),
            content => content?,
        };
        fs::remove_file(self.closed_mark())?;
        self.sync()?;
        Ok(content == format!("{} {}\n", last.sequence, last.hash).as_bytes())
    }

    fn closed_mark(&self) -> PathBuf {
        self.0.join("closed")
    }

    /// The file that records up to which event a server was notified.
    pub(super) fn delivery_mark(&self, server: &ServerId) -> PathBuf {
        self.0.join(format!("told-{server}"))
    }

    /// The path of a file.
    #[must_use]
    pub fn file_path(&self, number: u64) -> PathBuf {
        self.0.join(format!("{number:08}{EXTENSION}"))
    }

    /// Creates the folder if it is missing, accessible to its owner only.
    pub(super) fn create(&self) -> io::Result<()> {
        create_folder(&self.0)
    }

    /// The numbers of the log files, in order; empty if the folder is missing.
    ///
    /// # Errors
    /// When the folder cannot be read.
    pub fn numbers(&self) -> io::Result<Vec<u64>> {
        let entries = match fs::read_dir(&self.0) {
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries?,
        };
        let mut out = Vec::new();
        for entry in entries {
            let name = entry?.file_name();
            let number = name.to_str().and_then(|n| n.strip_suffix(EXTENSION));
            out.extend(number.and_then(|n| n.parse::<u64>().ok()));
        }
        out.sort_unstable();
        Ok(out)
    }

    /// Opens a file for appending, and syncs its name.
    pub(super) fn append(&self, number: u64) -> io::Result<File> {
        let mut open = OpenOptions::new();
        let file = open
            .append(true)
            .create(true)
            .mode(0o600)
            .open(self.file_path(number))?;
        self.sync()?;
        Ok(file)
    }

    /// Creates a file with these bytes, synced and open for appending. Its number must be unused. If the kernel
    /// ends meanwhile, the file is complete or absent.
    pub(super) fn create_file(
        &self,
        number: u64,
        bytes: &[u8],
        ready: impl FnOnce() -> io::Result<()>,
    ) -> io::Result<File> {
        let draft = self.temporary_path();
        match fs::remove_file(&draft) {
            Err(e) if e.kind() != ErrorKind::NotFound => return Err(e),
            Ok(()) | Err(_) => {}
        }
        let mut open = OpenOptions::new();
        open.append(true).create_new(true).mode(0o600);
        let mut file = open.open(&draft)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        ready()?;
        fs::rename(&draft, self.file_path(number))?;
        self.sync()?;
        Ok(file)
    }

    /// Syncs the folder after files were created or removed.
    pub(super) fn sync(&self) -> io::Result<()> {
        File::open(&self.0)?.sync_all()
    }

    /// The last complete record near the end of a file.
    pub(super) fn last_record(&self, number: u64) -> io::Result<Option<Head>> {
        let mut file = regular_file::open(&self.file_path(number))?;
        let len = file.metadata()?.len();
        file.seek(SeekFrom::Start(len.saturating_sub(TAIL_BYTES)))?;
        let mut end = Vec::new();
        file.take(TAIL_BYTES).read_to_end(&mut end)?;
        let mut lines = end.split(|b| *b == b'\n').rev();
        let last = lines
            .find(|line| !line.is_empty())
            .and_then(AuditRecord::parse);
        Ok(last.map(|record| Head {
            sequence: record.sequence,
            hash: record.hash,
        }))
    }

    /// Verifies the whole log, each file up to its length in `upto`, or completely without it.
    ///
    /// # Errors
    /// When a file cannot be read.
    pub(crate) fn verify(
        &self,
        known: Option<Head>,
        upto: Option<&[(u64, u64)]>,
    ) -> io::Result<Report> {
        self.verify_in_steps(known, upto, &mut |_, _| Ok(()))
    }

    /// As [`Self::verify`]; calls `step` before each file with the number read and the total. Its error aborts.
    pub(super) fn verify_in_steps(
        &self,
        known: Option<Head>,
        upto: Option<&[(u64, u64)]>,
        step: &mut dyn FnMut(usize, usize) -> io::Result<()>,
    ) -> io::Result<Report> {
        let mut verifier = Verifier::new(known);
        let all = match upto {
            Some(files) => files.to_vec(),
            None => self.numbers()?.iter().map(|n| (*n, u64::MAX)).collect(),
        };
        let count = all.len();
        for (at, (number, len)) in all.into_iter().enumerate() {
            step(at, count)?;
            let mut bytes = Vec::new();
            let file = regular_file::open(&self.file_path(number))?;
            file.take(len).read_to_end(&mut bytes)?;
            LogReader::new(&bytes).for_each(|item| verifier.add_item(number, &item));
        }
        Ok(verifier.finish())
    }
}
