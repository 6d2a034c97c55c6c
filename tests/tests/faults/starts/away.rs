//! Servers that are only away: who may use what they have waits for it or is told how they stand, and
//! nobody reads that there is no such thing.

use mgp_tests::harness::mgp::speaks_mgp;
use mgp_tests::harness::program::Gate;
use mgp_tests::harness::wait::within;
use mgp_tests::harness::{
    Agent, Answer, Client, DEADLINE, HttpClient, Kernel, ModernAgent, wait_until,
};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::scene::{AT_ONCE, NEWEST, entry, in_state, owner, server, until};

/// Everybody at an open HTTP door.
const ANYBODY: &str = "agent.anonymous";

/// A server that starts when the gate is open.
fn gated(gate: &Gate, id: &str, flags: &[&str]) -> String {
    entry(id, &gate.fixture(flags), "")
}

/// Whatever is asked of a server that is just being started for the first time is answered when it is
/// there: by any name, at any door, in both eras.
#[tokio::test]
async fn requests_wait_for_a_server_that_starts_for_the_first_time() {
    let gate = Gate::default();
    let run = r#"{"name":"run","inputSchema":{"type":"object"}}"#;
    let late = gated(&gate, "late", &[]) + &gated(&gate, "tool.terminal", &["--tool", run]);
    let kernel = Kernel::start(&late).await;
    let mut agent = owner(&kernel).await;
    let mut at_its_door = ModernAgent::over_http(&kernel.server_url("late"), "{}");
    let hi = json!({"text": "hi"});
    let call = |name: &str| json!({"name": name, "arguments": hi});
    let static_text = "mcpk://late/test%3A%2F%2Fstatic-text";
    let prompt = "late__test_simple_prompt";
    let mut asked = Vec::new();
    for (method, params) in [
        ("tools/call", call("late__echo")),
        ("tools/call", call("late:echo")),
        ("tools/call", call("tool_terminal__run_3x4z5r5s")),
        ("prompts/get", json!({"name": prompt})),
        ("resources/read", json!({"uri": static_text})),
        ("resources/subscribe", json!({"uri": static_text})),
        (
            "completion/complete",
            json!({"ref": {"type": "ref/prompt", "name": "late__test_prompt_with_arguments"},
                "argument": {"name": "arg1", "value": "t"}}),
        ),
        (
            "completion/complete",
            json!({"ref": {"type": "ref/resource", "uri": "mcpk://late/test://template/{id}/data"},
                "argument": {"name": "id", "value": "1"}}),
        ),
    ] {
        asked.push((method, agent.start(method, params).await));
    }
    let own = at_its_door.start("tools/call", call("echo")).await;
    in_state(&mut owner(&kernel).await, "late", "connecting").await;
    gate.open();
    for (method, id) in asked {
        let answer = agent.answer_to(&id).await;
        assert!(!answer.is_error(), "{method}: {}", answer.frame);
    }
    assert_eq!(at_its_door.answer_to(&own).await.text(), "hi");
    // What it does not have is unknown only now.
    let nothing = agent.call("late__nothing", json!({})).await;
    assert_eq!(nothing.code(), -32602, "{}", nothing.frame);
}

/// A name that says nothing of its server is waited for as long as somebody starts who may have it.
#[tokio::test]
async fn bare_names_and_uris_are_found_as_soon_as_their_server_is_there() {
    let gate = Gate::default();
    let servers = server("calm", &["--bare"], "") + &gated(&gate, "late", &[]);
    let kernel = Kernel::start(&servers).await;
    kernel.connected(&["calm"]).await;
    let mut agent = owner(&kernel).await;
    let echo = json!({"name": "echo", "arguments": {"text": "hi"}});
    let listened = json!({"notifications": {"resourceSubscriptions": ["test://watched-resource"]}});
    let mut modern = ModernAgent::over_socket(&kernel.socket(), "{}").await;
    let asked = [
        agent.start("tools/call", echo).await,
        agent
            .start("prompts/get", json!({"name": "test_simple_prompt"}))
            .await,
        agent
            .start("resources/read", json!({"uri": "test://static-text"}))
            .await,
        agent
            .start(
                "resources/subscribe",
                json!({"uri": "test://watched-resource"}),
            )
            .await,
    ];
    let nothing = agent.start("tools/call", json!({"name": "nothing"})).await;
    modern.start("subscriptions/listen", listened).await;
    in_state(&mut owner(&kernel).await, "late", "connecting").await;
    gate.open();
    for id in asked {
        let answer = agent.answer_to(&id).await;
        assert!(!answer.is_error(), "{}", answer.frame);
    }
    assert_eq!(agent.answer_to(&nothing).await.code(), -32602);
    let agreed = modern
        .hears("notifications/subscriptions/acknowledged")
        .await;
    let followed = &agreed["params"]["notifications"]["resourceSubscriptions"];
    assert_eq!(*followed, json!(["test://watched-resource"]), "{agreed}");
}

