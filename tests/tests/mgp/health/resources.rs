//! What servers use of the machine, and what becomes of one that uses too much (§11.3, §11.4).

use std::path::Path;

use mgp_tests::harness::{Agent, DEADLINE, Kernel, Program, system, wait_until};
use serde_json::{Value, json};

use super::lifecycle::{accepted, reasoned, reasons};
use super::{lifecycle, owner, server, shown, speaker, until};

/// A server that takes part in the lifecycle and writes its diary, with something beside it in its shell.
fn beside(burden: &str, diary: &Path, keys: &str) -> String {
    let said = json!({"mgp/lifecycle/shutdown": {"result": accepted()}}).to_string();
    let flags = [
        "--mgp",
        &lifecycle(),
        "--mgp-answers",
        &said,
        "--mgp-diary",
        &diary.display().to_string(),
    ];
    let fixture = Program::fixture(&flags);
    let script = format!("{burden} & exec \"$0\" \"$@\"");
    let shell = Program::new("sh", ["-c", &script, &fixture.command])
        .args(&fixture.args.iter().map(String::as_str).collect::<Vec<_>>());
    format!("{}\n{keys}\n", shell.entry("it").trim_end())
}

fn stress(what: &str) -> String {
    format!("stress-ng {what} --timeout 300 >/dev/null 2>&1")
}

async fn uses(owner: &mut Agent, id: &str) -> Value {
    shown(owner, id).await["uses"].clone()
}

/// MGP-135, MGP-136: the kernel says what it uses itself and what each server does, with all that the server
/// has started; to who is told how a server is, too.
#[tokio::test]
async fn resource_use_of_kernel_and_servers_is_reported() {
    let kernel =
        Kernel::start(&(server("it", &[], "") + &server("off", &[], "autostart = false"))).await;
    kernel.connected(&["it"]).await;
    let mut owner = owner(&kernel).await;
    let before = uses(&mut owner, "it").await;
    assert_eq!(before["children"], 0, "{before}");
    assert!(
        before["memory_bytes"].as_u64().unwrap() > 1 << 20,
        "{before}"
    );
    let are_counted = !system::is_weaker("resources").await;
    assert_eq!(
        before["open_descriptors"].as_u64().unwrap() >= 3,
        are_counted,
        "{before}"
    );
    assert!(before["cpu_seconds"].is_number(), "{before}");
    assert!(uses(&mut owner, "off").await.is_null());
    for (flag, count) in [(false, 2), (true, 3)] {
        let fork = json!({"n": 2, "setsid": flag});
        owner.call("it__fork", fork).await.result();
        wait_until("its descendants are counted", DEADLINE, async || {
            uses(&mut owner, "it").await["children"].as_u64() >= Some(count)
        })
        .await;
    }
    let mut agent = speaker(&kernel, &["lifecycle"]).await;
    let asked = json!({"server_id": "it"});
    let of_it = agent.request("mgp/health/status", asked).await.result();
    assert!(
        of_it["resources"]["children"].as_u64() >= Some(4),
        "{of_it:#}"
    );
    let of_kernel = owner.call("mgp.health.status", json!({})).await.result();
    let resources = &of_kernel["structuredContent"]["resources"];
    assert!(
        resources["memory_bytes"].as_u64() > Some(1 << 20),
        "{resources}"
    );
    assert!(resources["open_connections"].is_u64(), "{resources}");
    let status = agent.request("mgp/health/status", json!({})).await.result();
    assert_eq!(
        status["resources"],
        json!({}),
        "the machine is the operator's"
    );
    let info = kernel.mgp(&["servers", "show", "it"]).await;
    let info = String::from_utf8(info.stdout).unwrap();
    assert!(info.contains("open files, 4 more processes"), "{info}");
    let status = kernel.mgp_json(&["status"]).await;
    assert!(
        status["uses"]["memory_bytes"].as_u64() > Some(1 << 20),
        "{status:#}"
    );
}

