//! What is taken back while something waits: the call never reaches its server, and of what was given
//! before nothing goes on.

use mgp_tests::harness::envelope::MODERN;
use mgp_tests::harness::mgp::{NINE, declaration, speaks_mgp};
use mgp_tests::harness::modern::{again, wanting};
use mgp_tests::harness::program::Gate;
use mgp_tests::harness::{
    Agent, Answer, Client, DEADLINE, Kernel, ModernAgent, Program, wait_until,
};
use serde_json::{Value, json};

use crate::permissions::{id, question};
use crate::scene::made::{NEWEST, operator};
use crate::scene::reported;

const ANYBODY: &str = "agent.anonymous";
/// A client that can be asked, and given tasks.
const ABLE: &str =
    r#"{"elicitation":{"form":{}},"extensions":{"io.modelcontextprotocol/tasks":{}}}"#;
const WATCHED: &str = "test://watched-resource";

/// What is taken back.
#[derive(Clone, Copy, Debug)]
enum Back {
    /// The agent's leave to call the tool.
    Grant,
    /// A permission that the server needs for the tool.
    Permission,
}

const BACK: [Back; 2] = [Back::Grant, Back::Permission];

impl Back {
    async fn take(self, kernel: &Kernel, tool: &str) {
        let target = format!("it/{tool}");
        let said = match self {
            Self::Grant => {
                kernel
                    .mgp(&["grants", "add", ANYBODY, &target, "--deny"])
                    .await
            }
            Self::Permission => kernel.mgp(&["deny", "it", "shell.execute"]).await,
        };
        assert!(said.status.success(), "{said:?}");
    }
}

/// A kernel in front of `it`, which speaks MGP and may run a shell for these tools.
async fn kernel(tools: &[&str], keys: &str, flags: &[&str]) -> Kernel {
    kernel_of(Program::fixture, tools, keys, flags).await
}

/// The same of another program that takes the flags of the scripted server.
async fn kernel_of(
    program: impl Fn(&[&str]) -> Program,
    tools: &[&str],
    keys: &str,
    flags: &[&str],
) -> Kernel {
    let mut said = declaration(&NINE);
    said["permissions_required"] = json!(["shell.execute"]);
    let needs = json!({"risk_level": "safe", "permissions_required": ["shell.execute"]});
    let security: serde_json::Map<String, Value> = tools
        .iter()
        .map(|tool| ((*tool).to_owned(), needs.clone()))
        .collect();
    let (said, security) = (said.to_string(), Value::from(security).to_string());
    let flags = [&["--mgp", &said, "--mgp-security", &security], flags].concat();
    let keys = format!("permission_policy = \"auto_approve\"\n{keys}");
    let entry = program(&flags).entry("it");
    let config = format!("[confirmation]\nenabled = false\n{entry}{keys}\n");
    let kernel = Kernel::start(&config).await;
    kernel.connected(&["it"]).await;
    kernel
}

/// How many calls of a tool have reached the server.
async fn reached(owner: &mut Agent, tool: &str) -> u64 {
    let counts = owner.call("it:count", json!({})).await.result();
    let calls = &counts["structuredContent"]["calls"];
    calls[tool].as_u64().unwrap_or(0)
}

/// What a server was sent, as one text.
async fn sent(owner: &mut Agent, server: &str) -> String {
    let seen = owner.call(&format!("{server}:received"), json!({})).await;
    seen.result()["structuredContent"]["frames"].to_string()
}

fn is_refused(answer: &Answer) -> bool {
    answer.is_error() || answer.result()["isError"] == true
}

fn call(tool: &str, arguments: Value) -> Value {
    json!({"name": tool, "arguments": arguments})
}

