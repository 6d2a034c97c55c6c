//! Threads that come after all others.

/// How much less they are worth than those of calls.
const NICENESS: i32 = 10;

/// Lets calls go before what this thread does from here on. It stays so: the thread has to be one of its own.
pub(crate) fn lower_priority(what: &str) {
    // The process that is none is this thread.
    if let Err(error) = rustix::process::setpriority_process(None, NICENESS) {
        tracing::debug!(%error, "{what} is as important as all else");
    }
}
