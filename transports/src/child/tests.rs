//! Real processes: shells, `cat`, `sleep`.

use std::collections::BTreeSet;
use std::os::fd::AsRawFd;
use std::path::Path;

use mgp_protocol::ids::ServerId;
use nix::fcntl::{FcntlArg, fcntl};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::time::Instant;

use super::*;

const SOON: Duration = Duration::from_millis(200);
const LONG: Duration = Duration::from_secs(20);

fn spec(id: &str, script: &str) -> ChildSpec {
    ChildSpec {
        id: ServerId::new(id),
        command: "sh".into(),
        args: vec!["-c".into(), script.into()],
        env: [("PATH".to_owned(), "/usr/bin:/bin".to_owned())].into(),
        inherit_env: vec![],
        cwd: None,
        kernel_mark: format!("test-{}", std::process::id()),
        launcher: None,
    }
}

fn start(id: &str, script: &str) -> Child {
    spawn(&spec(id, script), &ServerLog::new()).unwrap()
}

fn lines(child: &mut Child) -> Lines<BufReader<ChildStdout>> {
    BufReader::new(child.take_stdout().unwrap()).lines()
}

async fn next(lines: &mut Lines<BufReader<ChildStdout>>) -> String {
    let line = timeout(LONG, lines.next_line()).await;
    line.expect("in time").unwrap().expect("a line")
}

async fn output(child: &mut Child) -> String {
    let mut all = String::new();
    let mut stdout = child.take_stdout().unwrap();
    timeout(LONG, stdout.read_to_string(&mut all))
        .await
        .unwrap()
        .unwrap();
    all
}

/// The processes whose numbers the child prints, one a line, until it prints `ready`.
async fn started_by(child: &mut Child) -> Vec<Process> {
    let mut lines = lines(child);
    let mut found = Vec::new();
    loop {
        match next(&mut lines).await.as_str() {
            "ready" => return found,
            number => {
                let number = Pid::from_raw(number.parse().unwrap());
                found.push(Process::read(number).expect("it runs"));
            }
        }
    }
}

/// Waits until all have ended.
async fn ended(family: &[Process]) {
    let deadline = Instant::now() + LONG;
    while family.iter().any(Process::is_alive) {
        assert!(Instant::now() < deadline, "killed, but still there");
        tokio::task::yield_now().await;
    }
}

fn is_reaped(child: &Child) -> bool {
    !Path::new(&format!("/proc/{}", child.pid())).exists()
}

/// MCP-020, MCP-022, MCP-070: bytes pass both ways, closing stdin ends the child, no zombie remains.
#[tokio::test]
async fn closing_stdin_ends_cat() {
    let mut child = start("cat", "exec cat");
    let mut stdin = child.take_stdin().unwrap();
    stdin.write_all(b"{}\n").await.unwrap();
    let mut lines = lines(&mut child);
    assert_eq!(next(&mut lines).await, "{}");
    drop(stdin);
    let exit = child.stop(LONG).await;
    assert_eq!((exit.code, exit.signal), (Some(0), None));
    // It may have ended before the request.
    assert!(
        matches!(exit.cause, ExitCause::StdinClosed | ExitCause::ByItself),
        "{exit}"
    );
    assert!(is_reaped(&child));
    assert_eq!(child.stop(LONG).await, exit);
}

#[tokio::test]
async fn stop_closes_a_stdin_that_was_not_taken() {
    let mut child = start("cat", "exec cat");
    assert_eq!(child.stop(LONG).await.cause, ExitCause::StdinClosed);
}

/// MCP-023: a child that ignores EOF is terminated.
#[tokio::test]
async fn a_child_that_ignores_eof_is_terminated() {
    let mut child = start("deaf", "echo ready; exec sleep 300");
    assert!(started_by(&mut child).await.is_empty());
    // It has as long to handle SIGTERM.
    let exit = child.stop(10 * SOON).await;
    assert_eq!(
        exit.to_string(),
        "killed by signal 15 (SIGTERM) when told to stop"
    );
    assert!(is_reaped(&child));
}

/// MCP-023: a child that ignores SIGTERM, too, is killed.
#[tokio::test]
async fn a_child_that_ignores_sigterm_is_killed() {
    let script = "trap '' TERM; echo ready; while :; do sleep 1; done";
    let mut child = start("stubborn", script);
    assert!(started_by(&mut child).await.is_empty());
    let exit = child.stop(SOON).await;
    assert_eq!((exit.signal, exit.cause), (Some(9), ExitCause::Killed));
    assert!(is_reaped(&child));
}

