//! What is left of a server that was registered and taken out again: nothing, and its name is free.

use std::time::{Duration, Instant};

use mgp_tests::harness::mgp::speaks_mgp;
use mgp_tests::harness::{Agent, DEADLINE, Kernel, Program, wait_until};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

use crate::audit::events;
use crate::health::{shown, until};
use crate::permissions::{pending, question};
use crate::registering::{ANYBODY, CODE, MAY, agent, listed, turner};
use crate::sandbox::starts_none;
use crate::scene::made::operator;

const TURNER: &str = "dynamic.turner";

/// The wait before a first restart, where nothing else is configured (MGP-149).
const BACKOFF_BASE: Duration = Duration::from_secs(1);

async fn register(agent: &mut Agent, ask: Value) -> Value {
    agent.request("mgp/discovery/register", ask).await.result()
}

async fn deregister(agent: &mut Agent, id: &str) {
    let out = json!({"id": id});
    agent
        .request("mgp/discovery/deregister", out)
        .await
        .result();
}

async fn pid(kernel: &Kernel) -> Option<u64> {
    let servers = kernel.mgp_json(&["servers", "list"]).await;
    servers["servers"][0]["pid"].as_u64()
}

/// The grants that are in force.
async fn grants(kernel: &Kernel) -> Vec<String> {
    let grants = kernel.mgp_json(&["grants", "list"]).await;
    let entries = grants["entries"].as_array().unwrap().iter();
    let mut found: Vec<String> = entries
        .filter(|entry| entry["server_id"] == TURNER)
        .map(|entry| format!("{} {}", entry["agent_id"], entry["permission"]).replace('"', ""))
        .collect();
    found.sort();
    found
}

/// MGP-229: whoever writes a server tries again and again: the name is free, another definition of a tool
/// is not held against the one before, and nobody has what was granted on the one before.
#[tokio::test]
async fn a_name_is_free_again_and_begins_with_nothing() {
    if starts_none().await {
        return;
    }
    let kernel = Kernel::start(MAY).await;
    let mut agent = agent(&kernel).await;
    register(&mut agent, turner()).await;
    for who in ["agent.friend", "agent.foe"] {
        let deny = (who == "agent.foe").then_some("--deny");
        let words = ["grants", "add", who, TURNER, "--yet-unknown"].map(Some);
        let words = words.into_iter().chain([deny]);
        let words: Vec<&str> = words.flatten().collect();
        assert!(kernel.mgp(&words).await.status.success());
    }
    let before = [
        format!("{ANYBODY} allow"),
        "agent.foe deny".into(),
        "agent.friend allow".into(),
    ];
    assert_eq!(grants(&kernel).await, before);
    deregister(&mut agent, TURNER).await;
    assert_eq!(grants(&kernel).await, ["agent.foe deny"]);
    let mut other = turner();
    other["code"]["text"] = CODE.replace("letter by letter", "from its end").into();
    let told = register(&mut agent, other).await;
    assert_eq!(told["status"], "connected", "{told:#}");
    assert_eq!(told["tools"], json!(["turn_around"]), "{told:#}");
    let turned = agent.call("dynamic.turner:turn_around", json!({"text": "live"}));
    assert_eq!(turned.await.text(), "evil");
    assert_eq!(
        grants(&kernel).await,
        [format!("{ANYBODY} allow"), "agent.foe deny".into()]
    );
    assert!(pending(&kernel).await.is_empty());
}

/// MGP-228: what the operator has denied an agent is not to be had by registering the server once more.
#[tokio::test]
async fn denied_permission_stays_denied_for_a_server_registered_again() {
    let kernel = Kernel::start(MAY).await;
    let mut agent = agent(&kernel).await;
    register(&mut agent, turner()).await;
    let denied = kernel
        .mgp(&["grants", "add", ANYBODY, TURNER, "--deny"])
        .await;
    assert!(denied.status.success());
    deregister(&mut agent, TURNER).await;
    register(&mut agent, turner()).await;
    let turned = agent.call("dynamic.turner:turn_around", json!({"text": "live"}));
    assert!(turned.await.is_error());
}

/// MGP-229: who takes out a server that waits for a person takes the question back as well.
#[tokio::test]
async fn a_question_about_a_server_that_is_gone_is_closed() {
    let kernel = Kernel::start(MAY).await;
    let mut agent = agent(&kernel).await;
    register(&mut agent, json!({"id": "dynamic.cat", "command": "cat"})).await;
    question(&kernel).await;
    deregister(&mut agent, "dynamic.cat").await;
    assert!(listed(&mut agent).await.is_empty());
    wait_until("nothing waits", DEADLINE, async || {
        pending(&kernel).await.is_empty()
    })
    .await;
    register(&mut agent, json!({"id": "dynamic.cat", "command": "cat"})).await;
    question(&kernel).await;
}

