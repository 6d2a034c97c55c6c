//! Calls that wait for a person while their owner is lost, and agents that nobody can ask.

use mgp_tests::harness::kernel::nodes::JoinedNodes;
use mgp_tests::harness::modern::{again, wanting};
use mgp_tests::harness::{Agent, Answer, ModernAgent, Program};
use serde_json::{Value, json};

use crate::replicas::Replicas;
use crate::scene::{NEWEST, node};

const ASKS: &str = "elicitation/create";
const CAPABILITIES: &str = r#"{"elicitation":{"form":{}}}"#;
const TOOL: &str = "test_elicitation";

fn arguments() -> Value {
    json!({"message": "who?"})
}

/// The answer says that nobody knows what became of the call, and so does the log under its id.
async fn is_unknown(replicas: &Replicas, answer: &Answer) {
    let error = answer.error();
    assert_eq!(error["data"]["outcome"], "unknown", "{error:#}");
    let id = error["data"]["callId"].as_str().unwrap();
    let shown = replicas.desk.mgp_json(&["calls", "show", id]).await;
    assert_eq!(shown["outcome"], "unknown", "{shown:#}");
}

/// Nobody else made it.
async fn made_nowhere_else(replicas: &Replicas) {
    let (left, _) = replicas.owners[0];
    assert_eq!(replicas.calls(left, TOOL).await, Value::Null);
}

/// A call that asks a question was made, whatever round it is in. When its owner is killed meanwhile, the question is
/// withdrawn at the agent, the outcome is unknown, and the other owner does not make it.
#[tokio::test(flavor = "multi_thread")]
async fn call_with_an_elicitation_is_not_retried_when_its_owner_is_killed() {
    // A server with sessions waits at its owner; one without waits nowhere.
    for era in ["legacy", "modern"] {
        let mut replicas = Replicas::sharing(&["--era", era], "").await;
        let tool = replicas.text.replace("test_simple_text", TOOL);
        let mut agent = Agent::over_socket(&replicas.desk.socket()).await;
        agent.initialize(NEWEST, CAPABILITIES).await.result();
        agent.leave_unanswered(ASKS);
        let params = json!({"name": tool, "arguments": arguments()});
        let call = agent.start("tools/call", params).await;
        let question = agent.wait_for_request(ASKS, 1).await;
        let gone = replicas.executed_at(TOOL).await;
        replicas.kill(gone).await;
        let withdrawn = agent.hears("notifications/cancelled").await;
        assert_eq!(withdrawn["params"]["requestId"], question["id"], "{era}");
        let lost = agent.answer_to(&call).await;
        is_unknown(&replicas, &lost).await;
        let yes = json!({"action": "accept", "content": {"username": "u", "email": "e"}});
        agent.reply(&question, yes).await;
        made_nowhere_else(&replicas).await;
        assert_eq!(agent.asked().len(), 1, "{era}: nobody asks again");
    }
}

/// The same of a client without sessions, which brings the answer with a request of its own.
#[tokio::test(flavor = "multi_thread")]
async fn an_answer_for_an_owner_that_is_lost_is_taken_by_no_other_one() {
    let mut replicas = Replicas::sharing(&["--era", "legacy"], "").await;
    let tool = replicas.text.replace("test_simple_text", TOOL);
    let mut agent = ModernAgent::over_socket(&replicas.desk.socket(), CAPABILITIES).await;
    let params = json!({"name": tool, "arguments": arguments()});
    let asked = wanting(&agent.ask("tools/call", params.clone()).await).unwrap();
    let gone = replicas.executed_at(TOOL).await;
    replicas.kill(gone).await;
    agent.answers(ASKS, json!({"action": "decline"}));
    let responses = agent.respond(&asked);
    let next = again(&params, &asked, responses);
    let lost = agent.ask("tools/call", next).await;
    is_unknown(&replicas, &lost).await;
    made_nowhere_else(&replicas).await;
}

/// What an agent that cannot be asked is answered does not depend on which node has the server: the server reads that it
/// cannot be asked, and finishes.
#[tokio::test(flavor = "multi_thread")]
async fn agent_without_elicitation_is_answered_as_at_its_own_node() {
    let demo = Program::fixture(&["--era", "legacy"]).entry("demo");
    let (nas, desk) = (node("nas", &demo).await, node("desk", &demo).await);
    desk.connected(&["demo"]).await;
    let nodes = JoinedNodes::joined(nas, desk, &["demo"]).await;
    let calls = [
        (TOOL, arguments()),
        ("test_sampling", json!({"prompt": "a word"})),
        ("ask", json!({"method": "roots/list", "params": {}})),
    ];
    for version in [NEWEST, "2025-06-18"] {
        let mut agent = Agent::over_socket(&nodes.desk.socket()).await;
        agent.initialize(version, "{}").await.result();
        for (tool, arguments) in &calls {
            let mut answers = Vec::new();
            for server in ["demo", "nas__demo"] {
                let name = format!("{server}__{tool}");
                let answer = agent.call(&name, arguments.clone()).await;
                answers.push(parse_frame(&answer.frame));
            }
            assert_eq!(answers[1], answers[0], "{version}: {tool}");
        }
    }
    // Who declares with each request what it can learns what it lacks, and that the call was made.
    let mut agent = ModernAgent::over_socket(&nodes.desk.socket(), "{}").await;
    for name in ["demo", "nas__demo"] {
        let answer = agent.ask(
            "tools/call",
            json!({"name": format!("{name}__{TOOL}"), "arguments": arguments()}),
        );
        let error = answer.await.error();
        assert_eq!(error["code"], -32021, "{name}: {error:#}");
        let lacks = &error["data"]["requiredCapabilities"];
        assert_eq!(*lacks, json!({"elicitation": {"form": {}}}), "{error:#}");
        assert_eq!(error["data"]["outcome"], "unknown", "{error:#}");
    }
}

/// What was answered, without the id of the request.
fn parse_frame(frame: &str) -> Value {
    let frame: Value = serde_json::from_str(frame).unwrap();
    json!({"result": frame["result"], "error": frame["error"]})
}
