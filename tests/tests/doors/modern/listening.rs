//! 2026-07-28: streams of news, each with what its client asked for and nothing else.

use http::StatusCode;
use mgp_tests::harness::envelope::SUBSCRIPTION_ID;
use mgp_tests::harness::http::events::Events;
use mgp_tests::harness::wait::within;
use mgp_tests::harness::{DEADLINE, ModernAgent, wait_until};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::scene::{self, Modern, counts};

const ACKNOWLEDGED: &str = "notifications/subscriptions/acknowledged";
const WATCHED: &str = "test://watched-resource";

async fn next(events: &mut Events) -> Option<Value> {
    let message = async {
        loop {
            let event = events.next().await?;
            // Signs of life are no messages.
            if !event.data.is_empty() {
                return Some(serde_json::from_str(&event.data).unwrap());
            }
        }
    };
    within("a message", DEADLINE, message).await
}

/// The first message says what will be heard; every message says of which request it is.
#[tokio::test]
async fn the_first_message_acknowledges_and_all_carry_the_id() {
    for era in ["legacy", "modern"] {
        let kernel = scene::kernel_with("", &["--era", era]).await;
        let mut agent = scene::http_agent(&kernel, Some("it"), "{}").await;
        let modern = Modern::at(&kernel.server_url("it"), "{}");
        let filter = json!({"toolsListChanged": true, "resourceSubscriptions": [WATCHED]});
        let params = json!({"notifications": filter});
        for id in [json!("a listener"), json!(7)] {
            let request = modern.request(id.clone(), "subscriptions/listen", params.clone());
            let answer = modern.client.put(&request).await;
            assert_eq!(answer.status, StatusCode::OK);
            assert!(answer.is_stream());
            assert_eq!(scene::header(&answer.headers, "x-accel-buffering"), "no");
            let mut events = answer.events();
            let first = next(&mut events).await.unwrap();
            assert_eq!(first["method"], ACKNOWLEDGED);
            assert_eq!(first["params"]["notifications"], filter);
            assert_eq!(first["params"]["_meta"][SUBSCRIPTION_ID], id);
            agent
                .call("test_trigger_resource_update", json!({}))
                .await
                .result();
            let second = next(&mut events).await.unwrap();
            assert_eq!(second["method"], "notifications/resources/updated", "{era}");
            assert_eq!(second["params"]["uri"], WATCHED);
            assert_eq!(second["params"]["_meta"][SUBSCRIPTION_ID], id);
            agent
                .call("test_trigger_tool_change", json!({}))
                .await
                .result();
            let third = next(&mut events).await.unwrap();
            assert_eq!(third["method"], "notifications/tools/list_changed", "{era}");
            assert_eq!(third["params"]["_meta"][SUBSCRIPTION_ID], id);
        }
    }
}

/// However much changes meanwhile, the first message is the one that says what will be heard.
#[tokio::test]
async fn nothing_comes_before_the_acknowledgement() {
    let kernel = scene::kernel_with("", &["--era", "legacy"]).await;
    let modern = Modern::at(&kernel.server_url("it"), "{}");
    let mut trigger = scene::http_agent(&kernel, Some("it"), "{}").await;
    let standing = json!({"notifications": {"resourceSubscriptions": [WATCHED]}});
    let request = modern.request("standing", "subscriptions/listen", standing);
    let mut standing = modern.client.put(&request).await.events();
    assert_eq!(next(&mut standing).await.unwrap()["method"], ACKNOWLEDGED);
    // The one is heard of at once, for it is subscribed to already; the others take their time.
    let mut uris = vec![json!(WATCHED)];
    uris.extend((0..20).map(|n| json!(format!("test://static-text?{n}"))));
    let params = json!({"notifications": {"resourceSubscriptions": uris}});
    let request = modern.request("late", "subscriptions/listen", params);
    for _ in 0..5 {
        let listening = async {
            let mut events = modern.client.put(&request).await.events();
            next(&mut events).await.unwrap()
        };
        let changing = async {
            loop {
                let tool = "test_trigger_resource_update";
                trigger.call(tool, json!({})).await.result();
            }
        };
        tokio::select! {
            first = listening => assert_eq!(first["method"], ACKNOWLEDGED),
            () = changing => {}
        }
    }
}

/// What was not asked for does not come, and what nobody offers is not acknowledged.
#[tokio::test]
async fn subscription_receives_requested_notifications_alone() {
    let kernel = scene::kernel().await;
    let mut trigger = scene::http_agent(&kernel, Some("it"), "{}").await;
    let mut prompts = ModernAgent::over_http(&kernel.server_url("it"), "{}");
    let mut nothing = ModernAgent::over_http(&kernel.server_url("it"), "{}");
    prompts
        .listen(json!({"promptsListChanged": true, "x-unknown": true}))
        .await;
    let told = prompts.hears(ACKNOWLEDGED).await;
    let acknowledged = &told["params"]["notifications"];
    assert_eq!(*acknowledged, json!({"promptsListChanged": true}));
    nothing.listen(json!({})).await;
    assert_eq!(
        nothing.hears(ACKNOWLEDGED).await["params"]["notifications"],
        json!({})
    );
    for tool in [
        "test_trigger_tool_change",
        "test_trigger_resource_change",
        "test_trigger_resource_update",
        "test_trigger_prompt_change",
    ] {
        trigger.call(tool, json!({})).await.result();
    }
    prompts.hears("notifications/prompts/list_changed").await;
    assert!(prompts.all_heard().is_empty(), "{:?}", prompts.all_heard());
    nothing.call("echo", json!({"text": "x"})).await.result();
    assert!(nothing.all_heard().is_empty(), "{:?}", nothing.all_heard());
}

