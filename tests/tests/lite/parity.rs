//! One set of cases over both bindings: the same answers, the same classes of errors (MCP-lite 0.042, §7.1). The table
//! in docs/mcp-lite.md is what this test sees.

use mgp_tests::harness::{Kernel, Program};
use serde_json::{Value, json};

use crate::grpc::client::{RpcClient, code, kind};
use crate::scene::{self, LiteClient, Said, TOKENS};

/// The page that has the table.
const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/mcp-lite.md");

/// A case: what is asked, in the words of both bindings.
struct Case {
    what: &'static str,
    tool: &'static str,
    arguments: Value,
    prefer: &'static str,
}

fn case(what: &'static str, tool: &'static str, arguments: Value) -> Case {
    Case {
        what,
        tool,
        arguments,
        prefer: "",
    }
}

fn cases() -> Vec<Case> {
    let server_error = |code: i64| json!({"error": {"code": code, "message": "of the server"}});
    vec![
        case("a tool answers", "it__echo", json!({"text": "a"})),
        case("a tool fails", "it__test_error_handling", json!({})),
        case(
            "a tool asks its caller",
            "it__test_elicitation",
            json!({"message": "Who?"}),
        ),
        Case {
            prefer: "respond-async",
            ..case("a call takes long", "it__slow", json!({"ms": 1000}))
        },
        Case {
            prefer: "respond-sync, wait=1",
            ..case(
                "a call takes long, and its caller takes no promise",
                "it__slow",
                json!({"ms": 60_000}),
            )
        },
        case(
            "arguments do not fit the schema",
            "it__slow",
            json!({"ms": "soon"}),
        ),
        case("no such tool", "it__ecko", json!({})),
        case("a tool that is denied", "it__pid", json!({})),
        case(
            "a promise that is unknown",
            "redeem",
            json!({"promise": "prom_a7b9c2d4e6f8"}),
        ),
        case("`redeem` without a promise", "redeem", json!({})),
        case("the server says -32603", "it__fail", server_error(-32603)),
        case("the server says -32602", "it__fail", server_error(-32602)),
        case(
            "the server says a code of its own",
            "it__fail",
            server_error(-32000),
        ),
        case("the server ends in the middle", "it__crash", json!({})),
    ]
}

/// LITE-001, LITE-061 to LITE-064, LITE-067: each case over both, and the page says what was seen.
#[tokio::test]
async fn http_and_grpc_bindings_answer_alike() {
    let fixture = Program::fixture(&[]).entry("it");
    let kernel = Kernel::with_config(&format!(
        "{TOKENS}[limits]\nmax_frame_bytes = 65536\n{fixture}"
    ))
    .await;
    kernel.connected(&["it"]).await;
    let token = scene::token(&kernel, "alice").await;
    let denied = kernel
        .mgp(&["grants", "add", "alice", "it/pid", "--deny"])
        .await;
    assert!(denied.status.success(), "{denied:?}");
    let http = LiteClient::new(&kernel).with_token(&token);
    let Some(rpc) = RpcClient::python(&kernel) else {
        return;
    };
    let mut rpc = rpc.with_token(&token);
    let mut rows = Vec::new();
    for case in cases() {
        kernel.connected(&["it"]).await;
        let over_http = match case.prefer {
            "" => http.call(case.tool, case.arguments.clone()).await,
            prefer => {
                http.prefers(prefer)
                    .call(case.tool, case.arguments.clone())
                    .await
            }
        };
        kernel.connected(&["it"]).await;
        let terms = match case.prefer {
            "" => json!({}),
            prefer => json!({"metadata": {"prefer": prefer}}),
        };
        let over_grpc = rpc.call_on(case.tool, case.arguments.clone(), &terms).await;
        let (left, right) = alike(case.what, &over_http, &over_grpc);
        rows.push(format!("| {} | `{left}` | `{right}` |", case.what));
    }
    rows.extend(at_the_door(&http, &mut rpc).await);
    let page = std::fs::read_to_string(PAGE).unwrap();
    let table: Vec<&str> = page
        .lines()
        .skip_while(|line| *line != "| Case | HTTP | gRPC |")
        .skip(2)
        .take_while(|line| line.starts_with('|'))
        .collect();
    assert_eq!(
        table,
        rows,
        "docs/mcp-lite.md is to say:\n{}",
        rows.join("\n")
    );
}

