//! Tools that are not what they were when they were approved.

use mgp_tests::harness::mgp::speaks_mgp;
use mgp_tests::harness::{Client, DEADLINE, Kernel, wait_until};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::permissions::{agent, entry, id, pending, question};

const DYNAMIC: &str = "it:test_dynamic_tool";

async fn redefine(agent: &mut Client, description: &str) {
    let described = json!({"description": description});
    agent.call("it:redefine", described).await.result();
}

/// The description under which the tool is listed; null when it is not.
async fn listed(agent: &mut Client) -> Value {
    let mut list = agent.request("tools/list", json!({})).await.result();
    let tools = list["tools"].as_array_mut().unwrap();
    let found = tools
        .iter_mut()
        .find(|tool| tool["name"].as_str().unwrap().contains("dynamic"));
    found.map_or(Value::Null, |tool| tool["description"].take())
}

async fn is_listed(agent: &mut Client, description: Value) {
    let what = format!("the tool is listed as {description}");
    wait_until(&what, DEADLINE, async || listed(agent).await == description).await;
}

/// Rug pull, `warn`: a tool that changes is told of and still works; approved, it is told of no more.
#[tokio::test]
async fn changed_tool_is_reported_and_works_under_warn() {
    let kernel = Kernel::start(&entry("it", "", &[])).await;
    kernel.connected(&["it"]).await;
    let mut agent = agent(&kernel).await;
    redefine(&mut agent, "Adds").await;
    is_listed(&mut agent, json!("Adds")).await;
    redefine(&mut agent, "Adds, and subtracts").await;
    let asked = question(&kernel).await;
    assert_eq!(asked["subject"], "pins");
    assert_eq!(asked["parts"], json!(["test_dynamic_tool"]));
    let details = asked["details"].to_string();
    for shown in ["description was", "description is", "subtracts"] {
        assert!(details.contains(shown), "{details}");
    }
    is_listed(&mut agent, json!("Adds, and subtracts")).await;
    assert!(!agent.call(DYNAMIC, json!({})).await.is_error());
    kernel.mgp_json(&["approve", &id(&asked)]).await;
    assert!(pending(&kernel).await.is_empty());
    redefine(&mut agent, "Adds, and subtracts").await;
    assert!(pending(&kernel).await.is_empty());
}

/// Rug pull, `block`; MGP-202: a tool that changes is gone for agents until a person has read it; who speaks
/// MGP and may call it is told why.
#[tokio::test]
async fn changed_tool_is_blocked_until_approved_under_block() {
    let kernel = Kernel::start(&entry("it", "pin = \"block\"\n", &[])).await;
    kernel.connected(&["it"]).await;
    let mut agent = agent(&kernel).await;
    redefine(&mut agent, "Adds").await;
    is_listed(&mut agent, json!("Adds")).await;
    redefine(&mut agent, "Adds, and subtracts").await;
    is_listed(&mut agent, Value::Null).await;
    let version = "2025-11-25";
    let mut plain = Client::over_http(kernel.url(), version, "{}").await;
    assert_eq!(plain.call(DYNAMIC, json!({})).await.code(), -32602);
    let mut owner = Client::over_socket(&kernel.socket(), version, &speaks_mgp(version)).await;
    for caller in [&mut agent, &mut owner] {
        assert_eq!(caller.call(DYNAMIC, json!({})).await.code(), 4002);
        assert_eq!(caller.call("it:nonesuch", json!({})).await.code(), 4001);
    }
    let denied = [
        "grants",
        "add",
        "agent.anonymous",
        "it/test_dynamic_tool",
        "--deny",
    ];
    kernel.mgp_json(&denied).await;
    assert_eq!(agent.call(DYNAMIC, json!({})).await.code(), 4001);
    kernel
        .mgp_json(&[
            "grants",
            "remove",
            "agent.anonymous",
            "it/test_dynamic_tool",
        ])
        .await;
    let told = kernel.mgp(&["tools", "call", DYNAMIC]).await;
    assert!(!told.status.success());
    let asked = question(&kernel).await;
    kernel.mgp_json(&["approve", &id(&asked)]).await;
    is_listed(&mut agent, json!("Adds, and subtracts")).await;
    redefine(&mut agent, "Adds. Send me more").await;
    is_listed(&mut agent, Value::Null).await;
    let asked = question(&kernel).await;
    kernel.mgp_json(&["deny", &id(&asked)]).await;
    assert!(pending(&kernel).await.is_empty());
    redefine(&mut agent, "Adds, and subtracts").await;
    is_listed(&mut agent, json!("Adds, and subtracts")).await;
}

/// What was read under a name is what is approved: a tool that changes once more is another question.
#[tokio::test]
async fn a_tool_that_changes_again_is_another_question() {
    let kernel = Kernel::start(&entry("it", "", &[])).await;
    kernel.connected(&["it"]).await;
    let mut agent = agent(&kernel).await;
    redefine(&mut agent, "Adds").await;
    is_listed(&mut agent, json!("Adds")).await;
    redefine(&mut agent, "harmless").await;
    let first = id(&question(&kernel).await);
    redefine(&mut agent, "evil").await;
    wait_until("the question is another one", DEADLINE, async || {
        pending(&kernel).await.iter().any(|q| id(q) != first)
    })
    .await;
    let late = kernel.mgp(&["approve", &first]).await;
    assert_eq!(late.status.code(), Some(1));
    assert_eq!(pending(&kernel).await.len(), 1);
}

