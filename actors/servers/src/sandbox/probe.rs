//! Detects the restrictions this machine supports, by applying them in a short-lived process.

use std::collections::BTreeSet;
use std::io;
use std::path::Path;
use std::process::Stdio;

use landlock::{ABI, Access, AccessFs, LandlockStatus, Ruleset, RulesetAttr, RulesetCreated};
use mgp_engine::servers::sandbox::{ProgramPaths, SandboxConfig, SandboxPolicy, SandboxSupport};
use tokio::process::Command;

use super::path_resolution::PathResolver;
use super::{LAUNCH_ARG, POLICY_VAR, seccomp, users};

/// Runs this program as the probe process.
pub(super) async fn run_probe(exe: &Path) -> io::Result<SandboxSupport> {
    let mut command = Command::new(exe);
    command.arg(LAUNCH_ARG).env_clear().stdin(Stdio::null());
    let output = command.stderr(Stdio::null()).output().await?;
    serde_json::from_slice(&output.stdout).map_err(io::Error::from)
}

/// Applies all restrictions and reports which worked. Nothing can run in this process afterwards.
#[must_use]
pub fn probe() -> String {
    let root = nix::unistd::geteuid().is_root();
    // First, because restrictions applied below are inherited by child processes.
    let namespaces = probe_namespaces(root);
    let open = seccomp::AllowedCalls {
        programs: true,
        outbound: true,
        listen: true,
        modes: true,
        other_processes: true,
        ipc: true,
    };
    let machine = SandboxSupport {
        landlock: probe_landlock(),
        seccomp: seccomp::confine(open).is_ok(),
        root,
        namespaces,
    };
    serde_json::to_string(&machine).expect("it is always JSON")
}

/// True if a complete launch with all namespaces and without a program succeeds.
fn probe_namespaces(root: bool) -> bool {
    let machine = SandboxSupport {
        namespaces: true,
        ..SandboxSupport::default()
    };
    let mut policy = SandboxPolicy::for_server(
        &BTreeSet::new(),
        &SandboxConfig::default(),
        &ProgramPaths::default(),
        machine,
    );
    // No server has written anything yet.
    PathResolver::default().finish(&mut policy);
    policy.user = root.then_some(*users::UID_RANGE.end());
    let policy = serde_json::to_string(&policy).expect("a policy is always JSON");
    let mut launch = std::process::Command::new("/proc/self/exe");
    launch
        .args([LAUNCH_ARG, "--", "", ""])
        .env(POLICY_VAR, policy);
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
