//! Who is asked where the agent knows no callbacks: its client by what else it knows, else the operator.

use mgp_tests::harness::mgp::{NINE, declaration, declaring};
use mgp_tests::harness::modern::{again, wanting};
use mgp_tests::harness::{Client, DEADLINE, Kernel, ModernAgent, wait_until};
use serde_json::{Value, json};

use super::{ASKED, asking, confirmation, responses, start};
use crate::scene::{Door, ERAS, client, of_kind, received};

/// A client that can fill in forms and complete messages, and does not speak MGP.
const FORMS: &str = r#"{"elicitation":{"form":{}},"sampling":{}}"#;

async fn question(kernel: &Kernel) -> Value {
    let mut found = Value::Null;
    wait_until("something waits for the operator", DEADLINE, async || {
        let all = kernel.mgp_json(&["pending"]).await;
        found = all["pending"][0].clone();
        !found.is_null()
    })
    .await;
    found
}

async fn plain(kernel: &Kernel) -> Client {
    of_kind(kernel, Door::Http, ERAS[0], false).await
}

fn selection() -> Value {
    json!({"callback_id": "s", "type": "selection", "message": "Which?", "options": ["a", "b"]})
}

/// A-32: a client that knows forms is asked with one that fits the callback, in either era; what it says
/// reaches the server as the answer to the callback. It reads no word of MGP.
#[tokio::test]
async fn callback_is_a_form_for_a_client_with_elicitation() {
    let kernel = asking("legacy", "").await;
    for version in ERAS {
        for (callback, kind, content, told) in [
            (
                selection(),
                json!(["a", "b"]),
                json!({"response": "b"}),
                json!("b"),
            ),
            (
                confirmation(),
                json!(["confirm", "cancel"]),
                json!({"response": "confirm"}),
                json!("confirm"),
            ),
            (
                json!({"callback_id": "i", "type": "input", "message": "Name?"}),
                Value::Null,
                json!({"response": "Ada"}),
                json!("Ada"),
            ),
        ] {
            let mut agent = client(&kernel, Door::Http, version, FORMS).await;
            let accepts = json!({"action": "accept", "content": content});
            agent.answers("elicitation/create", accepts);
            let arguments = json!({"params": callback});
            let answer = agent.call("it__call_back", arguments).await.result();
            let heard = &answer["structuredContent"]["responses"];
            assert_eq!(heard[0]["response"], told, "{version} {answer}");
            let asked = &agent.asked().last().unwrap()["params"];
            let schema = &asked["requestedSchema"]["properties"]["response"];
            assert_eq!(schema["type"], "string", "{asked}");
            assert_eq!(schema["enum"], kind, "{asked}");
            let message = asked["message"].as_str().unwrap();
            assert!(message.starts_with("[it] "), "{message}");
            let words = format!("{:?} {:?}", agent.all_heard(), agent.asked());
            assert!(!words.contains("mgp"), "{words}");
        }
        let mut agent = client(&kernel, Door::Http, version, FORMS).await;
        agent.answers("elicitation/create", json!({"action": "decline"}));
        let arguments = json!({"params": confirmation()});
        let answer = agent.call("it__call_back", arguments).await.result();
        let heard = &answer["structuredContent"]["responses"][0];
        assert_eq!(heard["response"], "cancel", "{heard}");
        assert_eq!(heard["_mgp"]["reason"], "declined", "{heard}");
    }
}

