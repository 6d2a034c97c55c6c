//! The units of systemd's user manager, and the calls of systemctl.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use super::{ServiceFile, ServiceSpec};
use mgp_runtime::run_bounded;

const SOCKET: &str = "mgp.socket";
const SERVICE: &str = "mgp.service";
/// Limit for systemctl: a kernel that shuts down stops its servers first.
const SYSTEMCTL_TIMEOUT: Duration = Duration::from_secs(40);
/// Longest output that is read, in bytes.
const ANSWER_MAX: usize = 64 << 10;

/// The units, in the order of their start.
///
/// # Errors
/// A path that is invalid in a unit.
pub(super) fn unit_files(
    service: &ServiceSpec,
    config_home: &Path,
) -> Result<Vec<ServiceFile>, String> {
    let folder = config_home.join("systemd/user");
    Ok(vec![
        ServiceFile {
            path: folder.join(SOCKET),
            text: render_socket_unit(service)?,
        },
        ServiceFile {
            path: folder.join(SERVICE),
            text: render_service_unit(service)?,
        },
    ])
}

fn render_socket_unit(service: &ServiceSpec) -> Result<String, String> {
    let below = service.runtime.as_deref().and_then(|runtime| {
        let below = service.socket.strip_prefix(runtime).ok()?;
        Some(Path::new("%t").join(below))
    });
    let path = match below {
        Some(path) => path_text(&path)?.to_owned(),
        None => path_text(&service.socket)?.replace('%', "%%"),
    };
    Ok(format!(
        "[Unit]
Description=MGP kernel: the door of its owner

[Socket]
ListenStream={path}
SocketMode=0600
DirectoryMode=0700
RemoveOnStop=yes

[Install]
WantedBy=sockets.target
"
    ))
}

/// Restrictions here apply to every server, too: so nothing is restricted that a compiler, a browser or a container
/// needs.
fn render_service_unit(service: &ServiceSpec) -> Result<String, String> {
    let mut words = vec![
        quote_word(path_text(&service.exe)?),
        "service".into(),
        "run".into(),
    ];
    words.extend(service.options.iter().map(|option| quote_word(option)));
    let command = words.join(" ");
    Ok(format!(
        "[Unit]
Description=MGP kernel: all MCP and MGP servers of this user
Requires={SOCKET}
After={SOCKET}
StartLimitIntervalSec=60
StartLimitBurst=5

[Service]
Type=exec
ExecStart={command}
Restart=on-failure
RestartSec=2
# The kernel ends its servers itself; what is left then is ended.
KillMode=mixed
TimeoutStopSec=30
# A server that takes too much memory does not end the others.
OOMPolicy=continue
StandardOutput=journal
StandardError=journal
SyslogIdentifier=mgp
UMask=0077
# Secrets are in its memory.
LimitCORE=0
NoNewPrivileges=yes
LockPersonality=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
SystemCallArchitectures=native

[Install]
Also={SOCKET}
"
    ))
}

fn path_text(path: &Path) -> Result<&str, String> {
    let shown = path.display();
    let text = path
        .to_str()
        .ok_or_else(|| format!("{shown} is not UTF-8"))?;
    if text.contains(char::is_control) {
        Err(format!("{text:?} holds a control character"))
    } else {
        Ok(text)
    }
}

/// A word quoted for systemd.
fn quote_word(text: &str) -> String {
    let escaped = text.replace('\\', "\\\\").replace('"', "\\\"");
    let escaped = escaped.replace('%', "%%").replace('$', "$$");
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+:@=,%$".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        escaped
    } else {
        format!("\"{escaped}\"")
    }
}

/// Checks that a user manager answers.
///
/// # Errors
/// A description with the remedy.
pub(super) fn check_available() -> Result<(), String> {
    run_systemctl(&["show-environment"]).map(drop).map_err(|why| {
        format!(
            "systemd runs no services of yours here ({why}): log in on a machine with systemd, write the \
             units with --write-only, or start the kernel with `mgp up --detach`"
        )
    })
}

