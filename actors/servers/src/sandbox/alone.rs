//! A process of the kernel's own that has its three pipes and needs nothing else: no file, no network,
//! no other process. It shuts itself in, before it reads the first byte of anybody else's.

use std::fs;

use nix::sys::resource::{Resource, setrlimit};
use nix::sys::signal::Signal;

use super::{calls, rights};

/// Whom it becomes where the kernel is root's: a number that systems give to nobody, and no server's.
const USER: u32 = 65_520;
/// When memory runs out, this process goes first.
const DISPENSABLE: &str = "1000";

/// Leaves this process what it computes with, its pipes, and so many bytes of private memory; it dies
/// with the thread that started it. To be called before it has other threads. What could not be shut
/// is answered in words, and the rest is shut all the same.
pub fn alone(memory: u64) -> String {
    let _ = fs::write("/proc/self/oom_score_adj", DISPENSABLE);
    let user = nix::unistd::geteuid().is_root().then_some(USER);
    let steps = [
        // Who has no such user is still left without root's rights.
        rights::give_up(user).or_else(|why| rights::give_up(None).and(Err(why))),
        bound(memory),
        // After the user changed, which takes it back.
        nix::sys::prctl::set_pdeathsig(Signal::SIGKILL).map_err(|e| e.to_string()),
        calls::only_compute(),
    ];
    let missing: Vec<String> = steps.into_iter().filter_map(Result::err).collect();
    missing.join("; ")
}

fn bound(memory: u64) -> Result<(), String> {
    let all = [
        (Resource::RLIMIT_CORE, 0),
        (Resource::RLIMIT_DATA, memory),
        (Resource::RLIMIT_FSIZE, 0),
        // Those it has stay open.
        (Resource::RLIMIT_NOFILE, 0),
    ];
    for (resource, most) in all {
        // A limit that is lower already stays.
        let hard = nix::sys::resource::getrlimit(resource).map_or(most, |(_, hard)| hard);
        let most = most.min(hard);
        setrlimit(resource, most, most).map_err(|e| format!("{resource:?}: {e}"))?;
    }
    Ok(())
}
