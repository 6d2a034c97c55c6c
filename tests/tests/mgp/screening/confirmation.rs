//! A person's yes before dangerous calls (MGP §4.4, A-32).

use mgp_tests::harness::envelope::MODERN;
use mgp_tests::harness::mgp::{NINE, declaration, declaring};
use mgp_tests::harness::{Agent, Client, DEADLINE, Kernel, Program, wait_until};
use serde_json::{Value, json};

use crate::scene::made::{NEWEST, agent, agent_of, kernel, operator, reached, tool};

const FORM: &str = r#"{"elicitation":{"form":{}}}"#;

fn tools() -> Vec<Value> {
    vec![
        tool("harmless", json!({"risk_level": "safe"})),
        tool("usual", json!({"risk_level": "moderate"})),
        tool("blast", json!({"risk_level": "dangerous"})),
        tool(
            "sure",
            json!({"risk_level": "safe", "confirmation_required": true}),
        ),
    ]
}

async fn pending(kernel: &Kernel) -> Vec<Value> {
    let pending = kernel.mgp_json(&["pending"]).await;
    pending["pending"].as_array().cloned().unwrap_or_default()
}

/// The one question that waits for the operator.
async fn question(kernel: &Kernel) -> Value {
    wait_until("a question to the operator", DEADLINE, async || {
        !pending(kernel).await.is_empty()
    })
    .await;
    pending(kernel).await.remove(0)
}

