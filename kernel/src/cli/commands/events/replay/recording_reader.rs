//! Reads the file of a recording as a whole.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;

use mgp_engine::calls::recorder::replay::Replay as Recording;
use mgp_engine::doors::suggestions::nearest_name;

use crate::cli::failure::Failure;

/// Longest recording, in bytes: it is held in memory.
const FILE_MAX: u64 = 256 << 20;
/// Most names of a folder that are compared for a suggestion.
const NAMES_MAX: usize = 1_000;

/// Reads a recording. The file may be a pipe unless it is `written` later.
pub(super) fn read_recording(path: &Path, written: bool) -> Result<Recording, Failure> {
    let unread =
        |why: String| Failure::Usage(format!("{} cannot be played: {why}", path.display()));
    let file = File::open(path).map_err(|e| unread(open_failure(path, &e)))?;
    let found = file.metadata().map_err(|e| unread(e.to_string()))?;
    if found.is_dir() {
        return Err(unread(
            "it is a folder; name a file of `mgp trace --save`".into(),
        ));
    }
    if written && !found.is_file() {
        return Err(unread(
            "it is no file that --update could write to; without --update it is played".into(),
        ));
    }
    let text = read_text(file, found.len(), FILE_MAX).map_err(unread)?;
    Recording::parse(text).map_err(|e| unread(e.to_string()))
}

/// A text of at most `most` bytes; `expected` is its reported length.
fn read_text(file: impl Read, expected: u64, most: u64) -> Result<String, String> {
    let room = usize::try_from(expected.min(most)).unwrap_or_default();
    let mut bytes = Vec::with_capacity(room.saturating_add(1));
    let read = file.take(most + 1).read_to_end(&mut bytes);
    read.map_err(|e| e.to_string())?;
    if bytes.len() as u64 > most {
        return Err(format!(
            "it has more than {most} bytes; a recording is shorter with --method, --tool or --count"
        ));
    }
    String::from_utf8(bytes).map_err(|e| {
        let place = e.utf8_error().valid_up_to();
        format!("it is no text: byte {place} is not UTF-8")
    })
}

/// Why a file cannot be opened, with the nearest name if it does not exist.
fn open_failure(path: &Path, error: &io::Error) -> String {
    if error.kind() != io::ErrorKind::NotFound {
        return error.to_string();
    }
    let near =
        nearest_file(path).map_or_else(String::new, |near| format!("; did you mean {near}?"));
    format!("there is no such file{near}")
}

fn nearest_file(path: &Path) -> Option<String> {
    let folder = match path.parent()? {
        here if here.as_os_str().is_empty() => Path::new("."),
        folder => folder,
    };
    let entries = fs::read_dir(folder).ok()?.take(NAMES_MAX);
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let names: Vec<String> = names.collect();
    let near = nearest_name(
        path.file_name()?.to_str()?,
        names.iter().map(String::as_str),
    )?;
    Some(path.with_file_name(near).display().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Decision 0068: endless files are read only up to the limit.
    #[test]
    fn files_are_read_up_to_the_limit() {
        assert_eq!(read_text(&b"four"[..], 4, 4).unwrap(), "four");
        // It grew after its length was queried.
        let long = read_text(&b"fives"[..], 4, 4).unwrap_err();
        assert!(long.contains("more than 4 bytes"), "{long}");
        let endless = read_text(io::repeat(b' '), 0, 1 << 10).unwrap_err();
        assert!(endless.contains("more than 1024 bytes"), "{endless}");
        let no_text = read_text(&[b'a', 0xff][..], 2, 4).unwrap_err();
        assert!(no_text.contains("byte 1 is not UTF-8"), "{no_text}");
    }

    #[test]
    fn missing_files_get_a_suggestion() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("github.jsonl"), "").unwrap();
        let said = |name: &str| {
            let failure = read_recording(&folder.path().join(name), false).unwrap_err();
            failure.to_string()
        };
        assert!(said("gihtub.jsonl").ends_with("github.jsonl?"));
        assert!(said("other").ends_with("there is no such file"));
        assert!(said("").contains("it is a folder"));
    }
}