/// MCP-023: also one that joined another group and removed its mark.
#[tokio::test]
async fn a_child_that_left_its_group_and_its_mark_is_killed() {
    let perl = "/usr/bin/perl";
    if !Path::new(perl).exists() {
        eprintln!("SKIPPED: there is no {perl}");
        return;
    }
    let group = nix::unistd::getpgrp();
    let join = format!("setpgrp(0, {group}) or die; $| = 1; print \"ready\\n\"; sleep 300");
    let script = format!("exec env -i {perl} -e '$SIG{{TERM}} = \"IGNORE\"; {join}'");
    let mut child = start("joiner", &script);
    assert!(started_by(&mut child).await.is_empty());
    let exit = child.stop(SOON).await;
    let end = (exit.signal, exit.cause, exit.has_leftovers);
    assert_eq!(end, (Some(9), ExitCause::Killed, false));
    assert!(is_reaped(&child));
}

/// CMCP-073: descendants end with the server, in its group or outside of it.
#[tokio::test]
async fn grandchildren_end_with_the_server() {
    let script = "sleep 300 & echo $!; setsid sleep 300 & echo $!; echo ready; cat";
    let mut child = start("family", script);
    let family = started_by(&mut child).await;
    assert_eq!(family.len(), 2);
    let exit = child.stop(LONG).await;
    assert_eq!((exit.code, exit.cause), (Some(0), ExitCause::StdinClosed));
    assert!(!family.iter().any(Process::is_alive));
}

/// CMCP-073: also when the server has already ended, and when they ignore SIGTERM.
#[tokio::test]
async fn descendants_of_a_dead_server_are_ended() {
    let script =
        "trap '' TERM; setsid sleep 300 & echo $!; sleep 300 & echo $!; echo ready; exit 3";
    let mut child = start("orphans", script);
    let family = started_by(&mut child).await;
    timeout(LONG, child.wait()).await.unwrap();
    let exit = child.stop(SOON).await;
    assert_eq!(exit.to_string(), "exited with code 3");
    assert_eq!(exit.cause, ExitCause::ByItself);
    assert!(!family.iter().any(Process::is_alive));
}

#[tokio::test]
async fn a_process_that_leaves_the_group_during_the_stop_is_ended() {
    let leaver = "read word <&3; exec setsid sh -c 'echo left; exec sleep 300'";
    let script = format!("exec 3<&0; ({leaver}) & echo $!; wait");
    let mut child = start("leaver", &script);
    let mut lines = lines(&mut child);
    let leaver = Process::read(Pid::from_raw(next(&mut lines).await.parse().unwrap())).unwrap();
    let living = child.processes.find_live();
    assert!(living.contains(&leaver));
    let stdin = child.stdin.as_mut().unwrap();
    stdin.write_all(b"go\n").await.unwrap();
    assert_eq!(next(&mut lines).await, "left");
    child.processes.signal(&living, Signal::SIGTERM);
    ended(&[leaver]).await;
    child.stop(LONG).await;
}

#[tokio::test]
async fn a_server_with_a_similar_name_is_not_affected() {
    let script = "setsid sleep 300 & echo $!; echo ready; cat";
    let (mut one, mut other) = (start("a", script), start("ab", script));
    let (its, others) = (started_by(&mut one).await, started_by(&mut other).await);
    one.stop(LONG).await;
    assert!(!its[0].is_alive());
    assert!(others[0].is_alive() && other.is_running());
    other.stop(LONG).await;
}

#[tokio::test]
async fn dropping_a_child_kills_all_descendants() {
    let mut child = start("dropped", "setsid sleep 300 & echo $!; echo ready; cat");
    let mut family = started_by(&mut child).await;
    family.push(Process::read(child.leader).unwrap());
    drop(child);
    ended(&family).await;
}

#[tokio::test]
async fn a_cancelled_stop_can_be_resumed() {
    let mut child = start(
        "twice",
        "trap '' TERM; echo ready; while :; do sleep 1; done",
    );
    assert!(started_by(&mut child).await.is_empty());
    assert!(timeout(SOON, child.stop(LONG)).await.is_err());
    assert!(child.is_running());
    assert_eq!(child.stop(SOON).await.cause, ExitCause::Killed);
}

/// MCP-071: 10 MB on stderr neither block the child nor fill the memory.
#[tokio::test]
async fn a_flood_on_stderr_blocks_nobody() {
    let log = ServerLog::new();
    let flood = "head -c 10000000 /dev/zero | tr '\\0' x | fold -w 99 >&2; echo >&2; echo last >&2; echo done";
    let mut child = spawn(&spec("flood", flood), &log).unwrap();
    assert_eq!(output(&mut child).await, "done\n");
    child.stop(LONG).await;
    assert_eq!(&*log.tail(1)[0].text, "last");
    assert!(log.tail(1)[0].seq > 100_000);
    assert!(log.tail(usize::MAX).len() <= log::MAX_LINES);
}