/// A server that does not come by itself is told with its state, the reason and the next try, at once,
/// to callers of both kinds and for everything it has.
#[tokio::test]
async fn unavailable_server_is_reported_with_state_reason_and_next_try() {
    let kernel = Kernel::start(&absent_servers()).await;
    let mut watching = owner(&kernel).await;
    absent(&kernel, &mut watching).await;
    for (id, state, why) in [
        ("rest", "registered", "configured"),
        ("loops", "error", "restart_limit_exceeded"),
        ("gone", "disconnected", "operator_request"),
        ("ended", "disconnected", "exit"),
    ] {
        for mgp in [false, true] {
            let capabilities = if mgp { speaks_mgp(NEWEST) } else { "{}".into() };
            let mut agent = Client::over_socket(&kernel.socket(), NEWEST, &capabilities).await;
            let uri = format!("mcpk://{id}/test%3A%2F%2Fstatic-text");
            for (method, params) in [
                ("tools/call", json!({"name": format!("{id}__echo")})),
                ("tools/call", json!({"name": format!("{id}:echo")})),
                (
                    "tools/call",
                    json!({"name": "mgp_tools_call", "arguments":
                    {"name": format!("{id}__echo")}}),
                ),
                (
                    "prompts/get",
                    json!({"name": format!("{id}__test_simple_prompt")}),
                ),
                ("resources/read", json!({"uri": uri})),
                ("resources/subscribe", json!({"uri": uri})),
            ] {
                let told = within(method, AT_ONCE, agent.request(method, params)).await;
                let error = told.error();
                let data = if mgp {
                    &error["data"]["_mgp"]["details"]
                } else {
                    &error["data"]
                };
                assert_eq!(error["code"], if mgp { 2000 } else { -32603 }, "{error}");
                assert_eq!(
                    (&data["server"], &data["state"]),
                    (&json!(id), &json!(state))
                );
                let reason = data["reason"].as_str().unwrap();
                assert!(reason.contains(why), "{id}: {reason}");
                assert_eq!(data["retryAfterMs"].is_u64(), id == "loops", "{error}");
                let words = error["message"].as_str().unwrap();
                assert_eq!(words.contains("next try in"), id == "loops", "{words}");
            }
        }
    }
    // What is followed of a server need not be there to be let go of.
    let uri = json!({"uri": "mcpk://gone/test%3A%2F%2Fwatched-resource"});
    watching
        .request("resources/unsubscribe", uri)
        .await
        .result();
    assert_eq!(
        watching.call("gone__nothing", json!({})).await.code(),
        -32602
    );
    assert_eq!(
        watching.call("nobody__echo", json!({})).await.code(),
        -32602
    );
}

/// MGP-081: whatever a server's state, what is denied on it reads as what it does not have, and a
/// server that is denied as one that is not there: at once, in the very words.
#[tokio::test]
async fn denied_tool_is_reported_as_unknown_in_every_state() {
    let servers = absent_servers()
        + &server("back", &[], "backoff_base_ms = 60000")
        + &server("mute", &["--slow-start", "60000"], "");
    let kernel = Kernel::start(&format!("[access]\nreveal = false\n{servers}")).await;
    let mut watching = owner(&kernel).await;
    absent(&kernel, &mut watching).await;
    watching
        .call("back__crash", json!({"code": 3}))
        .await
        .error();
    in_state(&mut watching, "back", "restarting").await;
    in_state(&mut watching, "mute", "connecting").await;
    let all = ["rest", "loops", "gone", "ended", "back", "mute"];
    for id in all {
        deny(&mut watching, id, Some("echo")).await;
    }
    for mgp in [false, true] {
        let capabilities = if mgp { speaks_mgp(NEWEST) } else { "{}".into() };
        let mut agent = Client::over_http(kernel.url(), NEWEST, &capabilities).await;
        for id in all.into_iter().filter(|id| *id != "mute") {
            for form in ["{}__{}", "{}:{}"] {
                let named = |own| form.replacen("{}", id, 1).replacen("{}", own, 1);
                let no = asked(&mut agent, &named("echo")).await;
                let nothing = asked(&mut agent, &named("nothing")).await;
                assert_eq!(no, nothing, "{id}");
            }
        }
    }
    for id in all {
        deny(&mut watching, id, None).await;
    }
    for mgp in [false, true] {
        let capabilities = if mgp { speaks_mgp(NEWEST) } else { "{}".into() };
        let mut agent = Client::over_http(kernel.url(), NEWEST, &capabilities).await;
        let unknown = asked(&mut agent, "nobody__echo").await;
        let no_prompt = got(&mut agent, "prompts/get", "name", "nobody__p").await;
        let no_uri = got(&mut agent, "resources/read", "uri", "mcpk://nobody/a%3Ab").await;
        for id in all {
            for name in [format!("{id}__echo"), format!("{id}:count")] {
                assert_eq!(asked(&mut agent, &name).await, unknown, "{name}");
            }
            let prompt = format!("{id}__p");
            let prompt = got(&mut agent, "prompts/get", "name", &prompt).await;
            assert_eq!(prompt, no_prompt, "{id}");
            let uri = format!("mcpk://{id}/a%3Ab");
            let uri = got(&mut agent, "resources/read", "uri", &uri).await;
            assert_eq!(uri, no_uri, "{id}");
            assert_eq!(door(&kernel, id).await, door(&kernel, "nobody").await);
        }
    }
}

