//! Errors, in the codes that a caller knows: those of MGP with how to recover, or those of JSON-RPC.

mod results;
mod retries;

use mgp_tests::harness::program::remote_entry;
use mgp_tests::harness::{Client, DEADLINE, Kernel, Upstream, wait_until};
use serde_json::{Value, json};

use nix::sys::signal::Signal;

use crate::scene::{DOORS, Door, ERAS, kernel_with, of_kind, reported, speaking};

/// An error as an MGP caller gets it: its code, and what is said of trying again.
fn told(answer: &mgp_tests::harness::Answer) -> (i64, Value) {
    let error = answer.error();
    let mgp = error["data"]["_mgp"].clone();
    let category = match answer.code() {
        1000..=1099 => "security",
        2000..=2099 => "lifecycle",
        3000..=3099 => "resource",
        4000..=4099 => "validation",
        5000..=5099 => "external",
        other => panic!("{other} is no code of MGP: {error}"),
    };
    assert_eq!(mgp["category"], category, "{error}");
    assert!(mgp["retryable"].is_boolean(), "{error}");
    if mgp["retryable"] == true {
        assert!(mgp["retry_after_ms"].is_u64(), "{error}");
        assert!(mgp["max_retries"].is_u64(), "{error}");
        let strategies = ["immediate", "fixed_delay", "exponential_backoff"];
        let strategy = mgp["retry_strategy"].as_str().unwrap_or_default();
        assert!(strategies.contains(&strategy), "{error}");
    }
    (answer.code(), mgp)
}

/// What a plain caller gets holds nothing of MGP: an error of JSON-RPC, or a result that says so.
fn plain(answer: &mgp_tests::harness::Answer) -> Option<i64> {
    assert!(!answer.frame.contains("_mgp"), "{}", answer.frame);
    if !answer.is_error() {
        assert_eq!(answer.result()["isError"], true, "{}", answer.frame);
        return None;
    }
    let code = answer.code();
    assert!((-32_768..=-32_000).contains(&code), "{}", answer.frame);
    Some(code)
}

/// What does not fit the schema of `it:test_structured`.
fn invalid_arguments() -> Value {
    json!({"a": "x", "b": 1})
}

/// Clients of every version at every endpoint that speak MGP, or that do not.
async fn clients(kernel: &Kernel, mgp: bool) -> Vec<Client> {
    let mut clients = Vec::new();
    for version in ERAS {
        for door in DOORS {
            clients.push(of_kind(kernel, door, version, mgp).await);
        }
    }
    clients
}

/// MGP-200.
#[tokio::test]
async fn invalid_arguments_are_4000_with_their_path() {
    let kernel = kernel_with("", &[]).await;
    for mut client in clients(&kernel, true).await {
        let answer = client.call("it:test_structured", invalid_arguments()).await;
        let (code, mgp) = told(&answer);
        assert_eq!((code, &mgp["details"]["path"]), (4000, &json!("/a")));
    }
}

/// MGP-201.
#[tokio::test]
async fn unknown_tool_is_4001() {
    let kernel = kernel_with("", &[]).await;
    for mut client in clients(&kernel, true).await {
        assert_eq!(told(&client.call("it:nothing", json!({})).await).0, 4001);
    }
}

/// MGP-206, MGP-207: `told` and `retries` check each field.
#[tokio::test]
async fn error_carries_how_to_recover() {
    let kernel = kernel_with("", &[]).await;
    for mut client in clients(&kernel, true).await {
        let answer = client.call("it:nothing", json!({})).await;
        let mgp = answer.error()["data"]["_mgp"].clone();
        assert_eq!(mgp["category"], "validation", "{mgp}");
        assert_eq!(mgp["retryable"], false, "{mgp}");
        told(&answer);
    }
}

/// MGP-186: what is no request of MGP has the codes of JSON-RPC.
#[tokio::test]
async fn unknown_method_is_an_error_of_json_rpc_for_every_client() {
    let kernel = kernel_with("", &[]).await;
    for mgp in [true, false] {
        for mut client in clients(&kernel, mgp).await {
            assert_eq!(client.request("no/such", json!({})).await.code(), -32601);
        }
    }
}

/// MGP-283: an error of JSON-RPC, or a result that the model can read.
#[tokio::test]
async fn plain_client_gets_errors_without_codes_of_mgp() {
    let kernel = kernel_with("", &[]).await;
    for mut client in clients(&kernel, false).await {
        let unknown = client.call("it:nothing", json!({})).await;
        assert_eq!(plain(&unknown), Some(-32602));
        let invalid = client.call("it:test_structured", invalid_arguments()).await;
        assert_eq!(plain(&invalid), None);
    }
}

