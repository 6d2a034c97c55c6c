//! What was done is written down: every event, in order, so that nothing is changed unseen.

mod disk;
mod events;
mod evidence;
mod finding;
mod held_up;
mod kills;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use mgp_tests::harness::mgp::{READS_AUDIT_LOG, declaration, trace};
use mgp_tests::harness::{Agent, Client, DEADLINE, Kernel, Program, wait_until};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::scene::{ERAS, received};

async fn agent(kernel: &Kernel) -> Agent {
    let mut agent = kernel.http_agent(None);
    agent.initialize("2025-11-25", "{}").await.result();
    agent
}

/// The last events, as the operator sees them.
pub(crate) async fn events(kernel: &Kernel) -> Vec<Value> {
    let output = kernel.mgp(&["audit", "tail", "-n", "1000", "--json"]).await;
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines()
        .map(|l| serde_json::from_str(l).unwrap())
        .collect()
}

/// Waits for an event of this type about this server or tool, and answers it.
async fn event(kernel: &Kernel, kind: &str, about: &str) -> Value {
    let mut found = None;
    wait_until(&format!("{kind} of {about}"), DEADLINE, async || {
        let of = |e: &Value| {
            let target = &e["target"];
            e["event_type"] == kind
                && (target["tool_name"] == about || target["server_id"] == about)
        };
        found = events(kernel).await.into_iter().rfind(of);
        found.is_some()
    })
    .await;
    found.unwrap()
}

fn log_files(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder.join("data/audit")).unwrap();
    let mut files: Vec<_> = entries.map(|e| e.unwrap().path()).collect();
    files.retain(|f| f.extension().is_some_and(|e| e == "jsonl"));
    files.sort();
    files
}

pub(crate) fn whole_log(folder: &Path) -> String {
    let read = |f: PathBuf| std::fs::read_to_string(f).unwrap();
    log_files(folder).into_iter().map(read).collect()
}

/// The types of MGP §6.4.
const STANDARD: [&str; 11] = [
    "TOOL_EXECUTED",
    "TOOL_BLOCKED",
    "PERMISSION_GRANTED",
    "PERMISSION_DENIED",
    "PERMISSION_REVOKED",
    "ACCESS_GRANTED",
    "ACCESS_REVOKED",
    "SERVER_CONNECTED",
    "SERVER_DISCONNECTED",
    "VALIDATION_FAILED",
    "CODE_REJECTED",
];

/// The form of MGP §6.3, member by member.
pub(crate) fn has_the_form(event: &Value) {
    let text = |value: &Value| value.as_str().map(str::to_owned).unwrap_or_default();
    let at = text(&event["timestamp"]);
    assert!(
        at.len() == 24 && at.ends_with('Z') && &at[19..20] == ".",
        "{at}"
    );
    assert!(!text(&event["trace_id"]).is_empty(), "{event}");
    assert!(!text(&event["actor"]["id"]).is_empty(), "{event}");
    let kinds = ["agent", "operator", "server", "node", "kernel"];
    assert!(
        kinds.contains(&text(&event["actor"]["type"]).as_str()),
        "{event}"
    );
    let results = [
        "SUCCESS",
        "FAILURE",
        "BLOCKED",
        "DENIED",
        "TIMEOUT",
        "CANCELLED",
    ];
    assert!(
        results.contains(&text(&event["result"]).as_str()),
        "{event}"
    );
    assert!(
        event["target"].is_object() && event["details"].is_object(),
        "{event}"
    );
    let kind = text(&event["event_type"]);
    assert!(
        STANDARD.contains(&kind.as_str()) || is_reverse_domain(&kind),
        "{kind}"
    );
}

/// A name in reverse-domain notation: three labels at least, in small letters.
pub(crate) fn is_reverse_domain(name: &str) -> bool {
    let label = |label: &str| {
        let fits = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b"_-".contains(&b);
        !label.is_empty() && label.bytes().all(fits)
    };
    name.split('.').count() >= 3 && name.split('.').all(label)
}

