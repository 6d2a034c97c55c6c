//! A lite server that needs more: its caller is asked, or told.

use mgp_tests::harness::{Kernel, Need, Peers};
use serde_json::{Value, json};

use super::{ASKED, LitePeer, legacy, modern};

fn accepts(content: Value) -> Value {
    json!({"action": "accept", "content": content})
}

/// LITE-013, LITE-015, LITE-076: what a lite server needs is asked of the caller in either era, and the call made
/// again with it; what was added is checked like all arguments; who cannot be asked reads what is needed.
#[tokio::test]
async fn elicitation_of_a_lite_server_reaches_its_caller() {
    let Some(peers) = Peers::find(&[Need::Python]) else {
        return;
    };
    let peer = LitePeer::http(&peers, &[]).await;
    let kernel = Kernel::start(&peer.entry("shop", "")).await;
    kernel.connected(&["shop"]).await;

    let mut agent = legacy(&kernel, ASKED).await;
    agent.answers(
        "elicitation/create",
        accepts(json!({"size": 42, "admin": true})),
    );
    let ordered = agent.call("order", json!({"item": "shoe"})).await;
    assert_eq!(ordered.text(), "shoe 42");
    let asked = &agent.asked()[0];
    assert_eq!(asked["params"]["message"], "Which size?");
    assert_eq!(
        asked["params"]["requestedSchema"]["required"],
        json!(["size"])
    );
    assert_eq!(agent.call("wants_more", json!({})).await.text(), "enough");
    let before = peer.told().await["counts"]["order"].clone();
    agent.answers("elicitation/create", accepts(json!({"size": 99})));
    let refused = agent.call("order", json!({"item": "shoe"})).await;
    assert!(refused.frame.contains("/size"), "{}", refused.frame);
    // Once without the size, and never with the wrong one.
    let after = peer.told().await["counts"]["order"].clone();
    assert_eq!(after.as_u64(), before.as_u64().map(|calls| calls + 1));
    agent.answers("elicitation/create", json!({"action": "decline"}));
    let declined = agent.call("order", json!({"item": "shoe"})).await.result();
    assert_eq!(declined["isError"], true);
    assert!(
        declined.to_string().contains("the answer was no"),
        "{declined}"
    );
    let license = agent.call("needs_something", json!({})).await.result();
    assert_eq!(license["isError"], true, "{license}");

    let mut modern = modern(&kernel, ASKED);
    modern.answers(
        "elicitation/create",
        accepts(json!({"size": 40, "color": "red"})),
    );
    let ordered = modern
        .call("order", json!({"item": "shirt"}))
        .await
        .result();
    assert_eq!(ordered["content"][0]["text"], "shirt 40 red", "{ordered}");
    assert_eq!(modern.asked().len(), 2);

    let mut mute = legacy(&kernel, "{}").await;
    let told = mute.call("order", json!({"item": "shoe"})).await.result();
    let text = told["content"][0]["text"].as_str().unwrap();
    assert_eq!(told["isError"], true);
    assert!(
        text.contains("Which size?") && text.contains("\"size\""),
        "{text}"
    );
    let ordered = mute
        .call("order", json!({"item": "shoe", "size": 44}))
        .await;
    assert_eq!(ordered.text(), "shoe 44");
}