/// MGP-193, MGP-203: a server that answers against its own word, that goes away, and that is
/// not there.
#[tokio::test]
async fn failed_server_is_reported_in_the_codes_of_the_caller() {
    let kernel = kernel_with("", &[]).await;
    let mut mgp = of_kind(&kernel, Door::Http, ERAS[1], true).await;
    let mut mcp = of_kind(&kernel, Door::Socket, ERAS[0], false).await;
    assert_eq!(
        told(&mgp.call("it:bad_structured", json!({})).await).0,
        5000
    );
    assert_eq!(
        plain(&mcp.call("it:bad_structured", json!({})).await),
        Some(-32603)
    );
    let (code, lost) = told(&mgp.call("it:crash", json!({"code": 3})).await);
    assert_eq!(
        (code, &lost["retryable"]),
        (5002, &json!(false)),
        "it may have taken effect"
    );
    wait_until("it is back", DEADLINE, async || {
        let info = kernel.mgp_json(&["servers", "show", "it"]).await;
        info["state"] == "connected" && info["restarts"] == 1
    })
    .await;
    kernel.mgp_json(&["servers", "stop", "it"]).await;
    let (code, away) = told(&mgp.call("it:echo", json!({"text": "a"})).await);
    let state = &away["details"]["state"];
    assert_eq!((code, state), (2000, &json!("disconnected")), "{away}");
    assert_eq!(away["retryable"], false, "an operator stopped it");
    assert_eq!(told(&mgp.call("other:echo", json!({})).await).0, 4001);
    // A plain caller reads the same, when the list without the tool is published as well as before.
    wait_until("it is listed no more", DEADLINE, async || {
        let away = mcp.call("it:echo", json!({"text": "a"})).await;
        assert_eq!(plain(&away), Some(-32603));
        assert_eq!(away.error()["data"]["state"], "disconnected");
        let list = mcp.request("tools/list", json!({})).await.result();
        list["tools"] == json!([])
    })
    .await;
}

/// MGP-195: a server that is down for a moment is said to be back soon, and when.
#[tokio::test]
async fn call_to_a_restarting_server_is_2002_with_the_time_to_wait() {
    let kernel = kernel_with("backoff_base_ms = 30000\n", &[]).await;
    let mut mgp = of_kind(&kernel, Door::Http, ERAS[1], true).await;
    let mut mcp = of_kind(&kernel, Door::Socket, ERAS[0], false).await;
    mgp.call("it:crash", json!({"code": 3})).await.error();
    let mut refused = (0, Value::Null);
    wait_until("it waits for its next start", DEADLINE, async || {
        refused = told(&mgp.call("it:count", json!({})).await);
        refused.0 == 2002
    })
    .await;
    let after = refused.1["retry_after_ms"].as_u64().unwrap();
    assert!((1..=30_000).contains(&after), "{refused:?}");
    assert_eq!(refused.1["retryable"], true);
    assert_eq!(plain(&mcp.call("it:count", json!({})).await), Some(-32603));
}

/// MGP-194: a server that is stopping takes no new calls.
#[tokio::test]
async fn call_to_a_draining_server_is_2001() {
    let kernel = kernel_with("", &[]).await;
    let mut busy = of_kind(&kernel, Door::Http, ERAS[0], false).await;
    let params = json!({"name": "it:slow", "arguments": {"ms": 4_000}});
    let id = busy.start("tools/call", params).await;
    let mut mgp = of_kind(&kernel, Door::Http, ERAS[1], true).await;
    let mut mcp = of_kind(&kernel, Door::Http, ERAS[0], false).await;
    wait_until("the call is there", DEADLINE, async || {
        let counts = mgp.call("it:count", json!({})).await.result();
        counts["structuredContent"]["calls"]["slow"] == 1
    })
    .await;
    let stopping = kernel.program(&["servers", "stop", "it"]);
    let stopping = tokio::spawn(async move { stopping.output(DEADLINE).await });
    let mut refused = (0, Value::Null);
    wait_until("it drains", DEADLINE, async || {
        let answer = mgp.call("it:count", json!({})).await;
        if answer.is_error() {
            refused = told(&answer);
        }
        answer.is_error()
    })
    .await;
    assert_eq!(
        (refused.0, &refused.1["retryable"]),
        (2001, &json!(true)),
        "{refused:?}"
    );
    assert_eq!(plain(&mcp.call("it:count", json!({})).await), Some(-32603));
    let Client::Legacy(busy) = &mut busy else {
        panic!("it is a legacy client");
    };
    busy.answer_to(&id).await.result();
    assert!(stopping.await.unwrap().status.success());
}

