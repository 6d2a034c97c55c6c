//! The log of a kernel in the background.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::Stdio;

/// A longer log is rotated at the next start.
const MAX_LOG: u64 = 10 << 20;
/// Bytes of the log that are printed when the kernel does not start.
const TAIL_BYTES: u64 = 4 << 10;

/// `kernel.log`, from its end at the time of opening.
pub(in crate::cli) struct KernelLog {
    file: File,
    start_offset: u64,
}

impl KernelLog {
    /// Opens the log in the data folder; only its owner can read it.
    pub(in crate::cli) fn open(folder: &Path) -> io::Result<Self> {
        let path = folder.join("kernel.log");
        if fs::metadata(&path).is_ok_and(|found| found.len() > MAX_LOG) {
            fs::rename(&path, folder.join("kernel.log.1"))?;
        }
        let mut options = OpenOptions::new();
        options.read(true).append(true).create(true).mode(0o600);
        let file = options.open(&path)?;
        let begin = file.metadata()?.len();
        Ok(Self {
            file,
            start_offset: begin,
        })
    }

    /// The log as the output of another process.
    pub(in crate::cli) fn output(&self) -> io::Result<Stdio> {
        self.file.try_clone().map(Stdio::from)
    }

    /// The last part of what was written since it was opened.
    pub(in crate::cli) fn tail(&mut self) -> io::Result<String> {
        let end = self.file.metadata()?.len();
        let from = self.start_offset.max(end.saturating_sub(TAIL_BYTES));
        self.file.seek(SeekFrom::Start(from))?;
        let mut bytes = Vec::new();
        (&self.file).take(TAIL_BYTES).read_to_end(&mut bytes)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn a_long_log_is_rotated_and_only_new_lines_are_shown() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("kernel.log");
        File::create(&path).unwrap().set_len(MAX_LOG + 1).unwrap();
        let echo = |log: &KernelLog, text: &str| {
            let mut echo = Command::new("echo");
            echo.arg(text).stdout(log.output().unwrap());
            assert!(echo.status().unwrap().success());
        };
        echo(&KernelLog::open(folder.path()).unwrap(), "old");
        assert!(folder.path().join("kernel.log.1").exists());
        let mut log = KernelLog::open(folder.path()).unwrap();
        echo(&log, "new");
        assert_eq!(log.tail().unwrap(), "new\n");
        assert_eq!(fs::read_to_string(path).unwrap(), "old\nnew\n");
    }
}
