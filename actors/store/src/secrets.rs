//! Named secrets, in one sealed file per namespace; the key is stored in a separate file.
//!
//! Every change reads the file, changes it and replaces it under a lock that all processes of the user take,
//! because the command line and a kernel may change it concurrently. Reads take no lock, as files are replaced
//! atomically. All of this blocks on the disk, so tasks call it on a blocking thread.

mod sealed_file;

use std::path::{Path, PathBuf};

use mgp_engine::store::secrets::{SecretError, SecretRecord, check_name, check_value};
use mgp_platform::keyring::{Keyring, KeyringItem};
use mgp_runtime::time::unix_ms;
use secrecy::{ExposeSecret, SecretString};

pub use mgp_engine::store::secrets::Namespace;

use self::sealed_file::SealedFiles;

/// Where secrets are stored, and how they are read. Cheap to clone; holds no secret.
#[derive(Clone, Debug)]
pub struct SecretStore {
    files: SealedFiles,
    keyring: Option<Keyring>,
}

/// Where a secret is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SecretLocation {
    /// The sealed file.
    File,
    /// The keyring of the desktop.
    Keyring,
}

/// The metadata of a secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SecretEntry {
    /// Its name.
    pub name: String,
    /// Where its value is stored.
    pub location: SecretLocation,
    /// When it was set, in milliseconds since 1970.
    pub set_ms: u64,
}

/// Why a secret cannot be read or stored, with a remedy. Never contains a value.
#[derive(Debug, thiserror::Error)]
pub enum SecretsError {
    /// A limit was exceeded or the name is invalid.
    #[error(transparent)]
    Rejected(#[from] SecretError),
    /// A file cannot be read or written; the message names its path.
    #[error("{0}")]
    File(String),
    /// The keyring failed.
    #[error("{0}")]
    Keyring(String),
}

impl SecretStore {
    /// The store with sealed files in `folder`, which is created with the first secret, and the key in the file
    /// `key`, preferably in another folder: a copy of only one of them reveals nothing.
    #[must_use]
    pub fn new(folder: &Path, key: &Path) -> Self {
        Self {
            files: SealedFiles::new(folder, key),
            keyring: None,
        }
    }

    /// Also uses the keyring of the desktop: values set while it is unlocked are stored there, and the file
    /// holds their names.
    #[must_use]
    pub fn with_keyring(self) -> Self {
        Self {
            keyring: Some(Keyring::default()),
            ..self
        }
    }

    /// Whether secrets can be stored in the keyring now; `None` if it is not used.
    #[must_use]
    pub fn keyring_state(&self) -> Option<Result<(), String>> {
        self.keyring.as_ref().map(Keyring::state)
    }

    /// The value of a secret; `None` if there is no such secret.
    ///
    /// # Errors
    /// [`SecretsError`].
    pub fn get(&self, space: Namespace, name: &str) -> Result<Option<SecretString>, SecretsError> {
        let records = self.files.read(space)?;
        let Some(record) = records.get(name) else {
            return Ok(None);
        };
        if let Some(value) = &record.value {
            return Ok(Some(SecretString::from(value.clone())));
        }
        let stored = self.with_keyring_item(space, name, Keyring::get)?;
        let lost = || {
            SecretsError::Keyring(format!(
                "the secret {name} was in the keyring of the desktop and is no more; set it again"
            ))
        };
        stored.ok_or_else(lost).map(Some)
    }

    /// Stores a secret, replacing an existing one of this name. When this returns, it survives a power cut.
    ///
    /// # Errors
    /// [`SecretsError`]; then the old one is still there, or the keyring has the new one already.
    pub fn set(
        &self,
        space: Namespace,
        name: &str,
        value: &SecretString,
    ) -> Result<SecretLocation, SecretsError> {
        check_name(name)?;
        check_value(value.expose_secret())?;
        let _lock = self.files.lock()?;
        let mut records = self.files.read(space)?;
        let record = |value: Option<String>| SecretRecord {
            value,
            set_ms: unix_ms(),
        };
        let was_in_keyring = records.get(name).is_some_and(|it| it.value.is_none());
        // The limits apply to both locations.
        records.set(name, record(None))?;
        let in_keyring = match &self.keyring {
            Some(keyring) => keyring
                .set(self.keyring_item(space, name)?, value.clone())
                .is_ok(),
            None => false,
        };
        if !in_keyring {
            let value = value.expose_secret().to_owned();
            records.set(name, record(Some(value)))?;
        }
        self.files.write(space, &records)?;
        if was_in_keyring && !in_keyring {
            self.clear_keyring(space, name);
        }
        if in_keyring {
            Ok(SecretLocation::Keyring)
        } else {
            Ok(SecretLocation::File)
        }
    }

    /// Removes a secret; false if there is no such secret.
    ///
    /// # Errors
    /// [`SecretsError`]; then it is still there.
    pub fn remove(&self, space: Namespace, name: &str) -> Result<bool, SecretsError> {
        if self.files.read(space)?.get(name).is_none() {
            return Ok(false);
        }
        let _lock = self.files.lock()?;
        let mut records = self.files.read(space)?;
        let Some(record) = records.remove(name) else {
            return Ok(false);
        };
        match record.value {
            None => self.with_keyring_item(space, name, Keyring::remove)?,
            Some(_) => self.clear_keyring(space, name),
        }
        self.files.write(space, &records)?;
        Ok(true)
    }

    /// The metadata of all secrets of a namespace, sorted by name.
    ///
    /// # Errors
    /// [`SecretsError`].
    pub fn list(&self, space: Namespace) -> Result<Vec<SecretEntry>, SecretsError> {
        let records = self.files.read(space)?;
        let stored = records.iter().map(|(name, record)| SecretEntry {
            name: name.to_owned(),
            location: match record.value {
                Some(_) => SecretLocation::File,
                None => SecretLocation::Keyring,
            },
            set_ms: record.set_ms,
        });
        Ok(stored.collect())
    }

    fn keyring_item(&self, space: Namespace, name: &str) -> Result<KeyringItem, SecretsError> {
        Ok(KeyringItem {
            store: self.files.key()?.fingerprint(),
            space: space.as_str(),
            name: name.to_owned(),
        })
    }

    /// Runs a keyring operation for an existing secret.
    fn with_keyring_item<T>(
        &self,
        space: Namespace,
        name: &str,
        ask: impl Fn(&Keyring, KeyringItem) -> Result<T, String>,
    ) -> Result<T, SecretsError> {
        let keyring_error = |why: &str| {
            SecretsError::Keyring(format!(
                "the secret {name} is in the keyring of the desktop: {why}"
            ))
        };
        let keyring = self.keyring.as_ref().ok_or_else(|| {
            keyring_error(
                "which is not used here; set it again, or set `keyring = true` in [secrets]",
            )
        })?;
        ask(keyring, self.keyring_item(space, name)?).map_err(|why| keyring_error(&why))
    }

    /// Removes a stale keyring item of a secret that is stored in the file: an earlier value, or one that the keyring
    /// accepted after the timeout. A locked keyring keeps it.
    fn clear_keyring(&self, space: Namespace, name: &str) {
        if let (Some(keyring), Ok(item)) = (&self.keyring, self.keyring_item(space, name)) {
            let _ = keyring.remove(item);
        }
    }

    /// The folder with the sealed files.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.files.folder
    }

    /// The key file.
    #[must_use]
    pub fn key(&self) -> &Path {
        &self.files.key
    }

    /// The sealed file of a namespace.
    #[must_use]
    pub fn file(&self, space: Namespace) -> PathBuf {
        self.files.file(space)
    }
}

#[cfg(test)]
mod tests;
