//! The audit log: which events it has, in which form and order, and how changes of it are found.

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

/// A kernel in front of the server `it`, and a plain agent.
async fn audited() -> (Kernel, Agent) {
    let kernel = Kernel::start(&Program::fixture(&[]).entry("it")).await;
    kernel.connected(&["it"]).await;
    let agent = agent(&kernel).await;
    (kernel, agent)
}

/// MGP-089: how it ended and why, how long it took and how risky it was.
#[tokio::test]
async fn completed_call_is_recorded_as_tool_executed() {
    let (kernel, mut agent) = audited().await;
    let error = json!({"key": "k", "error": {"code": -32050, "message": "no"}});
    for (tool, arguments, result, failure) in [
        ("echo", json!({"text": "x"}), "SUCCESS", Value::Null),
        ("test_error_handling", json!({}), "FAILURE", json!("tool")),
        ("fail", error, "FAILURE", json!("protocol")),
        ("crash", json!({"code": 3}), "FAILURE", json!("transport")),
    ] {
        agent.call(&format!("it__{tool}"), arguments).await;
        let event = event(&kernel, "TOOL_EXECUTED", tool).await;
        assert_eq!(event["result"], result, "{event}");
        assert_eq!(event["target"]["server_id"], "it", "{event}");
        let details = &event["details"];
        assert_eq!(details["failure"], failure, "{event}");
        assert!(details["duration_ms"].is_u64(), "{event}");
        assert!(details["risk_level"].is_string(), "{event}");
        if tool == "fail" {
            assert_eq!(details["error_code"], -32050, "{event}");
        }
    }
}

/// MGP-090: see also `events`.
#[tokio::test]
async fn call_that_is_rejected_is_recorded_as_tool_blocked() {
    let (kernel, mut agent) = audited().await;
    agent.call("it__echo", json!({"text": 7})).await;
    agent.call("nowhere", json!({})).await.error();
    let invalid = event(&kernel, "TOOL_BLOCKED", "echo").await;
    assert_eq!(invalid["result"], "BLOCKED", "{invalid}");
    assert_eq!(invalid["details"]["at"], "/text", "{invalid}");
    let unknown = event(&kernel, "TOOL_BLOCKED", "nowhere").await;
    assert_eq!(unknown["result"], "BLOCKED", "{unknown}");
}

/// MGP-096: of a plain MCP server as well.
#[tokio::test]
async fn connected_server_is_recorded() {
    let (kernel, _agent) = audited().await;
    let connected = event(&kernel, "SERVER_CONNECTED", "it").await;
    assert_eq!(connected["result"], "SUCCESS", "{connected}");
    assert_eq!(connected["actor"]["type"], "kernel", "{connected}");
}

/// MGP-097.
#[tokio::test]
async fn server_that_crashes_is_recorded_as_disconnected() {
    let (kernel, mut agent) = audited().await;
    agent.call("it__crash", json!({"code": 3})).await;
    let gone = event(&kernel, "SERVER_DISCONNECTED", "it").await;
    assert_eq!(gone["result"], "FAILURE", "{gone}");
    assert_eq!(gone["actor"]["type"], "kernel", "{gone}");
}

/// MGP-088: without the arguments.
#[tokio::test]
async fn events_are_stored_locally_without_an_audit_server() {
    let (kernel, mut agent) = audited().await;
    let arguments = json!({"text": "a private word"});
    agent.call("it__echo", arguments).await.result();
    event(&kernel, "TOOL_EXECUTED", "echo").await;
    let log = whole_log(kernel.folder());
    assert!(log.contains("TOOL_EXECUTED"), "{log}");
    assert!(!log.contains("a private word"), "{log}");
}

/// MGP-083, MGP-085: member by member, and of the documented types or others in reverse-domain notation.
#[tokio::test]
async fn events_have_the_documented_form() {
    let (kernel, mut agent) = audited().await;
    agent.call("it__echo", json!({"text": "x"})).await.result();
    agent.call("nowhere", json!({})).await.error();
    agent.call("it__crash", json!({"code": 3})).await;
    for (kind, about) in [
        ("SERVER_CONNECTED", "it"),
        ("TOOL_EXECUTED", "echo"),
        ("TOOL_BLOCKED", "nowhere"),
        ("SERVER_DISCONNECTED", "it"),
    ] {
        event(&kernel, kind, about).await;
    }
    events(&kernel).await.iter().for_each(has_the_form);
}

/// MGP-007.
#[tokio::test]
async fn each_action_has_exactly_one_event() {
    let (kernel, mut agent) = audited().await;
    let mut owner = Agent::over_socket(&kernel.socket()).await;
    owner.initialize("2025-11-25", "{}").await.result();
    agent.call("it__echo", json!({"text": "x"})).await.result();
    agent.call("it__echo", json!({"text": 7})).await;
    agent.call("nowhere", json!({})).await.error();
    let denial = json!({"entry_type": "tool_grant", "agent_id": "agent.anonymous", "server_id": "it",
        "tool_name": "count", "permission": "deny"});
    owner.request("mgp/access/grant", denial).await.result();
    agent.call("it__count", json!({})).await.error();
    agent.call("it__crash", json!({"code": 3})).await;
    event(&kernel, "SERVER_DISCONNECTED", "it").await;
    event(&kernel, "TOOL_EXECUTED", "crash").await;
    let all = events(&kernel).await;
    let count = |kind: &str, tool: &str| {
        let of_tool = all.iter().filter(|e| e["target"]["tool_name"] == tool);
        of_tool.filter(|e| e["event_type"] == kind).count()
    };
    for (kind, tool) in [
        ("TOOL_EXECUTED", "echo"),
        ("TOOL_BLOCKED", "echo"),
        ("TOOL_BLOCKED", "nowhere"),
        ("ACCESS_GRANTED", "count"),
        ("TOOL_BLOCKED", "count"),
        ("TOOL_EXECUTED", "crash"),
    ] {
        assert_eq!(count(kind, tool), 1, "{kind} {tool}: {all:#?}");
    }
    let gone = all
        .iter()
        .filter(|e| e["event_type"] == "SERVER_DISCONNECTED");
    assert_eq!(gone.count(), 1, "{all:#?}");
}

