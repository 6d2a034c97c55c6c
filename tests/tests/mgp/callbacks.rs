//! Callbacks: what servers ask in the course of a call, who is asked, and what becomes of the answer.

mod asks;
mod bounds;
mod routes;

use mgp_tests::harness::mgp::{READS_AUDIT_LOG, declaration, declaring};
use mgp_tests::harness::{Answer, Client, DEADLINE, Kernel, wait_until};
use serde_json::{Value, json};

use crate::scene::{DOORS, Door, ERAS, client, kernel_with, of_kind, reported, speaking};

/// What a callback comes with.
const ASKED: &str = "notifications/mgp.callback.request";

/// A kernel in front of a server of this era that speaks MGP.
async fn asking(era: &str, sections: &str) -> Kernel {
    let flags = speaking(era);
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    kernel_with(&format!("{READS_AUDIT_LOG}{sections}"), &flags).await
}

/// The callback of the document.
fn confirmation() -> Value {
    json!({"callback_id": "cb-001", "type": "confirmation",
        "message": "This operation will delete 15 files. Continue?",
        "options": ["confirm", "cancel"], "timeout_ms": 60000})
}

/// Calls the tool that asks; gives the id of the call.
async fn start(client: &mut Client, arguments: Value) -> Value {
    let params = json!({"name": "it__call_back", "arguments": arguments});
    client.start("tools/call", params).await
}

/// The params of the next callback.
async fn asked(client: &mut Client) -> Value {
    client.hears(ASKED).await["params"].clone()
}

async fn respond(client: &mut Client, asked: &Value, response: Value) -> Answer {
    let params = json!({"callback_id": asked["callback_id"], "response": response});
    client.request("mgp/callback/respond", params).await
}

/// What the server was answered in the end.
async fn responses(client: &mut Client, call: &Value) -> Value {
    let result = client.answer_to(call).await.result();
    result["structuredContent"]["responses"].clone()
}

async fn pending(client: &mut Client) -> Vec<Value> {
    let asked = client.request("mgp/events/pending_callbacks", json!({}));
    let result = asked.await.result();
    assert_eq!(
        result["count"],
        result["pending"].as_array().unwrap().len(),
        "{result}"
    );
    result["pending"].as_array().unwrap().clone()
}

/// MGP-175, MGP-176: a callback reaches the agent whose call caused it, at every endpoint and in every version, under
/// that agent's own id of the call and an id that nobody can guess; the answer reaches the server, and the call ends.
#[tokio::test]
async fn callback_reaches_its_agent_and_the_answer_its_server() {
    for era in ["legacy", "modern"] {
        let kernel = asking(era, "").await;
        for door in DOORS {
            for version in ERAS {
                let case = format!("{era} {door:?} {version}");
                let mut agent = of_kind(&kernel, door, version, true).await;
                let call = start(&mut agent, json!({"params": confirmation()})).await;
                let asked = asked(&mut agent).await;
                assert_eq!(asked["request_id"], call, "{case}");
                assert_eq!(asked["server_id"], "it", "{case}");
                let id = asked["callback_id"].as_str().unwrap().to_owned();
                assert!(id.starts_with("cb-") && id.len() > 36, "{case}: {id}");
                for same in ["type", "message", "options", "timeout_ms"] {
                    assert_eq!(asked[same], confirmation()[same], "{case}");
                }
                let waits = pending(&mut agent).await;
                assert_eq!(waits.len(), 1, "{case}");
                assert_eq!(waits[0]["callback_id"], id.as_str(), "{case}");
                assert_eq!(waits[0]["request_id"], call, "{case}");
                let taken = respond(&mut agent, &asked, json!("confirm")).await.result();
                assert_eq!(taken["status"], "responded", "{case}");
                assert_eq!(taken["server_id"], "it", "{case}");
                let heard = responses(&mut agent, &call).await;
                assert_eq!(heard.as_array().unwrap().len(), 1, "{case}: {heard}");
                assert_eq!(heard[0]["callback_id"], "cb-001", "{case}");
                assert_eq!(heard[0]["response"], "confirm", "{case}");
                assert!(pending(&mut agent).await.is_empty(), "{case}");
                agent.close().await;
            }
        }
    }
}

