//! What servers may do: asked for, decided, held to.

mod approvals;
mod pins;
mod scan;

use mgp_tests::harness::envelope::MODERN;
use mgp_tests::harness::mgp::speaks_mgp;
use mgp_tests::harness::{Agent, Client, DEADLINE, Kernel, Need, Peers, Program, wait_until};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

/// A server that says it needs these permissions.
pub(crate) fn needing(permissions: &[&str]) -> String {
    json!({"version": "0.2.0", "extensions": ["security"], "permissions_required": permissions})
        .to_string()
}

/// `echo` needs this.
fn echo_needs(permission: &str) -> String {
    json!({"echo": {"risk_level": "safe", "permissions_required": [permission]}}).to_string()
}

/// The entry of a scripted server with more keys of its own, where nobody confirms single calls.
pub(crate) fn entry(id: &str, keys: &str, flags: &[&str]) -> String {
    let entry = Program::fixture(flags).entry(id);
    let entry = entry.replacen("[[servers]]\n", &format!("[[servers]]\n{keys}"), 1);
    format!("[confirmation]\nenabled = false\n{entry}")
}

pub(crate) async fn pending(kernel: &Kernel) -> Vec<Value> {
    let pending = kernel.mgp_json(&["pending"]).await;
    pending["pending"].as_array().unwrap().clone()
}

/// Waits until something waits for the operator; gives it.
pub(crate) async fn question(kernel: &Kernel) -> Value {
    let mut found = Vec::new();
    wait_until("something waits for the operator", DEADLINE, async || {
        found = pending(kernel).await;
        !found.is_empty()
    })
    .await;
    found.swap_remove(0)
}

pub(crate) fn id(question: &Value) -> String {
    question["id"].as_str().unwrap().to_owned()
}

async fn server(kernel: &Kernel) -> Value {
    let servers = kernel.mgp_json(&["servers", "list"]).await;
    servers["servers"][0].clone()
}

async fn state(kernel: &Kernel) -> String {
    server(kernel).await["state"].as_str().unwrap().to_owned()
}

/// An agent that reads the codes of MGP.
pub(crate) async fn agent(kernel: &Kernel) -> Client {
    let version = "2025-11-25";
    Client::over_http(kernel.url(), version, &speaks_mgp(version)).await
}

async fn echo(agent: &mut Client) -> mgp_tests::harness::Answer {
    agent.call("it:echo", json!({"text": "x"})).await
}

/// The events of the audit log that are of this type.
async fn audited(kernel: &Kernel, event_type: &str) -> Vec<Value> {
    let folder = kernel.folder().join("data/audit");
    let mut found = Vec::new();
    for file in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let text = std::fs::read(file.path()).unwrap_or_default();
        for line in String::from_utf8_lossy(&text).lines() {
            let Some(start) = line.find("{\"timestamp\"").or_else(|| line.find('{')) else {
                continue;
            };
            let mut values = serde_json::Deserializer::from_str(&line[start..]).into_iter();
            if let Some(Ok(value)) = values.next() {
                let event: Value = value;
                let inner = event.get("event").unwrap_or(&event);
                if inner["event_type"] == event_type {
                    found.push(inner.clone());
                }
            }
        }
    }
    found
}

/// MGP-039, MGP-277: nothing of it can be called before.
#[tokio::test]
async fn server_stays_connecting_until_its_permissions_are_decided() {
    for era in ["legacy", "modern"] {
        let needs = needing(&["shell"]);
        let kernel = Kernel::start(&entry("it", "", &["--era", era, "--mgp", &needs])).await;
        let asked = question(&kernel).await;
        let told = format!("waits for approval: mgp approve {}", id(&asked));
        wait_until("the server says what it waits for", DEADLINE, async || {
            let waits = server(&kernel).await;
            assert_eq!(waits["state"], "connecting");
            waits["reason"] == told.as_str()
        })
        .await;
        let mut agent = agent(&kernel).await;
        let unknown = agent.call("it:nonesuch", json!({})).await.error();
        assert_eq!(echo(&mut agent).await.error()["code"], unknown["code"]);
        kernel.mgp_json(&["approve", &id(&asked)]).await;
        kernel.connected(&["it"]).await;
        assert!(!echo(&mut agent).await.is_error());
    }
}

