//! A child process that is watched while it runs and surely ended: by its process id, never by name.

pub mod usage;

use std::io::Read;
use std::process::{Child, ChildStdin, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::{Program, wait_until};

/// What is kept of each output, in bytes: the last of it, where a failure is explained.
const KEPT: usize = 256 * 1024;

/// How long a process may take to end after SIGTERM before SIGKILL follows.
const GRACE: Duration = Duration::from_secs(10);

/// How long what it wrote at last may take to be read.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// A running child. Dropping it ends it; when the test fails, its stderr is printed.
#[derive(Debug)]
pub struct Process {
    name: String,
    child: Child,
    stdout: Output,
    stderr: Output,
    readers: [JoinHandle<()>; 2],
}

/// The end of what came out of a pipe so far.
type Output = Arc<Mutex<Vec<u8>>>;

impl Process {
    /// Starts a program with all three pipes.
    ///
    /// # Panics
    /// When it cannot be started.
    #[must_use]
    pub fn start(name: &str, program: &Program) -> Self {
        let mut command = program.to_command();
        let piped = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let started = piped.spawn();
        let mut child = started.unwrap_or_else(|e| panic!("{name} does not start: {e}"));
        let (stdout, of_stdout) = drain(child.stdout.take());
        let (stderr, of_stderr) = drain(child.stderr.take());
        Self {
            name: name.to_owned(),
            child,
            stdout,
            stderr,
            readers: [of_stdout, of_stderr],
        }
    }

    /// The process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// What it wrote to stdout: the last 256 KiB.
    #[must_use]
    pub fn stdout(&self) -> String {
        text(&self.stdout)
    }

    /// What it wrote to stderr: the last 256 KiB.
    #[must_use]
    pub fn stderr(&self) -> String {
        text(&self.stderr)
    }

    /// The way into its stdin, once; dropping it closes the pipe.
    pub fn take_stdin(&mut self) -> Option<ChildStdin> {
        self.child.stdin.take()
    }

    /// Its exit status when it has ended.
    ///
    /// # Panics
    /// When the system does not tell.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().expect("a child can be waited for")
    }

    /// The first thing that `find` makes of the output (stdout, then stderr).
    ///
    /// # Panics
    /// When the process ends or the deadline passes before there is any.
    pub async fn says<T>(
        &mut self,
        what: &str,
        deadline: Duration,
        find: impl Fn(&str) -> Option<T>,
    ) -> T {
        let mut found = None;
        let name = self.name.clone();
        wait_until(&format!("{name} says {what}"), deadline, async || {
            let ended = self.ended();
            found = find(&self.stdout()).or_else(|| find(&self.stderr()));
            if let (Some(status), None) = (ended, &found) {
                let why = self.stderr();
                panic!("{name} ended ({status}) before it said {what}: {why}");
            }
            found.is_some()
        })
        .await;
        found.expect("the wait ends when it is found")
    }

    /// Sends a signal.
    pub fn signal(&self, signal: Signal) {
        // It may have ended already; nothing else can go wrong with a child of ours.
        let _ = kill(self.nix_pid(), signal);
    }

    /// Waits for its end, and for what it wrote at last: unless a child of its own has its pipes still.
    ///
    /// # Panics
    /// When it has not ended by the deadline.
    pub async fn end(&mut self, deadline: Duration) -> ExitStatus {
        let mut status = None;
        let what = format!("{} ends", self.name);
        wait_until(&what, deadline, async || {
            status = self.ended();
            status.is_some()
        })
        .await;
        let start = Instant::now();
        while !self.readers.iter().all(JoinHandle::is_finished) && start.elapsed() < LAST_WORDS {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        status.expect("the wait ends with a status")
    }

    fn nix_pid(&self) -> Pid {
        Pid::from_raw(i32::try_from(self.child.id()).expect("a process id fits pid_t"))
    }

    fn end_by(&mut self, signal: Signal, grace: Duration) -> bool {
        self.signal(signal);
        let start = Instant::now();
        while start.elapsed() < grace {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return true;
            }
            thread::sleep(Duration::from_millis(5));
        }
        false
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        if thread::panicking() {
            let (out, err) = (self.stdout(), self.stderr());
            eprintln!(
                "--- {} stdout\n{out}\n--- {0} stderr\n{err}\n---",
                self.name
            );
        }
        if !self.end_by(Signal::SIGTERM, GRACE) && !self.end_by(Signal::SIGKILL, GRACE) {
            eprintln!("{} ({}) does not end", self.name, self.pid());
        }
    }
}

fn drain(pipe: Option<impl Read + Send + 'static>) -> (Output, JoinHandle<()>) {
    let output = Output::default();
    let (sink, mut pipe) = (output.clone(), pipe.expect("the pipe was asked for"));
    let reader = thread::spawn(move || {
        let mut part = [0; 8192];
        while let Ok(n @ 1..) = pipe.read(&mut part) {
            let mut kept = sink.lock().unwrap_or_else(PoisonError::into_inner);
            kept.extend_from_slice(&part[..n]);
            let surplus = kept.len().saturating_sub(KEPT);
            kept.drain(..surplus);
        }
    });
    (output, reader)
}

fn text(output: &Output) -> String {
    let kept = output.lock().unwrap_or_else(PoisonError::into_inner);
    String::from_utf8_lossy(&kept).into_owned()
}