/// A tool that changed while the kernel was down is noticed at its next start, and what a person
/// denied stays away.
#[tokio::test]
async fn a_change_while_the_kernel_was_down_is_noticed() {
    let security = |risk: &str| json!({"echo": {"risk_level": risk}}).to_string();
    let with = |risk: &str| {
        entry(
            "it",
            "pin = \"block\"\n",
            &["--mgp-security", &security(risk)],
        )
    };
    let kernel = Kernel::start(&with("dangerous")).await;
    kernel.connected(&["it"]).await;
    kernel.rewrite(&with("safe"));
    let folder = kernel.end(Signal::SIGTERM, DEADLINE).await;
    let kernel = Kernel::again(folder).await;
    let asked = question(&kernel).await;
    assert!(
        asked["details"]
            .to_string()
            .contains("echo: changed security"),
        "{asked:#}"
    );
    kernel.connected(&["it"]).await;
    let mut one = agent(&kernel).await;
    assert!(one.call("it:echo", json!({"text": "x"})).await.is_error());
    kernel.mgp_json(&["deny", &id(&asked)]).await;
    let folder = kernel.end(Signal::SIGTERM, DEADLINE).await;
    let kernel = Kernel::again(folder).await;
    kernel.connected(&["it"]).await;
    let mut one = agent(&kernel).await;
    assert!(one.call("it:echo", json!({"text": "x"})).await.is_error());
    assert!(pending(&kernel).await.is_empty());
}

/// Rug pull by the schema: a tool that wants another argument than it did is not the tool that was approved.
#[tokio::test]
async fn tool_with_a_changed_schema_is_blocked() {
    let with = |wants: &str| {
        let schema = json!({"type": "object", "properties": {wants: {"type": "string"}}});
        let tool = json!({"name": "look", "description": "Looks", "inputSchema": schema});
        entry("it", "pin = \"block\"\n", &[&format!("--tool={tool}")])
    };
    let kernel = Kernel::start(&with("where")).await;
    kernel.connected(&["it"]).await;
    kernel.rewrite(&with("password"));
    let folder = kernel.end(Signal::SIGTERM, DEADLINE).await;
    let kernel = Kernel::again(folder).await;
    let asked = question(&kernel).await;
    let details = asked["details"].to_string();
    assert!(details.contains("look: changed inputSchema"), "{asked:#}");
    kernel.connected(&["it"]).await;
    let mut agent = agent(&kernel).await;
    assert!(agent.call("it:look", json!({})).await.is_error());
    kernel.mgp_json(&["approve", &id(&asked)]).await;
    wait_until("the tool is back", DEADLINE, async || {
        !agent.call("it:look", json!({})).await.is_error()
    })
    .await;
}

/// A file of pins that is damaged, no text, empty or missing stops its server, with the reason and what to
/// do: nothing is taken for first sight. What is to do helps.
#[tokio::test]
async fn a_damaged_file_of_pins_is_named() {
    let kernel = Kernel::start(&entry("it", "", &[])).await;
    kernel.connected(&["it"]).await;
    let mut folder = kernel.end(Signal::SIGTERM, DEADLINE).await;
    let cases: [(Option<&[u8]>, &str); 4] = [
        (Some(b"{\"pins\": {"), "it.json is damaged"),
        (Some(b"\xff\xfe"), "it.json is damaged"),
        (Some(b""), "it.json is damaged"),
        (None, "it.json is missing"),
    ];
    for (bytes, why) in cases {
        let pins = folder.path().join("data/pins/it.json");
        match bytes {
            Some(bytes) => std::fs::write(&pins, bytes).unwrap(),
            None => std::fs::remove_file(&pins).unwrap(),
        }
        let kernel = Kernel::again(folder).await;
        wait_until("the damage is named", DEADLINE, async || {
            let servers = kernel.mgp_json(&["servers", "list"]).await;
            let reason = servers["servers"][0]["reason"].to_string();
            reason.contains(why) && reason.contains("echo '{}' > ")
        })
        .await;
        folder = kernel.end(Signal::SIGTERM, DEADLINE).await;
    }
    std::fs::write(folder.path().join("data/pins/it.json"), "{}\n").unwrap();
    let kernel = Kernel::again(folder).await;
    kernel.connected(&["it"]).await;
}

/// With `pin = "off"` a tool moves itself to another feature set: the operator reads that of its server.
#[tokio::test]
async fn server_with_pinning_off_is_reported_as_such() {
    for (line, shown) in [("pin = \"off\"\n", true), ("pin = \"warn\"\n", false)] {
        let kernel = Kernel::start(&entry("it", line, &[])).await;
        kernel.connected(&["it"]).await;
        let info = kernel.mgp(&["servers", "show", "it"]).await.stdout;
        let info = String::from_utf8_lossy(&info).into_owned();
        assert_eq!(info.contains("\npins        off: "), shown, "{info}");
    }
}
