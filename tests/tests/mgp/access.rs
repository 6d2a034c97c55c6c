//! Who may call what: every way to a tool, decided by the same rules.

mod conditions;
mod escapes;
mod exposure;
mod identity;
mod naming;
mod revokes;
mod story;

use mgp_tests::harness::envelope::MODERN;
use mgp_tests::harness::mgp::{declaration, declaring, speaks_mgp};
use mgp_tests::harness::{Agent, Answer, Client, DEADLINE, Kernel, Program, wait_until};
use serde_json::{Value, json};

/// Everybody at an open HTTP door.
const ANYBODY: &str = "agent.anonymous";
const NEWEST: &str = "2025-11-25";

/// A kernel in front of two scripted servers that offer the same.
async fn kernel_of_two(sections: &str) -> Kernel {
    let fixture = Program::fixture(&[]);
    let servers = fixture.entry("one") + &fixture.entry("two");
    let kernel = Kernel::start(&format!("{sections}{servers}")).await;
    kernel.connected(&["one", "two"]).await;
    kernel
}

async fn owner(kernel: &Kernel) -> Agent {
    let mut agent = Agent::over_socket(&kernel.socket()).await;
    agent.initialize(NEWEST, "{}").await.result();
    agent
}

async fn anybody(kernel: &Kernel, server: Option<&str>) -> Agent {
    let mut agent = kernel.http_agent(server);
    agent.initialize(NEWEST, "{}").await.result();
    agent
}

/// The params of an entry; `what` is `SERVER` or `SERVER/TOOL`.
fn entry(agent: &str, what: &str) -> Value {
    match what.split_once('/') {
        Some((server, tool)) => json!({"entry_type": "tool_grant", "agent_id": agent,
            "server_id": server, "tool_name": tool}),
        None => json!({"entry_type": "server_grant", "agent_id": agent, "server_id": what,
            "tool_name": null}),
    }
}

async fn decide(owner: &mut Agent, what: &str, permission: &str) -> Value {
    let mut params = entry(ANYBODY, what);
    params["permission"] = json!(permission);
    owner.request("mgp/access/grant", params).await.result()
}

async fn take_back(owner: &mut Agent, what: &str) -> Value {
    let params = entry(ANYBODY, what);
    owner.request("mgp/access/revoke", params).await.result()
}

async fn query(owner: &mut Agent, server: &str, tool: Option<&str>) -> Value {
    let params = json!({"agent_id": ANYBODY, "server_id": server, "tool_name": tool});
    owner.request("mgp/access/query", params).await.result()
}

/// The names in a list.
async fn names(agent: &mut Agent, method: &str, member: &str) -> Vec<String> {
    let mut out = Vec::new();
    let mut params = json!({});
    loop {
        let page = agent.request(method, params).await.result();
        let items = page[member].as_array().unwrap();
        let name = |item: &Value| {
            let name = item.get("name").or_else(|| item.get("uri"));
            name.unwrap().as_str().unwrap().to_owned()
        };
        out.extend(items.iter().map(name));
        match page.get("nextCursor") {
            Some(cursor) => params = json!({"cursor": cursor}),
            None => return out,
        }
    }
}

async fn echo(agent: &mut Agent, tool: &str) -> Answer {
    agent.call(tool, json!({"text": "hello"})).await
}

/// An answer without what is different in any two.
fn words(answer: &Answer, name: &str) -> String {
    let error = answer.error();
    error.to_string().replace(name, "NAME")
}

/// Whether a server was ever asked for its tool `echo`.
async fn echoed(owner: &mut Agent, server: &str) -> bool {
    let seen = owner.call(&format!("{server}__received"), json!({})).await;
    seen.frame.contains("echo")
}

