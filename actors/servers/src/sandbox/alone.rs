//! Shuts in a process of the kernel's own that needs nothing but its three pipes: no files, no network,
//! no processes. Done before it reads any input.

use std::fs;

use nix::sys::resource::{Resource, setrlimit};
use nix::sys::signal::Signal;

use super::{calls, rights};

/// The user it becomes where the kernel runs as root: a number that neither systems nor servers use.
const USER: u32 = 65_520;
/// When memory runs out, this process is killed first.
const DISPENSABLE: &str = "1000";

/// Leaves this process only computing, its pipes and this much private memory; it dies with the thread
/// that started it. Must be called before other threads exist. Returns, in words, what could not be
/// restricted; the rest is restricted all the same.
pub fn alone(memory: u64) -> String {
    let _ = fs::write("/proc/self/oom_score_adj", DISPENSABLE);
    let user = nix::unistd::geteuid().is_root().then_some(USER);
    let steps = [
        // Where the user does not exist, root's rights are dropped all the same.
        rights::give_up(user).or_else(|why| rights::give_up(None).and(Err(why))),
        bound(memory),
        // After the change of user, which resets it.
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
        // Files that are open already stay open.
        (Resource::RLIMIT_NOFILE, 0),
    ];
    for (resource, most) in all {
        // A limit that is lower already is kept.
        let hard = nix::sys::resource::getrlimit(resource).map_or(most, |(_, hard)| hard);
        let most = most.min(hard);
        setrlimit(resource, most, most).map_err(|e| format!("{resource:?}: {e}"))?;
    }
    Ok(())
}