/// While a server starts, a tool of it that is denied takes its time as one that it does not have.
#[tokio::test]
async fn denied_tool_takes_the_time_of_an_unknown_one() {
    let gate = Gate::default();
    let secret = r#"{"name":"secret","inputSchema":{"type":"object"}}"#;
    let calm = server("calm", &["--bare", "--tool", secret], "");
    let kernel = Kernel::start(&(calm + &gated(&gate, "late", &[]))).await;
    kernel.connected(&["calm"]).await;
    let mut watching = owner(&kernel).await;
    deny(&mut watching, "late", Some("echo")).await;
    deny(&mut watching, "calm", Some("secret")).await;
    let mut asked = JoinSet::new();
    // The bare name of what is there and denied, too: it might be one of the server that starts.
    for name in ["late__echo", "late__nothing", "echo", "secret", "nothing"] {
        let mut agent = kernel.http_agent(None);
        agent.initialize(NEWEST, "{}").await.result();
        let call = json!({"name": name, "arguments": {"text": "x"}});
        let id = agent.start("tools/call", call).await;
        asked.spawn(async move { (name, agent.answer_to(&id).await) });
    }
    let meanwhile = async {
        for _ in 0..100 {
            in_state(&mut watching, "late", "connecting").await;
        }
    };
    tokio::select! {
        early = asked.join_next() => panic!("answered before it started: {early:?}"),
        () = meanwhile => gate.open(),
    }
    for (name, answer) in asked.join_all().await {
        let unknown = json!({"code": -32602, "message": format!("Unknown tool: {name}")});
        assert_eq!(answer.error(), unknown);
    }
    assert_eq!(
        watching
            .call("late__echo", json!({"text": "x"}))
            .await
            .text(),
        "x"
    );
}

/// In each state in which nothing comes: one that nobody starts, one that is parked, one that was
/// stopped and one that ended by itself.
fn absent_servers() -> String {
    server("rest", &[], "autostart = false")
        + &server(
            "loops",
            &["--exit-at-start", "1"],
            "max_restarts = 1\nbackoff_base_ms = 10",
        )
        + &server("gone", &[], "")
        + &server("ended", &[], "")
}

/// Brings them there.
async fn absent(kernel: &Kernel, watching: &mut Agent) {
    let parked = |it: &Value| it["reason"].to_string().contains("restart_limit_exceeded");
    until(watching, "loops", "is parked", parked).await;
    in_state(watching, "gone", "connected").await;
    in_state(watching, "ended", "connected").await;
    kernel.mgp_json(&["servers", "stop", "gone"]).await;
    watching
        .call("ended__crash", json!({"code": 0}))
        .await
        .error();
    in_state(watching, "gone", "disconnected").await;
    in_state(watching, "ended", "disconnected").await;
    let empty = async || {
        let list = watching.request("tools/list", json!({})).await.result();
        let text = list.to_string();
        !text.contains("gone__") && !text.contains("ended__")
    };
    wait_until("they are listed no more", DEADLINE, empty).await;
}

pub(super) async fn deny(owner: &mut Agent, id: &str, tool: Option<&str>) {
    let kind = if tool.is_some() {
        "tool_grant"
    } else {
        "server_grant"
    };
    let entry = json!({"entry_type": kind, "agent_id": ANYBODY, "server_id": id,
        "tool_name": tool, "permission": "deny"});
    owner.request("mgp/access/grant", entry).await.result();
}

/// How a call is answered, at once, whatever the tool is called.
async fn asked(agent: &mut Client, name: &str) -> String {
    let answer = within(name, AT_ONCE, agent.call(name, json!({"text": "x"}))).await;
    said(&answer, name)
}

/// The same of what is named in `member`.
async fn got(agent: &mut Client, method: &str, member: &str, name: &str) -> String {
    let params = json!({member: name});
    let answer = within(name, AT_ONCE, agent.request(method, params)).await;
    said(&answer, name)
}

/// The whole error, but for the name and for what a clock says.
fn said(answer: &Answer, name: &str) -> String {
    let mut error = answer.error();
    for clock in [
        "/data/retryAfterMs",
        "/data/_mgp/retry_after_ms",
        "/data/_mgp/details/retryAfterMs",
    ] {
        if let Some(ms) = error.pointer_mut(clock).filter(|ms| ms.is_u64()) {
            *ms = json!("some");
        }
    }
    let words = error["message"].as_str().unwrap();
    if let Some((words, _)) = words.split_once("; next try in ") {
        error["message"] = words.to_owned().into();
    }
    error.to_string().replace(name, "NAME")
}

async fn door(kernel: &Kernel, id: &str) -> u16 {
    let hello = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params":
        {"protocolVersion": NEWEST, "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}});
    let client = HttpClient::new(&kernel.server_url(id));
    client.post(hello.to_string()).await.status.as_u16()
}
