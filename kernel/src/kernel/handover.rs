//! The handover: a running kernel executes another program in its own process. Its process id, the lock on its data
//! folder, its listeners and its HTTP sessions pass to it; everything else is on disk, or starts again.
//!
//! Both programs agree on one variable and one message. The message arrives at stdin, a socket for that moment, with the
//! descriptors that it names (unix(7), `SCM_RIGHTS`); the former stdin is one of them. Unknown names are closed, so a
//! later program may send more.

use std::env;
use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::net::TcpListener;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use mgp_doors::SessionRecord;
use mgp_platform::{descriptors, processes};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use serde::{Deserialize, Serialize};

use super::lock::FolderLock;
use crate::handover::{CheckedProgram, VARIABLE};

/// How long the last children may take to end.
const REAP_TIMEOUT: Duration = Duration::from_millis(500);
const REAP_INTERVAL: Duration = Duration::from_millis(5);
/// Most bytes of session records; the largest are left out. 10,000 usual ones have half of that.
const SESSIONS_BYTES_MAX: usize = 16 << 20;
/// Most bytes of a report, which has two paths at most. A pipe holds more.
const REPORT_BYTES_MAX: u64 = 32 << 10;

/// What is handed over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Item {
    Stdin,
    LockFile,
    LockedFolder,
    /// The owner's socket.
    Socket,
    /// The same, bound by the service manager, which keeps its file.
    ManagedSocket,
    Http,
    Sessions,
    /// A [`HandoverReport`].
    Report,
    #[serde(other)]
    Unknown,
}

/// What passes from one program to the next.
#[derive(Debug, Default)]
pub(crate) struct Inheritance {
    pub(super) lock: Option<FolderLock>,
    pub(super) socket: Option<InheritedSocket>,
    pub(super) http: Option<TcpListener>,
    pub(super) sessions: Option<File>,
    pub(super) report: Option<HandoverReport>,
}

/// What the program that goes on records of the handover.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct HandoverReport {
    /// The version before.
    pub(super) from: String,
    /// The path of the program that was to take over, as far as it is text.
    pub(super) program: String,
    /// Why it did not, and the one before begins again.
    #[serde(default)]
    pub(super) failure: Option<String>,
}

/// A bound socket.
#[derive(Debug)]
pub(crate) struct InheritedSocket {
    pub(crate) listener: UnixListener,
    /// The service manager keeps its file.
    pub(crate) is_managed: bool,
}

impl Inheritance {
    /// A socket that the service manager passed.
    #[must_use]
    pub(crate) fn from_service_manager(listener: UnixListener) -> Self {
        Self {
            socket: Some(InheritedSocket {
                listener,
                is_managed: true,
            }),
            ..Self::default()
        }
    }

    /// What the kernel before this one hands over; `None` if there was none. Puts the former stdin back.
    ///
    /// # Errors
    /// The message is not as expected.
    pub(crate) fn receive() -> Result<Option<Self>, String> {
        let from = env::var(VARIABLE).unwrap_or_default();
        if from != std::process::id().to_string() {
            return Ok(None);
        }
        let failed = |e: io::Error| format!("the former kernel's handover cannot be read: {e}");
        let (message, descriptors) = descriptors::receive(io::stdin()).map_err(failed)?;
        let items: Vec<Item> = serde_json::from_slice(&message).map_err(|e| failed(e.into()))?;
        let mut inherited = Self::default();
        let (mut lock_file, mut folder) = (None, None);
        for (item, descriptor) in items.into_iter().zip(descriptors) {
            match item {
                Item::Stdin => {
                    rustix::stdio::dup2_stdin(&descriptor).map_err(|e| failed(e.into()))?
                }
                Item::LockFile => lock_file = Some(File::from(descriptor)),
                Item::LockedFolder => folder = Some(File::from(descriptor)),
                Item::Socket | Item::ManagedSocket => {
                    inherited.socket = Some(InheritedSocket {
                        listener: descriptor.into(),
                        is_managed: item == Item::ManagedSocket,
                    });
                }
                Item::Http => inherited.http = Some(descriptor.into()),
                Item::Sessions => inherited.sessions = Some(descriptor.into()),
                Item::Report => {
                    let json = File::from(descriptor).take(REPORT_BYTES_MAX);
                    inherited.report = serde_json::from_reader(json).ok();
                }
                Item::Unknown => {}
            }
        }
        inherited.lock = lock_file.zip(folder).map(FolderLock::inherit);
        Ok(Some(inherited))
    }

    /// The path of the socket.
    #[must_use]
    pub(crate) fn socket_path(&self) -> Option<PathBuf> {
        let address = self.socket.as_ref()?.listener.local_addr().ok()?;
        Some(address.as_pathname()?.to_owned())
    }
}

