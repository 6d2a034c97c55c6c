//! What this machine can hold a process to: tried out, in a process that ends.

use std::io;
use std::path::Path;
use std::process::Stdio;

use landlock::{ABI, Access, AccessFs, LandlockStatus, Ruleset, RulesetAttr, RulesetCreated};
use mgp_engine::sandbox::Machine;
use tokio::process::Command;

use super::{LAUNCH, calls};

/// Asks a process of this program, which is held to what it tried from then on.
pub(super) async fn ask(exe: &Path) -> io::Result<Machine> {
    let mut command = Command::new(exe);
    command.arg(LAUNCH).env_clear().stdin(Stdio::null());
    let output = command.stderr(Stdio::null()).output().await?;
    serde_json::from_slice(&output.stdout).map_err(io::Error::from)
}

/// Tries everything out, and says what worked. Nothing can be run in this process afterwards.
#[must_use]
pub fn probe() -> String {
    let machine = Machine {
        landlock: landlock(),
        seccomp: calls::confine(true, true, true).is_ok(),
        root: nix::unistd::geteuid().is_root(),
    };
    serde_json::to_string(&machine).expect("it is always JSON")
}

/// The version of Landlock that holds this process.
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
