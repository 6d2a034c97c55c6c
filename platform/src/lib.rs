//! What the kernel needs of the system it runs on: the only crate that names one.
//!
//! Each need has two implementations with the same functions: `linux`, and `unix` for every other system, which uses
//! what POSIX and the BSDs share. `docs/platforms.md` lists what is weaker there. The feature `portable` builds `unix`
//! on Linux, so that it is executed.

pub mod descriptors;
mod launch;
mod process;
pub mod processes;
pub mod sandbox;

#[cfg(all(target_os = "linux", not(feature = "portable")))]
mod linux;
#[cfg(all(target_os = "linux", not(feature = "portable")))]
use linux as system;

#[cfg(not(all(target_os = "linux", not(feature = "portable"))))]
mod unix;
#[cfg(not(all(target_os = "linux", not(feature = "portable"))))]
use unix as system;

pub use system::{WEAKNESSES, clock, desktop, files, keyring, lock, peer, pipes, service, watch};

/// A guarantee that this system's implementation does not give.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Weakness {
    /// What it is about, in one word.
    pub area: &'static str,
    /// What may happen.
    pub text: &'static str,
}

/// The credentials of the other end of a Unix socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// User.
    pub uid: u32,
    /// Main group.
    pub gid: u32,
    /// Process, if the system reports it.
    pub pid: Option<i32>,
}

/// The attributes that identify an item of the desktop's keyring.
#[derive(Clone, Debug)]
pub struct KeyringItem {
    /// Identifies the store: other homes of the same user have other secrets.
    pub store: String,
    /// What the secret is for.
    pub space: &'static str,
    /// Its name.
    pub name: String,
}

/// How much of a folder is watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Depth {
    /// What is in the folder itself.
    Folder,
    /// The folders inside, too.
    Tree,
}

/// What starts programs in a user's session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServiceSystem {
    /// systemd, by units.
    Systemd,
    /// launchd, by agents.
    Launchd,
    /// None that is known here.
    Unknown,
}

fn to_duration(time: rustix::time::Timespec) -> std::time::Duration {
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let nanos = u64::try_from(time.tv_nsec).unwrap_or(0);
    std::time::Duration::from_secs(seconds) + std::time::Duration::from_nanos(nanos)
}
