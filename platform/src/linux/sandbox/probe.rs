//! Detects the restrictions this machine supports, by applying them in a short-lived process.

use std::process::{Command, Stdio};

use landlock::{ABI, Access, AccessFs, LandlockStatus, Ruleset, RulesetAttr, RulesetCreated};

use super::seccomp;
use crate::launch::{LAUNCH_ARGUMENT, Machine, POLICY_VARIABLE, Policy};
use crate::linux::program::own_program;

/// Applies all restrictions and reports which worked. Nothing can run in this process afterwards. The policy is tried
/// with all namespaces.
#[must_use]
pub fn probe(policy: &Policy) -> Machine {
    // First, because restrictions applied below are inherited by child processes.
    let namespaces = probe_namespaces(policy);
    let open = seccomp::AllowedCalls {
        programs: true,
        outbound: true,
        listen: true,
        modes: true,
        other_processes: true,
        ipc: true,
    };
    Machine {
        landlock: probe_landlock(),
        seccomp: seccomp::confine(open).is_ok(),
        root: nix::unistd::geteuid().is_root(),
        namespaces,
    }
}

/// True if a complete launch with all namespaces and without a program succeeds.
fn probe_namespaces(policy: &Policy) -> bool {
    let policy = serde_json::to_string(policy).expect("a policy is always JSON");
    let mut launch = Command::new(own_program());
    launch
        .args([LAUNCH_ARGUMENT, "--", "", ""])
        .env(POLICY_VARIABLE, policy);
    launch
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    launch.status().is_ok_and(|status| status.success())
}

/// The Landlock ABI version that is in force for this process.
fn probe_landlock() -> u32 {
    let ruleset = Ruleset::default().handle_access(AccessFs::from_all(ABI::V1));
    let enforced = ruleset
        .and_then(Ruleset::create)
        .and_then(RulesetCreated::restrict_self);
    match enforced.map(|status| status.landlock) {
        Ok(LandlockStatus::Available { effective_abi, .. }) => effective_abi as u32,
        Ok(LandlockStatus::NotEnabled | LandlockStatus::NotImplemented) | Err(_) => 0,
    }
}
