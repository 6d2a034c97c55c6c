//! The experimental tasks of 2025-11-25: relayed between a client and a server of that version, and
//! bridged where a server takes some calls only so.

use mgp_tests::harness::program::remote_entry;
use mgp_tests::harness::{Agent, DEADLINE, Kernel, ModernAgent, Program, Upstream, wait_until};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

const FLAGS: [&str; 3] = ["--era", "legacy", "--jobs"];
const ABLE: &str = r#"{"elicitation":{},"tasks":{"list":{},"cancel":{}}}"#;
const KNOWS: &str =
    r#"{"elicitation":{"form":{}},"extensions":{"io.modelcontextprotocol/tasks":{}}}"#;
const RELATED: &str = "io.modelcontextprotocol/related-task";

async fn kernel() -> Kernel {
    let kernel = Kernel::start(&Program::fixture(&FLAGS).entry("it")).await;
    kernel.connected(&["it"]).await;
    kernel
}

async fn client(kernel: &Kernel) -> Agent {
    let mut client = kernel.http_agent(Some("it"));
    let told = client.initialize("2025-11-25", ABLE).await.result();
    let offered = &told["capabilities"]["tasks"];
    assert!(offered["requests"]["tools"]["call"].is_object(), "{told}");
    client
}

/// Calls a tool as a task; gives its name.
async fn task(client: &mut Agent, tool: &str, arguments: Value) -> String {
    let params = json!({"name": tool, "arguments": arguments, "task": {"ttl": 60_000}});
    let created = client.request("tools/call", params).await.result();
    assert_eq!(created["task"]["ttl"], 60_000, "{created}");
    let id = created["task"]["taskId"].as_str().unwrap().to_owned();
    assert!(id.starts_with("mgp1."), "{id}");
    id
}

#[tokio::test]
async fn a_task_is_relayed_and_is_its_clients_alone() {
    let kernel = kernel().await;
    let mut owner = client(&kernel).await;
    let id = task(&mut owner, "slow", json!({"ms": 300})).await;
    let about = json!({"taskId": id});
    let seen = owner.request("tasks/get", about.clone()).await.result();
    assert_eq!(
        (&seen["taskId"], &seen["status"]),
        (&json!(id), &json!("working"))
    );
    let done = owner.request("tasks/result", about.clone()).await;
    assert_eq!(done.text(), "slept");
    assert_eq!(done.result()["_meta"][RELATED]["taskId"], id);
    let told = owner.hears("notifications/tasks/status").await;
    assert_eq!(told["params"]["taskId"], id);
    assert_eq!(told["params"]["status"], "completed");
    let list = owner.request("tasks/list", json!({})).await.result();
    assert_eq!(list["tasks"].as_array().unwrap().len(), 1);
    assert_eq!(list["tasks"][0]["taskId"], id);
    let over = owner.request("tasks/cancel", about.clone()).await;
    assert_eq!(over.code(), -32602);

    let mut stranger = kernel.http_agent(None);
    stranger.initialize("2025-11-25", ABLE).await.result();
    let list = stranger.request("tasks/list", json!({})).await.result();
    assert_eq!(list["tasks"], json!([]));
    for method in ["tasks/get", "tasks/result", "tasks/cancel"] {
        let refused = stranger.request(method, about.clone()).await;
        assert_eq!(refused.code(), -32602, "{method}");
    }
    assert!(stranger.heard("notifications/tasks/status").is_empty());
    let mut older = kernel.http_agent(Some("it"));
    let told = older.initialize("2025-06-18", ABLE).await.result();
    assert!(told["capabilities"].get("tasks").is_none());
    let refused = older.request("tasks/get", about).await;
    assert_eq!(refused.code(), -32601);
}

#[tokio::test]
async fn a_task_is_cancelled_at_its_server() {
    let kernel = kernel().await;
    let mut client = client(&kernel).await;
    let id = task(&mut client, "slow", json!({"ms": 60_000})).await;
    let seen = client.request("tasks/cancel", json!({"taskId": id})).await;
    assert_eq!(seen.result()["status"], "cancelled");
    assert_eq!(seen.result()["taskId"], id);
}

/// What a task asks comes with the wait for its result, and names the task as its client does.
#[tokio::test]
async fn a_task_asks_its_client() {
    let kernel = kernel().await;
    let mut client = client(&kernel).await;
    client.answers("elicitation/create", json!({"action": "decline"}));
    let id = task(&mut client, "ask_slow", json!({})).await;
    let done = client.request("tasks/result", json!({"taskId": id})).await;
    assert_eq!(done.text(), "action=decline");
    assert_eq!(client.asked()[0]["params"]["_meta"][RELATED]["taskId"], id);
}

