//! The keyring of the desktop (`org.freedesktop.secrets` on the session bus), used only while it is unlocked.
//! It is never asked to unlock anything, because that would open an unexpected window.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use dbus_secret_service::{Collection, EncryptionType, Error, SecretService};
use secrecy::SecretString;

pub use crate::KeyringItem;

/// The timeout of a request, which is answered by a local program without user interaction.
const TIMEOUT: Duration = Duration::from_secs(5);
/// The time between two checks whether an earlier request has been answered.
const POLL_INTERVAL: Duration = Duration::from_millis(10);
/// Identifies this program in every keyring item.
const APPLICATION: &str = "mgp";

/// The connection. Requests are serialized, so that a hung one blocks one thread at most.
#[derive(Clone, Debug, Default)]
pub struct Keyring {
    busy: Arc<AtomicBool>,
}

impl Keyring {
    /// Whether a secret can be stored there now.
    ///
    /// # Errors
    /// There is no keyring, it is locked, or it does not answer.
    pub fn state(&self) -> Result<(), String> {
        self.run_on_thread(|service| unlocked_collection(service).map(drop))
    }

    /// Stores a secret, replacing an earlier one.
    ///
    /// # Errors
    /// There is no keyring, it is locked, or it does not answer.
    pub fn set(&self, item: KeyringItem, value: SecretString) -> Result<(), String> {
        use secrecy::ExposeSecret;
        self.run_on_thread(move |service| {
            let label = format!("MGP: {}", item.name);
            let secret = value.expose_secret().as_bytes();
            let collection = unlocked_collection(service)?;
            let kept =
                collection.create_item(&label, attributes(&item), secret, true, "text/plain");
            kept.map(drop).map_err(|e| describe_error(&e))
        })
    }

    /// A secret; `None` if it is missing.
    ///
    /// # Errors
    /// There is no keyring, it is locked, or it does not answer.
    pub fn get(&self, item: KeyringItem) -> Result<Option<SecretString>, String> {
        self.run_on_thread(move |service| {
            let found = service
                .search_items(attributes(&item))
                .map_err(|e| describe_error(&e))?;
            let Some(first) = found.unlocked.first() else {
                return if found.locked.is_empty() {
                    Ok(None)
                } else {
                    Err(LOCKED.to_owned())
                };
            };
            let bytes = first.get_secret().map_err(|e| describe_error(&e))?;
            let text = String::from_utf8(bytes).map_err(|_| "it holds no text".to_owned())?;
            Ok(Some(SecretString::from(text)))
        })
    }

    /// Removes a secret if it exists.
    ///
    /// # Errors
    /// There is no keyring, it is locked, or it does not answer.
    pub fn remove(&self, item: KeyringItem) -> Result<(), String> {
        self.run_on_thread(move |service| {
            let found = service
                .search_items(attributes(&item))
                .map_err(|e| describe_error(&e))?;
            if !found.locked.is_empty() {
                return Err(LOCKED.to_owned());
            }
            for item in found.unlocked {
                item.delete().map_err(|e| describe_error(&e))?;
            }
            Ok(())
        })
    }

    /// Runs a request on a separate thread: the bus uses its own runtime there, and a hung request is abandoned.
    fn run_on_thread<T: Send + 'static>(
        &self,
        request: impl FnOnce(&SecretService) -> Result<T, String> + Send + 'static,
    ) -> Result<T, String> {
        let mut polls_left = TIMEOUT.as_millis() / POLL_INTERVAL.as_millis();
        while self.busy.swap(true, Ordering::AcqRel) {
            if polls_left == 0 {
                return Err(UNRESPONSIVE.to_owned());
            }
            polls_left -= 1;
            thread::sleep(POLL_INTERVAL);
        }
        let (answer, answered) = mpsc::channel();
        let asked = self.busy.clone();
        thread::spawn(move || {
            let service =
                SecretService::connect(EncryptionType::Dh).map_err(|e| describe_error(&e));
            let result = service.and_then(|service| request(&service));
            asked.store(false, Ordering::Release);
            // The caller may have stopped waiting.
            let _ = answer.send(result);
        });
        match answered.recv_timeout(TIMEOUT) {
            Ok(result) => result,
            Err(mpsc::RecvTimeoutError::Timeout) => Err(UNRESPONSIVE.to_owned()),
            Err(mpsc::RecvTimeoutError::Disconnected) => {
                self.busy.store(false, Ordering::Release);
                Err("the keyring could not be asked".to_owned())
            }
        }
    }
}

const LOCKED: &str = "the keyring is locked; unlock it, and try again";
const UNRESPONSIVE: &str = "the keyring does not answer";

fn attributes(item: &KeyringItem) -> HashMap<&str, &str> {
    HashMap::from([
        ("application", APPLICATION),
        ("store", &item.store),
        ("space", item.space),
        ("name", &item.name),
    ])
}

/// The collection for new items.
fn unlocked_collection(service: &SecretService) -> Result<Collection<'_>, String> {
    let none = "the desktop has no keyring yet";
    let collection = service.get_default_collection();
    let collection = collection.map_err(|e| {
        if matches!(e, Error::NoResult) {
            none.to_owned()
        } else {
            describe_error(&e)
        }
    })?;
    match collection.is_locked() {
        Ok(false) => Ok(collection),
        Ok(true) => Err(LOCKED.to_owned()),
        Err(e) => Err(describe_error(&e)),
    }
}

fn describe_error(error: &Error) -> String {
    if matches!(error, Error::Unavailable) {
        return "there is no keyring on this machine".to_owned();
    }
    if matches!(error, Error::Locked) {
        LOCKED.to_owned()
    } else {
        format!("the keyring: {error}")
    }
}
