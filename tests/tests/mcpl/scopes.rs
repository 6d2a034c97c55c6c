//! Scopes (MCPL §7).

use mgp_tests::harness::{DEADLINE, Kernel, Program, wait_until};
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use tokio::sync::oneshot::Receiver;

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

/// The id of the one pending entry.
async fn pending(kernel: &Kernel) -> String {
    let mut id = String::new();
    wait_until("a pending entry", DEADLINE, async || {
        let pending = kernel.mgp_json(&["pending"]).await;
        let first = &pending["pending"][0];
        id = first["id"].as_str().unwrap_or_default().to_owned();
        !id.is_empty()
    })
    .await;
    id
}

/// A kernel with the server `files`, whose set `files.edit` has scopes, and a host there.
struct Scoped {
    kernel: Kernel,
    driver: Driver,
    host: Host,
}

impl Scoped {
    async fn start() -> Self {
        let servers = format!("{}{OTHERS}{RULES}", editor(&files()).entry("files"));
        let kernel = Kernel::start(&servers).await;
        kernel.connected(&["files"]).await;
        Self {
            driver: Driver::at(&kernel, "files").await,
            host: at_files(&kernel).await,
            kernel,
        }
    }

    async fn edit(&self, path: &str) -> Value {
        self.host.call("edit_file", json!({"path": path})).await
    }

    /// Begins a call that waits for the operator.
    fn begin_edit(&self, path: &str) -> Receiver<Value> {
        let params = json!({"name": "edit_file", "arguments": {"path": path}});
        self.host.begin("tools/call", params)
    }

    /// The answer to a request of the server for this scope.
    async fn elevate(&mut self, label: &str) -> Value {
        self.driver.ask("scope/elevate", elevation(label)).await
    }
}

/// The params by which a server asks for a scope.
fn elevation(label: &str) -> Value {
    let scope = json!({"label": label, "payload": {"path": label, "n": 1}});
    json!({"featureSet": "files.edit", "scope": scope})
}

fn assert_succeeded(answer: &Value) {
    assert!(answer.get("result").is_some(), "{answer}");
    assert_ne!(answer["result"]["isError"], true, "{answer}");
}

/// MCPL-031, MCPL-047.
#[tokio::test]
async fn configured_scopes_are_sent_to_the_server_with_its_sets() {
    let mut scoped = Scoped::start().await;
    let updates = scoped.driver.hears("featureSets/update", 1).await;
    let scopes = json!({"files.edit": {"whitelist": ["/project/**"], "blacklist": ["**/.env", "**/secrets/**"]}});
    assert_eq!(updates[0]["params"]["scopes"], scopes);
}

/// MCPL-058: whatever its caller says of that.
#[tokio::test]
async fn call_of_a_scoped_tool_carries_its_scope() {
    let mut scoped = Scoped::start().await;
    let forged = json!({"name": "edit_file", "arguments": {"path": "/project/a.ts"}, "scope": {"label": "/"}, "State": 1, "checkpoint": "c"});
    assert_succeeded(&scoped.host.request("tools/call", forged).await);
    let sent = edits(&mut scoped.driver).await;
    let scope =
        json!({"label": "/project/a.ts", "payload": {"project": "p1", "path": "/project/a.ts"}});
    assert_eq!(sent[0]["params"]["scope"], scope);
    for forged in ["State", "state", "checkpoint"] {
        assert!(sent[0]["params"].get(forged).is_none(), "{sent:?}");
    }
}

/// MCPL-059.
#[tokio::test]
async fn call_in_a_closed_scope_does_not_reach_the_server() {
    let mut scoped = Scoped::start().await;
    for path in ["/project/.env", "/project/x/secrets/a"] {
        let answer = scoped.edit(path).await.to_string();
        assert!(answer.contains("blacklist"), "{path}: {answer}");
    }
    for arguments in [
        json!({}),
        json!({"path": ["/project/a"]}),
        json!({"Path": "/project/a"}),
    ] {
        let answer = scoped.host.call("edit_file", arguments).await.to_string();
        assert!(
            answer.contains("its scope is made of the argument"),
            "{answer}"
        );
    }
    assert!(edits(&mut scoped.driver).await.is_empty());
    let explained = scoped
        .kernel
        .mgp_json(&["explain", "local", "files:edit_file"])
        .await
        .to_string();
    assert!(
        explained.contains("files.edit is enabled (default)") && explained.contains("{path}"),
        "{explained}"
    );
}