/// The kernel's environment, here cargo's, and other servers' variables are not inherited.
#[tokio::test]
async fn the_environment_is_exactly_the_list() {
    let mut spec = spec("env", "exec env");
    spec.env.insert("OWN_KEY".into(), "of-env".into());
    spec.inherit_env.push("CARGO_PKG_NAME".into());
    let mut other = self::spec("other", "exec cat");
    other.env.insert("OTHER_KEY".into(), "of-other".into());
    let mut neighbour = spawn(&other, &ServerLog::new()).unwrap();
    let mut child = spawn(&spec, &ServerLog::new()).unwrap();

    let all = output(&mut child).await;
    // The shell itself sets `PWD`, `SHLVL`, `OLDPWD` and `_`.
    let by_shell = ["PWD", "SHLVL", "OLDPWD", "_"];
    let listed = |name: &str| {
        BASE_ENVIRONMENT.contains(&name) || name.starts_with("LC_") || by_shell.contains(&name)
    };
    let extra: BTreeSet<&str> = all
        .lines()
        .filter(|l| !listed(l.split('=').next().unwrap()))
        .collect();
    let mark = format!("MGP_SERVER={}:env", spec.kernel_mark);
    let by_name = std::env::var("CARGO_PKG_NAME").map(|name| format!("CARGO_PKG_NAME={name}"));
    let mut want = BTreeSet::from([mark.as_str(), "OWN_KEY=of-env"]);
    want.extend(by_name.as_deref());
    assert_eq!(extra, want);
    assert!(all.lines().any(|line| line == "PATH=/usr/bin:/bin"));
    child.stop(LONG).await;
    neighbour.stop(LONG).await;
}

/// A child has its three pipes, and descriptors that the test inherited.
#[tokio::test]
async fn no_descriptor_of_the_kernel_reaches_a_child() {
    let secret = tempfile::tempfile().unwrap();
    let door = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let mut neighbour = start("neighbour", "exec cat");
    let mut child = start("fds", "exec readlink /proc/self/fd/*");
    let held: Vec<String> = output(&mut child)
        .await
        .lines()
        .map(str::to_owned)
        .collect();
    let of = |fd: i32| std::fs::read_link(format!("/proc/self/fd/{fd}")).unwrap();
    let ours = [
        secret.as_raw_fd(),
        door.as_raw_fd(),
        neighbour.stdin.as_ref().unwrap().as_raw_fd(),
    ];
    for fd in ours {
        let name = of(fd).to_string_lossy().into_owned();
        assert!(!held.contains(&name), "{name} in {held:?}");
    }
    assert!(held.len() >= 3);
    child.stop(LONG).await;
    neighbour.stop(LONG).await;
}

#[tokio::test]
async fn pipes_are_enlarged_where_the_system_allows() {
    let mut child = start("pipes", "exec cat");
    let size = |pipe: &dyn AsFd| fcntl(pipe.as_fd(), FcntlArg::F_GETPIPE_SZ).unwrap();
    let (_reader, writer) = std::io::pipe().unwrap();
    pipes::enlarge(&writer);
    let enlarged = size(&writer);
    assert_eq!(size(child.stdin.as_ref().unwrap()), enlarged);
    assert_eq!(size(child.stdout.as_ref().unwrap()), enlarged);
    child.stop(LONG).await;
}

/// CMCP-072: a failed start returns at once, with a reason.
#[tokio::test]
async fn a_failed_start_is_an_error_and_leaves_no_process() {
    let folder = tempfile::tempdir().unwrap();
    let script = folder.path().join("script");
    // Written by another process: a descriptor open for writing here could reach a child that is
    // just being started by another test, and keep the script from being run.
    let write = format!(
        "printf '#!/no/such/shell\\n' > {0}; chmod +x {0}",
        script.display()
    );
    assert_eq!(start("write", &write).stop(LONG).await.signal, None);
    let error = |command: &str, argument: &str| {
        let mut spec = spec("bad", argument);
        spec.command = command.into();
        spawn(&spec, &ServerLog::new()).unwrap_err().to_string()
    };
    let without_interpreter = error(script.to_str().unwrap(), "");
    assert!(without_interpreter.contains("what its first line or its header asks for is not"));
    let missing = error("no-such-program", "");
    assert!(missing.starts_with("there is no program \"no-such-program\" in PATH (/usr/bin:/bin)"));
    let refused = error("sh", "a NUL: \0");
    assert!(refused.ends_with("/sh cannot be started: nul byte found in provided data"));
}