/// MGP-007, MGP-083, MGP-085, MGP-086, MGP-088, MGP-089, MGP-090, MGP-096, MGP-097: what is
/// done is in the local log, each thing once, in the form of the document.
#[tokio::test]
async fn every_call_and_every_server_is_written_down() {
    let servers = Program::fixture(&[]).entry("it");
    let kernel = Kernel::start(&servers).await;
    kernel.connected(&["it"]).await;
    let mut agent = agent(&kernel).await;
    agent
        .call("it__echo", json!({"text": "a private word"}))
        .await
        .result();
    agent
        .call("it__test_error_handling", json!({}))
        .await
        .result();
    let error = json!({"code": -32050, "message": "no"});
    agent
        .call("it__fail", json!({"key": "k", "error": error}))
        .await
        .error();
    agent.call("it__echo", json!({"text": 7})).await;
    agent.call("nowhere", json!({})).await.error();
    let ok = event(&kernel, "TOOL_BLOCKED", "echo").await;
    assert_eq!(
        (&ok["result"], &ok["details"]["at"]),
        (&json!("BLOCKED"), &json!("/text"))
    );
    let blocked = event(&kernel, "TOOL_BLOCKED", "nowhere").await;
    assert_eq!(blocked["result"], "BLOCKED");
    let done = event(&kernel, "TOOL_EXECUTED", "echo").await;
    assert_eq!(
        (&done["result"], &done["target"]["server_id"]),
        (&json!("SUCCESS"), &json!("it"))
    );
    assert!(done["details"]["duration_ms"].is_u64() && done["details"]["risk_level"].is_string());
    let tool = event(&kernel, "TOOL_EXECUTED", "test_error_handling").await;
    assert_eq!(
        (&tool["result"], &tool["details"]["failure"]),
        (&json!("FAILURE"), &json!("tool"))
    );
    let peer = event(&kernel, "TOOL_EXECUTED", "fail").await;
    assert_eq!(peer["details"]["failure"], "protocol");
    assert_eq!(peer["details"]["error_code"], -32050);
    agent.call("it__crash", json!({"code": 3})).await;
    let lost = event(&kernel, "TOOL_EXECUTED", "crash").await;
    assert_eq!(lost["details"]["failure"], "transport");
    let gone = event(&kernel, "SERVER_DISCONNECTED", "it").await;
    assert_eq!(
        (&gone["result"], &gone["actor"]["type"]),
        (&json!("FAILURE"), &json!("kernel"))
    );
    event(&kernel, "SERVER_CONNECTED", "it").await;
    let all = events(&kernel).await;
    all.iter().for_each(has_the_form);
    let calls = |tool: &str| {
        all.iter()
            .filter(|e| e["target"]["tool_name"] == tool)
            .count()
    };
    assert_eq!([calls("echo"), calls("nowhere"), calls("crash")], [2, 1, 1]);
    assert!(!whole_log(kernel.folder()).contains("a private word"));
}

/// MGP-152: a server that is given up is in the log with the reason.
#[tokio::test]
async fn a_server_that_is_given_up_is_written_down() {
    let entry = Program::fixture(&["--exit-at-start", "9"]).entry("it");
    let entry = entry.replace(
        "id = \"it\"\n",
        "id = \"it\"\nmax_restarts = 1\nbackoff_base_ms = 10\n",
    );
    let kernel = Kernel::start(&entry).await;
    let gone = event(&kernel, "SERVER_DISCONNECTED", "it").await;
    assert_eq!(
        gone["details"]["reason"], "restart_limit_exceeded",
        "{gone}"
    );
}

