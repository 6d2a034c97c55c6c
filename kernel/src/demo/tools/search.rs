//! `search_text`: finds lines in the text files below a folder, within bounds. Links are not followed, so that nothing
//! outside is read and there are no cycles.

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::{check_range, error_result, parse_arguments, structured_result};
use crate::demo::session::DemoSession;

const MAX_RESULTS: u64 = 200;
const MAX_PATTERN: usize = 200;
/// Files that are searched: enough for a project.
const MAX_FILES: usize = 10_000;
/// Folders in the queue.
const MAX_FOLDERS: usize = 10_000;
/// Longer files are skipped as unlikely to be text, in bytes.
const MAX_SIZE: u64 = 1 << 20;
/// Characters returned of a line.
const MAX_LINE: usize = 200;

pub(super) fn tool_definition() -> Value {
    json!({
        "name": "search_text",
        "title": "Search text",
        "description": "Finds the lines that contain a text, in the files below a folder. Hidden, \
                        binary and very long files are passed over.",
        "inputSchema": {
            "type": "object",
            "properties": {
                "pattern": {
                    "type": "string", "minLength": 1, "maxLength": MAX_PATTERN,
                    "description": "The text to find, as it stands",
                },
                "folder": {
                    "type": "string", "default": ".",
                    "description": "A folder below the one this server may read",
                },
                "max_results": {
                    "type": "integer", "minimum": 1, "maximum": MAX_RESULTS, "default": 20,
                },
                "ignore_case": {"type": "boolean", "default": false},
            },
            "required": ["pattern"],
            "additionalProperties": false,
        },
        "outputSchema": {
            "type": "object",
            "properties": {
                "matches": {"type": "array", "items": {
                    "type": "object",
                    "properties": {
                        "file": {"type": "string"},
                        "line": {"type": "integer"},
                        "text": {"type": "string"},
                    },
                    "required": ["file", "line", "text"],
                }},
                "files_searched": {"type": "integer"},
                "complete": {
                    "type": "boolean",
                    "description": format!("False when max_results or {MAX_FILES} files were reached"),
                },
            },
            "required": ["matches", "files_searched", "complete"],
        },
        "annotations": {"readOnlyHint": true, "idempotentHint": true, "openWorldHint": false},
    })
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SearchArguments {
    pattern: String,
    folder: Option<PathBuf>,
    max_results: Option<u64>,
    #[serde(default)]
    ignore_case: bool,
}

pub(super) async fn search_text(session: &DemoSession, arguments: Value) -> Result<Value, String> {
    let mut parsed: SearchArguments = parse_arguments(arguments)?;
    if parsed.pattern.is_empty() || parsed.pattern.chars().count() > MAX_PATTERN {
        return Err(format!("pattern has 1 to {MAX_PATTERN} characters"));
    }
    if parsed.ignore_case {
        parsed.pattern = parsed.pattern.to_lowercase();
    }
    let most = check_range(
        "max_results",
        parsed.max_results.unwrap_or(20),
        1..=MAX_RESULTS,
    )?;
    let folder = parsed.folder.take().unwrap_or_else(|| ".".into());
    let folder = match resolve_below(&session.root, &folder) {
        Ok(folder) => folder,
        Err(why) => return Ok(error_result(&why)),
    };
    let stopped = CancellationToken::new();
    // Ends the search when its call is cancelled.
    let _stop = stopped.clone().drop_guard();
    let mut search = TextSearch {
        root: session.root.clone(),
        arguments: parsed,
        results_max: usize::try_from(most).unwrap_or(usize::MAX),
        matches: Vec::new(),
        files_searched: 0,
        complete: true,
    };
    let found = tokio::task::spawn_blocking(move || search.walk(folder, &stopped));
    match found.await {
        Ok(found) => Ok(structured_result(found, session.version)),
        Err(_) => Ok(error_result("the search broke off")),
    }
}

/// The canonical folder, if it is below the root.
fn resolve_below(root: &Path, folder: &Path) -> Result<PathBuf, String> {
    let excerpt = folder.display();
    let real = root.join(folder).canonicalize();
    let real = real.map_err(|e| format!("{excerpt}: {e}"))?;
    match (real.starts_with(root), real.is_dir()) {
        (true, true) => Ok(real),
        (true, false) => Err(format!("{excerpt} is no folder")),
        (false, _) => Err(format!(
            "{excerpt} is not below the folder this server may read"
        )),
    }
}

struct TextSearch {
    root: PathBuf,
    arguments: SearchArguments,
    results_max: usize,
    matches: Vec<Value>,
    files_searched: usize,
    complete: bool,
}

impl TextSearch {
    fn walk(&mut self, folder: PathBuf, stopped: &CancellationToken) -> Value {
        let mut folders = vec![folder];
        while let Some(folder) = folders.pop()
            && self.complete
            && !stopped.is_cancelled()
        {
            let inner = self.search_folder(&folder);
            self.complete &= folders.len() + inner.len() <= MAX_FOLDERS;
            folders.extend(inner.into_iter().rev());
        }
        json!({
            "matches": self.matches, "files_searched": self.files_searched, "complete": self.complete,
        })
    }

    /// Searches the files of a folder, sorted by name; returns its folders.
    fn search_folder(&mut self, folder: &Path) -> Vec<PathBuf> {
        let visible = |e: &fs::DirEntry| !e.file_name().as_encoded_bytes().starts_with(b".");
        // A folder that cannot be read counts as empty.
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        let mut entries: Vec<_> = entries.filter(visible).take(MAX_FILES).collect();
        entries.sort_by_key(fs::DirEntry::file_name);
        let mut folders = Vec::new();
        for entry in entries {
            match entry.file_type() {
                Ok(kind) if kind.is_dir() => folders.push(entry.path()),
                Ok(kind) if kind.is_file() && self.complete => self.search_file(&entry.path()),
                Ok(_) | Err(_) => {}
            }
        }
        folders
    }

    fn search_file(&mut self, path: &Path) {
        if self.files_searched == MAX_FILES {
            self.complete = false;
            return;
        }
        let Some(text) = read_text(path) else { return };
        self.files_searched += 1;
        let file = path
            .strip_prefix(&self.root)
            .unwrap_or(path)
            .display()
            .to_string();
        for (number, line) in (1..)
            .zip(text.lines())
            .filter(|(_, line)| self.arguments.matches_line(line))
        {
            if self.matches.len() == self.results_max {
                self.complete = false;
                return;
            }
            let excerpt: String = line.trim().chars().take(MAX_LINE).collect();
            self.matches
                .push(json!({"file": file, "line": number, "text": excerpt}));
        }
    }
}

impl SearchArguments {
    fn matches_line(&self, line: &str) -> bool {
        if self.ignore_case {
            line.to_lowercase().contains(&self.pattern)
        } else {
            line.contains(&self.pattern)
        }
    }
}

/// The file's text; `None` if it is too long, binary or unreadable.
fn read_text(path: &Path) -> Option<String> {
    let file = File::open(path).ok()?;
    if file.metadata().ok()?.len() > MAX_SIZE {
        return None;
    }
    let mut bytes = Vec::new();
    file.take(MAX_SIZE).read_to_end(&mut bytes).ok()?;
    let binary = bytes.contains(&0);
    (!binary).then(|| String::from_utf8_lossy(&bytes).into_owned())
}
