//! The launcher of sandboxed servers: Landlock, seccomp, namespaces and limits.
//!
//! The kernel itself restricts nothing after fork: between fork and exec no safe code can run.
//! The launcher is the kernel's own program, started again with a hidden argument.

mod egress;
mod exec;
mod init;
mod kernel_confinement;
mod launcher_main;
mod leader;
mod mount_view;
mod nofollow;
mod privileges;
mod probe;
mod seccomp;
mod step;

pub use egress::{bind_socket, receive_listener};
pub use kernel_confinement::confine_to_compute;
pub use launcher_main::launch;
pub use probe::probe;

/// A launcher stays above the server, and ends all of its processes.
pub const LAUNCHER_STAYS: bool = true;
/// Why no restriction of a policy is enforced: what the machine supports is.
pub const NOT_HELD: Option<&str> = None;
