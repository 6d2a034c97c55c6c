//! The same events for clients that speak no MGP, and for a person.

use mgp_tests::harness::envelope::MODERN;
use mgp_tests::harness::{Agent, Client, DEADLINE, wait_until};
use serde_json::{Value, json};

use super::{kernel, owner, telling};

const UPDATED: &str = "notifications/resources/updated";
const COMPLETED: &str = "mgp://events/tool.completed";

/// The events in an answer to `resources/read`.
fn events(said: &Value) -> Vec<Value> {
    let text = said["contents"][0]["text"].as_str().unwrap();
    let text: Value = serde_json::from_str(text).unwrap();
    text["events"].as_array().unwrap().clone()
}

/// the last events of a channel are a resource, of which a plain agent of either era reads what it
/// may hear of, and whose changes it follows.
#[tokio::test]
async fn a_plain_agent_follows_a_channel_as_a_resource() {
    let kernel = kernel(&telling("it", "a.b", &[]), &["it"]).await;
    let mut owner = owner(&kernel).await;
    let mut plain = kernel.http_agent(None);
    plain.initialize("2025-11-25", "{}").await.result();
    plain
        .request("resources/subscribe", json!({"uri": COMPLETED}))
        .await
        .result();
    let mut stateless = Client::over_http(kernel.url(), MODERN, "{}").await;
    let listen = json!({"notifications": {"resourceSubscriptions": ["mgp://events/a.b"]}});
    stateless.start("subscriptions/listen", listen).await;
    stateless
        .hears("notifications/subscriptions/acknowledged")
        .await;
    owner
        .call("it__echo", json!({"text": "not its own"}))
        .await
        .result();
    plain
        .call("it__echo", json!({"text": "its own"}))
        .await
        .result();
    let updated = plain.hears(UPDATED).await;
    assert_eq!(updated["params"]["uri"], COMPLETED);
    let read = plain
        .request("resources/read", json!({"uri": COMPLETED}))
        .await
        .result();
    let own = events(&read);
    assert_eq!(own.len(), 1, "{own:?}");
    assert_eq!(own[0]["channel"], "tool.completed");
    assert_eq!(own[0]["data"]["tool_name"], "echo");
    wait_until("the server is asked", DEADLINE, async || {
        super::held(&mut owner, "it__subscriptions").await.len() == 1
    })
    .await;
    for n in 0..50 {
        super::tell(&mut owner, "it__tell", json!({"channel": "a.b", "data": n})).await;
    }
    assert_eq!(
        stateless.hears(UPDATED).await["params"]["uri"],
        "mgp://events/a.b"
    );
    let read = stateless.request("resources/read", json!({"uri": "mgp://events/a.b"}));
    let told = events(&read.await.result());
    assert!(
        !told.is_empty() && told[0]["_mgp.server_id"] == "it",
        "{told:?}"
    );
    plain
        .request("resources/unsubscribe", json!({"uri": COMPLETED}))
        .await
        .result();
    let none = json!({"uri": "mgp://events/a..b"});
    assert!(plain.request("resources/subscribe", none).await.is_error());
}

/// What a person sees: the channels there are, and events as they come or from the log.
#[tokio::test]
async fn a_person_reads_events_on_the_command_line() {
    let kernel = kernel(&telling("it", "a.b", &[]), &["it"]).await;
    let mut owner: Agent = owner(&kernel).await;
    let listed = kernel.mgp_json(&["events", "list"]).await;
    let channels = listed["channels"].as_array().unwrap();
    let of = |name: &str| channels.iter().find(|channel| channel["channel"] == name);
    assert_eq!(of("tool.completed").unwrap()["logged"], true);
    assert_eq!(of("tool.started").unwrap()["logged"], false);
    owner
        .call("it__echo", json!({"text": "before"}))
        .await
        .result();
    let tail = kernel.program(&["events", "tail", "tool.completed", "--since", "0", "--json"]);
    let out = tokio::time::timeout(DEADLINE, first_line(&tail))
        .await
        .unwrap();
    let event: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(event["data"]["target"]["tool_name"], "echo");
    assert_eq!(event["_mgp.seq"], 1);
    let none = kernel.mgp(&["events", "tail", "no.such"]).await;
    let words = String::from_utf8_lossy(&none.stderr).into_owned();
    assert!(
        !none.status.success() && words.contains("mgp events list"),
        "{words}"
    );
    let help = kernel.mgp(&["events", "tail", "--help"]).await;
    assert!(String::from_utf8_lossy(&help.stdout).contains("Examples:"));
}

/// The first line of a command that does not end by itself; it is ended.
async fn first_line(program: &mgp_tests::harness::Program) -> String {
    use tokio::io::{AsyncBufReadExt, BufReader};
    let mut command = tokio::process::Command::from(program.to_command());
    let command = command
        .stdout(std::process::Stdio::piped())
        .kill_on_drop(true);
    let mut child = command.spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let line = lines.next_line().await.unwrap().unwrap();
    child.kill().await.unwrap();
    tokio::time::timeout(DEADLINE, child.wait())
        .await
        .unwrap()
        .unwrap();
    line
}
