//! Tasks: those of servers, which only their clients can use, and those the kernel makes of long calls
//! (MCP 2026-07-28, extension io.modelcontextprotocol/tasks).

use mgp_tests::harness::program::remote_entry;
use mgp_tests::harness::{DEADLINE, Kernel, ModernAgent, Program, Upstream, wait_until};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

/// A client that can be given tasks and asked things.
const KNOWS: &str =
    r#"{"elicitation":{"form":{}},"extensions":{"io.modelcontextprotocol/tasks":{}}}"#;

/// A legacy server whose long calls become tasks soon.
fn legacy(keys: &str) -> String {
    let entry = Program::fixture(&["--era", "legacy"]).entry("it");
    format!("{entry}task_after_ms = 40\n{keys}")
}

fn client(kernel: &Kernel) -> ModernAgent {
    ModernAgent::over_http(&kernel.server_url("it"), KNOWS)
}

/// Calls a tool that takes long; gives the task it becomes.
async fn task(client: &mut ModernAgent, tool: &str, arguments: Value) -> String {
    let params = json!({"name": tool, "arguments": arguments});
    let told = client.ask("tools/call", params).await.result();
    assert_eq!(told["resultType"], "task", "{told}");
    assert!(told["status"].is_string() && told.get("result").is_none());
    told["taskId"].as_str().unwrap().to_owned()
}

async fn get(client: &mut ModernAgent, id: &str) -> mgp_tests::harness::Answer {
    client.ask("tasks/get", json!({"taskId": id})).await
}

/// Asks for a task until it stands as wanted.
async fn stands(client: &mut ModernAgent, id: &str, wanted: &str) -> Value {
    let mut seen = Value::Null;
    wait_until(&format!("the task is {wanted}"), DEADLINE, async || {
        seen = get(client, id).await.result();
        assert_eq!(seen["taskId"], id);
        assert_eq!(seen["resultType"], "complete");
        seen["status"] == wanted
    })
    .await;
    seen
}

fn said(task: &Value) -> &str {
    task["result"]["content"][0]["text"].as_str().unwrap()
}

/// How many calls of the tool `slow` the server was told to give up.
async fn given_up(client: &mut ModernAgent) -> u64 {
    let counts = client.call("count", json!({})).await.result();
    counts["structuredContent"]["cancelled"]["slow"]
        .as_u64()
        .unwrap_or(0)
}

/// A server's task goes by a name of the kernel's, which serves only whom it was given to, also when
/// the kernel has been killed meanwhile.
#[tokio::test]
async fn a_servers_task_is_its_clients_alone_and_outlives_the_kernel() {
    let upstream = Upstream::start(&["--era", "modern"]).await;
    let kernel = Kernel::start(&remote_entry("it", &upstream.url())).await;
    kernel.connected(&["it"]).await;
    let mut owner = client(&kernel);
    let arguments = json!({"seconds": 0.2, "label": "x"});
    let id = task(&mut owner, "slow_compute", arguments).await;
    assert!(id.starts_with("mgp1."), "{id}");
    let mut stranger = ModernAgent::over_http(kernel.url(), KNOWS);
    for method in ["tasks/get", "tasks/update", "tasks/cancel"] {
        let refused = stranger.ask(method, json!({"taskId": id})).await;
        assert_eq!(refused.code(), -32602, "{method}");
    }
    let mut simple = ModernAgent::over_http(&kernel.server_url("it"), "{}");
    let refused = get(&mut simple, &id).await;
    assert_eq!(refused.code(), -32021);
    let kernel = Kernel::again(kernel.end(Signal::SIGKILL, DEADLINE).await).await;
    kernel.connected(&["it"]).await;
    let mut owner = client(&kernel);
    let done = stands(&mut owner, &id, "completed").await;
    assert_eq!(said(&done), "computed x");
    let unknown = get(&mut owner, "786512e2-9e0d-44bd-8f29-789f320fe840").await;
    assert_eq!(unknown.code(), -32602);
}

/// What became of a call that its server made a task of is what the task says.
#[tokio::test]
async fn outcome_of_a_call_is_that_of_its_task() {
    let kernel = Kernel::start(&Program::fixture(&["--era", "modern"]).entry("it")).await;
    kernel.connected(&["it"]).await;
    let mut client = client(&kernel);
    let arguments = json!({"seconds": 4.0, "label": "x"});
    let id = task(&mut client, "slow_compute", arguments).await;
    let mut call = None;
    wait_until("the call is written down", DEADLINE, async || {
        let log = kernel.mgp(&["audit", "tail", "--json"]).await.stdout;
        let log = String::from_utf8(log).unwrap();
        let mut events = log
            .lines()
            .map(|line| serde_json::from_str::<Value>(line).unwrap());
        call = events.find(|event| event["details"]["task"] == id);
        call.is_some()
    })
    .await;
    let trace = call.unwrap()["trace_id"].as_str().unwrap().to_owned();
    for (outcome, status) in [("unknown", "working"), ("done", "completed")] {
        stands(&mut client, &id, status).await;
        let shown = kernel.mgp_json(&["calls", "show", &trace]).await;
        assert_eq!(
            (&shown["outcome"], &shown["records"][0]["task_status"]),
            (&json!(outcome), &json!(status)),
            "{shown:#}"
        );
    }
}