/// MGP-067, MGP-068: every combination of a tool's entry, its server's entry and the default policy, asked by query and
/// by a call.
#[tokio::test]
async fn tool_grant_precedes_server_grant_precedes_default_policy() {
    for policy in ["opt-in", "opt-out"] {
        let kernel = kernel_of_two(&format!("[access]\ndefault_policy = \"{policy}\"\n")).await;
        let mut owner = owner(&kernel).await;
        let mut agent = anybody(&kernel, None).await;
        for of_server in ["", "allow", "deny"] {
            for of_tool in ["", "allow", "deny"] {
                for (what, permission) in [("one", of_server), ("one/echo", of_tool)] {
                    match permission {
                        "" => take_back(&mut owner, what).await,
                        permission => decide(&mut owner, what, permission).await,
                    };
                }
                let default = if policy == "opt-in" { "deny" } else { "allow" };
                let (permission, source) = match (of_tool, of_server) {
                    ("", "") => (default, "default_policy"),
                    ("", of_server) => (of_server, "server_grant"),
                    (of_tool, _) => (of_tool, "tool_grant"),
                };
                let told = query(&mut owner, "one", Some("echo")).await;
                let case = format!("{policy}, server {of_server:?}, tool {of_tool:?}: {told}");
                assert_eq!(
                    (&told["permission"], &told["source"]),
                    (&json!(permission), &json!(source)),
                    "{case}"
                );
                let answer = echo(&mut agent, "one__echo").await;
                assert_eq!(answer.is_error(), permission == "deny", "{case}");
            }
        }
    }
}

/// MGP-069.
#[tokio::test]
async fn server_grant_is_for_all_tools_and_tool_grant_for_one() {
    let kernel = kernel_of_two("").await;
    let mut owner = owner(&kernel).await;
    let mut agent = anybody(&kernel, None).await;
    for (what, denied) in [
        ("one/echo", [true, false, false]),
        ("one", [true, true, false]),
    ] {
        decide(&mut owner, what, "deny").await;
        for (tool, denied) in ["one__echo", "one__count", "two__echo"].iter().zip(denied) {
            let answer = echo(&mut agent, tool).await;
            assert_eq!(answer.is_error(), denied, "{what} {tool}");
        }
    }
}

/// MGP-070.
#[tokio::test]
async fn query_returns_the_permission_its_source_and_who_granted_it() {
    let kernel = kernel_of_two("").await;
    let mut owner = owner(&kernel).await;
    let by_default = query(&mut owner, "one", Some("echo")).await;
    assert_eq!(by_default["permission"], "allow", "{by_default}");
    assert_eq!(by_default["source"], "default_policy", "{by_default}");
    assert!(!by_default["granted_by"].is_string(), "{by_default}");
    let mut grant = entry(ANYBODY, "one/echo");
    grant["permission"] = json!("deny");
    grant["granted_by"] = json!("the owner");
    grant["expires_at"] = json!("2999-01-01T00:00:00Z");
    owner.request("mgp/access/grant", grant).await.result();
    let granted = query(&mut owner, "one", Some("echo")).await;
    assert_eq!(granted["permission"], "deny", "{granted}");
    assert_eq!(granted["source"], "tool_grant", "{granted}");
    assert!(granted["granted_by"].is_string(), "{granted}");
    assert!(granted["granted_at"].is_string(), "{granted}");
    let expires = granted["expires_at"].as_str().unwrap();
    assert!(expires.starts_with("2999-01-01T00:00:00"), "{granted}");
}

/// MGP-071.
#[tokio::test]
async fn grant_is_stored_with_all_its_parameters() {
    let kernel = kernel_of_two("").await;
    let mut owner = owner(&kernel).await;
    for (what, permission) in [("one/echo", "deny"), ("two", "allow")] {
        let mut grant = entry(ANYBODY, what);
        grant["permission"] = json!(permission);
        grant["justification"] = json!("as agreed");
        let granted = owner.request("mgp/access/grant", grant.clone()).await;
        assert!(granted.result()["grant_id"].is_string());
        let listed = owner.request("mgp/access/list", json!({})).await.result();
        let mut entries = listed["entries"].as_array().unwrap().iter();
        let stored = entries.find(|stored| stored["server_id"] == grant["server_id"]);
        let stored = stored.unwrap_or_else(|| panic!("no {what}: {listed}"));
        for member in [
            "entry_type",
            "agent_id",
            "tool_name",
            "permission",
            "justification",
        ] {
            assert_eq!(stored[member], grant[member], "{member}: {stored}");
        }
    }
}

