//! What a server can make the kernel ask again and again.

use std::time::{Duration, Instant};

use mgp_tests::harness::program::remote_entry;
use mgp_tests::harness::{DEADLINE, Kernel, wait_until};
use serde_json::json;

use super::odd::{OddServer, usual};
use crate::scene::{listed, owner, until};

/// A list that its server reports as changed each time it is asked for is fetched once a second, and WHY says so.
#[tokio::test]
async fn a_list_reported_as_changed_without_end_is_fetched_once_a_second() {
    for kind in ["tools", "prompts", "resources"] {
        let method = format!("{kind}/list");
        let asked_for = method.clone();
        let far = OddServer::start(move |asked| {
            let answer = usual(asked, &json!({ kind: {"listChanged": true} }));
            if asked.method == asked_for {
                answer.after(&format!(
                    r#"{{"jsonrpc":"2.0","method":"notifications/{kind}/list_changed"}}"#
                ))
            } else {
                answer
            }
        })
        .await;
        let kernel = Kernel::start(&remote_entry("far", &far.url())).await;
        wait_until("it is asked again", DEADLINE, async || {
            far.times(&method) >= 4
        })
        .await;
        let (before, begun) = (far.times(&method), Instant::now());
        wait_until("it is asked three times more", DEADLINE, async || {
            far.times(&method) >= before + 3
        })
        .await;
        let took = begun.elapsed();
        assert!(took > Duration::from_millis(1800), "{took:?}: {method}");
        let mut agent = owner(&kernel).await;
        let says = |far: &serde_json::Value| far["left_out"].to_string().contains("once a second");
        until(&mut agent, "far", "says so", says).await;
        assert_eq!(listed(&kernel, "far").await["state"], "connected");
    }
}
