//! Records the running kernel: in its data folder, and in the user's folders, for clients that know only the user.

use std::fs::File;
use std::path::{Path, PathBuf};

use mgp_discovery::ConfigLookup;
use mgp_runtime::time::unix_ms;

use super::lock::{self, FolderLock};
use super::options::KernelOptions;
use super::running_kernel::RunningKernel;
use crate::paths::{LastUsed, ensure_private_folder};

/// A kernel that holds its data folder and is recorded as running. Dropping it removes the record.
pub(super) struct RunningRecord {
    record: RunningKernel,
    folders: Vec<PathBuf>,
    /// Released last.
    lock: FolderLock,
}

impl RunningRecord {
    /// Locks the data folder, unless the kernel before this one handed its lock over, and records the kernel. A user has only one usual kernel: a second one whose
    /// folder differs because of another environment is rejected.
    pub(super) fn acquire(options: &mut KernelOptions) -> Result<Self, String> {
        let inherited = options.inherited.lock.take();
        let inherited = inherited.filter(|lock| lock.locks(&options.data_dir));
        let options = &*options;
        let folders = writable_folders(&options.record_folders);
        // Two kernels that start at once see each other.
        let _folder_locks: Vec<_> = folders
            .iter()
            .filter_map(|folder| lock_folder(folder))
            .collect();
        if !options.is_data_dir_named
            && let Some(other) = usual_kernel(&folders, &options.data_dir)
        {
            return Err(already_running_message(&other));
        }
        let lock = match inherited {
            Some(lock) => lock,
            None => lock::acquire(&options.data_dir)?,
        };
        let record = RunningKernel {
            pid: std::process::id(),
            since: unix_ms() / 1000,
            socket: options.socket.clone(),
            data_dir: options.data_dir.clone(),
            named: options.is_data_dir_named,
        };
        let mut announced = Self {
            record,
            folders: Vec::new(),
            lock,
        };
        announced.write_record(&options.data_dir);
        for folder in folders {
            announced.record_if_preferred(folder);
        }
        if !options.is_data_dir_named {
            save_last_used(options);
        }
        Ok(announced)
    }

    /// The lock, for the program that takes over.
    pub(super) fn lock(&self) -> &FolderLock {
        &self.lock
    }

    /// Records it in a folder of the user, unless a kernel of higher precedence is recorded there.
    fn record_if_preferred(&mut self, folder: PathBuf) {
        let other = RunningKernel::find_live(&folder).filter(|other| other.pid != self.record.pid);
        let goes_before = |other: RunningKernel| self.record.named || !other.named;
        if folder != self.record.data_dir && !other.is_some_and(goes_before) {
            self.write_record(&folder);
        }
    }

    fn write_record(&mut self, folder: &Path) {
        match self.record.write(folder) {
            Ok(()) => self.folders.push(folder.to_owned()),
            Err(e) => tracing::warn!(
                "{}: clients with another environment will not find this kernel: {e}",
                folder.display()
            ),
        }
    }
}

impl Drop for RunningRecord {
    fn drop(&mut self) {
        for folder in &self.folders {
            self.record.remove(folder);
        }
    }
}

/// The folders that can be created: a read-only home does not prevent a start.
fn writable_folders(folders: &[PathBuf]) -> Vec<PathBuf> {
    let had = |folder: &&PathBuf| match ensure_private_folder(folder) {
        Ok(()) => true,
        Err(e) => {
            tracing::warn!("this kernel could not be recorded for clients: {e}");
            false
        }
    };
    folders.iter().filter(had).cloned().collect()
}

fn lock_folder(folder: &Path) -> Option<File> {
    let folder = File::open(folder).ok()?;
    folder.lock().is_ok().then_some(folder)
}

fn usual_kernel(folders: &[PathBuf], data_dir: &Path) -> Option<RunningKernel> {
    let live = folders
        .iter()
        .filter_map(|folder| RunningKernel::find_live(folder));
    let mut usual = live.filter(|other| !other.named && other.data_dir != data_dir);
    usual.next()
}

fn already_running_message(other: &RunningKernel) -> String {
    format!(
        "a kernel (process {}) already runs for this user on {}, listening at {}; use it, stop it with `mgp down`, or give this one its own folder with --data-dir",
        other.pid,
        other.data_dir.display(),
        other.socket.display()
    )
}

/// Saves the locations of this kernel for the next start, which may be given fewer options.
fn save_last_used(options: &KernelOptions) {
    let Some(home) = options.record_folders.last() else {
        return;
    };
    let config_home = |look_up: &ConfigLookup| look_up.config_home.clone();
    let last_used = LastUsed {
        data_dir: Some(options.data_dir.clone()),
        config_home: options.look_up.as_ref().and_then(config_home),
    };
    if let Err(e) = last_used.write(home) {
        tracing::warn!("{}: {e}", home.display());
    }
}
