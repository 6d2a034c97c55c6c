//! The keyring of the desktop: none is known here, so secrets are in the sealed file.

use secrecy::SecretString;

pub use crate::KeyringItem;

const NONE: &str = "this system's keyring is not known here";

/// No keyring.
#[derive(Clone, Debug, Default)]
pub struct Keyring;

impl Keyring {
    /// Whether a secret can be stored there now: never.
    ///
    /// # Errors
    /// Always.
    pub fn state(&self) -> Result<(), String> {
        Err(NONE.to_owned())
    }

    /// Stores nothing.
    ///
    /// # Errors
    /// Always.
    pub fn set(&self, _item: KeyringItem, _value: SecretString) -> Result<(), String> {
        Err(NONE.to_owned())
    }

    /// Finds nothing.
    ///
    /// # Errors
    /// Always.
    pub fn get(&self, _item: KeyringItem) -> Result<Option<SecretString>, String> {
        Err(NONE.to_owned())
    }

    /// Removes nothing.
    ///
    /// # Errors
    /// Always.
    pub fn remove(&self, _item: KeyringItem) -> Result<(), String> {
        Err(NONE.to_owned())
    }
}
