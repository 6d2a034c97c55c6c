//! server-everything of npm over stdio: each feature of the protocol that it shows.

use mgp_tests::harness::{Agent, Need, Peers};
use serde_json::{Value, json};

use super::both_ways::BothWays;

async fn everything() -> Option<BothWays> {
    let peers = Peers::find(&[Need::Node])?;
    Some(BothWays::start(&peers.everything()).await)
}

/// MCP-026, MCP-036, MCP-037, MCP-043, MGP-001: definitions are relayed to the byte.
#[tokio::test]
async fn every_list_is_the_same_to_the_byte() {
    let Some(mut both) = everything().await else {
        return;
    };
    let tools = both.same_items("tools/list", "tools").await;
    assert!(
        tools
            .iter()
            .any(|tool| tool["name"] == "trigger-sampling-request")
    );
    both.same_items("resources/list", "resources").await;
    both.same_items("resources/templates/list", "resourceTemplates")
        .await;
    both.same_items("prompts/list", "prompts").await;
}

/// MCP-031, MCP-032, MCP-033, MCP-046, CMCP-050: results of every kind of content, errors too.
#[tokio::test]
async fn tools_answer_the_same_to_the_byte() {
    let Some(mut both) = everything().await else {
        return;
    };
    let echo = both
        .same_call("echo", json!({"message": "grüße \u{1F980} \"\\\n"}))
        .await;
    assert_eq!(echo.text(), "Echo: grüße \u{1F980} \"\\\n");
    assert!(
        both.same_call("get-sum", json!({"a": 2, "b": 40}))
            .await
            .text()
            .contains("42")
    );
    let image = both.same_call("get-tiny-image", json!({})).await;
    assert_eq!(image.result()["content"][1]["type"], "image");
    let annotated = json!({"messageType": "error", "includeImage": true});
    both.same_call("get-annotated-message", annotated).await;
    both.same_call("get-resource-links", json!({"count": 5}))
        .await;
    let weather = both
        .same_call("get-structured-content", json!({"location": "Chicago"}))
        .await;
    assert!(weather.result()["structuredContent"]["temperature"].is_number());
}

/// MCP-038, MCP-039, MCP-089: what is there is read, what is not is an error.
#[tokio::test]
async fn resources_read_the_same_to_the_byte() {
    let Some(mut both) = everything().await else {
        return;
    };
    let uri = "demo://resource/static/document/features.md";
    let read = both.same("resources/read", json!({"uri": uri})).await;
    assert_eq!(read.result()["contents"][0]["mimeType"], "text/markdown");
    for (way, agent) in both.everybody() {
        let uri = "demo://resource/dynamic/blob/7";
        let blob = agent.request("resources/read", json!({"uri": uri})).await;
        assert!(blob.result()["contents"][0]["blob"].is_string(), "{way}");
        let none = agent
            .request("resources/read", json!({"uri": "demo://nowhere"}))
            .await;
        assert!(none.error()["message"].is_string(), "{way}");
    }
}

/// MCP-044, MCP-058: prompts and the completion of their arguments, with context.
#[tokio::test]
async fn prompts_and_completions_are_the_same_to_the_byte() {
    let Some(mut both) = everything().await else {
        return;
    };
    both.same("prompts/get", json!({"name": "simple-prompt"}))
        .await;
    let arguments = json!({"city": "Ulm", "state": "BW"});
    let prompt = both.same(
        "prompts/get",
        json!({"name": "args-prompt", "arguments": arguments}),
    );
    assert!(prompt.await.result_text().contains("Ulm"));
    let completion = json!({
        "ref": {"type": "ref/prompt", "name": "completable-prompt"},
        "argument": {"name": "name", "value": ""},
        "context": {"arguments": {"department": "Sales"}},
    });
    let values = both.same("completion/complete", completion).await;
    assert_eq!(
        values.result()["completion"]["values"],
        json!(["David", "Eve", "Frank"])
    );
    let template = "demo://resource/dynamic/text/{resourceId}";
    let completion = json!({
        "ref": {"type": "ref/resource", "uri": template},
        "argument": {"name": "resourceId", "value": "12"},
    });
    let values = both.same("completion/complete", completion).await;
    assert_eq!(values.result()["completion"]["values"], json!(["12"]));
}

