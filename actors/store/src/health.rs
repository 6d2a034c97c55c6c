//! Failures of the disk, for reports on the kernel's state.

use std::io;
use std::path::Path;
use std::sync::Arc;

use tokio::sync::watch;

/// Whether one file can be written, and if not, why. All clones describe the same file.
#[derive(Clone, Debug, Default)]
pub struct DiskHealth(Arc<watch::Sender<Option<Arc<str>>>>);

impl DiskHealth {
    /// Why the file cannot be written, and what to do; `None` when all is well.
    #[must_use]
    pub(crate) fn failure(&self) -> Option<Arc<str>> {
        self.0.borrow().clone()
    }

    /// Resolves when the file can be written.
    pub async fn wait_recovered(&self) {
        // Holds its own sender.
        let _ = self.0.subscribe().wait_for(Option::is_none).await;
    }

    /// Whether anybody else describes this file still.
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

/// The state of all files of a kernel.
#[derive(Clone, Debug, Default)]
pub struct StorageHealth {
    files: Vec<DiskHealth>,
    startup_faults: Arc<[String]>,
}

impl StorageHealth {
    /// Of these files, with the faults found at the start.
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

    /// All faults in words, each with what to do.
    #[must_use]
    pub fn failures(&self) -> Vec<String> {
        let now = self.files.iter().filter_map(DiskHealth::failure);
        let now =
            now.map(|why| format!("{why}; what is refused for that is taken again by itself"));
        now.chain(self.startup_faults.iter().cloned()).collect()
    }
}

/// A failure that names its file and what to do.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct ExplainedFailure(String);

/// The same error with the path and what to do in its words, which [`explain_io_error`] takes over as they are.
pub fn with_path(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(
        error.kind(),
        ExplainedFailure(explain_io_error(path, error)),
    )
}

/// Why a file below this path cannot be written, and what to do about it: one line.
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