/// MGP-152: a server that is given up is in the log with the reason.
#[tokio::test]
async fn server_beyond_its_restart_limit_is_recorded_with_the_reason() {
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

/// A kernel in front of a server that negotiated `audit` and a plain one.
async fn with_audit_server() -> (Kernel, Agent) {
    let said = declaration(&["audit"]).to_string();
    let keeper = Program::fixture(&["--mgp", &said]).entry("keeper");
    let plain = Program::fixture(&[]).entry("plain");
    let kernel = Kernel::start(&format!("{keeper}{READS_AUDIT_LOG}{plain}")).await;
    kernel.connected(&["keeper", "plain"]).await;
    let agent = agent(&kernel).await;
    (kernel, agent)
}

/// MGP-084, MGP-087: after it was stored, in order, and a plain server gets none.
#[tokio::test]
async fn audit_server_is_notified_of_each_event() {
    let (kernel, mut agent) = with_audit_server().await;
    let trace = trace("notified");
    for tool in ["keeper__echo", "plain__echo"] {
        let call = json!({"name": tool, "arguments": {"text": "x"}, "trace_id": trace});
        agent.request("tools/call", call).await.result();
    }
    let mut notified = Vec::new();
    wait_until("both calls are notified", DEADLINE, async || {
        notified = frames(&mut agent, "keeper__received").await;
        notified.retain(|frame| frame["method"] == "notifications/mgp.audit");
        let traced = notified.iter().filter(|f| f["params"]["trace_id"] == trace);
        traced.count() == 2
    })
    .await;
    let log = whole_log(kernel.folder());
    let mut sequences = Vec::new();
    for event in &notified {
        has_the_form(&event["params"]);
        let seq = event["params"]["_mgp"]["seq"].as_u64().unwrap();
        assert!(
            log.contains(&format!(r#"{{"seq":{seq},"#)),
            "notified before it was stored"
        );
        sequences.push(seq);
    }
    assert!(
        sequences.windows(2).all(|w| w[0] + 1 == w[1]),
        "{sequences:?}"
    );
    let plain = frames(&mut agent, "plain__received").await;
    assert!(
        plain
            .iter()
            .all(|frame| frame["method"] != "notifications/mgp.audit")
    );
}

/// MGP-101, MGP-102: as a member of MGP to a server that negotiated it, and otherwise where MCP has its place; one is
/// generated for the first where it is missing.
#[tokio::test]
async fn trace_of_a_call_reaches_its_server_unchanged() {
    let (kernel, mut agent) = with_audit_server().await;
    let trace = "550E8400-e29b-41d4-A716-446655440000";
    for server in ["keeper", "plain"] {
        let name = format!("{server}__echo");
        let call = json!({"name": name, "arguments": {"text": "traced"}, "trace_id": trace});
        agent.request("tools/call", call).await.result();
        agent
            .call(&name, json!({"text": "untraced"}))
            .await
            .result();
    }
    let params = |frames: &[Value], text: &str| -> Value {
        let mut calls = frames.iter().filter(|f| f["method"] == "tools/call");
        let call = calls.find(|f| f["params"]["arguments"]["text"] == text);
        call.unwrap()["params"].clone()
    };
    let keeper = frames(&mut agent, "keeper__received").await;
    assert_eq!(params(&keeper, "traced")["trace_id"], trace);
    let generated = params(&keeper, "untraced")["trace_id"].clone();
    let events = events(&kernel).await;
    assert!(events.iter().any(|event| event["trace_id"] == generated));

    let plain = frames(&mut agent, "plain__received").await;
    let traced = params(&plain, "traced");
    assert_eq!(traced["_meta"]["trace_id"], trace);
    let parent = traced["_meta"]["traceparent"].as_str().unwrap();
    assert!(
        parent.starts_with("00-550e8400e29b41d4a716446655440000-"),
        "{parent}"
    );
    assert!(traced["trace_id"].is_null(), "{traced}");
    let untraced = params(&plain, "untraced");
    assert!(
        untraced["trace_id"].is_null() && untraced["_meta"]["trace_id"].is_null(),
        "{untraced}"
    );
}

/// MGP-085, MGP-102, A-05: what is no UUID is no trace: the kernel makes one, which an MGP server gets in
/// its place; a plain server is sent nothing that is MGP's, whoever wrote it.
#[tokio::test]
async fn trace_id_that_is_no_uuid_is_replaced() {
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
async fn audit_server_that_was_away_gets_what_it_missed() {
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
async fn verify_reports_changed_removed_moved_and_truncated_records() {
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
async fn chain_of_records_is_whole_after_a_kill() {
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
async fn records_of_calls_are_stored_within_the_window() {
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
