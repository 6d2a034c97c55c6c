//! Calls that are tried again where the server says that they may be.

use mgp_tests::harness::{Client, DEADLINE, Kernel, wait_until};
use serde_json::{Value, json};

use crate::scene::{DOORS, Door, ERAS, kernel_with, of_kind, speaking};

async fn mgp_server(era: &str) -> Kernel {
    let flags = speaking(era);
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    kernel_with("", &flags).await
}

/// An error of the server: 3000, with this under `_mgp`.
fn error(mgp: Value) -> Value {
    json!({"code": 3000, "message": "not now", "data": {"_mgp": mgp, "own": 1}})
}

/// When each call of `fail` under `key` reached the server, in milliseconds.
async fn tries(client: &mut Client, key: &str) -> Vec<u64> {
    let told = client.call("it:tries", json!({})).await.result();
    serde_json::from_value(told["structuredContent"][key].clone()).unwrap_or_default()
}

/// How long the server was left alone between one try and the next.
fn waits(tries: &[u64]) -> Vec<u64> {
    tries.windows(2).map(|two| two[1] - two[0]).collect()
}

/// MGP-208, MGP-209: no try comes before its time, and the waits are those of the strategy: for servers
/// and clients of both eras, at both doors.
#[tokio::test]
async fn a_call_waits_as_long_as_its_server_asks_for() {
    for server in ["legacy", "modern"] {
        let kernel = mgp_server(server).await;
        for (version, door) in ERAS.into_iter().zip(DOORS) {
            let mut client = of_kind(&kernel, door, version, false).await;
            for (strategy, least) in [
                ("immediate", [60, 60, 60]),
                ("fixed_delay", [60, 60, 60]),
                ("exponential_backoff", [60, 120, 240]),
            ] {
                let key = format!("{version} {strategy}");
                let told = error(json!({"category": "resource", "retryable": true,
                    "retry_after_ms": 60, "retry_strategy": strategy, "max_retries": 3}));
                let arguments = json!({"key": key, "times": 3, "error": told});
                let result = client.call("it:fail", arguments).await.result();
                let tries = result["structuredContent"]["tries"].clone();
                let tries: Vec<u64> = serde_json::from_value(tries).unwrap();
                let waits = waits(&tries);
                assert_eq!(waits.len(), 3, "{server} {key}: {waits:?}");
                // The server's own clock may have ticked just before.
                let early = |(wait, least): (&u64, u64)| *wait + 2 < least;
                assert!(
                    !waits.iter().zip(least).any(early),
                    "{server} {key}: {waits:?}"
                );
            }
        }
    }
}

/// MGP-210, MGP-213: it is tried as often as is allowed, or not at all, and the error is reported.
#[tokio::test]
async fn the_error_is_reported_when_all_is_done() {
    for (server, version) in [("modern", ERAS[0]), ("legacy", ERAS[1])] {
        let kernel = mgp_server(server).await;
        let mut client = of_kind(&kernel, Door::Http, version, true).await;
        for (key, told, count) in [
            (
                "two",
                json!({"retryable": true, "retry_after_ms": 1, "max_retries": 2}),
                3,
            ),
            ("none", json!({"retryable": true, "max_retries": 0}), 1),
            (
                "never",
                json!({"retryable": false, "retry_after_ms": 1, "max_retries": 9}),
                1,
            ),
            ("silent", json!({}), 1),
        ] {
            let arguments = json!({"key": key, "error": error(told.clone())});
            let refused = client.call("it:fail", arguments).await.error();
            assert_eq!(refused["code"], 3000);
            assert_eq!(refused["data"], json!({"_mgp": told, "own": 1}));
            assert_eq!(tries(&mut client, key).await.len(), count, "{key}");
        }
    }
}

/// MGP-208, A-05: a server that speaks plain MCP is asked once, whatever it writes into its errors.
#[tokio::test]
async fn call_to_a_plain_server_is_never_retried() {
    let kernel = kernel_with("", &[]).await;
    let mut client = of_kind(&kernel, Door::Socket, ERAS[0], true).await;
    let told = error(json!({"retryable": true, "retry_after_ms": 1, "fallback_tool": "echo"}));
    let refused = client
        .call("it:fail", json!({"key": "k", "error": told}))
        .await;
    assert_eq!(refused.code(), 3000);
    assert_eq!(tries(&mut client, "k").await.len(), 1);
}