/// What changes in a task of a server is told to who listens for it.
#[tokio::test]
async fn client_is_notified_of_a_task_of_a_server() {
    for flags in [&["--era", "modern"][..], &[]] {
        let entry = Program::fixture(flags).entry("it");
        let kernel = Kernel::start(&entry).await;
        kernel.connected(&["it"]).await;
        hears_the_end(
            &kernel,
            "slow_compute",
            json!({"seconds": 1.0, "label": "x"}),
        )
        .await;
    }
}

/// What changes in a task of the kernel is told to who listens for it.
#[tokio::test]
async fn client_is_notified_of_a_task_of_the_kernel() {
    let kernel = Kernel::start(&legacy("")).await;
    kernel.connected(&["it"]).await;
    hears_the_end(&kernel, "slow", json!({"ms": 1000})).await;
}

async fn hears_the_end(kernel: &Kernel, tool: &str, arguments: Value) {
    let mut client = client(kernel);
    let id = task(&mut client, tool, arguments).await;
    let mut listener = ModernAgent::over_http(&kernel.server_url("it"), KNOWS);
    let wanted = json!({"taskIds": [id, "another"]});
    let listen = listener.listen(wanted).await;
    let agreed = listener
        .hears("notifications/subscriptions/acknowledged")
        .await;
    assert_eq!(agreed["params"]["notifications"]["taskIds"], json!([id]));
    let told = listener.hears("notifications/tasks").await["params"].take();
    assert_eq!(told["taskId"], id);
    assert_eq!(told["status"], "completed");
    assert!(told["result"]["content"].is_array());
    let of = &told["_meta"]["io.modelcontextprotocol/subscriptionId"];
    assert_eq!(*of, listen);
}

/// A long call becomes a task, goes on when its client has gone, and its result is there for whoever
/// comes back for it, also when the kernel has been killed meanwhile.
#[tokio::test]
async fn a_long_call_goes_on_without_its_client_and_its_result_outlives_the_kernel() {
    let kernel = Kernel::start(&legacy("")).await;
    kernel.connected(&["it"]).await;
    let mut first = client(&kernel);
    let told = first.request("server/discover", json!({})).await.result();
    let extensions = &told["capabilities"]["extensions"];
    assert!(extensions["io.modelcontextprotocol/tasks"].is_object());
    let id = task(&mut first, "slow", json!({"ms": 500})).await;
    first.close().await;
    let mut second = client(&kernel);
    assert_eq!(get(&mut second, &id).await.result()["status"], "working");
    let done = stands(&mut second, &id, "completed").await;
    assert_eq!(said(&done), "slept");
    assert_eq!(done["result"]["resultType"], "complete");
    let kernel = Kernel::again(kernel.end(Signal::SIGKILL, DEADLINE).await).await;
    let mut third = client(&kernel);
    let again = get(&mut third, &id).await.result();
    for part in ["status", "result", "createdAt", "lastUpdatedAt", "ttlMs"] {
        assert_eq!(again[part], done[part], "{part}");
    }
}

/// A client that does not know tasks, and a call that is quick, get their answers.
#[tokio::test]
async fn only_long_calls_of_clients_that_know_tasks_become_tasks() {
    let kernel = Kernel::start(&legacy("")).await;
    kernel.connected(&["it"]).await;
    let mut simple = ModernAgent::over_http(&kernel.server_url("it"), "{}");
    let slept = simple.call("slow", json!({"ms": 200})).await;
    assert_eq!(slept.text(), "slept");
    let mut client = client(&kernel);
    assert_eq!(client.call("echo", json!({"text": "e"})).await.text(), "e");
}

/// What a server asks in a task is shown by it and answered to it.
#[tokio::test]
async fn a_task_asks_its_client() {
    asks(&legacy("")).await;
}

/// A modern server that makes no tasks asks in rounds: the kernel goes them for its task.
#[tokio::test]
async fn a_task_goes_the_rounds_of_a_modern_server() {
    let entry = Program::fixture(&["--era", "modern", "--no-tasks"]).entry("it");
    asks(&format!("{entry}task_after_ms = 40\n")).await;
}

