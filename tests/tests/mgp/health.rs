//! How servers and the kernel are, asked in the words of MGP (§11.3).

mod lifecycle;
mod on_demand;
mod replaced;
mod resources;
mod rolling;
mod start_order;

use std::time::{Duration, Instant};

use mgp_tests::harness::mgp::{declaration, declaring};
use mgp_tests::harness::wait::within;
use mgp_tests::harness::{Agent, DEADLINE, Kernel, Program, wait_until};
use serde_json::{Value, json};

const NEWEST: &str = "2025-11-25";
/// How long an answer may take (MGP §11.3).
const ANSWER: Duration = Duration::from_secs(20);

/// What a server declares that takes part in the lifecycle.
pub(crate) fn lifecycle() -> String {
    declaration(&["lifecycle"]).to_string()
}

/// A scripted server with flags and more keys for its entry.
pub(crate) fn server(id: &str, flags: &[&str], keys: &str) -> String {
    let entry = Program::fixture(flags).entry(id);
    format!("{}\n{keys}\n", entry.trim_end())
}

/// The owner at the socket.
pub(crate) async fn owner(kernel: &Kernel) -> Agent {
    let mut agent = Agent::over_socket(&kernel.socket()).await;
    agent.initialize(NEWEST, "{}").await.result();
    agent
}

/// An agent at the HTTP door that negotiated these extensions.
pub(crate) async fn speaker(kernel: &Kernel, extensions: &[&str]) -> Agent {
    let mut agent = kernel.http_agent(None);
    let capabilities = declaring(NEWEST, "{}", &declaration(extensions));
    agent.initialize(NEWEST, &capabilities).await.result();
    agent
}

/// A server as the owner is shown it.
pub(crate) async fn shown(owner: &mut Agent, id: &str) -> Value {
    let listed = owner.request("mgp/servers/list", json!({})).await.result();
    let servers = listed["servers"].as_array().unwrap().clone();
    let found = servers.into_iter().find(|server| server["id"] == id);
    found.unwrap_or(Value::Null)
}

/// Waits until a member of what is shown of a server has this value.
pub(crate) async fn until(owner: &mut Agent, id: &str, member: &str, value: &str) -> Value {
    let mut server = Value::Null;
    wait_until(
        &format!("{id}: {member} is {value}"),
        DEADLINE,
        async || {
            server = shown(owner, id).await;
            server[member] == value
        },
    )
    .await;
    server
}

/// How often a server was asked with each method, by its diary.
fn asked(diary: &std::path::Path, method: &str) -> usize {
    let text = std::fs::read_to_string(diary).unwrap_or_default();
    let of = |line: &&str| line.split(' ').next() == Some(method);
    text.lines().filter(of).count()
}

