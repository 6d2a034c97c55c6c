//! `mgp replay`: a recording as a test of a server.

use std::path::Path;
use std::process::Output;

use mgp_tests::harness::{DEADLINE, Kernel, ModernAgent, Program};
use serde_json::{Value, json};

use super::{interrupted, recorded, shows, tracing};
use crate::scene;

/// A tool that says that it destroys something.
const DESTROYER: &str =
    r#"{"name":"wipe","inputSchema":{"type":"object"},"annotations":{"destructiveHint":true}}"#;
/// One that says nothing of that.
const SILENT: &str = r#"{"name":"write","inputSchema":{"type":"object"}}"#;
/// One that says that it changes nothing.
const READER: &str =
    r#"{"name":"look","inputSchema":{"type":"object"},"annotations":{"readOnlyHint":true}}"#;

fn out(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn err(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Puts another text into a file.
fn rewrite(file: &Path, old: &str, new: &str) {
    let text = std::fs::read_to_string(file).unwrap();
    assert!(text.contains(old), "{old}: {text}");
    std::fs::write(file, text.replace(old, new)).unwrap();
}

/// A recording of calls in both eras, with a question in each, and of a secret.
async fn record(kernel: &Kernel, file: &str) {
    let mut trace = tracing(kernel, &["it", "--save", file, "--full"]).await;
    let content = json!({"action": "accept", "content": {"username": "ada", "email": "a@b"}});
    let mut agent = scene::http_agent(kernel, None, r#"{"elicitation":{}}"#).await;
    agent.answers("elicitation/create", content.clone());
    agent
        .call("it:echo", json!({"text": "hello"}))
        .await
        .result();
    agent
        .call("it:test_elicitation", json!({"message": "who?"}))
        .await
        .result();
    agent.request("resources/list", json!({})).await.result();
    let reporting =
        json!({"name": "it:progress", "arguments": {"steps": 2}, "_meta": {"progressToken": "p"}});
    agent.request("tools/call", reporting).await.result();
    let masked = json!({"text": "with a secret", "password": "p4ss"});
    agent.call("it:echo", masked).await.result();
    let mut modern = ModernAgent::over_http(kernel.url(), r#"{"elicitation":{}}"#);
    modern.answers("elicitation/create", content);
    modern
        .call("it:test_elicitation", json!({"message": "you?"}))
        .await
        .result();
    modern
        .call("it:echo", json!({"text": "the last"}))
        .await
        .result();
    // The answer: a recording that stops before it has a call without one.
    shows(&mut trace, r#""text":"the last"}]"#).await;
    interrupted(trace).await;
}

/// Decision 0068: a recording is played against the server it was made of and against a fresh copy of it; what a
/// server asks is answered as it was, a masked value is asked for by name, a difference is shown, ignored or
/// written down.
#[tokio::test]
async fn a_recording_is_a_test_of_its_server() {
    let fixture = Program::fixture(&["--tool", DESTROYER]);
    let kernel = Kernel::start(&fixture.entry("it")).await;
    kernel.connected(&["it"]).await;
    let file = kernel.folder().join("it.jsonl");
    let path = file.display().to_string();
    record(&kernel, &path).await;
    let replay = async |args: &[&str]| {
        kernel
            .mgp(&[&["replay", &path, "--yes"], args].concat())
            .await
    };

    let played = replay(&[]).await;
    let said = out(&played);
    assert!(played.status.success(), "{said}{}", err(&played));
    assert!(said.contains("0 different, 1 not played"), "{said}");
    assert!(said.contains("--set password=env:VARIABLE"), "{said}");
    let whole = kernel
        .program(&["replay", &path, "--yes", "--set", "password=env:PW"])
        .env("PW", "p4ss");
    let whole = whole.output(DEADLINE).await;
    assert!(whole.status.success(), "{}{}", out(&whole), err(&whole));
    assert!(out(&whole).contains("0 not played"), "{}", out(&whole));
    let typed = replay(&["--set", "password=p4ss"]).await;
    assert_eq!(typed.status.code(), Some(2), "{}", err(&typed));

    // A fresh copy in a kernel of its own.
    let fresh = [&["--", fixture.command.as_str()], &["--stdio"][..]].concat();
    let fresh = replay(&fresh).await;
    assert!(fresh.status.success(), "{}{}", out(&fresh), err(&fresh));

    // It answers something else than it did.
    rewrite(&file, r#""text":"hello"}]"#, r#""text":"hullo"}]"#);
    let other = replay(&[]).await;
    let said = out(&other);
    assert_eq!(other.status.code(), Some(1), "{said}{}", err(&other));
    for line in [
        "tools/call echo",
        "/result/content/0/text",
        "- \"hullo\"",
        "+ \"hello\"",
        "1 different",
    ] {
        assert!(said.contains(line), "{line}: {said}");
    }
    let ignored = replay(&["--ignore", "/result/content/*/text"]).await;
    assert!(ignored.status.success(), "{}", out(&ignored));
    let json = replay(&["--json"]).await;
    let report: Value = serde_json::from_slice(&json.stdout).unwrap();
    let difference = &report["different"][0]["differences"][0];
    assert_eq!(
        (&difference["recorded"], &difference["now"]),
        (&json!("hullo"), &json!("hello"))
    );
    assert_eq!(replay(&["--ignore", "x"]).await.status.code(), Some(2));
    assert!(replay(&["--update"]).await.status.success());
    assert!(replay(&[]).await.status.success());
    assert!(!std::fs::read_to_string(&file).unwrap().contains("p4ss"));
    progress_is_compared(&file, replay).await;
}

/// Decision 0071: whether a server reports progress is compared where that is wanted.
async fn progress_is_compared(file: &Path, replay: impl AsyncFn(&[&str]) -> Output) {
    let same = replay(&["--notifications"]).await;
    assert!(same.status.success(), "{}{}", out(&same), err(&same));
    let text = std::fs::read_to_string(file).unwrap();
    let silent = text
        .lines()
        .filter(|line| !line.contains("\"notifications/progress\""));
    let silent: String = silent.map(|line| format!("{line}\n")).collect();
    assert!(silent.len() < text.len(), "{text}");
    std::fs::write(file, silent).unwrap();
    let other = replay(&["--notifications"]).await;
    assert_eq!(
        other.status.code(),
        Some(1),
        "{}{}",
        out(&other),
        err(&other)
    );
    for line in [
        "tools/call progress",
        "(notifications/progress)",
        "- false",
        "+ true",
        "1 different",
    ] {
        assert!(out(&other).contains(line), "{line}: {}", out(&other));
    }
    assert!(replay(&[]).await.status.success());
}

/// Decision 0068: calls that may destroy something, as do those of tools that do not say, are shown and made when
/// somebody agrees; what is no recording, and one of an agent, is not played; and nobody but the operator plays.
#[tokio::test]
async fn replay_of_destructive_calls_needs_confirmation() {
    let fixture = Program::fixture(&["--tool", DESTROYER, "--tool", SILENT, "--tool", READER]);
    let kernel = Kernel::start(&fixture.entry("it")).await;
    kernel.connected(&["it"]).await;
    let file = kernel.folder().join("it.jsonl");
    let path = file.display().to_string();
    let mut trace = tracing(&kernel, &["it", "--save", &path, "--count", "6"]).await;
    let mut agent = scene::http_agent(&kernel, None, "{}").await;
    agent.call("it:wipe", json!({})).await.result();
    let written = json!({"path": "notes\u{202e}.txt"});
    agent.call("it:write", written).await.result();
    agent.call("it:look", json!({})).await.result();
    assert!(trace.end(DEADLINE).await.success());
    assert_eq!(recorded(&file).1.len(), 6);
    let asked = kernel.mgp(&["replay", &path]).await;
    assert_eq!(asked.status.code(), Some(2), "{}", err(&asked));
    let said = err(&asked);
    let shown = r#"write {"path":"notes\u{202e}.txt"}"#;
    assert!(said.contains("wipe {}") && said.contains(shown), "{said}");
    assert!(
        !said.contains("look {}") && said.contains("--yes makes them"),
        "{said}"
    );
    let text = std::fs::read_to_string(&file).unwrap();
    let harmless = file.with_extension("harmless.jsonl");
    let kept = text
        .lines()
        .filter(|line| line.contains("look") || line.contains("\"format\""));
    let kept: String = kept.map(|line| format!("{line}\n")).collect();
    std::fs::write(&harmless, kept).unwrap();
    let read = kernel
        .mgp(&["replay", &harmless.display().to_string()])
        .await;
    assert!(read.status.success(), "{}{}", out(&read), err(&read));
    assert!(
        kernel
            .mgp(&["replay", &path, "--yes"])
            .await
            .status
            .success()
    );
    let elsewhere = kernel.mgp(&["replay", &path, "--server", "itt"]).await;
    assert!(
        err(&elsewhere).contains("did you mean it?"),
        "{}",
        err(&elsewhere)
    );

    rewrite(&file, r#""server":"it""#, r#""agent":"it""#);
    let of_agent = kernel.mgp(&["replay", &path]).await;
    assert!(
        err(&of_agent).contains("recording of an agent"),
        "{}",
        err(&of_agent)
    );
    let toml = kernel.folder().join("mgp.toml").display().to_string();
    let none = kernel.mgp(&["replay", &toml]).await;
    assert_eq!(none.status.code(), Some(2));
    assert!(err(&none).contains("it is no recording"), "{}", err(&none));

    for (name, why) in [("it.jsnl", "it.jsonl?"), ("", "it is a folder")] {
        let path = kernel.folder().join(name).display().to_string();
        let wrong = kernel.mgp(&["replay", &path]).await;
        assert_eq!(wrong.status.code(), Some(2), "{}", err(&wrong));
        assert!(err(&wrong).contains(why), "{}", err(&wrong));
    }

    let play = json!({"server": "it", "method": "tools/list"});
    assert_eq!(
        agent.request("mgp/kernel/recorder/play", play).await.code(),
        -32601
    );
    let play = json!({"server": "it", "method": "initialize"});
    let mut operator = scene::socket_agent(&kernel, "{}").await;
    assert_eq!(
        operator
            .request("mgp/kernel/recorder/play", play)
            .await
            .code(),
        -32602
    );
}
