//! Backups: copies the lasting files of a data folder into one archive, also while a kernel runs, and restores them.
//!
//! Journals and the audit log only grow, and other files are replaced atomically, so each copy is consistent by
//! itself. The copy order keeps the files consistent with each other: a file is copied before the files it is derived
//! from. A backup equals what a killed kernel would have left.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufReader, BufWriter, ErrorKind, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Component, Path, PathBuf};

use mgp_engine::timestamps::render_rfc3339_ms;
use mgp_runtime::randomness;
use mgp_runtime::time::unix_ms;
use serde::{Deserialize, Serialize};
use tar::{Archive, Builder, EntryType, Header};

use crate::atomic_file::{create_folder, sync_folder};
use crate::witnesses::{WITNESS_FILES, Witnesses};

/// The last entry: the list of files with their checksums.
const MANIFEST: &str = "mgp-backup.json";
/// The folder with the configuration, in the archive and in a restored data folder.
pub const CONFIGURATION: &str = "configuration";
/// Maximum number of files, so that their metadata fits into memory.
const FILES_MAX: usize = 200_000;
/// The format version that is written and read.
const FORMAT: u32 = 1;
/// Maximum length of the manifest in bytes: some hundred thousand files.
const MANIFEST_MAX: u64 = 64 << 20;
/// Marks a restored folder until a kernel has started on it.
pub const RESTORED: &str = "restored";
/// Marks a restored folder whose cluster membership is not confirmed yet.
pub const RESTORED_LOGS: &str = "cluster/logs/restored";
/// Files that are copied first, in this order: the head of the audit log before its records, records before the
/// decisions they describe, markers before the files they mark, and debts before the log that settles them.
const COPY_ORDER: [&str; 5] = [
    "audit.head",
    "node.witness",
    "audit",
    "pinned",
    "cluster/logs/owed",
];
/// Files that are regenerated or that belong to one run of a kernel; and sign-ins, of which a copy would bring back those
/// that have ended.
const EXCLUDED: [&str; 17] = [
    CONFIGURATION,
    "audit/closed",
    "cluster/index",
    "console.html",
    "environment.json",
    "kernel.json",
    "kernel.lock",
    "kernel.log",
    "marks",
    "mgp.sock",
    "places.json",
    "room",
    "sandbox",
    "sign-ins.json",
    "start.lock",
    "vectors",
    "views",
];
/// Files that grant access to whoever has them.
const SECRET_FILES: [&str; 5] = [
    "node.key",
    "token",
    "metrics.token",
    "seal.key",
    "audit.key",
];

/// The manifest of a backup.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackupManifest {
    format: u32,
    /// When the backup was started.
    pub made_at: String,
    /// The version of the program.
    pub(crate) version: String,
    /// The folder.
    pub data_dir: String,
    /// The files, by their names in it.
    pub files: BTreeMap<String, BackupFile>,
}

/// A file of a backup.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackupFile {
    /// Its size.
    pub bytes: u64,
    blake3: String,
}

impl BackupManifest {
    /// The names of the files that contain secrets.
    #[must_use]
    pub fn secrets(&self) -> Vec<&str> {
        let names = self.files.keys().map(String::as_str);
        names.filter(|name| SECRET_FILES.contains(name)).collect()
    }

    /// The total size of all files.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.files.values().map(|file| file.bytes).sum()
    }
}

/// Why a backup or a restore failed.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    /// The system reported an error.
    #[error("{}: {error}", .path.display())]
    Disk {
        /// Which file.
        path: PathBuf,
        /// The system's message.
        error: io::Error,
    },
    /// There is nothing to back up.
    #[error("{} is no data folder of a kernel: it has no node.key", .0.display())]
    NoFolder(PathBuf),
    /// The backup would contain itself.
    #[error("{} is in the data folder: name a file elsewhere", .0.display())]
    InsideDataDir(PathBuf),
    /// A file became shorter while it was read.
    #[error("{} changed while it was read; run `mgp backup` again", .0.display())]
    Changed(PathBuf),
    /// The backup was changed or is incomplete.
    #[error("{} is damaged: {why}; nothing was restored", .path.display())]
    Damaged {
        /// Which file.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// The backup file exists already.
    #[error("{} is there already; --force writes it anew", .0.display())]
    AlreadyExists(PathBuf),
    /// The target folder is not empty.
    #[error("{} is in use: a backup is restored into an empty folder, or one that is not there yet; name one with --data-dir", .0.display())]
    InUse(PathBuf),
}

