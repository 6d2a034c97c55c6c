//! What the kernel passes to the launcher of a sandboxed server, and the launcher to the server.
//!
//! The policy is decided elsewhere and arrives as JSON; these types mirror it.

use std::collections::BTreeMap;
use std::env;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde::{Deserialize, Serialize};

use crate::process::MARK_VARIABLE;

/// The variable with the policy; removed by the launcher.
pub const POLICY_VARIABLE: &str = "MGP_SANDBOX_POLICY";
/// The variable with the kernel's process id: the server must not outlive that process.
pub const KERNEL_PID_VARIABLE: &str = "MGP_SANDBOX_KERNEL";
/// The launcher's hidden argument, before the program.
pub const LAUNCH_ARGUMENT: &str = "__sandbox";
/// The prefix of a server's variables in a launcher's environment.
pub const SERVER_PREFIX: &str = "MGP_FOR_SERVER_";
/// The port of the proxy in the network of a server whose destinations are limited, which has no other ports yet.
pub const PROXY_PORT: u16 = 3128;

/// The restrictions of a server's process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Policy {
    /// Readable paths.
    pub read: Vec<PathBuf>,
    /// Readable and executable paths.
    pub execute: Vec<PathBuf>,
    /// Readable and writable paths.
    pub write: Vec<PathBuf>,
    /// It may connect.
    pub outbound: bool,
    /// It may connect to a proxy of the kernel alone, whose listener is sent through this socket.
    pub egress_socket: Option<PathBuf>,
    /// It may listen.
    pub listen: bool,
    /// It may start programs.
    pub programs: bool,
    /// Bounds.
    pub limits: Limits,
    /// What the machine must enforce. The process is not started with less.
    pub machine: Machine,
    /// The symbolic links on these paths.
    pub links: BTreeMap<PathBuf, PathBuf>,
    /// The user it runs as when root starts it; its group has the same number.
    pub user: Option<u32>,
}

/// Bounds on a sandboxed server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Limits {
    /// Private memory of one process, in bytes, without shared memory.
    pub memory: u64,
    /// Processes and threads beyond those its user has at its start.
    pub processes: u64,
    /// Open files of one process.
    pub open_files: u64,
    /// Size of a file it writes, in bytes.
    pub file_size: u64,
}

/// The restrictions that this machine can enforce.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Machine {
    /// The Landlock version, or 0.
    pub landlock: u32,
    /// Whether system calls can be filtered.
    pub seccomp: bool,
    /// Whether the kernel runs as root. Sandboxed servers never do.
    pub root: bool,
    /// Whether a server can have mount, process and IPC namespaces.
    pub namespaces: bool,
}

/// The policy of this launcher.
pub(crate) fn read_policy() -> Result<Policy, String> {
    let policy = env::var(POLICY_VARIABLE).map_err(|_| "it has no policy".to_owned())?;
    serde_json::from_str(&policy).map_err(|e| format!("its policy cannot be read: {e}"))
}

/// The server's environment, under its own names.
pub(crate) fn server_environment() -> impl Iterator<Item = (OsString, OsString)> {
    env::vars_os().filter_map(|(name, value)| {
        let own = name.as_bytes().strip_prefix(SERVER_PREFIX.as_bytes());
        let name_bytes = own.or_else(|| (name == MARK_VARIABLE).then_some(name.as_bytes()))?;
        Some((OsStr::from_bytes(name_bytes).to_owned(), value))
    })
}

/// Sets limits of this process; a lower existing limit stays.
pub(crate) fn set_limits(limits: &[(Resource, u64)]) -> Result<(), String> {
    for (resource, most) in limits {
        let hard = getrlimit(*resource).maximum;
        let most = Some(hard.map_or(*most, |hard| hard.min(*most)));
        let limit = Rlimit {
            current: most,
            maximum: most,
        };
        setrlimit(*resource, limit).map_err(|e| format!("{resource:?}: {e}"))?;
    }
    Ok(())
}
