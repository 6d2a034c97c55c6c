//! A journal on disk: an entry is on disk before anybody is told so.
//!
//! One thread owns the file, so that the disk does not block the threads that carry calls. Entries that come
//! during a sync are written together and share the next one. After a failure, unsynced entries are cut off
//! first, because a second sync may report success for lost bytes.

mod journal_file;

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::mpsc;

use mgp_engine::store::journal::{
    JOURNAL_MAX, JournalFault, JournalReader, JournalWriter, TooLong,
};
use tokio::sync::oneshot;

use self::journal_file::{JournalFile, open};
use crate::trouble::{Trouble, explained};

/// Appends that wait at once; more are refused. With a sync of 5 ms this is far more than a person
/// or a program decides.
const WAITING: usize = 4096;
/// Entries written before one sync, so that the first of them does not wait for ever.
const TOGETHER: usize = 1024;

/// A journal that is open. All clones write to the same file.
#[derive(Debug, Clone)]
pub struct Journal {
    orders: mpsc::SyncSender<JournalOrder>,
    path: PathBuf,
    trouble: Trouble,
}

/// What a journal held when it was opened.
#[derive(Debug)]
pub struct OpenedJournal {
    /// The journal, to be appended to.
    pub journal: Journal,
    /// The payloads, in their order.
    pub entries: Vec<Vec<u8>>,
    /// An entry that was never finished, and is cut off by [`Journal::mend`], or with the next entry: in
    /// words.
    pub cut: Option<String>,
}

/// Why a journal cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum UnusableJournal {
    /// The file cannot be read or made.
    #[error("{}", explained(.path, .error))]
    Disk {
        /// Which file.
        path: PathBuf,
        /// What the system says.
        error: io::Error,
    },
    /// It was changed after it was written.
    #[error(
        "{}: {fault}. Nothing was changed. Put a copy of this file back that is whole; or, to go on with only what stands before that place, keep a copy and run `truncate -s {at} {}`: everything decided later is lost, revokes too",
        .path.display(), .path.display()
    )]
    Damaged {
        /// Which file.
        path: PathBuf,
        /// What is wrong with it.
        fault: JournalFault,
        /// How much of it is whole, in bytes.
        at: u64,
    },
    /// It is larger than the kernel reads.
    #[error("{} has {size} bytes, over the limit of {JOURNAL_MAX}", .path.display())]
    TooLarge {
        /// Which file.
        path: PathBuf,
        /// How large it is.
        size: u64,
    },
}

/// Why something was not recorded.
#[derive(Debug, Clone, thiserror::Error)]
pub enum NotAppended {
    /// Too many wait for the disk.
    #[error("{WAITING} entries wait for the disk already; try again")]
    Overloaded,
    /// It is longer than an entry can be.
    #[error(transparent)]
    TooLong(#[from] TooLong),
    /// The file has reached its limit.
    #[error("the file has reached its limit of {JOURNAL_MAX} bytes")]
    Full,
    /// The disk failed, and the entry is not there.
    #[error("the disk failed ({0}), and it is not recorded")]
    Failed(String),
    /// The disk failed. Whether this entry is there shows when it takes something again, or at the next
    /// start.
    #[error(
        "the disk failed ({0}); whether it is recorded shows when the disk takes something again"
    )]
    Broken(String),
}

/// Where the outcome is waited for.
type Told = oneshot::Sender<Result<(), NotAppended>>;

#[derive(Debug)]
enum JournalOrder {
    Append(Vec<Vec<u8>>, Told),
    Replace(Vec<Vec<u8>>, Told),
    Mend(Told),
}

