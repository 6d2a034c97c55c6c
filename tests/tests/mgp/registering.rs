//! Servers that come and go while the kernel runs: what an agent has just written is judged, held in a
//! sandbox, used and taken out again.

mod deregistering;
mod judged;
mod listed;
mod shortened;

use mgp_tests::harness::mgp::speaks_mgp;
use mgp_tests::harness::{Agent, DEADLINE, Kernel, wait_until};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::permissions::{id, question};
use crate::sandbox::starts_none;
use crate::scene::made::{NEWEST, operator};

/// Everybody at an open HTTP door.
pub(crate) const ANYBODY: &str = "agent.anonymous";
pub(crate) const MAY: &str = "\n[discovery]\nembedding = \"off\"\nexposure = \"all\"\nmay_register = [\"agent.anonymous\"]\nregistered_max = 3\n";

/// A server in plain JavaScript with one tool, which turns a text around.
pub(crate) const CODE: &str = r#"
let rest = "";
const tool = {
  name: "turn_around",
  description: "Turns a text around, letter by letter",
  inputSchema: { type: "object", properties: { text: { type: "string" } } },
};
const made = (method, params) => {
  switch (method) {
    case "initialize":
      return {
        protocolVersion: "2025-11-25",
        capabilities: { tools: {} },
        serverInfo: { name: "turner", version: "1" },
      };
    case "tools/list":
      return { tools: [tool] };
    case "tools/call":
      return { content: [{ type: "text", text: params.arguments.text.split("").reverse().join("") }] };
    case "ping":
      return {};
    default:
      return undefined;
  }
};
const answer = (line) => {
  const asked = JSON.parse(line);
  if (asked.id === undefined) return;
  const result = made(asked.method, asked.params);
  const said = result
    ? { jsonrpc: "2.0", id: asked.id, result }
    : { jsonrpc: "2.0", id: asked.id, error: { code: -32601, message: "unknown" } };
  console.log(JSON.stringify(said));
};
process.stdin.on("data", (chunk) => {
  const lines = (rest + chunk).split("\n");
  rest = lines.pop();
  lines.filter((line) => line.trim() !== "").forEach(answer);
});
"#;

pub(crate) async fn agent(kernel: &Kernel) -> Agent {
    let mut agent = kernel.http_agent(None);
    agent.initialize(NEWEST, &speaks_mgp(NEWEST)).await.result();
    agent
}

pub(crate) fn turner() -> Value {
    json!({
        "id": "dynamic.turner", "command": "node",
        "code": {"language": "javascript", "text": CODE},
        "justification": "texts have to be turned around",
    })
}

pub(crate) async fn listed(agent: &mut Agent) -> Vec<Value> {
    let found = agent
        .request("mgp/discovery/list", json!({}))
        .await
        .result();
    found["servers"].as_array().unwrap().clone()
}

pub(crate) async fn tools(agent: &mut Agent) -> String {
    agent
        .request("tools/list", json!({}))
        .await
        .result()
        .to_string()
}

/// The events of the audit log of this type.
fn audited(kernel: &Kernel, kind: &str) -> Vec<String> {
    let folder = kernel.folder().join("data/audit");
    let mut found = Vec::new();
    for file in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let text = std::fs::read(file.path()).unwrap_or_default();
        let text = String::from_utf8_lossy(&text).into_owned();
        found.extend(text.lines().filter(|l| l.contains(kind)).map(str::to_owned));
    }
    found
}

