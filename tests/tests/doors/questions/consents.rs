//! What servers may ask, as the operator decides it for each of them.

use mgp_tests::harness::handshake::FULL;
use mgp_tests::harness::{DEADLINE, Kernel, Program, wait_until};
use serde_json::{Value, json};

use crate::scene::{self, received};

fn form() -> Value {
    json!({"method": "elicitation/create", "params": {"message": "who?",
        "requestedSchema": {"type": "object", "properties": {}}}})
}

fn message() -> Value {
    json!({"method": "sampling/createMessage", "params": {"messages": [], "maxTokens": 1}})
}

/// Two legacy servers: `it` with these keys in its entry, and `free` without.
async fn two(keys: &str) -> Kernel {
    let program = Program::fixture(&["--era", "legacy"]);
    let servers = format!("{}{keys}\n{}", program.entry("it"), program.entry("free"));
    let kernel = Kernel::start(&servers).await;
    kernel.connected(&["it", "free"]).await;
    kernel
}

/// What one question waits for, by its name.
async fn pending(kernel: &Kernel) -> Value {
    let mut first = Value::Null;
    wait_until("a question waits", DEADLINE, async || {
        let pending = kernel.mgp_json(&["pending"]).await;
        first = pending["pending"][0].clone();
        !first.is_null()
    })
    .await;
    first
}

/// CMCP-084, CMCP-085: what is switched off for a server is not declared to it; other questions, and other servers, are as free as before.
#[tokio::test]
async fn capability_switched_off_for_one_server_is_declared_to_others() {
    let kernel = two("sampling = \"off\"").await;
    let mut agent = scene::socket_agent(&kernel, FULL).await;
    let said = json!({"role": "assistant", "model": "m", "content": {"type": "text", "text": "4"}});
    agent.answers("sampling/createMessage", said);
    agent.answers("elicitation/create", json!({"action": "decline"}));
    let declared = |frames: Vec<String>| -> Value {
        let hello = frames.iter().find(|frame| frame.contains("\"initialize\""));
        let hello: Value = serde_json::from_str(hello.unwrap()).unwrap();
        hello["params"]["capabilities"].clone()
    };
    let capabilities = declared(received(&mut agent, "it:received").await);
    assert_eq!(capabilities["sampling"], Value::Null, "{capabilities}");
    assert!(capabilities["elicitation"].is_object(), "{capabilities}");
    let capabilities = declared(received(&mut agent, "free:received").await);
    assert!(capabilities["sampling"].is_object(), "{capabilities}");
    let refused = agent.call("it:ask", message()).await;
    assert!(refused.is_error(), "{}", refused.frame);
    assert!(agent.asked().is_empty());
    let asked = agent.call("it:ask", form()).await.result();
    assert_eq!(asked["structuredContent"]["action"], "decline");
    let asked = agent.call("free:ask", message()).await.result();
    assert_eq!(asked["structuredContent"]["model"], "m");
}

/// MCP-051, CMCP-084: a completion that is to be asked for first is shown to the operator with its messages, reaches the
/// client with a yes and not before, and never with a no; what the client's person makes of it is the server's answer.
#[tokio::test]
async fn a_completion_waits_for_the_operators_yes() {
    let kernel = two("sampling = \"ask\"").await;
    let mut agent = scene::socket_agent(&kernel, FULL).await;
    let said = json!({"role": "assistant", "model": "m", "content": {"type": "text", "text": "as the person changed it"}});
    agent.answers("sampling/createMessage", said.clone());
    let messages = json!([{"role": "user", "content": {"type": "text", "text": "may I?"}}]);
    let params = json!({"messages": messages, "maxTokens": 1});
    let ask = json!({"name": "it:ask", "arguments": {"method": "sampling/createMessage", "params": params}});
    for (asked, word) in ["deny", "approve"].into_iter().enumerate() {
        let call = agent.start("tools/call", ask.clone()).await;
        let waits = pending(&kernel).await;
        assert!(waits.to_string().contains("may I?"), "{waits}");
        agent.request("ping", json!({})).await.result();
        assert!(agent.asked().is_empty(), "{:?}", agent.asked());
        let id = waits["id"].as_str().unwrap();
        kernel.mgp_json(&[word, id]).await;
        let answer = agent.answer_to(&call).await;
        match word {
            "deny" => assert!(
                answer.frame.contains("the operator said no"),
                "{}",
                answer.frame
            ),
            _ => assert_eq!(answer.result()["structuredContent"], said),
        }
        assert_eq!(agent.asked().len(), asked);
    }
    assert_eq!(agent.asked()[0]["params"]["messages"], messages);
}

