//! `mgp service`: the units as systemd reads them, and a socket that it hands over.

use std::fs::{self, DirBuilder};
use std::io::Write;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::process::Output;

use mgp_tests::harness::{Account, DEADLINE, Process, Program, wait_until};
use serde_json::Value;

/// What opens no port that somebody else may have.
const QUIET: &str = "[http]\nenabled = false\n[discovery]\nembedding = \"off\"\n";

async fn user() -> Option<Account> {
    Account::new(QUIET).await
}

/// Whether a program of systemd's is here; said where it is not.
fn has(name: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let there = std::env::split_paths(&path).any(|folder| folder.join(name).exists());
    if !there {
        let _ = writeln!(std::io::stderr(), "SKIPPED: {name} is not installed");
    }
    there
}

async fn mgp(user: &Account, args: &[&str]) -> Output {
    let home = user.home();
    let run = user.at("run/user/0");
    let variables = [("HOME", home.as_path()), ("XDG_RUNTIME_DIR", run.as_path())];
    user.mgp(args, &variables).output(DEADLINE).await
}

fn words(output: &Output) -> String {
    let both = [&*output.stdout, &*output.stderr].concat();
    String::from_utf8_lossy(&both).into_owned()
}

/// systemd has nothing to say against the units, and they are taken away whole.
#[tokio::test]
async fn the_units_are_as_systemd_wants_them() {
    let Some(user) = user().await else { return };
    let none = mgp(&user, &["service", "install"]).await;
    assert_eq!(none.status.code(), Some(1));
    assert!(words(&none).contains("--write-only"), "{}", words(&none));
    let folder = user.at("home/.config/systemd/user");
    assert!(!folder.exists(), "nothing is written that nobody takes up");

    let written = mgp(&user, &["service", "install", "--write-only"]).await;
    assert!(written.status.success(), "{}", words(&written));
    let read = |name: &str| fs::read_to_string(folder.join(name)).unwrap();
    let (socket, service) = (read("mgp.socket"), read("mgp.service"));
    assert!(socket.contains("ListenStream=%t/mgp/mgp.sock"), "{socket}");
    assert!(service.contains("NoNewPrivileges=yes"), "{service}");
    if has("systemd-analyze") {
        let units =
            ["mgp.socket", "mgp.service"].map(|name| folder.join(name).display().to_string());
        let verify = Program::new("systemd-analyze", ["--user", "verify", "--man=no"])
            .args(&units.each_ref().map(String::as_str));
        let run = user.at("run/user/0");
        let home = user.home();
        let variables = [("HOME", home.as_path()), ("XDG_RUNTIME_DIR", run.as_path())];
        let verified = user.runs(&verify, &variables).output(DEADLINE).await;
        let said = words(&verified);
        assert!(
            verified.status.success() && !said.contains("mgp."),
            "{said}"
        );
    }
    let status = mgp(&user, &["service", "status", "--json"]).await;
    let status: Value = serde_json::from_slice(&status.stdout).unwrap();
    assert_eq!(status["files"][0]["state"], "installed");
    let removed = mgp(&user, &["service", "remove"]).await;
    assert!(removed.status.success(), "{}", words(&removed));
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 0);
}

/// The first connection starts the kernel, with the `PATH` of the shell; its socket stays when it ends.
#[tokio::test]
async fn the_first_connection_starts_the_kernel() {
    let Some(user) = user().await else { return };
    if !has("systemd-socket-activate") {
        return;
    }
    let socket = user.at("home/run/mgp.sock");
    let folder = socket.parent().unwrap();
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(folder)
        .unwrap();
    user.file(
        "shell",
        "#!/bin/sh\necho hello\nPATH=/of/nvm:$PATH\nexport PATH\neval \"$4\"\n",
    );
    let chmod = Program::new("chmod", ["+x", "shell"]);
    user.runs(&chmod, &[]).output(DEADLINE).await;
    let program = Program::ours("mgp", ["service", "run"]);
    let listen = format!("--listen={}", socket.display());
    let mut activate = Program::new(
        "systemd-socket-activate",
        [listen, "--setenv=HOME".to_owned()],
    );
    activate
        .args
        .extend(["--setenv=SHELL", "--setenv=PATH"].map(str::to_owned));
    activate.args.push(program.command);
    activate.args.extend(program.args);
    let (home, shell) = (user.home(), user.at("shell"));
    let variables: [(&str, &Path); 2] = [("HOME", &home), ("SHELL", &shell)];
    let mut service = Process::start("service", &user.runs(&activate, &variables));
    wait_until("the socket is there", DEADLINE, async || socket.exists()).await;
    assert!(
        !home.join(".local/share/mgp/kernel.lock").exists(),
        "nobody has come yet"
    );

    let named = ["--socket", socket.to_str().unwrap()];
    let status = mgp(&user, &[&named[..], &["status", "--json"]].concat()).await;
    let status: Value =
        serde_json::from_slice(&status.stdout).unwrap_or_else(|e| panic!("{e}: {status:?}"));
    let pid = status["pid"].as_u64().unwrap();
    let environment = fs::read(format!("/proc/{pid}/environ")).unwrap();
    let environment = String::from_utf8_lossy(&environment).into_owned();
    assert!(environment.contains("PATH=/of/nvm:"), "{environment}");
    // Who knows the user alone finds it, too.
    let found = mgp(&user, &["status", "--json"]).await;
    let found: Value = serde_json::from_slice(&found.stdout).unwrap();
    assert_eq!(found["pid"], pid);
    let down = mgp(&user, &["down"]).await;
    assert!(down.status.success(), "{}", words(&down));
    service.end(DEADLINE).await;
    assert!(socket.exists(), "it is the service manager's");
}
