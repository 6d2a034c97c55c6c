//! Other users of the machine at the socket: agents by configuration, and nobody else.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use mgp_tests::harness::handshake::initialize;
use mgp_tests::harness::{DEADLINE, Kernel, Program};
use tempfile::TempDir;

/// Numbers that need no entry among the users of a machine.
const ALICE: u32 = 64_001;
const MALLORY: u32 = 64_002;

fn folder(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

/// `mgp stdio` as this user, with one request after the handshake; what it prints.
fn stdio(program: &Path, socket: &Path, uid: u32, request: &str) -> String {
    let mut command = Command::new(program);
    command.arg("stdio").uid(uid).gid(uid).current_dir("/");
    command.env_clear().env("MGP_SOCKET", socket);
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn().expect("it starts");
    let initialized = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
    let said = format!(
        "{}\n{initialized}\n{request}\n",
        initialize("2025-11-25", "{}")
    );
    // One that was not let in has gone, and takes nothing.
    let _ = std::io::Write::write_all(&mut child.stdin.take().unwrap(), said.as_bytes());
    let output = child.wait_with_output().unwrap();
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// A named user is the named agent and no operator; one that is not named is not served, and without
/// any the socket is the owner's alone. Only root can be several users: as anybody else this shows no
/// more than the last.
#[tokio::test(flavor = "multi_thread")]
async fn only_configured_users_connect_and_are_agents() {
    let root = nix::unistd::geteuid().is_root();
    let entry = Program::fixture(&[]).entry("it");
    let http = "[http]\nenabled = true\nlisten = \"127.0.0.1:0\"\n";
    let closed = Kernel::with_config(&format!("{http}{entry}")).await;
    let mode =
        |kernel: &Kernel| fs::metadata(kernel.socket()).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&closed), 0o600);
    let users = format!("[socket]\nusers = {{ {ALICE} = \"agent.alice\" }}\n");
    let kernel = Kernel::with_config(&format!("{http}{users}{entry}")).await;
    kernel.connected(&["it"]).await;
    assert_eq!(mode(&kernel), 0o666);
    if !root {
        eprintln!("not run as root: no other user was tried");
        return;
    }
    let place = TempDir::new().unwrap();
    let program = place.path().join("mgp");
    let built = Program::ours("mgp", [""; 0]).to_command();
    fs::copy(built.get_program(), &program).unwrap();
    folder(place.path(), 0o755);
    folder(&program, 0o755);
    folder(kernel.folder(), 0o711);
    folder(closed.folder(), 0o711);
    let call = r#"{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"it:echo","arguments":{"text":"hello"}}}"#;
    let stop = r#"{"jsonrpc":"2.0","id":2,"method":"mgp/kernel/stop","params":{}}"#;
    let socket = kernel.socket();
    let told = stdio(&program, &socket, ALICE, call);
    assert!(told.contains("hello"), "{told}");
    let told = stdio(&program, &socket, ALICE, stop);
    assert!(told.contains("-32601"), "{told}");
    assert_eq!(stdio(&program, &socket, MALLORY, call), "");
    assert_eq!(stdio(&program, &closed.socket(), ALICE, call), "");
    let log = kernel.mgp(&["audit", "tail", "--json"]).await;
    let log = String::from_utf8_lossy(&log.stdout).into_owned();
    assert!(log.contains("agent.alice"), "{log}");
}

/// Who runs the kernel is its operator and cannot be an agent beside; a user nobody knows is a mistake.
#[tokio::test]
async fn a_list_of_users_that_cannot_hold_is_refused() {
    let own = nix::unistd::geteuid().to_string();
    for (user, words) in [
        (own.as_str(), "is its operator"),
        ("nobody-is-called-so", "no such user"),
    ] {
        let folder = TempDir::new().unwrap();
        let at = |name: &str| folder.path().join(name).display().to_string();
        let config =
            format!("[http]\nenabled = false\n[socket]\nusers = {{ {user} = \"alice\" }}\n");
        fs::write(at("mgp.toml"), config).unwrap();
        let up = Program::ours("mgp", ["up", "--config"]).arg(at("mgp.toml"));
        let up = up
            .env("MGP_DATA_DIR", at("data"))
            .env("MGP_SOCKET", at("s"));
        let ended = up.output(DEADLINE).await;
        let said = String::from_utf8_lossy(&ended.stderr).into_owned();
        assert!(
            !ended.status.success() && said.contains(words),
            "{user}: {said}"
        );
    }
}
