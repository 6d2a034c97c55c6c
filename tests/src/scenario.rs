//! The client scenarios of the official conformance suite, played through a kernel: what the suite
//! would have a client do, an agent does at the kernel's door.

mod logins;
mod skills;

use clap::ValueEnum;
use serde_json::{Map, Value, json};

use crate::harness::envelope::MODERN;
use crate::harness::modern::{again, wanting};
use crate::harness::program::remote_entry;
use crate::harness::{Client, Kernel, ModernAgent};

/// The version of a legacy agent.
const LEGACY: &str = "2025-11-25";

/// What the agent can do.
const ABLE: &str = r#"{"elicitation":{"form":{}},"sampling":{},"roots":{}}"#;

/// Which era the agent is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Era {
    /// It opens with `initialize`.
    Legacy,
    /// Its requests stand alone.
    Modern,
}

/// A scenario, as the suite describes it to the program it starts.
#[derive(Debug, Clone)]
pub struct Scenario {
    name: String,
    /// More that the suite wants done.
    context: Value,
}

impl Scenario {
    /// The one that the suite set this process's environment for.
    ///
    /// # Panics
    /// When it did not.
    #[must_use]
    pub fn from_environment() -> Self {
        let name = std::env::var("MCP_CONFORMANCE_SCENARIO").expect("the suite names a scenario");
        let context = std::env::var("MCP_CONFORMANCE_CONTEXT").unwrap_or_else(|_| "{}".to_owned());
        Self {
            name,
            context: serde_json::from_str(&context).expect("the suite writes JSON"),
        }
    }

    /// Plays it with an agent of this era against the server at `url`.
    ///
    /// # Panics
    /// When something comes that should not.
    pub async fn play(&self, era: Era, url: &str) {
        if let Some(guarded) = self.name.strip_prefix("auth/") {
            return logins::play(guarded, &self.context, era, url).await;
        }
        let kernel = Kernel::start(&remote_entry("it", url)).await;
        kernel.connected(&["it"]).await;
        let version = match era {
            Era::Legacy => LEGACY,
            Era::Modern => MODERN,
        };
        let mut client = Client::over_http(&kernel.server_url("it"), version, ABLE).await;
        self.act(&mut client).await;
        client.close().await;
    }

    async fn act(&self, client: &mut Client) {
        if let Some(skill) = self.name.strip_prefix("sep-2640-client-") {
            return skills::play(skill, client).await;
        }
        match self.name.as_str() {
            "initialize" | "request-metadata" | "json-schema-ref-no-deref" => {
                // The server of some of them offers no tools.
                let listed = client.request("tools/list", json!({})).await;
                assert!(!listed.is_error() || listed.code() == -32601);
            }
            "tools_call" => add_numbers(client).await,
            "elicitation-sep1034-client-defaults" => defaults(client).await,
            "sse-retry" => {
                let answer = client.call("test_reconnection", json!({})).await;
                assert_eq!(answer.text(), "Reconnection test completed successfully");
            }
            "sep-2322-client-request-state" => rounds(client).await,
            "http-standard-headers" => everything_once(client).await,
            "http-custom-headers" => self.custom_headers(client).await,
            "http-invalid-tool-headers" => {
                assert_eq!(names(&list(client).await), ["valid_tool"]);
                let arguments = json!({"region": "us-west1"});
                client.call("valid_tool", arguments).await.result();
            }
            "json-schema-2020-12-preservation" => schema_there_and_back(client).await,
            unknown => panic!("nobody wrote down what {unknown} wants"),
        }
    }

    /// Calls what the suite says, leaving out what is null: the kernel holds arguments to the schema
    /// of their tool, where null is no boolean.
    async fn custom_headers(&self, client: &mut Client) {
        list(client).await;
        let calls = self.context["toolCalls"].as_array().expect("calls to make");
        for call in calls {
            let name = call["name"].as_str().expect("a tool's name");
            let arguments = call["arguments"].as_object().cloned().unwrap_or_default();
            let said: Map<String, Value> = arguments
                .into_iter()
                .filter(|(_, value)| !value.is_null())
                .collect();
            let answer = client.call(name, said.into()).await;
            assert_eq!(answer.text(), "Custom headers test completed");
        }
    }
}