/// The same was answered; gives what each binding calls it.
fn alike(what: &str, http: &Said, rpc: &Value) -> (String, String) {
    if let Some(error) = http.body.get("error") {
        let error_code = error["code"].as_i64().unwrap();
        let classes: &[&str] = match error_code {
            -32601 => &["NOT_FOUND"],
            -32700 | -32600 | -32602 => &["INVALID_ARGUMENT"],
            _ => &["INTERNAL", "DEADLINE_EXCEEDED"],
        };
        assert!(classes.contains(&code(rpc)), "{what}: {error} {rpc}");
        let info = &rpc["error"]["info"];
        assert_eq!(info["json_rpc_code"], error_code.to_string(), "{what}");
        let message = rpc["error"]["message"].as_str().unwrap();
        let words = error["message"].as_str().unwrap();
        // How long it took and the id of the call are no part of what is alike.
        let plain = |text: &str| {
            let words = text.split('`').next().unwrap_or_default();
            words.replace(|c: char| c.is_ascii_digit(), "")
        };
        assert!(
            plain(message).starts_with(&plain(words)),
            "{what}: {message} / {words}"
        );
        for (name, _) in error["data"].as_object().into_iter().flatten() {
            assert!(info.get(name).is_some(), "{what}: {name} in {info}");
        }
        return (error_code.to_string(), code(rpc).to_owned());
    }
    let (left, right) = (http.kind(), kind(rpc));
    assert_eq!(left.to_uppercase(), right, "{what}");
    for name in ["content", "isError", "structuredContent"] {
        assert_eq!(http.result().get(name), rpc["result"].get(name), "{what}");
    }
    let asked = |meta: &Value| meta.get("elicitation").cloned();
    assert_eq!(asked(http.meta()), asked(&rpc["result"]["_meta"]), "{what}");
    (left.to_owned(), right.to_owned())
}

/// What is refused before any tool is looked for.
async fn at_the_door(http: &LiteClient, rpc: &mut RpcClient) -> Vec<String> {
    let mut rows = Vec::new();
    let mut row = |what: &str, said: &Said, answer: &Value| {
        rows.push(format!(
            "| {what} | `{}` | `{}` |",
            said.status.as_u16(),
            code(answer)
        ));
    };
    let echo = || json!({"text": "a"});
    let mut stranger = http.clone();
    stranger.http.headers.remove(http::header::AUTHORIZATION);
    let terms = json!({"metadata": {"authorization": ""}});
    let refused = rpc.call_on("it__echo", echo(), &terms).await;
    row(
        "no token",
        &stranger.call("it__echo", echo()).await,
        &refused,
    );
    let mut page = http.clone();
    page.http.set(http::header::ORIGIN, "https://evil.example");
    let terms = json!({"metadata": {"origin": "https://evil.example"}});
    let refused = rpc.call_on("it__echo", echo(), &terms).await;
    row(
        "the Origin of another page",
        &page.call("it__echo", echo()).await,
        &refused,
    );
    let long = json!({"text": "x".repeat(70_000)});
    let refused = rpc.call("it__echo", long.clone()).await;
    row(
        "a request that is too long",
        &http.call("it__echo", long).await,
        &refused,
    );
    let refused = rpc
        .ask(json!({"op": "raw", "method": "mcplite.MCPLite/CallTool", "hex": "ff"}))
        .await;
    row("bytes that are no request", &http.post("{").await, &refused);
    rows
}