/// MGP-211: after the last retry the other tool is called, once, with the same arguments; where there is
/// none such, the error is reported.
#[tokio::test]
async fn the_fallback_comes_after_the_last_retry() {
    for version in ERAS {
        let kernel = mgp_server("dual").await;
        let mut client = of_kind(&kernel, Door::Http, version, true).await;
        let told = |tool: &str| {
            error(
                json!({"retryable": true, "retry_after_ms": 1, "max_retries": 1, "fallback_tool": tool}),
            )
        };
        let arguments = json!({"key": "k", "times": 2, "error": told("fail_too")});
        let result = client.call("it:fail", arguments).await.result();
        let all = result["structuredContent"]["tries"]
            .as_array()
            .unwrap()
            .len();
        assert_eq!(all, 3, "twice, then the other once");
        let counts = client.call("it:count", json!({})).await.result();
        let calls = &counts["structuredContent"]["calls"];
        assert_eq!((&calls["fail"], &calls["fail_too"]), (&json!(2), &json!(1)));

        // A fallback that fails has no retries and no fallback of its own.
        let arguments = json!({"key": "loop", "error": told("fail_too")});
        assert_eq!(client.call("it:fail", arguments).await.code(), 3000);
        assert_eq!(tries(&mut client, "loop").await.len(), 3);
        let arguments = json!({"key": "gone", "error": told("not there")});
        assert_eq!(client.call("it:fail", arguments).await.code(), 3000);
        assert_eq!(tries(&mut client, "gone").await.len(), 2);
        // It passes the checks of any call: here the arguments do not fit, and never leave the kernel.
        let arguments = json!({"key": "unfit", "error": told("test_structured")});
        assert_eq!(client.call("it:fail", arguments).await.code(), 3000);
        let counts = client.call("it:count", json!({})).await.result();
        assert_eq!(
            counts["structuredContent"]["calls"]["test_structured"],
            Value::Null
        );
    }
}

/// MGP-208: a call that is taken back while it waits is not made again.
#[tokio::test]
async fn taking_a_call_back_ends_its_wait() {
    let kernel = mgp_server("dual").await;
    for version in ERAS {
        let mut client = of_kind(&kernel, Door::Http, version, true).await;
        let mut watcher = of_kind(&kernel, Door::Socket, version, false).await;
        let told = error(json!({"retryable": true, "retry_after_ms": 1_500}));
        let params = json!({"name": "it:fail", "arguments": {"key": version, "error": told}});
        let id = client.start("tools/call", params).await;
        wait_until("the first try", DEADLINE, async || {
            tries(&mut watcher, version).await.len() == 1
        })
        .await;
        client.cancel(&id).await;
        // A second call with a longer wait outlives the first one's time.
        let longer = error(json!({"retryable": true, "retry_after_ms": 2_000, "max_retries": 1}));
        let arguments = json!({"key": "after", "times": 1, "error": longer});
        let mut other = of_kind(&kernel, Door::Http, version, true).await;
        other.call("it:fail", arguments).await.result();
        assert_eq!(tries(&mut watcher, version).await.len(), 1, "{version}");
    }
}

/// MGP-212: one event for each try after the first.
#[tokio::test]
async fn each_retry_is_written_down() {
    let kernel = mgp_server("dual").await;
    let mut client = of_kind(&kernel, Door::Http, ERAS[0], true).await;
    let told = error(json!({"retryable": true, "retry_after_ms": 5, "max_retries": 3}));
    let arguments = json!({"key": "k", "times": 2, "error": told});
    client.call("it:fail", arguments).await.result();
    let retried = |text: &str| text.matches("dev.cloto.mgp.tool_retried").count();
    wait_until("both events are on disk", DEADLINE, async || {
        retried(&log_of(&kernel)) >= 2
    })
    .await;
    let log = log_of(&kernel);
    assert_eq!(retried(&log), 2, "{log}");
    let event = log.lines().find(|line| retried(line) > 0).unwrap();
    for said in [
        r#""attempt":1"#,
        r#""wait_ms":"#,
        r#""code":3000"#,
        r#""fail""#,
    ] {
        assert!(event.contains(said), "{said} in {event}");
    }
}

/// Everything below the folder of the log, as text.
fn log_of(kernel: &Kernel) -> String {
    let folder = kernel.folder().join("data/audit");
    let files = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let text = |file: std::fs::DirEntry| std::fs::read(file.path()).unwrap_or_default();
    files
        .map(|file| String::from_utf8_lossy(&text(file)).into_owned())
        .collect()
}
