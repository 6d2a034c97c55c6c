//! Pipes to children.

use std::os::fd::AsFd;

use nix::fcntl::{FcntlArg, fcntl};

/// Requested size of a child's pipes, in bytes: a frame of 64 KiB then passes without waiting for its reader. The system
/// denies it to users with too many pipes; the default size works, too.
const PIPE_SIZE: i32 = 256 << 10;

/// Enlarges a pipe, if the system permits it.
pub fn enlarge(pipe: &impl AsFd) {
    let _ = fcntl(pipe, FcntlArg::F_SETPIPE_SZ(PIPE_SIZE));
}
