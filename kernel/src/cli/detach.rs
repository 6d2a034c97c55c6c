//! `mgp up --detach`: this program again, in the background, until its kernel answers.

use std::env;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use mgp_protocol::mcp::Method;
use mgp_protocol::mgp::kernel::{KernelStatus, Status};
use serde_json::json;

use super::client::{LATE, Opening, read};
use super::context::Context;
use super::failure::Failure;
use super::output::say;
use super::progress::Progress;
use super::words::plain;
use crate::config;
use crate::paths::private_folder;

/// How long a kernel may take to answer. Its servers start after that.
const PATIENCE: Duration = Duration::from_secs(30);
/// Time between two looks.
const PACE: Duration = Duration::from_millis(30);
/// A longer log is put aside at the next start.
const MAX_LOG: u64 = 10 << 20;
/// How much of the log is shown when the kernel does not come up, in bytes.
const SHOWN_LOG: u64 = 4 << 10;

/// Starts the kernel unless one runs.
pub(super) fn up(context: &Context, data_dir: Option<&Path>) -> Result<(), Failure> {
    let status = match status(context)? {
        Some(status) => status,
        None => start(context, data_dir)?,
    };
    match context.json {
        true => say(serde_json::to_string(&status).expect("a status is always JSON")),
        false => say(format_args!("the kernel is up (process {})", status.pid)),
    }
}

/// The running kernel's status; `None` when none runs.
pub(super) fn status(context: &Context) -> Result<Option<KernelStatus>, Failure> {
    let asked = context.with_kernel(Opening::default(), async |client| {
        read(&client.request(Status::METHOD, &json!({}), &mut ()).await?)
    });
    match asked {
        Ok(status) => Ok(Some(status)),
        Err(Failure::NotRunning(_)) => Ok(None),
        Err(other) => Err(other),
    }
}

/// Starts a kernel in the background and waits until it answers.
pub(super) fn start(context: &Context, data_dir: Option<&Path>) -> Result<KernelStatus, Failure> {
    let deadline = Instant::now() + PATIENCE;
    let kernel = config::load(&context.look_up, &|_| None).map(|loaded| loaded.kernel);
    let folder = context.data_dir(data_dir, &kernel.unwrap_or_default())?;
    private_folder(&folder)?;
    let mut progress = Progress::of("starting the kernel");
    let mut wait = Wait::until(deadline, &mut progress);
    // Two clients that start at once must not start two kernels.
    let _turn = take_turn(&folder, &mut wait)?;
    if let Some(status) = status(context)? {
        return Ok(status);
    }
    let mut log = open_log(&folder)?;
    let mut child = spawn(context, data_dir, &log)?;
    loop {
        if let Some(status) = status(context)? {
            return Ok(status);
        }
        if let Some(exit) = child.try_wait()? {
            return Err(Failure::Other(format!(
                "the kernel did not start ({exit}):\n{}",
                plain(tail(&mut log)?.trim_end())
            )));
        }
        if !wait.a_little() {
            return Err(given_up(&mut child, &folder));
        }
    }
}

fn given_up(child: &mut Child, folder: &Path) -> Failure {
    // It may be past saving; what matters is that it does not stay behind unseen.
    let _ = child.kill();
    let _ = child.wait();
    let log = folder.join("kernel.log");
    let secs = PATIENCE.as_secs();
    Failure::Other(format!(
        "the kernel gave no answer within {secs} s; see {}",
        log.display()
    ))
}

/// Short sleeps up to a deadline, with progress once it is late.
struct Wait<'p> {
    deadline: Instant,
    late: Option<Instant>,
    progress: &'p mut Progress,
}

impl<'p> Wait<'p> {
    fn until(deadline: Instant, progress: &'p mut Progress) -> Self {
        let late = Some(Instant::now() + LATE);
        Self {
            deadline,
            late,
            progress,
        }
    }

    /// False once the deadline has passed.
    fn a_little(&mut self) -> bool {
        if self.late.is_some_and(|late| Instant::now() >= late) {
            self.late = None;
            self.progress.appear();
        }
        sleep(PACE);
        Instant::now() < self.deadline
    }
}

fn take_turn(folder: &Path, wait: &mut Wait<'_>) -> Result<File, Failure> {
    let file = private(
        OpenOptions::new().write(true).create(true),
        &folder.join("start.lock"),
    )?;
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(TryLockError::Error(e)) => return Err(e.into()),
            Err(TryLockError::WouldBlock) if wait.a_little() => {}
            Err(TryLockError::WouldBlock) => {
                return Err(Failure::Other(
                    "another `mgp` has been starting the kernel for too long".into(),
                ));
            }
        }
    }
}

fn private(options: &mut OpenOptions, path: &Path) -> io::Result<File> {
    options.mode(0o600).open(path)
}

/// The kernel's log, at its end.
fn open_log(folder: &Path) -> io::Result<File> {
    let path = folder.join("kernel.log");
    if fs::metadata(&path).is_ok_and(|found| found.len() > MAX_LOG) {
        fs::rename(&path, folder.join("kernel.log.1"))?;
    }
    let mut log = private(
        OpenOptions::new().read(true).append(true).create(true),
        &path,
    )?;
    log.seek(SeekFrom::End(0))?;
    Ok(log)
}

/// What was written since the log was opened, its last part.
fn tail(log: &mut File) -> io::Result<String> {
    let (begin, end) = (log.stream_position()?, log.metadata()?.len());
    log.seek(SeekFrom::Start(begin.max(end.saturating_sub(SHOWN_LOG))))?;
    let mut bytes = Vec::new();
    log.take(SHOWN_LOG).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// A group of its own keeps the terminal's Ctrl-C away from the kernel.
fn spawn(context: &Context, data_dir: Option<&Path>, log: &File) -> io::Result<Child> {
    let mut command = Command::new(env::current_exe()?);
    command.arg("up").process_group(0).stdin(Stdio::null());
    command.stdout(log.try_clone()?).stderr(log.try_clone()?);
    let mut option = |name: &str, path: Option<&Path>| {
        if let Some(path) = path {
            command.arg(name).arg(path);
        }
    };
    option("--config", context.look_up.explicit.as_deref());
    option("--socket", context.named_socket.as_deref());
    option("--data-dir", data_dir);
    command.spawn()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn a_long_log_is_put_aside_and_only_new_lines_are_shown() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("kernel.log");
        File::create(&path).unwrap().set_len(MAX_LOG + 1).unwrap();
        let mut log = open_log(folder.path()).unwrap();
        assert!(folder.path().join("kernel.log.1").exists());
        log.write_all(b"old\n").unwrap();
        let mut log = open_log(folder.path()).unwrap();
        log.try_clone().unwrap().write_all(b"").unwrap();
        OpenOptions::new()
            .append(true)
            .open(&path)
            .unwrap()
            .write_all(b"new\n")
            .unwrap();
        assert_eq!(tail(&mut log).unwrap(), "new\n");
    }
}