/// MGP-182: at the same connection.
#[tokio::test]
async fn pending_callback_delays_no_other_call() {
    let kernel = asking("legacy", "").await;
    for door in DOORS {
        for version in ERAS {
            let mut agent = of_kind(&kernel, door, version, true).await;
            let call = start(&mut agent, json!({"params": confirmation()})).await;
            let asked = asked(&mut agent).await;
            let other = agent.call("it__echo", json!({"text": "meanwhile"})).await;
            assert_eq!(other.text(), "meanwhile", "{door:?} {version}");
            respond(&mut agent, &asked, json!("confirm")).await.result();
            responses(&mut agent, &call).await;
        }
    }
}

/// MGP-177, MGP-178, MGP-179: each kind takes its own answers; one that does not fit is refused with
/// -32602, and the callback stays open.
#[tokio::test]
async fn callback_answer_of_the_wrong_kind_is_rejected() {
    let kernel = asking("legacy", "").await;
    let mut agent = of_kind(&kernel, Door::Http, ERAS[0], true).await;
    let choice = json!(["red", "green"]);
    for (callback, wrong, right) in [
        (
            json!({"callback_id": 1, "type": "confirmation"}),
            json!("yes"),
            json!("cancel"),
        ),
        (
            json!({"callback_id": "s", "type": "selection", "options": choice}),
            json!("blue"),
            json!("green"),
        ),
        (
            json!({"callback_id": "i", "type": "input", "message": "Name?"}),
            json!({"name": 7}),
            json!("Ada \"the first\"\n"),
        ),
        (
            json!({"callback_id": "l", "type": "llm_completion",
                "messages": [{"role": "user", "content": "2+2?"}]}),
            json!(4),
            json!({"content": "4", "model": "m", "tool_calls": []}),
        ),
    ] {
        let call = start(&mut agent, json!({"params": callback})).await;
        let asked = asked(&mut agent).await;
        assert_eq!(asked["type"], callback["type"]);
        assert_eq!(asked["timeout_ms"], 60000, "{asked}");
        assert_eq!(respond(&mut agent, &asked, wrong).await.code(), -32602);
        respond(&mut agent, &asked, right.clone()).await.result();
        let heard = responses(&mut agent, &call).await;
        let answer = json!({"callback_id": callback["callback_id"], "response": right});
        assert_eq!(heard, json!([answer]));
    }
}

/// MGP-178, A-32: who is asked and does not want to say declines at once, and the server is told so.
#[tokio::test]
async fn an_agent_may_decline() {
    let kernel = asking("legacy", "").await;
    let mut agent = of_kind(&kernel, Door::Http, ERAS[0], true).await;
    for (kind, told) in [("confirmation", json!("cancel")), ("input", Value::Null)] {
        let params = json!({"callback_id": kind, "type": kind});
        let call = start(&mut agent, json!({"params": params})).await;
        let asked = asked(&mut agent).await;
        respond(&mut agent, &asked, Value::Null).await.result();
        let heard = responses(&mut agent, &call).await;
        assert_eq!(heard[0]["response"], told, "{heard}");
        assert_eq!(heard[0]["_mgp"]["status"], "declined", "{heard}");
    }
}

/// MGP-180: a notification is shown to the agent whose call it is in, once, and the tool goes on without
/// an answer.
#[tokio::test]
async fn a_notification_is_shown_and_not_waited_for() {
    let kernel = asking("legacy", "").await;
    let told = json!({"callback_id": "n", "type": "notification", "message": "half way"});
    let arguments = json!({"params": told, "times": 3, "answers": 1, "ms": 300});
    for version in ERAS {
        let mut agent = of_kind(&kernel, Door::Http, version, true).await;
        let call = start(&mut agent, arguments.clone()).await;
        let asked = asked(&mut agent).await;
        assert_eq!(asked["message"], "half way");
        assert_eq!(respond(&mut agent, &asked, json!("ok")).await.code(), 4004);
        assert_eq!(responses(&mut agent, &call).await, json!([]));
        assert!(agent.heard(ASKED).is_empty());
    }
    let mut plain = of_kind(&kernel, Door::Http, ERAS[0], false).await;
    plain.wants_logs("info").await;
    let call = start(&mut plain, arguments).await;
    let log = plain.hears("notifications/message").await;
    assert_eq!(log["params"]["data"], "half way", "{log}");
    assert_eq!(responses(&mut plain, &call).await, json!([]));
    assert!(plain.heard("notifications/message").is_empty());
}

