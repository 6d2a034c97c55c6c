//! The sealed files and their key file.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::Duration;

use mgp_engine::store::secrets::{Namespace, SEALED_MAX, SecretRecords, SecretsKey};
use mgp_runtime::randomness;
use rustix::process::geteuid;

use super::SecretsError;
use crate::atomic_file;
use crate::health::explain_io_error;
use crate::regular_file;

/// Number of attempts to take the lock, 10 s in total: its holder writes one small file, or asks the keyring.
const LOCK_ATTEMPTS: u32 = 1000;
/// The time between two attempts.
const LOCK_INTERVAL: Duration = Duration::from_millis(10);
/// Maximum length of a key file: 64 hexadecimal digits and whitespace added by editors.
const KEY_FILE_MAX: usize = 1 << 10;

/// The paths of the files.
#[derive(Clone, Debug)]
pub(super) struct SealedFiles {
    pub(super) folder: PathBuf,
    pub(super) key: PathBuf,
}

impl SealedFiles {
    pub(super) fn new(folder: &Path, key: &Path) -> Self {
        Self {
            folder: folder.to_owned(),
            key: key.to_owned(),
        }
    }

    pub(super) fn file(&self, space: Namespace) -> PathBuf {
        self.folder.join(format!("{}.sealed", space.as_str()))
    }

    /// Takes the lock against other writers; closing the file releases it.
    pub(super) fn lock(&self) -> Result<File, SecretsError> {
        create_private_folder(&self.folder)?;
        let path = self.folder.join("lock");
        let mut open = OpenOptions::new();
        open.write(true).create(true).truncate(false).mode(0o600);
        let file = regular_file::open_with(&path, &mut open).map_err(|e| io_error(&path, &e))?;
        for _ in 0..LOCK_ATTEMPTS {
            match file.try_lock() {
                Ok(()) => return Ok(file),
                Err(TryLockError::WouldBlock) => sleep(LOCK_INTERVAL),
                Err(TryLockError::Error(e)) => return Err(io_error(&path, &e)),
            }
        }
        Err(SecretsError::File(format!(
            "another process has been changing secrets for 10 s and holds {}; try again when it has ended",
            path.display()
        )))
    }

    /// The stored secrets; empty if the file is missing.
    pub(super) fn read(&self, space: Namespace) -> Result<SecretRecords, SecretsError> {
        let path = self.file(space);
        let Some(text) = read_bounded(&path, SEALED_MAX)? else {
            return Ok(SecretRecords::default());
        };
        let key = self
            .read_key()?
            .ok_or_else(|| self.missing_key_error(&path))?;
        let remedy = "put copies of both back, or remove the first and set its secrets again";
        key.open(space, &text).map_err(|_| {
            SecretsError::File(format!(
                "{} does not open with {}: {remedy}",
                path.display(),
                self.key.display()
            ))
        })
    }

    /// Replaces the stored secrets; the caller holds the lock.
    pub(super) fn write(
        &self,
        space: Namespace,
        records: &SecretRecords,
    ) -> Result<(), SecretsError> {
        let sealed = self
            .key()?
            .seal(space, randomness::random_bytes(), records)?;
        let path = self.file(space);
        atomic_file::write(&path, &sealed).map_err(|e| io_error(&path, &e))
    }

    /// The key, which is created with the first secret; the caller holds the lock. Fails if a new key could not open
    /// existing files.
    pub(super) fn key(&self) -> Result<SecretsKey, SecretsError> {
        if let Some(key) = self.read_key()? {
            return Ok(key);
        }
        let files = Namespace::ALL.map(|space| self.file(space));
        if let Some(there) = files.iter().find(|file| file.exists()) {
            return Err(self.missing_key_error(there));
        }
        let bytes: [u8; 32] = randomness::random_bytes();
        if let Some(folder) = self.key.parent() {
            create_private_folder(folder)?;
        }
        let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        atomic_file::write(&self.key, format!("{digits}\n").as_bytes())
            .map_err(|e| io_error(&self.key, &e))?;
        Ok(SecretsKey::new(bytes))
    }

    /// The key, if it exists and nobody else can read it.
    fn read_key(&self) -> Result<Option<SecretsKey>, SecretsError> {
        let path = self.key.display();
        let invalid = |why: &str| Err(SecretsError::File(format!("{path} {why}")));
        let Some(text) = read_bounded(&self.key, KEY_FILE_MAX)? else {
            return Ok(None);
        };
        let found = fs::metadata(&self.key).map_err(|e| io_error(&self.key, &e))?;
        if found.uid() != geteuid().as_raw() {
            return invalid("belongs to another user, and is not used as a key");
        }
        if found.permissions().mode() & 0o077 != 0 {
            return invalid(
                "can be read by other users: run `chmod 600` on it, and consider setting all secrets again",
            );
        }
        match parse_key(&text) {
            Some(bytes) => Ok(Some(SecretsKey::new(bytes))),
            None => invalid("does not hold 64 hexadecimal digits; put a copy back"),
        }
    }

    fn missing_key_error(&self, file: &Path) -> SecretsError {
        SecretsError::File(format!(
            "{} is missing, and {} does not open without it: put a copy back, or remove the second and set its secrets again",
            self.key.display(),
            file.display()
        ))
    }
}

fn parse_key(text: &[u8]) -> Option<[u8; 32]> {
    let digits = std::str::from_utf8(text).ok()?.trim().as_bytes();
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    let bytes: Option<Vec<u8>> = digits.chunks(2).map(byte).collect();
    bytes?.try_into().ok()
}

/// The contents of a file; `None` if it is missing.
fn read_bounded(path: &Path, max: usize) -> Result<Option<Vec<u8>>, SecretsError> {
    let file = match regular_file::open(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        opened => opened.map_err(|e| io_error(path, &e))?,
    };
    let mut bytes = Vec::new();
    let read = file.take(max as u64 + 1).read_to_end(&mut bytes);
    read.map_err(|e| io_error(path, &e))?;
    if bytes.len() > max {
        Err(SecretsError::File(format!(
            "{} has more than {max} bytes and is not what was kept there",
            path.display()
        )))
    } else {
        Ok(Some(bytes))
    }
}

fn create_private_folder(folder: &Path) -> Result<(), SecretsError> {
    atomic_file::create_folder(folder).map_err(|e| io_error(folder, &e))
}

fn io_error(path: &Path, error: &io::Error) -> SecretsError {
    SecretsError::File(explain_io_error(path, error))
}
