//! `mgp trace`: the messages of a server or an agent as they pass, and a file of them.

mod agents;
mod bounds;
mod replay;

use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

pub(super) use mgp_tests::harness::kernel::trace::{all_told, interrupted, shows, told, tracing};
use mgp_tests::harness::program::remote_entry;
use mgp_tests::harness::upstream::Upstream;
use mgp_tests::harness::{Agent, DEADLINE, Kernel, Program};
use serde_json::{Value, json};

use crate::scene::{self, NEWEST};

/// What no trace may show.
const SECRET: &str = "hunter2-hunter2";

/// The lines of a recording: its header, and the messages.
pub(super) fn recorded(path: &Path) -> (Value, Vec<Value>) {
    let text = std::fs::read_to_string(path).unwrap();
    assert!(text.ends_with('\n'), "{text}");
    let mut lines = text.lines().map(|line| serde_json::from_str(line).unwrap());
    (lines.next().unwrap(), lines.collect())
}

/// A kernel in front of a server that was given a secret.
async fn kernel() -> Kernel {
    let entry = Program::fixture(&[]).env("TOKEN", SECRET).entry("it");
    let kernel = Kernel::start(&entry).await;
    kernel.connected(&["it"]).await;
    kernel
}

/// Undoes the escapes of JSON as often as there are any.
fn undone(text: &str) -> String {
    let mut text = text.to_owned();
    for _ in 0..6 {
        for c in SECRET.chars() {
            text = text.replace(&format!("\\u{:04x}", u32::from(c)), &c.to_string());
        }
        text = text.replace("\\\\", "\\").replace("\\\"", "\"");
    }
    text
}