/// A handover that is due: the kernel has stopped, and what is here still waits for clients.
#[derive(Debug)]
pub(super) struct Handover {
    pub(super) program: CheckedProgram,
    pub(super) socket: OwnedFd,
    pub(super) is_managed: bool,
    pub(super) http: Option<OwnedFd>,
    pub(super) sessions: Option<File>,
}

impl Handover {
    /// Executes the program. If that fails, this one begins again. Returns only if neither can be executed.
    pub(super) fn execute(&self, lock: &FolderLock) -> String {
        reap_children();
        let failed = match self.program.recheck() {
            Ok(program) => format!(
                "{} cannot be executed: {}",
                program.display(),
                self.execute_program(program, lock, None)
            ),
            Err(why) => why,
        };
        tracing::error!("{failed}; this version begins again");
        // It may have been replaced on the disk.
        let own = processes::own_program();
        let error = self.execute_program(&own, lock, Some(&failed));
        format!("{failed}; {} cannot be executed: {error}", own.display())
    }

    fn execute_program(
        &self,
        program: &Path,
        lock: &FolderLock,
        failure: Option<&str>,
    ) -> io::Error {
        let (ours, theirs) = match UnixStream::pair() {
            Ok(pair) => pair,
            Err(error) => return error,
        };
        if let Err(error) = self.send(&ours, lock, failure) {
            return error;
        }
        drop(ours);
        let mut arguments = env::args_os();
        let name = arguments.next().unwrap_or_else(|| program.into());
        let mut command = Command::new(program);
        command
            .arg0(name)
            .args(arguments)
            .env(VARIABLE, std::process::id().to_string())
            .stdin(OwnedFd::from(theirs));
        command.exec()
    }

    fn send(&self, to: &UnixStream, lock: &FolderLock, failure: Option<&str>) -> io::Result<()> {
        let report = write_pipe(&HandoverReport {
            from: env!("CARGO_PKG_VERSION").into(),
            program: self.program.path().display().to_string(),
            failure: failure.map(ToOwned::to_owned),
        });
        // Without it the handover is not recorded, and goes on.
        let report = report.ok();
        let stdin = io::stdin();
        let [lock_file, folder] = lock.descriptors();
        let socket = if self.is_managed {
            Item::ManagedSocket
        } else {
            Item::Socket
        };
        let mut all: Vec<(Item, BorrowedFd<'_>)> = vec![
            (Item::Stdin, stdin.as_fd()),
            (Item::LockFile, lock_file),
            (Item::LockedFolder, folder),
            (socket, self.socket.as_fd()),
        ];
        all.extend(self.http.iter().map(|it| (Item::Http, it.as_fd())));
        all.extend(self.sessions.iter().map(|it| (Item::Sessions, it.as_fd())));
        all.extend(report.iter().map(|it| (Item::Report, it.as_fd())));
        let (items, descriptors): (Vec<Item>, Vec<_>) = all.into_iter().unzip();
        descriptors::send(to, &serde_json::to_vec(&items)?, &descriptors)
    }
}

/// A report to be read once.
fn write_pipe(report: &HandoverReport) -> io::Result<io::PipeReader> {
    let json = serde_json::to_vec(report)?;
    if json.len() as u64 > REPORT_BYTES_MAX {
        return Err(io::ErrorKind::InvalidFilename.into());
    }
    let (reader, mut writer) = io::pipe()?;
    writer.write_all(&json)?;
    Ok(reader)
}

/// Waits for the children that have ended: the next program does not know them. All were told to end.
fn reap_children() {
    let deadline = Instant::now() + REAP_TIMEOUT;
    while Instant::now() < deadline {
        match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
            Ok(WaitStatus::StillAlive) => std::thread::sleep(REAP_INTERVAL),
            Ok(_) => {}
            Err(_) => return,
        }
    }
}

/// Stores sessions in a file without a name, which only its descriptor reaches.
pub(super) fn store_sessions(
    mut sessions: Vec<SessionRecord>,
    data_dir: &Path,
) -> io::Result<Option<File>> {
    sessions.sort_by_key(SessionRecord::size);
    let mut left = SESSIONS_BYTES_MAX;
    sessions.retain(|session| {
        let fits = session.size() <= left;
        left = left.saturating_sub(session.size());
        fits
    });
    if sessions.is_empty() {
        return Ok(None);
    }
    let mut file = tempfile::tempfile_in(data_dir)?;
    file.write_all(&serde_json::to_vec(&sessions)?)?;
    file.rewind()?;
    Ok(Some(file))
}

/// The sessions of such a file.
pub(super) fn read_sessions(file: File) -> Vec<SessionRecord> {
    let mut json = Vec::new();
    let longest = 2 * SESSIONS_BYTES_MAX as u64;
    let read = file.take(longest).read_to_end(&mut json);
    let sessions = read.and_then(|_| Ok(serde_json::from_slice(&json)?));
    sessions.unwrap_or_else(|error| {
        tracing::warn!(%error, "the sessions of the former kernel are lost: clients open new ones");
        Vec::new()
    })
}