/// MGP-131, MGP-134, MGP-136, MGP-137: each server is asked in the words it knows, again and again;
/// what it says of itself is shown, whatever it leaves out or adds.
#[tokio::test]
async fn servers_are_health_checked_in_the_protocol_they_negotiated() {
    let folder = tempfile::tempdir().unwrap();
    let diary = |id: &str| folder.path().join(id);
    let path = |id: &str| diary(id).display().to_string();
    let says = |status: Value| json!({"mgp/health/ping": {"result": status}}).to_string();
    let (well, ill, odd) = (
        says(json!({"status": "healthy", "com.example.more": [1]})),
        says(json!({"status": "unhealthy"})),
        says(json!({"status": "degraded", "uptime_secs": 1.5, "timestamp": null})),
    );
    let lifecycle = lifecycle();
    let mgp = |id: &str, said: &str| {
        let flags = [
            "--mgp",
            &lifecycle,
            "--mgp-answers",
            said,
            "--mgp-diary",
            &path(id),
        ];
        server(id, &flags, "")
    };
    let other = declaration(&["audit"]).to_string();
    let servers = mgp("well", &well)
        + &mgp("ill", &ill)
        + &mgp("odd", &odd)
        + &server(
            "mute",
            &["--mgp", &lifecycle, "--mgp-diary", &path("mute")],
            "",
        )
        + &server("plain", &["--mgp-diary", &path("plain")], "")
        + &server(
            "audits",
            &["--mgp", &other, "--mgp-diary", &path("audits")],
            "",
        );
    let kernel = Kernel::start(&format!("{servers}[health]\ninterval_secs = 1\n")).await;
    let mut owner = owner(&kernel).await;
    let found = [
        ("well", "healthy"),
        ("ill", "unhealthy"),
        ("odd", "degraded"),
        ("mute", "healthy"),
        ("plain", "healthy"),
        ("audits", "healthy"),
    ];
    for (id, health) in found {
        until(&mut owner, id, "health", health).await;
    }
    wait_until("each was asked twice", DEADLINE, async || {
        let pings = ["plain", "audits", "mute"]
            .iter()
            .all(|id| asked(&diary(id), "ping") > 1);
        pings && asked(&diary("well"), "mgp/health/ping") > 1
    })
    .await;
    assert_eq!(asked(&diary("plain"), "mgp/health/ping"), 0);
    assert_eq!(asked(&diary("audits"), "mgp/health/ping"), 0);
    assert_eq!(asked(&diary("well"), "ping"), 0);
    assert_eq!(
        asked(&diary("mute"), "mgp/health/ping"),
        1,
        "it said that it does not know it"
    );
    let text = std::fs::read_to_string(diary("well")).unwrap();
    assert!(text.contains(r#""timestamp":"2"#), "{text}");
    for (id, _) in found {
        assert_eq!(shown(&mut owner, id).await["state"], "connected", "{id}");
    }
    let table = kernel.mgp(&["servers", "list"]).await;
    let table = String::from_utf8(table.stdout).unwrap();
    assert!(table.contains("connected (unhealthy)"), "{table}");
}

/// MGP-132: an answer within 5 seconds is one; a later one is silence, and a server that is silent so
/// often has failed.
#[tokio::test]
async fn a_server_that_is_silent_for_too_long_has_failed() {
    let mgp = lifecycle();
    let health = json!({"mgp/health/ping": {"result": {"status": "healthy"}}}).to_string();
    let slow = |ms: u64| json!({"mgp/health/ping": ms}).to_string();
    let with = |id: &str, ms: u64| {
        let flags = [
            "--mgp",
            &mgp,
            "--mgp-answers",
            &health,
            "--mgp-slow",
            &slow(ms),
        ];
        server(
            id,
            &flags,
            "restart_policy = \"never\"\ncall_timeout_secs = 1",
        )
    };
    let servers = with("slow", 4500) + &with("late", 5600);
    let kernel = Kernel::start(&format!(
        "{servers}[health]\ninterval_secs = 1\n[tuning.health]\nmisses = 1\n"
    ))
    .await;
    kernel.connected(&["slow", "late"]).await;
    let mut owner = owner(&kernel).await;
    let failed = until(&mut owner, "late", "state", "error").await;
    let reason = failed["reason"].as_str().unwrap();
    assert!(
        reason.contains("health check") && reason.contains("5 s"),
        "{reason}"
    );
    let slow = until(&mut owner, "slow", "health", "healthy").await;
    assert_eq!(
        (&slow["state"], &slow["restarts"]),
        (&json!("connected"), &json!(0))
    );
}

/// MGP-131, MGP-135, MGP-279: an agent that negotiated it is told how the kernel is, and how many of
/// its tools can be called right now, of how many there are; others know no such word.
#[tokio::test]
async fn kernel_reports_its_health_to_agents_that_negotiated_lifecycle() {
    let says = json!({
        "mgp/health/ping": {"result": {"status": "healthy"}},
        "mgp/health/status": {"result": {"status": "degraded", "checks": {"model_reachable": false}}},
    });
    let talks = ["--mgp", &lifecycle(), "--mgp-answers", &says.to_string()];
    let servers = server("one", &["--tools", "3"], "") + &server("two", &talks, "");
    let kernel = Kernel::start(&servers).await;
    kernel.connected(&["one", "two"]).await;
    let mut agent = speaker(&kernel, &["lifecycle"]).await;
    let pong = agent.request(
        "mgp/health/ping",
        json!({"timestamp": "2026-02-27T12:00:00.000Z"}),
    );
    let pong = pong.await.result();
    assert_eq!(
        (&pong["status"], &pong["server_id"]),
        (&json!("healthy"), &json!("mgp"))
    );
    assert!(pong["uptime_secs"].is_u64() && pong["timestamp"].as_str().unwrap().ends_with('Z'));
    let status = agent.request("mgp/health/status", json!({})).await.result();
    let tools = status["tools_total"].as_u64().unwrap();
    assert_eq!(status["tools_available"], tools, "{status:#}");
    assert!(
        status["resources"].is_object() && status["checks"].is_object(),
        "{status:#}"
    );
    assert_eq!(status["pending_requests"], 0);
    let of_two = agent
        .request("mgp/health/status", json!({"server_id": "two"}))
        .await
        .result();
    let own = &says["mgp/health/status"]["result"];
    for member in ["status", "checks"] {
        assert_eq!(of_two[member], own[member], "in the server's own words");
    }
    let mut owner = owner(&kernel).await;
    owner
        .request("mgp/servers/stop", json!({"id": "one"}))
        .await
        .result();
    let status = agent.request("mgp/health/status", json!({})).await.result();
    assert_eq!(status["tools_total"], tools, "{status:#}");
    let available = status["tools_available"].as_u64().unwrap();
    assert!(0 < available && available < tools, "{status:#}");
    assert_eq!(status["checks"], json!({"one": false, "two": true}));
    let of_one = agent
        .request("mgp/health/ping", json!({"server_id": "one"}))
        .await
        .result();
    assert_eq!(of_one["status"], "unhealthy");
    for extensions in [&["audit"][..], &[]] {
        let mut other = speaker(&kernel, extensions).await;
        let refused = other.request("mgp/health/ping", json!({})).await;
        assert_eq!(refused.code(), -32601, "{extensions:?}");
    }
}

/// MGP-133: while every place for calls is taken and hundreds more are refused, the kernel says how it
/// is, to the very agent that floods it and to others.
#[tokio::test]
async fn the_kernel_answers_a_ping_under_saturation() {
    let kernel = Kernel::start(&server("it", &[], "max_in_flight = 64")).await;
    kernel.connected(&["it"]).await;
    let mut busy = owner(&kernel).await;
    let mut other = speaker(&kernel, &["lifecycle"]).await;
    for _ in 0..900 {
        let slow = json!({"name": "it__slow", "arguments": {"ms": 120_000}});
        busy.start("tools/call", slow).await;
    }
    for _ in 0..20 {
        for agent in [&mut busy, &mut other] {
            let begun = Instant::now();
            let pong = agent.request("mgp/health/ping", json!({}));
            let pong = within("a pong", ANSWER, pong).await.result();
            assert_eq!(pong["status"], "healthy");
            assert!(begun.elapsed() < ANSWER);
        }
    }
}

/// A-11, A-30: health, the lifecycle and the audit log are tools of the kernel as well, under each spelling
/// and with the params of their methods, for its owner; for anybody else there are no such tools.
#[tokio::test]
async fn the_operators_methods_are_tools_too() {
    let kernel = Kernel::start(&server("it", &[], "")).await;
    kernel.connected(&["it"]).await;
    let mut mgp = speaker(&kernel, &["lifecycle", "audit", "access_control"]).await;
    let mut owner = owner(&kernel).await;
    let ask = json!({"timestamp": "2026-02-27T12:00:00.000Z"});
    for name in ["mgp.health.ping", "mgp_health_ping", "mgp/health/ping"] {
        let pong = owner.call(name, ask.clone()).await.result();
        assert_eq!(pong["structuredContent"]["status"], "healthy", "{pong}");
        let text: Value =
            serde_json::from_str(pong["content"][0]["text"].as_str().unwrap()).unwrap();
        assert_eq!(text, pong["structuredContent"]);
        let unknown = mgp.call(name, ask.clone()).await;
        assert_eq!(unknown.code(), 4001, "{}", unknown.frame);
    }
    let status = owner
        .call("mgp.health.status", json!({"server_id": "it"}))
        .await;
    assert_eq!(
        status.result()["structuredContent"]["checks"]["connected"],
        true
    );
    let log = owner
        .call("mgp.audit.replay", json!({"since_seq": 0, "limit": 1}))
        .await
        .result();
    assert_eq!(
        log["structuredContent"]["events"].as_array().unwrap().len(),
        1,
        "{log}"
    );
    let wrong = owner
        .call("mgp.audit.replay", json!({"limit": "many"}))
        .await;
    assert_eq!(wrong.code(), -32602);
    let end = json!({"server_id": "it", "reason": "operator_request", "timeout_ms": 1000});
    for name in [
        "mgp.lifecycle.shutdown",
        "mgp.audit.replay",
        "mgp.health.status",
    ] {
        assert_eq!(mgp.call(name, end.clone()).await.code(), 4001, "{name}");
    }
    let accepted = owner.call("mgp.lifecycle.shutdown", end).await.result();
    assert_eq!(accepted["structuredContent"]["accepted"], true);
    until(&mut owner, "it", "state", "disconnected").await;
    // Within the window of the log.
    wait_until("the call is written down, once", DEADLINE, async || {
        let log = owner
            .request("mgp/audit/replay", json!({"limit": 1000}))
            .await
            .result();
        let events = log["events"].as_array().unwrap().iter();
        let own = events.filter(|e| {
            e["target"]["tool_name"] == "mgp.lifecycle.shutdown" && e["actor"]["type"] == "operator"
        });
        own.count() == 1
    })
    .await;
}