/// MGP-224, MGP-228, MGP-229: an agent of plain MCP registers what it has just written, finds
/// its tool, calls it, and takes it out; what was done is written down.
#[tokio::test]
async fn agent_registers_calls_and_deregisters_a_server_of_its_own() {
    if starts_none().await {
        return;
    }
    let kernel = Kernel::start(MAY).await;
    let mut agent = kernel.http_agent(None);
    agent.initialize(NEWEST, "{}").await.result();
    assert!(tools(&mut agent).await.contains("mgp_discovery_register"));
    let mut preview = turner();
    preview["preview"] = true.into();
    let told = agent.call("mgp_discovery_register", preview).await.result();
    assert_eq!(told["structuredContent"]["status"], "preview", "{told:#}");
    assert!(
        !kernel
            .folder()
            .join("data/sandbox/of-dynamic.turner")
            .exists()
    );
    let told = agent
        .call("mgp_discovery_register", turner())
        .await
        .result();
    let told = &told["structuredContent"];
    assert_eq!(told["status"], "connected", "{told:#}");
    assert_eq!(told["trust_level"], "sandboxed");
    assert_eq!(told["tools"], json!(["turn_around"]));
    agent.hears("notifications/tools/list_changed").await;
    agent.forget();
    wait_until("its tool is found", DEADLINE, async || {
        let asked = json!({"query": "turn a text around", "strategy": "keyword"});
        let found = agent.call("mgp_tools_discover", asked).await.result();
        found["structuredContent"]["tools"][0]["tool_id"] == "dynamic.turner:turn_around"
    })
    .await;
    let found = json!({"query": "turn a text around", "strategy": "keyword"});
    let found = agent.call("mgp_tools_discover", found).await.result();
    let name = found["structuredContent"]["tools"][0]["name"].clone();
    let turned = agent
        .call(name.as_str().unwrap(), json!({"text": "live"}))
        .await;
    assert_eq!(turned.text(), "evil");
    let servers = kernel.mgp_json(&["servers", "list"]).await;
    let server = &servers["servers"][0];
    assert_eq!(server["registered_by"], ANYBODY, "{server:#}");
    assert!(!server["sandbox"].is_null(), "{server:#}");
    let pid = server["pid"].as_u64().unwrap();
    let shown = kernel.mgp(&["servers", "list"]).await;
    let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
    assert!(
        shown.contains("dynamic.turner was registered by agent.anonymous"),
        "{shown}"
    );
    let out = json!({"id": "dynamic.turner", "reason": "done"});
    let gone = agent.call("mgp_discovery_deregister", out).await.result();
    assert_eq!(
        gone["structuredContent"]["tools"],
        json!(["turn_around"]),
        "{gone:#}"
    );
    assert!(!std::path::Path::new(&format!("/proc/{pid}")).exists());
    agent.hears("notifications/tools/list_changed").await;
    assert!(!tools(&mut agent).await.contains("turn_around"));
    assert!(
        !kernel
            .folder()
            .join("data/sandbox/of-dynamic.turner")
            .exists()
    );
    wait_until("it is written down", DEADLINE, async || {
        let registered = audited(&kernel, "server_registered");
        registered
            .iter()
            .any(|line| line.contains(ANYBODY) && line.contains("texts have to be turned around"))
            && audited(&kernel, "server_deregistered")
                .iter()
                .any(|l| l.contains("done"))
    })
    .await;
}

/// The registration of a valid server, with these members.
fn turner_with(members: Value) -> Value {
    let mut ask = turner();
    for (key, value) in members.as_object().unwrap() {
        ask[key] = value.clone();
    }
    ask
}

/// Each is rejected, with this word in the error, and no server is registered.
async fn assert_rejected(asks: &[(Value, &str)]) {
    let kernel = Kernel::start(MAY).await;
    let mut agent = agent(&kernel).await;
    for (ask, word) in asks {
        let answer = agent.request("mgp/discovery/register", ask.clone()).await;
        assert!(answer.is_error(), "{ask}: {}", answer.frame);
        let error = answer.error().to_string();
        assert!(error.contains(word), "{ask}: {error}");
    }
    assert!(listed(&mut agent).await.is_empty());
}

/// MGP-225.
#[tokio::test]
async fn registration_of_a_duplicate_id_is_rejected() {
    if starts_none().await {
        return;
    }
    let kernel = Kernel::start(MAY).await;
    let mut agent = agent(&kernel).await;
    let first = agent.request("mgp/discovery/register", turner()).await;
    assert_eq!(first.result()["status"], "connected", "{}", first.frame);
    let second = agent.request("mgp/discovery/register", turner()).await;
    assert!(second.error().to_string().contains("already"));
    assert_eq!(listed(&mut agent).await.len(), 1);
}

