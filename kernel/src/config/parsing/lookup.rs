//! Where the values come from that a file only refers to.

use std::fs;
use std::io::Read;
use std::path::Path;

use mgp_store::regular_file;

/// Longest secret read from a file, in bytes.
const SECRET_BYTES_MAX: u64 = 64 << 10;

/// What a word of the command holds in the place of the name.
pub(crate) const NAME_PLACEHOLDER: &str = "{name}";

/// `[secrets]`.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct SecretsConfig {
    /// Whether the keyring of the desktop is used; where nothing is said, for the home of the account alone.
    pub(crate) keyring: Option<bool>,
    /// A program that is asked for what is not kept here, with its arguments; empty where there is none.
    pub command: Vec<String>,
}

/// The kernel's variables, and the secrets that are kept by their names.
pub trait Lookup {
    /// A variable; `None` where it is not set.
    fn variable(&self, name: &str) -> Option<String>;

    /// A secret, as far as `[secrets]` of the files so far says where secrets are.
    ///
    /// # Errors
    /// In words, with what to do.
    fn secret(&self, name: &str, secrets: &SecretsConfig) -> Result<String, String>;

    /// What a file holds that a value refers to.
    ///
    /// # Errors
    /// In words, without what it holds.
    fn file(&self, path: &Path) -> Result<String, String> {
        read_secret(path)
    }

    /// Every secret that was had so far: it is masked where it might be seen.
    fn resolved_secrets(&self) -> Vec<String> {
        Vec::new()
    }
}

/// Variables alone, for whom values do not matter: a secret is then whatever a variable of its name is.
impl<F: Fn(&str) -> Option<String>> Lookup for F {
    fn variable(&self, name: &str) -> Option<String> {
        self(name)
    }

    fn secret(&self, name: &str, _: &SecretsConfig) -> Result<String, String> {
        self(name).ok_or_else(|| "secrets are not read for this".to_owned())
    }
}

/// For whom only the shape of a file matters: every reference is had, and nothing is read or opened for it.
pub(crate) struct PlaceholderLookup;

/// What each of them is: it may stand wherever an address is wanted.
const PLACEHOLDER_VALUE: &str = "https://set";

impl Lookup for PlaceholderLookup {
    fn variable(&self, _: &str) -> Option<String> {
        Some(PLACEHOLDER_VALUE.to_owned())
    }

    fn secret(&self, _: &str, _: &SecretsConfig) -> Result<String, String> {
        Ok(PLACEHOLDER_VALUE.to_owned())
    }

    /// Whether there is one, and it is a plain one.
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
