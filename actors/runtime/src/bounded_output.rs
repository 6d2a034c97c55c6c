//! Runs another program with bounds on its output and its duration.

use std::io::{self, Read};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, getpgid, kill_process_group};

/// The interval between checks whether it has ended.
const POLL_INTERVAL: Duration = Duration::from_millis(10);
/// How long its output may stay open after its end: a descendant may hold it.
const DRAIN_TIMEOUT: Duration = Duration::from_millis(500);

/// Its outputs, each up to the bound.
#[derive(Debug)]
pub struct BoundedOutput {
    /// Its exit status; `None` when it timed out and was killed.
    pub status: Option<ExitStatus>,
    /// Its stdout.
    pub stdout: Vec<u8>,
    /// Its stderr.
    pub stderr: Vec<u8>,
}

/// Runs a program without stdin; reads at most `max` bytes of each output.
///
/// # Errors
/// It cannot be started.
pub fn run_bounded(
    command: &mut Command,
    timeout: Duration,
    max: usize,
) -> io::Result<BoundedOutput> {
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    let stdout = spawn_reader(child.stdout.take(), max);
    let stderr = spawn_reader(child.stderr.take(), max);
    let status = wait_or_kill(&mut child, Instant::now() + timeout)?;
    let read = |all: Receiver<Vec<u8>>| all.recv_timeout(DRAIN_TIMEOUT).unwrap_or_default();
    Ok(BoundedOutput {
        status,
        stdout: read(stdout),
        stderr: read(stderr),
    })
}

/// Reads on a separate thread, so that neither output blocks the other.
fn spawn_reader(
    output_stream: Option<impl Read + Send + 'static>,
    max: usize,
) -> Receiver<Vec<u8>> {
    let (read, all) = mpsc::channel();
    if let Some(output_stream) = output_stream {
        thread::spawn(move || {
            let mut bytes = Vec::new();
            // After an error the earlier bytes are kept.
            let _ = output_stream.take(max as u64).read_to_end(&mut bytes);
            // The receiver may be gone.
            let _ = read.send(bytes);
        });
    }
    all
}

/// Kills what it started, if it was started in a process group of its own.
fn kill_group(child: &Child) {
    if let Some(leader) = Pid::from_raw(child.id().cast_signed())
        && getpgid(Some(leader)) == Ok(leader)
    {
        let _ = kill_process_group(leader, Signal::KILL);
    }
}

fn wait_or_kill(child: &mut Child, deadline: Instant) -> io::Result<Option<ExitStatus>> {
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if Instant::now() >= deadline {
            kill_group(child);
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
    fn slow_programs_and_long_outputs_are_cut_off() {
        let run = |script: &str, timeout: Duration| {
            run_bounded(Command::new("sh").args(["-c", script]), timeout, 4).unwrap()
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