/// CMCP-084: what is to be asked for first waits for the operator, and reaches the client with a yes.
#[tokio::test]
async fn a_question_waits_for_the_operators_yes() {
    let kernel = two("elicitation = \"ask\"").await;
    let mut agent = scene::socket_agent(&kernel, FULL).await;
    agent.answers(
        "elicitation/create",
        json!({"action": "accept", "content": {}}),
    );
    for (word, action) in [("approve", "accept"), ("deny", "")] {
        let params = json!({"name": "it:ask", "arguments": form()});
        let call = agent.start("tools/call", params).await;
        let waits = pending(&kernel).await;
        assert_eq!(waits["server"], "it", "{waits}");
        assert!(waits.to_string().contains("who?"), "{waits}");
        assert!(agent.asked().len() <= 1);
        kernel
            .mgp_json(&[word, waits["id"].as_str().unwrap()])
            .await;
        let answer = agent.answer_to(&call).await;
        match action {
            "" => assert!(
                answer.frame.contains("the operator said no"),
                "{}",
                answer.frame
            ),
            action => assert_eq!(answer.result()["structuredContent"]["action"], action),
        }
    }
    assert_eq!(agent.asked().len(), 1);
}

/// CMCP-084: the same of a modern server and a client that answers in its next request.
#[tokio::test]
async fn a_modern_question_is_off_as_well() {
    let program = Program::fixture(&["--era", "modern"]);
    let entry = format!("{}elicitation = \"off\"\n", program.entry("it"));
    let kernel = Kernel::start(&entry).await;
    kernel.connected(&["it"]).await;
    let modern = scene::Modern::at(&kernel.server_url("it"), FULL);
    let call = json!({"name": "ask_slow", "arguments": {"ms": 0}});
    let (_, refused) = modern.ask("tools/call", call).await;
    let words = refused.to_string();
    assert!(!words.contains("input_required"), "{words}");
    let mut watcher = scene::socket_agent(&kernel, "{}").await;
    let frames = received(&mut watcher, "it:received").await;
    let call = frames.iter().find(|frame| frame.contains("ask_slow"));
    let call = call.expect("it was called");
    assert!(
        call.contains("\"sampling\"") && !call.contains("elicitation"),
        "{call}"
    );
}

/// A server of 2025-11-25 that wants a URL visited first, in these bytes, and says a question without an id before.
const VISITS: &str = r#"while read -r line; do
id=$${line#*\"id\":}; id=$${id%%,*}
case $line in
*'"initialize"'*) result='{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"v","version":"1"}}';;
*'"tools/list"'*) result='{"tools":[{"name":"visit","inputSchema":{"type":"object"}}]}';;
*'"tools/call"'*)
printf '{"jsonrpc":"2.0","method":"elicitation/create","params":{"message":"unasked","requestedSchema":{}}}\n'
printf '{"jsonrpc":"2.0","id":%s,"error":{"code":-32042,"message":"go","data":{"elicitations":[{"mode":"url","url":"https://a.test/","elicitationId":"e","message":"secret?"}]}}}\n' "$id"
continue;;
*'"ping"'*) result='{}';;
*) continue;;
esac
printf '{"jsonrpc":"2.0","id":%s,"result":%s}\n' "$id" "$result"
done"#;

/// CMCP-084, CMCP-085: an error that sends a client to a URL is a question like any other, and one without an id is none.
#[tokio::test]
async fn switched_off_elicitation_is_not_reached_by_error_or_notification() {
    let program = Program::new("sh", ["-c", VISITS]);
    let entry = format!("{}elicitation = \"off\"\n", program.entry("it"));
    let kernel = Kernel::start(&entry).await;
    kernel.connected(&["it"]).await;
    let modern = scene::Modern::at(&kernel.server_url("it"), FULL);
    let call = json!({"name": "visit", "arguments": {}});
    let (_, modern) = modern.ask("tools/call", call).await;
    let mut agent = scene::socket_agent(&kernel, FULL).await;
    let legacy = agent.call("it:visit", json!({})).await;
    for words in [modern.to_string(), legacy.frame.clone()] {
        assert!(words.contains("switched off"), "{words}");
        assert!(!words.contains("secret?"), "{words}");
    }
    assert!(agent.heard("elicitation/create").is_empty());
    assert!(agent.asked().is_empty());
}

/// CMCP-088, CMCP-090: a client that cannot visit URLs is not sent to one.
#[tokio::test]
async fn url_elicitation_error_is_not_sent_to_a_client_without_urls() {
    let program = Program::new("sh", ["-c", VISITS]);
    let kernel = Kernel::start(&program.entry("it")).await;
    kernel.connected(&["it"]).await;
    let call = json!({"name": "visit", "arguments": {}});
    let modern = scene::Modern::at(&kernel.server_url("it"), "{}");
    let (_, refused) = modern.ask("tools/call", call.clone()).await;
    assert_eq!(refused["error"]["code"], -32021, "{refused}");
    let modern = scene::Modern::at(&kernel.server_url("it"), FULL);
    let (_, asked) = modern.ask("tools/call", call).await;
    assert_eq!(asked["result"]["resultType"], "input_required", "{asked}");
}
