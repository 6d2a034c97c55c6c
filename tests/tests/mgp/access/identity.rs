//! Who is who at the doors: agents with tokens of their own, and what belongs to each of them.

mod groups;
mod mtls;
mod oauth;
mod users;

use http::header::{AUTHORIZATION, WWW_AUTHENTICATE};
use http::{Method, StatusCode};
use mgp_tests::harness::handshake::initialize;
use mgp_tests::harness::http::{HttpAnswer, SESSION, VERSION};
use mgp_tests::harness::modern::again;
use mgp_tests::harness::wait::within;
use mgp_tests::harness::{
    Agent, DEADLINE, Envelope, HttpClient, Kernel, Program, Upstream, wait_until,
};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

const NEWEST: &str = "2025-11-25";
const TASKS: &str =
    r#"{"elicitation":{"form":{}},"extensions":{"io.modelcontextprotocol/tasks":{}}}"#;

/// A kernel whose HTTP door wants a token, in front of one scripted server.
async fn kernel_with(flags: &[&str], keys: &str) -> Kernel {
    let entry = Program::fixture(flags).entry("it");
    let kernel =
        Kernel::with_config(&format!("[http]\nlisten = \"127.0.0.1:0\"\n{entry}{keys}")).await;
    kernel.connected(&["it"]).await;
    kernel
}

async fn kernel() -> Kernel {
    kernel_with(&[], "").await
}

/// Makes an agent; gives its token.
async fn token(kernel: &Kernel, name: &str) -> String {
    let made = kernel.mgp_json(&["agents", "add", name]).await;
    assert_eq!(made["id"], format!("agent.{name}"));
    made["token"].as_str().unwrap().to_owned()
}

/// A client that shows this token.
fn holder(url: &str, token: &str) -> HttpClient {
    let mut client = HttpClient::new(url);
    client.set(AUTHORIZATION, &format!("Bearer {token}"));
    client
}

fn request(method: &str, params: Value) -> String {
    json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).to_string()
}

fn call(tool: &str, arguments: Value) -> String {
    request("tools/call", json!({"name": tool, "arguments": arguments}))
}

fn challenge(answer: &HttpAnswer) -> String {
    let value = answer.headers.get(WWW_AUTHENTICATE).expect("a challenge");
    value.to_str().unwrap().to_owned()
}

/// The one message of an answer to a request that stands alone.
async fn ask(client: &HttpClient, capabilities: &str, method: &str, params: Value) -> Value {
    let request = Envelope::new(capabilities).request(&json!(1), method, params);
    let answer = client.put(&request).await;
    let frames = answer.frames().await;
    serde_json::from_str(frames.last().expect("an answer")).unwrap()
}

/// Waits until the server has seen one call of `tool` taken back.
async fn taken_back(kernel: &Kernel, tool: &str) {
    let mut watcher = Agent::over_socket(&kernel.socket()).await;
    watcher.initialize(NEWEST, "{}").await.result();
    wait_until("the call is taken back", DEADLINE, async || {
        let counted = watcher.call("it:count", json!({})).await.result();
        counted["structuredContent"]["cancelled"][tool] == 1
    })
    .await;
}

/// A token is shown once, opens the door, names its agent, and is nowhere to be found afterwards.
#[tokio::test]
async fn token_is_shown_once_and_stored_as_a_hash() {
    let kernel = kernel().await;
    let shown = kernel.mgp(&["agents", "add", "alice"]).await;
    let token = String::from_utf8(shown.stdout).unwrap().trim().to_owned();
    assert!(token.starts_with("mgp_") && token.len() == 47, "{token}");
    let mut alice = holder(kernel.url(), &token);
    alice.open_session(NEWEST, "{}").await;
    let echo = alice.post(call("it:echo", json!({"text": "let in"}))).await;
    assert_eq!(echo.status, StatusCode::OK);
    let mut said = String::new();
    for args in [
        ["agents", "list", "--json"].as_slice(),
        &["agents", "list"],
        &["agents", "token", "alice"],
        &["status"],
    ] {
        let output = kernel.mgp(args).await;
        assert!(output.status.success(), "{args:?}");
        said += &String::from_utf8_lossy(&[output.stdout, output.stderr].concat());
    }
    for name in ["agents.json", "token"] {
        said += &std::fs::read_to_string(kernel.folder().join("data").join(name)).unwrap();
    }
    assert!(
        said.contains("agent.alice") && !said.contains(&token),
        "{said}"
    );
    let again = kernel.mgp(&["agents", "add", "alice"]).await;
    let words = String::from_utf8_lossy(&again.stderr).into_owned();
    assert!(words.contains("--rotate"), "{words}");
    assert_eq!(again.status.code(), Some(1));
}