/// MCPL-048: a glob sees through letter case, escapes and dots.
#[tokio::test]
async fn scope_patterns_are_globs_of_normalized_labels() {
    let mut scoped = Scoped::start().await;
    for path in [
        "/project/.ENV",
        "/project/%2eenv",
        "/project/a/../.env",
        "/project/a/b/c/.env",
    ] {
        let answer = scoped.edit(path).await.to_string();
        assert!(answer.contains("blacklist"), "{path}: {answer}");
    }
    assert_succeeded(&scoped.edit("/project/a/b/c").await);
    // It only looks as if the whitelist had it.
    let call = scoped.begin_edit("/project/../etc/hosts");
    let id = pending(&scoped.kernel).await;
    scoped.kernel.mgp_json(&["deny", &id]).await;
    let answer = call.await.unwrap().to_string();
    assert!(answer.contains("the operator denied it"), "{answer}");
    assert_eq!(edits(&mut scoped.driver).await.len(), 1);
}

/// MCPL-055: one pending entry for both calls.
#[tokio::test]
async fn call_in_a_scope_of_neither_list_waits_for_the_operator() {
    let mut scoped = Scoped::start().await;
    let call = scoped.begin_edit("/etc/passwd");
    let id = pending(&scoped.kernel).await;
    scoped.kernel.mgp_json(&["deny", &id]).await;
    let answer = call.await.unwrap().to_string();
    assert!(answer.contains("the operator denied it"), "{answer}");
    let (first, second) = (
        scoped.begin_edit("/etc/hosts"),
        scoped.begin_edit("/etc/hosts"),
    );
    let id = pending(&scoped.kernel).await;
    scoped.kernel.mgp_json(&["approve", &id]).await;
    for call in [first, second] {
        assert_succeeded(&call.await.unwrap());
    }
    assert_eq!(edits(&mut scoped.driver).await.len(), 2);
}

/// MCPL-056: an approval for the session, and one for good until it is forgotten.
#[tokio::test]
async fn approval_of_a_scope_is_remembered() {
    let scoped = Scoped::start().await;
    for (path, answer) in [("/etc/hosts", "once"), ("/srv/a", "always")] {
        let call = scoped.begin_edit(path);
        let id = pending(&scoped.kernel).await;
        match answer {
            "always" => scoped.kernel.mgp_json(&["answer", &id, "always"]).await,
            _ => scoped.kernel.mgp_json(&["approve", &id]).await,
        };
        assert_succeeded(&call.await.unwrap());
        assert_succeeded(&scoped.edit(path).await);
    }
    let folder = scoped.kernel.end(Signal::SIGTERM, DEADLINE).await;
    // Nobody has the time to answer there.
    let config = folder.path().join("mgp.toml");
    let before = std::fs::read_to_string(&config).unwrap();
    std::fs::write(&config, format!("{before}[mcpl]\nscope_timeout_secs = 1\n")).unwrap();
    let kernel = Kernel::again(folder).await;
    kernel.connected(&["files"]).await;
    let host = at_files(&kernel).await;
    assert_succeeded(&host.call("edit_file", json!({"path": "/srv/a"})).await);
    let forgotten = kernel.mgp_json(&["mcpl", "forget", "files"]).await;
    assert_eq!(forgotten["scopes"], 1);
    for path in ["/srv/a", "/etc/hosts"] {
        let answer = host.call("edit_file", json!({"path": path})).await;
        let answer = answer.to_string();
        assert!(answer.contains("nobody decided in time"), "{answer}");
    }
}