async fn list(client: &mut Client) -> Value {
    client.request("tools/list", json!({})).await.result()
}

fn names(list: &Value) -> Vec<&str> {
    let tools = list["tools"].as_array().into_iter().flatten();
    tools.filter_map(|tool| tool["name"].as_str()).collect()
}

async fn add_numbers(client: &mut Client) {
    assert_eq!(names(&list(client).await), ["add_numbers"]);
    let answer = client.call("add_numbers", json!({"a": 5, "b": 3})).await;
    assert_eq!(answer.text(), "The sum of 5 and 3 is 8");
}

/// The form reaches the agent with its defaults, and they are what it accepts.
async fn defaults(client: &mut Client) {
    let content = json!({
        "name": "John Doe", "age": 30, "score": 95.5, "status": "active", "verified": true,
    });
    let answer = json!({"action": "accept", "content": content});
    client.answers("elicitation/create", answer);
    list(client).await;
    let called = client.call("test_client_elicitation_defaults", json!({}));
    let said = called.await.text();
    assert!(said.starts_with("Elicitation completed"), "{said}");
    let properties = &client.asked()[0]["params"]["requestedSchema"]["properties"];
    for (name, value) in content.as_object().expect("it is one") {
        assert_eq!(properties[name]["default"], *value);
    }
}

/// Each tool asks for a confirmation, or does not; one is called between two rounds of another.
async fn rounds(client: &mut Client) {
    let confirmed = json!({"action": "accept", "content": {"confirmed": true}});
    client.answers("elicitation/create", confirmed);
    list(client).await;
    if let Client::Modern(agent) = client {
        between_rounds(agent).await;
    }
    for (tool, text) in [
        ("test_mrtr_echo_state", "echo-state-ok"),
        ("test_mrtr_unrelated", "unrelated-ok"),
        ("test_mrtr_no_state", "no-state-ok"),
        ("test_mrtr_unrelated", "unrelated-ok"),
        ("test_mrtr_no_result_type", "no-result-type-test-ok"),
    ] {
        assert_eq!(client.call(tool, json!({})).await.text(), text);
    }
}

async fn between_rounds(agent: &mut ModernAgent) {
    let params = json!({"name": "test_mrtr_echo_state", "arguments": {}});
    let question = wanting(&agent.ask("tools/call", params.clone()).await);
    let question = question.expect("a question");
    let other = agent.call("test_mrtr_unrelated", json!({})).await;
    assert_eq!(other.text(), "unrelated-ok");
    let responses = agent.respond(&question);
    let next = again(&params, &question, responses);
    let answer = agent.ask("tools/call", next).await;
    assert_eq!(answer.text(), "echo-state-ok");
}

/// Every method that names something, for its headers; what comes of it is no matter.
async fn everything_once(client: &mut Client) {
    let tools = list(client).await;
    for tool in names(&tools) {
        client.call(tool, json!({})).await.result();
    }
    let resources = client.request("resources/list", json!({})).await.result();
    for resource in resources["resources"].as_array().into_iter().flatten() {
        let params = json!({"uri": resource["uri"]});
        client.request("resources/read", params).await;
    }
    let prompts = client.request("prompts/list", json!({})).await.result();
    for prompt in prompts["prompts"].as_array().into_iter().flatten() {
        let params = json!({"name": prompt["name"]});
        client.request("prompts/get", params).await.result();
    }
}

async fn schema_there_and_back(client: &mut Client) {
    let list = list(client).await;
    let tools = list["tools"].as_array().into_iter().flatten();
    let mut tools = tools.filter(|tool| tool["name"] == "json_schema_2020_12_tool");
    let schema = &tools.next().expect("the tool to look at")["inputSchema"];
    let arguments = json!({"schema": schema});
    let answer = client.call("json_schema_echo", arguments).await;
    assert_eq!(answer.text(), "echoed");
}