/// MGP-080: of two clients of a server that serves one at a time, the second waits; what it waits for
/// is taken back.
#[tokio::test]
async fn a_revoke_reaches_a_call_that_waits_for_its_turn() {
    for back in BACK {
        let kernel = kernel(&["echo"], "", &["--era", "legacy"]).await;
        let mut first = kernel.http_agent(None);
        let can = r#"{"elicitation":{"form":{}}}"#;
        first.initialize(NEWEST, can).await.result();
        first.answers("elicitation/create", json!({"action": "decline"}));
        let asks = json!({"message": "Who?"});
        first.call("it:test_elicitation", asks).await.result();
        let held = first.start("tools/call", call("it:hang", json!({}))).await;
        wait_until("the first has its turn", DEADLINE, async || {
            reported(&kernel, "it").await["in_flight"] == 1
        })
        .await;
        let mut second = kernel.http_agent(None);
        second.initialize(NEWEST, "{}").await.result();
        let id = second
            .start("tools/call", call("it:echo", json!({"text": "late"})))
            .await;
        second.request("ping", json!({})).await.result();
        back.take(&kernel, "echo").await;
        first
            .notify("notifications/cancelled", json!({"requestId": held}))
            .await;
        let answer = second.answer_to(&id).await;
        assert!(is_refused(&answer), "{back:?}: {}", answer.frame);
        let mut owner = operator(&kernel).await;
        assert_eq!(reached(&mut owner, "hang").await, 1, "{back:?}");
        assert_eq!(reached(&mut owner, "echo").await, 0, "{back:?}");
    }
}

/// MGP-080, MGP-208: the wait before a retry.
#[tokio::test]
async fn a_revoke_reaches_a_call_that_waits_to_be_tried_again() {
    for (version, back) in [NEWEST, MODERN].into_iter().zip(BACK) {
        let kernel = kernel(&["fail"], "", &[]).await;
        let mut owner = operator(&kernel).await;
        let mut client = Client::over_http(kernel.url(), version, "{}").await;
        let told = json!({"code": 3000, "message": "not now",
            "data": {"_mgp": {"retryable": true, "retry_after_ms": 2_000}}});
        let arguments = json!({"key": "k", "times": 1, "error": told});
        let id = client.start("tools/call", call("it:fail", arguments)).await;
        wait_until("the first try", DEADLINE, async || {
            reached(&mut owner, "fail").await == 1
        })
        .await;
        back.take(&kernel, "fail").await;
        let answer = match &mut client {
            Client::Legacy(agent) => agent.answer_to(&id).await,
            Client::Modern(agent) => agent.answer_to(&id).await,
        };
        assert!(is_refused(&answer), "{back:?}: {}", answer.frame);
        assert_eq!(reached(&mut owner, "fail").await, 1, "{back:?}");
    }
}

/// MGP-080, MGP-057: a yes of the operator to a call that its agent may not make any more.
#[tokio::test]
async fn a_revoke_reaches_a_call_that_waits_for_a_yes() {
    for back in BACK {
        let kernel = kernel(&["echo"], "", &["--era", "legacy"]).await;
        // The entry of the kernel confirms nothing; here each call is asked about.
        let config = std::fs::read_to_string(kernel.folder().join("mgp.toml")).unwrap();
        let asks =
            "[confirmation]\nenabled = true\n[servers.tools.echo]\nrisk_level = \"dangerous\"\n";
        let config = config.replace("[confirmation]\nenabled = false\n", "") + asks;
        let kernel = Kernel::with_config(&config).await;
        kernel.connected(&["it"]).await;
        let mut owner = operator(&kernel).await;
        let mut agent = kernel.http_agent(None);
        agent.initialize("2025-03-26", "{}").await.result();
        let params = call("it:echo", json!({"text": "x"}));
        let waits = agent.start("tools/call", params).await;
        let asked = question(&kernel).await;
        back.take(&kernel, "echo").await;
        kernel.mgp_json(&["approve", &id(&asked)]).await;
        let answer = agent.answer_to(&waits).await;
        assert!(is_refused(&answer), "{back:?}: {}", answer.frame);
        assert_eq!(reached(&mut owner, "echo").await, 0, "{back:?}");
    }
}

