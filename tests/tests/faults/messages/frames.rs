//! Messages over the frame limit, and messages without an end.

use mgp_tests::harness::{Kernel, wait::within};
use serde_json::json;

use crate::machine::peak_memory;
use crate::scene::{
    AT_ONCE, begin, echoes, in_flight, in_state, listed, owner, server, shown, until,
};

/// By how much the memory of a kernel may grow, even once, when a server writes 100 MiB without a newline. What the
/// kernel takes by itself is not counted: the pages of its program differ from one build to the next.
const GROWTH: u64 = 64 << 20;

/// The limit is exact; the call whose answer is over it is told limit and length, and everybody
/// else goes on over the same connection.
#[tokio::test]
async fn an_answer_over_the_limit_is_refused_and_the_connection_lives_on() {
    let kernel = Kernel::start(&server("it", &[], "max_frame_bytes = 100000")).await;
    kernel.connected(&["it"]).await;
    let mut agent = owner(&kernel).await;
    let pid = shown(&mut agent, "it").await["pid"].clone();
    let fits = agent.call("it__huge", json!({"bytes": 100_000})).await;
    assert!(fits.text().len() > 99_000);
    let waiting = begin(&mut agent, "it__slow", json!({"ms": 300})).await;
    for bytes in [100_001, 300_000, 1 << 20] {
        let refused = agent.call("it__huge", json!({"bytes": bytes})).await;
        assert_eq!(refused.code(), -32603);
        assert_eq!(
            refused.error()["data"]["limit"],
            100_000,
            "{}",
            refused.frame
        );
        let words = refused.error()["message"].to_string();
        assert!(
            words.contains("100000") && words.contains("max_frame_bytes"),
            "{words}"
        );
        echoes(&mut agent, "it").await;
    }
    assert_eq!(agent.answer_to(&waiting).await.text(), "slept");
    let it = listed(&kernel, "it").await;
    assert_eq!((&it["pid"], &it["oversized"]), (&pid, &json!(3)), "{it:#}");
}

/// 100 MiB without a newline: the caller learns it as soon as the limit is passed and not by a
/// timeout, the other calls of that server are answered or told, other servers notice nothing, the
/// kernel does not keep what came, and the server is soon of use again.
#[tokio::test]
async fn endless_answer_fails_its_own_call_alone() {
    let keys = "call_timeout_secs = 300\nbackoff_base_ms = 20";
    let servers = server("wild", &[], keys) + &server("calm", &[], "");
    let kernel = Kernel::start(&servers).await;
    kernel.connected(&["wild", "calm"]).await;
    let (mut one, mut other) = (owner(&kernel).await, owner(&kernel).await);
    let bystander = begin(&mut one, "wild__hang", json!({})).await;
    in_flight(&mut one, "wild", 1).await;
    let before = peak_memory(kernel.pid());
    let arguments = json!({"bytes": 100 << 20, "newline": false});
    let endless = begin(&mut one, "wild__huge", arguments).await;
    for _ in 0..20 {
        within("an echo", AT_ONCE, echoes(&mut other, "calm")).await;
    }
    let refused = one.answer_to(&endless).await;
    assert_eq!(refused.code(), -32603);
    assert_eq!(
        refused.error()["data"]["limit"],
        8 << 20,
        "{}",
        refused.frame
    );
    let told = one.answer_to(&bystander).await;
    assert_eq!(told.error()["data"]["outcome"], "unknown");
    until(&mut one, "wild", "is back", |wild| {
        wild["state"] == "connected" && wild["restarts"] == 1
    })
    .await;
    echoes(&mut one, "wild").await;
    let growth = peak_memory(kernel.pid()) - before;
    assert!(growth < GROWTH, "{growth} bytes");
}

/// The same before the handshake: the server does not start, and its state says why.
#[tokio::test]
async fn a_server_that_babbles_before_its_handshake_is_in_error_with_the_reason() {
    let keys = "restart_policy = \"never\"\nautostart = false";
    let wild = server("wild", &["--babble", "104857600"], keys);
    let kernel = Kernel::start(&(wild + &server("calm", &[], ""))).await;
    let mut agent = owner(&kernel).await;
    kernel.connected(&["calm"]).await;
    let before = peak_memory(kernel.pid());
    kernel.mgp(&["servers", "start", "wild"]).await;
    let wild = in_state(&mut agent, "wild", "error").await;
    let reason = wild["reason"].as_str().unwrap();
    assert!(reason.contains("max_frame_bytes"), "{reason}");
    echoes(&mut agent, "calm").await;
    let growth = peak_memory(kernel.pid()) - before;
    assert!(growth < GROWTH, "{growth} bytes");
}