/// MGP-226.
#[tokio::test]
async fn registration_with_missing_or_invalid_params_is_rejected() {
    assert_rejected(&[
        (turner_with(json!({"id": "mgp.turner"})), "kernel's own"),
        (turner_with(json!({"id": "../turner"})), "id"),
        (json!({"id": "i"}), "command"),
        (json!({}), "id"),
        (
            turner_with(json!({"id": "m", "code": null, "args": ["server.js"]})),
            "send the program's text as `code`",
        ),
    ])
    .await;
}

/// MGP-227: as any server of an agent is validated.
#[tokio::test]
async fn registration_of_an_unsafe_command_is_rejected() {
    let npx = |id: &str, argument: &str| {
        turner_with(json!({"id": id, "command": "npx", "code": null, "args": [argument]}))
    };
    let unsafe_code = json!({"language": "javascript", "text": "require('child_process')"});
    assert_rejected(&[
        (
            turner_with(json!({"id": "a", "env": {"LD_PRELOAD": "/tmp/x.so"}})),
            "LD_PRELOAD",
        ),
        (turner_with(json!({"id": "b", "command": "sh"})), "shell"),
        (
            turner_with(json!({"id": "c", "code": null, "args": ["../../etc/passwd"]})),
            "/args",
        ),
        (
            turner_with(json!({"id": "d", "command": "node;reboot"})),
            "/command",
        ),
        (npx("j", "$(reboot)"), "/args"),
        (npx("k", "a`id`"), "/args"),
        (npx("l", "a\u{0}b"), "/args"),
        (
            turner_with(json!({"id": "e", "env": {"K": "${HOME}"}})),
            "env",
        ),
        (turner_with(json!({"id": "f", "code": unsafe_code})), "code"),
        (
            json!({"id": "g", "transport": "http", "url": "http://169.254.169.254/latest"}),
            "/url",
        ),
    ])
    .await;
}

/// MGP-228.
#[tokio::test]
async fn registration_in_the_name_of_another_agent_is_rejected() {
    let forged = turner_with(json!({"id": "h", "created_by": "agent.other"}));
    assert_rejected(&[(forged, "own name")]).await;
}

/// MGP-230.
#[tokio::test]
async fn deregistration_of_an_unknown_id_is_an_error() {
    let kernel = Kernel::start(MAY).await;
    let mut agent = agent(&kernel).await;
    let unknown = json!({"id": "nobody"});
    let unknown = agent.request("mgp/discovery/deregister", unknown).await;
    assert!(unknown.is_error(), "{}", unknown.frame);
}

/// MGP-228, A-31: who was not allowed to registers nothing, and learns nothing.
#[tokio::test]
async fn an_agent_that_may_not_registers_nothing() {
    if starts_none().await {
        return;
    }
    let other = MAY.replace(ANYBODY, "agent.other");
    let mut kernel = Kernel::start(&other).await;
    for _ in ["another one may", "nobody may"] {
        let mut agent = agent(&kernel).await;
        assert!(!tools(&mut agent).await.contains("mgp_discovery_register"));
        let answer = agent.request("mgp/discovery/register", turner()).await;
        assert_eq!(answer.code(), 1000, "{}", answer.frame);
        assert!(listed(&mut agent).await.is_empty());
        kernel = Kernel::start("").await;
    }
    let mut agent = agent(&kernel).await;
    let mut owner = operator(&kernel).await;
    let mut ask = turner();
    ask["mgp"] = json!({"trust_level": "sandboxed"});
    let told = owner.request("mgp/discovery/register", ask).await.result();
    assert_eq!(told["status"], "connected", "{told:#}");
    let out = json!({"id": "dynamic.turner"});
    let gone = agent.request("mgp/discovery/deregister", out.clone()).await;
    assert!(gone.is_error(), "{}", gone.frame);
    owner
        .request("mgp/discovery/deregister", out)
        .await
        .result();
    assert!(listed(&mut owner).await.is_empty());
}

