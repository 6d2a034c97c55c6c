//! Prompts, and the completion of arguments.

use mgp_tests::harness::Agent;
use serde_json::{Value, json};

use crate::scene::{self, NEWEST, counts};

/// A prompt reaches an agent as its server renders it, under this name; the result.
async fn assert_rendered(
    prompts: &[(&str, Value)],
    name_at: impl Fn(&str) -> String,
) -> Vec<Value> {
    let kernel = scene::kernel().await;
    let mut direct = Agent::over_stdio(&mgp_tests::harness::Program::fixture(&[]));
    direct.initialize(NEWEST, "{}").await.result();
    let mut agent = scene::http_agent(&kernel, None, "{}").await;
    let mut results = Vec::new();
    for (name, arguments) in prompts {
        let ask = |name: &str| json!({"arguments": arguments, "name": name});
        let wanted = direct.request("prompts/get", ask(name)).await;
        let got = agent.request("prompts/get", ask(&name_at(name))).await;
        assert_eq!(got.result_text(), wanted.result_text(), "{name}");
        results.push(got.result());
    }
    results
}

fn with_arguments() -> (&'static str, Value) {
    (
        "test_prompt_with_arguments",
        json!({"arg1": "é", "arg2": "\"2\""}),
    )
}

/// MCP-044.
#[tokio::test]
async fn prompt_with_arguments_is_rendered_by_its_server() {
    let prompts = [("test_simple_prompt", json!({})), with_arguments()];
    let results = assert_rendered(&prompts, |name| format!("it__{name}")).await;
    for result in &results {
        assert!(result["messages"][0]["role"].is_string(), "{result}");
    }
    assert!(results[1].to_string().contains('é'), "{results:?}");
}

/// MCP-046: the other types are in those of tools.
#[tokio::test]
async fn prompt_messages_carry_resources_and_images() {
    let prompts = [
        (
            "test_prompt_with_embedded_resource",
            json!({"resourceUri": "test://x"}),
        ),
        ("test_prompt_with_image", json!({})),
    ];
    let results = assert_rendered(&prompts, |name| format!("it__{name}")).await;
    for (result, kind) in results.iter().zip(["resource", "image"]) {
        let messages = result["messages"].as_array().unwrap();
        let found = messages.iter().any(|one| one["content"]["type"] == kind);
        assert!(found, "{kind}: {result}");
    }
}

/// CMCP-081.
#[tokio::test]
async fn prompt_is_found_by_each_of_its_names() {
    assert_rendered(&[with_arguments()], |name| format!("it__{name}")).await;
    assert_rendered(&[with_arguments()], |name| format!("it:{name}")).await;
    assert_rendered(&[with_arguments()], str::to_owned).await;
}

/// MCP-058: an argument is completed by the server whose prompt or template it belongs to.
#[tokio::test]
async fn an_argument_is_completed_by_the_server_it_belongs_to() {
    let kernel = scene::kernel_of_two().await;
    let mut agent = scene::http_agent(&kernel, None, "{}").await;
    let mut alone = scene::http_agent(&kernel, Some("two"), "{}").await;
    let complete = async |agent: &mut Agent, reference: Value| {
        let params = json!({"argument": {"value": "par", "name": "arg1"}, "ref": reference});
        agent.request("completion/complete", params).await
    };
    let prompt = |name: &str| json!({"type": "ref/prompt", "name": name});
    let template = |uri: &str| json!({"uri": uri, "type": "ref/resource"});
    for reference in [
        prompt("two__test_prompt_with_arguments"),
        prompt("two:test_prompt_with_arguments"),
        template("mcpk://two/test://template/{id}/data"),
    ] {
        let completion = complete(&mut agent, reference.clone()).await.result();
        assert_eq!(
            completion["completion"]["values"],
            json!(["paris", "park", "party"])
        );
        let heard = scene::received(&mut agent, "two:received").await;
        let own = heard
            .iter()
            .rev()
            .find(|frame| frame.contains("completion/complete"));
        let own: Value = serde_json::from_str(own.unwrap()).unwrap();
        let own = &own["params"]["ref"];
        let known = [
            prompt("test_prompt_with_arguments"),
            template("test://template/{id}/data"),
        ];
        assert!(known.contains(own), "{reference}: {own}");
    }
    complete(&mut alone, template("test://template/{id}/data"))
        .await
        .result();
    complete(&mut alone, prompt("test_prompt_with_arguments"))
        .await
        .result();
    assert_eq!(
        counts(&mut agent, "one:count").await["methods"].get("completion/complete"),
        None
    );
    for (reference, code) in [
        (prompt("test_prompt_with_arguments"), -32602),
        (prompt("no_such"), -32602),
        (template("no://such/{x}"), -32002),
        (json!({"type": "ref/other"}), -32602),
        (json!({"type": "ref/prompt"}), -32602),
    ] {
        assert_eq!(
            complete(&mut agent, reference.clone()).await.code(),
            code,
            "{reference}"
        );
    }
}
