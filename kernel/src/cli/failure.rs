//! Failures of commands: the message and the exit code.

use std::fmt;
use std::io;
use std::path::PathBuf;

use mgp_runtime::time::unix_ms;

use serde::Serialize;
use serde_json::{Value, json};

use super::text_format::format_duration;
use crate::kernel::running_kernel::RunningKernel;

/// Why a command failed. The text says what to do next.
#[derive(Debug, thiserror::Error)]
pub(super) enum Failure {
    /// No kernel listens at the socket.
    #[error("{0}")]
    NotRunning(KernelAbsence),
    /// The command line, or the arguments of a tool, are invalid.
    #[error("{0}")]
    Usage(String),
    /// The kernel answered with an error.
    #[error("{message}")]
    ErrorResponse {
        /// JSON-RPC, MCP or MGP code.
        code: i64,
        /// The kernel's message.
        message: String,
        /// For programs.
        data: Option<Value>,
    },
    /// The tool reported an error, which has been printed.
    #[error("the tool answered with an error")]
    ToolError,
    /// The audit log is damaged; the damage has been printed.
    #[error("the audit log is damaged")]
    AuditLogDamaged,
    /// `mgp doctor` found problems, which have been printed.
    #[error("some checks failed; the command after an arrow fixes the problem before it")]
    ChecksFailed,
    /// `mgp servers scan` found something over the threshold, which has been printed.
    #[error("something reads like orders beyond its own calls; read it before agents use it")]
    ScanFound,
    /// `mgp check` found something that is not ready, which has been printed.
    #[error("{0}")]
    NotReady(Readiness),
    /// Ctrl-C.
    #[error("interrupted")]
    Interrupted,
    /// The reader of stdout has closed it.
    #[error("nobody reads the output any more")]
    OutputClosed,
    /// The connection ended before the answer came.
    #[error("the kernel closed the connection")]
    ConnectionClosed,
    /// Anything else.
    #[error("{0}")]
    Other(String),
}

/// What `mgp check` found, the worst last: who waits for it to change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Readiness {
    /// A call can be made now.
    Ready,
    /// The kernel is working on it, or tries again.
    Transient,
    /// A person has to decide or sign in.
    Blocked,
    /// The configuration or a name is wrong, or a server does not start.
    Misconfigured,
}

impl Readiness {
    pub(super) const fn label(self) -> &'static str {
        match self {
            Self::Ready => "ready",
            Self::Transient => "transient",
            Self::Blocked => "blocked",
            Self::Misconfigured => "misconfigured",
        }
    }

    /// As sysexits.h has them: `EX_TEMPFAIL`, `EX_NOPERM` and `EX_CONFIG`.
    const fn exit_code(self) -> u8 {
        match self {
            Self::Ready => 0,
            Self::Transient => 75,
            Self::Blocked => 77,
            Self::Misconfigured => 78,
        }
    }
}

impl fmt::Display for Readiness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ready => "everything is ready",
            Self::Transient => "not ready yet: try again later",
            Self::Blocked => "not ready: a person has to run the command after the arrow",
            Self::Misconfigured => "not ready: the command after the arrow shows what is wrong",
        })
    }
}

/// Why no kernel could be reached.
#[derive(Debug)]
pub(super) enum KernelAbsence {
    /// No process listens at this socket.
    NotListening(PathBuf),
    /// The kernel has stopped, and no other one listens at its socket.
    Stopped(PathBuf),
    /// No process listens at the usual socket, and no kernel is recorded in these folders.
    NotFound(PathBuf, Vec<PathBuf>),
    /// This kernel runs, and its socket (the second) does not answer.
    Unresponsive(RunningKernel, PathBuf),
    /// This process holds the data folder, and has not recorded its socket.
    Unrecorded(i32, PathBuf),
}

impl fmt::Display for KernelAbsence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UP: &str = "start one with `mgp up`";
        match self {
            Self::NotListening(socket) => {
                write!(f, "no kernel is running at {}: {UP}", socket.display())
            }
            Self::Stopped(socket) => write!(
                f,
                "the kernel was stopped, and no other one has come to {}: {UP}, and connect again",
                socket.display()
            ),
            Self::NotFound(socket, folders) => {
                let folders: Vec<_> = folders
                    .iter()
                    .map(|dir| dir.display().to_string())
                    .collect();
                let (socket, folders) = (socket.display(), folders.join(", "));
                write!(
                    f,
                    "no kernel is running at {socket}, and none is recorded in {folders}: {UP}"
                )
            }
            Self::Unresponsive(kernel, socket) => {
                let (pid, data) = (kernel.pid, kernel.data_dir.display());
                let ago = unix_ms().saturating_sub(kernel.since.saturating_mul(1000));
                write!(
                    f,
                    "the kernel (process {pid}) has held {data} for {}, and nobody answers at {}",
                    format_duration(ago),
                    socket.display()
                )?;
                if *socket == kernel.socket {
                    write!(f, ", where it listens: `kill {pid}` ends it, then {UP}")
                } else {
                    write!(
                        f,
                        ": it listens at {}; leave --socket and MGP_SOCKET out to get there",
                        kernel.socket.display()
                    )
                }
            }
            Self::Unrecorded(pid, folder) => write!(
                f,
                "a process ({pid}) holds {} and has not said where it listens: it is starting, or of \
                 an earlier version; name its socket with --socket, or end it with `kill {pid}`, then {UP}",
                folder.display()
            ),
        }
    }
}

impl Failure {
    /// The exit code of the process.
    #[must_use]
    pub(super) fn exit_code(&self) -> u8 {
        match self {
            Self::ErrorResponse { .. }
            | Self::OutputClosed
            | Self::ConnectionClosed
            | Self::Other(_) => 1,
            Self::Usage(_) => 2,
            Self::NotRunning(_) => 3,
            Self::ToolError | Self::AuditLogDamaged | Self::ChecksFailed | Self::ScanFound => 4,
            Self::NotReady(readiness) => readiness.exit_code(),
            Self::Interrupted => 130,
        }
    }

    /// For programs.
    pub(super) fn to_json(&self) -> Value {
        let mut error = json!({"message": self.to_string(), "exit_code": self.exit_code()});
        if let Self::ErrorResponse { code, data, .. } = self {
            error["code"] = (*code).into();
            error["data"] = data.clone().unwrap_or_default();
        }
        json!({ "error": error })
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Other(error.to_string())
    }
}