/// MGP-073.
#[tokio::test]
async fn revoke_removes_the_entry_of_its_type_alone() {
    let kernel = kernel_of_two("").await;
    let mut owner = owner(&kernel).await;
    decide(&mut owner, "one", "deny").await;
    decide(&mut owner, "one/echo", "allow").await;
    for (what, source) in [("one/echo", "server_grant"), ("one", "default_policy")] {
        let revoked = take_back(&mut owner, what).await;
        assert_eq!(revoked["revoked"].as_array().unwrap().len(), 1, "{what}");
        let left = query(&mut owner, "one", Some("echo")).await;
        assert_eq!(left["source"], source, "{left}");
    }
}

/// MGP-078.
#[tokio::test]
async fn opt_out_policy_allows_what_nobody_denied() {
    let kernel = kernel_of_two("[access]\ndefault_policy = \"opt-out\"\n").await;
    let mut owner = owner(&kernel).await;
    let mut agent = anybody(&kernel, None).await;
    decide(&mut owner, "one/echo", "deny").await;
    assert!(echo(&mut agent, "one__echo").await.is_error());
    assert_eq!(echo(&mut agent, "two__echo").await.text(), "hello");
}

/// MGP-072, MGP-074: what does not fit is refused, and what is not there is not taken back.
#[tokio::test]
async fn invalid_grant_and_revoke_of_no_entry_change_nothing() {
    let kernel = kernel_of_two("").await;
    let mut owner = owner(&kernel).await;
    let mut no_tool = entry(ANYBODY, "one");
    no_tool["entry_type"] = json!("tool_grant");
    no_tool["permission"] = json!("deny");
    let refused = owner.request("mgp/access/grant", no_tool.clone()).await;
    assert_eq!(refused.error()["code"], -32602);
    no_tool.as_object_mut().unwrap().remove("permission");
    let refused = owner.request("mgp/access/revoke", no_tool).await;
    assert_eq!(refused.error()["code"], -32602);
    assert_eq!(take_back(&mut owner, "one").await, json!({"revoked": []}));
    let listed = owner.request("mgp/access/list", json!({})).await.result();
    assert_eq!(listed, json!({"entries": []}));
}

/// MGP-079, MGP-081, MGP-273: a denied tool of a plain MCP server is in no list, its call reads as that
/// of a tool that does not exist, in both eras and at both doors, and its server never sees it.
#[tokio::test]
async fn denied_tool_is_reported_as_unknown_and_never_called() {
    let kernel = kernel_of_two("").await;
    let mut owner = owner(&kernel).await;
    decide(&mut owner, "one/echo", "deny").await;
    for (view, denied) in [(None, "one__echo"), (Some("one"), "echo")] {
        let mut agent = anybody(&kernel, view).await;
        let tools = names(&mut agent, "tools/list", "tools").await;
        assert!(
            !tools.iter().any(|name| name == denied) && tools.len() > 5,
            "{tools:?}"
        );
        let url = view.map_or(kernel.url().to_owned(), |id| kernel.server_url(id));
        for version in [NEWEST, MODERN] {
            let mut client = Client::over_http(&url, version, "{}").await;
            let no = client.call(denied, json!({"text": "x"})).await;
            let unknown = client.call("nosuch", json!({"text": "x"})).await;
            assert_eq!(
                words(&no, denied),
                words(&unknown, "nosuch"),
                "{version} {view:?}"
            );
        }
        let mut aliases = anybody(&kernel, None).await;
        for name in ["one:echo", "one__echo"] {
            let no = echo(&mut aliases, name).await;
            assert_eq!(
                words(&no, name),
                words(&echo(&mut aliases, "nosuch").await, "nosuch")
            );
        }
    }
    assert!(!echoed(&mut owner, "one").await);
    owner.call("one__echo", json!({"text": "x"})).await;
    assert!(
        echoed(&mut owner, "one").await,
        "what a server is asked is seen"
    );
}

