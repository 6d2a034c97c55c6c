//! `search_text`: finds lines in the text files below a folder.

mod walk;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde::Deserialize;
use serde_json::{Value, json};

use super::server::Session;
use super::tools::{failed, structured};
use walk::{MAX_FILES, walk};

const MAX_RESULTS: usize = 200;
const MAX_PATTERN: usize = 200;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Arguments {
    pattern: String,
    #[serde(default = "here")]
    folder: PathBuf,
    #[serde(default = "twenty")]
    max_results: usize,
    #[serde(default)]
    ignore_case: bool,
}

fn here() -> PathBuf {
    ".".into()
}

fn twenty() -> usize {
    20
}

pub(super) fn definition() -> Value {
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
                    "type": "integer", "minimum": 1, "maximum": MAX_RESULTS, "default": twenty(),
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

/// What is looked for.
struct Needle {
    text: String,
    ignore_case: bool,
    max_results: usize,
}

pub(super) async fn call(arguments: Arguments, session: &Session) -> Result<Value, String> {
    let Arguments {
        pattern,
        folder,
        max_results,
        ignore_case,
    } = arguments;
    if pattern.is_empty() || pattern.chars().count() > MAX_PATTERN {
        return Err(format!("pattern has 1 to {MAX_PATTERN} characters"));
    }
    if !(1..=MAX_RESULTS).contains(&max_results) {
        return Err(format!("max_results goes from 1 to {MAX_RESULTS}"));
    }
    let needle = Needle {
        text: if ignore_case {
            pattern.to_lowercase()
        } else {
            pattern
        },
        ignore_case,
        max_results,
    };
    let root = session.root.clone();
    let folder = match below(&root, &folder) {
        Ok(folder) => folder,
        Err(why) => return Ok(failed(&why)),
    };
    let stop = StopOnDrop::default();
    let stopped = stop.0.clone();
    let found = tokio::task::spawn_blocking(move || walk(&root, folder, &needle, &stopped));
    match found.await {
        Ok(found) => Ok(structured(found, session.version)),
        Err(_) => Ok(failed("the search broke off")),
    }
}

/// The folder as it really is, when that lies below the root.
fn below(root: &Path, folder: &Path) -> Result<PathBuf, String> {
    let shown = folder.display();
    let real = root
        .join(folder)
        .canonicalize()
        .map_err(|e| format!("{shown}: {e}"))?;
    if !real.starts_with(root) {
        return Err(format!(
            "{shown} is not below the folder this server may read"
        ));
    }
    match real.is_dir() {
        true => Ok(real),
        false => Err(format!("{shown} is no folder")),
    }
}

/// Ends the search when its call is taken back.
#[derive(Default)]
struct StopOnDrop(Arc<AtomicBool>);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
