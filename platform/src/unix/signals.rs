//! Which signals this process was started to ignore.

use nix::sys::signal::Signal;

/// Always false: POSIX reports it only to the call that sets a handler, which safe code cannot make.
#[must_use]
pub fn ignores_signal(_signal: Signal) -> bool {
    false
}
