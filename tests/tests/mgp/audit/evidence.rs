//! What was written down stays: nobody pushes it out, and nobody cuts it off unseen.

use std::path::Path;

use futures_util::future::join_all;
use mgp_tests::harness::{Agent, DEADLINE, Kernel, Program, wait_until};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

/// The smallest log there is, and few refusals at once.
const SMALL: &str = "[http]\nlisten = \"127.0.0.1:0\"\nauth = \"none\"\n[log]\nlevel = \"warn\"\n\
    [tuning.limits]\nagent_refusals_per_second = 5\n\
    [audit]\nkeep_bytes = 1048576\n[tuning.audit]\nfile_bytes = 65536\n";
const FLOOD: usize = 4_000;
const AGENTS: usize = 4;

async fn agent(kernel: &Kernel) -> Agent {
    let mut agent = kernel.http_agent(None);
    agent.initialize("2025-11-25", "{}").await.result();
    agent
}

/// One agent's part of a flood: a denied tool, names that nobody knows, and calls that are done. How many
/// of them were answered as too many.
async fn flood(kernel: &Kernel) -> usize {
    let mut agent = agent(kernel).await;
    let mut limited = 0;
    for n in 0..FLOOD / AGENTS {
        let answer = match n % 4 {
            0 => agent.call("it__fail", json!({"key": "k"})).await,
            1 | 2 => agent.call(&format!("unknown-{n}"), json!({})).await,
            _ => agent.call("it__echo", json!({"text": n.to_string()})).await,
        };
        limited += usize::from(answer.frame.contains("Rate limited"));
    }
    limited
}

fn events(folder: &Path) -> Vec<Value> {
    let log = crate::audit::whole_log(folder);
    let event = |line: &str| serde_json::from_str::<Value>(line).unwrap()["event"].clone();
    log.lines().map(event).collect()
}

/// An agent calls what it may and what it may not, thousands of times: the operator's record is there still
/// and so is the way to it, the flood is counted to the last call, and its bytes have their bound.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flood_of_one_agent_pushes_nothing_out_of_the_log() {
    let config = format!("{SMALL}{}", Program::fixture(&[]).entry("it"));
    let kernel = Kernel::with_config(&config).await;
    kernel.connected(&["it"]).await;
    let deny = ["grants", "add", "agent.anonymous", "it/fail", "--deny"];
    let denied = kernel.mgp(&deny).await;
    assert!(denied.status.success(), "{denied:?}");
    let limited: usize = join_all((0..AGENTS).map(|_| flood(&kernel)))
        .await
        .into_iter()
        .sum();
    assert!(limited > 0, "nobody was told that it asks too often");
    let report = kernel.mgp_json(&["audit", "verify"]).await;
    assert_eq!(report["whole"], true, "{report}");
    let folder = kernel.end(Signal::SIGTERM, DEADLINE).await;
    let events = events(folder.path());
    assert!(events.iter().any(|e| e["event_type"] == "ACCESS_GRANTED"));
    let its = events
        .iter()
        .filter(|e| e["actor"]["id"] == "agent.anonymous");
    let (mut lines, mut bytes, mut done, mut refused) = (0, 0, 0, 0);
    for event in its {
        lines += 1;
        bytes += event.to_string().len();
        let stands_for = event["details"]["repeated"].as_u64().unwrap_or(1) as usize;
        match event["result"].as_str().unwrap() {
            "SUCCESS" => done += stands_for,
            "DENIED" | "BLOCKED" => refused += stands_for,
            other => panic!("{other}: {event}"),
        }
        if stands_for > 1 {
            assert!(event["details"]["first"].is_string() && event["details"]["last"].is_string());
        }
    }
    assert_eq!(
        (done, refused),
        (FLOOD / 4, FLOOD * 3 / 4),
        "in {lines} records"
    );
    assert!(bytes < 1_048_576 / 4, "{bytes} bytes in {lines} records");
}

/// `mgp audit verify` on a folder: its exit code and what it prints.
async fn verify(folder: &Path) -> (i32, Value) {
    let at = |name: &str| folder.join(name).display().to_string();
    let program = Program::ours("mgp", ["audit", "verify", "--json", "--data-dir"]).arg(at("data"));
    let program = program
        .env("MGP_CONFIG_PATH", at("mgp.toml"))
        .env("MGP_SOCKET", at("mgp.sock"));
    let output = program.output(DEADLINE).await;
    let report = serde_json::from_slice(&output.stdout).unwrap_or_default();
    (output.status.code().unwrap(), report)
}

