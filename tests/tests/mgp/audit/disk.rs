//! A disk that is full: said everywhere, and no reason to start the kernel again.

use mgp_tests::harness::{Agent, DEADLINE, Kernel, Program, on_a_disk, wait_until};
use serde_json::{Value, json};

/// Takes what room there is.
fn fill(kernel: &Kernel) {
    use std::io::Write;
    let mut file = std::fs::File::create(kernel.disk().join("fill")).unwrap();
    while file.write_all(&[0; 4096]).is_ok() {}
    while file.write_all(&[0; 1]).is_ok() {}
}

/// A kernel that a full disk keeps from starting says so, though its log takes no word of it.
#[tokio::test]
async fn failed_start_on_a_full_disk_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).display().to_string();
    std::fs::write(at("mgp.toml"), "[http]\nenabled = false\n").unwrap();
    let script = "cat /dev/zero > \"$MGP_DATA_DIR/fill\" 2>&-; exec \"$0\" up --detach";
    let mgp = Program::ours("mgp", ["up"]).command;
    let run = |script: &str| {
        let program = Program::new("sh", ["-c", script, &mgp]);
        let program = program.env("MGP_SOCKET", at("mgp.sock"));
        let program = program.env("MGP_DATA_DIR", at("data"));
        on_a_disk(&program.env("MGP_CONFIG_PATH", at("mgp.toml")), "256k")
    };
    let trial = run("true").output(DEADLINE).await;
    if !trial.status.success() {
        return eprintln!("SKIPPED: no disk of our own here: {trial:?}");
    }
    let said = run(script).output(DEADLINE).await;
    let told = String::from_utf8_lossy(&said.stderr);
    assert_eq!(said.status.code(), Some(1), "{told}");
    assert!(told.contains("did not start (exit status: 1)"), "{told}");
    let log = at("data/kernel.log");
    assert!(
        told.contains(&log) && told.contains("the disk is full"),
        "{told}"
    );
}

async fn troubles(kernel: &Kernel) -> Vec<Value> {
    let status = kernel.mgp_json(&["status"]).await;
    status["troubles"].as_array().unwrap().clone()
}

async fn health(owner: &mut Agent) -> Value {
    let pong = owner.request("mgp/health/ping", json!({})).await.result();
    pong["status"].clone()
}