/// MCP-056, MCP-057, CMCP-061: progress carries the caller's own token, and comes only when asked.
#[tokio::test]
async fn progress_carries_the_callers_token() {
    let Some(mut both) = everything().await else {
        return;
    };
    for (way, agent) in both.everybody() {
        let arguments = json!({"duration": 0.4, "steps": 4});
        let name = "trigger-long-running-operation";
        for token in [json!("a token"), json!(7)] {
            let meta = json!({"progressToken": token});
            let params = json!({"name": name, "arguments": arguments, "_meta": meta});
            agent.request("tools/call", params).await.result();
            for step in 1..=4 {
                let progress = agent.hears("notifications/progress").await["params"].take();
                assert_eq!(progress["progressToken"], token, "{way}");
                assert_eq!(progress["progress"], step, "{way}");
            }
        }
        agent.call(name, arguments).await.result();
        assert!(agent.heard("notifications/progress").is_empty(), "{way}");
    }
}

/// MCP-048, CMCP-086: the agent whose call is in flight is asked for a completion.
#[tokio::test]
async fn sampling_reaches_the_agent_that_called() {
    let Some(mut both) = everything().await else {
        return;
    };
    both.same_items("tools/list", "tools").await;
    let content = json!({"type": "text", "text": "four"});
    let sampled =
        json!({"role": "assistant", "content": content, "model": "m", "stopReason": "endTurn"});
    both.answer("sampling/createMessage", &sampled);
    let arguments = json!({"prompt": "two and two", "maxTokens": 9});
    let answer = both.same_call("trigger-sampling-request", arguments).await;
    assert!(
        answer.text().contains("\"text\": \"four\""),
        "{}",
        answer.frame
    );
    for (way, agent) in both.everybody() {
        let asked = asked(agent, "sampling/createMessage");
        assert_eq!(asked["maxTokens"], 9, "{way}");
        assert_eq!(
            asked["systemPrompt"], "You are a helpful test server.",
            "{way}"
        );
    }
}

/// CMCP-087: a form reaches the agent that called, and every answer to it the server.
#[tokio::test]
async fn a_form_is_filled_in_declined_and_cancelled() {
    let Some(mut both) = everything().await else {
        return;
    };
    both.same_items("tools/list", "tools").await;
    let filled =
        json!({"action": "accept", "content": {"name": "Ada", "check": true, "integer": 42}});
    for (answer, says) in [
        (filled, "provided the requested information"),
        (json!({"action": "decline"}), "declined"),
        (json!({"action": "cancel"}), "cancelled"),
    ] {
        both.answer("elicitation/create", &answer);
        let result = both
            .same_call("trigger-elicitation-request", json!({}))
            .await;
        assert!(result.text().contains(says), "{}", result.frame);
    }
    for (way, agent) in both.everybody() {
        let form = asked(agent, "elicitation/create");
        assert_eq!(
            form["requestedSchema"]["required"],
            json!(["name"]),
            "{way}"
        );
    }
}

/// CMCP-090: an agent that can open addresses is asked to, and is told which error wants it.
#[tokio::test]
async fn an_address_is_opened_on_request_and_after_an_error() {
    let Some(mut both) = everything().await else {
        return;
    };
    both.same_items("tools/list", "tools").await;
    both.answer("elicitation/create", &json!({"action": "accept"}));
    let url = "https://example.com/sign-in";
    let arguments = json!({"url": url, "message": "Sign in", "elicitationId": "one"});
    both.same_call("trigger-url-elicitation", arguments).await;
    for (way, agent) in both.everybody() {
        let asked = asked(agent, "elicitation/create");
        assert_eq!(
            (&asked["mode"], &asked["url"]),
            (&json!("url"), &json!(url)),
            "{way}"
        );
        let id = format!("two {way}");
        let failing = json!({"url": url, "message": "m", "elicitationId": id, "errorPath": true});
        let error = agent.call("trigger-url-elicitation", failing).await;
        assert_eq!(error.code(), -32042, "{way}");
        assert_eq!(
            error.error()["data"]["elicitations"][0]["mode"],
            "url",
            "{way}"
        );
    }
}

