//! What another program prints, with a bound on its length and on the time it takes.

use std::io::{self, Read};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

/// Time between two looks whether it has ended.
const POLL_INTERVAL: Duration = Duration::from_millis(10);
/// How long its output may stay open after its end: who it started may hold it.
const DRAIN_TIMEOUT: Duration = Duration::from_millis(500);

/// What it printed, each as far as the bound.
#[derive(Debug)]
pub struct BoundedOutput {
    /// How it ended; `None` when it took too long and was ended.
    pub status: Option<ExitStatus>,
    /// Its stdout.
    pub stdout: Vec<u8>,
    /// Its stderr.
    pub stderr: Vec<u8>,
}

/// Runs it without stdin; reads `most` bytes of each output.
///
/// # Errors
/// When it cannot be started.
pub fn run_bounded(
    command: &mut Command,
    patience: Duration,
    most: usize,
) -> io::Result<BoundedOutput> {
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    let stdout = spawn_reader(child.stdout.take(), most);
    let stderr = spawn_reader(child.stderr.take(), most);
    let status = wait_or_kill(&mut child, Instant::now() + patience)?;
    let read = |all: Receiver<Vec<u8>>| all.recv_timeout(DRAIN_TIMEOUT).unwrap_or_default();
    Ok(BoundedOutput {
        status,
        stdout: read(stdout),
        stderr: read(stderr),
    })
}

/// Reads on a thread of its own, so that neither output holds up the other.
fn spawn_reader(from: Option<impl Read + Send + 'static>, most: usize) -> Receiver<Vec<u8>> {
    let (read, all) = mpsc::channel();
    if let Some(from) = from {
        thread::spawn(move || {
            let mut bytes = Vec::new();
            // What was read before an error is there.
            let _ = from.take(most as u64).read_to_end(&mut bytes);
            // Nobody may be waiting any more.
            let _ = read.send(bytes);
        });
    }
    all
}

fn wait_or_kill(child: &mut Child, deadline: Instant) -> io::Result<Option<ExitStatus>> {
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if Instant::now() >= deadline {
            child.kill()?;
            child.wait()?;
            return Ok(None);
        }
        thread::sleep(POLL_INTERVAL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_takes_too_long_or_prints_too_much_is_cut_off() {
        let run = |script: &str, patience: Duration| {
            run_bounded(Command::new("sh").args(["-c", script]), patience, 4).unwrap()
        };
        let long = Duration::from_secs(30);
        let output = run("echo abcdef; echo no >&2", long);
        assert_eq!(
            (&*output.stdout, &*output.stderr),
            (&b"abcd"[..], &b"no\n"[..])
        );
        assert!(output.status.is_some_and(|status| status.success()));
        assert!(run("exec yes", long).status.is_some(), "its pipe is closed");
        assert!(
            run("exec sleep 60", Duration::from_millis(20))
                .status
                .is_none()
        );
    }
}