/// A call of each of these tools, in either version, asks its caller so many times; the messages of it.
async fn assert_confirmed(calls: &[(&str, usize)]) -> Vec<String> {
    let kernel = kernel(&tools(), "[servers.mgp]\ntrust_level = \"trusted\"\n").await;
    let mut messages = Vec::new();
    for version in [NEWEST, MODERN] {
        let mut client = Client::over_http(&kernel.server_url("it"), version, FORM).await;
        let accept = json!({"action": "accept", "content": {}});
        client.answers("elicitation/create", accept);
        for (name, count) in calls {
            let answer = client.call(name, json!({"a": 1})).await;
            assert_eq!(answer.text(), r#"{"a":1}"#);
            assert_eq!(client.asked().len(), *count, "{version} {name}");
        }
        let asked = client.asked().iter();
        messages.extend(asked.map(|asked| asked["params"]["message"].to_string()));
        client.close().await;
    }
    messages
}

/// MGP-055.
#[tokio::test]
async fn safe_tool_is_called_without_confirmation() {
    assert_confirmed(&[("harmless", 0)]).await;
}

/// MGP-056: see `operator_configures_which_calls_are_confirmed`.
#[tokio::test]
async fn moderate_tool_is_called_without_confirmation_by_default() {
    assert_confirmed(&[("usual", 0)]).await;
}

/// MGP-057: each call, with its tool and its arguments.
#[tokio::test]
async fn dangerous_call_is_confirmed_by_its_caller() {
    let messages = assert_confirmed(&[("blast", 1), ("blast", 2)]).await;
    for message in messages {
        assert!(
            message.contains("it:blast") && message.contains(r#"{\"a\":1}"#),
            "{message}"
        );
    }
}

/// MGP-054.
#[tokio::test]
async fn tool_that_requires_confirmation_is_confirmed_whatever_its_risk() {
    assert_confirmed(&[("sure", 1)]).await;
}

/// MGP-243, MGP-057: a tool that is called through the kernel's own is asked about as any other, and goes
/// on after the answer, in both eras of callers.
#[tokio::test]
async fn dangerous_tool_called_through_discovery_is_confirmed() {
    let kernel = kernel(&tools(), "[servers.mgp]\ntrust_level = \"trusted\"\n").await;
    for version in [NEWEST, MODERN] {
        let mut client = Client::over_http(&kernel.server_url("it"), version, FORM).await;
        client.answers(
            "elicitation/create",
            json!({"action": "accept", "content": {}}),
        );
        let call = json!({"name": "blast", "arguments": {"a": 1}});
        let answer = client.call("mgp_tools_call", call).await;
        assert_eq!(answer.text(), r#"{"a":1}"#, "{version}");
        assert_eq!(client.asked().len(), 1, "{version}");
    }
}

/// MGP-005, MGP-057: a no keeps the call in the kernel, and the caller learns that it was a no.
#[tokio::test]
async fn a_no_is_a_no() {
    let kernel = kernel(&tools(), "").await;
    for version in [NEWEST, MODERN] {
        let mut client = Client::over_http(&kernel.server_url("it"), version, FORM).await;
        for action in ["decline", "cancel"] {
            client.answers("elicitation/create", json!({"action": action}));
            let refused = client.call("blast", json!({})).await;
            assert_eq!(refused.result()["isError"], true, "{}", refused.frame);
            assert!(
                refused.text().contains("did not say yes"),
                "{}",
                refused.text()
            );
        }
        client.close().await;
    }
    let knows = declaring(NEWEST, FORM, &declaration(&NINE));
    let mut client = Client::over_http(&kernel.server_url("it"), NEWEST, &knows).await;
    client.answers("elicitation/create", json!({"action": "decline"}));
    assert_eq!(client.call("blast", json!({})).await.code(), 1000);
    assert_eq!(reached(&mut agent(&kernel).await, "blast").await, 0);
    assert!(
        pending(&kernel).await.is_empty(),
        "a no is not asked again elsewhere"
    );
}

/// MGP-005, MGP-057, A-32: where the caller cannot be asked, the operator is; also in the words of
/// older versions a denied call is an error.
#[tokio::test]
async fn call_of_a_client_without_elicitation_is_confirmed_by_the_operator() {
    let kernel = kernel(&tools(), "").await;
    let mut agent = agent_of(&kernel, "2025-03-26", "{}").await;
    let call = json!({"name": "blast", "arguments": {"what": "all"}});
    let id = agent.start("tools/call", call.clone()).await;
    let asked = question(&kernel).await;
    assert_eq!(asked["subject"], "confirmation");
    assert!(
        asked["text"].as_str().unwrap().contains("it:blast"),
        "{asked}"
    );
    assert!(asked["details"].to_string().contains("what"), "{asked}");
    assert_eq!(reached(&mut agent, "blast").await, 0);
    kernel
        .mgp(&["approve", asked["id"].as_str().unwrap()])
        .await;
    assert_eq!(agent.answer_to(&id).await.text(), r#"{"what":"all"}"#);
    let id = agent.start("tools/call", call).await;
    let asked = question(&kernel).await;
    kernel.mgp(&["deny", asked["id"].as_str().unwrap()]).await;
    let denied = agent.answer_to(&id).await;
    assert_eq!(denied.code(), -32603);
    assert!(
        denied.error()["message"]
            .as_str()
            .unwrap()
            .contains("the operator said no")
    );
    assert_eq!(reached(&mut agent, "blast").await, 1);
}

/// MGP-054: nobody answers, or nobody can be asked: the call is not made.
#[tokio::test]
async fn silence_is_no_yes() {
    let patience = "[confirmation]\ntimeout_secs = 1\n";
    let slow = kernel(&tools(), patience).await;
    let late = agent(&slow).await.call("sure", json!({})).await;
    assert!(
        late.text().contains("nobody answered within 1 s"),
        "{}",
        late.text()
    );
    assert!(pending(&slow).await.is_empty());
    let alone = kernel(&tools(), "[confirmation]\noperator_queue = false\n").await;
    let nobody = agent(&alone).await.call("blast", json!({})).await;
    assert!(
        nobody.text().contains("nobody can be asked"),
        "{}",
        nobody.text()
    );
}

/// A question does not outlive the call it is about.
#[tokio::test]
async fn pending_confirmation_ends_with_its_call() {
    let kernel = kernel(&tools(), "").await;
    let mut agent = agent(&kernel).await;
    let id = agent
        .start("tools/call", json!({"name": "blast", "arguments": {}}))
        .await;
    question(&kernel).await;
    agent
        .notify("notifications/cancelled", json!({"requestId": id}))
        .await;
    wait_until("the question's end", DEADLINE, async || {
        pending(&kernel).await.is_empty()
    })
    .await;
    agent
        .start("tools/call", json!({"name": "blast", "arguments": {}}))
        .await;
    question(&kernel).await;
    agent.close().await;
    wait_until("the question's end", DEADLINE, async || {
        pending(&kernel).await.is_empty()
    })
    .await;
}

/// MGP-057: a yes is for the tool that was asked about. One that changed meanwhile, and is blocked for
/// that, is not called.
#[tokio::test]
async fn a_yes_does_not_reach_a_tool_that_changed() {
    const DYNAMIC: &str = "test_dynamic_tool";
    let entry = Program::fixture(&[]).entry("it");
    let entry = entry.replacen("[[servers]]\n", "[[servers]]\npin = \"block\"\n", 1);
    let risk = format!("[servers.tools.{DYNAMIC}]\nrisk_level = \"dangerous\"\n");
    let kernel = Kernel::start(&format!("{entry}{risk}")).await;
    kernel.connected(&["it"]).await;
    let (mut caller, mut other) = (agent(&kernel).await, agent(&kernel).await);
    let lists = async |agent: &mut Agent| {
        let list = agent.request("tools/list", json!({})).await.result();
        let tools = list["tools"].as_array().unwrap();
        tools.iter().any(|tool| tool["name"] == DYNAMIC)
    };
    let redefine = |description: &str| json!({"description": description});
    other.call("redefine", redefine("Adds")).await.result();
    wait_until("the tool is there", DEADLINE, async || {
        lists(&mut other).await
    })
    .await;
    let call = json!({"name": DYNAMIC, "arguments": {}});
    let id = caller.start("tools/call", call).await;
    let asked = question(&kernel).await;
    assert_eq!(asked["subject"], "confirmation");
    other.call("redefine", redefine("Deletes")).await.result();
    wait_until("it is gone", DEADLINE, async || !lists(&mut other).await).await;
    kernel
        .mgp(&["approve", asked["id"].as_str().unwrap()])
        .await;
    let refused = caller.answer_to(&id).await.error();
    let unknown = caller.call("nonesuch", json!({})).await.error();
    assert_eq!(refused["code"], unknown["code"], "{refused}");
    assert_eq!(reached(&mut other, DYNAMIC).await, 0);
}

/// MGP-056: the operator can want a yes for moderate tools, none at all for a server, and sets the risk
/// of a tool by hand.
#[tokio::test]
async fn operator_configures_which_calls_are_confirmed() {
    let careful = kernel(
        &tools(),
        "[confirmation]\nmoderate = true\noperator_queue = false\n",
    )
    .await;
    let mut agent_there = agent(&careful).await;
    let refused = agent_there.call("usual", json!({})).await;
    assert!(
        refused.text().contains("nobody can be asked"),
        "{}",
        refused.text()
    );
    let off = "[servers.mgp]\nconfirmation = false\n";
    let easy = kernel(&tools(), off).await;
    for name in ["blast", "sure"] {
        assert_eq!(agent(&easy).await.call(name, json!({})).await.text(), "{}");
    }
    let set = "[servers.tools.blast]\nrisk_level = \"safe\"\n";
    let known = kernel(&tools(), set).await;
    assert_eq!(
        agent(&known).await.call("blast", json!({})).await.text(),
        "{}"
    );
}

/// MGP-057: whom the operator granted the tool is not asked; a tool that wants a yes each time asks all
/// the same.
#[tokio::test]
async fn a_grant_is_permission() {
    let kernel = kernel(&tools(), "").await;
    let mut agent = agent(&kernel).await;
    let mut operator = operator(&kernel).await;
    for tool in ["blast", "sure"] {
        let grant = json!({
            "entry_type": "tool_grant", "agent_id": "agent.anonymous", "server_id": "it",
            "tool_name": tool, "permission": "allow",
        });
        operator.request("mgp/access/grant", grant).await.result();
    }
    assert_eq!(agent.call("blast", json!({})).await.text(), "{}");
    let id = agent
        .start("tools/call", json!({"name": "sure", "arguments": {}}))
        .await;
    let asked = question(&kernel).await;
    kernel
        .mgp(&["approve", asked["id"].as_str().unwrap()])
        .await;
    assert_eq!(agent.answer_to(&id).await.text(), "{}");
}

/// An approval of one call is for that call: an end that would mean nothing is rejected, and the call waits on.
#[tokio::test]
async fn an_approval_of_a_call_takes_no_time() {
    let kernel = kernel(&tools(), "").await;
    let mut agent = agent_of(&kernel, "2025-03-26", "{}").await;
    let call = json!({"name": "blast", "arguments": {}});
    let asked = agent.start("tools/call", call).await;
    let id = question(&kernel).await["id"].as_str().unwrap().to_owned();
    let shown = kernel.mgp(&["pending"]).await.stdout;
    let shown = String::from_utf8_lossy(&shown);
    assert!(
        shown.contains("an approval is for this call alone"),
        "{shown}"
    );
    let timed = kernel.mgp(&["approve", &id, "--for", "1h"]).await;
    let told = String::from_utf8_lossy(&timed.stderr).into_owned();
    assert!(
        !timed.status.success() && told.contains("the next call asks again"),
        "{told}"
    );
    let approved = kernel.mgp(&["approve", &id]).await;
    let told = String::from_utf8_lossy(&approved.stdout).into_owned();
    assert!(
        approved.status.success() && !told.contains("until"),
        "{told}"
    );
    assert!(!agent.answer_to(&asked).await.is_error());
}