/// MGP-035: each of them.
#[tokio::test]
async fn interactive_policy_presents_each_permission_to_the_operator() {
    let needs = needing(&["shell.execute", "network.outbound"]);
    let kernel = Kernel::start(&entry("it", "", &["--mgp", &needs])).await;
    let asked = question(&kernel).await;
    let parts = json!(["network.outbound", "shell.execute"]);
    assert_eq!(asked["parts"], parts, "{asked:#}");
    assert_eq!(asked["server"], "it");
    kernel.mgp_json(&["approve", &id(&asked)]).await;
    kernel.connected(&["it"]).await;
    assert!(pending(&kernel).await.is_empty());
}

/// MGP-034.
#[tokio::test]
async fn short_form_of_a_permission_is_the_long_one() {
    let needs = needing(&["shell"]);
    let kernel = Kernel::start(&entry("it", "", &["--mgp", &needs])).await;
    let asked = question(&kernel).await;
    assert_eq!(asked["parts"], json!(["shell.execute"]), "{asked:#}");
}

/// Under this policy nobody is asked, `network.outbound` of the configuration is there, and `shell.execute` as said.
async fn assert_policy(policy: &str, shell: bool) {
    let needs = needing(&["shell.execute", "network.outbound"]);
    let keys = format!("permission_policy = \"{policy}\"\npermissions = [\"network.outbound\"]\n");
    let security = json!({
        "echo": {"risk_level": "safe", "permissions_required": ["network.outbound"]},
        "count": {"risk_level": "safe", "permissions_required": ["shell.execute"]},
    });
    let flags = ["--mgp", &needs, "--mgp-security", &security.to_string()];
    let kernel = Kernel::start(&entry("it", &keys, &flags)).await;
    kernel.connected(&["it"]).await;
    assert!(pending(&kernel).await.is_empty());
    let mut agent = agent(&kernel).await;
    assert!(!echo(&mut agent).await.is_error());
    let count = agent.call("it:count", json!({})).await;
    assert_eq!(count.is_error(), !shell, "{}", count.frame);
    if !shell {
        assert_eq!(count.code(), 1000);
    }
}

/// MGP-036.
#[tokio::test]
async fn auto_approve_policy_approves_every_permission() {
    assert_policy("auto_approve", true).await;
}

/// MGP-037.
#[tokio::test]
async fn deny_all_policy_denies_what_is_not_configured() {
    assert_policy("deny_all", false).await;
}

/// MGP-038.
#[tokio::test]
async fn config_only_policy_approves_what_is_configured() {
    assert_policy("config_only", false).await;
}

/// A server without the permission that its `echo` needs.
async fn without_permission() -> Kernel {
    let (needs, security) = (needing(&["network"]), echo_needs("network.outbound"));
    let flags = ["--mgp", &needs, "--mgp-security", &security];
    let kernel = Kernel::start(&entry("it", "", &flags)).await;
    let asked = question(&kernel).await;
    kernel.mgp_json(&["deny", &id(&asked)]).await;
    kernel.connected(&["it"]).await;
    kernel
}

/// MGP-043: it is connected, and its other tools work.
#[tokio::test]
async fn server_without_a_permission_goes_on_with_its_other_tools() {
    let kernel = without_permission().await;
    let mut agent = agent(&kernel).await;
    assert!(echo(&mut agent).await.is_error());
    agent.call("it:count", json!({})).await.result();
}

/// MGP-050, MGP-005: the server does not get the call.
#[tokio::test]
async fn tool_without_its_permission_is_not_called() {
    let kernel = without_permission().await;
    let mut agent = agent(&kernel).await;
    assert!(echo(&mut agent).await.is_error());
    let mut count = agent.call("it:count", json!({})).await.result();
    let calls = count["structuredContent"]["calls"]["echo"].take();
    assert_eq!(calls, Value::Null);
}

