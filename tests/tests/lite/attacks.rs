//! Attacks at the HTTP door of MCP-lite: none gets through.

use http::StatusCode;
use http::header::{AUTHORIZATION, HOST, ORIGIN};
use mgp_tests::harness::{Kernel, Program};
use serde_json::json;

use crate::scene::{BASE, LiteClient, TOKENS, guarded, kernel, token};

const PATHS: [&str; 4] = [
    "/mcp-lite/v1/listtools",
    "/mcp-lite/v1/calltools",
    "/rpc",
    "/tools",
];

/// LITE-077: no token, a forged one, two, one in the URL and one that was taken back open nothing, at any endpoint.
#[tokio::test]
async fn request_without_a_valid_token_is_rejected() {
    let kernel = guarded("", &[]).await;
    let alice = token(&kernel, "alice").await;
    let mut forged = alice.clone();
    forged.pop();
    forged.push('x');
    for path in PATHS {
        let client = LiteClient::at(&kernel, path);
        let refused = async |client: &LiteClient, case: &str| {
            let said = client.post("{}").await;
            assert_eq!(
                said.status,
                StatusCode::UNAUTHORIZED,
                "{path} {case} {said:?}"
            );
            assert!(
                said.headers.contains_key("www-authenticate"),
                "{path} {case}"
            );
            assert!(!said.body.to_string().contains("it__"), "{path} {case}");
        };
        refused(&client, "none").await;
        refused(&client.clone().with_token(&forged), "forged").await;
        refused(&client.clone().with_token(""), "empty").await;
        let mut two = client.clone().with_token(&alice);
        two.http
            .headers
            .append(AUTHORIZATION, "Bearer other".parse().unwrap());
        refused(&two, "two").await;
        let at = format!("{path}?token={alice}&access_token={alice}");
        refused(&LiteClient::at(&kernel, &at), "in the URL").await;
    }
    let client = LiteClient::at(&kernel, "/tools").with_token(&alice);
    assert_eq!(client.post("{}").await.status, StatusCode::OK);
    kernel.mgp(&["agents", "remove", "alice"]).await;
    assert_eq!(client.post("{}").await.status, StatusCode::UNAUTHORIZED);
}

/// LITE-077: a page of another origin, and a name that leads here, are 403, as at `/mcp`.
#[tokio::test]
async fn pages_of_others_are_403() {
    let kernel = kernel("", &[]).await;
    for path in PATHS {
        let client = LiteClient::at(&kernel, path);
        for (name, value) in [
            (ORIGIN, "https://evil.example"),
            (ORIGIN, "null"),
            (ORIGIN, "http://localhost:1"),
            (HOST, "evil.example"),
            (HOST, "127.0.0.1.evil.example"),
        ] {
            let mut page = client.clone();
            page.http.set(name.clone(), value);
            assert_eq!(
                page.post("{}").await.status,
                StatusCode::FORBIDDEN,
                "{path} {name} {value}"
            );
        }
        assert_ne!(client.post("{}").await.status, StatusCode::FORBIDDEN);
    }
}

/// Bodies that are too long are 413, and those too deep are no harm; the door stays open.
#[tokio::test]
async fn long_and_deeply_nested_bodies_are_rejected() {
    let fixture = Program::fixture(&[]).entry("it");
    let kernel = Kernel::start(&format!("[limits]\nmax_frame_bytes = 65536\n{fixture}")).await;
    kernel.connected(&["it"]).await;
    let client = LiteClient::new(&kernel);
    let long = client
        .call("it__echo", json!({"text": "x".repeat(70_000)}))
        .await;
    assert_eq!(long.status, StatusCode::PAYLOAD_TOO_LARGE, "{long:?}");
    for (open, close) in [("[", "]"), (r#"{"a":"#, "}")] {
        let deep = format!("{}1{}", open.repeat(9_000), close.repeat(9_000));
        for body in [
            deep.clone(),
            format!(
                r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"it__echo","arguments":{{"text":{deep}}}}}}}"#
            ),
            format!(
                r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"it__echo","arguments":{deep}}}}}"#
            ),
            format!(
                r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"it__echo","_meta":{deep}}}}}"#
            ),
        ] {
            let said = client.post(body).await;
            assert!(said.body.get("error").is_some(), "{said:?}");
        }
        let list = LiteClient::at(&kernel, "/tools").post(deep).await;
        assert!(
            list.status.is_success() || list.status.is_client_error(),
            "{list:?}"
        );
    }
    assert_eq!(
        client
            .call("it__echo", json!({"text": "well"}))
            .await
            .text(),
        "well"
    );
}

/// A member in another case, or twice, is not two messages to anybody; names that go around a list go nowhere.
#[tokio::test]
async fn no_body_means_two_things() {
    let kernel = kernel("", &[]).await;
    let client = LiteClient::new(&kernel);
    let call = |params: &str| {
        format!(r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{params}}}"#)
    };
    for params in [
        r#"{"name":"redeem","Name":"it__pid","arguments":{"promise":"x"}}"#,
        r#"{"name":"it__echo","name":"it__pid","arguments":{"text":"x"}}"#,
        r#"{"name":"it__echo","arguments":{"text":"x"},"ARGUMENTS":{}}"#,
        r#"{"name":"redeem\u0000","arguments":{}}"#,
        r#"{"name":"REDEEM","arguments":{}}"#,
        r#"{"name":"../it__echo","arguments":{}}"#,
        r#"{"name":"","arguments":{}}"#,
    ] {
        let said = client.post(call(params)).await;
        assert!(said.body.get("error").is_some(), "{params} {said:?}");
    }
    // Kernels are not operated from here, and nobody says who he is in a body.
    for name in [
        "mgp.kernel.stop",
        "mgp/kernel/stop",
        "mgp.agents.add",
        "mgp.access.grant",
    ] {
        let said = client.call(name, json!({})).await;
        assert_eq!(said.error()["code"], -32601, "{name} {said:?}");
    }
    let meta = json!({"agent": "agent.local", "mgp": {"agent": "operator"}});
    let said = client
        .call_with("it__echo", json!({"text": "x"}), meta)
        .await;
    assert_eq!(said.kind(), "answer");
}

/// LITE-024: many guesses open no promise, and cost nobody else anything.
#[tokio::test]
async fn guesses_open_no_promise() {
    let config = format!("{TOKENS}{}", Program::fixture(&["--no-tasks"]).entry("it"));
    let kernel = Kernel::with_config(&config).await;
    kernel.connected(&["it"]).await;
    let client = LiteClient::at(&kernel, &format!("{BASE}/rpc"));
    let (alice, bob) = (token(&kernel, "alice").await, token(&kernel, "bob").await);
    let (alice, bob) = (client.clone().with_token(&alice), client.with_token(&bob));
    let promise = alice
        .prefers("wait=0")
        .call("it__slow_compute", json!({"seconds": 1}))
        .await
        .promise();
    for at in (5..promise.len()).step_by(7) {
        let mut guess = promise.clone();
        guess.truncate(at);
        for guess in [
            guess.clone(),
            format!("{guess}AAAA"),
            format!("{guess}{}", &promise[..20]),
        ] {
            let said = bob.redeem(&guess).await;
            assert_eq!(said.error()["code"], -32602, "{said:?}");
        }
    }
    assert_eq!(
        alice.prefers("wait=9").redeem(&promise).await.kind(),
        "answer"
    );
}