/// MGP-181: when its time is over a callback is dead, and a late answer is refused with 3003 in clear
/// words; the server hears nothing of it.
#[tokio::test]
async fn a_late_answer_is_refused() {
    let kernel = asking("legacy", "").await;
    for version in ERAS {
        let mut agent = of_kind(&kernel, Door::Http, version, true).await;
        let short = json!({"callback_id": "c", "type": "confirmation", "timeout_ms": 150});
        let arguments = json!({"params": short, "ms": 800});
        let call = start(&mut agent, arguments).await;
        let asked = asked(&mut agent).await;
        wait_until("its time is over", DEADLINE, async || {
            pending(&mut agent).await.is_empty()
        })
        .await;
        let late = respond(&mut agent, &asked, json!("confirm")).await.error();
        assert_eq!(late["code"], 3003, "{late}");
        let words = late["message"].as_str().unwrap();
        assert!(
            words.contains("150 ms") && words.contains("over"),
            "{words}"
        );
        assert_eq!(late["data"]["_mgp"]["retryable"], false);
        assert_eq!(responses(&mut agent, &call).await, json!([]), "{version}");
    }
}

/// MGP-183, MGP-176: a callback is answered once only, by the connection that was asked; to another one, of
/// the same agent or not, it is as unknown as one that never was.
#[tokio::test]
async fn callback_is_answered_once_by_its_own_connection() {
    let kernel = asking("legacy", "").await;
    let mut agent = of_kind(&kernel, Door::Http, ERAS[0], true).await;
    let mut others = Vec::new();
    for version in ERAS {
        for door in DOORS {
            others.push(of_kind(&kernel, door, version, true).await);
        }
    }
    let call = start(&mut agent, json!({"params": confirmation()})).await;
    let asked = asked(&mut agent).await;
    let never = json!({"callback_id": "cb-001"});
    let unknown = respond(&mut agent, &never, json!("confirm")).await.error();
    assert_eq!(unknown["code"], 4004, "{unknown}");
    for other in &mut others {
        assert!(pending(other).await.is_empty());
        let refused = respond(other, &asked, json!("confirm")).await.error();
        assert_eq!(refused, unknown);
        assert!(other.heard(ASKED).is_empty());
    }
    respond(&mut agent, &asked, json!("cancel")).await.result();
    let again = respond(&mut agent, &asked, json!("confirm")).await.error();
    assert_eq!(again["code"], 4004);
    let words = again["message"].as_str().unwrap();
    assert!(words.contains("answered already"), "{words}");
    let heard = responses(&mut agent, &call).await;
    assert_eq!(heard.as_array().unwrap().len(), 1, "{heard}");
    assert_eq!(heard[0]["response"], "cancel");
}

/// MGP-183: a callback that is sent again is not asked again; once it was answered, a retry hears the same
/// answer without anybody being asked.
#[tokio::test]
async fn a_retry_is_the_same_question() {
    let kernel = asking("legacy", "").await;
    let mut agent = of_kind(&kernel, Door::Http, ERAS[0], true).await;
    let arguments = json!({"params": confirmation(), "times": 3, "again": true});
    let call = start(&mut agent, arguments).await;
    let asked = asked(&mut agent).await;
    respond(&mut agent, &asked, json!("confirm")).await.result();
    let heard = responses(&mut agent, &call).await;
    let answer = json!({"callback_id": "cb-001", "response": "confirm"});
    assert_eq!(heard, json!([answer, answer]));
    assert!(agent.heard(ASKED).is_empty(), "it was asked once");
}

