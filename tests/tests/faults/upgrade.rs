//! A program that takes over from a running kernel: what stays, what nobody notices, and who may not.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use http::StatusCode;
use http::header::HeaderName;
use mgp_tests::harness::wait::within;
use mgp_tests::harness::{Agent, DEADLINE, Envelope, HttpClient, Kernel, Program};
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::scene::{NEWEST, begin, in_flight, owner, server};

/// Upgrades in a row; `cargo xtask upgrade-test` wants more.
fn upgrades() -> usize {
    let wanted = std::env::var("MGP_UPGRADES").ok();
    wanted.map_or(4, |wanted| wanted.parse().expect("a number"))
}

/// What a client was told of its call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Told {
    Done,
    NotDone,
    /// Nothing: its connection ended.
    Nothing,
}

/// What became of calls, by the file that each writes to.
type Outcomes = BTreeMap<PathBuf, Told>;

fn append(file: &Path, ms: usize) -> Value {
    json!({"what": "append", "at": file, "n": ms})
}

fn told(answer: &Value) -> Told {
    let text = answer.to_string();
    if answer["result"].is_object() && answer["result"]["isError"] != true {
        return Told::Done;
    }
    // Whoever says that it is not known has lost a call.
    assert!(
        !text.contains("not known") && !text.contains("\"unknown\""),
        "{text}"
    );
    Told::NotDone
}

/// Calls at `mgp stdio`, which connects to the next program by itself.
async fn call_over_stdio(mut agent: Agent, folder: PathBuf, stop: Arc<AtomicBool>) -> Outcomes {
    let mut all = Outcomes::new();
    while !stop.load(Ordering::Relaxed) {
        // Others come while one is under way.
        let mut under_way = Vec::new();
        for ms in [40, 0, 0] {
            let file = folder.join(format!("stdio-{}", all.len() + under_way.len()));
            let id = begin(&mut agent, "it__attempt", append(&file, ms)).await;
            under_way.push((id, file));
        }
        for (id, file) in under_way {
            let answer = agent.answer_to(&id).await;
            all.insert(file, told(&serde_json::from_str(&answer.frame).unwrap()));
        }
    }
    assert!(all.values().all(|told| *told != Told::Nothing));
    all
}

/// Calls of a stateless client, or of one with a session, which has to stay.
async fn call_over_http(
    client: HttpClient,
    name: &str,
    folder: PathBuf,
    stop: Arc<AtomicBool>,
) -> Outcomes {
    let mut all = Outcomes::new();
    while !stop.load(Ordering::Relaxed) {
        let file = folder.join(format!("{name}-{}", all.len()));
        let call = json!({"name": "it__attempt", "arguments": append(&file, 0)});
        let mut sending = client.clone();
        let body = if name == "session" {
            json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call}).to_string()
        } else {
            let request = Envelope::new("{}").request(&json!(1), "tools/call", call);
            sending.headers.extend(request.headers.clone());
            request.frame()
        };
        let Ok(answer) = sending.send(http::Method::POST, body).await else {
            all.insert(file, Told::Nothing);
            continue;
        };
        assert_eq!(answer.status, StatusCode::OK, "{name}");
        let frames = answer.frames().await;
        let frame = frames
            .last()
            .and_then(|frame| serde_json::from_str(frame).ok());
        all.insert(
            file,
            told(&frame.expect("a call that was read is answered")),
        );
    }
    all
}

async fn upgrade(kernel: &Kernel) -> Value {
    kernel.mgp_json(&["upgrade"]).await
}

