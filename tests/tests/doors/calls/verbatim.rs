//! Passthrough: what the kernel does not have to change arrives to the byte, both ways.

use mgp_tests::harness::{Agent, Kernel, Program};

use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::scene::{self, NEWEST};

/// Fields nobody has heard of, keys in an odd order, numbers no float holds, every kind of escape.
const ODD: &str = r#"{"zeta":1,"alpha":{"b":[1.0,1e300,-0,12345678901234567890123,0.1000000000000000055511151231257827],"a":null},"text":"a\u00e9\ud83e\udd80\u0000\/\"\\\n é","":{},"dup ":" spaces "}"#;

/// MCP-031, CMCP-002, CMCP-003: arguments reach the server as the agent wrote them.
#[tokio::test]
async fn arguments_reach_the_server_to_the_byte() {
    let kernel = scene::kernel().await;
    let client = scene::session(&kernel, NEWEST).await;
    let mut agent = scene::socket_agent(&kernel, "{}").await;
    let params = format!(
        r#"{{"arguments":{ODD},"x-unknown":{ODD},"name":"greet","_meta":{{"trace":{ODD},"z":1}}}}"#
    );
    for id in ["41", r#""b""#] {
        let frame =
            format!(r#"{{"method":"tools/call","params":{params},"id":{id},"jsonrpc":"2.0"}}"#);
        client.post(frame.clone()).await.frames().await;
        agent.send(&frame).await;
        let answer = agent.answer_to(&serde_json::from_str(id).unwrap()).await;
        assert_ne!(answer.result()["isError"], true, "{}", answer.frame);
    }
    let heard = scene::received(&mut agent, "received").await;
    let calls: Vec<&String> = heard
        .iter()
        .filter(|frame| frame.contains("x-unknown"))
        .collect();
    assert_eq!(calls.len(), 4, "{heard:#?}");
    for call in calls {
        assert!(call.contains(&format!(r#""params":{params}"#)), "{call}");
    }
}

/// CMCP-001, CMCP-002, MCP-032: a result reaches the agent as the server wrote it, whichever door.
#[tokio::test]
async fn results_reach_the_agent_to_the_byte() {
    let kernel = scene::kernel().await;
    let mut direct = Agent::over_stdio(&Program::fixture(&[]));
    direct.initialize(NEWEST, "{}").await.result();
    let client = scene::session(&kernel, NEWEST).await;
    let mut agent = scene::socket_agent(&kernel, "{}").await;
    for (tool, arguments) in [
        ("test_image_content", "{}".to_owned()),
        ("test_audio_content", "{}".to_owned()),
        ("test_embedded_resource", "{}".to_owned()),
        ("test_multiple_content_types", "{}".to_owned()),
        ("test_error_handling", "{}".to_owned()),
        ("structured_echo", format!(r#"{{"text":{}}}"#, json!(ODD))),
        (
            "test_structured",
            r#"{"a":9007199254740993,"b":0}"#.to_owned(),
        ),
    ] {
        let frame = format!(
            r#"{{"jsonrpc":"2.0","id":77,"method":"tools/call","params":{{"name":"{tool}","arguments":{arguments}}}}}"#
        );
        direct.send(&frame).await;
        let wanted = direct.answer_to(&json!(77)).await;
        agent.send(&frame).await;
        let through = agent.answer_to(&json!(77)).await;
        assert_eq!(through.result_text(), wanted.result_text(), "{tool}");
        let frames = client.post(frame).await.frames().await;
        assert!(
            frames[0].contains(wanted.result_text()),
            "{tool}: {}",
            frames[0]
        );
    }
}

/// The definitions of a list reach an agent as the server wrote them, at all servers but for the qualified name; they are
/// given as at the server.
async fn assert_verbatim(method: &str, key: &str, flags: &[&str]) -> Vec<Value> {
    let server = Program::fixture(flags);
    let kernel = Kernel::start(&server.entry("it")).await;
    kernel.connected(&["it"]).await;
    let mut direct = Agent::over_stdio(&server);
    direct.initialize(NEWEST, "{}").await.result();
    let mut alone = scene::http_agent(&kernel, Some("it"), "{}").await;
    let mut everything = scene::http_agent(&kernel, None, "{}").await;
    let own = definitions(&mut direct, method, key).await;
    assert_eq!(definitions(&mut alone, method, key).await, own, "{method}");
    let shown = definitions(&mut everything, method, key).await;
    let named = matches!(key, "tools" | "prompts");
    let expected = own.iter().map(|raw| {
        if named {
            raw.replacen(r#""name":""#, r#""name":"it__"#, 1)
        } else {
            raw.clone()
        }
    });
    assert_eq!(shown, expected.collect::<Vec<_>>(), "{method}");
    own.iter()
        .map(|raw| serde_json::from_str(raw).unwrap())
        .collect()
}

/// Some of the definitions has this member, which makes the comparison one of it.
fn assert_has(definitions: &[Value], member: &str) {
    let has = definitions.iter().any(|one| one.get(member).is_some());
    assert!(has, "none has {member}: {definitions:?}");
}

/// MCP-026, CMCP-047, CMCP-048.
#[tokio::test]
async fn tool_definitions_reach_the_agent_to_the_byte() {
    let tools = assert_verbatim("tools/list", "tools", &[]).await;
    for member in [
        "description",
        "inputSchema",
        "outputSchema",
        "annotations",
        "title",
    ] {
        assert_has(&tools, member);
    }
}

/// CMCP-049.
#[tokio::test]
async fn icons_reach_the_agent_to_the_byte() {
    let icons =
        json!([{"src": "https://example.com/i.png", "mimeType": "image/png", "sizes": ["48x48"]}]);
    let tool = json!({"name": "drawn", "icons": icons, "inputSchema": {"type": "object"}});
    let flags = ["--tool", &tool.to_string()];
    let tools = assert_verbatim("tools/list", "tools", &flags).await;
    assert_has(&tools, "icons");
}

/// MCP-036.
#[tokio::test]
async fn resource_definitions_reach_the_agent_to_the_byte() {
    let resources = assert_verbatim("resources/list", "resources", &[]).await;
    for member in ["uri", "name", "description", "mimeType"] {
        assert_has(&resources, member);
    }
}

/// MCP-037.
#[tokio::test]
async fn resource_template_definitions_reach_the_agent_to_the_byte() {
    let templates = assert_verbatim("resources/templates/list", "resourceTemplates", &[]).await;
    for member in ["uriTemplate", "name", "mimeType"] {
        assert_has(&templates, member);
    }
}

/// MCP-043.
#[tokio::test]
async fn prompt_definitions_reach_the_agent_to_the_byte() {
    let prompts = assert_verbatim("prompts/list", "prompts", &[]).await;
    for member in ["description", "arguments"] {
        assert_has(&prompts, member);
    }
}

async fn definitions(agent: &mut Agent, method: &str, key: &str) -> Vec<String> {
    let answer = agent.request(method, json!({})).await;
    let result: std::collections::HashMap<&str, &RawValue> =
        serde_json::from_str(answer.result_text()).unwrap();
    let items: Vec<&RawValue> = serde_json::from_str(result[key].get()).unwrap();
    items.iter().map(|item| item.get().to_owned()).collect()
}

/// MCP-035: a call without `arguments` is one with none.
#[tokio::test]
async fn call_without_arguments_is_one_with_none() {
    let kernel = scene::kernel().await;
    let mut agent = scene::http_agent(&kernel, None, "{}").await;
    let called = agent
        .request("tools/call", json!({"name": "test_simple_text"}))
        .await;
    assert!(called.text().starts_with("This is a simple text"));
}

/// MCP-034: the error of a server is passed on as it is, its data included.
#[tokio::test]
async fn error_of_a_server_reaches_the_agent_unchanged() {
    let kernel = scene::kernel().await;
    let mut agent = scene::http_agent(&kernel, Some("it"), "{}").await;
    let mut direct = Agent::over_stdio(&Program::fixture(&[]));
    direct.initialize(NEWEST, "{}").await.result();
    for (method, params) in [
        ("resources/read", json!({"uri": "test://no-such"})),
        ("tools/call", json!({"name": "protocol_error_job"})),
    ] {
        let through = agent.request(method, params.clone()).await;
        let wanted = direct.request(method, params).await;
        assert_eq!(through.error(), wanted.error(), "{method}");
    }
}
