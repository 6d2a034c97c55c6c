//! Where a kernel says that it runs: in its data folder, and where those look who know only the user.

use std::fs::File;
use std::path::{Path, PathBuf};

use mgp_discovery::config::LookUp;
use mgp_runtime::time::unix_ms;

use super::lock::{self, FolderLock};
use super::options::UpOptions;
use super::running::RunningKernel;
use crate::paths::{LastUsed, private_folder};

/// A kernel that holds its data folder and has said so. Dropping it takes the word back.
pub(super) struct Announced {
    record: RunningKernel,
    folders: Vec<PathBuf>,
    /// The lock goes last.
    _lock: FolderLock,
}

impl Announced {
    /// Holds the data folder and records the kernel. A user's usual kernel is the only one: two whose
    /// folders differ because two environments do are not started beside each other.
    pub(super) fn hold(options: &UpOptions) -> Result<Self, String> {
        let folders = writable(&options.record_folders);
        // Two that start at once see each other.
        let _turns: Vec<_> = folders.iter().filter_map(|folder| turn(folder)).collect();
        if !options.named
            && let Some(other) = usual_kernel(&folders, &options.data_dir)
        {
            return Err(runs_already(&other));
        }
        let lock = lock::take(&options.data_dir)?;
        let record = RunningKernel {
            pid: std::process::id(),
            since: unix_ms() / 1000,
            socket: options.socket.clone(),
            data_dir: options.data_dir.clone(),
            named: options.named,
        };
        let mut announced = Self {
            record,
            folders: Vec::new(),
            _lock: lock,
        };
        announced.tell(&options.data_dir);
        for folder in folders {
            announced.tell_at(folder);
        }
        if !options.named {
            keep(options);
        }
        Ok(announced)
    }

    /// Records it in a folder of the user, unless a kernel is there that comes before.
    fn tell_at(&mut self, folder: PathBuf) {
        let other = RunningKernel::live(&folder).filter(|other| other.pid != self.record.pid);
        let goes_before = |other: RunningKernel| self.record.named || !other.named;
        if folder != self.record.data_dir && !other.is_some_and(goes_before) {
            self.tell(&folder);
        }
    }

    fn tell(&mut self, folder: &Path) {
        match self.record.write(folder) {
            Ok(()) => self.folders.push(folder.to_owned()),
            Err(e) => tracing::warn!(
                "{}: clients with another environment will not find this kernel: {e}",
                folder.display()
            ),
        }
    }
}

impl Drop for Announced {
    fn drop(&mut self) {
        for folder in &self.folders {
            self.record.forget(folder);
        }
    }
}

/// Those of the folders that can be had; a home that is read-only keeps no kernel from starting.
fn writable(folders: &[PathBuf]) -> Vec<PathBuf> {
    let had = |folder: &&PathBuf| match private_folder(folder) {
        Ok(()) => true,
        Err(e) => {
            tracing::warn!("no record of this kernel is kept where others look: {e}");
            false
        }
    };
    folders.iter().filter(had).cloned().collect()
}

fn turn(folder: &Path) -> Option<File> {
    let folder = File::open(folder).ok()?;
    folder.lock().is_ok().then_some(folder)
}

fn usual_kernel(folders: &[PathBuf], data_dir: &Path) -> Option<RunningKernel> {
    let live = folders
        .iter()
        .filter_map(|folder| RunningKernel::live(folder));
    let mut usual = live.filter(|other| !other.named && other.data_dir != data_dir);
    usual.next()
}

fn runs_already(other: &RunningKernel) -> String {
    format!(
        "a kernel (process {}) already runs for this user on {}, listening at {}; use it, stop it with `mgp down`, or give this one its own folder with --data-dir",
        other.pid,
        other.data_dir.display(),
        other.socket.display()
    )
}

/// Leaves to the next kernel where this one has its things. Who starts that one may know less.
fn keep(options: &UpOptions) {
    let Some(home) = options.record_folders.last() else {
        return;
    };
    let config_home = |look_up: &LookUp| look_up.config_home.clone();
    let kept = LastUsed {
        data_dir: Some(options.data_dir.clone()),
        config_home: options.look_up.as_ref().and_then(config_home),
    };
    if let Err(e) = kept.write(home) {
        tracing::warn!("{}: {e}", home.display());
    }
}
