//! What a server says of MGP and MCPL that nobody agreed to, and what is of no call, goes to nobody.

use mgp_tests::harness::{Client, Kernel};
use serde_json::{Value, json};

use crate::scene::{DOORS, ERAS, kernel_with, of_kind, reported};

/// Said by servers that go on about it although it was never agreed to.
const SAID: [&str; 9] = [
    "notifications/mgp.stream.chunk",
    "notifications/mgp.stream.progress",
    "notifications/mgp.event",
    "notifications/mgp.callback.request",
    "notifications/mgp.anything",
    "notifications/MGP.stream.chunk",
    "channels/incoming",
    "featureSets/changed",
    "push/event",
];
/// A notification of a vendor's own.
const VENDORS: &str = "notifications/acme/done";

async fn dropped(kernel: &Kernel) -> u64 {
    let it = reported(kernel, "it").await;
    it["dropped_notifications"].as_u64().unwrap()
}

async fn announce(client: &mut Client, method: &str, secret: &str) {
    let params = json!({"request_id": 7, "subscription_id": "s", "content": secret});
    let arguments = json!({"method": method, "params": params});
    let sent = client.call("it__announce", arguments).await;
    assert_eq!(sent.text(), "sent");
}

/// What a client heard under this method.
fn heard(client: &Client, method: &str) -> Vec<Value> {
    client.heard(method).into_iter().cloned().collect()
}

/// MGP-024, A-02: through every door and in every era, whether its client speaks MGP or not; what is the
/// vendor's own reaches the one who calls, as ever.
#[tokio::test]
async fn messages_of_an_extension_reach_only_clients_that_negotiated_it() {
    let kernel = kernel_with("", &[]).await;
    let mut expected = dropped(&kernel).await;
    for door in DOORS {
        for era in ERAS {
            for mgp in [false, true] {
                let mut client = of_kind(&kernel, door, era, mgp).await;
                for method in SAID {
                    announce(&mut client, method, "SECRET-OF-A").await;
                    expected += 1;
                    let said = heard(&client, method);
                    assert!(said.is_empty(), "{door:?} {era} {mgp}: {said:?}");
                }
                announce(&mut client, VENDORS, "mine").await;
                let said = heard(&client, VENDORS);
                assert_eq!(said.len(), 1, "{door:?} {era} {mgp}");
                assert_eq!(said[0]["params"]["content"], "mine");
                client.close().await;
            }
        }
    }
    assert_eq!(dropped(&kernel).await, expected);
}

/// While calls of two clients are under way nobody can tell whose it is: it goes to neither.
#[tokio::test]
async fn unattributable_message_is_dropped() {
    let kernel = kernel_with("", &[]).await;
    let mut one = of_kind(&kernel, DOORS[1], ERAS[0], false).await;
    let mut other = of_kind(&kernel, DOORS[1], ERAS[0], false).await;
    let hang = json!({"name": "it__hang", "arguments": {}});
    let under_way = one.start("tools/call", hang).await;
    mgp_tests::harness::wait_until(
        "it is under way",
        mgp_tests::harness::DEADLINE,
        async || reported(&kernel, "it").await["in_flight"] == 1,
    )
    .await;
    let before = dropped(&kernel).await;
    announce(&mut other, VENDORS, "whose").await;
    one.cancel(&under_way).await;
    for client in [&mut one, &mut other] {
        let echo = client.call("it__echo", json!({"text": "x"})).await;
        assert_eq!(echo.text(), "x");
        assert!(heard(client, VENDORS).is_empty());
    }
    assert_eq!(dropped(&kernel).await, before + 1);
}
