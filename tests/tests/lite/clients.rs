//! Clients that know nothing of MCP: curl over both versions of HTTP, h2load, and a reader of event streams.

use std::process::Command;

use mgp_tests::harness::mgp::declaration;
use mgp_tests::harness::{DEADLINE, Kernel, Need, Peers, Program};
use serde_json::{Value, json};

/// Where a kernel's lite endpoints are.
fn base(kernel: &Kernel) -> String {
    kernel.url().replace("/mcp", "/mcp-lite/v1")
}

async fn kernel_with(flags: &[&str]) -> Kernel {
    let kernel = Kernel::start(&Program::fixture(flags).entry("it")).await;
    kernel.connected(&["it"]).await;
    kernel
}

/// False, with a word on stderr, where a program is not there; in CI it has to be.
fn has(program: &str) -> bool {
    let there = Command::new(program).arg("--version").output().is_ok();
    let ci = std::env::var_os("CI").is_some_and(|ci| ci == "true");
    assert!(there || !ci, "{program} is missing");
    if !there {
        eprintln!("SKIPPED: {program} is missing");
    }
    there
}

/// Runs curl; its output.
async fn curl(args: &[&str]) -> String {
    let output = Program::new("curl", ["-sS"])
        .args(args)
        .output(DEADLINE)
        .await;
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "curl {args:?}: {told}");
    String::from_utf8(output.stdout).unwrap()
}

/// LITE-002, LITE-032, LITE-066: curl calls a tool over HTTP/1.1 and over HTTP/2 without a greeting, with the message
/// that `/mcp` takes, and with the arguments alone.
#[tokio::test]
async fn curl_calls_tools_over_both_versions_of_http() {
    if !has("curl") {
        return;
    }
    let kernel = kernel_with(&[]).await;
    let text = json!({ "text": "hi" });
    let params = json!({ "name": "it__echo", "arguments": text });
    let message = json!({ "jsonrpc": "2.0", "id": "a", "method": "tools/call", "params": params });
    let (message, text) = (message.to_string(), text.to_string());
    for (version, said) in [("--http1.1", "1.1"), ("--http2-prior-knowledge", "2")] {
        let json = [
            "-H",
            "Content-Type: application/json",
            "-w",
            "\n%{http_version} %{http_code}",
        ];
        for (path, body) in [("calltools", &message), ("tools/it__echo", &text)] {
            let url = format!("{}/{path}", base(&kernel));
            let answer = curl(&[&[version], &json[..], &["-d", body, &url]].concat()).await;
            let (body, status) = answer.rsplit_once('\n').unwrap();
            assert_eq!(status, format!("{said} 200"), "{answer}");
            let body: Value = serde_json::from_str(body).unwrap();
            let result = body.get("result").unwrap_or(&body);
            assert_eq!(result["content"][0]["text"], "hi", "{body}");
        }
    }
}

/// LITE-032: an error that is known before the body was read reaches a client over both versions of HTTP, each
/// time, however large the body is; the connection ends for none of them as a failure.
#[tokio::test]
async fn an_early_error_is_never_lost_over_either_version_of_http() {
    if !has("curl") {
        return;
    }
    let kernel = kernel_with(&[]).await;
    let folder = tempfile::TempDir::new().unwrap();
    let body = folder.path().join("body");
    let file = format!("@{}", body.display());
    for size in [100, 200_000] {
        std::fs::write(&body, "x".repeat(size)).unwrap();
        for version in ["--http1.1", "--http2-prior-knowledge"] {
            for (path, kind, status) in [
                ("calltools", "text/plain", "415"),
                ("no/such/path", "application/json", "404"),
            ] {
                let url = format!("{}/{path}", base(&kernel));
                let kind = format!("Content-Type: {kind}");
                let written = ["-o", "/dev/null", "-w", "%{http_code}"];
                let one = ["-H", &kind, "--data-binary", &file, &url];
                // Each in a connection of its own.
                for _ in 0..4 {
                    let told = curl(&[&[version][..], &written, &one].concat()).await;
                    assert_eq!(told, status, "{version} {path} {size}");
                }
            }
        }
    }
}