/// MGP-224: what was registered is there after the kernel was killed, and what was taken out is not.
#[tokio::test]
async fn a_registered_server_survives_the_kernel() {
    if starts_none().await {
        return;
    }
    let kernel = Kernel::start(MAY).await;
    let mut owner = agent(&kernel).await;
    let told = owner
        .request("mgp/discovery/register", turner())
        .await
        .result();
    assert_eq!(told["status"], "connected", "{told:#}");
    let folder = kernel.end(Signal::SIGKILL, DEADLINE).await;
    let kernel = Kernel::again(folder).await;
    kernel.connected(&["dynamic.turner"]).await;
    let mut owner = agent(&kernel).await;
    let name = "dynamic_turner__turn_around";
    assert_eq!(listed(&mut owner).await[0]["created_by"], ANYBODY);
    let list = tools(&mut owner).await;
    assert!(list.contains("turn_around"), "{name}: {list}");
    let out = json!({"id": "dynamic.turner"});
    owner
        .request("mgp/discovery/deregister", out)
        .await
        .result();
    let folder = kernel.end(Signal::SIGKILL, DEADLINE).await;
    let kernel = Kernel::again(folder).await;
    let mut owner = agent(&kernel).await;
    assert!(listed(&mut owner).await.is_empty());
}

/// MGP-224: a server for the time of a session ends with it.
#[tokio::test]
async fn a_server_of_a_session_ends_with_it() {
    if starts_none().await {
        return;
    }
    let kernel = Kernel::start(MAY).await;
    let mut owner = operator(&kernel).await;
    let mut guest = Agent::over_socket(&kernel.socket()).await;
    guest.initialize(NEWEST, "{}").await.result();
    let mut ask = turner();
    ask["session_scoped"] = true.into();
    ask["mgp"] = json!({"trust_level": "sandboxed"});
    let told = guest.request("mgp/discovery/register", ask).await.result();
    assert_eq!(told["status"], "connected", "{told:#}");
    assert_eq!(listed(&mut owner).await.len(), 1);
    guest.close().await;
    wait_until("it is gone", DEADLINE, async || {
        listed(&mut owner).await.is_empty()
    })
    .await;
}

/// MGP-224: what cannot be read waits for a person; what is denied never runs.
#[tokio::test]
async fn registration_that_cannot_be_validated_needs_approval() {
    let kernel = Kernel::start(MAY).await;
    let mut agent = agent(&kernel).await;
    for (name, verb) in [("dynamic.one", "deny"), ("dynamic.two", "approve")] {
        let ask = json!({"id": name, "command": "cat"});
        let told = agent.request("mgp/discovery/register", ask).await.result();
        assert_eq!(told["status"], "registered", "{told:#}");
        assert!(told["pending"][0].as_str().unwrap().contains("first start"));
        let waits = listed(&mut agent).await.pop().unwrap();
        assert_eq!(
            (&waits["id"], &waits["status"]),
            (&json!(name), &json!("registered"))
        );
        let shown = kernel.mgp_json(&["servers", "list"]).await;
        let mut shown = shown["servers"].as_array().unwrap().iter();
        let shown = shown.rfind(|server| server["id"] == name).unwrap().clone();
        assert!(
            shown["reason"].as_str().unwrap().contains("mgp approve"),
            "{shown:#}"
        );
        assert!(shown["pid"].is_null(), "nothing runs yet: {shown:#}");
        let asked = question(&kernel).await;
        assert_eq!(asked["server"], name, "{asked:#}");
        let called = agent.call(&format!("{name}:echo"), json!({})).await.error();
        let told = &called["data"]["_mgp"]["details"];
        assert_eq!(told["state"], "registered", "{called}");
        let why = told["reason"].to_string();
        assert!(why.contains("waits for the operator's approval"), "{why}");
        let started = kernel.mgp(&["servers", "start", name]).await;
        let said = String::from_utf8_lossy(&started.stderr).into_owned();
        assert!(
            said.contains(&format!("mgp approve {}", id(&asked))),
            "{said}"
        );
        kernel.mgp_json(&[verb, &id(&asked)]).await;
        let status = if verb == "approve" {
            json!("connecting")
        } else {
            Value::Null
        };
        wait_until("it was decided", DEADLINE, async || {
            let mut all = listed(&mut agent).await;
            all.retain(|server| server["id"] == name);
            let now = all
                .pop()
                .map_or(Value::Null, |server| server["status"].clone());
            now == status
        })
        .await;
    }
}