/// PRJ-040, PRJ-041: no call that the kernel has read is lost or made twice, clients of `mgp stdio` and sessions go on,
/// and a call that takes long is waited for.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn upgrades_under_load_lose_and_repeat_no_call() {
    let kernel = Kernel::start(&server("it", &["--attempts"], "")).await;
    kernel.connected(&["it"]).await;
    let calls = tempfile::tempdir().unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let mut clients = JoinSet::new();
    for n in 0..2 {
        let mut agent = kernel.stdio_agent(None);
        agent.initialize(NEWEST, "{}").await.result();
        let folder = calls.path().join(n.to_string());
        std::fs::create_dir(&folder).unwrap();
        clients.spawn(call_over_stdio(agent, folder, stop.clone()));
    }
    for name in ["session", "stateless"] {
        let mut client = HttpClient::new(kernel.url());
        if name == "session" {
            client.open_session(NEWEST, "{}").await;
        }
        let folder = calls.path().to_owned();
        clients.spawn(call_over_http(client, name, folder, stop.clone()));
    }
    let pid = kernel.pid();
    let mut slow = owner(&kernel).await;
    for n in 0..upgrades() {
        let file = calls.path().join(format!("slow-{n}"));
        let waiting = begin(&mut slow, "it__attempt", append(&file, 300)).await;
        let upgraded = within("an upgrade", DEADLINE, upgrade(&kernel)).await;
        assert_eq!(upgraded["pid"], pid, "{upgraded}");
        assert!(!slow.answer_to(&waiting).await.text().is_empty());
        assert_eq!(std::fs::read(&file).unwrap(), b"x");
        slow = owner(&kernel).await;
        kernel.connected(&["it"]).await;
    }
    stop.store(true, Ordering::Relaxed);
    let mut counts = BTreeMap::new();
    while let Some(outcomes) = clients.join_next().await {
        for (file, told) in outcomes.unwrap() {
            let times = std::fs::read(&file).map_or(0, |text| text.len());
            *counts.entry((told, times)).or_insert(0) += 1;
        }
    }
    let allowed = [(Told::Done, 1), (Told::NotDone, 0), (Told::Nothing, 0)];
    assert!(counts.keys().all(|it| allowed.contains(it)), "{counts:?}");
    assert!(counts[&(Told::Done, 1)] > 10 * upgrades(), "{counts:?}");
    println!("{counts:?}");
}

/// PRJ-041: what a client sends while the kernel waits for its calls goes to the next program, and the calls are answered.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn client_that_writes_meanwhile_gets_the_answers_of_its_calls() {
    let kernel = Kernel::start(&server("it", &["--attempts"], "")).await;
    kernel.connected(&["it"]).await;
    let mut agent = kernel.stdio_agent(None);
    agent.initialize(NEWEST, "{}").await.result();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("slow");
    let slow = begin(&mut agent, "it__attempt", append(&file, 1500)).await;
    in_flight(&mut owner(&kernel).await, "it", 1).await;
    let mut upgrading = std::pin::pin!(upgrade(&kernel));
    let mut pace = tokio::time::interval(std::time::Duration::from_millis(50));
    let mut later = Vec::new();
    let upgraded = loop {
        tokio::select! {
            upgraded = &mut upgrading => break upgraded,
            _ = pace.tick() => later.push(agent.start("ping", json!({})).await),
        }
    };
    assert_eq!(upgraded["pid"], kernel.pid());
    assert!(!agent.answer_to(&slow).await.text().is_empty());
    assert_eq!(std::fs::read(&file).unwrap(), b"x");
    for ping in later {
        assert_eq!(agent.answer_to(&ping).await.result(), json!({}));
    }
}

/// PRJ-040: process, lock, listeners and plain sessions stay; a session with more than its record would restore is gone,
/// and its client is told so.
#[tokio::test]
async fn process_lock_listeners_and_plain_sessions_stay() {
    let kernel = Kernel::start(&server("it", &[], "")).await;
    kernel.connected(&["it"]).await;
    let session = async || {
        let mut client = HttpClient::new(kernel.url());
        client.open_session(NEWEST, "{}").await;
        client
    };
    let (plain, subscribed, lost) = (session().await, session().await, session().await);
    let ask = async |client: &HttpClient, method: &str, params: Value| {
        let request = json!({"jsonrpc": "2.0", "id": 7, "method": method, "params": params});
        client.anew().post(request.to_string()).await
    };
    let level = json!({"level": "error"});
    assert_eq!(
        ask(&plain, "logging/setLevel", level).await.status,
        StatusCode::OK
    );
    let uri = json!({"uri": "test://plain"});
    let _ = ask(&subscribed, "resources/subscribe", uri).await;
    let status = kernel.mgp_json(&["status"]).await;
    let upgraded = upgrade(&kernel).await;
    assert_eq!(upgraded["pid"], status["pid"]);
    kernel.connected(&["it"]).await;
    let after = kernel.mgp_json(&["status"]).await;
    assert_eq!(after["doors"], status["doors"]);
    let mut stranger = lost.anew();
    stranger.set(
        HeaderName::from_static("mcp-session-id"),
        "11111111-1111-4111-8111-111111111111",
    );
    for (client, expected) in [
        (&plain, StatusCode::OK),
        (&subscribed, StatusCode::NOT_FOUND),
        (&stranger, StatusCode::NOT_FOUND),
    ] {
        assert_eq!(ask(client, "tools/list", json!({})).await.status, expected);
    }
    // The folder is locked all the same, and the socket is removed at the end.
    let second = kernel.mgp(&["up"]).await;
    assert!(!second.status.success(), "{second:?}");
    let socket = kernel.socket();
    assert!(socket.exists());
    let folder = kernel.end(Signal::SIGTERM, DEADLINE).await;
    assert!(!socket.exists());
    drop(folder);
}

