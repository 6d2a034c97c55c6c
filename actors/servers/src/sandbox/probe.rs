//! Detects the restrictions this machine supports, in a short-lived process.

use std::collections::BTreeSet;
use std::io;
use std::path::Path;
use std::process::Stdio;

use mgp_engine::servers::sandbox::{ProgramPaths, SandboxConfig, SandboxPolicy, SandboxSupport};
use mgp_platform::sandbox::{self, LAUNCH_ARGUMENT, Policy};
use tokio::process::Command;

use super::path_resolution::PathResolver;
use super::users;

/// Runs this program as the probe process.
pub(super) async fn run_probe(exe: &Path) -> io::Result<SandboxSupport> {
    let mut command = Command::new(exe);
    command
        .arg(LAUNCH_ARGUMENT)
        .env_clear()
        .stdin(Stdio::null());
    let output = command.stderr(Stdio::null()).output().await?;
    serde_json::from_slice(&output.stdout).map_err(io::Error::from)
}

/// Applies all restrictions and reports which worked, as JSON. Nothing can run in this process afterwards.
#[must_use]
pub fn probe() -> String {
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
    let root = nix::unistd::geteuid().is_root();
    policy.user = root.then_some(*users::UID_RANGE.end());
    let machine = sandbox::probe(&to_launcher_policy(&policy));
    serde_json::to_string(&machine).expect("it is always JSON")
}

/// The policy as the launcher reads it.
fn to_launcher_policy(policy: &SandboxPolicy) -> Policy {
    let policy = serde_json::to_value(policy).and_then(serde_json::from_value);
    policy.expect("both have the same members, as a test shows")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use mgp_engine::servers::sandbox::SandboxLimits;

    use super::*;

    /// The launcher reads every member of a policy, and no other one.
    #[test]
    fn a_policy_is_the_same_for_the_launcher() {
        let policy = SandboxPolicy {
            read: vec!["/r".into()],
            execute: vec!["/x".into()],
            write: vec!["/w".into()],
            outbound: true,
            egress_socket: Some("/s".into()),
            listen: true,
            programs: true,
            limits: SandboxLimits::default(),
            machine: SandboxSupport {
                landlock: 6,
                seccomp: true,
                root: true,
                namespaces: true,
            },
            links: BTreeMap::from([("/a".into(), "/b".into())]),
            user: Some(61_184),
        };
        let same = serde_json::to_value(to_launcher_policy(&policy)).unwrap();
        assert_eq!(same, serde_json::to_value(&policy).unwrap());
    }
}