/// MCP-040, MCP-041: updates of a resource reach those who subscribed.
#[tokio::test]
async fn an_update_of_a_resource_reaches_its_subscribers() {
    let Some(mut both) = everything().await else {
        return;
    };
    let uri = "demo://resource/static/document/features.md";
    both.same("resources/subscribe", json!({"uri": uri})).await;
    // The server toggles: one call directly, one through the kernel.
    let mut agents: Vec<(&str, &mut Agent)> = both.everybody().collect();
    for (_, agent) in &mut agents[..2] {
        agent
            .call("toggle-subscriber-updates", json!({}))
            .await
            .result();
    }
    for (way, agent) in agents {
        let update = agent.hears("notifications/resources/updated").await;
        assert_eq!(update["params"]["uri"], uri, "{way}");
    }
}

/// MCP-059, MCP-061: log messages of the server arrive at the level that was set, and none below.
#[tokio::test]
async fn log_messages_arrive_at_the_level_that_was_set() {
    let Some(mut both) = everything().await else {
        return;
    };
    let uri = json!({"uri": "demo://resource/static/document/features.md"});
    both.same("logging/setLevel", json!({"level": "info"}))
        .await;
    both.same("resources/unsubscribe", uri.clone()).await;
    for (way, agent) in both.everybody() {
        let message = agent.hears("notifications/message").await;
        assert_eq!(message["params"]["level"], "info", "{way}");
    }
    for (way, agent) in both.everybody() {
        agent
            .request("logging/setLevel", json!({"level": "error"}))
            .await
            .result();
        agent.forget();
        agent
            .request("resources/unsubscribe", uri.clone())
            .await
            .result();
        agent.request("ping", json!({})).await.result();
        assert!(agent.heard("notifications/message").is_empty(), "{way}");
    }
}

/// MGP-001, MGP-009: no word of MGP is on the wire of those who did not ask for it.
#[tokio::test]
async fn plain_agent_gets_no_message_of_mgp() {
    let Some(peers) = Peers::find(&[Need::Node]) else {
        return;
    };
    let both = BothWays::start(&peers.everything()).await;
    for mut agent in [both.kernel.http_agent(None), both.kernel.stdio_agent(None)] {
        let opened = agent.initialize(super::both_ways::SPOKEN, "{}").await;
        assert!(!opened.frame.contains("mgp\":"), "{}", opened.frame);
        let tools = agent.request("tools/list", json!({})).await.result();
        let named = |tool: &Value| {
            tool["name"]
                .as_str()
                .is_some_and(|name| name.ends_with("echo"))
        };
        let tool = tools["tools"]
            .as_array()
            .unwrap()
            .iter()
            .find(|tool| named(tool));
        let name = tool.unwrap()["name"].as_str().unwrap().to_owned();
        let echo = agent.call(&name, json!({"message": "hi"})).await;
        assert_eq!(echo.text(), "Echo: hi");
        assert!(!echo.frame.contains("mgp"), "{}", echo.frame);
        let mgp = agent
            .all_heard()
            .iter()
            .find(|heard| heard.to_string().contains("mgp"));
        assert!(mgp.is_none(), "{mgp:?}");
    }
}

/// What the agent was asked for first with this method.
fn asked(agent: &Agent, method: &str) -> Value {
    let of_method = agent
        .asked()
        .iter()
        .find(|request| request["method"] == method);
    of_method.unwrap_or_else(|| panic!("{method} was asked"))["params"].clone()
}
