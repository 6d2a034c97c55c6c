//! The last lists of servers that start on demand, one file for each. They are listed while their server sleeps, also
//! after a restart of the kernel. A file that cannot be used is as good as none: the server is then started once.

use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use mgp_protocol::ids::ServerId;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use mgp_store::{atomic_file, regular_file};

/// The version of the format; files of another one are not read.
const FORMAT: u32 = 1;

/// Longest file in bytes. The lists of a server with more are not stored, and it is started with the kernel.
const FILE_MAX: u64 = 16 << 20;

/// What a server declared and listed in its last run, as it sent it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct LastLists {
    format: u32,
    /// The hash of its command line or URL: another server under the same id has other lists.
    source: String,
    /// The protocol version of the handshake.
    pub version: String,
    /// Its capabilities.
    pub capabilities: Box<RawValue>,
    /// Its `serverInfo`.
    pub info: Option<Box<RawValue>>,
    /// Its instructions for models.
    pub instructions: Option<String>,
    /// True if legacy clients see its tools with task support.
    pub supports_tasks: bool,
    /// The definitions of its tools.
    pub tools: Vec<Box<RawValue>>,
    /// The definitions of its prompts.
    pub prompts: Vec<Box<RawValue>>,
    /// The definitions of its resources.
    pub resources: Vec<Box<RawValue>>,
    /// The definitions of its resource templates.
    pub templates: Vec<Box<RawValue>>,
}

impl LastLists {
    /// Creates lists without entries of a server with this command line or URL.
    #[must_use]
    pub fn new(command: &[String], version: &str, capabilities: Box<RawValue>) -> Self {
        Self {
            format: FORMAT,
            source: hash_source(command),
            version: version.to_owned(),
            capabilities,
            info: None,
            instructions: None,
            supports_tasks: false,
            tools: Vec::new(),
            prompts: Vec::new(),
            resources: Vec::new(),
            templates: Vec::new(),
        }
    }

    /// The lists of the last run of a server with this command line or URL.
    pub(super) fn read(pins: &Path, server: &ServerId, command: &[String]) -> Option<Self> {
        let file = regular_file::open(&file_path(pins, server)).ok()?;
        let mut bytes = Vec::new();
        file.take(FILE_MAX).read_to_end(&mut bytes).ok()?;
        let lists: Self = serde_json::from_slice(&bytes).ok()?;
        (lists.format == FORMAT && lists.source == hash_source(command)).then_some(lists)
    }

    /// Writes the file, unless it has these lists already. Lists that are too long remove it.
    pub(super) fn save(&self, pins: &Path, server: &ServerId) -> io::Result<()> {
        let path = file_path(pins, server);
        let bytes = serde_json::to_vec(self)?;
        if bytes.len() as u64 >= FILE_MAX {
            return Self::remove(pins, server);
        }
        if regular_file::read(&path).is_ok_and(|stored| stored == bytes) {
            return Ok(());
        }
        super::pin_file::create_private_folder(&path)?;
        atomic_file::write(&path, &bytes)
    }

    /// Removes the file of a server, if it exists.
    pub(super) fn remove(pins: &Path, server: &ServerId) -> io::Result<()> {
        match fs::remove_file(file_path(pins, server)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            Ok(()) | Err(_) => Ok(()),
        }
    }
}

fn file_path(pins: &Path, server: &ServerId) -> PathBuf {
    pins.with_file_name("lists").join(format!("{server}.json"))
}

fn hash_source(command: &[String]) -> String {
    let mut hasher = blake3::Hasher::new();
    for part in command {
        hasher.update(&(part.len() as u64).to_le_bytes());
        hasher.update(part.as_bytes());
    }
    hasher.finalize().to_hex().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lists(command: &str) -> LastLists {
        let raw = |text: &str| RawValue::from_string(text.to_owned()).unwrap();
        let mut lists = LastLists::new(&[command.to_owned()], "2025-06-18", raw("{}"));
        lists.tools = vec![raw(r#"{"name":"a",  "inputSchema":{}}"#)];
        lists
    }

    fn read(pins: &Path, command: &str) -> Option<LastLists> {
        LastLists::read(pins, &ServerId::new("it"), &[command.to_owned()])
    }

    #[test]
    fn stored_lists_are_read_as_they_were_sent() {
        let dir = tempfile::tempdir().unwrap();
        let pins = dir.path().join("pins");
        assert!(read(&pins, "one").is_none());
        lists("one").save(&pins, &ServerId::new("it")).unwrap();
        let stored = read(&pins, "one").unwrap();
        assert_eq!(stored.tools[0].get(), r#"{"name":"a",  "inputSchema":{}}"#);
        assert_eq!(stored.version, "2025-06-18");
        LastLists::remove(&pins, &ServerId::new("it")).unwrap();
        assert!(read(&pins, "one").is_none());
    }

    /// A server whose command line changed is another server.
    #[test]
    fn lists_of_another_command_line_are_not_used() {
        let dir = tempfile::tempdir().unwrap();
        let pins = dir.path().join("pins");
        lists("one").save(&pins, &ServerId::new("it")).unwrap();
        assert!(read(&pins, "two").is_none());
    }

    #[test]
    fn damaged_files_and_other_formats_are_not_used() {
        let dir = tempfile::tempdir().unwrap();
        let pins = dir.path().join("pins");
        let id = ServerId::new("it");
        let newer = LastLists {
            format: FORMAT + 1,
            ..lists("one")
        };
        newer.save(&pins, &id).unwrap();
        assert!(read(&pins, "one").is_none());
        fs::write(file_path(&pins, &id), "{\"format\":1,").unwrap();
        assert!(read(&pins, "one").is_none());
    }

    #[test]
    fn lists_that_are_too_long_are_not_stored() {
        let dir = tempfile::tempdir().unwrap();
        let pins = dir.path().join("pins");
        lists("one").save(&pins, &ServerId::new("it")).unwrap();
        let long = format!("\"{}\"", "x".repeat(usize::try_from(FILE_MAX).unwrap()));
        let mut longer = lists("one");
        longer.tools = vec![RawValue::from_string(long).unwrap()];
        longer.save(&pins, &ServerId::new("it")).unwrap();
        assert!(read(&pins, "one").is_none());
    }
}
