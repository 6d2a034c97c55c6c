//! 2026-07-28: calls, and what comes in their course.

use futures_util::future::join;
use http::StatusCode;
use mgp_tests::harness::Kernel;
use mgp_tests::harness::handshake::FULL;
use mgp_tests::harness::modern::{again, wanting};
use mgp_tests::harness::program::remote_entry;
use mgp_tests::harness::{DEADLINE, ModernAgent, Program, Upstream, wait_until};
use serde_json::{Value, json};

use crate::scene::{self, Modern, counts, reached, taken_back};

/// Who closes the stream takes the call back: the server is told at once, whichever era it is of.
#[tokio::test]
async fn to_close_the_stream_is_to_cancel() {
    for era in ["legacy", "modern"] {
        let kernel = scene::kernel_with("", &["--era", era]).await;
        let mut watcher = scene::socket_agent(&kernel, "{}").await;
        let mut agent = ModernAgent::over_http(&kernel.server_url("it"), "{}");
        let params = json!({"name": "slow", "arguments": {"ms": 60_000}});
        let id = agent.start("tools/call", params).await;
        reached(&mut watcher, "slow", 1).await;
        agent.cancel(&id).await;
        taken_back(&mut watcher, "slow", 1).await;
        let echo = agent.call("echo", json!({"text": "still here"})).await;
        assert_eq!(echo.text(), "still here");
    }
}

/// The same at a server that is reached over HTTP.
#[tokio::test]
async fn a_closed_stream_cancels_far_away_too() {
    for era in ["legacy", "modern"] {
        let upstream = Upstream::start(&["--era", era]).await;
        let kernel = Kernel::start(&remote_entry("it", &upstream.url())).await;
        kernel.connected(&["it"]).await;
        let mut watcher = scene::socket_agent(&kernel, "{}").await;
        let mut agent = ModernAgent::over_http(&kernel.server_url("it"), "{}");
        let params = json!({"name": "slow", "arguments": {"ms": 60_000}});
        let id = agent.start("tools/call", params).await;
        reached(&mut watcher, "slow", 1).await;
        agent.cancel(&id).await;
        taken_back(&mut watcher, "slow", 1).await;
    }
}

/// Who comes back with answers and then closes the stream takes the call back too.
#[tokio::test]
async fn to_close_the_stream_of_a_later_round_is_to_cancel() {
    let kernel = scene::kernel_with("", &["--era", "legacy"]).await;
    let mut watcher = scene::socket_agent(&kernel, "{}").await;
    let mut agent = ModernAgent::over_http(&kernel.server_url("it"), FULL);
    let question = json!({"message": "?", "requestedSchema": {"type": "object"}});
    let arguments = json!({"method": "elicitation/create", "params": question, "ms": 60_000});
    let params = json!({"name": "ask", "arguments": arguments});
    agent.answers("elicitation/create", json!({"action": "decline"}));
    let asked = wanting(&agent.ask("tools/call", params.clone()).await).unwrap();
    let responses = agent.respond(&asked);
    let id = agent
        .start("tools/call", again(&params, &asked, responses))
        .await;
    wait_until("the answer is at the server", DEADLINE, async || {
        let heard = agent.call("received", json!({})).await;
        heard.frame.contains("srv-1")
    })
    .await;
    agent.cancel(&id).await;
    // Long before the kernel gives the call up by itself.
    let soon = DEADLINE / 4;
    wait_until("the call is taken back", soon, async || {
        counts(&mut watcher, "it:count").await["cancelled"]["ask"] == 1
    })
    .await;
}

