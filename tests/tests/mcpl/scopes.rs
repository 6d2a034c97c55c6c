//! Scopes (MCPL §7).

use mgp_tests::harness::{DEADLINE, Kernel, Program, wait_until};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::scene::{Driver, Host, host, server};

fn files() -> Value {
    json!({"version": "0.4", "featureSets": {
        "files.edit": {"description": "Edit files", "uses": ["tools"], "scoped": true},
        "files.watch": {"description": "Watch files", "uses": ["pushEvents"], "scoped": true},
        "files.other": {"description": "All other tools", "uses": ["tools"]}
    }})
}

fn editor(declared: &Value) -> Program {
    editor_of("files.edit", declared)
}

/// The tool's definition names this set.
fn editor_of(set: &str, declared: &Value) -> Program {
    let tools = json!([{"tool": {"name": "edit_file", "_meta": {"featureSet": set}}, "answers": [{"result": {"content": [{"type": "text", "text": "done"}]}}]}]);
    server(declared).args(&["--mcpl-tools", &tools.to_string()])
}

/// The tools by which a test makes the server speak belong to a set without scopes.
const OTHERS: &str = r#"
[mcpl.servers.files.tools]
mcpl_ask = "files.other"
mcpl_tell = "files.other"
mcpl_heard = "files.other"
"#;

const RULES: &str = r#"
[mcpl.servers.files.scopes."files.edit"]
label = "{path}"
whitelist = ["/project/**"]
blacklist = ["**/.env", "**/secrets/**"]
enrich = { "/project/**" = { project = "p1" } }
"#;

/// A host at that server, under its own names.
async fn at_files(kernel: &Kernel) -> Host {
    Host::declaring(kernel, &host(), &["--server", "files"]).await
}

/// The calls of the editor's tool that reached it.
async fn edits(driver: &mut Driver) -> Vec<Value> {
    let calls = driver.heard_of("tools/call").await.into_iter();
    calls
        .filter(|call| call["params"]["name"] == "edit_file")
        .collect()
}

/// The name of the one question that waits for the operator.
async fn pending(kernel: &Kernel) -> String {
    let mut id = String::new();
    wait_until("a question waits", DEADLINE, async || {
        let pending = kernel.mgp_json(&["pending"]).await;
        let first = &pending["pending"][0];
        id = first["id"].as_str().unwrap_or_default().to_owned();
        !id.is_empty()
    })
    .await;
    id
}