fn disk_error(path: &Path) -> impl FnOnce(io::Error) -> BackupError {
    let path = path.to_owned();
    move |error| BackupError::Disk { path, error }
}

/// The input of a backup.
#[derive(Clone, Copy, Debug)]
pub struct BackupSource<'a> {
    /// The folder.
    pub data_dir: &'a Path,
    /// The configuration files, by descending precedence.
    pub configuration: &'a [PathBuf],
    /// The version of this program.
    pub version: &'a str,
}

/// Writes the lasting files of a data folder into a new file that its owner alone can read; blocks. `step` is called
/// before each file.
///
/// # Errors
/// [`BackupError`]; then there is no file.
pub fn back_up(
    from: &BackupSource<'_>,
    file: &Path,
    force: bool,
    step: &mut dyn FnMut(),
) -> Result<BackupManifest, BackupError> {
    let data_dir = from.data_dir;
    if !data_dir.join("node.key").exists() {
        return Err(BackupError::NoFolder(data_dir.to_owned()));
    }
    let folder = file.parent().filter(|it| !it.as_os_str().is_empty());
    let folder = folder.unwrap_or(Path::new("."));
    let is_inside = match (folder.canonicalize(), data_dir.canonicalize()) {
        (Ok(folder), Ok(data_dir)) => folder.starts_with(data_dir),
        (Err(_), _) | (_, Err(_)) => false,
    };
    if is_inside {
        return Err(BackupError::InsideDataDir(file.to_owned()));
    }
    if !force && file.symlink_metadata().is_ok() {
        return Err(BackupError::AlreadyExists(file.to_owned()));
    }
    let number = u64::from_le_bytes(randomness::random_bytes());
    let draft = folder.join(format!(".{number:016x}.new"));
    let mut options = OpenOptions::new();
    let options = options.write(true).create_new(true).mode(0o600);
    let out = options.open(&draft).map_err(disk_error(&draft))?;
    let written = write(from, &out, step).and_then(|manifest| {
        out.sync_all().map_err(disk_error(&draft))?;
        fs::rename(&draft, file).map_err(disk_error(file))?;
        match sync_folder(file) {
            // Some network file systems cannot sync folders.
            Err(error) if error.kind() != ErrorKind::InvalidInput => Err(disk_error(file)(error)),
            Ok(()) | Err(_) => Ok(manifest),
        }
    });
    if written.is_err() {
        // A partial backup is useless.
        let _ = fs::remove_file(&draft);
    }
    written
}

fn write(
    from: &BackupSource<'_>,
    out: &File,
    step: &mut dyn FnMut(),
) -> Result<BackupManifest, BackupError> {
    let data_dir = from.data_dir;
    let made_at = render_rfc3339_ms(unix_ms());
    let mut names = Vec::new();
    collect(data_dir, Path::new(""), &mut names).map_err(disk_error(data_dir))?;
    names.sort_by_key(|name| (copy_rank(name), name.clone()));
    let configuration = from
        .configuration
        .iter()
        .enumerate()
        .filter_map(|(at, path)| {
            let name = path.file_name()?.to_str()?;
            Some((format!("{CONFIGURATION}/{}/{name}", at + 1), path.clone()))
        });
    let names = names.into_iter().map(|name| {
        let path = data_dir.join(&name);
        (name, path)
    });
    let mut builder = Builder::new(BufWriter::new(out));
    let mut files = BTreeMap::new();
    for (name, path) in names.chain(configuration) {
        step();
        let opened = match File::open(&path) {
            // A task that has ended or a trimmed file of the log; the log records both.
            Err(error) if error.kind() == ErrorKind::NotFound => continue,
            opened => opened.map_err(disk_error(&path))?,
        };
        let bytes = opened.metadata().map_err(disk_error(&path))?.len();
        let mut reader = HashingReader::new(BufReader::new(opened.take(bytes)));
        builder
            .append_data(&mut tar_header(bytes), &name, &mut reader)
            .map_err(disk_error(&path))?;
        if reader.bytes != bytes {
            return Err(BackupError::Changed(path));
        }
        let blake3 = reader.hash();
        files.insert(name, BackupFile { bytes, blake3 });
    }
    let manifest = BackupManifest {
        format: FORMAT,
        made_at,
        version: from.version.to_owned(),
        data_dir: data_dir.display().to_string(),
        files,
    };
    let text = serde_json::to_vec(&manifest).map_err(|error| disk_error(data_dir)(error.into()))?;
    let mut entry = tar_header(text.len() as u64);
    let written = builder.append_data(&mut entry, MANIFEST, &text[..]);
    let written = written.and_then(|()| builder.into_inner()?.flush());
    written.map_err(disk_error(data_dir))?;
    Ok(manifest)
}

