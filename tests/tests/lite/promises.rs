//! Promises (§3.5, §3.6, A.3): tasks of the kernel under another name, and those of servers.

use std::time::{Duration, Instant};

use mgp_tests::harness::{DEADLINE, Kernel, wait_until};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::scene::{BASE, LiteClient, Said, all, guarded, kernel, read, token};

/// A kernel that promises calls that take longer than 100 ms.
async fn promising() -> Kernel {
    kernel("[lite]\npromise_after_ms = 100\n", &["--no-tasks"]).await
}

/// The promise of a call that takes these seconds.
async fn promised(client: &LiteClient, seconds: u32) -> Said {
    let arguments = json!({"seconds": seconds, "label": "x"});
    let said = client.call("it__slow_compute", arguments).await;
    assert_eq!(said.kind(), "promise", "{said:?}");
    said
}

/// LITE-012, LITE-016: and a quick one is answered.
#[tokio::test]
async fn long_call_is_promised_before_it_ends() {
    let kernel = promising().await;
    let client = LiteClient::new(&kernel);
    let began = Instant::now();
    let said = promised(&client, 2).await;
    let took = began.elapsed();
    assert!(took < Duration::from_millis(1900), "{took:?}");
    assert!(!said.promise().is_empty());
    let quick = client.call("it__echo", json!({"text": "q"})).await;
    assert_eq!(quick.kind(), "answer");
}

/// LITE-072.
#[tokio::test]
async fn promise_says_when_it_completes_and_expires() {
    let kernel = promising().await;
    let said = promised(&LiteClient::new(&kernel), 2).await;
    let meta = |name: &str| said.meta()[name].as_str().unwrap().to_owned();
    assert!(
        meta("estimated_completion") < meta("expires_at"),
        "{said:?}"
    );
    assert!(!meta("promise_token").is_empty());
    assert!(said.result().get("content").is_none(), "{said:?}");
}

/// LITE-026: before its end, as often as it is asked.
#[tokio::test]
async fn promise_that_is_redeemed_early_is_promised_again() {
    let kernel = promising().await;
    let client = LiteClient::new(&kernel);
    let promise = promised(&client, 30).await.promise();
    for _ in 0..2 {
        assert_eq!(client.redeem(&promise).await.promise(), promise);
    }
}

/// LITE-018: as long as it is stored, and in the same request where the caller waits.
#[tokio::test]
async fn promise_that_is_redeemed_late_is_the_answer() {
    let kernel = promising().await;
    let client = LiteClient::new(&kernel);
    let promise = promised(&client, 1).await.promise();
    let late = client.prefers("wait=30").redeem(&promise).await;
    assert_eq!((late.kind(), late.text()), ("answer", "computed x"));
    assert_eq!(late.headers["preference-applied"], "wait=30");
    assert_eq!(client.redeem(&promise).await.text(), "computed x");
}

/// LITE-016, LITE-063, LITE-074, RFC 7240: a caller says when it takes a promise, and that it takes none: then the call is
/// cancelled when its time is over.
#[tokio::test]
async fn preference_of_the_caller_decides_when_a_call_is_promised() {
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
        let kernel = kernel("[lite]\npromise_after_ms = 200\n", flags).await;
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

/// A promise of a call that takes a second, of alice, who is at a kernel that asks for tokens.
async fn alices_promise(sections: &str) -> (Kernel, LiteClient, String, String) {
    let kernel = guarded(sections, &["--no-tasks"]).await;
    let alice = token(&kernel, "alice").await;
    let client = LiteClient::new(&kernel).with_token(&alice);
    let promise = promised(&client.prefers("wait=0"), 1).await.promise();
    (kernel, client, alice, promise)
}

/// The error of every token that is not redeemed.
async fn unknown_promise(client: &LiteClient) -> Value {
    client.redeem("prom_a7b9c2d4e6f8").await.error().clone()
}

/// Neither redeems nor cancels it.
async fn assert_not_redeemed(client: &LiteClient, token: &str) {
    let unknown = unknown_promise(client).await;
    assert_eq!(client.redeem(token).await.error(), &unknown, "{token}");
    let cancel = json!({"promise": token, "action": "cancel"});
    let cancelled = client.call("redeem", cancel).await;
    assert_eq!(cancelled.error(), &unknown, "{token}");
}

/// LITE-023.
#[tokio::test]
async fn unknown_promise_is_rejected_as_an_invalid_parameter() {
    let (_kernel, client, ..) = alices_promise("").await;
    assert_eq!(unknown_promise(&client).await["code"], -32602);
    for token in ["", "mgp1.", &"x".repeat(100_000)] {
        assert_not_redeemed(&client, token).await;
    }
    for wrong in [json!({}), json!({"promise": 7}), json!({"promise": null})] {
        let said = client.call("redeem", wrong).await;
        assert_eq!(said.error()["code"], -32602, "{said:?}");
    }
}

/// LITE-022: no part of a token can be changed, and it says nothing of the call.
#[tokio::test]
async fn forged_promise_is_rejected_as_unknown() {
    let (_kernel, client, _, promise) = alices_promise("").await;
    assert!(!promise.contains("slow_compute"), "{promise}");
    let mut forged = promise.clone();
    let middle = forged.len() / 2;
    let other = if &forged[middle..=middle] == "A" {
        "B"
    } else {
        "A"
    };
    forged.replace_range(middle..=middle, other);
    assert_not_redeemed(&client, &forged).await;
    let own = client.prefers("wait=10").redeem(&promise).await;
    assert_eq!(own.text(), "computed x");
}

/// LITE-024, LITE-077: it is bound to its caller and the caller's view.
#[tokio::test]
async fn promise_of_another_agent_or_set_is_unknown() {
    let (kernel, client, alice, promise) = alices_promise("[sets.few]\nservers = [\"it\"]\n").await;
    let bob = LiteClient::new(&kernel).with_token(&token(&kernel, "bob").await);
    let at_set = LiteClient::at(&kernel, &format!("{BASE}/p/few/rpc")).with_token(&alice);
    for other in [&bob, &at_set] {
        assert_not_redeemed(other, &promise).await;
    }
    let own = client.prefers("wait=10").redeem(&promise).await;
    assert_eq!(own.text(), "computed x");
}

/// LITE-021.
#[tokio::test]
async fn promise_expires() {
    let (_kernel, client, _, promise) = alices_promise("[lite]\npromise_ttl_secs = 2\n").await;
    let own = client.prefers("wait=10").redeem(&promise).await;
    assert_eq!(own.text(), "computed x");
    let expired = async || client.redeem(&promise).await.body.get("error").is_some();
    wait_until("the promise to expire", DEADLINE, expired).await;
    assert_not_redeemed(&client, &promise).await;
}

/// LITE-024.
#[tokio::test]
async fn promise_of_a_tool_that_was_denied_since_is_rejected() {
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

/// LITE-030: the outcome of one that had not ended is reported as unknown.
#[tokio::test]
async fn promise_of_an_ended_call_survives_a_killed_kernel() {
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