/// MGP-084, MGP-087, MGP-101, MGP-102: a server that negotiated `audit` is told every event after it is
/// written, and a caller's trace goes through unchanged; a plain server sees neither.
#[tokio::test]
async fn an_audit_server_hears_what_a_plain_one_does_not() {
    let said = declaration(&["audit"]).to_string();
    let keeper = Program::fixture(&["--mgp", &said]).entry("keeper");
    let plain = Program::fixture(&[]).entry("plain");
    let kernel = Kernel::start(&format!("{keeper}{READS_AUDIT_LOG}{plain}")).await;
    kernel.connected(&["keeper", "plain"]).await;
    let mut agent = agent(&kernel).await;
    let trace = "550E8400-e29b-41d4-A716-446655440000";
    for tool in ["keeper__echo", "plain__echo"] {
        let call = json!({"name": tool, "arguments": {"text": "x"}, "trace_id": trace});
        agent.request("tools/call", call).await.result();
    }
    agent
        .call("plain__echo", json!({"text": "untraced"}))
        .await
        .result();
    agent
        .call("keeper__echo", json!({"text": "minted"}))
        .await
        .result();
    let mut heard = Vec::new();
    wait_until("the keeper hears of it", DEADLINE, async || {
        heard = frames(&mut agent, "keeper__received").await;
        let traced = |f: &Value| {
            f["method"] == "notifications/mgp.audit" && f["params"]["trace_id"] == trace
        };
        heard.iter().filter(|f| traced(f)).count() == 2
    })
    .await;
    let told: Vec<&Value> = heard
        .iter()
        .filter(|f| f["method"] == "notifications/mgp.audit")
        .collect();
    let log = whole_log(kernel.folder());
    for event in &told {
        has_the_form(&event["params"]);
        let seq = event["params"]["_mgp"]["seq"].as_u64().unwrap();
        assert!(
            log.contains(&format!(r#"{{"seq":{seq},"#)),
            "told before it was written"
        );
    }
    let sequences: Vec<u64> = told
        .iter()
        .map(|e| e["params"]["_mgp"]["seq"].as_u64().unwrap())
        .collect();
    assert!(
        sequences.windows(2).all(|w| w[0] + 1 == w[1]),
        "{sequences:?}"
    );
    let calls = |frames: &[Value], text: &str| -> Value {
        let of =
            |f: &&Value| f["method"] == "tools/call" && f["params"]["arguments"]["text"] == text;
        frames.iter().find(of).unwrap()["params"].clone()
    };
    assert_eq!(calls(&heard, "x")["trace_id"], trace);
    let minted = calls(&heard, "minted")["trace_id"]
        .as_str()
        .unwrap()
        .to_owned();
    assert!(
        events(&kernel)
            .await
            .iter()
            .any(|e| e["trace_id"] == minted.as_str())
    );
    let plain = frames(&mut agent, "plain__received").await;
    assert!(
        plain
            .iter()
            .all(|f| f["method"] != "notifications/mgp.audit")
    );
    assert_eq!(calls(&plain, "x")["_meta"]["trace_id"], trace);
    let parent = calls(&plain, "x")["_meta"]["traceparent"]
        .as_str()
        .unwrap()
        .to_owned();
    assert!(
        parent.starts_with("00-550e8400e29b41d4a716446655440000-"),
        "{parent}"
    );
    let untraced = calls(&plain, "untraced");
    assert!(
        calls(&plain, "x")["trace_id"].is_null(),
        "that is MGP's place"
    );
    assert!(
        untraced["trace_id"].is_null() && untraced["_meta"]["trace_id"].is_null(),
        "{untraced}"
    );
}

/// MGP-085, MGP-102, A-05: what is no UUID is no trace: the kernel makes one, which an MGP server gets in
/// its place; a plain server is sent nothing that is MGP's, whoever wrote it.
#[tokio::test]
async fn what_is_no_uuid_is_no_trace() {
    let said = declaration(&["security"]).to_string();
    for era in ["legacy", "modern"] {
        let knows = Program::fixture(&["--era", era, "--mgp", &said]).entry("knows");
        let plain = Program::fixture(&["--era", era]).entry("plain");
        let kernel = Kernel::start(&format!("{knows}{plain}")).await;
        kernel.connected(&["knows", "plain"]).await;
        for version in ERAS {
            let mut client = Client::over_http(kernel.url(), version, "{}").await;
            for (n, bad) in [json!("mine"), json!(7), json!("\u{1f600}")]
                .iter()
                .enumerate()
            {
                let text = format!("{version} {n}");
                for server in ["knows", "plain"] {
                    let call = json!({"name": format!("{server}:echo"), "arguments": {"text": text},
                        "trace_id": bad, "_mgp": {"n": n}});
                    client.request("tools/call", call).await.result();
                }
                let sent = |frames: Vec<String>| {
                    let frame = frames.iter().find(|f| f.contains(&text)).unwrap().clone();
                    serde_json::from_str::<Value>(&frame).unwrap()["params"].clone()
                };
                let knows = sent(received(&mut client, "knows:received").await);
                let trace = knows["trace_id"].as_str().unwrap_or_default().to_owned();
                assert!(trace.len() == 36 && json!(trace) != *bad, "{knows}");
                wait_until("it is written down", DEADLINE, async || {
                    whole_log(kernel.folder()).contains(&trace)
                })
                .await;
                let plain = sent(received(&mut client, "plain:received").await);
                for own in ["trace_id", "_mgp"] {
                    assert!(plain.get(own).is_none(), "{era} {version}: {plain}");
                }
            }
            let text = format!("{version} good");
            let call = json!({"name": "plain:echo", "arguments": {"text": text},
                "trace_id": trace(&text), "_mgp": {}});
            client.request("tools/call", call).await.result();
            let frames = received(&mut client, "plain:received").await;
            let frame = frames.iter().find(|f| f.contains(&text)).unwrap();
            let sent: Value = serde_json::from_str(frame).unwrap();
            assert_eq!(sent["params"]["_meta"]["trace_id"], json!(trace(&text)));
            assert!(sent["params"].get("trace_id").is_none(), "{sent}");
        }
    }
}

/// MGP-087: an audit server that was away is told from where it was: nothing is left out and nothing is
/// told twice.
#[tokio::test]
async fn an_audit_server_that_was_away_goes_on_where_it_was() {
    let said = declaration(&["audit"]).to_string();
    let keeper = Program::fixture(&["--mgp", &said]).entry("keeper");
    let plain = Program::fixture(&[]).entry("plain");
    let kernel = Kernel::start(&format!("{keeper}{READS_AUDIT_LOG}{plain}")).await;
    kernel.connected(&["keeper", "plain"]).await;
    let mut agent = agent(&kernel).await;
    let call = json!({"text": "x"});
    agent.call("plain__echo", call.clone()).await.result();
    let told = kernel.folder().join("data/audit/told-keeper");
    let mut last = 0;
    wait_until("it was told everything", DEADLINE, async || {
        let newest = whole_log(kernel.folder()).lines().count() as u64;
        let text = std::fs::read_to_string(&told).unwrap_or_default();
        last = text.trim().parse().unwrap_or(0);
        last == newest && last > 2
    })
    .await;
    kernel.mgp_json(&["servers", "stop", "keeper"]).await;
    let text = std::fs::read_to_string(&told).unwrap_or_default();
    last = text.trim().parse().unwrap_or(last);
    for _ in 0..3 {
        agent.call("plain__echo", call.clone()).await.result();
    }
    kernel.mgp_json(&["servers", "start", "keeper"]).await;
    kernel.connected(&["keeper"]).await;
    let mut sequences: Vec<u64> = Vec::new();
    wait_until("it was told what it missed", DEADLINE, async || {
        let heard = frames(&mut agent, "keeper__received").await;
        let events = heard
            .iter()
            .filter(|f| f["method"] == "notifications/mgp.audit");
        let seq = |event: &Value| event["params"]["_mgp"]["seq"].as_u64().unwrap();
        sequences = events.map(seq).collect();
        sequences.last().is_some_and(|newest| *newest > last + 4)
    })
    .await;
    let newest = *sequences.last().unwrap();
    assert_eq!(sequences, (last + 1..=newest).collect::<Vec<_>>());
}

async fn frames(agent: &mut Agent, tool: &str) -> Vec<Value> {
    let received = agent.call(tool, json!({})).await.result();
    let frames = received["structuredContent"]["frames"]
        .as_array()
        .unwrap()
        .clone();
    let parse = |f: &Value| serde_json::from_str(f.as_str().unwrap()).unwrap();
    frames.iter().map(parse).collect()
}

/// What is changed, removed, moved or cut off in the files is named, without a running kernel.
#[tokio::test]
async fn verify_names_what_was_done_to_the_log() {
    let kernel = Kernel::start(&Program::fixture(&[]).entry("it")).await;
    kernel.connected(&["it"]).await;
    let mut client = agent(&kernel).await;
    for n in 0..8 {
        client
            .call("it__echo", json!({"text": n.to_string()}))
            .await
            .result();
    }
    let report = kernel.mgp_json(&["audit", "verify"]).await;
    assert_eq!(report["whole"], true, "{report}");
    let folder = kernel.end(Signal::SIGTERM, DEADLINE).await;
    let file = log_files(folder.path()).pop().unwrap();
    let text = std::fs::read_to_string(&file).unwrap();
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    let verify = async || {
        let program = Program::ours("mgp", ["audit", "verify", "--json", "--data-dir"]);
        let program = program.arg(folder.path().join("data").display().to_string());
        let output = program.env(
            "MGP_CONFIG_PATH",
            folder.path().join("mgp.toml").display().to_string(),
        );
        let output = output.output(DEADLINE).await;
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        (output.status.code().unwrap(), report["faults"].clone())
    };
    assert_eq!(verify().await, (0, json!([])));
    let changed = lines[3].replace("TOOL_EXECUTED", "TOOL_EXECUTEE");
    let mut swapped = lines.clone();
    swapped.swap(3, 4);
    let cases: [(&str, String, u64); 4] = [
        (
            "changed",
            [&lines[..3].concat(), changed.as_str(), &lines[4..].concat()].concat(),
            4,
        ),
        (
            "removed",
            [lines[..3].concat(), lines[4..].concat()].concat(),
            4,
        ),
        ("moved", swapped.concat(), 4),
        (
            "truncated",
            lines[..lines.len() - 1].concat(),
            lines.len() as u64,
        ),
    ];
    for (name, hurt, record) in cases {
        std::fs::write(&file, hurt).unwrap();
        let (code, faults) = verify().await;
        assert_eq!((code, &faults[0]["fault"]), (4, &json!(name)), "{faults}");
        let from = faults[0]["from"].as_u64().unwrap();
        assert!(
            from == record || name == "moved" && from == record + 1,
            "{faults}"
        );
        assert_eq!(faults.as_array().unwrap().len(), 1, "{faults}");
    }
    // The kernel finds it too, says so, and goes on behind what it found.
    std::fs::write(&file, [lines[..3].concat(), lines[4..].concat()].concat()).unwrap();
    let kernel = Kernel::again(folder).await;
    let found = events(&kernel).await;
    let damaged = found
        .iter()
        .find(|e| e["event_type"] == "dev.cloto.mgp.audit_damaged");
    assert_eq!(damaged.unwrap()["details"]["faults"][0]["fault"], "removed");
    assert_eq!(log_files(kernel.folder()).len(), 2);
}

/// With `calls = "before_reply"` the record of a call is in the file when its answer comes; and however
/// a kernel is killed, the chain is whole afterwards and no such record is lost.
#[tokio::test]
async fn a_killed_kernel_leaves_a_whole_chain() {
    let config =
        "[http]\nlisten = \"127.0.0.1:0\"\nauth = \"none\"\n[audit]\ncalls = \"before_reply\"\n";
    let config = format!("{config}{}", Program::fixture(&[]).entry("it"));
    let mut kernel = Kernel::with_config(&config).await;
    let mut traces = BTreeSet::new();
    for round in 0..6_u64 {
        kernel.connected(&["it"]).await;
        let mut agent = agent(&kernel).await;
        for n in 0..10 {
            let trace = trace(&format!("round {round} {n}"));
            let call = json!({"name": "it__echo", "arguments": {"text": "x"}, "trace_id": trace});
            agent.request("tools/call", call).await.result();
            assert!(
                whole_log(kernel.folder()).contains(&format!("\"{trace}\"")),
                "answered first"
            );
            traces.insert(trace);
        }
        let mut under_way = Vec::new();
        for _ in 0..round * 7 {
            let call = json!({"name": "it__echo", "arguments": {"text": "y"}});
            under_way.push(agent.start("tools/call", call).await);
        }
        let folder = kernel.end(Signal::SIGKILL, DEADLINE).await;
        kernel = Kernel::again(folder).await;
    }
    let report = kernel.mgp_json(&["audit", "verify"]).await;
    assert_eq!(
        (&report["whole"], &report["head"]),
        (&json!(true), &Value::Null),
        "{report}"
    );
    let log = whole_log(kernel.folder());
    assert!(traces.iter().all(|t| log.contains(&format!("\"{t}\""))));
}

/// With the window, a record is on its way at once, and in the file within it.
#[tokio::test]
async fn records_of_calls_are_written_within_the_window() {
    let kernel = Kernel::start(&Program::fixture(&[]).entry("it")).await;
    kernel.connected(&["it"]).await;
    let mut agent = agent(&kernel).await;
    let call =
        json!({"name": "it__echo", "arguments": {"text": "x"}, "trace_id": trace("in time")});
    agent.request("tools/call", call).await.result();
    wait_until("it is written", DEADLINE, async || {
        whole_log(kernel.folder()).contains(&trace("in time"))
    })
    .await;
}