/// PRJ-042: if the program is gone when it is its turn, the old one begins again, and the command, the status and the audit
/// log say so.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn old_version_goes_on_if_the_program_is_gone_meanwhile() {
    let mut kernel = Kernel::start(&server("it", &["--attempts"], "")).await;
    kernel.connected(&["it"]).await;
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("mgp");
    std::fs::copy(Program::ours("mgp", ["up"]).command, &program).unwrap();
    let mut agent = kernel.stdio_agent(None);
    agent.initialize(NEWEST, "{}").await.result();
    let file = folder.path().join("slow");
    let slow = begin(&mut agent, "it__attempt", append(&file, 1000)).await;
    in_flight(&mut owner(&kernel).await, "it", 1).await;
    let shown = program.display().to_string();
    let command = kernel.program(&["upgrade", &shown]);
    let upgrading = tokio::spawn(async move { command.output(DEADLINE).await });
    let is_closing = |log: &str| log.contains("handing over").then_some(());
    kernel
        .process()
        .says("that it hands over", DEADLINE, is_closing)
        .await;
    std::fs::remove_file(&program).unwrap();
    let refused = upgrading.await.unwrap();
    assert!(!agent.answer_to(&slow).await.text().is_empty());
    let text = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(
        !refused.status.success() && text.contains("No such file"),
        "{text}"
    );
    let status = kernel.mgp_json(&["status"]).await;
    assert_eq!(status["pid"], kernel.pid());
    let why = status["failed_upgrade"].as_str().unwrap();
    assert!(why.contains("No such file"), "{why}");
    // It can be upgraded all the same.
    kernel.connected(&["it"]).await;
    let upgraded = upgrade(&kernel).await;
    assert_eq!(upgraded["pid"], kernel.pid());
    assert!(kernel.mgp_json(&["status"]).await["failed_upgrade"].is_null());
    let events = kernel.mgp(&["audit", "find", "--json"]).await;
    let events = String::from_utf8(events.stdout).unwrap();
    let events = events
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap());
    let events: Vec<Value> = events
        .filter(|it| it["event_type"] == "dev.cloto.mgp.kernel_upgraded")
        .collect();
    let results: Vec<_> = events.iter().map(|it| it["result"].clone()).collect();
    assert_eq!(results, ["SUCCESS", "FAILURE"]);
    assert_eq!(events[1]["details"]["program"], shown);
    assert!(
        events[1]["details"]["reason"]
            .as_str()
            .unwrap()
            .contains("No such file")
    );
}