/// MGP-229, A-31: an agent takes out what it registered. Of another server that it may know of it is told
/// what that one is; one it may not know of does not exist; the operator is told where to take it out.
#[tokio::test]
async fn configured_server_cannot_be_deregistered_by_an_agent() {
    if starts_none().await {
        return;
    }
    let entry = Program::fixture(&[]).entry("files") + &Program::fixture(&[]).entry("closed");
    let may = MAY.replace("may_register = [", "may_register = [\"agent.local\", ");
    let kernel = Kernel::start(&(entry + &may)).await;
    kernel.connected(&["files", "closed"]).await;
    let deny = kernel
        .mgp(&["grants", "add", ANYBODY, "closed", "--deny"])
        .await;
    assert!(deny.status.success());
    let mut agent = agent(&kernel).await;
    let mut local = kernel.stdio_agent(None);
    local
        .initialize("2025-11-25", &speaks_mgp("2025-11-25"))
        .await
        .result();
    register(&mut local, turner()).await;
    let shown = kernel.mgp(&["grants", "add", ANYBODY, TURNER]).await;
    assert!(shown.status.success());
    let out = |id: &str| json!({"id": id});
    for (id, words) in [
        (
            "files",
            "is configured by the operator in a file; agents may remove only servers that they registered",
        ),
        (TURNER, "was registered by agent.local"),
    ] {
        let refused = agent.request("mgp/discovery/deregister", out(id)).await;
        let error = refused.error();
        assert_eq!(error["code"], 1000, "{error}");
        assert!(
            error["message"].as_str().unwrap().contains(words),
            "{error}"
        );
        let by_tool = agent.call("mgp_discovery_deregister", out(id)).await;
        assert_eq!(by_tool.code(), 1000, "{}", by_tool.frame);
    }
    let closed = agent
        .request("mgp/discovery/deregister", out("closed"))
        .await;
    let unknown = agent
        .request("mgp/discovery/deregister", out("nosuch"))
        .await;
    let said = closed.error().to_string().replace("closed", "nosuch");
    assert_eq!(said, unknown.error().to_string());
    let mut owner = operator(&kernel).await;
    let told = owner
        .request("mgp/discovery/deregister", out("files"))
        .await;
    assert!(
        told.frame.contains("`mgp servers remove files`"),
        "{}",
        told.frame
    );
    kernel.connected(&["files", "closed", TURNER]).await;
    let denied = events(&kernel).await;
    let denied = denied.iter().filter(|event| {
        event["event_type"] == "dev.cloto.mgp.server_deregistered" && event["result"] == "DENIED"
    });
    assert_eq!(denied.count(), 4);
}

/// MGP-231: a server that is waiting to be restarted when it is taken out does not come back: long after
/// it was due nothing of it runs, nothing of it connected, and no list knows it.
#[tokio::test]
async fn deregistered_server_is_not_restarted() {
    if starts_none().await {
        return;
    }
    let kernel = Kernel::start(MAY).await;
    let mut agent = agent(&kernel).await;
    let mut owner = operator(&kernel).await;
    register(&mut agent, turner()).await;
    let last = pid(&kernel).await.unwrap();
    assert_eq!(kernel.children("node").len(), 1);
    kill(Pid::from_raw(i32::try_from(last).unwrap()), Signal::SIGKILL).unwrap();
    until(&mut owner, TURNER, "state", "restarting").await;
    deregister(&mut agent, TURNER).await;
    // The first restart is due a second after the death; three times as long is waited.
    let taken_out = Instant::now();
    wait_until("its restart is long over", DEADLINE, async || {
        assert!(kernel.children("node").is_empty());
        taken_out.elapsed() > 3 * BACKOFF_BASE
    })
    .await;
    assert!(listed(&mut agent).await.is_empty());
    assert!(shown(&mut owner, TURNER).await.is_null());
    let connected = events(&kernel).await;
    let connected = connected.iter().filter(|event| {
        event["event_type"] == "SERVER_CONNECTED" && event["target"]["server_id"] == TURNER
    });
    assert_eq!(connected.count(), 1);
}

/// MGP-228: a name in the configuration is not that of a registered server, on which an agent has grants;
/// the operator hears what to do, and gets the name when that one is taken out.
#[tokio::test]
async fn the_configuration_gets_a_registered_name_when_it_is_free() {
    if starts_none().await {
        return;
    }
    let kernel = Kernel::start(MAY).await;
    let mut agent = agent(&kernel).await;
    register(&mut agent, turner()).await;
    let file = format!("[[servers]]\nid = \"{TURNER}\"\ncommand = \"cat\"\n{MAY}");
    kernel.rewrite(&file);
    let mut owner = operator(&kernel).await;
    let told = owner.request("mgp/kernel/reload", json!({})).await.result();
    let told = told["problems"].to_string();
    assert!(
        told.contains(TURNER) && told.contains("servers remove"),
        "{told}"
    );
    let turned = agent.call("dynamic.turner:turn_around", json!({"text": "live"}));
    assert_eq!(turned.await.text(), "evil");
    let folder = kernel.end(Signal::SIGKILL, DEADLINE).await;
    let kernel = Kernel::again(folder).await;
    kernel.connected(&[TURNER]).await;
    let mut owner = operator(&kernel).await;
    deregister(&mut owner, TURNER).await;
    let servers = kernel.mgp_json(&["servers", "list"]).await;
    let server = &servers["servers"][0];
    assert_eq!(server["id"], TURNER);
    assert!(server["registered_by"].is_null(), "{server:#}");
    assert!(grants(&kernel).await.is_empty());
}

/// MGP-229: a server for the time of a session is gone with the kernel as well, and leaves nothing that
/// was allowed on it.
#[tokio::test]
async fn a_server_of_a_session_does_not_outlive_the_kernel() {
    if starts_none().await {
        return;
    }
    let kernel = Kernel::start(MAY).await;
    let mut guest = agent(&kernel).await;
    let mut ask = turner();
    ask["session_scoped"] = true.into();
    register(&mut guest, ask.clone()).await;
    assert_eq!(grants(&kernel).await, [format!("{ANYBODY} allow")]);
    let folder = kernel.end(Signal::SIGKILL, DEADLINE).await;
    let kernel = Kernel::again(folder).await;
    assert!(grants(&kernel).await.is_empty());
    let mut guest = agent(&kernel).await;
    assert!(listed(&mut guest).await.is_empty());
    let told = register(&mut guest, ask).await;
    assert_eq!(told["status"], "connected", "{told:#}");
}