/// MGP-079, MGP-188: who agreed to `access_control` reads that a tool is denied to it, unless the operator
/// hides it (`reveal = false`); everybody else reads what is said of a tool that is not there.
#[tokio::test]
async fn denial_is_reported_to_agents_that_negotiated_access_control() {
    for (reveal, section) in [(true, ""), (false, "[access]\nreveal = false\n")] {
        let kernel = kernel_of_two(section).await;
        let mut owner = owner(&kernel).await;
        decide(&mut owner, "one/echo", "deny").await;
        for version in [NEWEST, MODERN] {
            let mut mgp = Client::over_http(kernel.url(), version, &speaks_mgp(version)).await;
            let no = mgp.call("one__echo", json!({"text": "x"})).await;
            let expected = if reveal { 1001 } else { 4001 };
            assert_eq!(no.code(), expected, "{version} {}", no.frame);
            let told = &no.error()["data"]["_mgp"];
            assert_eq!(told["retryable"], false, "{version}");
            let found = mgp
                .call("mgp_tools_call", json!({"name": "one__echo"}))
                .await;
            assert_eq!(found.code(), expected, "{version} {}", found.frame);
            let listed = mgp.request("tools/list", json!({})).await;
            assert!(!listed.frame.contains("one__echo"), "it is in no list");
            let ask = json!({"agent_id": ANYBODY, "server_id": "one", "tool_name": "echo"});
            let told = mgp.request("mgp/access/query", ask).await.result();
            let source = if reveal {
                "tool_grant"
            } else {
                "default_policy"
            };
            assert_eq!(
                (&told["permission"], &told["source"]),
                (&json!("deny"), &json!(source))
            );
            let other = declaring(version, "{}", &declaration(&["audit"]));
            for said in ["{}", &other] {
                let mut other = Client::over_http(kernel.url(), version, said).await;
                let no = other.call("one__echo", json!({"text": "x"})).await;
                let unknown = other.call("nosuch", json!({"text": "x"})).await;
                assert_eq!(words(&no, "one__echo"), words(&unknown, "nosuch"), "{said}");
            }
        }
        assert!(!echoed(&mut owner, "one").await);
    }
}

/// MGP-080, MGP-081: an agent that is denied a server sees nothing of it: not its lists, not its
/// instructions, not its door.
#[tokio::test]
async fn denied_server_is_hidden_from_lists_and_endpoints() {
    let kernel = kernel_of_two("").await;
    let mut owner = owner(&kernel).await;
    let mut before = anybody(&kernel, None).await;
    decide(&mut owner, "one", "deny").await;
    for (method, member) in [
        ("tools/list", "tools"),
        ("prompts/list", "prompts"),
        ("resources/list", "resources"),
        ("resources/templates/list", "resourceTemplates"),
    ] {
        let all = before.request(method, json!({})).await.result();
        let text = all.to_string();
        assert!(
            !text.contains("one__") && !text.contains("mgp+one"),
            "{method}: {text}"
        );
        assert!(!all[member].as_array().unwrap().is_empty(), "{method}");
    }
    let no = before
        .request(
            "prompts/get",
            json!({"name": "one__greet", "arguments": {}}),
        )
        .await;
    let unknown = before
        .request("prompts/get", json!({"name": "nosuch", "arguments": {}}))
        .await;
    assert_eq!(words(&no, "one__greet"), words(&unknown, "nosuch"));
    let there = mgp_tests::harness::HttpClient::new(&kernel.server_url("one"));
    let denied = there.post(initialize()).await;
    let nowhere = mgp_tests::harness::HttpClient::new(&kernel.server_url("none"));
    let unknown = nowhere.post(initialize()).await;
    assert_eq!(denied.status, unknown.status);
}

fn initialize() -> String {
    json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": NEWEST,
        "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}})
    .to_string()
}

