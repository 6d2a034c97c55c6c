//! How often and when a server was started, as told by the server itself.

use std::path::PathBuf;
use std::time::Duration;

use mgp_tests::harness::Program;
use tempfile::TempDir;

/// Writes down when it was started, then becomes the program that follows.
const SCRIPT: &str = r#"date +%s%N >> "$0"; exec "$@""#;

/// The starts of one server.
pub(crate) struct Spawns {
    folder: TempDir,
}

impl Spawns {
    /// None yet.
    pub(crate) fn new() -> Self {
        Self {
            folder: TempDir::new().unwrap(),
        }
    }

    /// The scripted server with these flags, its starts written down.
    pub(crate) fn of(&self, flags: &[&str]) -> Program {
        let fixture = Program::fixture(flags);
        let file = self.file().display().to_string();
        let head = ["-c", SCRIPT, &file, &fixture.command];
        Program::new("sh", head).args(&fixture.args.iter().map(String::as_str).collect::<Vec<_>>())
    }

    /// How many there were.
    pub(crate) fn count(&self) -> usize {
        self.times().len()
    }

    /// The time between each and the next.
    pub(crate) fn gaps(&self) -> Vec<Duration> {
        let times = self.times();
        times.windows(2).map(|pair| pair[1] - pair[0]).collect()
    }

    fn times(&self) -> Vec<Duration> {
        let text = std::fs::read_to_string(self.file()).unwrap_or_default();
        let nanos = text.lines().map(|line| line.parse().unwrap());
        nanos.map(Duration::from_nanos).collect()
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join("spawns")
    }
}