/// While the disk is full calls and decisions are refused, and `status`, health and the errors say so with
/// what to do. When there is room again both are done, without a restart; the log is whole, and has a
/// record of the gap.
#[tokio::test]
async fn full_disk_is_reported_and_recovered_from_without_a_restart() {
    let config = Program::fixture(&[]).entry("it");
    let kernel = match Kernel::on_a_disk(&config, "1m").await {
        Ok(kernel) => kernel,
        Err(why) => return eprintln!("SKIPPED: no disk of our own here: {why}"),
    };
    kernel.connected(&["it"]).await;
    let mut owner = Agent::over_socket(&kernel.socket()).await;
    owner.initialize("2025-11-25", "{}").await.result();
    let mut agent = kernel.http_agent(None);
    agent.initialize("2025-11-25", "{}").await.result();
    let call = json!({"text": "x"});
    agent.call("it__echo", call.clone()).await.result();
    assert_eq!(
        (troubles(&kernel).await, health(&mut owner).await),
        (vec![], json!("healthy"))
    );
    fill(&kernel);
    let mut refused = String::new();
    wait_until("calls are refused", DEADLINE, async || {
        let answer = agent.call("it__echo", call.clone()).await;
        let is_refused = answer.is_error();
        if is_refused {
            refused = answer.error()["message"].to_string();
        }
        is_refused
    })
    .await;
    assert!(
        refused.contains("the audit log cannot be written"),
        "{refused}"
    );
    assert!(refused.contains("`mgp status` says why"), "{refused}");
    let told = troubles(&kernel).await;
    let told = told[0].as_str().unwrap();
    let folder = kernel.folder().join("data/audit");
    for said in [
        "No space left",
        "free some space",
        &folder.display().to_string(),
    ] {
        assert!(told.contains(said), "{told}");
    }
    let status = kernel.mgp(&["status"]).await;
    let status = String::from_utf8(status.stdout).unwrap();
    assert!(
        status.contains("trouble   ") && status.contains("No space left"),
        "{status}"
    );
    assert_eq!(health(&mut owner).await, "degraded");
    let grant = ["grants", "add", "agent.anonymous", "it"];
    let denied = kernel.mgp(&grant).await;
    let words = String::from_utf8_lossy(&denied.stderr).into_owned();
    assert_eq!(denied.status.code(), Some(1), "{words}");
    assert!(words.contains("the audit log cannot be written"), "{words}");
    std::fs::remove_file(kernel.disk().join("fill")).unwrap();
    wait_until("calls are taken again", DEADLINE, async || {
        !agent.call("it__echo", call.clone()).await.is_error()
    })
    .await;
    assert_eq!(
        (troubles(&kernel).await, health(&mut owner).await),
        (vec![], json!("healthy"))
    );
    let granted = kernel.mgp(&grant).await;
    assert!(granted.status.success(), "{granted:?}");
    let resumed = crate::audit::events(&kernel).await.into_iter();
    let mut resumed = resumed.filter(|e| e["event_type"] == "dev.cloto.mgp.audit_resumed");
    let gap = resumed.next().expect("a record of the gap");
    assert!(
        gap["details"]["reason"]
            .as_str()
            .unwrap()
            .contains("No space left"),
        "{gap}"
    );
    let copy = kernel.disk().display().to_string();
    let report = kernel
        .mgp_json(&["audit", "verify", "--data-dir", &copy])
        .await;
    assert_eq!(
        (&report["whole"], &report["faults"]),
        (&json!(true), &json!([])),
        "{report}"
    );
}

/// The journal of grants cannot grow while the audit log can: decisions are refused and do not hold, calls go
/// on, and `status` names the journal. When it can, decisions are taken again without a restart, and those
/// that were refused are in no file.
#[tokio::test]
async fn a_journal_that_cannot_grow_goes_on_when_it_can() {
    let config = format!(
        "[tuning.audit]\nfile_bytes = 65536\n{}",
        Program::fixture(&[]).entry("it")
    );
    let kernel = match Kernel::on_a_disk(&config, "8m").await {
        Ok(kernel) => kernel,
        Err(why) => return eprintln!("SKIPPED: no disk of our own here: {why}"),
    };
    kernel.connected(&["it"]).await;
    let mut owner = Agent::over_socket(&kernel.socket()).await;
    owner.initialize("2025-11-25", "{}").await.result();
    let mut agent = kernel.http_agent(None);
    agent.initialize("2025-11-25", "{}").await.result();
    let grant = |n: usize| {
        json!({"entry_type": "tool_grant", "agent_id": format!("agent.{n}"), "server_id": "it",
            "tool_name": "echo", "permission": "deny"})
    };
    let journal = kernel.disk().join("grants.journal");
    let size = || std::fs::metadata(&journal).unwrap().len();
    let mut granted = 0;
    // More than one file of the audit log ever has.
    while size() < 70_000 {
        owner
            .request("mgp/access/grant", grant(granted))
            .await
            .result();
        granted += 1;
    }
    let limit = async |soft: &str| {
        let pid = kernel.pid().to_string();
        let set = Program::new(
            "prlimit",
            ["--pid", &pid, &format!("--fsize={soft}:unlimited")],
        );
        set.output(DEADLINE).await.status.success()
    };
    let before = size();
    if !limit(&(before + 10).to_string()).await {
        return eprintln!("SKIPPED: no `prlimit` here");
    }
    let refused = owner
        .request("mgp/access/grant", grant(99_999))
        .await
        .error()
        .to_string();
    for said in ["grants.journal", "File too large", "free some space"] {
        assert!(refused.contains(said), "{refused}");
    }
    let told = troubles(&kernel).await;
    assert!(
        told[0].as_str().unwrap().contains("grants.journal"),
        "{told:?}"
    );
    assert_eq!(
        (health(&mut owner).await, size()),
        (json!("degraded"), before)
    );
    agent.call("it__echo", json!({"text": "x"})).await.result();
    assert!(limit("unlimited").await);
    wait_until("it is written again", DEADLINE, async || {
        !owner
            .request("mgp/access/grant", grant(granted))
            .await
            .is_error()
    })
    .await;
    assert_eq!(
        (troubles(&kernel).await, health(&mut owner).await),
        (vec![], json!("healthy"))
    );
    let listed = owner.request("mgp/access/list", json!({})).await.result();
    let entries = listed["entries"].as_array().unwrap();
    assert_eq!(entries.len(), granted + 1);
    assert!(
        entries
            .iter()
            .all(|entry| entry["agent_id"] != "agent.99999"),
        "it was refused"
    );
}

