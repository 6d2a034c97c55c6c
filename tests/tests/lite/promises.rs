//! Promises (§3.5, §3.6, A.3): tasks of the kernel under another name, and those of servers.

use std::time::{Duration, Instant};

use mgp_tests::harness::{DEADLINE, Kernel, wait_until};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::scene::{BASE, LiteClient, all, guarded, kernel, read, token};

/// LITE-004, LITE-012, LITE-016, LITE-018, LITE-021, LITE-026, LITE-072: a call that takes long is a promise, in time; redeemed early
/// it is the same promise again, redeemed late the answer.
#[tokio::test]
async fn a_long_call_is_promised_and_redeemed() {
    let kernel = kernel("[tuning.lite]\npromise_after_ms = 100\n", &["--no-tasks"]).await;
    let client = LiteClient::new(&kernel);
    let began = Instant::now();
    let said = client
        .call("it__slow_compute", json!({"seconds": 2, "label": "x"}))
        .await;
    assert!(
        began.elapsed() < Duration::from_millis(1900),
        "{:?}",
        began.elapsed()
    );
    let promise = said.promise();
    let when = |name: &str| said.meta()[name].as_str().unwrap().to_owned();
    assert!(when("estimated_completion") < when("expires_at"));
    assert!(said.result().get("content").is_none(), "{said:?}");
    let early = client.redeem(&promise).await;
    assert_eq!(early.promise(), promise);
    // Who waits for longer is answered in the same request.
    let late = client.prefers("wait=30").redeem(&promise).await;
    assert_eq!((late.kind(), late.text()), ("answer", "computed x"));
    assert_eq!(late.headers["preference-applied"], "wait=30");
    let again = client.redeem(&promise).await;
    assert_eq!(again.text(), "computed x", "as long as it is kept");
    // One that is quick is answered at once.
    assert_eq!(
        client.call("it__echo", json!({"text": "q"})).await.kind(),
        "answer"
    );
}

/// LITE-016, LITE-063, LITE-074, RFC 7240: a caller says when it takes a promise, and that it takes none: then the call is
/// cancelled when its time is over.
#[tokio::test]
async fn a_caller_says_how_long_it_waits() {
    let kernel = kernel("", &["--no-tasks"]).await;
    let client = LiteClient::new(&kernel);
    let slow = json!({"seconds": 30});
    for preference in ["respond-async", "wait=0", "wait=1"] {
        let said = client
            .prefers(preference)
            .call("it__test_slow", slow.clone())
            .await;
        let promise = said.promise();
        assert_eq!(said.headers["preference-applied"], preference);
        let cancelled = client
            .call("redeem", json!({"promise": promise, "action": "cancel"}))
            .await;
        assert_eq!(cancelled.kind(), "answer", "{cancelled:?}");
        // LITE-074, A-36: afterwards it is one that failed.
        let over = client.redeem(&promise).await;
        assert_eq!(
            (over.kind(), over.text()),
            ("failure", "The call was cancelled")
        );
    }
    let refuses = client.prefers("respond-sync, wait=1");
    let said = refuses.call("it__test_slow", slow).await;
    assert_eq!(said.error()["code"], -32603, "{said:?}");
    assert!(said.error()["data"]["timeoutMs"].is_u64());
    let cancelled = async || {
        let count = client.call("it__test_cancel_count", json!({})).await;
        count.text() == "4"
    };
    wait_until(
        "all of them are cancelled at the server",
        DEADLINE,
        cancelled,
    )
    .await;
    let waits = client
        .prefers("respond-sync")
        .call("it__test_slow", json!({"seconds": 1}))
        .await;
    assert_eq!(waits.text(), "slept");
    let wrong = client
        .call("redeem", json!({"promise": "x", "action": "explode"}))
        .await;
    assert_eq!(wrong.error()["code"], -32602);
}

/// LITE-018, LITE-059: tools whose server makes the task itself, or takes them as tasks alone, are promised like all
/// others; how they end is how the call ends.
#[tokio::test]
async fn tasks_of_servers_are_promises() {
    for flags in [&["--era", "modern"][..], &["--era", "legacy", "--jobs"]] {
        let kernel = kernel("[tuning.lite]\npromise_after_ms = 200\n", flags).await;
        let client = LiteClient::new(&kernel);
        let to_its_end = async |tool: &str, arguments: Value| {
            let mut said = client.call(tool, arguments).await;
            for _ in 0..100 {
                if said.body.get("error").is_some() || said.kind() != "promise" {
                    break;
                }
                said = client.prefers("wait=5").redeem(&said.promise()).await;
            }
            said
        };
        let slow = to_its_end("it__slow_compute", json!({"seconds": 1, "label": "y"})).await;
        assert_eq!(
            (slow.kind(), slow.text()),
            ("answer", "computed y"),
            "{flags:?}"
        );
        let failing = to_its_end("it__failing_job", json!({})).await;
        assert_eq!(
            (failing.kind(), failing.text()),
            ("failure", "job failed"),
            "{flags:?}"
        );
        let error = to_its_end("it__protocol_error_job", json!({})).await;
        assert_eq!(error.error()["code"], -32603, "{flags:?} {error:?}");
        // Who refuses promises waits for the end, or has it cancelled at the server; a stream waits by itself.
        let waits = client.prefers("respond-sync");
        let arguments = json!({"seconds": 1, "label": "w"});
        let waited = waits.call("it__slow_compute", arguments.clone()).await;
        assert_eq!(waited.text(), "computed w", "{flags:?}");
        let events = all(client.events("it__slow_compute", arguments).await).await;
        let (name, done) = read(events.last().unwrap());
        assert_eq!(
            (name, &done["content"][0]["text"]),
            ("done", &json!("computed w"))
        );
        let refuses = client.prefers("respond-sync, wait=1");
        let late = refuses
            .call("it__slow_compute", json!({"seconds": 30}))
            .await;
        assert!(
            late.error()["data"]["timeoutMs"].is_u64(),
            "{flags:?} {late:?}"
        );
        let cancelled = client
            .prefers("wait=0")
            .call("it__slow_compute", json!({"seconds": 30}))
            .await;
        let promise = cancelled.promise();
        client
            .call("redeem", json!({"promise": promise, "action": "cancel"}))
            .await;
        let over = client.redeem(&promise).await;
        assert_eq!(over.kind(), "failure", "{flags:?} {over:?}");
    }
}

