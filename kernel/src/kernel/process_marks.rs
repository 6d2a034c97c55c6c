//! The markers that identify processes of kernels on this data folder, stored before the first process starts.
//! When a kernel and its guard are killed together, the next kernel ends the remaining processes.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use mgp_store::atomic_file;
use mgp_store::regular_file;
use mgp_transports::guard::{SweepReport, sweep};

/// Markers of earlier kernels that are stored. Each complete start removes them all; after more killed kernels
/// in a row, the oldest are dropped.
const MARKS_MAX: usize = 16;
/// Hexadecimal digits of a marker; other lines of the file are ignored.
const MARK_DIGITS: usize = 32;
/// A process that was starting when its kernel died carries the marker a moment later: time until the second sweep.
const RESWEEP_DELAY: Duration = Duration::from_secs(2);

/// The markers of this kernel and of earlier ones.
#[derive(Debug, Clone)]
pub(super) struct ProcessMarks {
    file: PathBuf,
    current: String,
    earlier: Vec<String>,
}

impl ProcessMarks {
    /// Ends processes of earlier kernels, and stores this one's marker. Only the holder of the data folder may call it:
    /// then no earlier kernel runs.
    pub(super) fn load_and_sweep(data_dir: &Path, own: String) -> Self {
        let file = data_dir.join("marks");
        let earlier = read_marks(&file);
        let marks = Self {
            file,
            current: own,
            earlier,
        };
        log_swept(marks.sweep());
        marks.save(
            &[
                marks.earlier.as_slice(),
                std::slice::from_ref(&marks.current),
            ]
            .concat(),
        );
        marks
    }

    /// The marker that every process of this kernel carries.
    pub(super) fn current(&self) -> &str {
        &self.current
    }

    /// Sweeps the processes of earlier kernels a second time, then removes their markers.
    pub(super) async fn resweep(self) {
        if self.earlier.is_empty() {
            return;
        }
        tokio::time::sleep(RESWEEP_DELAY).await;
        let looking = mgp_runtime::task::run_blocking("marks.sweep", move || {
            let swept = self.sweep();
            log_swept(swept);
            if swept.remaining == 0 {
                self.save(std::slice::from_ref(&self.current));
            }
        });
        let _ = looking.await;
    }

    /// All processes of this kernel have ended.
    pub(super) fn remove_file(&self) {
        let mut remaining = read_marks(&self.file);
        remaining.retain(|mark| *mark != self.current);
        self.save(&remaining);
    }

    fn sweep(&self) -> SweepReport {
        if self.earlier.is_empty() {
            SweepReport::default()
        } else {
            sweep(&self.earlier)
        }
    }

    fn save(&self, marks: &[String]) {
        if let Err(error) = write_marks(&self.file, marks) {
            tracing::warn!(
                "{}: {error}: should this kernel and its guard be killed together, what they leave \
                 is not found",
                self.file.display()
            );
        }
    }
}

fn log_swept(swept: SweepReport) {
    if swept.found > 0 {
        let SweepReport { found, remaining } = swept;
        tracing::warn!(
            "{} processes of a kernel that was killed together with its guard were ended",
            found - remaining
        );
    }
    if swept.remaining > 0 {
        tracing::error!(
            "{} processes of a killed kernel cannot be ended",
            swept.remaining
        );
    }
}

/// The readable markers; a missing or torn file may have few.
fn read_marks(file: &Path) -> Vec<String> {
    let text = regular_file::read(file).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let is_mark =
        |line: &&str| line.len() == MARK_DIGITS && line.bytes().all(|b| b.is_ascii_hexdigit());
    let marks: Vec<_> = text.lines().filter(is_mark).map(str::to_owned).collect();
    marks[marks.len().saturating_sub(MARKS_MAX)..].to_vec()
}

/// Atomic, but not synced: after a power failure the processes are gone, too.
fn write_marks(file: &Path, marks: &[String]) -> io::Result<()> {
    if marks.is_empty() {
        return match fs::remove_file(file) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
            Ok(()) | Err(_) => Ok(()),
        };
    }
    let lines: String = marks.iter().flat_map(|mark| [mark, "\n"]).collect();
    atomic_file::write_unsynced(file, lines.as_bytes())
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    fn mark(number: usize) -> String {
        format!("{number:032x}")
    }

    #[test]
    fn a_mark_is_stored_until_its_kernel_shuts_down() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("marks");
        let first = ProcessMarks::load_and_sweep(folder.path(), mark(1));
        assert_eq!(read_marks(&file), [mark(1)]);
        let second = ProcessMarks::load_and_sweep(folder.path(), mark(2));
        assert_eq!(read_marks(&file), [mark(1), mark(2)]);
        second.remove_file();
        assert_eq!(read_marks(&file), [mark(1)], "nobody looked again yet");
        first.remove_file();
        assert!(!file.exists());
    }

    #[test]
    fn torn_files_and_too_many_marks_are_tolerated() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("marks");
        fs::write(
            &file,
            format!("{}\n{}\n\u{0}\nabc", mark(7), "=".repeat(32)),
        )
        .unwrap();
        assert_eq!(read_marks(&file), [mark(7)]);
        let many: String = (0..40).map(|n| mark(n) + "\n").collect();
        fs::write(&file, many).unwrap();
        let marks = read_marks(&file);
        assert_eq!((marks.len(), &marks[15]), (MARKS_MAX, &mark(39)));
    }

    /// Ends processes with an earlier kernel's marker; leaves those with another marker, or with the marker as part of
    /// something else.
    #[test]
    fn only_processes_with_an_earlier_mark_are_ended() {
        let folder = tempfile::tempdir().unwrap();
        let marks = [hold(1), hold(2)];
        let start = |variable: &str, value: String| {
            let mut sleep = Command::new("sleep");
            sleep.arg("600").env(variable, value).spawn().unwrap()
        };
        let mut ours = start("MGP_SERVER", format!("{}:files", marks[0]));
        let mut others = [
            start("MGP_SERVER", format!("{}:files", marks[1])),
            start("OTHER", format!("MGP_SERVER={}:files", marks[0])),
        ];
        fs::write(folder.path().join("marks"), format!("{}\n", marks[0])).unwrap();
        let _kernel = ProcessMarks::load_and_sweep(folder.path(), mark(9));
        assert!(ours.try_wait().unwrap().is_some());
        for other in &mut others {
            assert!(other.try_wait().unwrap().is_none());
            other.kill().unwrap();
            other.wait().unwrap();
        }
    }

    /// A marker unique to this test run.
    fn hold(number: u8) -> String {
        super::super::secrets::to_hex(
            &[
                [number; 1].as_slice(),
                &mgp_runtime::randomness::random_bytes::<15>(),
            ]
            .concat(),
        )
    }
}
