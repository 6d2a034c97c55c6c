//! The sealed files and their key.

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
use crate::regular_file;
use crate::trouble::explained;

/// Looks at the lock, 10 s of them: who holds it writes one small file, or asks the keyring.
const LOOKS: u32 = 1000;
/// Time between two of them.
const PACE: Duration = Duration::from_millis(10);
/// Length of a key file: 64 hexadecimal digits and what editors add.
const KEY_FILE_MAX: usize = 1 << 10;

/// Where they are.
#[derive(Clone, Debug)]
pub(super) struct SealedFiles {
    pub(super) folder: PathBuf,
    pub(super) key: PathBuf,
}

impl SealedFiles {
    pub(super) fn at(folder: &Path, key: &Path) -> Self {
        Self {
            folder: folder.to_owned(),
            key: key.to_owned(),
        }
    }

    pub(super) fn file(&self, space: Namespace) -> PathBuf {
        self.folder.join(format!("{}.sealed", space.word()))
    }

    /// Keeps other writers away until it is closed.
    pub(super) fn lock(&self) -> Result<File, SecretsError> {
        make_private(&self.folder)?;
        let path = self.folder.join("lock");
        let mut open = OpenOptions::new();
        open.write(true).create(true).truncate(false).mode(0o600);
        let file = regular_file::open_with(&path, &mut open).map_err(|e| failed(&path, &e))?;
        for _ in 0..LOOKS {
            match file.try_lock() {
                Ok(()) => return Ok(file),
                Err(TryLockError::WouldBlock) => sleep(PACE),
                Err(TryLockError::Error(e)) => return Err(failed(&path, &e)),
            }
        }
        Err(SecretsError::File(format!(
            "another process has been changing secrets for 10 s and holds {}; try again when it has ended",
            path.display()
        )))
    }

    /// What is kept; nothing where no file is.
    pub(super) fn read(&self, space: Namespace) -> Result<SecretRecords, SecretsError> {
        let path = self.file(space);
        let Some(text) = bounded(&path, SEALED_MAX)? else {
            return Ok(SecretRecords::default());
        };
        let key = self.read_key()?.ok_or_else(|| self.without_key(&path))?;
        let remedy = "put copies of both back, or remove the first and set its secrets again";
        key.open(space, &text).map_err(|_| {
            SecretsError::File(format!(
                "{} does not open with {}: {remedy}",
                path.display(),
                self.key.display()
            ))
        })
    }

    /// Replaces what is kept; the lock is held.
    pub(super) fn write(
        &self,
        space: Namespace,
        records: &SecretRecords,
    ) -> Result<(), SecretsError> {
        let sealed = self.key()?.seal(space, randomness::bytes(), records)?;
        let path = self.file(space);
        atomic_file::write(&path, &sealed).map_err(|e| failed(&path, &e))
    }

    /// The key, which is made with the first secret; the lock is held. A new one opens nothing that is there.
    pub(super) fn key(&self) -> Result<SecretsKey, SecretsError> {
        if let Some(key) = self.read_key()? {
            return Ok(key);
        }
        let files = Namespace::ALL.map(|space| self.file(space));
        if let Some(there) = files.iter().find(|file| file.exists()) {
            return Err(self.without_key(there));
        }
        let bytes: [u8; 32] = randomness::bytes();
        if let Some(folder) = self.key.parent() {
            make_private(folder)?;
        }
        let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        atomic_file::write(&self.key, format!("{digits}\n").as_bytes())
            .map_err(|e| failed(&self.key, &e))?;
        Ok(SecretsKey::new(bytes))
    }

    /// The key, where there is one and nobody else can read it.
    fn read_key(&self) -> Result<Option<SecretsKey>, SecretsError> {
        let path = self.key.display();
        let bad = |why: &str| Err(SecretsError::File(format!("{path} {why}")));
        let Some(text) = bounded(&self.key, KEY_FILE_MAX)? else {
            return Ok(None);
        };
        let found = fs::metadata(&self.key).map_err(|e| failed(&self.key, &e))?;
        if found.uid() != geteuid().as_raw() {
            return bad("belongs to another user, and is not used as a key");
        }
        if found.permissions().mode() & 0o077 != 0 {
            return bad(
                "can be read by other users: run `chmod 600` on it, and consider setting all secrets again",
            );
        }
        match key_of(&text) {
            Some(bytes) => Ok(Some(SecretsKey::new(bytes))),
            None => bad("does not hold 64 hexadecimal digits; put a copy back"),
        }
    }

    fn without_key(&self, file: &Path) -> SecretsError {
        SecretsError::File(format!(
            "{} is missing, and {} does not open without it: put a copy back, or remove the second and set its secrets again",
            self.key.display(),
            file.display()
        ))
    }
}

fn key_of(text: &[u8]) -> Option<[u8; 32]> {
    let digits = std::str::from_utf8(text).ok()?.trim().as_bytes();
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    let bytes: Option<Vec<u8>> = digits.chunks(2).map(byte).collect();
    bytes?.try_into().ok()
}

/// A file as it is, if it is there.
fn bounded(path: &Path, max: usize) -> Result<Option<Vec<u8>>, SecretsError> {
    let file = match regular_file::open(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        opened => opened.map_err(|e| failed(path, &e))?,
    };
    let mut bytes = Vec::new();
    let read = file.take(max as u64 + 1).read_to_end(&mut bytes);
    read.map_err(|e| failed(path, &e))?;
    match bytes.len() > max {
        true => Err(SecretsError::File(format!(
            "{} has more than {max} bytes and is not what was kept there",
            path.display()
        ))),
        false => Ok(Some(bytes)),
    }
}

fn make_private(folder: &Path) -> Result<(), SecretsError> {
    atomic_file::make_folder(folder).map_err(|e| failed(folder, &e))
}

fn failed(path: &Path, error: &io::Error) -> SecretsError {
    SecretsError::File(explained(path, error))
}