async fn asks(config: &str) {
    let kernel = Kernel::start(config).await;
    kernel.connected(&["it"]).await;
    let mut client = client(&kernel);
    let id = task(&mut client, "ask_slow", json!({"ms": 300, "after": 50})).await;
    let asking = stands(&mut client, &id, "input_required").await;
    let (key, question) = asking["inputRequests"]
        .as_object()
        .unwrap()
        .iter()
        .next()
        .unwrap();
    assert_eq!(question["method"], "elicitation/create");
    assert_eq!(question["params"]["message"], "Are you there?");
    let strange = json!({"taskId": id, "inputResponses": {"else": {"action": "accept"}}});
    assert!(!client.ask("tasks/update", strange).await.is_error());
    assert_eq!(
        get(&mut client, &id).await.result()["status"],
        "input_required"
    );
    let answer = json!({"taskId": id, "inputResponses": {key: {"action": "decline"}}});
    let taken = client.ask("tasks/update", answer).await.result();
    assert_eq!(taken["resultType"], "complete");
    let done = stands(&mut client, &id, "completed").await;
    assert_eq!(said(&done), "action=decline");
}

/// A task may be silent for longer than a call.
#[tokio::test]
async fn a_task_may_be_silent() {
    let kernel = Kernel::start(&legacy("call_timeout_secs = 1\n")).await;
    kernel.connected(&["it"]).await;
    let mut simple = ModernAgent::over_http(&kernel.server_url("it"), "{}");
    let given_up = simple.call("slow", json!({"ms": 2500})).await;
    assert_eq!(given_up.code(), -32603);
    let mut client = client(&kernel);
    let id = task(&mut client, "slow", json!({"ms": 2500})).await;
    assert_eq!(said(&stands(&mut client, &id, "completed").await), "slept");
}

/// A task that is taken back ends at the server.
#[tokio::test]
async fn a_cancelled_task_ends_at_the_server() {
    let kernel = Kernel::start(&legacy("")).await;
    kernel.connected(&["it"]).await;
    let mut client = client(&kernel);
    let id = task(&mut client, "slow", json!({"ms": 60_000})).await;
    let taken = client.ask("tasks/cancel", json!({"taskId": id})).await;
    assert_eq!(taken.result()["resultType"], "complete");
    assert_eq!(get(&mut client, &id).await.result()["status"], "cancelled");
    wait_until("the server gives up", DEADLINE, async || {
        given_up(&mut client).await == 1
    })
    .await;
    // What is over stays as it is.
    let again = client.ask("tasks/cancel", json!({"taskId": id})).await;
    assert!(!again.is_error());
}

/// A task that died with the kernel says so.
#[tokio::test]
async fn a_task_that_was_under_way_when_the_kernel_was_killed_has_failed() {
    let kernel = Kernel::start(&legacy("")).await;
    kernel.connected(&["it"]).await;
    let id = task(&mut client(&kernel), "slow", json!({"ms": 60_000})).await;
    let kernel = Kernel::again(kernel.end(Signal::SIGKILL, DEADLINE).await).await;
    let failed = get(&mut client(&kernel), &id).await.result();
    assert_eq!(failed["status"], "failed");
    let words = failed["error"]["message"].as_str().unwrap();
    assert!(
        words.contains("restarted") && words.contains("unknown"),
        "{words}"
    );
}

/// A task is forgotten when its time is over, and its call taken back.
#[tokio::test]
async fn a_task_is_forgotten_after_its_time() {
    let kernel = Kernel::start(&legacy("task_ttl_secs = 1\n")).await;
    kernel.connected(&["it"]).await;
    let mut client = client(&kernel);
    let id = task(&mut client, "slow", json!({"ms": 60_000})).await;
    assert_eq!(get(&mut client, &id).await.result()["ttlMs"], 1000);
    wait_until("the task is forgotten", DEADLINE, async || {
        get(&mut client, &id).await.is_error()
    })
    .await;
    assert_eq!(get(&mut client, &id).await.code(), -32602);
    wait_until("the server gives up", DEADLINE, async || {
        given_up(&mut client).await == 1
    })
    .await;
    wait_until("its record is removed", DEADLINE, async || {
        let folder = kernel.folder().join("data/tasks");
        std::fs::read_dir(folder).unwrap().next().is_none()
    })
    .await;
}

/// Where nothing can be written there is no task, and the call goes on as a call.
#[tokio::test]
async fn a_call_that_cannot_be_written_down_stays_a_call() {
    let kernel = Kernel::start(&legacy("")).await;
    kernel.connected(&["it"]).await;
    let folder = kernel.folder().join("data/tasks");
    std::fs::remove_dir(&folder).unwrap();
    std::fs::write(&folder, "").unwrap();
    let slept = client(&kernel).call("slow", json!({"ms": 300})).await;
    assert_eq!(slept.text(), "slept");
}
