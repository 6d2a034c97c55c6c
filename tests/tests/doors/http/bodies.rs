//! Messages of every size, and what is no HTTP.

use http::StatusCode;
use mgp_tests::harness::{Agent, Kernel, Program};
use serde_json::{Value, json};

use crate::scene::{self, NEWEST};
use crate::wire::{self, Wire};

/// Longest message taken from an agent, in bytes, as `[limits]` says.
const LONGEST: usize = 1 << 20;

/// A kernel that takes no longer messages from agents; its server may answer in longer ones.
async fn limited() -> Kernel {
    let entry = Program::fixture(&[]).entry("it");
    let limits = format!("[limits]\nmax_frame_bytes = {LONGEST}\n");
    let kernel = Kernel::start(&format!("{limits}{entry}max_frame_bytes = 16777216\n")).await;
    kernel.connected(&["it"]).await;
    kernel
}

/// A call of `echo` whose frame has exactly this length.
fn echo_of(length: usize) -> String {
    let bare = scene::call(1, "echo", json!({"text": ""}));
    scene::call(1, "echo", json!({"text": "x".repeat(length - bare.len())}))
}

/// CMCP-015, CMCP-032: a body over the limit is 413 under the id of its request, with or without a
/// length announced, and the session and every other connection are as good as before.
#[tokio::test]
async fn a_body_over_the_limit_is_413() {
    let kernel = limited().await;
    let client = scene::session(&kernel, NEWEST).await;
    let whole = client.post(echo_of(LONGEST)).await;
    assert_eq!(whole.status, StatusCode::OK);
    assert!(whole.frames().await.last().unwrap().len() > LONGEST / 2);
    let refused = client.post(echo_of(LONGEST + 1)).await;
    assert_eq!(refused.status, StatusCode::PAYLOAD_TOO_LARGE);
    let told: Value = serde_json::from_str(&refused.text().await).unwrap();
    assert_eq!(told["id"], 1);
    assert!(
        told["error"]["message"]
            .as_str()
            .unwrap()
            .contains(&LONGEST.to_string())
    );
    let echo = client
        .post(scene::call(2, "echo", json!({"text": "well"})))
        .await;
    assert!(echo.frames().await[0].contains("well"));

    let mut chunked = Wire::to(&kernel).await;
    let head = wire::request(&client, "POST", "", 0);
    let head = head.replace("content-length: 0", "transfer-encoding: chunked");
    chunked.write(head).await;
    let chunk = format!("100000\r\n{}\r\n", "x".repeat(1 << 20));
    chunked.write(&chunk).await;
    chunked.write("1\r\nx\r\n").await;
    let told = chunked.until("\r\n\r\n").await;
    assert!(told.starts_with("HTTP/1.1 413 "), "{told}");
}

/// CMCP-015: a line over the limit is refused with limit and length, and the connection lives on.
#[tokio::test]
async fn a_line_over_the_limit_is_refused_and_the_connection_lives_on() {
    let kernel = limited().await;
    for mut agent in [
        kernel.stdio_agent(None),
        Agent::over_socket(&kernel.socket()).await,
    ] {
        agent.initialize(NEWEST, "{}").await.result();
        agent.send(&echo_of(LONGEST)).await;
        assert!(agent.answer_to(&json!(1)).await.text().len() > LONGEST / 2);
        agent.send(&echo_of(LONGEST + 1)).await;
        let refused = agent.answer_to(&json!(1)).await;
        assert_eq!(refused.code(), -32600);
        let words = refused.error()["message"].as_str().unwrap().to_owned();
        assert!(words.contains(&LONGEST.to_string()), "{words}");
        assert!(words.contains(&(LONGEST + 1).to_string()), "{words}");
        assert_eq!(
            agent.call("it:echo", json!({"text": "well"})).await.text(),
            "well"
        );
    }
}

/// Values nested without end are refused; nobody falls over them.
#[tokio::test]
async fn deeply_nested_values_are_rejected() {
    let kernel = scene::kernel().await;
    let client = scene::session(&kernel, NEWEST).await;
    let mut agent = scene::socket_agent(&kernel, "{}").await;
    for depth in [100_000, 1_000_000] {
        let deep = "[".repeat(depth) + &"]".repeat(depth);
        for params in [
            format!(r#"{{"name":"it:greet","arguments":{{"name":{deep}}}}}"#),
            format!(r#"{{"name":"it:greet","arguments":{{"other":{deep}}}}}"#),
            format!(r#"{{"name":"it:greet","_meta":{{"progressToken":{deep}}}}}"#),
            format!(r#"{{"name":{deep}}}"#),
            deep.clone(),
        ] {
            let frame =
                format!(r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{params}}}"#);
            agent.send(&frame).await;
            agent.answer_to(&json!(1)).await;
            let answer = client.post(frame).await;
            answer.frames().await;
        }
    }
    assert_eq!(
        agent.call("it:echo", json!({"text": "well"})).await.text(),
        "well"
    );
    let echo = client
        .post(scene::call(2, "echo", json!({"text": "well"})))
        .await;
    assert!(echo.frames().await[0].contains("well"));
}

/// What is no HTTP is told so or closed, and the door stays open.
#[tokio::test]
async fn malformed_http_closes_its_own_connection_alone() {
    let kernel = scene::kernel().await;
    let client = scene::session(&kernel, NEWEST).await;
    let long = format!("GET /mcp HTTP/1.1\r\nx: {}\r\n\r\n", "y".repeat(100_000));
    for (noise, status) in [
        ("\u{16}\u{3}\u{1}\u{2}\0\u{1}\0", "400"),
        ("nonsense\r\n\r\n", "400"),
        ("POST /mcp HTTP/9.9\r\n\r\n", "400"),
        (
            "POST /mcp HTTP/1.1\r\nhost: localhost\r\ncontent-length: x\r\n\r\n",
            "400",
        ),
        (&long, "431"),
    ] {
        let mut wire = Wire::to(&kernel).await;
        wire.write(noise).await;
        let told = wire.rest().await;
        assert!(
            told.starts_with(&format!("HTTP/1.1 {status} ")),
            "{noise:.40?}: {told}"
        );
    }
    let echo = client
        .post(scene::call(1, "echo", json!({"text": "well"})))
        .await;
    assert!(echo.frames().await[0].contains("well"));
}