/// MGP-187: -32603 for a client without MGP.
#[tokio::test]
async fn call_without_its_permission_is_1000_with_its_name() {
    let kernel = without_permission().await;
    let mut agent = agent(&kernel).await;
    let error = echo(&mut agent).await.error();
    assert_eq!(error["code"], 1000, "{error}");
    let message = error["message"].as_str().unwrap();
    assert!(message.contains("network.outbound"), "{error}");
    for version in ["2025-06-18", MODERN] {
        let mut plain = Client::over_http(kernel.url(), version, "{}").await;
        assert_eq!(echo(&mut plain).await.code(), -32603, "{version}");
    }
}

/// MGP-044, MGP-042: what is put off stays open, and no agent has it; the server is told so and runs
/// meanwhile. When it is approved later the server is told that, and its tool works for everybody.
#[tokio::test]
async fn a_decision_can_be_put_off() {
    let (needs, security) = (needing(&["camera"]), echo_needs("camera"));
    let heard = json!({"mgp/permission/request": {"result": {}}, TOLD: {"result": {}}}).to_string();
    let flags = [
        "--mgp",
        &needs,
        "--mgp-security",
        &security,
        "--mgp-answers",
        &heard,
    ];
    let kernel = Kernel::start(&entry("it", "", &flags)).await;
    let asked = question(&kernel).await;
    let put_off = kernel.mgp_json(&["deny", &id(&asked), "--later"]).await;
    assert_eq!(put_off["verdict"], "deferred");
    kernel.connected(&["it"]).await;
    hears_of_camera(&kernel, "deferred").await;
    let (mut one, mut other) = (agent(&kernel).await, owner(&kernel).await);
    for agent in [&mut one, &mut other] {
        assert_eq!(echo(agent).await.error()["code"], 1000);
    }
    assert_eq!(id(&question(&kernel).await), id(&asked), "it is open still");
    let calls = async |agent: &mut Client| {
        let count = agent.call("it:count", json!({})).await.result();
        count["structuredContent"]["calls"]["echo"].clone()
    };
    assert_eq!(calls(&mut one).await, Value::Null, "nothing reached it");
    kernel.mgp_json(&["approve", &id(&asked)]).await;
    for agent in [&mut one, &mut other] {
        assert!(!echo(agent).await.is_error());
    }
    assert_eq!(calls(&mut one).await, 2);
    hears_of_camera(&kernel, "approved").await;
    assert!(pending(&kernel).await.is_empty());
}

/// MGP-044: what was put off is open in the server's next life, too: asked again, and had when it is approved.
#[tokio::test]
async fn deferred_permission_is_pending_after_a_restart() {
    let (needs, security) = (needing(&["camera"]), echo_needs("camera"));
    let keys = "backoff_base_ms = 20\n";
    let flags = ["--mgp", &needs, "--mgp-security", &security];
    let kernel = Kernel::start(&entry("it", keys, &flags)).await;
    let put_off = ["deny", &id(&question(&kernel).await), "--later"];
    kernel.mgp_json(&put_off).await;
    kernel.connected(&["it"]).await;
    let mut agent = agent(&kernel).await;
    agent.call("it:crash", json!({"code": 3})).await.error();
    wait_until("its next life waits", DEADLINE, async || {
        server(&kernel).await["reason"]
            .to_string()
            .contains("mgp approve")
    })
    .await;
    let asked = question(&kernel).await;
    assert_eq!(asked["parts"], json!(["camera"]));
    kernel.mgp_json(&["approve", &id(&asked)]).await;
    kernel.connected(&["it"]).await;
    assert!(!echo(&mut agent).await.is_error());
}

const TOLD: &str = "mgp/permission/response";

/// Waits until the server was told this of the camera.
async fn hears_of_camera(kernel: &Kernel, verdict: &str) {
    wait_until("the server hears of the decision", DEADLINE, async || {
        let told = received(kernel, TOLD).await;
        told.iter()
            .any(|told| told["grants"] == json!({"camera": verdict}))
    })
    .await;
}

