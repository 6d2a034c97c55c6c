//! The kernel that `mgp replay -- COMMAND` starts for itself.

use std::fs;
use std::path::Path;

use mgp_tests::harness::process::usage::below;
use mgp_tests::harness::{DEADLINE, Process, Program, wait_until};
use nix::sys::signal::Signal;
use serde_json::json;

use crate::machine::all_gone;

/// A recording of a call that now gets no answer.
fn recording(file: &Path) {
    let header = json!({"format": "mgp-recording", "version": 1, "server": "it", "began": "", "written_by": "mgp"});
    let line = |from: &str, kind: &str, message| {
        json!({"at_ms": 1, "connection": 1, "from": from, "kind": kind, "method": "tools/call", "id": 1,
            "bytes": 1, "message": message})
    };
    let call =
        json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "hang"}});
    let answer = json!({"jsonrpc": "2.0", "id": 1, "result": {"content": []}});
    let lines = [
        header,
        line("kernel", "request", call),
        line("server", "answer", answer),
    ];
    let lines = lines.map(|line| format!("{line}\n"));
    fs::write(file, lines.concat()).unwrap();
}

/// Whether a process runs the scripted server.
fn is_server(pid: u32) -> bool {
    let path = fs::read_link(format!("/proc/{pid}/exe"));
    path.is_ok_and(|path| path.ends_with("mgp-fixture"))
}

/// Decision 0071: however a replay ends, nothing of its kernel is left: neither the kernel, nor its server, nor
/// their folder.
#[tokio::test]
async fn nothing_of_a_replay_outlives_it() {
    let folder = tempfile::tempdir().unwrap();
    let (file, temporary) = (folder.path().join("it.jsonl"), folder.path().join("t"));
    recording(&file);
    fs::create_dir(&temporary).unwrap();
    let folders = || fs::read_dir(&temporary).unwrap().count();
    let fixture = Program::fixture(&[]);
    let file = file.display().to_string();
    let replay = Program::ours(
        "mgp",
        ["replay", &file, "--yes", "--", &fixture.command, "--stdio"],
    )
    .env("TMPDIR", temporary.display().to_string());
    for signal in [Signal::SIGKILL, Signal::SIGTERM, Signal::SIGINT] {
        let mut replay = Process::start("mgp replay", &replay);
        let mut everyone = Vec::new();
        wait_until("its server runs", DEADLINE, async || {
            everyone = below(replay.pid());
            everyone.iter().any(|pid| is_server(*pid))
        })
        .await;
        assert_eq!(folders(), 1);
        replay.signal(signal);
        let status = replay.end(DEADLINE).await;
        assert!(!status.success(), "{signal}: {status}");
        all_gone(&everyone).await;
        wait_until("its folder is removed", DEADLINE, async || folders() == 0).await;
    }
}
