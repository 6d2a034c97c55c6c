//! Agents that ask one another (`mgp.agent.ask` of later drafts).

use mgp_tests::harness::mgp::speaks_mgp;
use mgp_tests::harness::{Agent, Kernel};
use serde_json::{Value, json};

use super::ASKED;
use crate::scene::ERAS;

/// Bob answers Alice, Carol everybody, Dora nobody.
const AGREED: &str = "[agents.bob]\nanswers = [\"alice\"]\n[agents.carol]\nanswers = [\"*\"]\n";

/// A kernel that knows these agents, and a connection of each.
async fn agents<const N: usize>(names: [&str; N]) -> (Kernel, [Agent; N]) {
    let kernel = Kernel::start(AGREED).await;
    let mut agents = Vec::new();
    for name in names {
        kernel.mgp_json(&["agents", "add", name]).await;
        agents.push(agent(&kernel, name, &speaks_mgp(ERAS[0])).await);
    }
    let agents = agents.try_into().unwrap_or_else(|_| panic!("one of each"));
    (kernel, agents)
}

async fn agent(kernel: &Kernel, name: &str, capabilities: &str) -> Agent {
    let mut agent = Agent::over_socket(&kernel.socket()).await;
    let stands = agent.request("mgp/door/open", json!({"agent": name}));
    stands.await.result();
    agent.initialize(ERAS[0], capabilities).await;
    // It is ready when this is answered.
    agent.request("ping", json!({})).await.result();
    agent
}

fn ask(whom: &str) -> Value {
    json!({"target_agent_id": whom, "prompt": "how?"})
}

async fn asked(agent: &mut Agent) -> Value {
    agent.hears(ASKED).await["params"].clone()
}

async fn says(agent: &mut Agent, asked: &Value, response: Value) {
    let params = json!({"callback_id": asked["callback_id"], "response": response});
    let taken = agent.request("mgp/callback/respond", params).await;
    assert_eq!(taken.result()["status"], "responded");
}

/// An agent asks another that agreed to answer it, by the method or the tool; the other reads who asks, and
/// its words come back. It is in the audit log.
#[tokio::test]
async fn an_agent_asks_one_that_agreed() {
    let (kernel, [mut alice, mut bob]) = agents(["alice", "bob"]).await;
    let asks = alice.start("mgp/agent/ask", ask("bob")).await;
    let question = asked(&mut bob).await;
    assert_eq!(question["type"], "input", "{question}");
    assert_eq!(question["message"], "how?");
    assert_eq!(question["agent_id"], "agent.alice");
    says(&mut bob, &question, json!("so")).await;
    let answer = alice.answer_to(&asks).await.result();
    let told = json!({"target_agent_id": "agent.bob", "response": "so"});
    assert_eq!(answer, told);
    let tool = json!({"name": "mgp.agent.ask", "arguments": ask("agent.bob")});
    let asks = alice.start("tools/call", tool).await;
    let question = asked(&mut bob).await;
    says(&mut bob, &question, Value::Null).await;
    assert!(alice.answer_to(&asks).await.is_error(), "he declined");
    mgp_tests::harness::wait_until("it is logged", mgp_tests::harness::DEADLINE, async || {
        let log = kernel.mgp(&["audit", "tail", "--json"]).await;
        let log = String::from_utf8_lossy(&log.stdout).into_owned();
        log.contains("mgp/agent/ask") && log.contains("mgp.agent.ask")
    })
    .await;
}

/// Who did not agree, does not know callbacks or is not connected is asked nothing, and none of it can be
/// told from the other; nor can an agent ask itself.
#[tokio::test]
async fn callback_to_an_agent_that_cannot_answer_is_rejected() {
    let (kernel, [mut alice, mut bob, mut dora]) = agents(["alice", "bob", "dora"]).await;
    kernel.mgp_json(&["agents", "add", "carol"]).await;
    let mut plain = agent(&kernel, "carol", "{}").await;
    let refused = |name: &str, answer: mgp_tests::harness::Answer| {
        let error = answer.error();
        assert_eq!(error["code"], 4004, "{error}");
        error["message"].as_str().unwrap().replace(name, "x")
    };
    let mut words = Vec::new();
    for name in ["dora", "carol", "nobody"] {
        let answer = alice.request("mgp/agent/ask", ask(name)).await;
        words.push(refused(name, answer));
    }
    let answer = dora.request("mgp/agent/ask", ask("bob")).await;
    words.push(refused("bob", answer));
    words.dedup();
    assert_eq!(words.len(), 1, "{words:?}");
    let itself = alice.request("mgp/agent/ask", ask("alice")).await;
    assert_eq!(itself.code(), -32602);
    for agent in [&mut alice, &mut bob, &mut dora, &mut plain] {
        agent.request("ping", json!({})).await.result();
        assert!(agent.heard(ASKED).is_empty());
    }
    assert_eq!(
        plain.request("mgp/agent/ask", ask("bob")).await.code(),
        -32601
    );
}

/// No circle: whom an agent waits for cannot ask it back meanwhile; and nobody waits longer than it said.
#[tokio::test]
async fn a_question_does_not_come_back_and_does_not_wait_for_ever() {
    let (_kernel, [mut bob, mut carol]) = agents(["bob", "carol"]).await;
    let mut soon = ask("carol");
    soon["timeout_ms"] = 400.into();
    let asks = bob.start("mgp/agent/ask", soon).await;
    let question = asked(&mut carol).await;
    let back = carol.request("mgp/agent/ask", ask("bob")).await.error();
    assert_eq!(back["code"], 1000, "{back}");
    assert!(
        back["message"]
            .as_str()
            .unwrap()
            .contains("answer it first")
    );
    assert_eq!(bob.answer_to(&asks).await.error()["code"], 3003);
    let params = json!({"callback_id": question["callback_id"], "response": "late"});
    let late = carol.request("mgp/callback/respond", params).await.error();
    assert_eq!(late["code"], 3003, "{late}");
}