/// MGP-193, MGP-204, MGP-205: a server that is elsewhere and silent, or gone in the middle of a call, or
/// before it: each caller reads it in its words, and of one that an operator stopped that it is stopped.
#[tokio::test]
async fn silent_upstream_is_5001_and_lost_one_5002() {
    for era in ["legacy", "modern"] {
        let mut upstream = Upstream::start(&["--era", era]).await;
        let keys = "call_timeout_secs = 2\nbackoff_base_ms = 30000\n";
        let kernel = Kernel::start(&(remote_entry("far", &upstream.url()) + keys)).await;
        kernel.connected(&["far"]).await;
        let mut mgp = of_kind(&kernel, Door::Http, ERAS[0], true).await;
        let mut mcp = of_kind(&kernel, Door::Socket, ERAS[1], false).await;
        let (code, silent) = told(&mgp.call("far:hang", json!({})).await);
        assert_eq!(
            (code, &silent["details"]["timeoutMs"]),
            (5001, &json!(2000)),
            "{era}"
        );
        assert_eq!(silent["retryable"], false, "it may have taken effect");
        assert_eq!(plain(&mcp.call("far:hang", json!({})).await), Some(-32603));
        let params = json!({"name": "far:slow", "arguments": {"ms": 60_000}});
        let id = mgp.start("tools/call", params).await;
        wait_until("the call is there", DEADLINE, async || {
            let counts = mcp.call("far:count", json!({})).await.result();
            counts["structuredContent"]["calls"]["slow"] == 1
        })
        .await;
        upstream.process().signal(Signal::SIGKILL);
        upstream.process().end(DEADLINE).await;
        let Client::Legacy(asking) = &mut mgp else {
            panic!("it is a legacy client");
        };
        let (code, lost) = told(&asking.answer_to(&id).await);
        assert_eq!((code, &lost["retryable"]), (5002, &json!(false)), "{era}");
        let mut gone = (0, Value::Null);
        wait_until("its next start is far off", DEADLINE, async || {
            gone = told(&mgp.call("far:count", json!({})).await);
            assert_eq!(gone.0, 5002, "{era}: {gone:?}");
            gone.1["retry_after_ms"].as_u64() > Some(0)
        })
        .await;
        assert_eq!(gone.1["retryable"], true, "nothing was done");
        assert_eq!(plain(&mcp.call("far:count", json!({})).await), Some(-32603));
        kernel.mgp_json(&["servers", "stop", "far"]).await;
        assert_eq!(
            told(&mgp.call("far:count", json!({})).await).0,
            2000,
            "{era}"
        );
    }
}

/// MGP-204, MGP-205: an upstream that takes a call and stands still, and one that was never there, are told
/// to every agent, whichever way it came.
#[tokio::test]
async fn stopped_upstream_is_5001_and_missing_one_5002() {
    let mut still = Upstream::start(&[]).await;
    let mut never = Upstream::start(&[]).await;
    never.process().signal(Signal::SIGKILL);
    never.process().end(DEADLINE).await;
    let keys = "call_timeout_secs = 2\n";
    let entries = remote_entry("still", &still.url()) + keys + &remote_entry("never", &never.url());
    let kernel = Kernel::start(&entries).await;
    kernel.connected(&["still"]).await;
    still.process().signal(Signal::SIGSTOP);
    for (door, version) in [(Door::Http, ERAS[0]), (Door::Socket, ERAS[1])] {
        let mut mgp = of_kind(&kernel, door, version, true).await;
        let (code, silent) = told(&mgp.call("still:echo", json!({"text": "a"})).await);
        assert_eq!(code, 5001, "{door:?} {silent}");
        assert_eq!(silent["details"]["timeoutMs"], 2000);
        let (code, away) = told(&mgp.call("never:echo", json!({"text": "a"})).await);
        assert_eq!(code, 5002, "{door:?} {away}");
        let mut mcp = of_kind(&kernel, door, version, false).await;
        assert_eq!(
            plain(&mcp.call("never:echo", json!({"text": "a"})).await),
            Some(-32603)
        );
    }
}