/// MGP-081: pages of what an agent may see are whole, whatever is hidden in between.
#[tokio::test]
async fn pages_of_a_list_are_full_without_denied_tools() {
    let kernel = kernel_of_two("[lists]\npage_size = 3\n").await;
    let mut owner = owner(&kernel).await;
    let mut agent = anybody(&kernel, None).await;
    let all = names(&mut agent, "tools/list", "tools").await;
    let hidden: Vec<&String> = all
        .iter()
        .filter(|name| name.starts_with("one__"))
        .step_by(2)
        .collect();
    for name in &hidden {
        decide(&mut owner, &name.replace("__", "/"), "deny").await;
    }
    let seen = names(&mut agent, "tools/list", "tools").await;
    let expected: Vec<&String> = all.iter().filter(|name| !hidden.contains(name)).collect();
    assert_eq!(seen.iter().collect::<Vec<_>>(), expected);
}

/// MGP-075: an entry counts until its end, and its agent hears that its list changed.
#[tokio::test]
async fn entry_expires_and_its_agent_is_notified() {
    let kernel = kernel_of_two("").await;
    let mut owner = owner(&kernel).await;
    let mut agent = anybody(&kernel, None).await;
    let denied = kernel
        .mgp(&[
            "grants",
            "add",
            ANYBODY,
            "one/echo",
            "--deny",
            "--expires",
            "2s",
        ])
        .await;
    assert!(denied.status.success());
    agent.hears("notifications/tools/list_changed").await;
    assert!(echo(&mut agent, "one__echo").await.is_error());
    let told = query(&mut owner, "one", Some("echo")).await;
    assert!(told["expires_at"].is_string(), "{told}");
    agent.hears("notifications/tools/list_changed").await;
    assert_eq!(echo(&mut agent, "one__echo").await.text(), "hello");
    let told = query(&mut owner, "one", Some("echo")).await;
    assert_eq!(told["source"], "default_policy");
}

/// MGP-079: a change reaches those it concerns, and nobody else.
#[tokio::test]
async fn only_agents_concerned_by_a_change_are_notified() {
    let kernel = kernel_of_two("").await;
    let mut owner = owner(&kernel).await;
    let mut agent = anybody(&kernel, None).await;
    decide(&mut owner, "one/echo", "deny").await;
    agent.hears("notifications/tools/list_changed").await;
    let mut other = entry("agent.other", "one");
    other["permission"] = json!("deny");
    owner.request("mgp/access/grant", other).await.result();
    agent.request("ping", json!({})).await.result();
    owner.request("ping", json!({})).await.result();
    assert!(agent.heard("notifications/tools/list_changed").is_empty());
    assert!(owner.heard("notifications/tools/list_changed").is_empty());
}

/// MGP-066, A-31: agents administer nothing and ask only about themselves; who did not agree to access
/// control does not even see the methods.
#[tokio::test]
async fn agents_may_neither_grant_nor_ask_about_others() {
    let kernel = kernel_of_two("[access]\nreveal = false\n").await;
    let mut owner = owner(&kernel).await;
    decide(&mut owner, "one/echo", "deny").await;
    let mut plain = anybody(&kernel, None).await;
    let mut grant = entry(ANYBODY, "one/echo");
    grant["permission"] = json!("allow");
    let unknown = plain.request("mgp/access/grant", grant.clone()).await;
    assert_eq!(unknown.error()["code"], -32601);
    for version in [NEWEST, MODERN] {
        let mut agent = Client::over_http(kernel.url(), version, &speaks_mgp(version)).await;
        for (method, params) in [
            ("mgp/access/grant", grant.clone()),
            ("mgp/access/revoke", entry(ANYBODY, "one/echo")),
            ("mgp/access/list", json!({})),
            (
                "mgp/access/explain",
                json!({"agent_id": ANYBODY, "server_id": "one"}),
            ),
            (
                "mgp/access/query",
                json!({"agent_id": "agent.other", "server_id": "one"}),
            ),
        ] {
            let refused = agent.request(method, params).await;
            assert_eq!(refused.error()["code"], 1000, "{version} {method}");
        }
        let by_tool = agent.call("mgp.access.grant", grant.clone()).await;
        assert!(by_tool.is_error(), "{version}");
        let ask = |tool: &str| json!({"agent_id": ANYBODY, "server_id": "one", "tool_name": tool});
        let denied = agent
            .request("mgp/access/query", ask("echo"))
            .await
            .result();
        let unknown = agent
            .request("mgp/access/query", ask("nosuch"))
            .await
            .result();
        assert_eq!(denied["permission"], unknown["permission"], "{version}");
        assert_eq!(denied["source"], unknown["source"], "{version}");
        let mine = agent
            .request("mgp/access/query", ask("slow"))
            .await
            .result();
        assert_eq!(mine["permission"], "allow", "{version}");
    }
}