/// A-32: a completion is asked of a client that knows sampling, and of nobody else: no person stands in
/// for a model.
#[tokio::test]
async fn completion_callback_reaches_a_client_with_sampling_alone() {
    let kernel = asking("legacy", "").await;
    let callback = json!({"callback_id": "l", "type": "llm_completion",
        "messages": [{"role": "system", "content": "Be brief."},
            {"role": "user", "content": "2+2?"}]});
    let arguments = json!({"params": callback});
    for version in ERAS {
        let mut agent = client(&kernel, Door::Http, version, FORMS).await;
        let content = json!({"type": "text", "text": "4"});
        let sampled = json!({"role": "assistant", "content": content, "model": "m"});
        agent.answers("sampling/createMessage", sampled);
        let answer = agent
            .call("it__call_back", arguments.clone())
            .await
            .result();
        let heard = &answer["structuredContent"]["responses"][0]["response"];
        assert_eq!(heard["content"], "4", "{answer}");
        assert_eq!(heard["model"], "m");
        let asked = &agent.asked().last().unwrap()["params"];
        assert_eq!(asked["systemPrompt"], "Be brief.", "{asked}");
    }
    let mut agent = plain(&kernel).await;
    let answer = agent.call("it__call_back", arguments).await.result();
    let heard = &answer["structuredContent"]["responses"][0];
    assert_eq!(heard["response"], Value::Null);
    assert_eq!(heard["_mgp"]["reason"], "unsupported", "{heard}");
}

/// A-32: where the client can be asked nothing the operator is, with the options to choose from, and
/// answers by `mgp answer`; a yes is enough for what is a yes. What does not fit is refused, and the
/// question stays.
#[tokio::test]
async fn the_operator_answers_where_the_client_cannot() {
    let kernel = asking("legacy", "").await;
    let mut agent = plain(&kernel).await;
    let call = start(&mut agent, json!({"params": selection()})).await;
    let asked = question(&kernel).await;
    assert_eq!(asked["subject"], "callback", "{asked}");
    assert_eq!(asked["options"], json!(["a", "b"]));
    let text = asked["text"].as_str().unwrap();
    assert!(
        text.contains("it asks") && text.contains("Which?"),
        "{text}"
    );
    assert!(asked["until"].is_string());
    let id = asked["id"].as_str().unwrap();
    for wrong in [&["answer", id, "c"][..], &["approve", id]] {
        let refused = kernel.mgp(wrong).await;
        assert_eq!(refused.status.code(), Some(1), "{wrong:?}");
        let words = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(words.contains("one of a, b"), "{words}");
    }
    let decided = kernel.mgp_json(&["answer", id, "b"]).await;
    assert_eq!(decided["value"], "b", "{decided}");
    let heard = responses(&mut agent, &call).await;
    assert_eq!(heard, json!([{"callback_id": "s", "response": "b"}]));

    let input = json!({"callback_id": "i", "type": "input", "message": "Name?"});
    for (callback, typed, told) in [
        (confirmation(), vec!["approve"], json!("confirm")),
        (confirmation(), vec!["deny"], json!("cancel")),
        (
            input,
            vec!["answer", "Ada", "Lovelace"],
            json!("Ada Lovelace"),
        ),
        (selection(), vec!["deny"], Value::Null),
    ] {
        let call = start(&mut agent, json!({"params": callback})).await;
        let asked = question(&kernel).await;
        let mut args = typed.clone();
        args.insert(1, asked["id"].as_str().unwrap());
        kernel.mgp_json(&args).await;
        let heard = responses(&mut agent, &call).await;
        assert_eq!(heard[0]["response"], told, "{typed:?}");
        assert_eq!(heard[0]["_mgp"].is_object(), typed == ["deny"], "{heard}");
    }
    let shown = kernel.mgp(&["pending"]).await;
    assert_eq!(shown.stdout, b"nothing waits for you\n");
}

/// A-32, A-50: what nobody answers is over when its time is, in the operator's list as well; a server that
/// did not say how long it waits is told.
#[tokio::test]
async fn callback_expires_in_the_operators_list() {
    let kernel = asking("legacy", "").await;
    let mut agent = plain(&kernel).await;
    let short = json!({"callback_id": "c", "type": "confirmation", "timeout_ms": 1500});
    let call = start(&mut agent, json!({"params": short, "ms": 3000})).await;
    question(&kernel).await;
    assert_eq!(responses(&mut agent, &call).await, json!([]));
    let left = kernel.mgp_json(&["pending"]).await;
    assert_eq!(left["pending"], json!([]));
}

