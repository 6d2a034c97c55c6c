//! Changes of files (inotify).

use std::path::{Path, PathBuf};

use notify::{RecommendedWatcher, RecursiveMode, Watcher as _};

pub use crate::Depth;

/// Watches folders until it is dropped.
#[derive(Debug)]
pub struct Watcher(RecommendedWatcher);

impl Watcher {
    /// Calls `on_change` with changed paths, on a thread of its own.
    ///
    /// # Errors
    /// The system allows no more watchers.
    pub fn new(on_change: impl Fn(&[PathBuf]) + Send + 'static) -> Result<Self, String> {
        let report = move |event: notify::Result<notify::Event>| {
            if let Ok(event) = event
                && !event.kind.is_access()
            {
                on_change(&event.paths);
            }
        };
        let watcher = notify::recommended_watcher(report);
        watcher.map(Self).map_err(|e| e.to_string())
    }

    /// Also watches this folder.
    ///
    /// # Errors
    /// There is no such folder, or the system allows no more.
    pub fn add(&mut self, folder: &Path, depth: Depth) -> Result<(), String> {
        let mode = match depth {
            Depth::Folder => RecursiveMode::NonRecursive,
            Depth::Tree => RecursiveMode::Recursive,
        };
        self.0.watch(folder, mode).map_err(|e| e.to_string())
    }
}