/// At a line, a notification takes a call back, and nothing more is said of it.
#[tokio::test]
async fn at_the_socket_a_notification_cancels() {
    let kernel = scene::kernel().await;
    let mut watcher = scene::socket_agent(&kernel, "{}").await;
    let mut agent = ModernAgent::over_socket(&kernel.socket(), "{}").await;
    let params = json!({"name": "it:slow", "arguments": {"ms": 60_000}});
    let id = agent.start("tools/call", params).await;
    reached(&mut watcher, "slow", 1).await;
    agent.cancel(&id).await;
    taken_back(&mut watcher, "slow", 1).await;
    let echo = agent.call("it:echo", json!({"text": "next"})).await;
    assert_eq!(echo.text(), "next");
    assert!(agent.all_heard().is_empty());
}

fn levels(agent: &ModernAgent) -> Vec<Value> {
    let heard = agent.heard("notifications/message").into_iter();
    heard
        .map(|message| message["params"]["level"].clone())
        .collect()
}

/// Each request says how much it wants to hear; one that says nothing hears nothing, also while
/// another hears all. Over one pipe a modern server does not say which of two calls a message
/// belongs to, so what the loud one hears is counted while it is alone.
#[tokio::test]
async fn log_messages_are_those_a_request_wants() {
    let tool = "test_tool_with_logging";
    for era in ["legacy", "modern"] {
        let kernel = scene::kernel_with("", &["--era", era]).await;
        let url = kernel.server_url("it");
        let mut loud = ModernAgent::over_http(&url, "{}");
        let mut quiet = ModernAgent::over_http(&url, "{}");
        loud.envelope.log_level = Some("debug".to_owned());
        for said in 1..=3 {
            loud.call(tool, json!({})).await.result();
            assert!(levels(&loud).len() >= said, "{era}: {:?}", levels(&loud));
        }
        for _ in 0..5 {
            let calls = join(loud.call(tool, json!({})), quiet.call(tool, json!({})));
            let (one, two) = calls.await;
            assert_eq!(one.text(), two.text());
        }
        assert_eq!(levels(&quiet), [Value::Null; 0], "{era}");
        quiet.envelope.log_level = Some("error".to_owned());
        quiet.call(tool, json!({})).await.result();
        assert_eq!(levels(&quiet), [Value::Null; 0], "{era}");
    }
}

/// What a legacy server says beside the call, on its standing stream, is the one call's that is under
/// way.
#[tokio::test]
async fn a_log_message_beside_the_call_is_of_the_call() {
    let upstream = Upstream::start(&["--era", "legacy"]).await;
    let kernel = Kernel::start(&remote_entry("it", &upstream.url())).await;
    kernel.connected(&["it"]).await;
    let mut agent = ModernAgent::over_http(&kernel.server_url("it"), "{}");
    agent.envelope.log_level = Some("debug".to_owned());
    for _ in 0..20 {
        agent
            .call("notify", json!({"kind": "log_aside"}))
            .await
            .result();
    }
    // It comes over a connection of its own: on a busy machine one may come after the answer.
    let heard = levels(&agent).len();
    assert!(heard >= 10, "{heard} of 20");
    agent.envelope.log_level = None;
    agent
        .call("notify", json!({"kind": "log_aside"}))
        .await
        .result();
    assert_eq!(levels(&agent).len(), heard);
}

/// A level that is none is refused.
#[tokio::test]
async fn an_unknown_level_is_refused() {
    let kernel = scene::kernel().await;
    let mut modern = Modern::at(kernel.url(), "{}");
    modern.envelope.log_level = Some("loud".to_owned());
    let (status, answer) = modern.ask("tools/list", json!({})).await;
    assert_eq!(answer["error"]["code"], -32602, "{status}: {answer}");
}

