//! The marks by which processes of kernels on this data folder are known, on disk before the first of
//! them starts: when a kernel and its guard are killed together, the next kernel ends what they left.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use mgp_store::atomic_file;
use mgp_store::regular_file;
use mgp_transports::guard::{SweepReport, sweep};

/// Marks of earlier kernels that are remembered. Each start that is not cut short ends them all; of
/// more kernels than this, killed one right after the other, the first are forgotten.
const MARKS_MAX: usize = 16;
/// The digits of a mark: what is anything else in the file is no mark.
const MARK_DIGITS: usize = 32;
/// A process that was just starting when its kernel died carries its mark a moment later: this long
/// after the first look there is another.
const RESWEEP_DELAY: Duration = Duration::from_secs(2);

/// The marks of this kernel and of those before it.
#[derive(Debug, Clone)]
pub(super) struct ProcessMarks {
    file: PathBuf,
    current: String,
    earlier: Vec<String>,
}

impl ProcessMarks {
    /// Ends what earlier kernels left, and remembers this one's mark. Nobody but the holder of the
    /// data folder may call it: no earlier kernel lives.
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

    /// What every process of this kernel carries.
    pub(super) fn current(&self) -> &str {
        &self.current
    }

    /// Looks for what earlier kernels left a second time, and then forgets them.
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

    /// Every process of this kernel has ended.
    pub(super) fn remove_file(&self) {
        let mut left = read_marks(&self.file);
        left.retain(|mark| *mark != self.current);
        self.save(&left);
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
        let SweepReport {
            found,
            remaining: left,
        } = swept;
        tracing::warn!(
            "{} processes of a kernel that was killed together with its guard were ended",
            found - left
        );
    }
    if swept.remaining > 0 {
        tracing::error!(
            "{} processes of a killed kernel cannot be ended",
            swept.remaining
        );
    }
}

/// A file that is missing or torn holds the marks that can be read.
fn read_marks(file: &Path) -> Vec<String> {
    let text = regular_file::read(file).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let is_mark =
        |line: &&str| line.len() == MARK_DIGITS && line.bytes().all(|b| b.is_ascii_hexdigit());
    let marks: Vec<_> = text.lines().filter(is_mark).map(str::to_owned).collect();
    marks[marks.len().saturating_sub(MARKS_MAX)..].to_vec()
}

/// In one step, without a sync: what a power cut loses, it has ended as well.
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
    fn a_mark_is_remembered_until_its_kernel_ended_in_order() {
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
    fn a_torn_file_and_too_many_marks_are_lived_with() {
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

    /// Who carries an earlier kernel's mark is ended; who carries another's, or the mark as a part of
    /// something else, is not touched.
    #[test]
    fn only_what_carries_an_earlier_mark_is_ended() {
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

    /// A mark nobody else has, whoever else runs this test.
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
