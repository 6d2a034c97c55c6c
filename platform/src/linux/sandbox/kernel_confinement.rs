//! Confines a process of the kernel that needs only its three pipes: no files, no network, no child processes.
//! Applied before it reads any input.

use std::fs;

use nix::sys::signal::Signal;
use rustix::process::Resource;

use super::{privileges, seccomp};

/// The user of the process if the kernel runs as root; an id that neither systems nor servers use.
const CONFINED_UID: u32 = 65_520;
/// When memory runs out, this process is killed first.
const OOM_SCORE_ADJ: &str = "1000";

/// Restricts this process to computing, its pipes and this much private memory; it dies with the thread that
/// started it. Must be called before other threads exist. Returns a description of restrictions that failed; the
/// others are applied.
pub fn confine_to_compute(memory: u64) -> String {
    let _ = fs::write("/proc/self/oom_score_adj", OOM_SCORE_ADJ);
    let user = nix::unistd::geteuid().is_root().then_some(CONFINED_UID);
    let steps = [
        // If the user does not exist, root's rights are dropped anyway.
        privileges::drop_privileges(user)
            .or_else(|why| privileges::drop_privileges(None).and(Err(why))),
        set_limits(memory),
        // After the change of user, which resets it.
        nix::sys::prctl::set_pdeathsig(Signal::SIGKILL).map_err(|e| e.to_string()),
        seccomp::confine_to_compute(),
    ];
    let missing: Vec<String> = steps.into_iter().filter_map(Result::err).collect();
    missing.join("; ")
}

fn set_limits(memory: u64) -> Result<(), String> {
    let all = [
        (Resource::Core, 0),
        (Resource::Data, memory),
        (Resource::Fsize, 0),
        // Open files stay open.
        (Resource::Nofile, 0),
    ];
    crate::launch::set_limits(&all)
}