/// MGP-080: a client comes back with its answers and its `requestState`: the server hears neither, of
/// whichever era it is.
#[tokio::test]
async fn a_revoke_reaches_a_call_that_waits_for_its_client() {
    for era in ["legacy", "modern"] {
        for back in BACK {
            let tool = "test_elicitation";
            let kernel = kernel(&[tool], "", &["--era", era]).await;
            let mut owner = operator(&kernel).await;
            let mut client = ModernAgent::over_http(kernel.url(), ABLE);
            let params = call("it:test_elicitation", json!({"message": "Who?"}));
            let asked = client.ask("tools/call", params.clone()).await;
            let wants = wanting(&asked).expect("a question");
            back.take(&kernel, tool).await;
            let said = json!({"action": "accept", "content": {"username": "forbidden-fruit", "email": "e"}});
            client.answers("elicitation/create", said);
            let responses = client.respond(&wants);
            let answer = client
                .ask("tools/call", again(&params, &wants, responses))
                .await;
            assert!(is_refused(&answer), "{era} {back:?}: {}", answer.frame);
            assert_eq!(reached(&mut owner, tool).await, 1, "{era} {back:?}");
            let sent = sent(&mut owner, "it").await;
            assert!(!sent.contains("forbidden-fruit"), "{era} {back:?}: {sent}");
        }
    }
}

/// MGP-080: a call that waits for its server to be there again.
#[tokio::test]
async fn a_revoke_reaches_a_call_that_waits_for_its_server() {
    let gate = Gate::default();
    gate.open();
    let gated = |flags: &[&str]| gate.fixture(flags);
    let kernel = kernel_of(gated, &["echo"], "", &["--era", "legacy"]).await;
    let mut owner = operator(&kernel).await;
    let mut client = Client::over_http(kernel.url(), NEWEST, "{}").await;
    gate.close();
    owner.call("it:crash", json!({})).await;
    let id = client
        .start("tools/call", call("it:echo", json!({"text": "late"})))
        .await;
    client.request("ping", json!({})).await.result();
    Back::Grant.take(&kernel, "echo").await;
    gate.open();
    kernel.connected(&["it"]).await;
    let Client::Legacy(agent) = &mut client else {
        panic!("it speaks {NEWEST}");
    };
    let answer = agent.answer_to(&id).await;
    assert!(answer.frame.contains("nknown tool"), "{}", answer.frame);
    assert_eq!(reached(&mut owner, "echo").await, 0);
}

/// MGP-080: who may not call the tool any more knows nothing of the tasks that came of it, whoever made
/// them; and knows them again when it may.
#[tokio::test]
async fn a_revoke_reaches_a_task_that_was_given_before() {
    for (flags, tool, arguments) in [
        (["--era", "legacy"], "slow", json!({"ms": 60_000})),
        (["--era", "modern"], "slow_compute", json!({"seconds": 60})),
    ] {
        let kernel = kernel(&[], "task_after_ms = 40\n", &flags).await;
        let mut owner = operator(&kernel).await;
        let mut client = ModernAgent::over_http(kernel.url(), ABLE);
        let given = client
            .ask("tools/call", call(&format!("it:{tool}"), arguments))
            .await
            .result();
        let task = given["taskId"].as_str().expect("a task").to_owned();
        let about = json!({"taskId": task});
        assert!(!client.ask("tasks/get", about.clone()).await.is_error());
        Back::Grant.take(&kernel, tool).await;
        let before = sent(&mut owner, "it").await.matches("tasks/").count();
        for method in ["tasks/get", "tasks/update", "tasks/cancel"] {
            let refused = client.ask(method, about.clone()).await.error();
            let words = refused["message"].as_str().unwrap();
            assert!(words.contains("unknown task"), "{tool} {method}: {refused}");
        }
        let mut listener = ModernAgent::over_http(kernel.url(), ABLE);
        listener.listen(json!({"taskIds": [task]})).await;
        let agreed = listener
            .hears("notifications/subscriptions/acknowledged")
            .await;
        assert!(!agreed.to_string().contains(&task), "{agreed}");
        let after = sent(&mut owner, "it").await.matches("tasks/").count();
        assert_eq!(before, after, "{tool}: nothing of it reached the server");
        let open = kernel
            .mgp(&["grants", "add", ANYBODY, &format!("it/{tool}")])
            .await;
        assert!(open.status.success());
        assert!(!client.ask("tasks/get", about).await.is_error(), "{tool}");
    }
}

