//! Changes of files, found by reading their folders again.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread;
use std::time::Duration;

pub use crate::Depth;

/// How often the folders are read.
const INTERVAL: Duration = Duration::from_millis(500);
/// Most files that are watched in one folder and those inside; further ones are not.
const FILES_MAX: usize = 65_536;

/// What changes when a file does: its inode, size and times, to the nanosecond.
type Version = (u64, u64, i64, i64, i64, i64);
type Snapshot = BTreeMap<PathBuf, Version>;

/// Watches folders until it is dropped.
#[derive(Debug)]
pub struct Watcher(Arc<Mutex<Vec<WatchedFolder>>>);

#[derive(Debug)]
struct WatchedFolder {
    folder: PathBuf,
    depth: Depth,
    snapshot: Snapshot,
}

impl Watcher {
    /// Calls `on_change` with changed paths, on a thread of its own.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn new(on_change: impl Fn(&[PathBuf]) + Send + 'static) -> Result<Self, String> {
        let folders = Arc::new(Mutex::new(Vec::new()));
        let watched = Arc::downgrade(&folders);
        let thread = thread::Builder::new().name("watch".into());
        thread
            .spawn(move || report_changes(&watched, on_change))
            .map_err(|e| e.to_string())?;
        Ok(Self(folders))
    }

    /// Also watches this folder.
    ///
    /// # Errors
    /// There is no such folder.
    pub fn add(&mut self, folder: &Path, depth: Depth) -> Result<(), String> {
        fs::read_dir(folder).map_err(|e| e.to_string())?;
        let watched = WatchedFolder {
            folder: folder.to_owned(),
            depth,
            snapshot: take_snapshot(folder, depth),
        };
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.push(watched);
        Ok(())
    }
}

fn report_changes(folders: &Weak<Mutex<Vec<WatchedFolder>>>, on_change: impl Fn(&[PathBuf])) {
    loop {
        thread::sleep(INTERVAL);
        let Some(folders) = folders.upgrade() else {
            return;
        };
        let mut changed = Vec::new();
        for watched in &mut *folders.lock().unwrap_or_else(PoisonError::into_inner) {
            let now = take_snapshot(&watched.folder, watched.depth);
            changed.extend(find_changes(&watched.snapshot, &now));
            watched.snapshot = now;
        }
        if !changed.is_empty() {
            on_change(&changed);
        }
    }
}

fn find_changes(before: &Snapshot, now: &Snapshot) -> Vec<PathBuf> {
    let is_new = |(path, version): &(&PathBuf, &Version)| before.get(*path) != Some(*version);
    let new = now.iter().filter(is_new).map(|(path, _)| path);
    let gone = before.keys().filter(|path| !now.contains_key(*path));
    new.chain(gone).cloned().collect()
}

fn take_snapshot(folder: &Path, depth: Depth) -> Snapshot {
    let mut found = Snapshot::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        // A folder that is gone has no files.
        let _ = read_folder(&folder, depth, &mut found, &mut folders);
    }
    found
}

fn read_folder(
    folder: &Path,
    depth: Depth,
    found: &mut Snapshot,
    folders: &mut Vec<PathBuf>,
) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let (path, of) = (entry?.path(), |m: &fs::Metadata| {
            (
                m.ino(),
                m.len(),
                m.mtime(),
                m.mtime_nsec(),
                m.ctime(),
                m.ctime_nsec(),
            )
        });
        let Ok(metadata) = path.symlink_metadata() else {
            continue;
        };
        if found.len() == FILES_MAX {
            break;
        }
        if metadata.is_dir() && depth == Depth::Tree {
            folders.push(path.clone());
        }
        // The target of a link may change, too.
        let target = path.metadata();
        let version = target.as_ref().map_or_else(|_| of(&metadata), of);
        found.insert(path, version);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn changes_are_reported_with_their_paths() {
        let folder = tempfile::tempdir().unwrap();
        let (inner, file) = (folder.path().join("inner"), folder.path().join("inner/a"));
        fs::create_dir(&inner).unwrap();
        let (sender, changes) = mpsc::channel();
        let mut watcher = Watcher::new(move |paths| {
            let _ = sender.send(paths.to_vec());
        })
        .unwrap();
        watcher.add(folder.path(), Depth::Tree).unwrap();
        let next = || changes.recv_timeout(Duration::from_secs(20)).unwrap();
        fs::write(&file, "1").unwrap();
        assert!(next().contains(&file));
        fs::write(&file, "22").unwrap();
        assert!(next().contains(&file));
        fs::remove_file(&file).unwrap();
        assert!(next().contains(&file));
        drop(watcher);
        assert!(changes.recv().is_err(), "the thread ends");
        let mut other = Watcher::new(|_| {}).unwrap();
        assert!(other.add(&file, Depth::Folder).is_err());
    }
}
