//! Linux: `/proc`, pidfds, Landlock, seccomp, namespaces, inotify, D-Bus.

use crate::Weakness;

pub mod clock;
pub mod desktop;
pub mod files;
pub(crate) mod handle;
pub mod keyring;
pub mod lock;
pub mod peer;
pub mod pipes;
pub(crate) mod program;
pub(crate) mod sandbox;
pub mod service;
pub(crate) mod signals;
pub(crate) mod table;
pub mod watch;

/// What other systems hold and this one does not.
pub const WEAKNESSES: &[Weakness] = &[];