#[tokio::test]
async fn agent_closes_a_scope_for_itself_and_decisions_are_recorded() {
    let mut scoped = Scoped::start().await;
    scoped.host.tell(
        "featureSets/update",
        json!({"scopes": {"files.files.edit": {"blacklist": ["/project/own/**"]}}}),
    );
    let answer = scoped.edit("/project/own/a").await.to_string();
    assert!(answer.contains("this client closed it"), "{answer}");
    assert_succeeded(&scoped.edit("/project/a").await);
    assert_eq!(edits(&mut scoped.driver).await.len(), 1);
    let audit = scoped.kernel.mgp(&["audit", "find", "--json"]).await;
    let audit = String::from_utf8_lossy(&audit.stdout).into_owned();
    assert!(
        audit.contains(r#""decision":"denied""#) && audit.contains("the whitelist has /project/**"),
        "{audit}"
    );
}

/// MCPL-052, MCPL-054.
#[tokio::test]
async fn elevation_in_the_whitelist_is_approved_with_the_enriched_payload() {
    let mut scoped = Scoped::start().await;
    let answer = scoped.elevate("/project/a").await;
    let payload = json!({"path": "/project/a", "n": 1, "project": "p1"});
    let approved = json!({"approved": true, "payload": payload});
    assert_eq!(answer["result"], approved, "{answer}");
}

/// MCPL-051, MCPL-053: though the whitelist has it, too.
#[tokio::test]
async fn elevation_in_the_blacklist_is_denied_with_a_reason() {
    let mut scoped = Scoped::start().await;
    let answer = scoped.elevate("/project/.env").await;
    let denied = json!({"approved": false, "reason": "the blacklist has **/.env"});
    assert_eq!(answer["result"], denied, "{answer}");
}

/// MCPL-019, MCPL-055: once for the session.
#[tokio::test]
async fn elevation_in_neither_list_waits_for_the_operator() {
    let mut scoped = Scoped::start().await;
    let mut asking = Driver::at(&scoped.kernel, "files").await;
    let answer = tokio::spawn(async move {
        let params = elevation("/etc/hosts");
        asking.ask("scope/elevate", params).await
    });
    let id = pending(&scoped.kernel).await;
    let listed = scoped.kernel.mgp(&["pending"]).await;
    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    assert!(
        listed.contains("server files wants to act in the scope"),
        "{listed}"
    );
    scoped.kernel.mgp_json(&["approve", &id]).await;
    let payload = json!({"path": "/etc/hosts", "n": 1});
    assert_eq!(
        answer.await.unwrap()["result"],
        json!({"approved": true, "payload": payload})
    );
    let again = scoped.elevate("/etc/hosts").await;
    assert_eq!(again["result"]["approved"], true, "{again}");
}

/// MCPL-049, MCPL-050: the payload alone may be missing.
#[tokio::test]
async fn elevation_without_a_set_or_a_valid_scope_is_rejected() {
    let mut scoped = Scoped::start().await;
    let label = json!({"label": "/project/a"});
    for params in [
        json!({"featureSet": "files.edit", "scope": {}}),
        json!({"featureSet": "files.edit", "scope": {"label": 7}}),
        json!({"featureSet": "files.edit", "scope": {"label": "/project/a", "payload": [1]}}),
        json!({"featureSet": "files.edit"}),
        json!({"scope": label}),
        json!({"featureSet": "files.edit", "FeatureSet": "x", "scope": label}),
    ] {
        let answer = scoped.driver.ask("scope/elevate", params.clone()).await;
        assert_eq!(answer["error"]["code"], -32602, "{params}: {answer}");
    }
    let params = json!({"featureSet": "files.edit", "scope": label});
    let answer = scoped.driver.ask("scope/elevate", params).await;
    assert_eq!(answer["result"]["approved"], true, "{answer}");
}

/// MCPL-057.
#[tokio::test]
async fn elevation_for_a_disabled_or_unknown_set_is_rejected() {
    let mut scoped = Scoped::start().await;
    let ask = |set: &str| json!({"featureSet": set, "scope": {"label": "/project/a"}});
    for set in ["files.unknown", "FILES.EDIT"] {
        let answer = scoped.driver.ask("scope/elevate", ask(set)).await;
        assert_eq!(answer["error"]["code"], -32003, "{set}: {answer}");
    }
    let answer = scoped.driver.ask("scope/elevate", ask("files.watch")).await;
    let error = &answer["error"];
    assert_eq!(error["code"], -32001, "{answer}");
    assert_eq!(error["message"], "Feature set not enabled");
    assert_eq!(
        error["data"],
        json!({"featureSet": "files.watch", "canEnable": true})
    );
}

/// MCPL-046: a scoped tool that belongs to no set is refused, with what to write where; one that the configuration or its
/// definition names belongs to that.
#[tokio::test]
async fn tool_of_no_set_is_rejected_at_a_server_with_a_scoped_set() {
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
async fn tool_stays_in_its_set_until_its_new_definition_is_approved() {
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
