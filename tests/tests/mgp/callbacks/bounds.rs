//! What a server cannot bring about by callbacks, and what holds up none of them.

use mgp_tests::harness::mgp::declaration;
use mgp_tests::harness::{DEADLINE, wait_until};
use serde_json::{Value, json};

use super::{ASKED, asked, asking, confirmation, respond, responses, start};
use crate::scene::{Door, ERAS, kernel_with, of_kind, reported, speaking};

/// MGP-182: a flood is bounded for each call; what is too much is declined as far as there is room, and all
/// else goes on.
#[tokio::test]
async fn a_flood_of_callbacks_is_bounded() {
    let kernel = asking("legacy", "").await;
    let mut agent = of_kind(&kernel, Door::Http, ERAS[0], true).await;
    let flood: Vec<Value> = (0..200)
        .map(|n| json!({"callback_id": format!("f-{n}"), "type": "confirmation"}))
        .collect();
    let arguments = json!({"callbacks": flood, "answers": 1000, "ms": 4000});
    let call = start(&mut agent, arguments).await;
    wait_until("the flood is over", DEADLINE, async || {
        reported(&kernel, "it").await["dropped_notifications"] == 184
    })
    .await;
    for _ in 0..16 {
        let asked = asked(&mut agent).await;
        respond(&mut agent, &asked, json!("confirm")).await.result();
    }
    let heard = responses(&mut agent, &call).await;
    let heard = heard.as_array().unwrap();
    let (declined, confirmed): (Vec<&Value>, Vec<&Value>) =
        heard.iter().partition(|one| one["response"] == "cancel");
    assert_eq!(confirmed.len(), 16);
    assert!(!declined.is_empty());
    for one in declined {
        assert_eq!(one["_mgp"]["reason"], "too_many", "{one}");
    }
    assert!(agent.heard(ASKED).is_empty(), "sixteen of one call");
    let mut other = of_kind(&kernel, Door::Http, ERAS[0], true).await;
    let echo = other.call("it__echo", json!({"text": "on"})).await;
    assert_eq!(echo.text(), "on");
}

/// What is declined at once is bounded, too: a server that does not take the answers is told no more of them
/// than it may have open, and the kernel holds no more.
#[tokio::test]
async fn answers_that_a_server_does_not_take_are_bounded() {
    let slow = json!({"mgp/callback/respond": 60_000}).to_string();
    let mut flags = speaking("legacy");
    flags.extend(["--mgp-slow".to_owned(), slow]);
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let kernel = kernel_with("\n[limits]\nelicitation = \"off\"\n", &flags).await;
    let mut agent = of_kind(&kernel, Door::Http, ERAS[0], true).await;
    let dropped = async || {
        let it = reported(&kernel, "it").await;
        it["dropped_notifications"].as_u64().unwrap()
    };
    // Fewer than a call may have open, each declined before the next call begins.
    let (mut sent, mut answered) = (0, 0);
    while dropped().await == 0 {
        assert!(sent < 400, "nothing bounds them");
        let all: Vec<Value> = (sent..sent + 8)
            .map(|n| json!({"callback_id": n, "type": "confirmation"}))
            .collect();
        let arguments = json!({"callbacks": all, "answers": 8, "ms": 200});
        let call = start(&mut agent, arguments).await;
        let heard = responses(&mut agent, &call).await;
        answered += heard.as_array().unwrap().len();
        sent += 8;
    }
    assert!(sent > 64 && answered < sent, "{answered} of {sent}");
    assert!(agent.heard(ASKED).is_empty());
    let echo = agent.call("it__echo", json!({"text": "on"})).await;
    assert_eq!(echo.text(), "on");
}

/// MGP-175: what an agent reads of who asks is the kernel's own word: a server that names an agent is not
/// taken for one, and one that tries it in letters that some readers take for the same reaches nobody.
#[tokio::test]
async fn a_server_does_not_ask_in_the_name_of_an_agent() {
    let kernel = asking("legacy", "").await;
    let mut agent = of_kind(&kernel, Door::Http, ERAS[0], true).await;
    let mut claims = confirmation();
    claims["agent_id"] = "agent.alice".into();
    claims["server_id"] = "other".into();
    let mut alike = claims.clone();
    alike["callback_id"] = "alike".into();
    alike.as_object_mut().unwrap().remove("agent_id");
    alike["Agent_Id"] = "agent.alice".into();
    let before = reported(&kernel, "it").await["dropped_notifications"].clone();
    let all = json!({"callbacks": [alike, claims]});
    let call = start(&mut agent, all).await;
    let asked = asked(&mut agent).await;
    assert_eq!(asked["server_id"], "it", "{asked}");
    assert_eq!(asked.get("agent_id"), None, "{asked}");
    assert!(!asked.to_string().contains("alice"), "{asked}");
    respond(&mut agent, &asked, json!("confirm")).await.result();
    let heard = responses(&mut agent, &call).await;
    assert_eq!(heard[0]["callback_id"], "cb-001");
    assert!(agent.heard(ASKED).is_empty());
    let after = reported(&kernel, "it").await["dropped_notifications"].clone();
    assert_eq!(after.as_u64(), before.as_u64().map(|before| before + 1));
}

/// MGP-182: a server that takes one call at a time gets the answer to its callback all the same.
#[tokio::test]
async fn an_answer_needs_no_place_among_the_calls() {
    let kernel = asking("legacy", "\n[limits]\nmax_in_flight = 1\n").await;
    let mut agent = of_kind(&kernel, Door::Http, ERAS[0], true).await;
    let call = start(&mut agent, json!({"params": confirmation()})).await;
    let asked = asked(&mut agent).await;
    respond(&mut agent, &asked, json!("confirm")).await.result();
    let heard = responses(&mut agent, &call).await;
    assert_eq!(heard[0]["response"], "confirm");
}

/// MGP-176: what a server says against an answer is in its log, and not the agent's affair; callbacks that
/// cannot be read reach nobody, and that is in the log, too.
#[tokio::test]
async fn invalid_callbacks_are_logged_in_the_servers_log() {
    let said = declaration(&["callbacks"]).to_string();
    let no = json!({"mgp/callback/respond": {"error": {"code": 3003, "message": "too late"}}});
    let flags = [
        "--era",
        "legacy",
        "--mgp",
        &said,
        "--mgp-answers",
        &no.to_string(),
    ];
    let kernel = kernel_with("", &flags).await;
    let mut agent = of_kind(&kernel, Door::Http, ERAS[0], true).await;
    let all = json!([
        {"callback_id": "riddle", "type": "riddle"},
        {"callback_id": "s", "type": "selection"},
        {"callback_id": ["x"], "type": "input"},
        {"callback_id": "c", "type": "confirmation"},
    ]);
    let call = start(&mut agent, json!({"callbacks": all})).await;
    let asked = asked(&mut agent).await;
    assert_eq!(asked["type"], "confirmation");
    respond(&mut agent, &asked, json!("confirm")).await.result();
    responses(&mut agent, &call).await;
    wait_until("it is in the log", DEADLINE, async || {
        let logs = kernel.mgp(&["servers", "logs", "it"]).await;
        let logs = String::from_utf8_lossy(&logs.stdout).into_owned();
        logs.contains("too late") && logs.contains("riddle") && logs.contains("needs options")
    })
    .await;
    assert!(agent.heard(ASKED).is_empty());
}