/// PRJ-040: a signal while the kernel waits for its calls ends it as a signal does: in good order, and without the program.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn signal_meanwhile_ends_the_kernel_in_good_order() {
    for signal in [Signal::SIGTERM, Signal::SIGHUP] {
        // Whoever runs the tests under `nohup` has SIGHUP ignored, and a kernel keeps to that.
        let program = Program::ours("mgp", ["up"]).command;
        let behind = ["env", "--default-signal=HUP", &program];
        let door = "[http]\nlisten = \"127.0.0.1:0\"\nauth = \"none\"\n";
        let config = format!("{door}{}", server("it", &["--attempts"], ""));
        let mut kernel = Kernel::behind(&behind, tempfile::tempdir().unwrap(), &config, &[]).await;
        kernel.connected(&["it"]).await;
        let mut agent = kernel.stdio_agent(None);
        agent.initialize(NEWEST, "{}").await.result();
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("slow");
        let slow = begin(&mut agent, "it__attempt", append(&file, 30_000)).await;
        in_flight(&mut owner(&kernel).await, "it", 1).await;
        let command = kernel.program(&["upgrade"]);
        let upgrading = tokio::spawn(async move { command.output(DEADLINE).await });
        let is_closing = |log: &str| log.contains("handing over").then_some(());
        kernel
            .process()
            .says("that it hands over", DEADLINE, is_closing)
            .await;
        kernel.process().signal(signal);
        let ended = kernel.process().end(DEADLINE).await;
        assert!(ended.success(), "{signal}: {ended}");
        let log = kernel.process().stderr();
        assert!(log.contains("without handing over"), "{signal}: {log}");
        let answer = agent.answer_to(&slow).await.frame;
        assert!(answer.contains("unknown"), "{signal}: {answer}");
        // At once, and not when the call's own time is over.
        assert!(!answer.contains("did not answer within"), "{answer}");
        assert!(!upgrading.await.unwrap().status.success());
    }
}

/// PRJ-042: what cannot take over is refused before anything ends, and says why.
#[tokio::test]
async fn program_that_cannot_take_over_is_refused() {
    let kernel = Kernel::start(&server("it", &[], "")).await;
    kernel.connected(&["it"]).await;
    let folder = tempfile::tempdir().unwrap();
    let script = |name: &str, text: &str, mode| {
        let path = folder.path().join(name);
        std::fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        path.display().to_string()
    };
    let version = |version: &str| format!("echo '{{\"version\": \"{version}\"}}'");
    let pid = kernel.pid();
    for (program, words) in [
        ("/bin/false".to_owned(), "cannot take over"),
        ("/nowhere/mgp".to_owned(), "No such file"),
        (
            folder.path().display().to_string(),
            "no file with a program",
        ),
        (script("silent", "exit 0", 0o755), "cannot take over"),
        (
            script("failing", &format!("{}; exit 1", version("9.0.0")), 0o755),
            "cannot take over",
        ),
        (script("older", &version("0.0.1"), 0o755), "version 0.0.1"),
        (script("odd", &version("newest"), 0o755), "version newest"),
        (script("open", &version("9.0.0"), 0o777), "chmod o-w"),
        // Only in a folder the sticky bit protects files.
        (script("sticky", &version("9.0.0"), 0o1777), "chmod o-w"),
    ] {
        let refused = kernel.mgp(&["upgrade", &program]).await;
        let text = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(
            !refused.status.success() && text.contains(words),
            "{program}: {text}"
        );
    }
    // A folder in which others may replace the file.
    let open = folder.path().join("open-folder");
    std::fs::create_dir(&open).unwrap();
    std::fs::set_permissions(&open, std::fs::Permissions::from_mode(0o777)).unwrap();
    std::fs::copy(folder.path().join("older"), open.join("mgp")).unwrap();
    let refused = kernel
        .mgp(&["upgrade", &open.join("mgp").display().to_string()])
        .await;
    let text = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(
        text.contains("open-folder") && text.contains("chmod o-w"),
        "{text}"
    );
    // An address that somebody else has.
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let file = kernel.folder().join("mgp.toml");
    let config = std::fs::read_to_string(&file).unwrap();
    let other = config.replacen("127.0.0.1:0", &taken.local_addr().unwrap().to_string(), 1);
    assert_ne!(other, config);
    std::fs::write(file, other).unwrap();
    let refused = kernel.mgp(&["upgrade"]).await;
    let text = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(
        !refused.status.success() && text.contains("another `listen`"),
        "{text}"
    );
    // A configuration that the next program does not accept.
    kernel.rewrite("[[servers\n");
    let refused = kernel.mgp(&["upgrade"]).await;
    let text = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(
        !refused.status.success() && text.contains("cannot take over"),
        "{text}"
    );
    assert_eq!(kernel.mgp_json(&["status"]).await["pid"], pid);
    let mut agent = owner(&kernel).await;
    crate::scene::echoes(&mut agent, "it").await;
    let demo = Program::ours("mgp", ["upgrade", "--wait", "601"])
        .output(DEADLINE)
        .await;
    assert_eq!(demo.status.code(), Some(2));
}