/// MGP-080: the same for tasks of 2025-11-25, which can be listed too.
#[tokio::test]
async fn a_revoke_reaches_a_task_of_the_older_version() {
    let kernel = kernel(&[], "", &["--era", "legacy", "--jobs"]).await;
    let mut client = kernel.http_agent(None);
    client.initialize(NEWEST, "{}").await.result();
    let mut params = call("it:slow_compute", json!({"seconds": 60}));
    params["task"] = json!({"ttl": 60_000});
    let given = client.request("tools/call", params).await.result();
    let about = json!({"taskId": given["task"]["taskId"]});
    let listed = client.request("tasks/list", json!({})).await.result();
    assert_eq!(listed["tasks"].as_array().unwrap().len(), 1, "{listed}");
    Back::Grant.take(&kernel, "slow_compute").await;
    for method in ["tasks/get", "tasks/result", "tasks/cancel"] {
        let refused = client.request(method, about.clone()).await.error();
        let words = refused["message"].as_str().unwrap();
        assert!(words.contains("unknown task"), "{method}: {refused}");
    }
    let listed = client.request("tasks/list", json!({})).await.result();
    assert_eq!(listed["tasks"], json!([]));
}

/// MGP-080, MGP-081: of a server that is closed an agent hears nothing; what it followed there has
/// ended, at the server too, and does not begin again by itself.
#[tokio::test]
async fn revoke_ends_subscriptions_at_the_server() {
    let fixture = Program::fixture(&["--era", "legacy"]);
    let servers = fixture.entry("it") + &fixture.entry("two");
    let kernel = Kernel::start(&servers).await;
    kernel.connected(&["it", "two"]).await;
    let mut owner = operator(&kernel).await;
    let mut agent = Client::over_http(kernel.url(), NEWEST, &speaks_mgp(NEWEST)).await;
    agent.wants_logs("debug").await;
    let uri =
        |server: &str| json!({"uri": format!("mcpk://{server}/test%3A%2F%2Fwatched-resource")});
    for server in ["it", "two"] {
        let follow = agent.request("resources/subscribe", uri(server)).await;
        follow.result();
    }
    let said = kernel
        .mgp(&["grants", "add", ANYBODY, "it", "--deny"])
        .await;
    assert!(said.status.success());
    agent.hears("notifications/resources/list_changed").await;
    agent.hears("notifications/tools/list_changed").await;
    agent.hears("notifications/prompts/list_changed").await;
    wait_until("the server is told", DEADLINE, async || {
        sent(&mut owner, "it")
            .await
            .contains("resources/unsubscribe")
    })
    .await;
    agent.forget();
    for kind in ["updated", "tools", "prompts", "resources", "log_aside"] {
        owner
            .call("it:notify", json!({"kind": kind}))
            .await
            .result();
    }
    owner.call("it:crash", json!({})).await;
    kernel.connected(&["it"]).await;
    let open = kernel.mgp(&["grants", "add", ANYBODY, "it"]).await;
    assert!(open.status.success());
    owner
        .call("it:notify", json!({"kind": "updated"}))
        .await
        .result();
    owner
        .call("two:notify", json!({"kind": "updated"}))
        .await
        .result();
    let heard = agent.hears("notifications/resources/updated").await;
    assert!(heard.to_string().contains("mcpk://two/"), "{heard}");
    for silent in [
        "notifications/resources/updated",
        "notifications/message",
        "notifications/mgp.lifecycle",
    ] {
        assert!(agent.heard(silent).is_empty(), "{:?}", agent.heard(silent));
    }
    // Opened again, it may be followed again.
    agent
        .request("resources/subscribe", uri("it"))
        .await
        .result();
    owner
        .call("it:notify", json!({"kind": "updated"}))
        .await
        .result();
    let heard = agent.hears("notifications/resources/updated").await;
    let text = heard.to_string();
    assert!(
        text.contains("mcpk://it/") && !text.contains(WATCHED),
        "{text}"
    );
}

