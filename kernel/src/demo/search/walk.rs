//! Goes through the files below a folder, within bounds. Links are not followed, so that nothing
//! outside is read and no circle is walked.

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Value, json};

use super::Needle;

/// Files looked at; a project fits, a whole disk does not.
pub(super) const MAX_FILES: usize = 10_000;
/// Folders that may wait to be looked into.
const MAX_FOLDERS: usize = 10_000;
/// Longer files are hardly text that somebody wrote, in bytes.
const MAX_SIZE: u64 = 1 << 20;
/// Characters shown of a line.
const MAX_LINE: usize = 200;

struct Search<'n> {
    root: &'n Path,
    needle: &'n Needle,
    matches: Vec<Value>,
    files: usize,
    complete: bool,
}

/// Searches below `folder`; `stopped` breaks it off.
pub(super) fn walk(root: &Path, folder: PathBuf, needle: &Needle, stopped: &AtomicBool) -> Value {
    let mut search = Search {
        root,
        needle,
        matches: Vec::new(),
        files: 0,
        complete: true,
    };
    let mut folders = vec![folder];
    while let Some(folder) = folders.pop()
        && search.complete
        && !stopped.load(Ordering::Relaxed)
    {
        let inner = search.folder(&folder);
        search.complete &= folders.len() + inner.len() <= MAX_FOLDERS;
        folders.extend(inner.into_iter().rev());
    }
    json!({
        "matches": search.matches,
        "files_searched": search.files,
        "complete": search.complete,
    })
}

impl Search<'_> {
    /// Looks through the files of a folder, in the order of their names; answers its folders.
    fn folder(&mut self, folder: &Path) -> Vec<PathBuf> {
        let visible = |e: &fs::DirEntry| !e.file_name().as_encoded_bytes().starts_with(b".");
        // A folder that cannot be read has nothing for whoever searches.
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        let mut entries: Vec<_> = entries.filter(visible).take(MAX_FILES).collect();
        entries.sort_by_key(fs::DirEntry::file_name);
        let mut folders = Vec::new();
        for entry in entries {
            match entry.file_type() {
                Ok(kind) if kind.is_dir() => folders.push(entry.path()),
                Ok(kind) if kind.is_file() && self.complete => self.file(&entry.path()),
                Ok(_) | Err(_) => {}
            }
        }
        folders
    }

    fn file(&mut self, path: &Path) {
        if self.files == MAX_FILES {
            self.complete = false;
            return;
        }
        let Some(text) = text(path) else { return };
        self.files += 1;
        let file = path
            .strip_prefix(self.root)
            .unwrap_or(path)
            .display()
            .to_string();
        for (number, line) in (1..).zip(text.lines()) {
            if !self.needle.is_in(line) {
                continue;
            }
            if self.matches.len() == self.needle.max_results {
                self.complete = false;
                return;
            }
            let shown: String = line.trim().chars().take(MAX_LINE).collect();
            self.matches
                .push(json!({"file": file, "line": number, "text": shown}));
        }
    }
}

impl Needle {
    fn is_in(&self, line: &str) -> bool {
        match self.ignore_case {
            true => line.to_lowercase().contains(&self.text),
            false => line.contains(&self.text),
        }
    }
}

/// The file's text; `None` when it is too long, binary or cannot be read.
fn text(path: &Path) -> Option<String> {
    let file = File::open(path).ok()?;
    if file.metadata().ok()?.len() > MAX_SIZE {
        return None;
    }
    let mut bytes = Vec::new();
    file.take(MAX_SIZE).read_to_end(&mut bytes).ok()?;
    let binary = bytes.contains(&0);
    (!binary).then(|| String::from_utf8_lossy(&bytes).into_owned())
}
