//! Threads with low priority.

/// The niceness that is added to that of call threads.
const NICENESS: i32 = 10;

/// Lowers the priority of the current thread. This is permanent, so the thread must be a dedicated one.
pub(crate) fn lower_priority(what: &str) {
    // Process `None` means the current thread.
    if let Err(error) = rustix::process::setpriority_process(None, NICENESS) {
        tracing::debug!(%error, "{what} is as important as all else");
    }
}
