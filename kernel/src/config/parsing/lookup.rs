//! Resolves variables, secrets and files that values refer to.

use std::fs;
use std::io::Read;
use std::path::Path;

use mgp_store::regular_file;

/// Longest secret read from a file, in bytes.
const SECRET_BYTES_MAX: u64 = 64 << 10;

/// The placeholder of the secret's name in the command.
pub(crate) const NAME_PLACEHOLDER: &str = "{name}";

/// `[secrets]`.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct SecretsConfig {
    /// Whether the desktop's keyring is used; by default only for the home of the account.
    pub(crate) keyring: Option<bool>,
    /// A command for secrets that are not stored here, with its arguments; empty for none.
    pub(crate) command: Vec<String>,
}

/// Resolves the kernel's variables and named secrets.
pub(crate) trait Lookup {
    /// A variable; `None` if it is not set.
    fn variable(&self, name: &str) -> Option<String>;

    /// A secret, with the settings of `[secrets]` read so far.
    ///
    /// # Errors
    /// A description with the remedy.
    fn secret(&self, name: &str, secrets: &SecretsConfig) -> Result<String, String>;

    /// The contents of a file that a value refers to.
    ///
    /// # Errors
    /// A description without the contents.
    fn file(&self, path: &Path) -> Result<String, String> {
        read_secret(path)
    }

    /// All secrets resolved so far, to be masked.
    fn resolved_secrets(&self) -> Vec<String> {
        Vec::new()
    }
}

/// Variables alone, for callers to whom values do not matter: each secret is the variable of its name.
impl<F: Fn(&str) -> Option<String>> Lookup for F {
    fn variable(&self, name: &str) -> Option<String> {
        self(name)
    }

    fn secret(&self, name: &str, _: &SecretsConfig) -> Result<String, String> {
        self(name).ok_or_else(|| "secrets are not read for this".to_owned())
    }
}

/// For checks of the shape of a file: every reference resolves, and nothing is read or opened.
pub(crate) struct PlaceholderLookup;

/// The value of each reference: valid wherever an address is expected.
const PLACEHOLDER_VALUE: &str = "https://set";

impl Lookup for PlaceholderLookup {
    fn variable(&self, _: &str) -> Option<String> {
        Some(PLACEHOLDER_VALUE.to_owned())
    }

    fn secret(&self, _: &str, _: &SecretsConfig) -> Result<String, String> {
        Ok(PLACEHOLDER_VALUE.to_owned())
    }

    /// Checks that a regular file exists.
    fn file(&self, path: &Path) -> Result<String, String> {
        match fs::metadata(path) {
            Ok(found) if found.is_file() => Ok(PLACEHOLDER_VALUE.to_owned()),
            Ok(_) => Err("it is no plain file".to_owned()),
            Err(e) => Err(e.to_string()),
        }
    }
}

fn read_secret(path: &Path) -> Result<String, String> {
    let mut text = String::new();
    let file = regular_file::open(path).map_err(|e| e.to_string())?;
    file.take(SECRET_BYTES_MAX + 1)
        .read_to_string(&mut text)
        .map_err(|e| e.to_string())?;
    if text.len() as u64 > SECRET_BYTES_MAX {
        Err(format!("more than {SECRET_BYTES_MAX} bytes"))
    } else {
        Ok(text)
    }
}
