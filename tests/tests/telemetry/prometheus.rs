//! A real Prometheus, where this machine has one (Debian's package `prometheus`).

use std::process::{Command, Stdio};

use http::Method;
use mgp_tests::harness::{DEADLINE, HttpClient, Kernel, Process, Program, wait_until};
use serde_json::{Value, json};

use crate::scrape::{figures, scraper, token};

/// Whether the program is not there; says so, and in CI it has to be.
fn is_missing(program: &str) -> bool {
    let found = Command::new(program)
        .arg("--version")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    let missing = !found.is_ok_and(|status| status.success());
    let ci = std::env::var_os("CI").is_some_and(|ci| ci == "true");
    assert!(!missing || !ci, "{program} is missing");
    if missing {
        eprintln!("SKIPPED: {program} is not installed (Debian's package is `prometheus`)");
    }
    missing
}

/// Names that a server may choose and no label holds as they are, or that say something else where they are not escaped.
const NAMES: [&str; 6] = [
    "a\"b\\c",
    "a\"} 1",
    "grüße_🦀",
    "a\u{200b}b",
    "a\u{200c}b",
    "a\nb",
];

async fn kernel() -> Kernel {
    let tool = |name: &&str| json!({"name": name, "inputSchema": {"type": "object"}}).to_string();
    let tools: Vec<String> = NAMES.iter().map(tool).collect();
    let flags: Vec<&str> = tools.iter().flat_map(|tool| ["--tool", tool]).collect();
    let entry = Program::fixture(&flags).entry("it");
    let kernel = Kernel::with_config(&format!("[http]\nlisten = \"127.0.0.1:0\"\n{entry}")).await;
    kernel.connected(&["it"]).await;
    let mut agent = kernel.stdio_agent(None);
    agent.initialize("2025-11-25", "{}").await.result();
    agent.call("it:echo", json!({"text": "x"})).await.result();
    for name in NAMES {
        agent.call(&format!("it:{name}"), json!({})).await;
    }
    kernel
}

/// Decision 0066: `promtool check metrics` finds nothing wrong, whatever servers call their tools, and Prometheus reads
/// the figures with the job that `mgp metrics --scrape-config` prints.
#[tokio::test]
async fn prometheus_reads_the_figures() {
    if is_missing("promtool") {
        return;
    }
    let kernel = kernel().await;
    let text = figures(&kernel).await;
    let folder = tempfile::TempDir::new().unwrap();
    let file = folder.path().join("metrics");
    std::fs::write(&file, &text).unwrap();
    let check = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(std::fs::File::open(&file).unwrap())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&[check.stdout, check.stderr].concat()).into_owned();
    assert!(check.status.success() && said.trim().is_empty(), "{said}");
    if is_missing("prometheus") {
        return;
    }
    let job = kernel.mgp(&["metrics", "--scrape-config"]).await;
    let job = String::from_utf8(job.stdout).unwrap();
    let config = folder.path().join("prometheus.yml");
    std::fs::write(&config, format!("global:\n  scrape_interval: 1s\n{job}")).unwrap();
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let at = port.local_addr().unwrap();
    drop(port);
    let args = [
        format!("--config.file={}", config.display()),
        format!(
            "--storage.tsdb.path={}",
            folder.path().join("data").display()
        ),
        format!("--web.listen-address={at}"),
    ];
    let program = Program::new("prometheus", args.iter().map(String::as_str));
    let mut prometheus = Process::start("prometheus", &program);
    let query = format!("http://{at}/api/v1/query?query=mgp_calls_total%7Btool%3D%22echo%22%7D");
    let client = HttpClient::new(&query);
    wait_until("prometheus has the calls", DEADLINE, async || {
        assert!(prometheus.ended().is_none(), "{}", prometheus.stderr());
        let Ok(answer) = client.send(Method::GET, "").await else {
            return false;
        };
        let answer: Value = serde_json::from_str(&answer.text().await).unwrap_or_default();
        answer["data"]["result"][0]["value"][1] == "1"
    })
    .await;
    // A tool is found by its own name, however that is written.
    let quoted = "%7Btool%3D%22a%5C%22b%5C%5Cc%22%7D";
    let named = HttpClient::new(&format!(
        "http://{at}/api/v1/query?query=mgp_calls_total{quoted}"
    ));
    let answer = named.send(Method::GET, "").await.unwrap().text().await;
    let answer: Value = serde_json::from_str(&answer).unwrap();
    assert_eq!(answer["data"]["result"][0]["value"][1], "1", "{answer}");
    // It asks for OpenMetrics by itself, and takes it.
    let targets = HttpClient::new(&format!("http://{at}/api/v1/targets"));
    let answer = targets.send(Method::GET, "").await.unwrap().text().await;
    let answer: Value = serde_json::from_str(&answer).unwrap();
    assert_eq!(
        answer["data"]["activeTargets"][0]["health"], "up",
        "{answer}"
    );
    assert!(
        scraper(&kernel, Some(&token(&kernel)))
            .send(Method::GET, "")
            .await
            .is_ok()
    );
}
