//! Failures of the disk, for reports on the kernel's state.

use std::io;
use std::path::Path;
use std::sync::Arc;

use tokio::sync::watch;

/// Whether one file can be written, and if not, why. Clones share the state.
#[derive(Clone, Debug, Default)]
pub struct DiskHealth(Arc<watch::Sender<Option<Arc<str>>>>);

impl DiskHealth {
    /// Why the file cannot be written, with a remedy; `None` if it can.
    #[must_use]
    pub(crate) fn failure(&self) -> Option<Arc<str>> {
        self.0.borrow().clone()
    }

    /// Resolves when the file can be written.
    pub async fn wait_recovered(&self) {
        // `self` holds the sender, so this cannot fail.
        let _ = self.0.subscribe().wait_for(Option::is_none).await;
    }

    /// Whether other clones exist.
    #[cfg(test)]
    pub(crate) fn is_shared(&self) -> bool {
        Arc::strong_count(&self.0) > 1
    }

    pub(crate) fn set_failure(&self, why: &str) {
        self.0.send_replace(Some(why.into()));
    }

    pub(crate) fn clear_failure(&self) {
        self.0.send_replace(None);
    }
}

/// The health of all files of a kernel.
#[derive(Clone, Debug, Default)]
pub struct StorageHealth {
    files: Vec<DiskHealth>,
    startup_faults: Arc<[String]>,
}

impl StorageHealth {
    /// Tracks these files, with the faults found at startup.
    #[must_use]
    pub fn new(files: Vec<DiskHealth>, found: Vec<String>) -> Self {
        let startup_faults = found.into();
        Self {
            files,
            startup_faults,
        }
    }

    /// True while one of the files cannot be written.
    #[must_use]
    pub fn has_failure(&self) -> bool {
        self.files.iter().any(|file| file.failure().is_some())
    }

    /// Descriptions of all faults, each with a remedy.
    #[must_use]
    pub fn failures(&self) -> Vec<String> {
        let now = self.files.iter().filter_map(DiskHealth::failure);
        let now =
            now.map(|why| format!("{why}; what is refused for that is taken again by itself"));
        now.chain(self.startup_faults.iter().cloned()).collect()
    }
}

/// An error message that names its file and a remedy.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct ExplainedFailure(String);

/// The same error with the path and a remedy in its message, which [`explain_io_error`] returns unchanged.
pub fn with_path(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(
        error.kind(),
        ExplainedFailure(explain_io_error(path, error)),
    )
}

/// One line: why a file below this path cannot be written, with a remedy.
#[must_use]
pub fn explain_io_error(path: &Path, error: &io::Error) -> String {
    if let Some(inner) = error.get_ref()
        && inner.is::<ExplainedFailure>()
    {
        return error.to_string();
    }
    let full = [
        io::ErrorKind::StorageFull,
        io::ErrorKind::QuotaExceeded,
        io::ErrorKind::FileTooLarge,
    ];
    let path = path.display();
    let remedy = if full.contains(&error.kind()) {
        "; free some space there, or raise the limit"
    } else if error.kind() == io::ErrorKind::ReadOnlyFilesystem {
        "; mount it to be written, or keep the data elsewhere"
    } else {
        ""
    };
    format!("{path}: {error}{remedy}")
}
