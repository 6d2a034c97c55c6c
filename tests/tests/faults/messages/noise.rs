//! Servers that write what nobody asked for: to stdout, to stderr.

use mgp_tests::harness::Kernel;
use serde_json::{Value, json};

use crate::machine::peak_memory;
use crate::scene::{echoes, listed, owner, server};

/// Lines and bytes of a log that are kept, as the documentation says.
const LOG_LINES: usize = 1000;
const LOG_BYTES: usize = 256 << 10;

/// MCP-072: lines that are no messages are counted and do no harm, before the handshake and in
/// mid-call.
#[tokio::test]
async fn noise_on_stdout_is_tolerated_and_counted() {
    let kernel = Kernel::start(&server("it", &["--banner"], "")).await;
    kernel.connected(&["it"]).await;
    assert_eq!(listed(&kernel, "it").await["noise_lines"], 3);
    let mut agent = owner(&kernel).await;
    let answer = agent.call("it__banner", json!({"lines": 5000})).await;
    assert_eq!(answer.text(), "printed");
    echoes(&mut agent, "it").await;
    let it = listed(&kernel, "it").await;
    assert_eq!(it["noise_lines"], 5003);
    assert_eq!(it["state"], "connected");
    let lines = log(&kernel, "it").await;
    let told = lines
        .iter()
        .filter(|line| line["text"].as_str().unwrap().contains("stdout"));
    assert!(
        (1..100).contains(&told.count()),
        "a few are shown: {}",
        lines.len()
    );
}

/// MCP-071: stderr is emptied as fast as it comes, and no more than a tail of it is kept.
#[tokio::test]
async fn flood_on_stderr_delays_nobody_and_leaves_a_tail() {
    let kernel = Kernel::start(&server("it", &[], "")).await;
    kernel.connected(&["it"]).await;
    let mut agent = owner(&kernel).await;
    let before = peak_memory(kernel.pid());
    let answer = agent
        .call("it__flood_stderr", json!({"bytes": 10 << 20}))
        .await;
    assert_eq!(answer.text(), "10485760 bytes");
    echoes(&mut agent, "it").await;
    assert!(
        kernel
            .mgp(&["servers", "stop", "it"])
            .await
            .status
            .success()
    );
    let lines = log(&kernel, "it").await;
    assert!(lines.len() <= LOG_LINES, "{}", lines.len());
    let texts: Vec<_> = lines
        .iter()
        .map(|line| line["text"].as_str().unwrap())
        .collect();
    let bytes: usize = texts.iter().map(|text| text.len()).sum();
    assert!(bytes <= LOG_BYTES, "{bytes}");
    assert!(
        texts.iter().any(|text| text.starts_with("eeee")),
        "{lines:?}"
    );
    let growth = peak_memory(kernel.pid()) - before;
    assert!(growth < 10 << 20, "{growth} bytes");
}

/// What `mgp servers logs` prints of a server, all of it.
async fn log(kernel: &Kernel, id: &str) -> Vec<Value> {
    let output = kernel
        .mgp(&["servers", "logs", id, "--json", "--lines", "1000000"])
        .await;
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}
