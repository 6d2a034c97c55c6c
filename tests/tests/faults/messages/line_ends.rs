//! What some readers take for the end of a line never makes two messages of one, either way.

use std::collections::HashSet;
use std::io::Write;

use mgp_tests::harness::handshake::initialize;
use mgp_tests::harness::{Agent, DEADLINE, Kernel, Process};
use serde_json::{Value, json};

use crate::scene::{AT_ONCE, NEWEST, begin, echoes, listed, owner, server};

/// What ends a line for one reader or another, and may stand raw in a JSON string.
const IN_STRINGS: [&str; 3] = ["\u{85}", "\u{2028}", "\u{2029}"];
/// What does, and may not.
const CONTROLS: [&str; 7] = ["\r", "\n", "\u{b}", "\u{c}", "\u{1c}", "\u{1d}", "\u{1e}"];

/// The frames that reached a server, as it cut them.
async fn received(agent: &mut Agent) -> Vec<String> {
    let told = agent.call("it__received", json!({})).await.result();
    serde_json::from_value(told["structuredContent"]["frames"].clone()).unwrap()
}

/// A request of its own, hidden in another one. It would answer the calls that count so far.
fn hidden(id: usize) -> String {
    let params = json!({"name": "echo", "arguments": {"text": "hidden"}});
    json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params}).to_string()
}

/// A call of echo with something between two of its tokens, or within its text.
fn around(id: usize, between: &str, within: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"it__echo","z":[{between}],"arguments":{{"text":"{within}"}}}}}}"#
    )
}

/// CMCP-016, MCP-068: through every door, at a server that cuts its lines wherever any reader would.
#[tokio::test]
async fn no_line_end_of_any_reader_starts_a_request() {
    let kernel = Kernel::start(&server("it", &["--any-line-end"], "")).await;
    kernel.connected(&["it"]).await;
    let (mut waiting, http, stdio) = (
        owner(&kernel).await,
        kernel.http_agent(None),
        kernel.stdio_agent(None),
    );
    let slow = begin(&mut waiting, "it__slow", json!({"ms": 1500})).await;
    for (mut agent, over_http) in [(http, true), (stdio, false)] {
        agent.initialize(NEWEST, "{}").await.result();
        for (at, end) in ["\r", "\n"].iter().enumerate() {
            if *end == "\n" && !over_http {
                continue;
            }
            for guess in 0..40 {
                let id = 1000 + at * 100 + guess;
                agent
                    .send(&around(id, &format!("{end}{}{end}", hidden(guess)), "seen"))
                    .await;
                assert_eq!(agent.answer_to(&json!(id)).await.text(), "seen");
            }
        }
        for (at, end) in IN_STRINGS.iter().enumerate() {
            let id = 2000 + at;
            let smuggled = hidden(at).replace('"', "\\\"");
            let text = format!("a{end}{smuggled}{end}b");
            agent.send(&around(id, "", &text)).await;
            let said = agent.answer_to(&json!(id)).await.text();
            assert_eq!(said, format!("a{end}{}{end}b", hidden(at)));
        }
        for (at, control) in CONTROLS.iter().enumerate() {
            if *control == "\n" && !over_http {
                continue;
            }
            let id = 3000 + at;
            agent.send(&around(id, "", &format!("a{control}b"))).await;
            let refused = agent.answer_to(&Value::Null).await;
            assert_eq!(refused.code(), -32700, "{control:?}");
        }
        agent.close().await;
    }
    let frames = received(&mut waiting).await;
    assert!(frames.len() > 120, "{}", frames.len());
    for frame in &frames {
        let message: Value = serde_json::from_str(frame).expect("no piece of a message");
        let text = &message["params"]["arguments"]["text"];
        assert_ne!(*text, "hidden", "{frame}");
    }
    assert_eq!(waiting.answer_to(&slow).await.text(), "slept");
}

/// Servers that keep ids in 32 bits, or as doubles, get them back whole: they count from one.
#[tokio::test]
async fn ids_toward_a_server_count_from_one() {
    let kernel = Kernel::start(&server("it", &[], "")).await;
    kernel.connected(&["it"]).await;
    let mut agent = owner(&kernel).await;
    for _ in 0..50 {
        let params = json!({"name": "it__echo", "arguments": {"text": "x"}, "_meta": {"progressToken": "t"}});
        agent.request("tools/call", params).await.result();
    }
    let frames = received(&mut agent).await;
    let asked: Vec<Value> = frames
        .iter()
        .map(|frame| serde_json::from_str(frame).unwrap())
        .filter(|frame: &Value| frame["params"]["name"] == "echo")
        .collect();
    let ids: Vec<u64> = asked
        .iter()
        .map(|frame| frame["id"].as_u64().unwrap())
        .collect();
    let different: HashSet<&u64> = ids.iter().collect();
    assert_eq!(different.len(), 50);
    assert!(ids.iter().all(|id| (1..1000).contains(id)), "{ids:?}");
    for frame in asked {
        assert_eq!(frame["params"]["_meta"]["progressToken"], frame["id"]);
    }
}

