//! The process of a temporary kernel, controlled by its parent.

use std::env;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::{Child, ChildStderr, ChildStdout, Command, Stdio};
use std::sync::mpsc;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle, sleep};
use std::time::{Duration, Instant};

use super::{KERNEL_TIMEOUT, POLL_INTERVAL};
use crate::cli::failure::Failure;

/// Bytes of its last output that are printed if it does not start.
const STDERR_TAIL_BYTES: usize = 4 << 10;
/// Longest socket path that it prints, in bytes.
const LINE_MAX: u64 = 4 << 10;

/// A process that ends when this is dropped, or when this process ends: its stdin is a pipe from here.
pub(super) struct KernelProcess {
    child: Child,
    log: StderrTail,
    /// The folder to remove if it is killed.
    folder: Option<PathBuf>,
}

impl KernelProcess {
    /// Starts it, and waits until it listens; returns the path of its socket.
    pub(super) fn start(command: &[String]) -> Result<(Self, PathBuf), Failure> {
        let mut child = Command::new(env::current_exe()?)
            .args(["__replay-kernel", "--"])
            .args(command)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        let said = read_socket_path(child.stdout.take());
        let log = StderrTail::spawn_reader(child.stderr.take());
        let mut process = Self {
            child,
            log,
            folder: None,
        };
        match said.recv_timeout(KERNEL_TIMEOUT) {
            Ok(socket) => {
                process.folder = socket.parent().map(PathBuf::from);
                Ok((process, socket))
            }
            Err(_) => Err(process.start_failure()),
        }
    }

    /// Why it did not start, by its stderr.
    pub(super) fn start_failure(&mut self) -> Failure {
        self.terminate();
        Failure::Other(format!(
            "the kernel for the replay did not start:\n{}",
            self.log.text().trim_end()
        ))
    }

    /// Whether it ends in time.
    fn wait_for_exit(&mut self) -> bool {
        poll_until(KERNEL_TIMEOUT, || {
            !matches!(self.child.try_wait(), Ok(None))
        })
    }

    fn terminate(&mut self) {
        drop(self.child.stdin.take());
        if self.wait_for_exit() {
            return;
        }
        // Kill it if it did not shut down.
        let _ = self.child.kill();
        let _ = self.child.wait();
        if let Some(folder) = &self.folder {
            let _ = fs::remove_dir_all(folder);
        }
    }
}

impl Drop for KernelProcess {
    fn drop(&mut self) {
        self.terminate();
    }
}

/// Polls until the condition holds; false after the time.
fn poll_until(time: Duration, mut is_so: impl FnMut() -> bool) -> bool {
    let deadline = Instant::now() + time;
    loop {
        if is_so() {
            return true;
        }
        if Instant::now() > deadline {
            return false;
        }
        sleep(POLL_INTERVAL);
    }
}

/// The path that it prints once it is up; none if it ends before.
fn read_socket_path(stdout: Option<ChildStdout>) -> mpsc::Receiver<PathBuf> {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        let mut line = String::new();
        let mut stdout = BufReader::new(stdout?.take(LINE_MAX));
        stdout.read_line(&mut line).ok()?;
        let socket = line.strip_suffix('\n')?;
        sender.send(PathBuf::from(socket)).ok()
    });
    receiver
}

/// The last stderr output of a process. All output is read, so that the process never blocks.
struct StderrTail {
    buffer: Arc<Mutex<Vec<u8>>>,
    reader: JoinHandle<()>,
}

impl StderrTail {
    fn spawn_reader(stderr: Option<ChildStderr>) -> Self {
        let buffer = Arc::new(Mutex::new(Vec::new()));
        let sink = buffer.clone();
        let reader = thread::spawn(move || {
            let Some(mut stderr) = stderr else { return };
            let mut part = [0; 1 << 10];
            while let Ok(read @ 1..) = stderr.read(&mut part) {
                let mut kept = sink.lock().unwrap_or_else(PoisonError::into_inner);
                kept.extend_from_slice(&part[..read]);
                let surplus = kept.len().saturating_sub(STDERR_TAIL_BYTES);
                kept.drain(..surplus);
            }
        });
        Self { buffer, reader }
    }

    fn text(&self) -> String {
        // The last output may still be in the pipe.
        poll_until(Duration::from_secs(1), || self.reader.is_finished());
        let kept = self.buffer.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(&kept).into_owned()
    }
}