fn tar_header(bytes: u64) -> Header {
    let mut header = Header::new_gnu();
    header.set_entry_type(EntryType::Regular);
    header.set_mode(0o600);
    header.set_size(bytes);
    header.set_mtime(unix_ms() / 1000);
    header
}

/// The regular files below a folder, by their names in the data folder.
fn collect(data_dir: &Path, below: &Path, names: &mut Vec<String>) -> io::Result<()> {
    for entry in fs::read_dir(data_dir.join(below))? {
        let entry = entry?;
        let place = below.join(entry.file_name());
        // The kernel uses no other names.
        let Some(name) = place.to_str() else { continue };
        if is_excluded(name) {
            continue;
        }
        let kind = entry.file_type()?;
        if kind.is_dir() {
            collect(data_dir, &place, names)?;
        } else if kind.is_file() {
            names.push(name.to_owned());
        }
    }
    Ok(())
}

fn is_excluded(name: &str) -> bool {
    EXCLUDED.contains(&name)
        || WITNESS_FILES.contains(&name)
        || name.starts_with("views.damaged")
        || name.ends_with(".new")
        || name == MANIFEST
}

fn copy_rank(name: &str) -> usize {
    let first = COPY_ORDER.iter().position(|first| {
        let rest = name.strip_prefix(first);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    });
    first.unwrap_or(COPY_ORDER.len())
}

/// Counts and hashes what is read.
struct HashingReader<R> {
    inner: R,
    hasher: blake3::Hasher,
    bytes: u64,
}

impl<R: Read> HashingReader<R> {
    fn new(inner: R) -> Self {
        let (hasher, bytes) = (blake3::Hasher::new(), 0);
        Self {
            inner,
            hasher,
            bytes,
        }
    }

    fn hash(&self) -> String {
        self.hasher.finalize().to_hex().to_string()
    }
}

impl<R: Read> Read for HashingReader<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(buf)?;
        self.hasher.update(&buf[..count]);
        self.bytes += count as u64;
        Ok(count)
    }
}

/// Restores a data folder from a backup. The folder appears completely or not at all, and is marked as restored: the
/// next start records its origin, and its cluster membership stays closed until other nodes have confirmed its log.
/// Blocks. `step` is called before each file.
///
/// # Errors
/// [`BackupError`]; then there is no folder.
pub fn restore(
    file: &Path,
    data_dir: &Path,
    step: &mut dyn FnMut(),
) -> Result<BackupManifest, BackupError> {
    let in_use = || BackupError::InUse(data_dir.to_owned());
    match fs::read_dir(data_dir) {
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) => return Err(disk_error(data_dir)(error)),
        Ok(mut entries) => {
            if entries.next().is_some() {
                return Err(in_use());
            }
        }
    }
    let number = u64::from_le_bytes(randomness::random_bytes());
    let mut stage = data_dir.as_os_str().to_owned();
    stage.push(format!(".{number:016x}.restoring"));
    let stage = PathBuf::from(stage);
    create_folder(&stage).map_err(disk_error(&stage))?;
    let restored = unpack(file, &stage, step).and_then(|manifest| {
        record_restore(&stage, &manifest).map_err(disk_error(&stage))?;
        // Replaces an empty folder only.
        fs::rename(&stage, data_dir).map_err(|error| {
            if error.kind() == ErrorKind::DirectoryNotEmpty {
                in_use()
            } else {
                disk_error(data_dir)(error)
            }
        })?;
        sync_folder(data_dir).map_err(disk_error(data_dir))?;
        Ok(manifest)
    });
    if restored.is_err() {
        let _ = fs::remove_dir_all(&stage);
    }
    restored
}

