//! A journal on disk: what was appended is there before anybody is told so.
//!
//! One thread owns the file, so that no disk holds up the threads that carry calls. Entries that come
//! while it syncs are written together and share the next sync. After a failure nothing more is
//! taken: a second sync may report success for bytes that are gone.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use mgp_engine::journal::{Fault, JOURNAL_MAX, Link, PAYLOAD_MAX, Reader, TooLong, Writer};
use tokio::sync::{mpsc, oneshot};

/// Appends that wait at once; more are refused. With a sync of 5 ms this is far more than a person
/// or a program decides.
const WAITING: usize = 4096;
/// Entries written before one sync, so that the first of them does not wait for ever.
const TOGETHER: usize = 1024;

/// A journal that is open. All clones write to the same file.
#[derive(Debug, Clone)]
pub struct Journal {
    orders: mpsc::Sender<Order>,
    path: PathBuf,
}

/// What a journal held when it was opened.
#[derive(Debug)]
pub struct Opened {
    /// The journal, to be appended to.
    pub journal: Journal,
    /// The payloads, in their order.
    pub entries: Vec<Vec<u8>>,
    /// An entry that was never finished, and was cut off: in words.
    pub cut: Option<String>,
}

/// Why a journal cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Unusable {
    /// The file cannot be read or made.
    #[error("{}: {error}", .path.display())]
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
        fault: Fault,
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
pub enum NotWritten {
    /// Too many wait for the disk.
    #[error("{WAITING} entries wait for the disk already; try again")]
    Overloaded,
    /// It is longer than an entry can be.
    #[error(transparent)]
    TooLong(#[from] TooLong),
    /// The file has reached its limit.
    #[error("the file has reached its limit of {JOURNAL_MAX} bytes")]
    Full,
    /// The disk failed. Whether this entry is there shows at the next start.
    #[error("the disk failed ({0}); nothing more is recorded until the kernel is started again")]
    Broken(String),
}

/// Where the outcome is waited for.
type Told = oneshot::Sender<Result<(), NotWritten>>;

#[derive(Debug)]
enum Order {
    Append(Vec<Vec<u8>>, Told),
    Replace(Vec<Vec<u8>>, Told),
}

impl Journal {
    /// Opens the journal of this kind at `path`, made when it is not there. Reads it whole; blocks.
    ///
    /// # Errors
    /// [`Unusable`], in words for who starts the kernel.
    pub fn open(path: &Path, kind: &'static str) -> Result<Opened, Unusable> {
        let explain = |error| Unusable::Disk {
            path: path.to_owned(),
            error,
        };
        let mut file = open(path).map_err(explain)?;
        let size = file.metadata().map_err(explain)?.len();
        if size > JOURNAL_MAX {
            let path = path.to_owned();
            return Err(Unusable::TooLarge { path, size });
        }
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).map_err(explain)?;
        let mut reader = Reader::new(kind, &bytes);
        let (mut entries, mut cut) = (Vec::new(), None);
        for entry in &mut reader {
            match entry {
                Ok(payload) => entries.push(payload.to_vec()),
                Err(fault @ Fault::Torn { at, .. }) => {
                    file.set_len(at)
                        .and_then(|()| file.sync_all())
                        .map_err(explain)?;
                    cut = Some(format!("{}: {fault}; they were cut off", path.display()));
                    break;
                }
                Err(fault @ Fault::Damaged { at, .. }) => {
                    let path = path.to_owned();
                    return Err(Unusable::Damaged { path, fault, at });
                }
            }
        }
        let keeper = Keeper {
            path: path.to_owned(),
            kind,
            size: reader.position(),
            writer: Writer::after(reader.head()),
            file,
            broken: None,
        };
        let (orders, taken) = mpsc::channel(WAITING);
        std::thread::Builder::new()
            .name(format!("journal of {kind}"))
            .spawn(move || keeper.keep(taken))
            .map_err(explain)?;
        let journal = Self {
            orders,
            path: path.to_owned(),
        };
        Ok(Opened {
            journal,
            entries,
            cut,
        })
    }

    /// Appends an entry. Resolves when it is on disk; entries that are asked for in some order stand
    /// in that order.
    ///
    /// # Errors
    /// [`NotWritten`]; then it is not to be acknowledged.
    pub async fn append(&self, payload: Vec<u8>) -> Result<(), NotWritten> {
        self.append_all(vec![payload]).await
    }

    /// Appends entries that belong together: none of them is there before all are asked for.
    ///
    /// # Errors
    /// As [`Self::append`].
    pub async fn append_all(&self, payloads: Vec<Vec<u8>>) -> Result<(), NotWritten> {
        self.order(|told| Order::Append(payloads, told)).await
    }

