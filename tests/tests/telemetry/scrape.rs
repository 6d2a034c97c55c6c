//! `/metrics` at the HTTP door, and `mgp metrics`.

use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE};
use http::{Method, StatusCode};
use mgp_tests::harness::{Agent, DEADLINE, HttpClient, Kernel, Program, wait_until};
use serde_json::{Value, json};

/// A client of `/metrics` that shows this token.
pub(crate) fn scraper(kernel: &Kernel, token: Option<&str>) -> HttpClient {
    let mut client = HttpClient::new(&kernel.url().replace("/mcp", "/metrics"));
    client.set(ACCEPT, "text/plain");
    if let Some(token) = token {
        client.set(AUTHORIZATION, &format!("Bearer {token}"));
    }
    client
}

/// The token of `/metrics`.
pub(crate) fn token(kernel: &Kernel) -> String {
    let file = kernel.folder().join("data/metrics.token");
    std::fs::read_to_string(file).unwrap().trim().to_owned()
}

/// What `/metrics` shows.
pub(crate) async fn figures(kernel: &Kernel) -> String {
    let scraper = scraper(kernel, Some(&token(kernel)));
    let answer = scraper.send(Method::GET, "").await.unwrap();
    assert_eq!(answer.status, StatusCode::OK);
    answer.text().await
}

/// The number of a figure with exactly these labels.
pub(crate) fn figure(text: &str, name: &str) -> Option<f64> {
    let of = |line: &str| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok();
    text.lines().find_map(of)
}

async fn status(kernel: &Kernel, token: Option<&str>) -> StatusCode {
    let client = scraper(kernel, token);
    client.send(Method::GET, "").await.unwrap().status
}

async fn kernel(sections: &str) -> Kernel {
    let entry = Program::fixture(&[]).entry("it");
    let config = format!("[http]\nlisten = \"127.0.0.1:0\"\n{sections}\n{entry}");
    let kernel = Kernel::with_config(&config).await;
    kernel.connected(&["it"]).await;
    kernel
}

/// Decision 0066: what all agents do is shown to the token of `/metrics` and to the operator, and to no agent,
/// whatever it shows; and that token opens nothing else.
#[tokio::test]
async fn the_figures_of_all_are_for_no_agent() {
    let kernel = kernel("").await;
    let made = kernel.mgp_json(&["agents", "add", "spy"]).await;
    let agents = made["token"].as_str().unwrap();
    let owners = std::fs::read_to_string(kernel.folder().join("data/token")).unwrap();
    let own = token(&kernel);
    for other in [None, Some(agents), Some(owners.trim()), Some("x")] {
        assert_eq!(
            status(&kernel, other).await,
            StatusCode::UNAUTHORIZED,
            "{other:?}"
        );
    }
    assert_eq!(status(&kernel, Some(&own)).await, StatusCode::OK);
    let with_token = scraper(&kernel, Some(&own));
    let posted = with_token.send(Method::POST, "{}").await.unwrap();
    assert_eq!(posted.status, StatusCode::METHOD_NOT_ALLOWED);

    let mut client = HttpClient::new(kernel.url());
    client.set(AUTHORIZATION, &format!("Bearer {own}"));
    let answer = client
        .post(mgp_tests::harness::handshake::initialize(
            "2025-11-25",
            "{}",
        ))
        .await;
    assert_eq!(
        answer.status,
        StatusCode::UNAUTHORIZED,
        "it opens /metrics alone"
    );
    client.set(AUTHORIZATION, &format!("Bearer {agents}"));
    client.open_session("2025-11-25", "{}").await;
    let asked = json!({"jsonrpc": "2.0", "id": 1, "method": "mgp/kernel/metrics", "params": {}});
    let frames = client.post(asked.to_string()).await.frames().await;
    let answer: Value = serde_json::from_str(&frames[0]).unwrap();
    assert_eq!(answer["error"]["code"], -32601, "{answer}");

    use std::os::unix::fs::PermissionsExt;
    let file = kernel.folder().join("data/metrics.token");
    assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    let config = kernel.mgp(&["metrics", "--scrape-config"]).await;
    let config = String::from_utf8(config.stdout).unwrap();
    assert!(
        config.contains("data/metrics.token") && !config.contains(&own),
        "{config}"
    );
}