/// MGP-197, MGP-199: a list that is full, a server that does not answer.
#[tokio::test]
async fn full_server_is_3001_and_late_answer_3003() {
    let kernel = kernel_with("max_in_flight = 1\ncall_timeout_secs = 5\n", &[]).await;
    let mut first = of_kind(&kernel, Door::Http, ERAS[0], true).await;
    let mut mgp = of_kind(&kernel, Door::Http, ERAS[1], true).await;
    let mut mcp = of_kind(&kernel, Door::Socket, ERAS[0], false).await;
    let params = json!({"name": "it:hang", "arguments": {}});
    let id = first.start("tools/call", params).await;
    wait_until("the call is under way", DEADLINE, async || {
        reported(&kernel, "it").await["in_flight"] == 1
    })
    .await;
    let (code, said) = told(&mgp.call("it:count", json!({})).await);
    assert_eq!((code, &said["retryable"]), (3001, &json!(true)));
    let Client::Legacy(first) = &mut first else {
        panic!("it is a legacy client");
    };
    let (code, said) = told(&first.answer_to(&id).await);
    assert_eq!((code, &said["details"]["timeoutMs"]), (3003, &json!(5000)));
    assert_eq!(plain(&mcp.call("it:hang", json!({})).await), Some(-32603));
}

async fn limited(setting: &str) -> Kernel {
    kernel_with(&format!("[limits]\n{setting}\n"), &[]).await
}

/// MGP-196: more calls a minute than are allowed; who waits is told for how long.
#[tokio::test]
async fn calls_beyond_the_rate_of_an_agent_are_3000() {
    let kernel = limited("agent_calls_per_minute = 2").await;
    let mut mgp = of_kind(&kernel, Door::Http, ERAS[1], true).await;
    let mut mcp = of_kind(&kernel, Door::Http, ERAS[0], false).await;
    mgp.call("it:count", json!({})).await.result();
    mcp.call("it:count", json!({})).await.result();
    let (code, said) = told(&mgp.call("it:count", json!({})).await);
    assert_eq!(code, 3000);
    let after = said["retry_after_ms"].as_u64().unwrap();
    assert!((1..=60_000).contains(&after), "{said}");
    assert_eq!(
        said["details"],
        json!({"limit": 2, "window_secs": 60, "current": 3})
    );
    assert_eq!(plain(&mcp.call("it:count", json!({})).await), Some(-32603));
    // Lists are no calls.
    mcp.request("tools/list", json!({})).await.result();
}

/// MGP-198: more calls a day than are allowed; waiting a little does not help.
#[tokio::test]
async fn calls_beyond_the_quota_of_a_day_are_3002() {
    let kernel = limited("agent_calls_per_day = 1").await;
    let mut mgp = of_kind(&kernel, Door::Http, ERAS[0], true).await;
    let mut mcp = of_kind(&kernel, Door::Http, ERAS[1], false).await;
    mgp.call("it:count", json!({})).await.result();
    let (code, said) = told(&mgp.call("it:count", json!({})).await);
    assert_eq!((code, &said["retryable"]), (3002, &json!(false)));
    assert_eq!(said["details"]["limit"], 1);
    assert_eq!(plain(&mcp.call("it:count", json!({})).await), Some(-32603));
}

/// The codes of the document.
const CODES: [i64; 19] = [
    1000, 1001, 1002, 1003, 1010, 1011, 2000, 2001, 2002, 3000, 3001, 3002, 3003, 4000, 4001, 4002,
    5000, 5001, 5002,
];

/// Relays these codes of a server: as they are to MGP clients, as errors of JSON-RPC to others.
async fn assert_relayed(codes: &[i64]) {
    for (era, version) in [("legacy", ERAS[1]), ("modern", ERAS[0])] {
        let flags = speaking(era);
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        let kernel = kernel_with("", &flags).await;
        let mut mgp = of_kind(&kernel, Door::Http, version, true).await;
        let mut mcp = of_kind(&kernel, Door::Socket, version, false).await;
        for code in codes {
            let data =
                json!({"_mgp": {"category": "x", "retryable": false, "details": 1.5}, "own": [1]});
            let error = json!({"code": code, "message": "as told", "data": data});
            let arguments = json!({"key": "k", "error": error.clone()});
            let said = mgp.call("it:fail", arguments.clone()).await.error();
            assert_eq!(said, error, "{era}");
            let said = mcp.call("it:fail", arguments).await;
            let plain = plain(&said);
            let words = said.error();
            assert_eq!(
                (&words["message"], &words["data"]),
                (&json!("as told"), &json!({"own": [1]}))
            );
            let expected = if (4000..5000).contains(code) {
                -32602
            } else {
                -32603
            };
            assert_eq!(plain, Some(expected), "{code}");
        }
    }
}

#[tokio::test]
async fn every_code_of_a_server_is_relayed() {
    assert_relayed(&CODES).await;
}

/// MGP-189, MGP-190.
#[tokio::test]
async fn authentication_codes_of_a_server_are_relayed() {
    assert_relayed(&[1002, 1003]).await;
}

/// MGP-202.
#[tokio::test]
async fn disabled_tool_of_a_server_is_relayed_as_4002() {
    assert_relayed(&[4002]).await;
}