/// Several listeners of one client over one line are told apart by their ids, and one is ended
/// without the other.
#[tokio::test]
async fn subscriptions_of_one_client_have_ids_of_their_own() {
    let kernel = scene::kernel().await;
    let mut trigger = scene::http_agent(&kernel, Some("it"), "{}").await;
    let mut agent = ModernAgent::over_socket(&kernel.socket(), "{}").await;
    let filter = json!({"toolsListChanged": true});
    let mut ids = Vec::new();
    for _ in 0..2 {
        ids.push(agent.listen(filter.clone()).await);
        agent.hears(ACKNOWLEDGED).await;
    }
    let of = |news: Value| news["params"]["_meta"][SUBSCRIPTION_ID].clone();
    trigger
        .call("test_trigger_tool_change", json!({}))
        .await
        .result();
    let mut told = Vec::new();
    for _ in 0..2 {
        told.push(of(agent.hears("notifications/tools/list_changed").await));
    }
    told.sort_by_key(Value::to_string);
    assert_eq!(told, ids);
    agent.cancel(&ids[0]).await;
    agent
        .call("it:echo", json!({"text": "in order"}))
        .await
        .result();
    agent.forget();
    trigger
        .call("test_trigger_tool_change", json!({}))
        .await
        .result();
    assert_eq!(
        of(agent.hears("notifications/tools/list_changed").await),
        ids[1]
    );
    agent
        .call("it:echo", json!({"text": "in order"}))
        .await
        .result();
    assert!(agent.heard("notifications/tools/list_changed").is_empty());
}

/// A legacy server is subscribed to while somebody listens, and no longer.
#[tokio::test]
async fn the_last_listener_ends_the_subscription_at_a_legacy_server() {
    let kernel = scene::kernel_with("", &["--era", "legacy"]).await;
    let mut watcher = scene::socket_agent(&kernel, "{}").await;
    let mut one = ModernAgent::over_http(&kernel.server_url("it"), "{}");
    let mut two = ModernAgent::over_http(&kernel.server_url("it"), "{}");
    let filter = json!({"resourceSubscriptions": [WATCHED]});
    let first = one.listen(filter.clone()).await;
    one.hears(ACKNOWLEDGED).await;
    let second = two.listen(filter).await;
    two.hears(ACKNOWLEDGED).await;
    let mut count = async |method: &str| -> u64 {
        let counted = counts(&mut watcher, "it:count").await;
        counted["methods"][method].as_u64().unwrap_or(0)
    };
    assert_eq!(count("resources/subscribe").await, 1);
    one.cancel(&first).await;
    two.call("echo", json!({"text": "x"})).await.result();
    assert_eq!(count("resources/unsubscribe").await, 0);
    two.cancel(&second).await;
    wait_until("nobody is subscribed", DEADLINE, async || {
        count("resources/unsubscribe").await == 1
    })
    .await;
}

/// When the kernel ends in good order it answers those who listen.
#[tokio::test]
async fn a_listener_is_answered_when_the_kernel_ends() {
    let kernel = scene::kernel().await;
    let modern = Modern::at(kernel.url(), "{}");
    let params = json!({"notifications": {"toolsListChanged": true}});
    let request = modern.request("until the end", "subscriptions/listen", params);
    let mut events = modern.client.put(&request).await.events();
    assert_eq!(next(&mut events).await.unwrap()["method"], ACKNOWLEDGED);
    kernel.end(Signal::SIGTERM, DEADLINE).await;
    let last = next(&mut events).await.unwrap();
    assert_eq!(last["id"], "until the end", "{last}");
    assert_eq!(last["result"]["resultType"], "complete");
    assert_eq!(last["result"]["_meta"][SUBSCRIPTION_ID], "until the end");
    assert_eq!(next(&mut events).await, None);
}

/// A quiet stream shows signs of life, which are no messages.
#[tokio::test]
async fn a_quiet_stream_shows_signs_of_life() {
    let kernel = scene::kernel().await;
    let modern = Modern::at(kernel.url(), "{}");
    let params = json!({"notifications": {"toolsListChanged": true}});
    let request = modern.request(1, "subscriptions/listen", params);
    let mut events = modern.client.put(&request).await.events();
    assert_eq!(next(&mut events).await.unwrap()["method"], ACKNOWLEDGED);
    let event = within("a sign of life", DEADLINE, events.next()).await;
    let event = event.unwrap();
    assert!(event.comment && event.data.is_empty(), "{event:?}");
}
