//! No sandbox: the launcher only sets limits that POSIX has, and leaves root.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixListener;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

use nix::unistd::geteuid;
use rustix::process::Resource;

use crate::launch::{Machine, Policy, read_policy, server_environment, set_limits};

/// The launcher becomes the server.
pub const LAUNCHER_STAYS: bool = false;
/// Why no restriction of a policy is enforced.
pub const NOT_HELD: Option<&str> = Some("all of it: this system has no sandbox for servers");

/// No restriction works here.
#[must_use]
pub fn probe(_policy: &Policy) -> Machine {
    Machine {
        root: geteuid().is_root(),
        ..Machine::default()
    }
}

/// Becomes the server: path of the program, its name, its arguments. Returns without a program only.
///
/// # Errors
/// The reason why the server was not started, as text.
pub fn launch(command: &[OsString]) -> Result<u8, String> {
    let failed = |why: String| format!("the server is not started: {why}");
    let [program, name, args @ ..] = command else {
        return Err(failed("it requires a program and its name".into()));
    };
    let policy = read_policy().map_err(failed)?;
    if geteuid().is_root() && policy.user.is_none() {
        let why = "a server started by root requires a user to switch to";
        return Err(failed(why.into()));
    }
    let Machine {
        landlock,
        seccomp,
        namespaces,
        root: _,
    } = policy.machine;
    if landlock > 0 || seccomp || namespaces {
        return Err(failed("this system has no sandbox".into()));
    }
    let limits = &policy.limits;
    let all = [
        (Resource::Core, 0),
        (Resource::Data, limits.memory),
        (Resource::Nofile, limits.open_files),
        (Resource::Fsize, limits.file_size),
    ];
    set_limits(&all).map_err(failed)?;
    if program.is_empty() {
        return Ok(0);
    }
    let mut server = Command::new(program);
    server.arg0(name).args(args);
    server.env_clear().envs(server_environment());
    if let Some(user) = policy.user {
        // Also leaves root's other groups.
        server.uid(user).gid(user);
    }
    let why = server.exec();
    Err(failed(format!(
        "{}: {why}",
        PathBuf::from(program).display()
    )))
}

/// Sets limits of this process; nothing else can be confined. Returns what is missing.
pub fn confine_to_compute(memory: u64) -> String {
    let all = [
        (Resource::Core, 0),
        (Resource::Data, memory),
        (Resource::Fsize, 0),
    ];
    let limits = set_limits(&all).err();
    let missing = ["this system has no sandbox".to_owned()];
    let all: Vec<_> = missing.into_iter().chain(limits).collect();
    all.join("; ")
}

/// No server's destinations are limited here.
///
/// # Errors
/// Always.
pub fn bind_socket(_folder: &File, _name: &str) -> io::Result<UnixListener> {
    Err(io::ErrorKind::Unsupported.into())
}

/// No launcher sends a listener.
///
/// # Errors
/// Always.
pub fn receive_listener(_stream: impl AsFd) -> io::Result<OwnedFd> {
    Err(io::ErrorKind::Unsupported.into())
}