/// Decision 0068: what a server is sent and sends is a line on the screen and a line of a file that is its owner's
/// alone; a secret is in neither, however it was written; Ctrl-C ends it in order.
#[tokio::test]
async fn a_server_is_followed_into_a_file_without_its_secrets() {
    let kernel = kernel().await;
    let file = kernel.folder().join("it.jsonl");
    let path = file.display().to_string();
    let mut trace = tracing(&kernel, &["it", "--save", &path, "--full"]).await;
    let mut agent = scene::socket_agent(&kernel, r#"{"elicitation":{}}"#).await;
    agent.answers(
        "elicitation/create",
        json!({"action": "accept", "content": {"username": "ada", "email": SECRET}}),
    );
    let echoed = agent.call("it:echo", json!({"text": SECRET})).await;
    assert_eq!(echoed.text(), SECRET, "only the copy is masked");
    let escaped: String = SECRET
        .chars()
        .map(|c| format!("\\u{:04x}", u32::from(c)))
        .collect();
    for text in [
        format!("\"{escaped}\""),
        serde_json::to_string(&format!(r#"{{"a":["{escaped}"]}}"#)).unwrap(),
        serde_json::to_string(&format!("so it was: {escaped}")).unwrap(),
    ] {
        let params = format!(r#"{{"name":"it:echo","arguments":{{"text":{text}}}}}"#);
        let frame =
            format!(r#"{{"jsonrpc":"2.0","id":{text},"method":"tools/call","params":{params}}}"#);
        agent.send(&frame).await;
        let id: Value = serde_json::from_str(&text).unwrap();
        agent.answer_to(&id).await.result();
    }
    agent
        .call("it:test_elicitation", json!({"message": "who?"}))
        .await
        .result();
    let odd = json!({"text": "1", "n": 1, "password": "p4ss", "api-key": ["k3y"]});
    agent.call("it:echo", odd).await.result();
    shows(&mut trace, "api-key").await;
    let out = interrupted(trace).await;

    let kept = std::fs::read_to_string(&file).unwrap();
    for shown in [undone(&out), undone(&kept)] {
        for secret in ["hunter2", "p4ss", "k3y"] {
            assert!(!shown.contains(secret), "{secret}: {shown}");
        }
    }
    let (header, messages) = recorded(&file);
    assert_eq!(
        (&header["format"], &header["version"], &header["server"]),
        (&json!("mgp-recording"), &json!(1), &json!("it"))
    );
    let told: Vec<String> = messages.iter().map(told).collect();
    for wanted in [
        "kernel request tools/call echo",
        "server answer tools/call echo",
        "server request elicitation/create -",
        "kernel answer elicitation/create -",
        "server answer tools/call test_elicitation",
    ] {
        assert!(
            told.iter().any(|line| line == wanted),
            "{wanted}: {told:#?}"
        );
    }
    let answer = messages
        .iter()
        .find(|line| line["kind"] == "answer")
        .unwrap();
    assert!(
        answer["took_us"].as_u64().is_some_and(|us| us > 0),
        "{answer}"
    );
    assert_eq!(
        answer["message"]["result"]["content"][0]["text"],
        "[redacted]"
    );
    let mode = std::fs::metadata(&file).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

/// Decision 0068: no file is written over unasked, a misspelt name names the nearest, and only the operator follows
/// anybody: to an agent the method is not there.
#[tokio::test]
async fn trace_is_for_the_operator_and_overwrites_no_file() {
    let kernel = kernel().await;
    let file = kernel.folder().join("it.jsonl");
    std::fs::write(&file, "mine").unwrap();
    let path = file.display().to_string();
    let there = kernel.mgp(&["trace", "it", "--save", &path]).await;
    let said = String::from_utf8_lossy(&there.stderr).into_owned();
    assert_eq!(there.status.code(), Some(2), "{said}");
    assert!(said.contains("is there already; --force"), "{said}");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "mine");
    let forced = ["trace", "it", "--save", &path, "--force", "--for", "1s"];
    let forced = kernel.mgp(&forced).await;
    let said = String::from_utf8_lossy(&forced.stderr).into_owned();
    assert!(
        forced.status.success() && said.contains("0 messages in"),
        "{said}"
    );
    assert_eq!(recorded(&file).0["server"], "it");

    for (args, near) in [
        (&["trace", "itt"][..], "did you mean it?"),
        (&["trace", "--agent", "lokal"], "did you mean agent.local?"),
    ] {
        let wrong = kernel.mgp(args).await;
        let said = String::from_utf8_lossy(&wrong.stderr).into_owned();
        assert_eq!(wrong.status.code(), Some(2), "{said}");
        assert!(said.contains(near), "{said}");
    }
    let neither = kernel.mgp(&["trace"]).await;
    assert_eq!(neither.status.code(), Some(2));

    let follow = json!({"server": "it"});
    let mut agent = scene::http_agent(&kernel, None, "{}").await;
    let refused = agent.request("mgp/kernel/recorder/follow", follow).await;
    assert_eq!(refused.code(), -32601);
}

/// Decision 0068: a server is followed over each transport and in each era, in the kernel's own words; filters let
/// a request pass with its answer, and --count ends by itself.
#[tokio::test]
async fn servers_of_every_transport_are_followed() {
    let web = Upstream::start(&["--era", "modern"]).await;
    let old = Upstream::start(&["--era", "legacy", "--http-json"]).await;
    let sse = Upstream::start(&["--sse-only"]).await;
    let mut config = Program::fixture(&["--era", "legacy"]).entry("lines");
    config += &remote_entry("web", &web.url());
    config += &remote_entry("old", &old.url());
    let stream = format!("http://127.0.0.1:{}/sse", sse.port());
    config += &format!("[[servers]]\nid = \"sse\"\ntransport = \"sse\"\nurl = {stream:?}\n");
    let kernel = Kernel::start(&config).await;
    let all = ["lines", "web", "old", "sse"];
    kernel.connected(&all).await;
    let mut agent = scene::socket_agent(&kernel, "{}").await;
    for server in all {
        let filters = ["--json", "--tool", "echo", "--count", "2"];
        let mut trace = tracing(&kernel, &[&[server], &filters[..]].concat()).await;
        agent.call(&format!("{server}:count"), json!({})).await;
        agent
            .call(&format!("{server}:echo"), json!({"text": "hi"}))
            .await;
        assert!(trace.end(DEADLINE).await.success());
        let out = trace.stdout();
        let wanted = [
            "kernel request tools/call echo",
            "server answer tools/call echo",
        ];
        assert_eq!(all_told(&out), wanted, "{server}");
        assert!(
            !out.contains("message"),
            "bodies are shown when asked for: {out}"
        );
    }
    // A call that gets no answer is shown with the reason.
    let mut trace = tracing(&kernel, &["lines", "--errors"]).await;
    agent.call("lines:test_error_handling", json!({})).await;
    agent.call("lines:crash", json!({})).await;
    shows(&mut trace, "no answer").await;
    let out = interrupted(trace).await;
    assert!(!out.contains("request"), "{out}");
    let kinds: BTreeSet<&str> = ["tool error", "no answer"]
        .into_iter()
        .filter(|kind| out.contains(kind))
        .collect();
    assert_eq!(kinds.len(), 2, "{out}");
}

/// An agent of sessions at the door of a server.
pub(super) async fn stdio_agent(kernel: &Kernel) -> Agent {
    let mut agent = kernel.stdio_agent(None);
    agent.initialize(NEWEST, "{}").await.result();
    agent
}