/// MGP-066: the methods are tools of the kernel as well, for its owner.
#[tokio::test]
async fn access_methods_are_tools_of_the_owner() {
    let kernel = kernel_of_two("").await;
    let mut owner = owner(&kernel).await;
    let mut grant = entry(ANYBODY, "one");
    grant["permission"] = json!("deny");
    let answer = owner.call("mgp.access.grant", grant).await.result();
    assert!(
        answer["structuredContent"]["grant_id"].is_string(),
        "{answer}"
    );
    assert_eq!(query(&mut owner, "one", None).await["permission"], "deny");
    let answer = owner
        .call("mgp_access_revoke", entry(ANYBODY, "one"))
        .await
        .result();
    assert_eq!(
        answer["structuredContent"]["revoked"]
            .as_array()
            .unwrap()
            .len(),
        1
    );
}

/// MGP-080: who may not any more may not from the next call on, and may again from the next.
#[tokio::test]
async fn decision_applies_from_the_next_call_on() {
    let kernel = kernel_of_two("").await;
    let mut owner = owner(&kernel).await;
    let mut client = Client::over_http(kernel.url(), MODERN, "{}").await;
    for (permission, refused) in [("allow", false), ("deny", true), ("allow", false)] {
        decide(&mut owner, "one/echo", permission).await;
        let answer = client.call("one__echo", json!({"text": "a"})).await;
        assert_eq!(answer.is_error(), refused, "{permission}");
    }
    take_back(&mut owner, "one/echo").await;
    let answer = client.call("one__echo", json!({"text": "a"})).await;
    assert_eq!(answer.text(), "a");
}

/// MGP-082: grants survive a restart.
#[tokio::test]
async fn grants_survive_a_restart() {
    let kernel = kernel_of_two("").await;
    let mut first = owner(&kernel).await;
    decide(&mut first, "one/echo", "deny").await;
    drop(first);
    let folder = kernel
        .end(nix::sys::signal::Signal::SIGTERM, DEADLINE)
        .await;
    let kernel = Kernel::again(folder).await;
    kernel.connected(&["one", "two"]).await;
    let mut agent = anybody(&kernel, None).await;
    assert!(echo(&mut agent, "one__echo").await.is_error());
}

/// An agent of this name, who has just been added and speaks MGP.
async fn newcomer(kernel: &Kernel, name: &str) -> Agent {
    kernel.mgp_json(&["agents", "add", name]).await;
    let mut agent = Agent::over_stdio(&kernel.program(&["stdio", "--agent", name]));
    agent.initialize(NEWEST, &speaks_mgp(NEWEST)).await.result();
    agent
}

/// It reads that access is denied, as the document says it, and that trying again is of no use.
fn is_denied(answer: &Answer) {
    assert_eq!(answer.code(), 1001, "{}", answer.frame);
    let told = &answer.error()["data"]["_mgp"];
    assert_eq!(
        (&told["category"], &told["retryable"]),
        (&json!("security"), &json!(false))
    );
}

