//! The file of `mgp trace --save`: lines of JSON, with a header.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use mgp_engine::timestamps::render_rfc3339_ms;
use mgp_protocol::mgp::kernel::recorder::{FORMAT, Follow, RecordingHeader, VERSION};
use mgp_runtime::time::unix_ms;

use crate::cli::failure::Failure;

/// A recording being written. Every line is written whole: a line that does not fit on the disk is removed, so that the
/// file is always readable.
pub(super) struct RecordingFile {
    path: PathBuf,
    file: File,
    /// The length of the complete lines, in bytes.
    complete_bytes: u64,
}

impl RecordingFile {
    /// Creates a file that only its owner can read. An existing one is replaced only if `forced`.
    pub(super) fn create(path: &Path, forced: bool, of: &Follow) -> Result<Self, Failure> {
        if forced
            && let Err(e) = fs::remove_file(path)
            && e.kind() != io::ErrorKind::NotFound
        {
            return Err(write_failure(path, &e));
        }
        let mut options = OpenOptions::new();
        options.write(true).create_new(true).mode(0o600);
        let there = |e: &io::Error| e.kind() == io::ErrorKind::AlreadyExists;
        let file = options.open(path).map_err(|e| {
            if there(&e) {
                Failure::Usage(format!(
                    "{} is there already; --force writes it anew",
                    path.display()
                ))
            } else {
                write_failure(path, &e)
            }
        })?;
        let mut recording = Self {
            path: path.to_owned(),
            file,
            complete_bytes: 0,
        };
        let header = RecordingHeader {
            format: FORMAT.into(),
            version: VERSION,
            server: of.server.clone(),
            agent: of.agent.clone(),
            began: render_rfc3339_ms(unix_ms()),
            written_by: concat!("mgp ", env!("CARGO_PKG_VERSION")).into(),
        };
        let header = serde_json::to_string(&header).expect("a header is always JSON");
        recording.append(&header)?;
        Ok(recording)
    }

    /// Writes one line.
    pub(super) fn append(&mut self, line: &str) -> Result<(), Failure> {
        let line = format!("{line}\n");
        match self.file.write_all(line.as_bytes()) {
            Ok(()) => {
                self.complete_bytes += line.len() as u64;
                Ok(())
            }
            Err(e) => {
                // If that fails, too, the last line is truncated, which readers report.
                let _ = self.file.set_len(self.complete_bytes);
                Err(write_failure(&self.path, &e))
            }
        }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

fn write_failure(path: &Path, error: &io::Error) -> Failure {
    Failure::Other(format!("{} cannot be written: {error}", path.display()))
}
