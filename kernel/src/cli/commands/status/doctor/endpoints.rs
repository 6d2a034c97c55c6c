//! Checks the endpoints: the HTTP port, and the socket as clients with few variables find it.

use std::net::{TcpListener, TcpStream};
use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use super::CheckContext;
use super::finding::Finding;
use mgp_runtime::run_bounded;

/// Limit for an answer on this machine.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(12);
/// Longest status that is read, in bytes.
const STATUS_MAX: usize = 4 << 20;

pub(super) fn check(cx: &CheckContext<'_>) -> Vec<Finding> {
    [check_port(cx), check_socket(cx)]
        .into_iter()
        .flatten()
        .collect()
}

fn check_port(cx: &CheckContext<'_>) -> Option<Finding> {
    const AREA: &str = "port";
    let http = &cx.loaded.kernel.http;
    if !http.enabled || http.listen.port() == 0 {
        return None;
    }
    let at = http.listen;
    Some(match &cx.status {
        Some(_) => match TcpStream::connect_timeout(&at, ANSWER_TIMEOUT) {
            Ok(_) => Finding::good(AREA, format!("the HTTP door at {at} is open")),
            Err(e) => Finding::broken(AREA, format!("nobody answers at the HTTP door, {at}: {e}"))
                .with_command("mgp down && mgp up --detach"),
        },
        None => match TcpListener::bind(at) {
            Ok(_) => Finding::good(AREA, format!("{at} is free for the HTTP door")),
            Err(e) => Finding::broken(AREA, format!("the HTTP door cannot listen on {at}: {e}"))
                .with_command("set `listen` in [http] to another address"),
        },
    })
}

/// Whether a program that a client starts with few variables finds the running kernel.
fn check_socket(cx: &CheckContext<'_>) -> Option<Finding> {
    const AREA: &str = "socket";
    if let Some(problem) = cx.context.socket_path_problem() {
        return Some(Finding::warning(AREA, problem));
    }
    let status = cx.status.as_ref()?;
    let named = cx.context.named_path_options().next();
    if let Some((option, _)) = named {
        return Some(Finding::good(
            AREA,
            format!("the kernel answers; it was named with {option}, and clients need that, too"),
        ));
    }
    let poor = ["HOME", "PATH"].map(|name| (name, std::env::var_os(name).unwrap_or_default()));
    let mut command = Command::new(std::env::current_exe().ok()?);
    command.args(["status", "--json"]).env_clear().envs(poor);
    let message = "a client that passes on HOME and PATH alone, as desktops do,";
    let output = run_bounded(&mut command, ANSWER_TIMEOUT, STATUS_MAX).ok()?;
    let pid = serde_json::from_slice::<Value>(&output.stdout).ok();
    let pid = pid.and_then(|status| status["pid"].as_u64());
    Some(match pid {
        Some(pid) if pid == u64::from(status.pid) => {
            Finding::good(AREA, format!("{message} reaches the same kernel"))
        }
        Some(pid) => Finding::broken(
            AREA,
            format!("{message} reaches another kernel (process {pid})"),
        )
        .with_command("mgp down in the shell of each, then mgp up --detach in one"),
        None => Finding::broken(AREA, format!("{message} does not reach this kernel"))
            .with_command("mgp down && mgp up --detach"),
    })
}
