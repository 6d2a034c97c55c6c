//! Namespaces of this program's own: networks, so that nothing is said outside; mounts, where networks have their
//! names; and processes, which end with the first of them.

use std::process::{Command, ExitCode};

use nix::unistd::Uid;

use crate::SKIPPED;

/// Where networks have their names is a folder of its own, and the loopback is there; then whatever follows.
const INSIDE: &str = r#"mount -t tmpfs tmpfs /run && ip link set lo up && exec "$@""#;
/// Whether a network can be made and named there.
const TRIAL: &str = "ip netns add trial && ip netns exec trial ip link set lo up";

/// Runs this program again, inside.
pub(crate) fn enter() -> ExitCode {
    let tried = unshare().args(["sh", "-c", TRIAL]).output();
    let refused = match tried {
        Ok(tried) if tried.status.success() => None,
        Ok(tried) => Some(String::from_utf8_lossy(&tried.stderr).trim().to_owned()),
        Err(error) => Some(format!("unshare: {error}")),
    };
    if let Some(why) = refused {
        println!("NOT RUN: this machine does not let us make network namespaces: {why}");
        println!("Nothing was measured. As root, or where users may make namespaces, it runs.");
        return ExitCode::from(SKIPPED);
    }
    let this = std::env::current_exe().expect("a process knows its executable");
    let mut again = unshare();
    again
        .arg(this)
        .arg("--inside")
        .args(std::env::args_os().skip(1));
    let status = again.status().expect("it ran a moment ago");
    let code = status.code().and_then(|code| u8::try_from(code).ok());
    ExitCode::from(code.unwrap_or(1))
}

fn unshare() -> Command {
    let mut unshare = Command::new("unshare");
    if !Uid::effective().is_root() {
        unshare.args(["--user", "--map-root-user"]);
    }
    let all = [
        "--mount",
        "--net",
        "--pid",
        "--fork",
        "--kill-child",
        "--mount-proc",
    ];
    unshare.args(all).args(["sh", "-c", INSIDE, "sh"]);
    unshare
}