/// Who names a kernel by its socket alone is shown that kernel's folder, not the usual one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_folder_of_the_kernel_that_is_named_is_verified_and_backed_up() {
    let kernel = kernel_with_records().await;
    let home = tempfile::tempdir().unwrap();
    let here = async |args: &[&str]| {
        let program = Program::ours("mgp", args.iter().copied());
        let socket = kernel.socket().display().to_string();
        let program = program
            .env("HOME", home.path().display().to_string())
            .env("MGP_SOCKET", socket);
        let output = program.output(DEADLINE).await;
        serde_json::from_slice::<Value>(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"))
    };
    let report = here(&["audit", "verify", "--json"]).await;
    assert!(report["records"].as_u64().unwrap() > 5, "{report}");
    let to = home.path().join("copy.tar").display().to_string();
    let made = here(&["backup", &to, "--json"]).await;
    let folder = kernel.folder().join("data").display().to_string();
    assert_eq!(made["data_dir"], folder.as_str(), "{made}");
}

async fn kernel_with_records() -> Kernel {
    let kernel = Kernel::start(&Program::fixture(&[]).entry("it")).await;
    kernel.connected(&["it"]).await;
    let mut agent = agent(&kernel).await;
    for n in 0..5 {
        agent
            .call("it__echo", json!({"text": n.to_string()}))
            .await
            .result();
    }
    kernel
}

fn cut_the_last_record(folder: &Path) {
    let log = folder.join("data/audit/00000001.jsonl");
    let text = std::fs::read_to_string(&log).unwrap();
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    std::fs::write(&log, lines[..lines.len() - 1].concat()).unwrap();
}

/// The end of the log is cut off and what names it removed, or the whole log: `verify` fails before the next
/// start and after it, until the operator has acknowledged it; and that is in the log.
#[tokio::test]
async fn truncated_log_fails_verify_until_it_is_acknowledged() {
    let remove = |folder: &Path, names: &[&str]| {
        for name in names {
            let path = folder.join("data").join(name);
            let gone = if path.is_dir() {
                std::fs::remove_dir_all(&path)
            } else {
                std::fs::remove_file(&path)
            };
            gone.unwrap();
        }
    };
    let mut folder = kernel_with_records()
        .await
        .end(Signal::SIGTERM, DEADLINE)
        .await;
    assert_eq!(verify(folder.path()).await.0, 0);
    for (round, gone) in [
        &["audit.head"][..],
        &["audit.head", "node.witness"],
        &["audit"],
        &["audit", "audit.head", "node.witness"],
    ]
    .into_iter()
    .enumerate()
    {
        if gone[0] == "audit.head" && round == 0 {
            cut_the_last_record(folder.path());
        }
        remove(folder.path(), gone);
        let (code, report) = verify(folder.path()).await;
        assert_eq!(
            (code, &report["whole"]),
            (4, &json!(false)),
            "{gone:?}: {report}"
        );
        let kernel = Kernel::again(folder).await;
        kernel.connected(&["it"]).await;
        let (code, report) = verify(kernel.folder()).await;
        assert_eq!(code, 4, "{gone:?} after the start: {report}");
        let done = kernel
            .mgp_json(&["audit", "acknowledge", "--reason", "a test"])
            .await;
        assert!(
            !done["acknowledged"].as_array().unwrap().is_empty(),
            "{gone:?}"
        );
        let (code, report) = verify(kernel.folder()).await;
        assert_eq!(
            (code, &report["whole"]),
            (0, &json!(true)),
            "{gone:?}: {report}"
        );
        let again = kernel.mgp_json(&["audit", "acknowledge"]).await;
        assert_eq!(again["acknowledged"], json!([]));
        remove(kernel.folder(), &["audit.head"]);
        assert_eq!(verify(kernel.folder()).await.0, 4, "removed while it runs");
        kernel
            .mgp_json(&["audit", "acknowledge", "--reason", "a test"])
            .await;
        assert_eq!(verify(kernel.folder()).await.0, 0, "and made anew");
        folder = kernel.end(Signal::SIGTERM, DEADLINE).await;
        let events = events(folder.path());
        let said = |e: &&Value| e["event_type"] == "dev.cloto.mgp.audit_acknowledged";
        let said = events.iter().rfind(said).unwrap();
        assert_eq!(
            (&said["actor"]["type"], &said["details"]["reason"]),
            (&json!("operator"), &json!("a test"))
        );
        assert_eq!(verify(folder.path()).await.0, 0, "{gone:?} and stopped");
    }
}