/// Progress carries the token of its request and comes on its stream, before its answer.
#[tokio::test]
async fn progress_comes_on_the_stream_of_its_request() {
    for era in ["legacy", "modern"] {
        let kernel = scene::kernel_with("", &["--era", era]).await;
        let modern = Modern::at(&kernel.server_url("it"), "{}");
        let call = async |token: &str, steps: u64| {
            let mut request = modern.call(token, "progress", json!({"steps": steps, "ms": 2}));
            request.body["params"]["_meta"]["progressToken"] = json!("same");
            modern.client.put(&request).await.frames().await
        };
        let (short, long) = join(call("a", 5), call("b", 9)).await;
        for (id, steps, frames) in [("a", 5, short), ("b", 9, long)] {
            let read = |frame: &String| -> Value { serde_json::from_str(frame).unwrap() };
            let frames: Vec<Value> = frames.iter().map(read).collect();
            assert_eq!(frames.len(), steps + 1, "{era}: {frames:#?}");
            for (step, frame) in frames[..steps].iter().enumerate() {
                assert_eq!(frame["params"]["progressToken"], "same");
                assert_eq!(frame["params"]["progress"], step + 1);
            }
            assert_eq!(frames[steps]["id"], id);
        }
    }
}

/// A server that needs what the client did not declare makes the request fail in words that say
/// what is missing; the server is not left waiting.
#[tokio::test]
async fn request_that_needs_an_undeclared_capability_fails() {
    for era in ["legacy", "modern"] {
        // However busy the machine is, no answer begins as a stream, which would be told 200.
        let patient = "[tuning.streams]\nstream_after_ms = 60000\n";
        let kernel = scene::kernel_with(patient, &["--era", era]).await;
        for (capabilities, tool, missing) in [
            ("{}", "test_sampling", "sampling"),
            (r#"{"sampling":{}}"#, "test_elicitation", "elicitation"),
            (r#"{"sampling":{}}"#, "ask_roots", "roots"),
        ] {
            let modern = Modern::at(&kernel.server_url("it"), capabilities);
            let arguments = json!({"prompt": "?", "message": "?"});
            let (status, answer) = modern.put(&modern.call(1, tool, arguments)).await;
            let case = format!("{era} {tool}: {answer}");
            assert_eq!(status, StatusCode::BAD_REQUEST, "{case}");
            assert_eq!(answer["error"]["code"], -32021, "{case}");
            let required = &answer["error"]["data"]["requiredCapabilities"];
            assert!(required[missing].is_object(), "{case}");
        }
        let mut able = ModernAgent::over_http(&kernel.server_url("it"), FULL);
        able.answers("roots/list", json!({"roots": []}));
        able.call("ask_roots", json!({})).await.result();
    }
}

/// Arguments that do not fit their schema are the tool's failure, complete and without a call.
#[tokio::test]
async fn arguments_that_do_not_fit_are_a_failure_of_the_tool() {
    let kernel = scene::kernel().await;
    let modern = Modern::at(&kernel.server_url("it"), "{}");
    let (status, answer) = modern
        .put(&modern.call(1, "echo", json!({"text": 7})))
        .await;
    assert_eq!(status, StatusCode::OK, "{answer}");
    assert_eq!(answer["result"]["isError"], true);
    assert_eq!(answer["result"]["resultType"], "complete");
}

/// What a server answers with reaches the client as it is, number by number.
#[tokio::test]
async fn results_are_relayed_as_they_are() {
    let pipe = Program::fixture(&["--era", "legacy"]).entry("old");
    let modern_pipe = Program::fixture(&["--era", "modern"]).entry("new");
    let kernel = Kernel::start(&(pipe + &modern_pipe)).await;
    kernel.connected(&["old", "new"]).await;
    let text = "1.0 1e400 9007199254740993 \u{1F600} \\u0041";
    for server in ["old", "new"] {
        let modern = Modern::at(&kernel.server_url(server), "{}");
        let request = modern.call(
            json!(9_007_199_254_740_991_u64),
            "echo",
            json!({"text": text}),
        );
        let (_, answer) = modern.put(&request).await;
        assert_eq!(answer["id"], 9_007_199_254_740_991_u64);
        assert_eq!(answer["result"]["content"][0]["text"], text);
        assert_eq!(answer["result"]["resultType"], "complete");
    }
}