/// MGP-077, MGP-188: under `opt-in` nobody has what nobody opened: neither an agent that was just added nor
/// anybody at a server that was; and what is opened to one agent is open to that one, on that server.
#[tokio::test]
async fn opt_in_policy_denies_new_agents_and_new_servers() {
    let entry = |id: &str| Program::fixture(&[]).entry(id);
    let one = "[access]\ndefault_policy = \"opt-in\"\n".to_owned() + &entry("one");
    let kernel = Kernel::start(&one).await;
    kernel.connected(&["one"]).await;
    let mut alice = newcomer(&kernel, "alice").await;
    is_denied(&echo(&mut alice, "one__echo").await);
    kernel.mgp_json(&["grants", "add", "alice", "one"]).await;
    assert_eq!(echo(&mut alice, "one__echo").await.text(), "hello");
    kernel.rewrite(&(one + &entry("two")));
    kernel.connected(&["one", "two"]).await;
    let mut bob = newcomer(&kernel, "bob").await;
    is_denied(&echo(&mut alice, "two__echo").await);
    for tool in ["one__echo", "two__echo", "two:echo"] {
        is_denied(&echo(&mut bob, tool).await);
        for version in [NEWEST, MODERN] {
            let mut anybody = Client::over_http(kernel.url(), version, &speaks_mgp(version)).await;
            is_denied(&anybody.call(tool, json!({"text": "hello"})).await);
        }
    }
    let mut owner = owner(&kernel).await;
    assert!(!echoed(&mut owner, "two").await, "nothing reached it");
    kernel.mgp_json(&["grants", "add", "bob", "two"]).await;
    assert_eq!(echo(&mut bob, "two__echo").await.text(), "hello");
    is_denied(&echo(&mut bob, "one__echo").await);
    is_denied(&echo(&mut alice, "two__echo").await);
}

/// MGP-077: a server that is trusted least is closed until somebody opens it.
#[tokio::test]
async fn sandboxed_server_is_denied_by_default() {
    if crate::sandbox::starts_none().await {
        return;
    }
    let open = Program::fixture(&[]).entry("one");
    let closed = Program::fixture(&[]).entry("two");
    let closed = format!("{closed}[servers.mgp]\ntrust_level = \"sandboxed\"\n");
    let kernel = Kernel::start(&format!("{open}{closed}")).await;
    kernel.connected(&["one", "two"]).await;
    let mut agent = anybody(&kernel, None).await;
    assert_eq!(echo(&mut agent, "one__echo").await.text(), "hello");
    assert!(echo(&mut agent, "two__echo").await.is_error());
    let granted = kernel
        .mgp(&["grants", "add", ANYBODY, "two", "--because", "looked at"])
        .await;
    assert!(granted.status.success());
    assert_eq!(echo(&mut agent, "two__echo").await.text(), "hello");
}

/// MGP-070, MGP-076: the command line decides, shows and explains; each change is in the audit log.
#[tokio::test]
async fn command_line_grants_lists_and_explains() {
    let kernel = kernel_of_two("").await;
    let said = async |args: &[&str]| {
        let output = kernel.mgp(args).await;
        assert!(
            output.status.success(),
            "{args:?}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let denied = said(&[
        "grants",
        "add",
        ANYBODY,
        "one/echo",
        "--deny",
        "--because",
        "too loud",
    ])
    .await;
    assert!(
        denied.starts_with("agent.anonymous is denied one:echo ("),
        "{denied}"
    );
    let grants = said(&["grants", "list"]).await;
    assert!(
        grants.contains("one:echo") && grants.contains("too loud"),
        "{grants}"
    );
    let why = said(&["explain", ANYBODY, "one/echo"]).await;
    assert!(
        why.contains("may not use one:echo") && why.contains("operator"),
        "{why}"
    );
    let back = said(&["grants", "remove", ANYBODY, "one/echo"]).await;
    assert!(back.starts_with("taken back"), "{back}");
    assert!(
        said(&["grants", "remove", ANYBODY, "one/echo"])
            .await
            .contains("has no entry")
    );
    let log = kernel.folder().join("data/audit/00000001.jsonl");
    wait_until("both changes are in the log", DEADLINE, async || {
        let log = std::fs::read_to_string(&log).unwrap();
        log.matches("ACCESS_GRANTED").count() == 1 && log.matches("ACCESS_REVOKED").count() == 1
    })
    .await;
}