/// Decision 0066: calls are counted by server, tool and outcome, tools beyond the bound together, refusals by reason;
/// nothing of what was sent is shown, and both ways show the same.
#[tokio::test]
async fn calls_are_counted_and_labels_are_bounded() {
    let kernel = kernel("[metrics]\nloopback = true\n[tuning.metrics]\ntools_max = 2\n").await;
    let mut agent = kernel.stdio_agent(None);
    agent.initialize("2025-11-25", "{}").await.result();
    for _ in 0..3 {
        agent
            .call("it:echo", json!({"text": "a secret"}))
            .await
            .result();
    }
    for tool in ["it:count", "it:received", "it:received"] {
        agent.call(tool, json!({})).await;
    }
    agent.call("it:no-such-secret", json!({})).await;
    agent.call("it:echo", json!({"text": 7})).await;

    // The first scrape is counted when it is answered, and shown by the second one.
    figures(&kernel).await;
    // What nobody waits for is synced a while later.
    let synced = "mgp_audit_sync_seconds_count";
    wait_until("the audit log is synced", DEADLINE, async || {
        figure(&figures(&kernel).await, synced).is_some_and(|syncs| syncs >= 1.0)
    })
    .await;
    let text = figures(&kernel).await;
    let calls = |server: &str, tool: &str, outcome: &str| {
        let name =
            format!("mgp_calls_total{{server=\"{server}\",tool=\"{tool}\",outcome=\"{outcome}\"}}");
        figure(&text, &name)
    };
    assert_eq!(calls("it", "echo", "success"), Some(3.0), "{text}");
    assert_eq!(calls("it", "echo", "blocked"), Some(1.0), "{text}");
    assert_eq!(calls("it", "count", "success"), Some(1.0));
    assert_eq!(calls("it", "received", "success"), None);
    assert_eq!(calls("~other", "~other", "success"), Some(2.0));
    assert_eq!(calls("~none", "~none", "blocked"), Some(1.0));
    let lasted = "mgp_call_duration_seconds_count{server=\"it\",tool=\"echo\"}";
    assert_eq!(figure(&text, lasted), Some(4.0));
    for (name, least) in [
        ("mgp_call_refusals_total{reason=\"unknown\"}", 1.0),
        ("mgp_call_refusals_total{reason=\"schema\"}", 1.0),
        ("mgp_server_up{server=\"it\"}", 1.0),
        ("mgp_server_state{server=\"it\",state=\"connected\"}", 1.0),
        ("mgp_server_starts_total{server=\"it\"}", 1.0),
        ("mgp_connections{door=\"socket\"}", 1.0),
        ("mgp_requests_total{method=\"tools/call\"}", 8.0),
        ("mgp_audit_sync_seconds_count", 1.0),
        ("process_resident_memory_bytes", 1e6),
        ("mgp_server_memory_bytes{server=\"it\"}", 1e5),
        ("mgp_tools_told_apart{is=\"limit\"}", 2.0),
    ] {
        let found = figure(&text, name);
        assert!(
            found.is_some_and(|found| found >= least),
            "{name}: {found:?}\n{text}"
        );
    }
    assert!(!text.contains("secret"), "{text}");
    for name in named_by_the_dashboard() {
        assert!(text.contains(&name), "the dashboard wants {name}");
    }

    let near = scraper(&kernel, None);
    let answer = near.send(Method::GET, "").await.unwrap();
    assert_eq!(
        answer.status,
        StatusCode::OK,
        "the operator opened it to this machine"
    );
    let mut through = near.clone();
    through.set(
        http::HeaderName::from_static("x-forwarded-for"),
        "192.0.2.7",
    );
    let refused = through.send(Method::GET, "").await.unwrap();
    assert_eq!(
        refused.status,
        StatusCode::UNAUTHORIZED,
        "a proxy is near, who asks it is not"
    );
    let mut open = near.clone();
    open.set(ACCEPT, "application/openmetrics-text; version=1.0.0");
    let answer = open.send(Method::GET, "").await.unwrap();
    let kind = answer.headers[CONTENT_TYPE].to_str().unwrap().to_owned();
    let text = answer.text().await;
    assert!(
        kind.starts_with("application/openmetrics-text") && text.ends_with("# EOF\n"),
        "{kind}"
    );

    let printed = kernel.mgp(&["metrics"]).await;
    let printed = String::from_utf8(printed.stdout).unwrap();
    assert!(
        printed.contains("mgp_calls_total{server=\"it\",tool=\"echo\",outcome=\"success\"} 3"),
        "{printed}"
    );
    let told = kernel.mgp_json(&["metrics"]).await;
    assert_eq!(told["loopback"], true);
    let off = kernel_without().await;
    assert_eq!(status(&off, Some("x")).await, StatusCode::NOT_FOUND);
}

/// The figures that docs/examples/grafana.json shows.
fn named_by_the_dashboard() -> Vec<String> {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/examples/grafana.json");
    let dashboard: Value = serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap();
    let panels = dashboard["panels"].as_array().unwrap().iter();
    let targets = panels.flat_map(|panel| panel["targets"].as_array().unwrap());
    let mut names = Vec::new();
    for target in targets {
        let words = target["expr"].as_str().unwrap();
        let words = words.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
        let ours = words.filter(|word| word.starts_with("mgp_") || word.starts_with("process_"));
        names.extend(ours.map(str::to_owned));
    }
    assert!(names.len() > 16, "{names:?}");
    names
}

async fn kernel_without() -> Kernel {
    let config = "[http]\nlisten = \"127.0.0.1:0\"\n[metrics]\nenabled = false\n";
    Kernel::with_config(config).await
}

/// PRJ-001: each connection, session and listener is an actor of its own, which is there as long as it lasts.
#[tokio::test]
async fn connections_and_sessions_are_counted_while_they_last() {
    let kernel = kernel("auth = \"none\"").await;
    let count = async |door: &str, expected: f64| {
        let name = format!("mgp_connections{{door=\"{door}\"}}");
        wait_until(&format!("{expected} at {door}"), DEADLINE, async || {
            figure(&figures(&kernel).await, &name) == Some(expected)
        })
        .await;
    };
    count("http", 0.0).await;
    let mut sessions = Vec::new();
    for _ in 0..3 {
        let mut agent = kernel.http_agent(None);
        agent.initialize("2025-11-25", "{}").await.result();
        sessions.push(agent);
    }
    count("http", 3.0).await;
    let mut lines = Vec::new();
    for _ in 0..2 {
        let mut agent = Agent::over_socket(&kernel.socket()).await;
        agent.initialize("2025-11-25", "{}").await.result();
        lines.push(agent);
    }
    count("socket", 2.0).await;
    sessions.pop().unwrap().close().await;
    count("http", 2.0).await;
    drop(lines.pop());
    count("socket", 1.0).await;
}