fn unpack(
    file: &Path,
    stage: &Path,
    step: &mut dyn FnMut(),
) -> Result<BackupManifest, BackupError> {
    let damaged = |why: String| BackupError::Damaged {
        path: file.to_owned(),
        why,
    };
    let opened = File::open(file).map_err(disk_error(file))?;
    let mut archive = Archive::new(BufReader::new(opened));
    let mut found: BTreeMap<String, BackupFile> = BTreeMap::new();
    let mut manifest = None;
    for entry in archive.entries().map_err(|e| damaged(e.to_string()))? {
        step();
        let mut entry = entry.map_err(|e| damaged(e.to_string()))?;
        let name = entry.path().map_err(|e| damaged(e.to_string()))?;
        let name = name.to_str().unwrap_or_default().to_owned();
        if entry.header().entry_type() != EntryType::Regular || !is_relative_path(&name) {
            return Err(damaged(format!("it has an entry {name:?}")));
        }
        if name == MANIFEST {
            let mut text = Vec::new();
            let read = entry.take(MANIFEST_MAX).read_to_end(&mut text);
            read.map_err(|e| damaged(e.to_string()))?;
            let read: BackupManifest =
                serde_json::from_slice(&text).map_err(|e| damaged(e.to_string()))?;
            manifest = Some(read);
            break;
        }
        if found.contains_key(&name) || found.len() == FILES_MAX {
            return Err(damaged(format!(
                "{name:?} is there twice, or there are more than {FILES_MAX} files"
            )));
        }
        let path = stage.join(&name);
        let mut reader = HashingReader::new(&mut entry);
        extract_file(&mut reader, &path).map_err(disk_error(&path))?;
        let (bytes, blake3) = (reader.bytes, reader.hash());
        found.insert(name, BackupFile { bytes, blake3 });
    }
    let manifest = manifest.ok_or_else(|| damaged("its end is missing".into()))?;
    if manifest.format != FORMAT {
        let format = manifest.format;
        return Err(damaged(format!(
            "it has the format {format}, which this version does not know"
        )));
    }
    if manifest.files == found {
        Ok(manifest)
    } else {
        Err(damaged(
            "its files are not those that were backed up".into(),
        ))
    }
}

/// Whether the path stays within the folder.
fn is_relative_path(name: &str) -> bool {
    let mut parts = Path::new(name).components().peekable();
    parts.peek().is_some() && parts.all(|part| matches!(part, Component::Normal(_)))
}

fn extract_file(from: &mut impl Read, path: &Path) -> io::Result<()> {
    if let Some(folder) = path.parent() {
        create_folder(folder)?;
    }
    let mut options = OpenOptions::new();
    let options = options.write(true).create_new(true).mode(0o600);
    let mut file = options.open(path)?;
    io::copy(from, &mut file)?;
    file.sync_all()?;
    sync_folder(path)
}

fn record_restore(stage: &Path, manifest: &BackupManifest) -> io::Result<()> {
    let witnesses = Witnesses::open(stage)?.witnesses;
    let from = format!(
        "restored from the backup of {} at {}",
        manifest.data_dir, manifest.made_at
    );
    let records = [(RESTORED, &*from), (RESTORED_LOGS, &*manifest.made_at)];
    for (name, contents) in records {
        let witness = witnesses.witness(name);
        witness.propose(contents)?;
        witness.settle(contents);
    }
    Ok(())
}