/// The operator, who reads the codes of MGP.
async fn owner(kernel: &Kernel) -> Client {
    let version = "2025-11-25";
    Client::over_socket(&kernel.socket(), version, &speaks_mgp(version)).await
}

/// MGP-277: the permission flow runs after `notifications/initialized` and before anything else is asked, and
/// the server is `connecting` all the while.
#[tokio::test]
async fn permissions_are_requested_after_initialized_and_before_anything_else() {
    let heard = json!({"mgp/permission/request": {"result": {}}, TOLD: {"result": {}}}).to_string();
    let needs = needing(&["shell"]);
    let flags = ["--era", "legacy", "--mgp", &needs, "--mgp-answers", &heard];
    let folder = tempfile::tempdir().unwrap();
    let diary = folder.path().join("diary");
    let path = diary.display().to_string();
    let kernel = Kernel::start(&entry(
        "it",
        "",
        &[&flags[..], &["--mgp-diary", &path]].concat(),
    ))
    .await;
    let asked = question(&kernel).await;
    wait_until("the server hears that it is asked", DEADLINE, async || {
        assert_eq!(state(&kernel).await, "connecting");
        let diary = std::fs::read_to_string(&diary).unwrap_or_default();
        diary.contains("mgp/permission/request")
    })
    .await;
    kernel.mgp_json(&["approve", &id(&asked)]).await;
    kernel.connected(&["it"]).await;
    let mut agent = agent(&kernel).await;
    let frames = crate::scene::received(&mut agent, "it:received").await;
    let frames = frames.iter().map(|f| serde_json::from_str(f).unwrap());
    let methods = frames.map(|frame: Value| frame["method"].as_str().unwrap_or("").to_owned());
    // It may be asked first whether it speaks the newer era.
    let methods: Vec<String> = methods.skip_while(|m| m == "server/discover").collect();
    let first = [
        "initialize",
        "notifications/initialized",
        "mgp/permission/request",
    ];
    assert_eq!(methods[..3], first, "{methods:?}");
    let at = |method: &str| methods.iter().position(|said| said == method);
    assert!(
        at("tools/list") > at("mgp/permission/request"),
        "{methods:?}"
    );
}

/// MGP-045: an approval ends when it was said to, and is asked for again.
#[tokio::test]
async fn an_approval_ends() {
    let (needs, security) = (needing(&["camera"]), echo_needs("camera"));
    let flags = ["--mgp", &needs, "--mgp-security", &security];
    let kernel = Kernel::start(&entry("it", "", &flags)).await;
    let asked = question(&kernel).await;
    let approved = kernel
        .mgp_json(&["approve", &id(&asked), "--for", "4s"])
        .await;
    assert!(approved["until"].is_string());
    kernel.connected(&["it"]).await;
    let mut agent = agent(&kernel).await;
    assert!(!echo(&mut agent).await.is_error());
    let mut last = Value::Null;
    wait_until("the approval has ended", DEADLINE, async || {
        let answer = echo(&mut agent).await;
        last = serde_json::from_str(&answer.frame).unwrap();
        answer.is_error()
    })
    .await;
    assert_eq!(last["error"]["code"], 1000, "{last}");
    assert_ne!(id(&question(&kernel).await), id(&asked));
}

/// MGP-033, MGP-032: a custom permission goes through the same gate, as a dangerous one; parts of a
/// question are decided one by one.
#[tokio::test]
async fn parts_of_a_question_are_decided_one_by_one() {
    let needs = needing(&["com.example.custom", "memory.read"]);
    let kernel = Kernel::start(&entry("it", "", &["--mgp", &needs])).await;
    let asked = question(&kernel).await;
    let details = asked["details"].to_string();
    assert!(
        details.contains("com.example.custom: dangerous"),
        "{details}"
    );
    assert!(details.contains("memory.read: safe"), "{details}");
    let one = ["approve", &id(&asked), "--only", "memory.read"];
    kernel.mgp_json(&one).await;
    assert_eq!(state(&kernel).await, "connecting");
    let left = question(&kernel).await;
    assert_eq!(left["parts"], json!(["com.example.custom"]));
    let again = kernel.mgp(&one).await;
    assert_eq!(again.status.code(), Some(1));
    kernel.mgp_json(&["deny", &id(&asked)]).await;
    kernel.connected(&["it"]).await;
}