/// MGP-211: another tool that the server names is reached by nobody who may not call it itself, and no
/// server has the kernel's own tools called in its place.
#[tokio::test]
async fn a_fallback_opens_nothing() {
    let own = json!({"name": "mgp_access_grant", "inputSchema": {"type": "object"}}).to_string();
    for back in BACK {
        let kernel = kernel(&["fail_too"], "", &["--tool", &own]).await;
        let mut owner = operator(&kernel).await;
        let mut client = Client::over_http(kernel.url(), NEWEST, &speaks_mgp(NEWEST)).await;
        back.take(&kernel, "fail_too").await;
        let told = |tool: &str| {
            json!({"code": 3000, "message": "not now", "data": {"_mgp":
            {"retryable": true, "retry_after_ms": 1, "max_retries": 0, "fallback_tool": tool}}})
        };
        let arguments = json!({"key": "k", "error": told("fail_too")});
        let refused = client.call("it:fail", arguments).await;
        assert_eq!(refused.code(), 3000, "{back:?}: {}", refused.frame);
        assert_eq!(reached(&mut owner, "fail_too").await, 0, "{back:?}");
        assert_eq!(reached(&mut owner, "fail").await, 1, "{back:?}");
        // At the server's own door, where names are the server's.
        let mut at_it = kernel.stdio_agent(Some("it"));
        at_it.initialize(NEWEST, "{}").await.result();
        let sneaked = json!({"key": "o", "error": told("mgp_access_grant"),
            "entry_type": "server_grant", "agent_id": "agent.mallory", "server_id": "it",
            "permission": "allow"});
        at_it.call("fail", sneaked).await;
        let grants = kernel.mgp_json(&["grants", "list"]).await;
        assert!(!grants.to_string().contains("mallory"), "{grants}");
        at_it.close().await;
    }
}

/// MGP-211: no method of the kernel is called in a tool's place, whatever a server calls its own tools.
#[tokio::test]
async fn a_fallback_is_no_method_of_the_kernel() {
    // It takes any arguments, so nothing but the rule keeps it from being answered.
    let name = "mgp_events_pending_callbacks";
    let own = json!({"name": name, "inputSchema": {"type": "object"}}).to_string();
    let kernel = kernel(&[], "", &["--tool", &own]).await;
    let mut agent = kernel.stdio_agent(Some("it"));
    let capabilities = speaks_mgp(NEWEST);
    agent.initialize(NEWEST, &capabilities).await.result();
    agent.call(name, json!({})).await.result();
    let told = json!({"code": 3000, "message": "not now", "data": {"_mgp":
        {"retryable": true, "retry_after_ms": 1, "max_retries": 0, "fallback_tool": name}}});
    let refused = agent.call("fail", json!({"key": "k", "error": told})).await;
    assert_eq!(refused.code(), 3000, "{}", refused.frame);
}

/// MGP-081, SEP-2243: the headers a hidden tool would want are not asked for.
#[tokio::test]
async fn header_params_of_a_hidden_tool_are_not_disclosed() {
    let kernel = kernel(&[], "", &[]).await;
    let mut client = ModernAgent::over_http(kernel.url(), "{}");
    let hidden = call("it:test_x_mcp_header", json!({"region": "eu"}));
    let open = client.ask("tools/call", hidden.clone()).await;
    assert_eq!(open.code(), -32020, "its headers are wanted");
    Back::Grant.take(&kernel, "test_x_mcp_header").await;
    let closed = client.ask("tools/call", hidden).await;
    let unknown = client
        .ask("tools/call", call("it:nosuch", json!({"region": "eu"})))
        .await;
    let said = closed
        .error()
        .to_string()
        .replace("test_x_mcp_header", "nosuch");
    assert_eq!(said, unknown.error().to_string());
}