/// MCPL-031, MCPL-046, MCPL-047, MCPL-048, MCPL-052..056, MCPL-058, MCPL-059: a call of a scoped tool leaves with
/// its scope when a list opens that or a person does, and not at all otherwise.
#[tokio::test]
async fn a_scoped_call_leaves_only_in_an_open_scope() {
    let servers = format!("{}{OTHERS}{RULES}", editor(&files()).entry("files"));
    let kernel = Kernel::start(&servers).await;
    kernel.connected(&["files"]).await;
    let mut driver = Driver::at(&kernel, "files").await;
    let told = driver.hears("featureSets/update", 1).await;
    let scopes = json!({"files.edit": {"whitelist": ["/project/**"], "blacklist": ["**/.env", "**/secrets/**"]}});
    assert_eq!(told[0]["params"]["scopes"], scopes);

    // Whitelisted: it goes with its scope, whatever its caller says of that.
    let host = at_files(&kernel).await;
    let forged = json!({"name": "edit_file", "arguments": {"path": "/project/a.ts"}, "scope": {"label": "/"}, "State": 1, "checkpoint": "c"});
    let answer = host.request("tools/call", forged).await;
    assert!(answer.get("result").is_some(), "{answer}");
    let sent = edits(&mut driver).await;
    let scope =
        json!({"label": "/project/a.ts", "payload": {"project": "p1", "path": "/project/a.ts"}});
    assert_eq!(sent[0]["params"]["scope"], scope);
    for gone in ["State", "state", "checkpoint"] {
        assert!(sent[0]["params"].get(gone).is_none(), "{sent:?}");
    }

    // Blacklisted, or only looking as if the whitelist had it: it does not leave.
    for path in [
        "/project/.env",
        "/project/.ENV",
        "/project/x/secrets/a",
        "/project/%2eenv",
        "/project/a/../.env",
    ] {
        let answer = host
            .call("edit_file", json!({"path": path}))
            .await
            .to_string();
        assert!(answer.contains("blacklist"), "{path}: {answer}");
    }
    for arguments in [
        json!({}),
        json!({"path": ["/project/a"]}),
        json!({"Path": "/project/a"}),
    ] {
        let answer = host.call("edit_file", arguments).await.to_string();
        assert!(
            answer.contains("its scope is made of the argument"),
            "{answer}"
        );
    }
    let kernel_says = kernel
        .mgp_json(&["explain", "local", "files:edit_file"])
        .await
        .to_string();
    assert!(
        kernel_says.contains("files.edit is enabled (default)") && kernel_says.contains("{path}"),
        "{kernel_says}"
    );
    assert_eq!(edits(&mut driver).await.len(), 1);

    // Neither: a person decides, once for the session.
    let call = host.begin(
        "tools/call",
        json!({"name": "edit_file", "arguments": {"path": "/project/../etc/hosts"}}),
    );
    let id = pending(&kernel).await;
    kernel.mgp_json(&["deny", &id]).await;
    assert!(
        call.await
            .unwrap()
            .to_string()
            .contains("the operator denied it")
    );
    let call = host.begin(
        "tools/call",
        json!({"name": "edit_file", "arguments": {"path": "/etc/hosts"}}),
    );
    let again = host.begin(
        "tools/call",
        json!({"name": "edit_file", "arguments": {"path": "/etc/hosts"}}),
    );
    let id = pending(&kernel).await;
    kernel.mgp_json(&["approve", &id]).await;
    for call in [call, again] {
        let answer = call.await.unwrap();
        assert!(answer.get("result").is_some(), "{answer}");
    }
    let answer = host.call("edit_file", json!({"path": "/etc/hosts"})).await;
    assert!(answer.get("result").is_some(), "{answer}");
    // For good.
    let call = host.begin(
        "tools/call",
        json!({"name": "edit_file", "arguments": {"path": "/srv/a"}}),
    );
    let id = pending(&kernel).await;
    kernel.mgp_json(&["answer", &id, "always"]).await;
    assert!(call.await.unwrap().get("result").is_some());
    assert_eq!(edits(&mut driver).await.len(), 5);

    // It closes scopes for itself.
    host.tell(
        "featureSets/update",
        json!({"scopes": {"files.files.edit": {"blacklist": ["/project/own/**"]}}}),
    );
    let answer = host
        .call("edit_file", json!({"path": "/project/own/a"}))
        .await
        .to_string();
    assert!(answer.contains("this client closed it"), "{answer}");
    let audit = kernel.mgp(&["audit", "find", "--json"]).await;
    let audit = String::from_utf8_lossy(&audit.stdout).into_owned();
    assert!(
        audit.contains(r#""decision":"denied""#) && audit.contains("the whitelist has /project/**"),
        "{audit}"
    );

    let folder = kernel.end(Signal::SIGTERM, DEADLINE).await;
    // Nobody has the time to answer there.
    let config = folder.path().join("mgp.toml");
    let before = std::fs::read_to_string(&config).unwrap();
    std::fs::write(&config, format!("{before}[mcpl]\nscope_timeout_secs = 1\n")).unwrap();
    let kernel = Kernel::again(folder).await;
    kernel.connected(&["files"]).await;
    let host = at_files(&kernel).await;
    let answer = host.call("edit_file", json!({"path": "/srv/a"})).await;
    assert!(answer.get("result").is_some(), "{answer}");
    assert_eq!(
        kernel.mgp_json(&["mcpl", "forget", "files"]).await["scopes"],
        1
    );
    let answer = host
        .call("edit_file", json!({"path": "/srv/a"}))
        .await
        .to_string();
    assert!(answer.contains("nobody decided in time"), "{answer}");
}

/// MCPL-019, MCPL-049, MCPL-050, MCPL-051, MCPL-053..057: what a server asks leave for.
#[tokio::test]
async fn a_server_asks_for_a_scope() {
    let kernel = Kernel::start(&format!(
        "{}{OTHERS}{RULES}",
        editor(&files()).entry("files")
    ))
    .await;
    kernel.connected(&["files"]).await;
    let mut driver = Driver::at(&kernel, "files").await;
    let ask = |label: &str| json!({"featureSet": "files.edit", "scope": {"label": label, "payload": {"path": label, "n": 1}}});
    let open = driver.ask("scope/elevate", ask("/project/a")).await;
    assert_eq!(
        open["result"],
        json!({"approved": true, "payload": {"path": "/project/a", "n": 1, "project": "p1"}})
    );
    let closed = driver.ask("scope/elevate", ask("/project/.env")).await["result"].clone();
    assert_eq!(
        closed,
        json!({"approved": false, "reason": "the blacklist has **/.env"})
    );

    // A person decides; the second time at once.
    let (mut asking, mut waiting) = (
        Driver::at(&kernel, "files").await,
        Driver::at(&kernel, "files").await,
    );
    let answer = tokio::spawn(async move { asking.ask("scope/elevate", ask("/etc/hosts")).await });
    let id = pending(&kernel).await;
    let shown = kernel.mgp(&["pending"]).await;
    let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
    assert!(
        shown.contains("server files wants to act in the scope"),
        "{shown}"
    );
    kernel.mgp_json(&["approve", &id]).await;
    let answer = answer.await.unwrap();
    assert_eq!(
        answer["result"],
        json!({"approved": true, "payload": {"path": "/etc/hosts", "n": 1}})
    );
    assert_eq!(
        waiting.ask("scope/elevate", ask("/etc/hosts")).await["result"]["approved"],
        true
    );

    // What is not enabled, not declared, has no scopes or says no label.
    let refused = |set: &str, scope: Value| json!({"featureSet": set, "scope": scope});
    let label = json!({"label": "/project/a"});
    for (asked, code) in [
        (refused("files.watch", label.clone()), -32001),
        (refused("files.unknown", label.clone()), -32003),
        (refused("FILES.EDIT", label.clone()), -32003),
        (refused("files.edit", json!({})), -32602),
        (refused("files.edit", json!({"label": 7})), -32602),
        (
            refused("files.edit", json!({"label": "/project/a", "payload": [1]})),
            -32602,
        ),
        (json!({"scope": {"label": "/project/a"}}), -32602),
        (
            json!({"featureSet": "files.edit", "FeatureSet": "x", "scope": {"label": "/project/a"}}),
            -32602,
        ),
    ] {
        let answer = driver.ask("scope/elevate", asked.clone()).await;
        assert_eq!(answer["error"]["code"], code, "{asked}: {answer}");
    }
    let error = driver
        .ask("scope/elevate", refused("files.watch", label))
        .await;
    assert_eq!(
        error["error"]["data"],
        json!({"featureSet": "files.watch", "canEnable": true})
    );
    assert_eq!(error["error"]["message"], "Feature set not enabled");
}

/// A scoped tool that belongs to no set is refused, with what to write where; one that the configuration or its
/// definition names belongs to that.
#[tokio::test]
async fn a_tool_that_may_be_scoped_says_its_set() {
    let declared = files();
    let answers = json!([{"result": {"content": []}}]);
    let tools = json!([
        {"tool": {"name": "edit_file"}, "answers": answers},
        {"tool": {"name": "read_file", "_meta": {"featureSet": "files.other"}}, "answers": answers},
        {"tool": {"name": "write_file", "_meta": {"featureSet": "files.edit"}}, "answers": answers}
    ]);
    let program = server(&declared).args(&["--mcpl-tools", &tools.to_string()]);
    let kernel = Kernel::start(&format!("{}{OTHERS}", program.entry("files"))).await;
    kernel.connected(&["files"]).await;
    let mut driver = Driver::at(&kernel, "files").await;
    let refused = driver
        .call("edit_file", json!({"path": "/a"}))
        .await
        .to_string();
    assert!(
        refused.contains("[mcpl.servers.files.tools] edit_file = "),
        "{refused}"
    );
    let refused = driver
        .call("write_file", json!({"path": "/a"}))
        .await
        .to_string();
    assert!(
        refused.contains(r#"[mcpl.servers.files.scopes.\"files.edit\"] label"#)
            || refused.contains("label ="),
        "{refused}"
    );
    let passed = driver.call("read_file", json!({"path": "/a"})).await;
    assert!(passed.get("result").is_some(), "{passed}");
    assert!(edits(&mut driver).await.is_empty());
}

/// A tool that says by its next definition that it belongs to another set waits for approval, and stays in its scope
/// until then.
#[tokio::test]
async fn a_tool_stays_in_its_set_until_its_new_definition_is_approved() {
    let servers = |set| {
        let server = editor_of(set, &files()).entry("files");
        format!("{server}{OTHERS}{RULES}")
    };
    let kernel = Kernel::start(&servers("files.edit")).await;
    kernel.connected(&["files"]).await;
    kernel.rewrite(&servers("files.other"));
    let changed = pending(&kernel).await;
    let shown = kernel.mgp_json(&["pending"]).await.to_string();
    assert!(shown.contains("changed other members"), "{shown}");
    assert!(shown.contains("files.other"), "{shown}");
    let mut driver = Driver::at(&kernel, "files").await;
    let host = at_files(&kernel).await;
    let edit = json!({"name": "edit_file", "arguments": {"path": "/etc/hosts"}});
    let call = host.begin("tools/call", edit.clone());
    let mut scope = String::new();
    wait_until("its scope is asked for", DEADLINE, async || {
        let all = kernel.mgp_json(&["pending"]).await;
        let all = all["pending"].as_array().unwrap().iter();
        let mut ids = all.map(|one| one["id"].as_str().unwrap().to_owned());
        scope = ids.find(|id| *id != changed).unwrap_or_default();
        !scope.is_empty()
    })
    .await;
    kernel.mgp_json(&["deny", &scope]).await;
    assert!(call.await.unwrap().to_string().contains("denied"));
    assert!(edits(&mut driver).await.is_empty());
    kernel.mgp_json(&["approve", &changed]).await;
    wait_until("it goes by its new set", DEADLINE, async || {
        let answer = host.request("tools/call", edit.clone()).await;
        answer.get("result").is_some()
    })
    .await;
    assert_eq!(edits(&mut driver).await.len(), 1);
}