/// LITE-021, LITE-022, LITE-023, LITE-024, LITE-077: a promise is its caller's, in its view and for its time; whatever else is
/// redeemed reads the same.
#[tokio::test]
async fn a_promise_is_for_its_caller_and_its_time() {
    let sections = "[tuning.lite]\npromise_ttl_secs = 4\n[sets.few]\nservers = [\"it\"]\n";
    let kernel = guarded(sections, &["--no-tasks"]).await;
    let alice = token(&kernel, "alice").await;
    let client = LiteClient::new(&kernel).with_token(&alice);
    let bob = LiteClient::new(&kernel).with_token(&token(&kernel, "bob").await);
    let at_set = LiteClient::at(&kernel, &format!("{BASE}/p/few/rpc")).with_token(&alice);
    let said = client
        .prefers("wait=0")
        .call("it__slow_compute", json!({"seconds": 1, "label": "z"}))
        .await;
    let promise = said.promise();
    let mut forged = promise.clone();
    let middle = forged.len() / 2;
    let other = if &forged[middle..=middle] == "A" {
        "B"
    } else {
        "A"
    };
    forged.replace_range(middle..=middle, other);
    let unknown = bob.redeem("prom_a7b9c2d4e6f8").await.error().clone();
    assert_eq!(unknown["code"], -32602);
    for (who, token) in [
        (&bob, promise.as_str()),
        (&at_set, &promise),
        (&client, &forged),
        (&client, ""),
        (&client, "mgp1."),
        (&client, &"x".repeat(100_000)),
    ] {
        assert_eq!(who.redeem(token).await.error(), &unknown, "{token}");
        let cancel = json!({"promise": token, "action": "cancel"});
        assert_eq!(who.call("redeem", cancel).await.error(), &unknown);
    }
    for wrong in [json!({}), json!({"promise": 7}), json!({"promise": null})] {
        assert_eq!(client.call("redeem", wrong).await.error()["code"], -32602);
    }
    let late = client.prefers("wait=10").redeem(&promise).await;
    assert_eq!(late.text(), "computed z", "the one it was given to");
    let over = async || client.redeem(&promise).await.body.get("error").is_some();
    wait_until("its time is over", DEADLINE, over).await;
    assert_eq!(client.redeem(&promise).await.error(), &unknown);
}

/// LITE-024: who may call the tool no more cannot redeem what it promised.
#[tokio::test]
async fn a_right_that_was_taken_back_takes_the_promise_along() {
    let kernel = guarded("", &["--no-tasks"]).await;
    let client = LiteClient::new(&kernel).with_token(&token(&kernel, "alice").await);
    let said = client
        .prefers("wait=0")
        .call("it__slow_compute", json!({"seconds": 1}))
        .await;
    let promise = said.promise();
    assert!(
        kernel
            .mgp(&["grants", "add", "alice", "it:slow_compute", "--deny"])
            .await
            .status
            .success()
    );
    let refused = client.prefers("wait=5").redeem(&promise).await;
    assert_eq!(refused.error()["code"], -32602, "{refused:?}");
}

/// LITE-030: a restart of the kernel loses no promise of what had ended, and says of the others that nobody knows.
#[tokio::test]
async fn promises_outlive_the_kernel() {
    let kernel = kernel("", &["--no-tasks"]).await;
    let client = LiteClient::new(&kernel).prefers("wait=0");
    let done = client
        .call("it__slow_compute", json!({"seconds": 0.2, "label": "d"}))
        .await
        .promise();
    let lost = client
        .call("it__slow_compute", json!({"seconds": 60}))
        .await
        .promise();
    assert_eq!(
        client.prefers("wait=9").redeem(&done).await.text(),
        "computed d"
    );
    let folder = kernel.end(Signal::SIGKILL, DEADLINE).await;
    let kernel = Kernel::again(folder).await;
    kernel.connected(&["it"]).await;
    let client = LiteClient::new(&kernel);
    assert_eq!(client.redeem(&done).await.text(), "computed d");
    let unknown = client.redeem(&lost).await;
    assert_eq!(unknown.error()["code"], -32603);
    assert_eq!(unknown.error()["data"]["outcome"], "unknown", "{unknown:?}");
}