/// A ticket lets a node in: nobody gets one while it cannot be written down that it was made.
#[tokio::test]
async fn no_ticket_is_made_while_the_audit_log_cannot_be_written() {
    let config = format!(
        "[cluster]\nlisten = \"127.0.0.1:0\"\n{}",
        Program::fixture(&[]).entry("it")
    );
    let kernel = match Kernel::on_a_disk(&config, "4m").await {
        Ok(kernel) => kernel,
        Err(why) => return eprintln!("SKIPPED: no disk of our own here: {why}"),
    };
    let invite = ["nodes", "invite", "--address", "127.0.0.1:7332"];
    let invited = kernel.mgp(&invite).await;
    assert!(invited.status.success(), "{invited:?}");
    fill(&kernel);
    let mut words = String::new();
    wait_until("an invitation is refused", DEADLINE, async || {
        let refused = kernel.mgp(&invite).await;
        words = String::from_utf8_lossy(&refused.stderr).into_owned();
        !refused.status.success()
    })
    .await;
    assert!(
        words.contains("what is not written down is not done"),
        "{words}"
    );
    let tickets = kernel.mgp_json(&["nodes", "tickets"]).await.to_string();
    let made = crate::audit::events(&kernel).await.into_iter();
    let made = made.filter(|event| event["details"]["step"] == "invited");
    let made: Vec<_> = made
        .map(|event| event["details"]["ticket"].to_string())
        .collect();
    assert_eq!(
        tickets.matches("expires_at").count(),
        made.len(),
        "{tickets}"
    );
}

/// A kernel that is started where nothing can be written says so in one line, with the path and what to do.
#[tokio::test]
async fn a_start_on_a_full_disk_is_one_line() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).display().to_string();
    std::fs::write(
        folder.path().join("mgp.toml"),
        Program::fixture(&[]).entry("it"),
    )
    .unwrap();
    let fill = "head -c 1m /dev/zero > \"$MGP_DATA_DIR/fill\" 2> /dev/null; exec \"$@\"";
    for room in [
        "cat /dev/zero > \"$MGP_DATA_DIR/fill\" 2> /dev/null; exec \"$@\"",
        fill,
    ] {
        let up = Program::ours("mgp", ["up", "--config"]).arg(at("mgp.toml"));
        let mut filled = Program::new("sh", ["-c", room, "sh", &up.command]);
        filled.args.extend(up.args.iter().cloned());
        let filled = filled
            .env("MGP_SOCKET", at("mgp.sock"))
            .env("MGP_DATA_DIR", at("data"))
            .env("XDG_RUNTIME_DIR", at(""));
        let output = on_a_disk(&filled, "1056k").output(DEADLINE).await;
        let said = String::from_utf8(output.stderr).unwrap();
        if said.contains("unshare") || said.contains("mount") {
            return eprintln!("SKIPPED: no disk of our own here: {said}");
        }
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert_eq!(said.trim_end().lines().count(), 1, "{said}");
        for word in ["mgp: ", &at("data"), "No space left", "free some space"] {
            assert!(said.contains(word), "{said}");
        }
    }
}
