//! Finds out which restrictions this machine supports, by trying them in a process that ends.

use std::collections::BTreeSet;
use std::io;
use std::path::Path;
use std::process::Stdio;

use landlock::{ABI, Access, AccessFs, LandlockStatus, Ruleset, RulesetAttr, RulesetCreated};
use mgp_engine::servers::sandbox::{Machine, ProgramPaths, SandboxPolicy, SandboxRules};
use tokio::process::Command;

use super::roads::Roads;
use super::{LAUNCH, POLICY, calls, users};

/// Starts this program as that process.
pub(super) async fn ask(exe: &Path) -> io::Result<Machine> {
    let mut command = Command::new(exe);
    command.arg(LAUNCH).env_clear().stdin(Stdio::null());
    let output = command.stderr(Stdio::null()).output().await?;
    serde_json::from_slice(&output.stdout).map_err(io::Error::from)
}

/// Tries all restrictions and reports which worked. Nothing can be run in this process afterwards.
#[must_use]
pub fn probe() -> String {
    let root = nix::unistd::geteuid().is_root();
    // First, because restrictions applied below are inherited by processes this one starts.
    let namespaces = namespaces(root);
    let open = calls::Open {
        programs: true,
        outbound: true,
        listen: true,
        modes: true,
        others: true,
        ipc: true,
    };
    let machine = Machine {
        landlock: landlock(),
        seccomp: calls::confine(open).is_ok(),
        root,
        namespaces,
    };
    serde_json::to_string(&machine).expect("it is always JSON")
}

/// Whether a whole launch with all namespaces and without a program succeeds.
fn namespaces(root: bool) -> bool {
    let machine = Machine {
        namespaces: true,
        ..Machine::default()
    };
    let mut policy = SandboxPolicy::of(
        &BTreeSet::new(),
        &SandboxRules::default(),
        &ProgramPaths::default(),
        machine,
    );
    // No server has written anything yet.
    Roads::default().settle(&mut policy);
    policy.user = root.then_some(*users::RANGE.end());
    let policy = serde_json::to_string(&policy).expect("a policy is always JSON");
    let mut launch = std::process::Command::new("/proc/self/exe");
    launch.args([LAUNCH, "--", "", ""]).env(POLICY, policy);
    launch
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    launch.status().is_ok_and(|status| status.success())
}

/// The Landlock version that is in force for this process.
fn landlock() -> u32 {
    let ruleset = Ruleset::default().handle_access(AccessFs::from_all(ABI::V1));
    let held = ruleset
        .and_then(Ruleset::create)
        .and_then(RulesetCreated::restrict_self);
    match held.map(|status| status.landlock) {
        Ok(LandlockStatus::Available { effective_abi, .. }) => effective_abi as u32,
        Ok(LandlockStatus::NotEnabled | LandlockStatus::NotImplemented) | Err(_) => 0,
    }
}