/// Where a kernel runs, its own last record counts: a log and all that names its end, put back to what they
/// were an hour ago, are not whole.
#[tokio::test]
async fn verify_asks_a_running_kernel() {
    let kernel = kernel_with_records().await;
    let data = kernel.folder().join("data");
    let names = ["audit/00000001.jsonl", "audit.head", "node.witness"];
    let folder = kernel.end(Signal::SIGTERM, DEADLINE).await;
    let calls = |folder: &Path| {
        let events = events(folder);
        let of_calls = events.iter().filter(|e| e["event_type"] == "TOOL_EXECUTED");
        of_calls.count()
    };
    let called = calls(folder.path());
    let before = names.map(|name| std::fs::read(data.join(name)).unwrap());
    let kernel = Kernel::again(folder).await;
    kernel.connected(&["it"]).await;
    agent(&kernel)
        .await
        .call("it__echo", json!({"text": "x"}))
        .await
        .result();
    // What is written after the files were put back would tell of a gap, not of an end that is missing.
    wait_until("the call is written down", DEADLINE, async || {
        calls(kernel.folder()) > called
    })
    .await;
    assert_eq!(verify(kernel.folder()).await.0, 0);
    for (name, bytes) in names.iter().zip(&before) {
        std::fs::write(data.join(name), bytes).unwrap();
    }
    let (code, report) = verify(kernel.folder()).await;
    assert_eq!(
        (code, &report["faults"][0]["fault"]),
        (4, &json!("truncated")),
        "{report}"
    );
    // A folder on which no kernel runs is looked at alone.
    let copy = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(copy.path().join("data/audit")).unwrap();
    let config = "mgp.toml";
    std::fs::copy(kernel.folder().join(config), copy.path().join(config)).unwrap();
    for (name, bytes) in names.iter().zip(&before) {
        std::fs::write(copy.path().join("data").join(name), bytes).unwrap();
    }
    assert_eq!(verify(copy.path()).await.0, 0);
}

/// What is missing from a folder that was used is named at the start and in `status`, with what to do.
#[tokio::test]
async fn a_missing_token_or_list_of_agents_is_named() {
    let config = "[http]\nlisten = \"127.0.0.1:0\"\n";
    let kernel = Kernel::with_config(config).await;
    let status = kernel.mgp_json(&["status"]).await;
    assert_eq!(
        status["troubles"],
        json!([]),
        "a first start misses nothing"
    );
    let folder = kernel.end(Signal::SIGTERM, DEADLINE).await;
    for name in ["token", "agents.json"] {
        std::fs::remove_file(folder.path().join("data").join(name)).unwrap();
    }
    let kernel = Kernel::again(folder).await;
    let status = kernel.mgp_json(&["status"]).await;
    let told: Vec<&str> = status["troubles"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(Value::as_str)
        .collect();
    assert_eq!(told.len(), 2, "{told:?}");
    assert!(
        told[0].contains("data/token is missing: a new one is made"),
        "{told:?}"
    );
    assert!(told[1].contains("data/agents.json is missing") && told[1].contains("mgp agents add"));
    let folder = kernel.end(Signal::SIGTERM, DEADLINE).await;
    assert!(
        crate::audit::whole_log(folder.path())
            .matches("mgp.state_damaged")
            .count()
            == 2
    );
    let at = |name: &str| folder.path().join(name).display().to_string();
    for (file, text) in [
        ("token", &b"x\n"[..]),
        ("token", b"\xff"),
        ("agents.json", b"\xff"),
        ("agents.json", b""),
    ] {
        let path = folder.path().join("data").join(file);
        let good = std::fs::read(&path).unwrap();
        std::fs::write(&path, text).unwrap();
        let up = Program::ours("mgp", ["up", "--config"]).arg(at("mgp.toml"));
        let up = up
            .env("MGP_SOCKET", at("mgp.sock"))
            .env("MGP_DATA_DIR", at("data"));
        let output = up.output(DEADLINE).await;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{file}: {said}");
        assert!(
            said.contains(&path.display().to_string()) && said.contains("remove it"),
            "{said}"
        );
        std::fs::write(&path, good).unwrap();
    }
}