/// Whether the socket unit is active.
pub(super) fn is_active() -> bool {
    run_systemctl(&["is-active", SOCKET]).is_ok()
}

/// Enables and starts the socket unit.
///
/// # Errors
/// The output of systemctl.
pub(super) fn start() -> Result<(), String> {
    reload()?;
    run_systemctl(&["enable", SOCKET])?;
    // An earlier unit may still run.
    run_systemctl(&["stop", SERVICE])?;
    run_systemctl(&["restart", SOCKET]).map(drop)
}

/// Stops the kernel and the socket.
///
/// # Errors
/// The output of systemctl.
pub(super) fn stop() -> Result<(), String> {
    run_systemctl(&["disable", "--now", SOCKET])?;
    run_systemctl(&["stop", SERVICE]).map(drop)
}

/// Reloads the units.
///
/// # Errors
/// The output of systemctl.
pub(super) fn reload() -> Result<(), String> {
    run_systemctl(&["daemon-reload"]).map(drop)
}

/// Each unit with its state: `active`, `inactive`, `failed`.
pub(super) fn unit_states() -> Vec<(&'static str, String)> {
    let state = |unit| {
        let output = run_bounded(
            &mut systemctl_command(&["is-active", unit]),
            SYSTEMCTL_TIMEOUT,
            ANSWER_MAX,
        );
        let said = output.map(|output| output.stdout).unwrap_or_default();
        (unit, String::from_utf8_lossy(&said).trim().to_owned())
    };
    vec![state(SOCKET), state(SERVICE)]
}

fn systemctl_command(words: &[&str]) -> Command {
    let mut command = Command::new("systemctl");
    command.arg("--user").args(words);
    command
}

fn run_systemctl(words: &[&str]) -> Result<String, String> {
    let output = run_bounded(&mut systemctl_command(words), SYSTEMCTL_TIMEOUT, ANSWER_MAX)
        .map_err(|e| format!("systemctl cannot be started: {e}"))?;
    let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    match output.status {
        Some(status) if status.success() => Ok(said(&output.stdout)),
        Some(status) => {
            let told = said(&output.stderr);
            if told.is_empty() {
                Err(format!("systemctl {} failed ({status})", words.join(" ")))
            } else {
                Err(told)
            }
        }
        None => Err("systemctl gives no answer".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn service(exe: &str, socket: &str) -> ServiceSpec {
        ServiceSpec {
            exe: exe.into(),
            options: vec!["--data-dir".into(), "/a b/100%".into()],
            socket: socket.into(),
            runtime: Some("/run/user/1000".into()),
            home: "/home/ada".into(),
        }
    }

    #[test]
    fn the_socket_is_at_the_usual_path() {
        let usual =
            render_socket_unit(&service("/bin/mgp", "/run/user/1000/mgp/mgp.sock")).unwrap();
        assert!(
            usual.contains("\nListenStream=%t/mgp/mgp.sock\n"),
            "{usual}"
        );
        let named = render_socket_unit(&service("/bin/mgp", "/data/50%/mgp.sock")).unwrap();
        assert!(
            named.contains("\nListenStream=/data/50%%/mgp.sock\n"),
            "{named}"
        );
        assert!(render_socket_unit(&service("/bin/mgp", "/a\nExecStart=/x")).is_err());
    }

    #[test]
    fn words_of_the_command_are_quoted_reversibly() {
        let unit = render_service_unit(&service("/home/a da/$x/mgp", "/s")).unwrap();
        let command = "\nExecStart=\"/home/a da/$$x/mgp\" service run --data-dir \"/a b/100%%\"\n";
        assert!(unit.contains(command), "{unit}");
        assert_eq!(quote_word("a\"b\\"), "\"a\\\"b\\\\\"");
        assert!(render_service_unit(&service("/x\ny", "/s")).is_err());
    }
}