/// The name of a task serves on after the end of the kernel; the list begins anew.
#[tokio::test]
async fn a_tasks_name_outlives_the_kernel() {
    let upstream = Upstream::start(&FLAGS).await;
    let kernel = Kernel::start(&remote_entry("it", &upstream.url())).await;
    kernel.connected(&["it"]).await;
    let id = task(&mut client(&kernel).await, "slow", json!({"ms": 1})).await;
    let kernel = Kernel::again(kernel.end(Signal::SIGKILL, DEADLINE).await).await;
    kernel.connected(&["it"]).await;
    let mut client = client(&kernel).await;
    let done = client.request("tasks/result", json!({"taskId": id})).await;
    assert_eq!(done.text(), "slept");
    let list = client.request("tasks/list", json!({})).await.result();
    assert_eq!(list["tasks"], json!([]));
}

/// A stateless client calls a tool that such a server only takes as a task: for the client it is a
/// task of the extension, with all that it asks.
#[tokio::test]
async fn a_stateless_client_is_given_a_task_for_a_tool_that_wants_one() {
    let kernel = kernel().await;
    let mut simple = ModernAgent::over_http(&kernel.server_url("it"), r#"{"elicitation":{}}"#);
    let refused = simple.call("failing_job", json!({})).await;
    assert_eq!(refused.code(), -32021);
    let mut client = ModernAgent::over_http(&kernel.server_url("it"), KNOWS);
    let params = json!({"name": "test_tool_with_task", "arguments": {}});
    let told = client.ask("tools/call", params).await.result();
    assert_eq!(told["resultType"], "task", "{told}");
    let id = told["taskId"].clone();
    let asking = stands(&mut client, &id, "input_required").await;
    let questions = asking["inputRequests"].as_object().unwrap();
    let (key, question) = questions.iter().next().unwrap();
    assert_eq!(question["params"]["message"], "What is your name?");
    let answer = json!({"action": "accept", "content": {"name": "Ada"}});
    let update = json!({"taskId": id, "inputResponses": {key: answer}});
    assert!(!client.ask("tasks/update", update).await.is_error());
    let done = stands(&mut client, &id, "completed").await;
    assert_eq!(done["result"]["content"][0]["text"], "Hello, Ada!");
    assert_eq!(done["result"]["resultType"], "complete");
}

/// What a stateless client takes back is taken back at the server.
#[tokio::test]
async fn a_bridged_task_is_cancelled_at_its_server() {
    let kernel = kernel().await;
    let mut client = ModernAgent::over_http(&kernel.server_url("it"), KNOWS);
    let params = json!({"name": "test_tool_with_task", "arguments": {}});
    let told = client.ask("tools/call", params).await.result();
    let id = told["taskId"].clone();
    stands(&mut client, &id, "input_required").await;
    let taken = client.ask("tasks/cancel", json!({"taskId": id})).await;
    assert!(!taken.is_error());
    stands(&mut client, &id, "cancelled").await;
    wait_until("the server was told", DEADLINE, async || {
        let counts = client.call("count", json!({})).await.result();
        counts["structuredContent"]["methods"]["tasks/cancel"] == 1
    })
    .await;
}

/// A client of 2025-11-25 in front of a modern server that makes tasks.
async fn bridged(kernel: &Kernel) -> Agent {
    kernel.connected(&["it"]).await;
    let mut client = kernel.http_agent(Some("it"));
    let told = client.initialize("2025-11-25", ABLE).await.result();
    let offered = json!({"cancel": {}, "requests": {"tools": {"call": {}}}});
    assert_eq!(told["capabilities"]["tasks"], offered, "{told}");
    client
}

/// Calls a tool as a task of a modern server; gives its name.
async fn bridged_task(client: &mut Agent, tool: &str, arguments: Value) -> String {
    let params = json!({"name": tool, "arguments": arguments, "task": {"ttl": 60_000}});
    let created = client.request("tools/call", params).await.result();
    let task = &created["task"];
    assert!(task["ttl"].is_number() && task["pollInterval"].is_number());
    assert!(task.get("ttlMs").is_none() && created.get("resultType").is_none());
    task["taskId"].as_str().unwrap().to_owned()
}

/// A client that asks for tasks is given those of the extension in the words of its own version;
/// nobody else can use them.
#[tokio::test]
async fn a_modern_servers_task_is_a_task_of_the_experiment() {
    let kernel = Kernel::start(&Program::fixture(&["--era", "modern"]).entry("it")).await;
    let mut owner = bridged(&kernel).await;
    let list = owner.request("tools/list", json!({})).await.result();
    for tool in list["tools"].as_array().unwrap() {
        assert!(tool["execution"]["taskSupport"].is_string(), "{tool}");
    }
    let arguments = json!({"seconds": 0.3, "label": "x"});
    let id = bridged_task(&mut owner, "slow_compute", arguments).await;
    assert!(id.starts_with("mgp1."), "{id}");
    let about = json!({"taskId": id});
    let seen = owner.request("tasks/get", about.clone()).await.result();
    assert_eq!(
        (&seen["taskId"], &seen["status"]),
        (&json!(id), &json!("working"))
    );
    let done = owner.request("tasks/result", about.clone()).await;
    assert_eq!(done.text(), "computed x");
    assert_eq!(done.result()["_meta"][RELATED]["taskId"], id);
    assert!(done.result().get("resultType").is_none());
    let seen = owner.request("tasks/get", about.clone()).await.result();
    assert_eq!(seen["status"], "completed");
    assert!(seen.get("result").is_none());

    let mut stranger = kernel.http_agent(None);
    stranger.initialize("2025-11-25", ABLE).await.result();
    for method in ["tasks/get", "tasks/result", "tasks/cancel"] {
        let refused = stranger.request(method, about.clone()).await;
        assert_eq!(refused.code(), -32602, "{method}");
    }
}

/// An answer that is there is given at once, and an error comes with the wait for the result.
#[tokio::test]
async fn a_call_that_does_not_become_a_task_is_answered() {
    let kernel = Kernel::start(&Program::fixture(&["--era", "modern"]).entry("it")).await;
    let mut client = bridged(&kernel).await;
    let params = json!({"name": "echo", "arguments": {"text": "e"}, "task": {}});
    assert_eq!(client.request("tools/call", params).await.text(), "e");
    let id = bridged_task(&mut client, "protocol_error_job", json!({})).await;
    let failed = client.request("tasks/result", json!({"taskId": id})).await;
    assert_eq!(failed.code(), -32603);
}

/// What a task of a modern server asks comes with the wait for its result; what is asked before it
/// becomes one comes with the call.
#[tokio::test]
async fn a_modern_servers_task_asks_its_client() {
    let kernel = Kernel::start(&Program::fixture(&["--era", "modern"]).entry("it")).await;
    let mut client = bridged(&kernel).await;
    client.answers("elicitation/create", json!({"action": "decline"}));
    let arguments = json!({"filename": "f"});
    let id = bridged_task(&mut client, "confirm_delete", arguments).await;
    let done = client.request("tasks/result", json!({"taskId": id})).await;
    assert_eq!(done.text(), "f: decline");
    assert_eq!(client.asked().len(), 1);
    assert_eq!(client.asked()[0]["params"]["_meta"][RELATED]["taskId"], id);

    let name = json!({"action": "accept", "content": {"name": "Ada"}});
    client.answers("elicitation/create", name);
    let id = bridged_task(&mut client, "test_tool_with_task", json!({})).await;
    let done = client.request("tasks/result", json!({"taskId": id})).await;
    assert_eq!(done.text(), "Hello, Ada!");
}

#[tokio::test]
async fn a_modern_servers_task_is_cancelled() {
    let kernel = Kernel::start(&Program::fixture(&["--era", "modern"]).entry("it")).await;
    let mut client = bridged(&kernel).await;
    let arguments = json!({"seconds": 60, "label": "x"});
    let id = bridged_task(&mut client, "slow_compute", arguments).await;
    let about = json!({"taskId": id});
    let seen = client.request("tasks/cancel", about.clone()).await.result();
    assert_eq!(
        (&seen["taskId"], &seen["status"]),
        (&json!(id), &json!("cancelled"))
    );
    for method in ["tasks/result", "tasks/cancel"] {
        let over = client.request(method, about.clone()).await;
        assert!(over.is_error(), "{method}");
    }
}

/// Who takes the wait for a result back has answered nothing: the question is put to whoever waits
/// next.
#[tokio::test]
async fn a_question_outlives_the_wait_that_put_it() {
    let kernel = Kernel::start(&Program::fixture(&["--era", "modern"]).entry("it")).await;
    let mut first = bridged(&kernel).await;
    let mut second = bridged(&kernel).await;
    let arguments = json!({"filename": "f"});
    let id = bridged_task(&mut first, "confirm_delete", arguments).await;
    let about = json!({"taskId": id});
    wait_until("the task asks", DEADLINE, async || {
        let seen = second.request("tasks/get", about.clone()).await.result();
        seen["status"] == "input_required"
    })
    .await;
    let before = looks(&mut second).await;
    let waiting = first.start("tasks/result", about.clone()).await;
    wait_until("the kernel looks after it", DEADLINE, async || {
        looks(&mut second).await > before
    })
    .await;
    let taken_back = json!({"requestId": waiting});
    first.notify("notifications/cancelled", taken_back).await;
    second.answers("elicitation/create", json!({"action": "accept"}));
    let done = second.request("tasks/result", about).await;
    assert_eq!(done.text(), "f: accept");
}

/// How often the server was asked after a task.
async fn looks(client: &mut Agent) -> u64 {
    let counts = client.call("count", json!({})).await.result();
    counts["structuredContent"]["methods"]["tasks/get"]
        .as_u64()
        .unwrap()
}

async fn stands(client: &mut ModernAgent, id: &Value, wanted: &str) -> Value {
    let mut seen = Value::Null;
    wait_until(&format!("the task is {wanted}"), DEADLINE, async || {
        seen = client
            .ask("tasks/get", json!({"taskId": id}))
            .await
            .result();
        seen["status"] == wanted
    })
    .await;
    seen
}