/// LITE-027, LITE-041, LITE-073: an event stream is read by a library that knows nothing of the kernel.
#[tokio::test]
async fn a_third_party_reader_of_events_reads_a_stream() {
    let Some(peers) = Peers::find(&[Need::Python]) else {
        return;
    };
    let said = declaration(&["streaming"]).to_string();
    let kernel = kernel_with(&["--mgp", &said]).await;
    let steps = json!([{ "chunk": 0, "text": "Leaves" }, { "chunk": 1, "text": " are green" }]);
    let arguments = json!({ "steps": steps }).to_string();
    let url = format!("{}/rpc", base(&kernel));
    let reader = peers.python_script("lite/events.py", &[&url, "it__stream", &arguments]);
    let output = reader.output(DEADLINE).await;
    let (told, text) = (
        String::from_utf8_lossy(&output.stderr),
        String::from_utf8_lossy(&output.stdout),
    );
    assert!(output.status.success(), "{told}");
    let events: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let [first, second, done] = events.as_slice() else {
        panic!("three events: {text}");
    };
    assert_eq!(
        (&first["event"], &first["data"]["partial"]),
        (&json!("message"), &json!("Leaves"))
    );
    assert_eq!(second["data"]["partial"], " are green");
    assert_eq!(
        (&done["event"], &done["data"]["_meta"]["response_type"]),
        (&json!("done"), &json!("answer"))
    );
}

/// LITE-032, LITE-037: many calls at once on few connections of a load generator, each of them answered.
#[tokio::test]
async fn a_load_generator_has_every_call_answered() {
    if !has("h2load") {
        return;
    }
    let kernel = kernel_with(&[]).await;
    let folder = tempfile::TempDir::new().unwrap();
    let body = folder.path().join("body.json");
    std::fs::write(&body, r#"{"text":"hi"}"#).unwrap();
    let url = format!("{}/tools/it__echo", base(&kernel));
    let file = body.display().to_string();
    for more in [&["-m", "20"][..], &["--h1"]] {
        let load = [
            "-n",
            "2000",
            "-c",
            "4",
            "-d",
            &file,
            "-H",
            "content-type: application/json",
        ];
        let load = Program::new("h2load", [""; 0])
            .args(&load)
            .args(more)
            .arg(&url);
        let output = load.output(DEADLINE).await;
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(text.contains("2000 succeeded, 0 failed"), "{text}");
        assert!(text.contains("status codes: 2000 2xx"), "{text}");
    }
}

/// Decision 65: the request that is printed is the request that works, with the token out of every command line.
#[tokio::test]
async fn a_printed_request_works_as_it_is() {
    if !has("curl") {
        return;
    }
    let door = "[http]\nlisten = \"127.0.0.1:0\"\n";
    let entry = Program::fixture(&[]).entry("it");
    let kernel = Kernel::with_config(&format!("{door}{entry}")).await;
    kernel.connected(&["it"]).await;
    let typed = "it's \"$(id)\" `id` \\n\n\u{202e}\u{9b}é";
    let argument = format!("text={typed}");
    let printed = kernel
        .mgp(&["tools", "call", "it:echo", &argument, "--curl"])
        .await;
    assert!(
        printed.status.success(),
        "{}",
        String::from_utf8_lossy(&printed.stderr)
    );
    let command = String::from_utf8(printed.stdout).unwrap();
    let token = command
        .split("cat ")
        .nth(1)
        .and_then(|rest| rest.split(')').next())
        .unwrap();
    let token = std::fs::read_to_string(token.trim_matches('\'')).unwrap();
    assert!(!command.contains(token.trim()), "{command}");
    assert!(
        !command.chars().any(|c| c.is_control() && c != '\n'),
        "{command:?}"
    );
    let ran = Program::new("sh", ["-c", &command]).output(DEADLINE).await;
    let answer: Value = serde_json::from_slice(&ran.stdout).unwrap();
    assert_eq!(answer["content"][0]["text"], typed, "{command}");

    let folder = tempfile::TempDir::new().unwrap();
    let file = folder.path().join("it's.json");
    std::fs::write(&file, r#"{"text":"from a file"}"#).unwrap();
    let argument = format!("@{}", file.display());
    let printed = kernel
        .mgp(&["tools", "call", "it:echo", &argument, "--curl"])
        .await;
    let command = String::from_utf8(printed.stdout).unwrap();
    assert!(!command.contains("from a file"), "{command}");
    let ran = Program::new("sh", ["-c", &command]).output(DEADLINE).await;
    let answer: Value = serde_json::from_slice(&ran.stdout).unwrap();
    assert_eq!(answer["content"][0]["text"], "from a file");

    let unknown = kernel.mgp(&["tools", "call", "it:ecko", "--curl"]).await;
    let told = String::from_utf8_lossy(&unknown.stderr).into_owned();
    assert!(
        !unknown.status.success() && told.contains("it:echo"),
        "{told}"
    );
    let shown = kernel
        .mgp_json(&["tools", "call", "it:echo", "text=a", "--curl"])
        .await;
    assert_eq!(
        (&shown["method"], &shown["body"]),
        (&json!("POST"), &json!({ "text": "a" }))
    );
}