impl Journal {
    /// Opens the journal of this kind at `path`, made when it is not there. Reads it whole; blocks.
    ///
    /// # Errors
    /// [`UnusableJournal`], in words for who starts the kernel.
    pub fn open(path: &Path, kind: &'static str) -> Result<OpenedJournal, UnusableJournal> {
        let explain = |error| UnusableJournal::Disk {
            path: path.to_owned(),
            error,
        };
        let mut file = open(path).map_err(explain)?;
        let bytes = whole(path, &mut file)?;
        let mut reader = JournalReader::new(kind, &bytes);
        let (mut entries, mut cut) = (Vec::new(), None);
        for entry in &mut reader {
            match entry {
                Ok(payload) => entries.push(payload.to_vec()),
                Err(fault @ JournalFault::Torn { .. }) => {
                    cut = Some(format!("{}: {fault}; they are cut off", path.display()));
                    break;
                }
                Err(fault @ JournalFault::Damaged { at, .. }) => {
                    let path = path.to_owned();
                    return Err(UnusableJournal::Damaged { path, fault, at });
                }
            }
        }
        let trouble = Trouble::default();
        let journal_file = JournalFile {
            path: path.to_owned(),
            kind,
            size: reader.position(),
            writer: JournalWriter::after(reader.head()),
            file,
            torn: cut.is_some(),
            trouble: trouble.clone(),
        };
        let (orders, taken) = mpsc::sync_channel(WAITING);
        std::thread::Builder::new()
            .name(format!("journal of {kind}"))
            .spawn(move || journal_file.keep(&taken))
            .map_err(explain)?;
        let journal = Self {
            orders,
            path: path.to_owned(),
            trouble,
        };
        Ok(OpenedJournal {
            journal,
            entries,
            cut,
        })
    }

    /// The payloads of a journal that may be open; blocks.
    pub fn read(path: &Path, kind: &'static str) -> Result<Vec<Vec<u8>>, UnusableJournal> {
        let explain = |error| UnusableJournal::Disk {
            path: path.to_owned(),
            error,
        };
        let mut file = File::open(path).map_err(explain)?;
        let bytes = whole(path, &mut file)?;
        let entries = JournalReader::new(kind, &bytes).map(|entry| match entry {
            Ok(payload) => Ok(payload.to_vec()),
            Err(fault @ (JournalFault::Torn { at, .. } | JournalFault::Damaged { at, .. })) => {
                let path = path.to_owned();
                Err(UnusableJournal::Damaged { path, fault, at })
            }
        });
        entries.collect()
    }

    /// Appends an entry. Resolves when it is on disk; entries that are asked for in some order stand
    /// in that order.
    ///
    /// # Errors
    /// [`NotAppended`]; then it is not to be acknowledged.
    pub async fn append(&self, payload: Vec<u8>) -> Result<(), NotAppended> {
        self.append_all(vec![payload]).await
    }

    /// Appends entries that belong together: none of them is there before all are asked for.
    ///
    /// # Errors
    /// As [`Self::append`].
    pub async fn append_all(&self, payloads: Vec<Vec<u8>>) -> Result<(), NotAppended> {
        self.order(|told| JournalOrder::Append(payloads, told))
            .await
    }

    /// Puts these entries in the place of all there are, in one step: after a crash either the old
    /// ones are there or the new ones. For journals whose state is small.
    ///
    /// # Errors
    /// [`NotAppended`]; then the old ones are there still.
    pub async fn replace(&self, entries: Vec<Vec<u8>>) -> Result<(), NotAppended> {
        self.order(|told| JournalOrder::Replace(entries, told))
            .await
    }

    /// Cuts off what was never finished, if there is any.
    ///
    /// # Errors
    /// [`NotAppended`]; then it is there still.
    pub async fn mend(&self) -> Result<(), NotAppended> {
        self.order(JournalOrder::Mend).await
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether it can be written.
    #[must_use]
    pub fn trouble(&self) -> Trouble {
        self.trouble.clone()
    }

    async fn order(&self, order: impl FnOnce(Told) -> JournalOrder) -> Result<(), NotAppended> {
        let (told, outcome) = oneshot::channel();
        self.orders.try_send(order(told)).map_err(|e| match e {
            mpsc::TrySendError::Full(_) => NotAppended::Overloaded,
            mpsc::TrySendError::Disconnected(_) => gone(),
        })?;
        outcome.await.unwrap_or_else(|_| Err(gone()))
    }
}

/// All of a journal, when it has no more bytes than one can have.
fn whole(path: &Path, file: &mut File) -> Result<Vec<u8>, UnusableJournal> {
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
        Ok((_, size)) => Err(UnusableJournal::TooLarge { path, size }),
        Err(error) => Err(UnusableJournal::Disk { path, error }),
    }
}

fn gone() -> NotAppended {
    NotAppended::Broken("its thread has ended".into())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
