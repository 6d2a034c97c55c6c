//! Every other system: what POSIX and the BSDs share. Processes are read by `ps`, files are polled, and nothing is confined.

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