    /// Puts these entries in the place of all there are, in one step: after a crash either the old
    /// ones are there or the new ones. For journals whose state is small.
    ///
    /// # Errors
    /// [`NotWritten`]; then the old ones are there still.
    pub async fn replace(&self, entries: Vec<Vec<u8>>) -> Result<(), NotWritten> {
        self.order(|told| Order::Replace(entries, told)).await
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    async fn order(&self, order: impl FnOnce(Told) -> Order) -> Result<(), NotWritten> {
        let (told, outcome) = oneshot::channel();
        self.orders.try_send(order(told)).map_err(|e| match e {
            mpsc::error::TrySendError::Full(_) => NotWritten::Overloaded,
            mpsc::error::TrySendError::Closed(_) => gone(),
        })?;
        outcome.await.unwrap_or_else(|_| Err(gone()))
    }
}

fn gone() -> NotWritten {
    NotWritten::Broken("its thread has ended".into())
}

fn open(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).append(true).mode(0o600);
    match options.open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        opened => return opened,
    }
    let file = options.create(true).open(path)?;
    file.sync_all()?;
    sync_folder(path)?;
    Ok(file)
}

/// Makes a name in a folder last.
fn sync_folder(of: &Path) -> io::Result<()> {
    match of.parent() {
        Some(folder) => File::open(folder)?.sync_all(),
        None => Ok(()),
    }
}

/// Owns the file.
#[derive(Debug)]
struct Keeper {
    path: PathBuf,
    kind: &'static str,
    file: File,
    writer: Writer,
    size: u64,
    broken: Option<String>,
}

impl Keeper {
    /// Writes what is ordered until nobody can order any more.
    fn keep(mut self, mut orders: mpsc::Receiver<Order>) {
        let mut together = Vec::with_capacity(TOGETHER);
        while let Some(first) = orders.blocking_recv() {
            let mut next = Some(first);
            while let Some(order) = next.take() {
                match order {
                    Order::Append(payloads, told) => together.push((payloads, told)),
                    Order::Replace(entries, told) => {
                        self.write(&mut together);
                        let _ = told.send(self.replace(&entries));
                    }
                }
                if together.len() < TOGETHER {
                    next = orders.try_recv().ok();
                }
            }
            self.write(&mut together);
        }
    }

    fn write(&mut self, together: &mut Vec<(Vec<Vec<u8>>, Told)>) {
        let mut bytes = Vec::new();
        let (mut writer, mut waiting) = (self.writer, Vec::with_capacity(together.len()));
        for (payloads, told) in together.drain(..) {
            let (before, from) = (writer, bytes.len());
            let mut all = payloads.iter();
            match all.try_for_each(|payload| self.take(payload, &mut writer, &mut bytes)) {
                Ok(()) => waiting.push(told),
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
        }
        for told in waiting {
            let _ = told.send(outcome.clone());
        }
    }

    fn take(
        &self,
        payload: &[u8],
        writer: &mut Writer,
        bytes: &mut Vec<u8>,
    ) -> Result<(), NotWritten> {
        let room = JOURNAL_MAX.saturating_sub(self.size + bytes.len() as u64);
        if room < PAYLOAD_MAX as u64 * 2 {
            return Err(NotWritten::Full);
        }
        Ok(writer.write(payload, bytes)?)
    }

    fn put(&mut self, bytes: &[u8]) -> Result<(), NotWritten> {
        if let Some(why) = &self.broken {
            return Err(NotWritten::Broken(why.clone()));
        }
        let done = self
            .file
            .write_all(bytes)
            .and_then(|()| self.file.sync_data());
        done.map_err(|error| self.fail(&error))
    }

    fn replace(&mut self, entries: &[Vec<u8>]) -> Result<(), NotWritten> {
        if let Some(why) = &self.broken {
            return Err(NotWritten::Broken(why.clone()));
        }
        let mut writer = Writer::after(Link::start(self.kind));
        let mut bytes = Vec::new();
        for entry in entries {
            writer.write(entry, &mut bytes)?;
        }
        if bytes.len() as u64 > JOURNAL_MAX {
            return Err(NotWritten::Full);
        }
        let new = self.path.with_extension("new");
        let file = written(&new, &bytes).map_err(|error| self.fail(&error))?;
        let renamed = fs::rename(&new, &self.path).and_then(|()| sync_folder(&self.path));
        renamed.map_err(|error| self.fail(&error))?;
        self.file = file;
        self.writer = writer;
        self.size = bytes.len() as u64;
        Ok(())
    }

    fn fail(&mut self, error: &io::Error) -> NotWritten {
        let why = format!("{}: {error}", self.path.display());
        tracing::error!(%why, "the journal cannot be written");
        self.broken = Some(why.clone());
        NotWritten::Broken(why)
    }
}

/// A file with these bytes, on disk, open for more.
fn written(path: &Path, bytes: &[u8]) -> io::Result<File> {
    // What is there is left over from a replacement that was never finished.
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        Ok(()) | Err(_) => {}
    }
    let mut file = open(path)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    Ok(file)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn texts(opened: &Opened) -> Vec<String> {
        let text = |entry: &Vec<u8>| String::from_utf8(entry.clone()).unwrap();
        opened.entries.iter().map(text).collect()
    }