/// CMCP-084: what is switched off for a server is not asked by a callback either; the server is told.
#[tokio::test]
async fn a_callback_needs_the_same_consent_as_a_question() {
    let kernel = asking("legacy", "\n[limits]\nelicitation = \"off\"\n").await;
    let mut agent = of_kind(&kernel, Door::Http, ERAS[0], true).await;
    let call = start(&mut agent, json!({"params": confirmation()})).await;
    let heard = responses(&mut agent, &call).await;
    assert_eq!(heard[0]["response"], "cancel");
    assert_eq!(heard[0]["_mgp"]["reason"], "switched_off", "{heard}");
    assert!(agent.heard(ASKED).is_empty());
}

/// A-32: a stateless agent that agreed to callbacks, and has to come back with the answer to another question
/// of the same call, gets the callback when it does: under the id of the request with which it came back, and
/// in no form or list meanwhile.
#[tokio::test]
async fn a_callback_waits_for_an_agent_that_comes_back() {
    let kernel = asking("legacy", "").await;
    let form = json!({"message": "Who?", "requestedSchema": {"type": "object", "properties": {}}});
    let messages = json!({"messages": [], "maxTokens": 1});
    for (able, method, question, answer) in [
        (
            FORMS,
            "elicitation/create",
            form,
            json!({"action": "decline"}),
        ),
        (
            r#"{"sampling":{}}"#,
            "sampling/createMessage",
            messages,
            json!({"role": "assistant", "content": {"type": "text", "text": "4"}, "model": "m"}),
        ),
    ] {
        let able = declaring(ERAS[1], able, &declaration(&NINE));
        let mut agent = ModernAgent::over_http(kernel.url(), &able);
        agent.answers(method, answer);
        let arguments = json!({"method": method, "params": question, "ms": 60_000});
        let params = json!({"name": "it__ask", "arguments": arguments});
        let first = wanting(&agent.ask("tools/call", params.clone()).await).unwrap();
        let mut other = of_kind(&kernel, Door::Http, ERAS[0], true).await;
        let frames = received(&mut other, "it__received").await;
        let frames = frames
            .iter()
            .map(|frame| serde_json::from_str::<Value>(frame).unwrap());
        let suspended = frames
            .filter(|frame| frame["params"]["name"] == "ask")
            .map(|frame| frame["id"].clone())
            .next_back()
            .unwrap();
        let mut callback = confirmation();
        callback["request_id"] = suspended;
        let second = start(&mut other, json!({"params": callback})).await;
        // It is where the agent finds it, and nowhere else.
        wait_until("it is open", DEADLINE, async || {
            let open = agent.ask("mgp/events/pending_callbacks", json!({})).await;
            open.result()["count"] == 1
        })
        .await;
        let operator = kernel.mgp_json(&["pending"]).await;
        assert_eq!(operator["pending"], json!([]), "{method}");
        assert!(agent.heard(ASKED).is_empty());
        let responded = agent.respond(&first);
        let back = again(&params, &first, responded);
        let id = agent.start("tools/call", back).await;
        let asked = agent.hears(ASKED).await["params"].clone();
        assert_eq!(asked["request_id"], id, "{method}");
        let said = json!({"callback_id": asked["callback_id"], "response": "confirm"});
        agent.ask("mgp/callback/respond", said).await.result();
        let heard = responses(&mut other, &second).await;
        assert_eq!(heard[0]["response"], "confirm", "{method} {heard}");
        assert_eq!(agent.asked().len(), 1, "only what was asked before");
        agent.cancel(&id).await;
    }
}

/// A-32: a client that can be asked by a form and answers it with an error has declined; nobody else is asked
/// in its place.
#[tokio::test]
async fn error_answer_to_a_callback_form_is_a_decline() {
    let kernel = asking("legacy", "").await;
    let mut agent = client(&kernel, Door::Http, ERAS[0], FORMS).await;
    let call = start(&mut agent, json!({"params": confirmation()})).await;
    let heard = responses(&mut agent, &call).await;
    assert_eq!(heard[0]["response"], "cancel", "{heard}");
    assert_eq!(heard[0]["_mgp"]["reason"], "declined", "{heard}");
}