/// MGP-140, MGP-143, MGP-128: a server whose processes take more memory than they may is told that it is to
/// end and why, has failed for that reason, and is started again; another server is not touched.
#[tokio::test]
async fn a_server_that_takes_too_much_memory_is_ended_for_that_reason() {
    let folder = tempfile::tempdir().unwrap();
    let diary = folder.path().join("it");
    let keys = "backoff_base_ms = 20\nmax_restarts = 1\n[servers.limits]\nmemory_bytes = 120000000";
    let burden = stress("--vm 1 --vm-bytes 130M --vm-keep --vm-populate");
    let entries = beside(&burden, &diary, keys) + &server("other", &[], "");
    let kernel = Kernel::start(&entries).await;
    let mut agent = speaker(&kernel, &["lifecycle"]).await;
    let mut owner = owner(&kernel).await;
    until(&mut owner, "other", "state", "connected").await;
    let other = shown(&mut owner, "other").await["pid"].clone();
    let parked = until(&mut owner, "it", "state", "error").await;
    let why = parked["reason"].as_str().unwrap();
    assert!(
        why.contains("restart_limit_exceeded") && why.contains("`memory_bytes`"),
        "{why}"
    );
    let told = reasons(&diary);
    assert!(
        !told.is_empty() && told.iter().all(|why| why == "resource_limit"),
        "{told:?}"
    );
    let steps = steps_of(&mut agent).await;
    let drained = steps
        .iter()
        .any(|[step, why]| step == "connected>draining" && why == "resource_limit");
    let failed = steps
        .iter()
        .any(|[step, why]| step == "draining>error" && why.starts_with("resource_limit: it uses"));
    let again = steps.iter().any(|[step, _]| step == "error>restarting");
    assert!(drained && failed && again, "{steps:?}");
    let audit = owner
        .request("mgp/audit/replay", json!({"limit": 1000}))
        .await
        .result();
    let ends = audit["events"].as_array().unwrap().iter();
    let ends: Vec<_> = ends
        .filter(|event| event["event_type"] == "SERVER_DISCONNECTED")
        .collect();
    assert!(ends[0].to_string().contains("resource_limit"), "{audit:#}");
    assert_eq!(shown(&mut owner, "other").await["pid"], other);
}

/// All steps of `it` that the agent has heard of, up to its second error.
async fn steps_of(agent: &mut Agent) -> Vec<[String; 2]> {
    let mut steps = Vec::new();
    while steps
        .iter()
        .filter(|[step, _]: &&[String; 2]| step.ends_with(">error"))
        .count()
        < 2
    {
        let step = agent.hears("notifications/mgp.lifecycle").await["params"].clone();
        if step["server_id"] == "it" {
            let said = |member: &str| step[member].as_str().unwrap().to_owned();
            let whole = format!("{}>{}", said("previous_state"), said("new_state"));
            steps.push([whole, said("reason")]);
        }
    }
    steps
}

/// MGP-140: processor time over its limit for ten seconds is too much, and is told by that name; where the
/// policy restarts nobody the server stays in error.
#[tokio::test]
async fn a_server_that_takes_too_much_time_is_ended_for_that_reason() {
    let folder = tempfile::tempdir().unwrap();
    let diary = folder.path().join("it");
    let keys = "restart_policy = \"never\"\n[servers.limits]\ncpu_percent = 5";
    let entry = beside(&stress("--cpu 1"), &diary, keys);
    let kernel = Kernel::start(&entry).await;
    let mut owner = owner(&kernel).await;
    let ended = until(&mut owner, "it", "state", "error").await;
    let why = ended["reason"].as_str().unwrap();
    assert!(
        why.contains("% of a core for 10 s, more than 5 (`cpu_percent`"),
        "{why}"
    );
    assert_eq!(reasons(&diary), ["resource_limit"]);
}

/// MGP-140: descriptors and processes are counted over all that the server has started; what is far over its
/// limit is ended at once.
#[tokio::test]
async fn a_server_with_too_many_processes_is_ended() {
    for (limit, drains) in [("processes = 4", true), ("processes = 2", false)] {
        let folder = tempfile::tempdir().unwrap();
        let diary = folder.path().join("it");
        let keys = format!("restart_policy = \"never\"\n[servers.limits]\n{limit}");
        let kernel = Kernel::start(&beside("true", &diary, &keys)).await;
        kernel.connected(&["it"]).await;
        let mut agent = speaker(&kernel, &["lifecycle"]).await;
        let mut owner = owner(&kernel).await;
        owner.call("it__fork", json!({"n": 5})).await.result();
        let steps = reasoned(&mut agent, "error").await;
        let [last, why] = steps.last().unwrap();
        assert!(
            why.contains("processes") && why.starts_with("resource_limit"),
            "{steps:?}"
        );
        let from = if drains {
            "draining>error"
        } else {
            "connected>error"
        };
        assert_eq!(last, from, "{steps:?}");
        assert_eq!(reasons(&diary).len(), usize::from(drains));
    }
}

/// MGP-140: an instance that nobody has used for too long is told so.
#[tokio::test]
async fn idle_instance_is_shut_down_with_its_reason() {
    let folder = tempfile::tempdir().unwrap();
    let diary = folder.path().join("it");
    let keys = "instances = \"agent\"\ninstance_idle_secs = 1";
    let kernel = Kernel::start(&super::lifecycle::takes_part(
        "it",
        &accepted(),
        &diary,
        keys,
    ))
    .await;
    kernel.connected(&["it"]).await;
    let mut agent = speaker(&kernel, &["lifecycle"]).await;
    let call = agent.call("it__echo", json!({"text": "x"})).await;
    assert_eq!(call.text(), "x");
    wait_until("its instance has ended", DEADLINE, async || {
        reasons(&diary) == ["idle_timeout"]
    })
    .await;
}