    async fn with(path: &Path, entries: &[&str]) {
        let opened = Journal::open(path, "test").unwrap();
        for entry in entries {
            let entry = entry.as_bytes().to_vec();
            opened.journal.append(entry).await.unwrap();
        }
    }

    /// One hundred at once share syncs and stand in the order they were asked for.
    #[tokio::test]
    async fn what_was_appended_is_there_again() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("test.journal");
        let opened = Journal::open(&path, "test").unwrap();
        assert!(opened.entries.is_empty() && opened.cut.is_none());
        let journal = &opened.journal;
        let all = (0..100).map(|n| journal.append(format!("{n}").into_bytes()));
        for done in futures_util::future::join_all(all).await {
            done.unwrap();
        }
        let again = Journal::open(&path, "test").unwrap();
        let expected: Vec<String> = (0..100).map(|n| n.to_string()).collect();
        assert_eq!(texts(&again), expected);
        let mode = std::os::unix::fs::PermissionsExt::mode(&path.metadata().unwrap().permissions());
        assert_eq!(mode & 0o777, 0o600);
        let long = journal.append(vec![0; PAYLOAD_MAX + 1]).await;
        assert!(matches!(long, Err(NotWritten::TooLong(_))));
    }

    #[tokio::test]
    async fn a_torn_tail_is_cut_off_and_told() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("test.journal");
        with(&path, &["one", "two"]).await;
        let whole = fs::read(&path).unwrap();
        fs::write(&path, &whole[..whole.len() - 1]).unwrap();
        let opened = Journal::open(&path, "test").unwrap();
        assert_eq!(texts(&opened), ["one"]);
        let cut = opened.cut.unwrap();
        assert!(cut.contains("test.journal: from byte 75 on"), "{cut}");
        opened.journal.append(b"three".to_vec()).await.unwrap();
        let again = Journal::open(&path, "test").unwrap();
        assert_eq!(
            (texts(&again), again.cut),
            (vec!["one".into(), "three".into()], None)
        );
    }

    #[tokio::test]
    async fn damage_is_named_and_nothing_is_changed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("test.journal");
        with(&path, &["one", "two"]).await;
        let mut bytes = fs::read(&path).unwrap();
        *bytes.last_mut().unwrap() ^= 1;
        fs::write(&path, &bytes).unwrap();
        let why = Journal::open(&path, "test").unwrap_err().to_string();
        assert!(why.contains("test.journal: entry 2, at byte 75"), "{why}");
        assert!(why.contains("truncate -s 75"), "{why}");
        assert_eq!(fs::read(&path).unwrap(), bytes);
    }

    #[tokio::test]
    async fn a_replacement_is_whole_and_goes_on() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("test.journal");
        fs::write(dir.path().join("test.new"), "half").unwrap();
        let opened = Journal::open(&path, "test").unwrap();
        for n in 0..3_u8 {
            opened.journal.append(vec![b'0' + n]).await.unwrap();
        }
        let kept = vec![b"kept".to_vec()];
        opened.journal.replace(kept).await.unwrap();
        opened.journal.append(b"later".to_vec()).await.unwrap();
        let again = Journal::open(&path, "test").unwrap();
        assert_eq!(texts(&again), ["kept", "later"]);
    }

    /// A disk that failed once is not asked again.
    #[tokio::test]
    async fn after_a_failure_nothing_more_is_taken() {
        let full = File::options().append(true).open("/dev/full").unwrap();
        let keeper = Keeper {
            path: "/dev/full".into(),
            kind: "test",
            file: full,
            writer: Writer::after(Link::start("test")),
            size: 0,
            broken: None,
        };
        let (orders, taken) = mpsc::channel(WAITING);
        std::thread::spawn(move || keeper.keep(taken));
        let journal = Journal {
            orders,
            path: "/dev/full".into(),
        };
        for _ in 0..2 {
            let refused = journal.append(b"one".to_vec()).await.unwrap_err();
            assert!(refused.to_string().contains("/dev/full"), "{refused}");
        }
        let refused = journal.replace(Vec::new()).await;
        assert!(matches!(refused, Err(NotWritten::Broken(_))));
    }
}
