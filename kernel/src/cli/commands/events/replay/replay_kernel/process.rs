//! The process of such a kernel, seen from the one that started it.

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

/// Bytes of what it wrote at last that are shown when it does not start.
const STDERR_TAIL_BYTES: usize = 4 << 10;
/// Longest path of a socket that it says, in bytes.
const LINE_MAX: u64 = 4 << 10;

/// A process that ends when this is dropped, or when this process ends: its stdin is a pipe from here.
pub(super) struct KernelProcess {
    child: Child,
    log: StderrTail,
    /// What it leaves when it is killed.
    folder: Option<PathBuf>,
}

impl KernelProcess {
    /// Starts it, and waits until its doors are open; the path of its socket.
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

    /// Why it is not there, in its own words.
    pub(super) fn start_failure(&mut self) -> Failure {
        self.terminate();
        Failure::Other(format!(
            "the kernel for the replay did not start:\n{}",
            self.log.text().trim_end()
        ))
    }

    /// Whether it ends within its time.
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
        // What did not end in order is ended.
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

/// Looks until it is so, or the time is over.
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

/// The path that it writes once it is up; nothing where it ends before.
fn read_socket_path(stdout: Option<ChildStdout>) -> mpsc::Receiver<PathBuf> {
    let (tell, told) = mpsc::channel();
    thread::spawn(move || {
        let mut line = String::new();
        let mut stdout = BufReader::new(stdout?.take(LINE_MAX));
        stdout.read_line(&mut line).ok()?;
        let socket = line.strip_suffix('\n')?;
        tell.send(PathBuf::from(socket)).ok()
    });
    told
}

/// The end of what a process writes on stderr. All of it is read, so that the process never waits.
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
        // What it wrote at last may be on its way.
        poll_until(Duration::from_secs(1), || self.reader.is_finished());
        let kept = self.buffer.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(&kept).into_owned()
    }
}