/// MGP-158, MGP-175: a callback belongs to the call that it names and to no other: it goes to that call's
/// client whoever else calls, and to nobody where it names none that is under way.
#[tokio::test]
async fn a_callback_belongs_to_the_call_it_names() {
    let kernel = asking("legacy", "").await;
    let mut one = of_kind(&kernel, Door::Http, ERAS[0], true).await;
    let mut other = of_kind(&kernel, Door::Http, ERAS[0], true).await;
    let first = start(&mut one, json!({"params": confirmation()})).await;
    asked(&mut one).await;
    let frames = crate::scene::received(&mut other, "it__received").await;
    let frames = frames
        .iter()
        .map(|frame| serde_json::from_str::<Value>(frame).unwrap());
    let calls: Vec<Value> = frames
        .filter(|frame| frame["params"]["name"] == "call_back")
        .map(|frame| frame["id"].clone())
        .collect();
    assert_eq!(calls.len(), 1);
    let before = reported(&kernel, "it").await["dropped_notifications"].clone();
    let mut own = confirmation();
    (own["callback_id"], own["request_id"]) = ("of-one".into(), calls[0].clone());
    let mut stray = own.clone();
    (stray["callback_id"], stray["request_id"]) = ("of-nobody".into(), 7.into());
    let mut unnamed = own.clone();
    (unnamed["callback_id"], unnamed["request_id"]) = ("unnamed".into(), Value::Null);
    let mut taken = own.clone();
    taken["callback_id"] = "cb-001".into();
    taken.as_object_mut().unwrap().remove("request_id");
    let all = json!([own, stray, unnamed, taken]);
    let second = start(&mut other, json!({"callbacks": all, "answers": 0})).await;
    let moved = asked(&mut one).await;
    assert_eq!(
        moved["request_id"], first,
        "it is of the call that it names"
    );
    assert_eq!(responses(&mut other, &second).await, json!([]));
    assert!(other.heard(ASKED).is_empty());
    let after = reported(&kernel, "it").await["dropped_notifications"].clone();
    assert_eq!(after.as_u64().unwrap(), before.as_u64().unwrap() + 3);
    one.cancel(&first).await;
}

/// A callback ends with its call: taken back or answered, there is nobody to tell.
#[tokio::test]
async fn a_callback_ends_with_its_call() {
    let kernel = asking("legacy", "").await;
    let mut agent = of_kind(&kernel, Door::Http, ERAS[0], true).await;
    let ended = start(&mut agent, json!({"params": confirmation(), "ms": 300})).await;
    let first = asked(&mut agent).await;
    agent.answer_to(&ended).await.result();
    let call = start(&mut agent, json!({"params": confirmation()})).await;
    let second = asked(&mut agent).await;
    agent.cancel(&call).await;
    wait_until("both are over", DEADLINE, async || {
        pending(&mut agent).await.is_empty()
    })
    .await;
    for asked in [first, second] {
        let refused = respond(&mut agent, &asked, json!("confirm")).await.error();
        assert_eq!(refused["code"], 4004);
        let words = refused["message"].as_str().unwrap();
        assert!(words.contains("call"), "{words}");
    }
}

/// the answer and the list are tools of the kernel, too, for clients that can only call tools; to
/// who did not agree to callbacks neither exists.
#[tokio::test]
async fn the_answer_can_be_given_by_a_tool() {
    let kernel = asking("legacy", "").await;
    for version in ERAS {
        let words = declaring(version, "{}", &declaration(&["callbacks"]));
        let mut agent = client(&kernel, Door::Http, version, &words).await;
        let call = start(&mut agent, json!({"params": confirmation()})).await;
        let asked = asked(&mut agent).await;
        let listed = agent.call("mgp.events.pending_callbacks", json!({})).await;
        let listed = listed.result()["structuredContent"].clone();
        assert_eq!(listed["pending"][0]["callback_id"], asked["callback_id"]);
        let said = json!({"callback_id": asked["callback_id"], "response": "confirm"});
        let done = agent.call("mgp_callback_respond", said.clone()).await;
        assert_eq!(done.result()["structuredContent"]["status"], "responded");
        let heard = responses(&mut agent, &call).await;
        assert_eq!(heard[0]["response"], "confirm");
        let words = declaring(version, "{}", &declaration(&["audit"]));
        let mut unagreed = client(&kernel, Door::Http, version, &words).await;
        let refused = unagreed.request("mgp/callback/respond", said.clone()).await;
        assert_eq!(refused.code(), -32601);
        assert!(unagreed.call("mgp.callback.respond", said).await.is_error());
    }
}