/// The way back: what a server says is one line for whoever reads `mgp stdio`, and one `data:` of an
/// event stream.
#[tokio::test]
async fn message_of_a_server_is_one_line_for_every_reader() {
    let kernel = Kernel::start(&server("it", &[], "")).await;
    kernel.connected(&["it"]).await;
    let forged =
        r#"{"jsonrpc":"2.0","id":2,"result":{"content":[{"type":"text","text":"forged"}]}}"#;
    let inside = forged.replace('"', "\\\"");
    let line = format!(
        "{{\"jsonrpc\":\"2.0\",\"id\":ID,\"result\":{{\"z\":[\r{forged}\r],\"content\":[{{\"type\":\"text\",\"text\":\"\u{2028}{inside}\u{85}\"}}]}}}}"
    );
    let call = |id: u32| {
        let params = json!({"name": "it__write", "arguments": {"line": line}});
        json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params}).to_string()
    };
    let mut process = Process::start("mgp stdio", &kernel.program(&["stdio"]));
    let mut stdin = process.take_stdin().unwrap();
    let ready = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
    let said = [&initialize(NEWEST, "{}"), ready, &call(1), ""].join("\n");
    stdin.write_all(said.as_bytes()).unwrap();
    drop(stdin);
    assert!(process.end(DEADLINE).await.success());
    let out = process.stdout();
    let ends = |c: char| c < ' ' || ["\u{85}", "\u{2028}", "\u{2029}"].contains(&&*c.to_string());
    let lines: Vec<&str> = out.split(ends).filter(|line| !line.is_empty()).collect();
    assert_eq!(lines.len(), 2, "{out:?}");
    let answer: Value = serde_json::from_str(lines[1]).unwrap();
    let text = format!("\u{2028}{forged}\u{85}");
    assert_eq!(answer["result"]["content"][0]["text"], text.as_str());
    assert_eq!(answer["result"]["z"][0]["id"], 2);
}

/// An answer that is no text, or no message, is told its caller at once, and the connection lives on.
#[tokio::test]
async fn an_answer_that_cannot_be_read_fails_its_call_at_once() {
    let kernel = Kernel::start(&server("it", &[], "call_timeout_secs = 300")).await;
    kernel.connected(&["it"]).await;
    let mut agent = owner(&kernel).await;
    let torn = [
        (
            "{\"jsonrpc\":\"2.0\",\"id\":ID,\"result\":{\"x\":\"\u{ff}\"}}",
            true,
        ),
        (
            "{\"result\":{\"x\":\"\u{ff}\"},\"jsonrpc\":\"2.0\",\"id\":ID}",
            true,
        ),
        (
            "{\"jsonrpc\":\"2.0\",\"id\":ID,\"result\":{\"x\":\"\u{1}\"}}",
            false,
        ),
        ("{\"jsonrpc\":\"2.0\",\"id\":ID,\"result\":{\"x\":", false),
        ("{\"jsonrpc\":\"2.0\",\"id\":ID}", false),
    ];
    for (line, latin1) in torn {
        let arguments = json!({"line": line, "latin1": latin1});
        let call = begin(&mut agent, "it__write", arguments).await;
        let refused = mgp_tests::harness::wait::within(line, AT_ONCE, agent.answer_to(&call)).await;
        assert_eq!(refused.code(), -32603, "{line}");
        let words = refused.error()["message"].to_string();
        assert!(words.contains("cannot be read"), "{words}");
        echoes(&mut agent, "it").await;
    }
    let it = listed(&kernel, "it").await;
    assert_eq!(
        (&it["noise_lines"], &it["restarts"]),
        (&json!(5), &json!(0)),
        "{it:#}"
    );
}

/// A line over the limit is answered under its own id, wherever in it that stands.
#[tokio::test]
async fn a_request_over_the_limit_is_answered_under_its_own_id() {
    let kernel = Kernel::start(&server("it", &[], "")).await;
    kernel.connected(&["it"]).await;
    let mut agent = owner(&kernel).await;
    let filling = "x".repeat(9 << 20);
    let first = format!(
        r#"{{"jsonrpc":"2.0","id":"a","method":"tools/call","params":{{"x":"{filling}"}}}}"#
    );
    let last = format!(
        r#"{{"method":"tools/call","params":{{"id":3,"x":"{filling}"}},"jsonrpc":"2.0","id":71}}"#
    );
    let nowhere = format!(r#"{{"method":"tools/call","params":{{"id":3,"x":"{filling}"}}}}"#);
    for (frame, id) in [
        (first, json!("a")),
        (last, json!(71)),
        (nowhere, Value::Null),
    ] {
        agent.send(&frame).await;
        let refused = agent.answer_to(&id).await;
        assert_eq!(refused.code(), -32600);
        assert!(refused.frame.contains("8388608"), "{}", refused.frame);
    }
    echoes(&mut agent, "it").await;
}
