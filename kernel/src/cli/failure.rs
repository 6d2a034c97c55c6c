//! Why a command was not carried out: what is printed, and the exit code.

use std::io;
use std::path::PathBuf;

use super::output::report;
use serde_json::{Value, json};

/// Why a command was not carried out. Its text says what to do next.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// Nobody answers at the socket.
    #[error("no kernel is running at {}: start one with `mgp up`", .0.display())]
    NotRunning(PathBuf),
    /// The command line, or the arguments of a tool, are wrong.
    #[error("{0}")]
    Usage(String),
    /// The kernel answered with an error.
    #[error("{message}")]
    Refused {
        /// JSON-RPC, MCP or MGP code.
        code: i64,
        /// The kernel's words.
        message: String,
        /// For programs.
        data: Option<Value>,
    },
    /// The tool ran and failed; what it said has been shown.
    #[error("the tool answered with an error")]
    ToolError,
    /// The audit log is not as it was written; what is wrong has been shown.
    #[error("the audit log is damaged")]
    Damaged,
    /// Ctrl-C.
    #[error("interrupted")]
    Interrupted,
    /// Whoever read stdout has gone.
    #[error("nobody reads the output any more")]
    NobodyReads,
    /// The connection ended before the answer came.
    #[error("the kernel closed the connection")]
    Gone,
    /// Anything else.
    #[error("{0}")]
    Other(String),
}

impl Failure {
    /// The exit code of the process.
    #[must_use]
    pub fn code(&self) -> u8 {
        match self {
            Self::Refused { .. } | Self::NobodyReads | Self::Gone | Self::Other(_) => 1,
            Self::Usage(_) => 2,
            Self::NotRunning(_) => 3,
            Self::ToolError | Self::Damaged => 4,
            Self::Interrupted => 130,
        }
    }

    /// Says on stderr what went wrong.
    pub(super) fn tell(&self, json: bool) {
        match json {
            _ if matches!(self, Self::NobodyReads) => {}
            true => report(self.to_json()),
            false => report(format_args!(
                "mgp: {}",
                super::words::plain(&self.to_string())
            )),
        }
    }

    fn to_json(&self) -> Value {
        let mut error = json!({"message": self.to_string(), "exit_code": self.code()});
        if let Self::Refused { code, data, .. } = self {
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