/// What reached the server of this method: the params of each.
async fn received(kernel: &Kernel, method: &str) -> Vec<Value> {
    let mut agent = agent(kernel).await;
    let mut received = agent.call("it:received", json!({})).await.result();
    let frames = received["structuredContent"]["frames"].take();
    let frames: Vec<String> = serde_json::from_value(frames).unwrap();
    let frames = frames.iter().map(|f| serde_json::from_str(f).unwrap());
    let of_it = frames.filter(|frame: &Value| frame["method"] == method);
    of_it.map(|mut frame| frame["params"].take()).collect()
}

/// MGP-040, MGP-041, A-04: a server that negotiated it hears that the operator is asked, and then what
/// was decided, each in the words of its draft.
#[tokio::test]
async fn server_is_notified_of_the_permission_request_and_the_decision() {
    for (extension, ask, tell) in [
        (
            "security",
            "mgp/permission/request",
            "mgp/permission/response",
        ),
        (
            "permissions",
            "mgp/permission/await",
            "mgp/permission/grant",
        ),
    ] {
        let said = json!({"version": "0.2.0", "extensions": [extension],
            "permissions_required": ["shell"]});
        let answers = json!({ask: {"result": {}}, tell: {"result": {}}}).to_string();
        let flags = ["--mgp", &said.to_string(), "--mgp-answers", &answers];
        let kernel = Kernel::start(&entry("it", "", &flags)).await;
        let asked = question(&kernel).await;
        kernel
            .mgp_json(&["approve", &id(&asked), "--for", "1h"])
            .await;
        kernel.connected(&["it"]).await;
        let mut told = Vec::new();
        wait_until("the server hears of the decision", DEADLINE, async || {
            told = received(&kernel, tell).await;
            !told.is_empty()
        })
        .await;
        let asked = &received(&kernel, ask).await[0];
        assert_eq!(asked["permissions"], json!(["shell.execute"]), "{asked}");
        assert_eq!(asked["policy"], "interactive");
        assert!(asked["message"].is_string());
        assert_eq!(asked["request_id"], told[0]["request_id"]);
        assert_eq!(told[0]["grants"], json!({"shell": "approved"}));
        assert_eq!(told[0]["approved_by"], "operator", "{}", told[0]);
        assert!(told[0]["expires_at"].is_string());
    }
}

/// a server that asks while it runs is answered once it is decided.
#[tokio::test]
async fn a_server_can_ask_while_it_runs() {
    let flags = ["--era", "legacy", "--mgp", &needing(&[])];
    let kernel = Kernel::start(&entry("it", "", &flags)).await;
    kernel.connected(&["it"]).await;
    let mut agent = agent(&kernel).await;
    let ask = json!({"request_id": "mine-1", "permissions": ["filesystem"]});
    let call = json!({"name": "it:ask",
        "arguments": {"method": "mgp/permission/request", "params": ask}});
    let under_way = agent.start("tools/call", call).await;
    let asked = question(&kernel).await;
    let parts = json!(["filesystem.read", "filesystem.write"]);
    assert_eq!(asked["parts"], parts);
    let only = ["deny", &id(&asked), "--only", "filesystem.write"];
    kernel.mgp_json(&only).await;
    kernel.mgp_json(&["approve", &id(&asked)]).await;
    let Client::Legacy(mut agent) = agent else {
        unreachable!("it is a legacy one");
    };
    let answer = agent.answer_to(&under_way).await.result();
    let decision = &answer["structuredContent"];
    assert_eq!(decision["request_id"], "mine-1", "{answer}");
    assert_eq!(decision["grants"], json!({"filesystem": "denied"}));
}