/// MGP-189, MGP-190: no token, a wrong one and an expired one are three answers of 401, and each
/// tells the client what to do.
#[tokio::test]
async fn missing_wrong_and_expired_tokens_have_distinct_401_answers() {
    let kernel = kernel().await;
    let nobody = HttpClient::new(kernel.url());
    let answer = nobody.post(initialize(NEWEST, "{}")).await;
    assert_eq!(answer.status, StatusCode::UNAUTHORIZED);
    assert_eq!(challenge(&answer), "Bearer");
    let wrong = holder(
        kernel.url(),
        "mgp_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA",
    );
    let answer = wrong.post(initialize(NEWEST, "{}")).await;
    assert_eq!(answer.status, StatusCode::UNAUTHORIZED);
    assert!(challenge(&answer).contains(r#"error="invalid_token""#));
    let made = kernel
        .mgp_json(&["agents", "add", "hasty", "--expires", "2s"])
        .await;
    let mut hasty = holder(kernel.url(), made["token"].as_str().unwrap());
    hasty.open_session(NEWEST, "{}").await;
    let mut stream = hasty.get(None).await.events();
    let ended = async { while stream.next().await.is_some() {} };
    within("the stream ends with the token", DEADLINE, ended).await;
    let answer = hasty.post(request("tools/list", json!({}))).await;
    assert_eq!(answer.status, StatusCode::UNAUTHORIZED);
    let told = challenge(&answer);
    assert!(
        told.contains(r#"error="invalid_token""#) && told.contains("expired at"),
        "{told}"
    );
    let listed = kernel.mgp_json(&["agents", "list"]).await;
    assert_eq!(listed["agents"][0]["expired"], true);
}

/// MGP-189, MGP-190: one that declares MGP is refused in its codes, in both eras; everybody else as before.
#[tokio::test]
async fn mgp_client_without_a_valid_token_gets_codes_of_mgp() {
    let kernel = kernel().await;
    let made = kernel
        .mgp_json(&["agents", "add", "hasty", "--expires", "1s"])
        .await;
    let hasty = holder(kernel.url(), made["token"].as_str().unwrap());
    wait_until("the token is over", DEADLINE, async || {
        let answer = hasty.post(initialize(NEWEST, "{}")).await;
        answer.status == StatusCode::UNAUTHORIZED
    })
    .await;
    let said = r#"{"version":"0.2.0","extensions":["error_handling"]}"#;
    let legacy = initialize(NEWEST, &format!(r#"{{"mgp":{said}}}"#));
    let extension = format!(r#"{{"extensions":{{"dev.cloto/mgp":{said}}}}}"#);
    let nobody = HttpClient::new(kernel.url());
    for (client, code) in [(&nobody, 1002), (&hasty, 1003)] {
        let modern = Envelope::new(&extension).request(&json!(7), "tools/list", json!({}));
        for answer in [client.post(legacy.clone()).await, client.put(&modern).await] {
            assert_eq!(answer.status, StatusCode::UNAUTHORIZED);
            assert!(challenge(&answer).starts_with("Bearer"));
            let told: Value = serde_json::from_str(&answer.text().await).unwrap();
            assert_eq!(told["error"]["code"], code, "{told}");
            assert_eq!(told["error"]["data"]["_mgp"]["retryable"], false, "{told}");
            assert!(!told["id"].is_null(), "{told}");
        }
        let plain = client.post(initialize(NEWEST, "{}")).await.text().await;
        assert!(
            plain.contains("-32600") && !plain.contains("_mgp"),
            "{plain}"
        );
    }
}

/// Each change of the agents is in the audit log, with the agent and without its token.
#[tokio::test]
async fn changes_of_agents_are_written_down() {
    let kernel = kernel().await;
    let made = kernel
        .mgp_json(&["agents", "add", "alice", "--expires", "1h"])
        .await;
    let new = kernel
        .mgp_json(&["agents", "token", "alice", "--rotate"])
        .await;
    kernel.mgp_json(&["agents", "remove", "alice"]).await;
    let log = kernel.mgp(&["audit", "tail", "--json"]).await;
    let log = String::from_utf8_lossy(&log.stdout).into_owned();
    for what in ["added", "renewed", "removed"] {
        let wanted = format!("dev.cloto.mgp.agent_{what}");
        let line = log.lines().find(|line| line.contains(&wanted));
        let line = line.unwrap_or_else(|| panic!("no {wanted} in {log}"));
        assert!(
            line.contains("agent.alice") && line.contains(r#""operator""#),
            "{line}"
        );
    }
    for secret in [&made["token"], &new["token"]] {
        assert!(!log.contains(secret.as_str().unwrap()), "{log}");
    }
}

/// A removed agent is out at once: its session, its stream, its call, what it listens to, its suspended
/// call and its task end; an agent beside it is none the worse.
#[tokio::test]
async fn whatever_a_removed_agent_has_under_way_ends() {
    let legacy = Program::fixture(&["--era", "legacy"]);
    let asking = legacy.entry("asking");
    let keys = format!("task_after_ms = 40\n{asking}");
    let kernel = kernel_with(&["--era", "legacy"], &keys).await;
    kernel.connected(&["asking"]).await;
    let alice = token(&kernel, "alice").await;
    let mut beside = holder(kernel.url(), &token(&kernel, "bob").await);
    beside.open_session(NEWEST, "{}").await;
    let params = json!({"name": "test_elicitation", "arguments": {"message": "Who?"}});
    let there = holder(&kernel.server_url("asking"), &alice);
    let here = holder(&kernel.server_url("it"), &alice);
    let suspended = ask(
        &there,
        r#"{"elicitation":{"form":{}}}"#,
        "tools/call",
        params.clone(),
    )
    .await;
    assert_eq!(
        suspended["result"]["resultType"], "input_required",
        "{suspended}"
    );
    let mut session = holder(kernel.url(), &alice);
    session.open_session(NEWEST, "{}").await;
    let mut standing = session.get(None).await.events();
    let mut calling = session
        .post(call("it:slow", json!({"ms": 60_000})))
        .await
        .events();
    let plain = holder(kernel.url(), &alice);
    let listen = json!({"notifications": {"toolsListChanged": true}});
    let listen = Envelope::new("{}").request(&json!("l"), "subscriptions/listen", listen);
    let mut listening = plain.put(&listen).await.events();
    let slow = json!({"name": "test_slow", "arguments": {"seconds": 60}});
    let task = ask(&here, TASKS, "tools/call", slow).await;
    assert_eq!(task["result"]["resultType"], "task", "{task}");
    kernel.mgp_json(&["agents", "remove", "alice"]).await;
    for client in [&session, &plain, &here, &there] {
        let answer = client.post(request("tools/list", json!({}))).await;
        assert_eq!(answer.status, StatusCode::UNAUTHORIZED);
    }
    for stream in [&mut standing, &mut calling, &mut listening] {
        let ended = async { while stream.next().await.is_some() {} };
        within("the stream ends", DEADLINE, ended).await;
    }
    taken_back(&kernel, "slow").await;
    taken_back(&kernel, "test_slow").await;
    // Who comes later under her name is somebody else.
    let there = holder(&kernel.server_url("asking"), &token(&kernel, "alice").await);
    let stolen = again(&params, &suspended["result"], json!({}));
    let refused = ask(&there, "{}", "tools/call", stolen).await;
    assert_eq!(refused["error"]["code"], -32602, "{refused}");
    let listed = beside.post(request("tools/list", json!({}))).await;
    assert_eq!(listed.status, StatusCode::OK);
}

/// A rotated token is good for nothing at once, sessions included; the new one works.
#[tokio::test]
async fn a_rotated_token_is_good_for_nothing() {
    let kernel = kernel().await;
    let old = token(&kernel, "alice").await;
    let mut session = holder(kernel.url(), &old);
    session.open_session(NEWEST, "{}").await;
    let new = kernel
        .mgp_json(&["agents", "token", "alice", "--rotate"])
        .await;
    let new = new["token"].as_str().unwrap();
    assert_ne!(old, new);
    let answer = session.post(request("tools/list", json!({}))).await;
    assert_eq!(answer.status, StatusCode::UNAUTHORIZED);
    let mut renewed = holder(kernel.url(), new);
    renewed
        .headers
        .insert(SESSION, session.headers[&SESSION].clone());
    renewed.set(VERSION, NEWEST);
    let answer = renewed.post(request("tools/list", json!({}))).await;
    assert_eq!(answer.status, StatusCode::NOT_FOUND);
    renewed.headers.remove(SESSION);
    renewed.open_session(NEWEST, "{}").await;
}

/// An agent is on disk before its token is shown, and so is its removal: the kernel may be killed at
/// any moment after.
#[tokio::test]
async fn acknowledged_agents_survive_a_killed_kernel() {
    let kernel = kernel().await;
    let kept = token(&kernel, "kept").await;
    let gone = token(&kernel, "gone").await;
    kernel.mgp_json(&["agents", "remove", "gone"]).await;
    let folder = kernel.end(Signal::SIGKILL, DEADLINE).await;
    let kernel = Kernel::again(folder).await;
    for (token, wanted) in [(kept, StatusCode::OK), (gone, StatusCode::UNAUTHORIZED)] {
        let client = holder(kernel.url(), &token);
        assert_eq!(client.post(initialize(NEWEST, "{}")).await.status, wanted);
    }
}

/// A session is its agent's alone: to another agent with a good token of its own it is unknown, on
/// every verb, and it is none the worse for it.
#[tokio::test]
async fn the_session_of_another_agent_is_unknown() {
    let kernel = kernel().await;
    let mut alice = holder(kernel.url(), &token(&kernel, "alice").await);
    alice.open_session(NEWEST, "{}").await;
    let mut bob = holder(kernel.url(), &token(&kernel, "bob").await);
    bob.open_session(NEWEST, "{}").await;
    let mut unknown = bob.clone();
    unknown.set(SESSION, "00000000-0000-4000-8000-000000000000");
    bob.headers.insert(SESSION, alice.headers[&SESSION].clone());
    for method in [Method::POST, Method::GET, Method::DELETE] {
        let mut told = Vec::new();
        for client in [&bob, &unknown] {
            let body = match method {
                Method::POST => request("tools/list", json!({})),
                _ => String::new(),
            };
            let answer = client.send(method.clone(), body).await.unwrap();
            assert_eq!(answer.status, StatusCode::NOT_FOUND, "{method}");
            told.push(answer.text().await);
        }
        assert_eq!(told[0], told[1], "{method}");
    }
    let listed = alice.post(request("tools/list", json!({}))).await;
    assert_eq!(listed.status, StatusCode::OK);
}

/// The endpoint of another agent's connection of 2024-11-05 is unknown, too.
#[tokio::test]
async fn the_old_connection_of_another_agent_is_unknown() {
    let kernel = kernel().await;
    let base = kernel.url().trim_end_matches("/mcp").to_owned();
    let (alice, bob) = (token(&kernel, "alice").await, token(&kernel, "bob").await);
    let door = format!("{base}/sse");
    let mut events = holder(&door, &alice).get(None).await.events();
    let endpoint = events.next().await.unwrap().data;
    let url = format!("{base}{endpoint}");
    let stranger = holder(&url, &bob).post(initialize(NEWEST, "{}")).await;
    assert_eq!(stranger.status, StatusCode::NOT_FOUND);
    let own = holder(&url, &alice).post(initialize(NEWEST, "{}")).await;
    assert_eq!(own.status, StatusCode::ACCEPTED);
    let answer = within("the answer", DEADLINE, events.next()).await.unwrap();
    assert!(answer.data.contains("protocolVersion"), "{}", answer.data);
}

/// The `requestState` and the tasks of another agent are those nobody has: same answer, no effect.
#[tokio::test]
async fn the_suspended_call_and_the_task_of_another_agent_are_unknown() {
    let kernel = kernel_with(&["--era", "legacy"], "task_after_ms = 40\n").await;
    let url = kernel.server_url("it");
    let alice = holder(&url, &token(&kernel, "alice").await);
    let bob = holder(&url, &token(&kernel, "bob").await);
    let params = json!({"name": "test_elicitation", "arguments": {"message": "Who?"}});
    let form = r#"{"elicitation":{"form":{}}}"#;
    let suspended = ask(&alice, form, "tools/call", params.clone()).await["result"].take();
    let answers = suspended["inputRequests"].as_object().unwrap();
    let key = answers.keys().next().unwrap().clone();
    let accepted = json!({"action": "accept", "content": {"username": "ada", "email": "a@b.c"}});
    let back = again(&params, &suspended, json!({key: accepted}));
    let stolen = ask(&bob, form, "tools/call", back.clone()).await;
    assert_eq!(stolen["error"]["code"], -32602, "{stolen}");
    let done = ask(&alice, form, "tools/call", back).await;
    assert_eq!(done["result"]["resultType"], "complete", "{done}");
    let slow = json!({"name": "slow", "arguments": {"ms": 200}});
    let task = ask(&alice, TASKS, "tools/call", slow).await;
    let id = task["result"]["taskId"].as_str().unwrap();
    for method in ["tasks/get", "tasks/cancel"] {
        let stolen = ask(&bob, TASKS, method, json!({"taskId": id})).await;
        let unknown = ask(&bob, TASKS, method, json!({"taskId": "none"})).await;
        // The id is repeated, and cut when it is long.
        let words = |answer: &Value| {
            let error = answer["error"].to_string();
            let (before, after) = (error.find(r#"\""#), error.rfind(r#"\""#));
            [&error[..before.unwrap()], &error[after.unwrap()..]].concat()
        };
        assert_eq!(words(&stolen), words(&unknown), "{method}");
    }
    let own = ask(&alice, TASKS, "tasks/get", json!({"taskId": id})).await;
    assert_eq!(own["result"]["taskId"], id, "{own}");
}

/// Names in a body are claims: whoever says to be the operator, or another agent, is who the token
/// says.
#[tokio::test]
async fn a_name_in_a_body_is_no_identity() {
    let kernel = kernel().await;
    token(&kernel, "bob").await;
    let alice = holder(kernel.url(), &token(&kernel, "alice").await);
    let claims = json!({
        "agent_id": "operator", "granted_by": "operator", "created_by": "operator",
        "_meta": {"agent_id": "operator", "dev.cloto/agent": "operator"},
        "name": "bob",
    });
    let hello = json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {
        "protocolVersion": NEWEST, "capabilities": {}, "agent_id": "operator",
        "clientInfo": {"name": "operator", "version": "1"},
    }});
    let opened = alice.post(hello.to_string()).await;
    let mut alice = alice.clone();
    alice
        .headers
        .insert(SESSION, opened.headers[SESSION].clone());
    for method in ["mgp/agents/remove", "mgp/agents/list", "mgp/door/open"] {
        let frames = alice
            .post(request(method, claims.clone()))
            .await
            .frames()
            .await;
        assert!(frames[0].contains("-32601"), "{frames:?}");
    }
    let listed = kernel.mgp_json(&["agents", "list"]).await;
    assert_eq!(listed["agents"].as_array().unwrap().len(), 2);
}

/// `mgp stdio` is an agent and never the operator: the one it names, or `agent.local`. One that is
/// removed is out, and one that nobody knows does not get in.
#[tokio::test]
async fn a_client_of_mgp_stdio_is_an_agent() {
    let kernel = kernel().await;
    token(&kernel, "alice").await;
    for args in [["stdio"].as_slice(), &["stdio", "--agent", "alice"]] {
        let mut agent = Agent::over_stdio(&kernel.program(args));
        agent.initialize(NEWEST, "{}").await.result();
        let stop = agent.request("mgp/kernel/stop", json!({})).await;
        assert_eq!(stop.error()["code"], -32601, "{args:?}");
        let become_other = json!({"agent": "agent.local"});
        let other = agent.request("mgp/door/open", become_other).await;
        assert_eq!(other.error()["code"], -32600, "{args:?}");
        agent.close().await;
    }
    let unknown = kernel.mgp(&["stdio", "--agent", "mallory"]).await;
    let words = String::from_utf8_lossy(&unknown.stderr).into_owned();
    assert!(words.contains("mgp agents add mallory"), "{words}");
    assert_eq!(unknown.status.code(), Some(1));
    let mut alice = Agent::over_stdio(&kernel.program(&["stdio", "--agent", "alice"]));
    alice.initialize(NEWEST, "{}").await.result();
    kernel.mgp_json(&["agents", "remove", "alice"]).await;
    // Its client is still there: one that leaves has ended it itself, and that is a good end.
    let left = alice.left().await;
    assert_eq!(left.and_then(|status| status.code()), Some(1));
}

/// Nothing a client shows reaches a server: no token, no cookie, no header of its own.
#[tokio::test]
async fn no_header_of_a_client_reaches_a_server() {
    let upstream = Upstream::start(&[]).await;
    let entry = format!(
        "[[servers]]\nid = \"far\"\nurl = \"{}\"\nheaders = {{ Authorization = \"Bearer upstreams-own\" }}\n",
        upstream.url()
    );
    let config = format!("[http]\nlisten = \"127.0.0.1:0\"\n{entry}");
    let kernel = Kernel::with_config(&config).await;
    kernel.connected(&["far"]).await;
    let token = token(&kernel, "alice").await;
    let mut alice = holder(kernel.url(), &token);
    for name in [
        "cookie",
        "x-api-key",
        "proxy-authorization",
        "x-forwarded-for",
        "traceparent",
    ] {
        alice.set(
            http::HeaderName::from_static(name),
            &format!("of-the-client-{name}"),
        );
    }
    let params = json!({"name": "echo", "arguments": {"text": "hi"}, "_meta": {}});
    let alice_one = {
        let mut one = HttpClient::new(&kernel.server_url("far"));
        one.headers = alice.headers.clone();
        one
    };
    ask(&alice_one, "{}", "tools/call", params).await;
    alice.open_session(NEWEST, "{}").await;
    alice
        .post(call("far:echo", json!({"text": "hi"})))
        .await
        .text()
        .await;
    let told = alice
        .post(call("far:received", json!({})))
        .await
        .frames()
        .await;
    let told: Value = serde_json::from_str(told.last().unwrap()).unwrap();
    let seen = &told["result"]["structuredContent"]["heads"];
    assert!(seen.as_array().unwrap().len() > 3, "{told}");
    let seen = seen.to_string();
    assert!(seen.contains("upstreams-own"), "{seen}");
    assert!(
        !seen.contains("of-the-client") && !seen.contains(&token),
        "{seen}"
    );
}