/// MGP-227: a person allows what was looked at. A program that is another one by the time of the answer
/// is not started, and the person is asked about that one; so it is with each start after it.
#[tokio::test]
async fn program_that_changed_since_its_approval_is_not_started() {
    if starts_none().await {
        return;
    }
    let kernel = Kernel::start(MAY).await;
    let mut agent = agent(&kernel).await;
    let program = kernel.folder().join("server-program");
    std::fs::copy("/bin/cat", &program).unwrap();
    let ask = json!({"id": "dynamic.one", "command": program});
    let told = agent.request("mgp/discovery/register", ask).await.result();
    assert_eq!(told["status"], "registered", "{told:#}");
    let asked = question(&kernel).await;
    let said = format!("from: {} (", program.display());
    assert!(asked["details"].to_string().contains(&said), "{asked:#}");

    std::fs::copy("/bin/ls", &program).unwrap();
    let refused = kernel.mgp(&["approve", &id(&asked)]).await;
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(
        !refused.status.success() && said.contains("is not what it was"),
        "{said}"
    );
    let server = async || {
        let shown = kernel.mgp_json(&["servers", "list"]).await;
        shown["servers"][0].clone()
    };
    assert_eq!(server().await["state"], "registered");
    let again = question(&kernel).await;
    assert_ne!(id(&again), id(&asked));
    assert_ne!(
        again["details"], asked["details"],
        "it tells of the new one"
    );

    std::fs::copy("/bin/cat", &program).unwrap();
    kernel.mgp(&["approve", &id(&again)]).await;
    let third = question(&kernel).await;
    assert_eq!(third["details"], asked["details"]);
    kernel.mgp_json(&["approve", &id(&third)]).await;
    wait_until("it is started", DEADLINE, async || {
        server().await["pid"].is_u64()
    })
    .await;

    let exchanged = kernel.folder().join("another-program");
    std::fs::copy("/bin/ls", &exchanged).unwrap();
    std::fs::rename(&exchanged, &program).unwrap();
    kernel.mgp(&["servers", "restart", "dynamic.one"]).await;
    wait_until("its start is refused", DEADLINE, async || {
        let shown = server().await;
        shown["reason"]
            .as_str()
            .is_some_and(|why| why.contains("has changed since it was allowed"))
    })
    .await;
    assert!(server().await["pid"].is_null());
}

/// MGP-227: a sandboxed server is held to stricter rules than others: its program must not start programs, and
/// what it needs beyond the configuration it does not get.
#[tokio::test]
async fn registered_server_gets_only_configured_permissions() {
    if starts_none().await {
        return;
    }
    let kernel = Kernel::start(&format!("[permissions]\npolicy = \"config_only\"\n{MAY}")).await;
    let mut agent = agent(&kernel).await;
    let mut ask = turner();
    ask["mgp"] = json!({"permissions_required": ["shell.execute"], "trust_level": "trusted"});
    let told = agent.request("mgp/discovery/register", ask).await.result();
    assert_eq!(told["trust_level"], "sandboxed", "{told:#}");
    kernel.connected(&["dynamic.turner"]).await;
    let servers = kernel.mgp_json(&["servers", "list"]).await;
    let permitted = servers["servers"][0]["permissions"].to_string();
    assert!(!permitted.contains("approved"), "{servers:#}");
}