/// MGP-270: where nothing may be missing, a denied server is not run, and is not tried again.
#[tokio::test]
async fn a_server_that_needs_all_of_it_is_not_run_without() {
    let keys = "all_or_nothing = true\n";
    let kernel = Kernel::start(&entry("it", keys, &["--mgp", &needing(&["shell"])])).await;
    kernel
        .mgp_json(&["deny", &id(&question(&kernel).await)])
        .await;
    wait_until("the server is in error", DEADLINE, async || {
        state(&kernel).await == "error"
    })
    .await;
    let why = server(&kernel).await;
    assert!(
        why["reason"].as_str().unwrap().contains("shell.execute"),
        "{why}"
    );
    assert_eq!(why["next_try_ms"], Value::Null);
}

/// MGP-278: the questions of a server that dies go with it, and its next life asks anew.
#[tokio::test]
async fn pending_permissions_end_with_their_server() {
    let kernel = Kernel::start(&entry("it", "", &["--mgp", &needing(&["shell"])])).await;
    let first = id(&question(&kernel).await);
    let pid = kernel.child("mgp-fixture");
    kill(Pid::from_raw(pid.cast_signed()), Signal::SIGKILL).unwrap();
    wait_until("its question is gone", DEADLINE, async || {
        pending(&kernel).await.iter().all(|q| id(q) != first)
    })
    .await;
    let late = kernel.mgp(&["approve", &first]).await;
    assert_eq!(late.status.code(), Some(1));
    let second = question(&kernel).await;
    kernel.mgp_json(&["approve", &id(&second)]).await;
    kernel.connected(&["it"]).await;
}

/// What was decided is not asked again: not by the server's next life, not by the kernel's.
#[tokio::test]
async fn a_restart_does_not_ask_again() {
    let flags = ["--mgp", &needing(&["shell"])];
    let kernel = Kernel::start(&entry("it", "", &flags)).await;
    kernel
        .mgp_json(&["approve", &id(&question(&kernel).await)])
        .await;
    kernel.connected(&["it"]).await;
    kernel.mgp_json(&["servers", "restart", "it"]).await;
    kernel.connected(&["it"]).await;
    let folder = kernel.end(Signal::SIGTERM, DEADLINE).await;
    let kernel = Kernel::again(folder).await;
    kernel.connected(&["it"]).await;
    assert!(pending(&kernel).await.is_empty());
}

/// The time a person takes is not the server's: its start does not time out over it.
#[tokio::test]
async fn a_person_may_think_longer_than_a_server_may_start() {
    let keys = "start_timeout_secs = 1\n";
    let kernel = Kernel::start(&entry("it", keys, &["--mgp", &needing(&["shell"])])).await;
    let asked = question(&kernel).await;
    let since = std::time::Instant::now();
    wait_until(
        "more than the start's own time has passed",
        DEADLINE,
        async || {
            assert_eq!(state(&kernel).await, "connecting");
            since.elapsed().as_secs() >= 2
        },
    )
    .await;
    assert_eq!(id(&question(&kernel).await), id(&asked));
    kernel.mgp_json(&["approve", &id(&asked)]).await;
    kernel.connected(&["it"]).await;
}

/// MGP-046: decisions are audited.
#[tokio::test]
async fn decisions_are_audited() {
    let needs = needing(&["shell", "camera"]);
    let kernel = Kernel::start(&entry("it", "", &["--mgp", &needs])).await;
    let asked = id(&question(&kernel).await);
    kernel.mgp_json(&["deny", &asked, "--only", "camera"]).await;
    kernel.mgp_json(&["approve", &asked]).await;
    kernel.connected(&["it"]).await;
    kernel.mgp_json(&["deny", "it", "shell.execute"]).await;
    for (event, permission) in [
        ("PERMISSION_GRANTED", "shell.execute"),
        ("PERMISSION_DENIED", "camera"),
        ("PERMISSION_REVOKED", "shell.execute"),
    ] {
        let mut found = Vec::new();
        wait_until(event, DEADLINE, async || {
            found = audited(&kernel, event).await;
            !found.is_empty()
        })
        .await;
        assert_eq!(
            found[0]["details"]["permission_type"], permission,
            "{found:?}"
        );
        assert_eq!(found[0]["target"]["server_id"], "it");
    }
}

