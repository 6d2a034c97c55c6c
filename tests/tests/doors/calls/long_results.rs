//! Results that are longer than the operator wants agents to read at once (decision 53).

use mgp_tests::harness::{Agent, Kernel, ModernAgent, Program};
use serde_json::{Value, json};

use crate::scene::{self, NEWEST};

const MOST: usize = 1000;

async fn kernel() -> Kernel {
    let bound = format!("max_result_bytes = {MOST}\n");
    let servers = Program::fixture(&[]).entry("it") + &bound + &Program::fixture(&[]).entry("free");
    let kernel = Kernel::start(&servers).await;
    kernel.connected(&["it", "free"]).await;
    kernel
}

fn text(result: &Value) -> String {
    result["content"][0]["text"].as_str().unwrap().to_owned()
}

/// Where to read on, as a model reads it off the last line.
fn next(text: &str) -> Option<(String, Value)> {
    let (shown, line) = text.rsplit_once("\n[")?;
    let (begin, end) = (line.find('{')?, line.find('}')?);
    Some((
        shown.to_owned(),
        serde_json::from_str(&line[begin..=end]).ok()?,
    ))
}

/// Decision 53: a long result is cut between characters and read on to its end; all else comes as it is.
#[tokio::test]
async fn a_long_result_is_cut_and_read_on() {
    let kernel = kernel().await;
    let long = "äöü€🦀 ".repeat(400);
    let mut legacy = scene::http_agent(&kernel, None, "{}").await;
    let list = legacy.request("tools/list", json!({})).await.result();
    assert!(
        list.to_string().contains("mgp_calls_read"),
        "it is listed: {list}"
    );
    let answer = legacy
        .call("it__echo", json!({"text": long}))
        .await
        .result();
    let (mut read, mut go_on) = next(&text(&answer)).expect("it says how to read on");
    assert!(read.len() <= MOST && long.starts_with(&read), "{read}");
    loop {
        let part = text(&legacy.call("mgp_calls_read", go_on.clone()).await.result());
        match next(&part) {
            Some((shown, then)) => {
                assert!(shown.len() <= MOST);
                read += &shown;
                go_on = then;
            }
            None => {
                read += &part;
                break;
            }
        }
    }
    assert_eq!(read, long);
    // A server without a bound, and a result that fits: byte for byte.
    for (tool, said) in [("free__echo", long.as_str()), ("it__echo", "short")] {
        let whole = legacy.call(tool, json!({"text": said})).await.result();
        assert_eq!(text(&whole), said);
    }
    let structured = legacy
        .call("it__structured_echo", json!({"text": long}))
        .await
        .result();
    assert_eq!(
        structured["structuredContent"]["text"],
        long.as_str(),
        "it is never cut"
    );
    let mut modern = ModernAgent::over_http(kernel.url(), "{}");
    let answer = modern.ask(
        "tools/call",
        json!({"name": "it__echo", "arguments": {"text": long}}),
    );
    let (shown, go_on) = next(&text(&answer.await.result())).unwrap();
    let part = modern.ask(
        "tools/call",
        json!({"name": "mgp_calls_read", "arguments": go_on}),
    );
    let (then, _) = next(&text(&part.await.result())).unwrap();
    assert!(long.starts_with(&(shown + &then)));
}

/// Decision 53: the rest is for the connection that called, for as long as that is there and may call the tool.
#[tokio::test]
async fn the_rest_of_a_result_is_its_callers() {
    let kernel = kernel().await;
    let mut agents = Vec::new();
    for name in ["alice", "bob"] {
        assert!(kernel.mgp(&["agents", "add", name]).await.status.success());
        let mut agent = Agent::over_stdio(&kernel.program(&["stdio", "--agent", name]));
        agent.initialize(NEWEST, "{}").await.result();
        agents.push(agent);
    }
    let long = "x".repeat(5 * MOST);
    let answer = agents[0]
        .call("it__echo", json!({"text": long}))
        .await
        .result();
    let (_, go_on) = next(&text(&answer)).unwrap();
    let mut again = Agent::over_stdio(&kernel.program(&["stdio", "--agent", "alice"]));
    again.initialize(NEWEST, "{}").await.result();
    let mut never = go_on.clone();
    never["result_id"] = json!("nosuch");
    for stranger in [&mut again, &mut agents[1]] {
        let own = stranger.call("mgp_calls_read", go_on.clone()).await.error();
        let none = stranger.call("mgp_calls_read", never.clone()).await.error();
        assert_eq!(own, none);
    }
    agents[0]
        .call("mgp_calls_read", go_on.clone())
        .await
        .result();
    assert!(
        kernel
            .mgp(&["grants", "add", "alice", "it", "--deny"])
            .await
            .status
            .success()
    );
    let late = agents[0].call("mgp_calls_read", go_on).await;
    assert!(late.is_error(), "{}", late.frame);
}
