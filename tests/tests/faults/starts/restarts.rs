//! Who is started again after it ended, how soon, and how often (MGP §11.5).

use std::time::Duration;

use mgp_tests::harness::{DEADLINE, Kernel, wait_until};
use serde_json::json;

use crate::scene::{echoes, entry, in_state, listed, owner, server, shown, until};
use crate::spawns::Spawns;

/// MGP-149 to MGP-151: as many starts as are allowed and one more, further apart each time up to
/// the longest delay, then parked in plain sight; an operator's start begins anew. A server that ends
/// before it read its first question is not taken for one that ends at it.
#[tokio::test]
async fn a_crash_loop_backs_off_and_is_parked() {
    let spawns = Spawns::new();
    let keys = "max_restarts = 4\nbackoff_base_ms = 100\nbackoff_max_ms = 300";
    let loops = entry("loops", &spawns.of(&["--exit-at-start", "9"]), keys);
    let kernel = Kernel::start(&(loops + &server("calm", &[], ""))).await;
    let mut agent = owner(&kernel).await;
    let parked = |server: &serde_json::Value| {
        let reason = server["reason"].as_str().unwrap_or_default();
        server["state"] == "error" && reason.contains("restart_limit_exceeded")
    };
    until(&mut agent, "loops", "is parked", parked).await;
    let loops = listed(&kernel, "loops").await;
    let reason = loops["reason"].as_str().unwrap();
    assert!(
        reason.contains("4 restarts") && reason.contains("code 9"),
        "{reason}"
    );
    let next_try = loops["next_try_ms"].as_u64().unwrap();
    assert!((200_000..=300_000).contains(&next_try), "{next_try} ms");
    assert_eq!(spawns.count(), 5);
    for (gap, least) in spawns.gaps().iter().zip([100, 200, 300, 300]) {
        let least = Duration::from_millis(least);
        assert!(
            (least..least + DEADLINE).contains(gap),
            "{:?}",
            spawns.gaps()
        );
    }
    let down = agent
        .call("loops__echo", json!({"text": "x"}))
        .await
        .error();
    assert_eq!(
        (&down["code"], &down["data"]["state"]),
        (&json!(-32603), &json!("error"))
    );
    let told = down["data"]["reason"].as_str().unwrap();
    assert!(told.contains("restart_limit_exceeded"), "{down}");
    let retry = down["data"]["retryAfterMs"].as_u64().unwrap();
    assert!(retry <= next_try, "{down}");
    let started = kernel.mgp(&["servers", "start", "loops"]).await;
    assert!(!started.status.success());
    wait_until("it is parked again", DEADLINE, async || {
        spawns.count() == 10
    })
    .await;
    until(&mut agent, "loops", "is parked", parked).await;
    echoes(&mut agent, "calm").await;
    assert_eq!(spawns.count(), 10, "five more and none beside them");
}

/// A parked server is tried again by itself when its window has passed.
#[tokio::test]
async fn a_parked_server_is_tried_again_when_the_window_has_passed() {
    let spawns = Spawns::new();
    let keys = "max_restarts = 1\nrestart_window_secs = 4\nbackoff_base_ms = 20";
    let loops = entry("loops", &spawns.of(&["--exit-at-start", "1"]), keys);
    let kernel = Kernel::start(&loops).await;
    wait_until("it was tried again twice", DEADLINE, async || {
        spawns.count() >= 6
    })
    .await;
    let gaps = spawns.gaps();
    let long = gaps
        .iter()
        .filter(|gap| **gap >= Duration::from_millis(3900))
        .count();
    assert_eq!(long, 2, "two starts to a window: {gaps:?}");
    assert_ne!(listed(&kernel, "loops").await["state"], "connected");
}

/// MGP-153: restarts further apart than the window never park a server.
#[tokio::test]
async fn restarts_outside_the_window_do_not_count() {
    let spawns = Spawns::new();
    let keys = "max_restarts = 1\nrestart_window_secs = 1\nbackoff_base_ms = 20";
    let ages = entry("ages", &spawns.of(&["--crash-after", "1300"]), keys);
    let kernel = Kernel::start(&ages).await;
    let mut agent = owner(&kernel).await;
    wait_until("it crashed three times", DEADLINE, async || {
        let state = shown(&mut agent, "ages").await["state"].clone();
        assert_ne!(state, "error");
        spawns.count() >= 4
    })
    .await;
    in_state(&mut agent, "ages", "connected").await;
    echoes(&mut agent, "ages").await;
}

/// MGP-146 to MGP-148: `never` and a clean exit under `on_failure` stay down; a failure under
/// `on_failure` and any exit under `always` come back.
#[tokio::test]
async fn restart_policy_decides_which_servers_restart() {
    let cases = [
        ("never0", "never", 0, false),
        ("never1", "never", 1, false),
        ("failure0", "on_failure", 0, false),
        ("failure1", "on_failure", 1, true),
        ("always0", "always", 0, true),
        ("always1", "always", 1, true),
    ];
    let spawns = cases.map(|_| Spawns::new());
    let entries = cases
        .iter()
        .zip(&spawns)
        .map(|((id, policy, _, _), spawns)| {
            let keys = format!("restart_policy = {policy:?}\nbackoff_base_ms = 20");
            entry(id, &spawns.of(&[]), &keys)
        });
    let kernel = Kernel::start(&entries.collect::<String>()).await;
    kernel.connected(&cases.map(|(id, ..)| id)).await;
    let mut agent = owner(&kernel).await;
    for (id, _, code, _) in cases {
        let lost = agent
            .call(&format!("{id}__crash"), json!({"code": code}))
            .await;
        assert_eq!(lost.error()["data"]["outcome"], "unknown");
    }
    for ((id, _, code, comes_back), spawns) in cases.iter().zip(&spawns) {
        if *comes_back {
            echoes(&mut agent, id).await;
            assert_eq!(spawns.count(), 2, "{id}");
            continue;
        }
        let state = if *code == 0 { "disconnected" } else { "error" };
        let down = in_state(&mut agent, id, state).await;
        assert_eq!(down["next_try_ms"], json!(null), "{down:#}");
        assert!(
            down["reason"]
                .as_str()
                .is_some_and(|reason| !reason.is_empty()),
            "{down:#}"
        );
    }
    for ((id, .., comes_back), spawns) in cases.iter().zip(&spawns) {
        assert_eq!(spawns.count(), 1 + usize::from(*comes_back), "{id}");
    }
}

/// CMCP-072: a program that does not exist is a reason in plain words; the others run.
#[tokio::test]
async fn missing_command_is_reported_in_plain_words() {
    let gone = "[[servers]]\nid = \"gone\"\ncommand = \"no-such-program-here\"\nmax_restarts = 0\n";
    let gone = gone.to_owned()
        + "[[servers]]\nid = \"far\"\ncommand = \"/no/such/file\"\nmax_restarts = 0\n";
    let kernel = Kernel::start(&(gone + &server("calm", &[], ""))).await;
    kernel.connected(&["calm"]).await;
    let mut agent = owner(&kernel).await;
    in_state(&mut agent, "gone", "error").await;
    in_state(&mut agent, "far", "error").await;
    let reason = listed(&kernel, "gone").await["reason"].to_string();
    assert!(
        reason.contains("no-such-program-here") && reason.contains("PATH"),
        "{reason}"
    );
    let reason = listed(&kernel, "far").await["reason"].to_string();
    assert!(reason.contains("/no/such/file"), "{reason}");
    echoes(&mut agent, "calm").await;
}