/// What is taken back is gone for the next call, and stays so in the next life.
#[tokio::test]
async fn a_permission_can_be_taken_back() {
    let (needs, security) = (needing(&["camera"]), echo_needs("camera"));
    let flags = ["--mgp", &needs, "--mgp-security", &security];
    let kernel = Kernel::start(&entry(
        "it",
        "permission_policy = \"auto_approve\"\n",
        &flags,
    ))
    .await;
    kernel.connected(&["it"]).await;
    let mut agent = agent(&kernel).await;
    assert!(!echo(&mut agent).await.is_error());
    kernel.mgp_json(&["deny", "it", "camera"]).await;
    assert_eq!(echo(&mut agent).await.error()["code"], 1000);
    kernel.mgp_json(&["servers", "restart", "it"]).await;
    kernel.connected(&["it"]).await;
    assert_eq!(echo(&mut agent).await.error()["code"], 1000);
}

/// MGP-277: a published server that knows nothing of MGP stands at a silent gate: what its entry says
/// it needs is asked after its handshake, and it hears nothing of that.
#[tokio::test]
async fn a_published_server_stands_at_a_silent_gate() {
    let Some(peers) = Peers::find(&[Need::Python]) else {
        return;
    };
    let entry = peers.python("mcp_server_time", &[]).entry("it");
    let needs = "[servers.mgp]\npermissions_required = [\"system.info\"]\n";
    let kernel = Kernel::start(&format!("{entry}{needs}")).await;
    let asked = question(&kernel).await;
    assert_eq!(asked["parts"], json!(["system.info"]));
    assert_eq!(state(&kernel).await, "connecting");
    kernel.mgp_json(&["approve", &id(&asked)]).await;
    kernel.connected(&["it"]).await;
    let mut agent: Agent = kernel.http_agent(None);
    agent.initialize("2025-11-25", "{}").await.result();
    let time = agent.call("it:get_current_time", json!({"timezone": "UTC"}));
    assert!(!time.await.is_error());
}

/// A denial of what nobody has would be believed in: a name that is no permission is refused with the nearest.
#[tokio::test]
async fn a_misspelt_permission_is_refused_with_the_nearest() {
    let needs = needing(&["com.example.print"]);
    let kernel = Kernel::start(&entry(
        "it",
        "permission_policy = \"auto_approve\"\n",
        &["--mgp", &needs],
    ))
    .await;
    kernel.connected(&["it"]).await;
    for (typed, meant) in [
        ("netwrk.outbound", "network.outbound"),
        ("com.example.pint", "com.example.print"),
    ] {
        let refused = kernel.mgp(&["deny", "it", typed]).await;
        let told = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(!refused.status.success(), "{told}");
        assert!(told.contains(&format!("did you mean {meant}?")), "{told}");
        kernel.mgp_json(&["deny", "it", meant]).await;
    }
}

/// What is allowed and waits for the operator's approval is not said to be usable.
#[tokio::test]
async fn explain_reports_pending_permissions() {
    let kernel = Kernel::start(&entry("it", "", &["--mgp", &needing(&["camera"])])).await;
    let asked = question(&kernel).await;
    let explain = async || {
        let told = kernel.mgp(&["explain", "agent.local", "it"]).await;
        String::from_utf8_lossy(&told.stdout).into_owned()
    };
    let told = explain().await;
    assert!(
        told.contains("may not use yet it: server it waits"),
        "{told}"
    );
    kernel.mgp_json(&["approve", &id(&asked)]).await;
    kernel.connected(&["it"]).await;
    let told = explain().await;
    assert!(told.contains("may use it:"), "{told}");
}