/// MGP-224, MGP-229: an agent reads why its server does not start and what it wrote, what waits for the
/// operator, and what its server does without; the operator takes it out.
#[tokio::test]
async fn agent_reads_why_its_registered_server_does_not_work() {
    if starts_none().await {
        return;
    }
    let kernel = Kernel::start(MAY).await;
    let mut agent = agent(&kernel).await;
    let mut broken = turner();
    broken["code"]["text"] = "throw new Error('no such feather');".into();
    let told = agent.request("mgp/discovery/register", broken).await;
    let told = told.result();
    assert_eq!(told["status"], "restarting", "{told:#}");
    assert!(
        told["remarks"].to_string().contains("no such feather"),
        "{told:#}"
    );
    let server = listed(&mut agent).await.remove(0);
    assert!(
        server["remarks"].to_string().contains("no such feather"),
        "{server:#}"
    );
    let gone = kernel
        .mgp_json(&["servers", "remove", "dynamic.turner"])
        .await;
    assert_eq!(gone["registered_by"], ANYBODY, "{gone:#}");
    assert!(listed(&mut agent).await.is_empty());
    assert!(
        !kernel
            .mgp(&["servers", "remove", "dynamic.turner"])
            .await
            .status
            .success()
    );

    let mut needy = turner();
    needy["mgp"] = json!({"permissions_required": ["network.outbound"]});
    needy["preview"] = true.into();
    let told = agent
        .request("mgp/discovery/register", needy.clone())
        .await
        .result();
    assert_eq!(
        told["pending"],
        json!(["the operator has to permit network.outbound"])
    );
    needy["preview"] = false.into();
    let told = agent
        .request("mgp/discovery/register", needy)
        .await
        .result();
    let asked = question(&kernel).await;
    let waits = format!(
        "network.outbound waits for approval: mgp approve {}",
        id(&asked)
    );
    assert_eq!(told["pending"], json!([waits]), "{told:#}");
    kernel.mgp_json(&["deny", &id(&asked)]).await;
    wait_until("it runs without", DEADLINE, async || {
        let server = listed(&mut agent).await.remove(0);
        server["status"] == "connected"
            && server["remarks"]
                .to_string()
                .contains("lacks network.outbound")
    })
    .await;
}

/// MGP-254, MGP-255, A-51: an agent that misses a tool is told to make one, where it may: it registers a
/// server for the time of its session, asks again, is given the tool, and calls it.
#[tokio::test]
async fn an_agent_makes_the_tool_it_misses() {
    if starts_none().await {
        return;
    }
    let [policy, switch] = [
        "[permissions]\npolicy = \"auto_approve\"\n",
        "creating = true\n",
    ];
    let may = MAY.replace("\"all\"", "\"pinned\"");
    let need =
        json!({"reason": "capability_gap", "requirements": {"capabilities": ["turn around"]}});
    for (without, config) in [
        ("the switch", format!("{policy}{may}")),
        ("the policy", format!("{may}{switch}")),
        (
            "the permission",
            format!("{policy}{may}{switch}").replace("anonymous", "other"),
        ),
    ] {
        let kernel = Kernel::start(&config).await;
        let mut agent = kernel.http_agent(None);
        agent.initialize(NEWEST, "{}").await.result();
        let told = agent.call("mgp_tools_request", need.clone()).await.result();
        let told = &told["structuredContent"];
        assert_eq!(told["status"], "unavailable", "without {without}: {told:#}");
        assert!(told["creation"].is_null(), "without {without}: {told:#}");
    }
    let kernel = Kernel::start(&format!("{policy}{may}{switch}")).await;
    let mut silent = agent(&kernel).await;
    let told = silent
        .call("mgp_tools_request", need.clone())
        .await
        .result();
    let status = &told["structuredContent"]["status"];
    assert_eq!(
        status, "unavailable",
        "a client that speaks MGP did not ask for it"
    );
    let mut agent = kernel.http_agent(None);
    agent.initialize(NEWEST, "{}").await.result();
    let told = agent.call("mgp_tools_request", need.clone()).await.result();
    let told = &told["structuredContent"];
    assert_eq!(told["status"], "creating", "{told:#}");
    let bounds = &told["creation"]["constraints"];
    assert_eq!(
        (&bounds["trust_level"], &bounds["session_scoped"]),
        (&json!("sandboxed"), &json!(true))
    );
    let mut ask = turner();
    ask["session_scoped"] = true.into();
    let with = bounds["register_with"].as_str().unwrap();
    let made = agent.call(with, ask).await.result();
    assert_eq!(made["structuredContent"]["status"], "connected", "{made:#}");
    let mut found = Value::Null;
    wait_until("it is found", DEADLINE, async || {
        found = agent.call("mgp_tools_request", need.clone()).await.result();
        found = found["structuredContent"].take();
        found["status"] == "fulfilled"
    })
    .await;
    let name = found["tools_loaded"][0]["name"].as_str().unwrap();
    let turned = agent.call(name, json!({"text": "live"})).await;
    assert_eq!(turned.text(), "evil");
}
