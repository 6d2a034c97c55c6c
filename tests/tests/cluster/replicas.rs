//! Servers of two nodes that are one entry at a third one.

use mgp_tests::harness::{Agent, Answer, DEADLINE, Kernel, Program, wait_until};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::scene::{join, linked, operator, tools};

/// Two owners of a server that is marked as one of several, and the node whose agents call it.
pub(crate) struct Replicas {
    pub(crate) desk: Kernel,
    pub(crate) owners: Vec<(&'static str, Kernel)>,
    /// The name of the tool that answers at once, as agents of the desk are shown it.
    pub(crate) text: String,
}

impl Replicas {
    async fn with(keys: &str) -> Self {
        Self::sharing(&[], keys).await
    }

    /// Both owners share it with everybody, and the desk, which alone may grant, lets its agents call both.
    pub(crate) async fn sharing(options: &[&str], keys: &str) -> Self {
        let demo = format!(
            "{}replica = true\ncall_timeout_secs = 0\n{keys}",
            Program::fixture(options).entry("demo")
        );
        let desk = node("desk", "").await;
        let mut owners = Vec::new();
        for name in ["nas", "attic"] {
            let owner = node(name, &demo).await;
            owner.connected(&["demo"]).await;
            join(&desk, &owner, &[]).await;
            owner
                .mgp_json(&["shares", "add", "demo", "--to", "cluster"])
                .await;
            let granted = format!("the desk's agents may call demo of {name}");
            let server = format!("{name}/demo");
            wait_until(&granted, DEADLINE, async || {
                let granting = desk.mgp(&["grants", "add", "agent.local", &server]).await;
                granting.status.success()
            })
            .await;
            owners.push((name, owner));
        }
        linked(&owners[0].1, &owners[1].1).await;
        let mut text = String::new();
        wait_until("two places are one entry", DEADLINE, async || {
            text = only(&desk, "__demo__test_simple_text").await;
            let places = shown(&desk, "nas/demo").await["replicas"].clone();
            !text.is_empty() && places.as_array().is_some_and(|places| places.len() == 2)
        })
        .await;
        let replicas = Self { desk, owners, text };
        for (name, _) in &replicas.owners {
            replicas.opens(name).await;
        }
        replicas
    }

    /// Waits until an owner, which decides for itself, lets the desk's agents in.
    async fn opens(&self, name: &str) {
        let owner = self.owner(name);
        wait_until(&format!("{name} is open"), DEADLINE, async || {
            let explained = owner.mgp_json(&["explain", "local@desk", "demo"]).await;
            let status = owner.mgp_json(&["cluster", "status"]).await;
            explained["permission"] == "allow" && status["confirmed"] == true
        })
        .await;
    }

    fn slow(&self) -> String {
        self.text.replace("test_simple_text", "slow")
    }

    fn owner(&self, name: &str) -> &Kernel {
        let mut owners = self.owners.iter();
        let owner = owners.find(|(known, _)| *known == name);
        &owner.expect("it is still there").1
    }

    /// The node at which the tool was called, once it was; an error when both have it.
    pub(crate) async fn executed_at(&self, tool: &str) -> &'static str {
        let mut found = Vec::new();
        wait_until("an owner executed the call", DEADLINE, async || {
            found.clear();
            for (name, _) in &self.owners {
                if self.calls(name, tool).await != Value::Null {
                    found.push(*name);
                }
            }
            !found.is_empty()
        })
        .await;
        assert_eq!(found.len(), 1, "{tool} was executed at {found:?}");
        found[0]
    }

    /// Ends a node without a word.
    pub(crate) async fn kill(&mut self, name: &str) {
        let at = self.owners.iter().position(|(known, _)| *known == name);
        let (_, owner) = self.owners.remove(at.expect("it is still there"));
        owner.end(Signal::SIGKILL, DEADLINE).await;
    }

    /// Waits until the desk knows that the node is away.
    async fn is_away(&self, name: &str) {
        wait_until(&format!("{name} is away"), DEADLINE, async || {
            let status = self.desk.mgp_json(&["cluster", "status"]).await;
            let nodes = status["nodes"].as_array().cloned().unwrap_or_default();
            let mut nodes = nodes.iter();
            nodes.any(|node| node["name"] == name && node["standing"] == "away")
        })
        .await;
    }

    /// The node that has a call of `slow` under way.
    async fn has_it(&self, calls: u64) -> &'static str {
        let mut found = "";
        wait_until("an owner has the call", DEADLINE, async || {
            for (name, owner) in &self.owners {
                if shown(owner, "demo").await["in_flight"] == calls {
                    found = *name;
                }
            }
            !found.is_empty()
        })
        .await;
        found
    }

    /// The record of a call of the tool, the first or a later one, at the desk.
    pub(crate) async fn record(&self, tool: &str, nth: usize) -> Value {
        let mut found = Value::Null;
        wait_until("the call is written down", DEADLINE, async || {
            let tail = self
                .desk
                .mgp(&["audit", "tail", "-n", "200", "--json"])
                .await;
            let tail = String::from_utf8(tail.stdout).unwrap();
            let events = tail
                .lines()
                .map(|line| serde_json::from_str::<Value>(line).unwrap());
            let mut calls = events.filter(|event| {
                event["target"]["tool_name"] == tool && event["details"]["place"].is_string()
            });
            found = calls.nth(nth).unwrap_or_default();
            !found.is_null()
        })
        .await;
        found
    }

    /// How often a server of a living owner was called.
    pub(crate) async fn calls(&self, name: &str, tool: &str) -> Value {
        let mut agent = operator(self.owner(name)).await;
        let told = agent.call("demo__count", json!({})).await.result();
        told["structuredContent"]["calls"][tool].clone()
    }
}

/// A node whose remote agents may go on for longer than any of these stories lasts.
async fn node(name: &str, servers: &str) -> Kernel {
    let config = mgp_tests::harness::kernel::nodes::config(name, "127.0.0.1:0", "");
    Kernel::with_config(&format!("{config}lease_secs = 300\n{servers}")).await
}

/// The only tool whose name ends so; nothing while there are several.
async fn only(kernel: &Kernel, end: &str) -> String {
    let mut found = tools(kernel).await;
    found.retain(|name| name.ends_with(end));
    match found.len() {
        1 => found.remove(0),
        _ => String::new(),
    }
}

/// A server as the owner of its kernel is shown it.
async fn shown(kernel: &Kernel, id: &str) -> Value {
    let mut operator = operator(kernel).await;
    let listed = operator
        .request("mgp/servers/list", json!({}))
        .await
        .result();
    let servers = listed["servers"].as_array().cloned().unwrap_or_default();
    let found = servers.into_iter().find(|server| server["id"] == id);
    found.unwrap_or_default()
}

/// The node of a server.
fn node_of(event: &Value) -> String {
    let server = event["target"]["server_id"].as_str().unwrap();
    server.split_once('/').unwrap().0.to_owned()
}

/// What is listed whose name or URI ends so.
async fn listed(agent: &mut Agent, list: &str, key: &str, end: &str) -> Vec<String> {
    let said = agent.request(&format!("{list}/list"), json!({})).await;
    let said = said.result();
    let all = said[list].as_array().unwrap().iter();
    let names = all.map(|it| it[key].as_str().unwrap().to_owned());
    names.filter(|name| name.ends_with(end)).collect()
}

/// A prompt and a resource are there.
async fn reads(agent: &mut Agent, prompt: &str, uri: &str) {
    let got = agent.request("prompts/get", json!({"name": prompt})).await;
    assert!(got.result()["messages"][0].is_object());
    let read = agent.request("resources/read", json!({"uri": uri})).await;
    assert_eq!(read.result()["contents"][0]["uri"], uri);
}

async fn text(agent: &mut Agent, tool: &str) -> Answer {
    agent.call(tool, json!({})).await
}

/// PRJ-006, FED-062: a group is one entry, and who is killed is not missed by the next
/// call, which keeps its name.
#[tokio::test(flavor = "multi_thread")]
async fn two_owners_are_one_entry_and_one_is_enough() {
    let mut replicas = Replicas::with("").await;
    let mut agent = operator(&replicas.desk).await;
    let name = replicas.text.clone();
    assert!(text(&mut agent, &name).await.text().contains("simple text"));
    let first = replicas.record("test_simple_text", 0).await;
    assert_eq!(first["details"]["place"], "it is least busy and near");
    let explained = ["explain", "agent.local", "nas/demo"];
    let explained = replicas.desk.mgp_json(&explained).await;
    let notes = explained["notes"].to_string();
    assert!(notes.contains("2 places are one entry"), "{notes}");
    assert!(notes.contains("the next call goes there"), "{notes}");
    let status = replicas.desk.mgp_json(&["cluster", "status"]).await;
    assert_eq!(
        status["nodes"][1]["servers"][0]["replica"], true,
        "{status:#}"
    );
    let (gone, left) = match node_of(&first).as_str() {
        "nas" => ("nas", "attic"),
        _ => ("attic", "nas"),
    };
    let prompt = listed(&mut agent, "prompts", "name", "__test_simple_prompt").await;
    let resource = listed(&mut agent, "resources", "uri", "static-text").await;
    for alone in [&prompt, &resource] {
        assert_eq!(alone.len(), 1, "{alone:?}");
    }
    // Where it is closed to the agent it is passed over, whatever the name says.
    let server = format!("{gone}/demo");
    let access = async |word: &str| {
        let said = replicas.desk.mgp(&[word, "agent.local", &server]).await;
        assert!(said.status.success(), "{said:?}");
    };
    access("revoke").await;
    assert!(text(&mut agent, &name).await.text().contains("simple text"));
    let passed_over = replicas.record("test_simple_text", 1).await;
    assert_eq!(node_of(&passed_over), left, "{passed_over:#}");
    reads(&mut agent, &prompt[0], &resource[0]).await;
    access("grant").await;
    replicas.opens(gone).await;
    replicas.kill(gone).await;
    // It is not known yet that it is away: what was lost on the way there is read at the other one.
    reads(&mut agent, &prompt[0], &resource[0]).await;
    replicas.is_away(gone).await;
    reads(&mut agent, &prompt[0], &resource[0]).await;
    assert!(text(&mut agent, &name).await.text().contains("simple text"));
    let second = replicas.record("test_simple_text", 2).await;
    assert_eq!(node_of(&second), left, "{second:#}");
    assert_eq!(replicas.calls(left, "test_simple_text").await, 2);
}

/// FED-067: of a call that was under way it is unknown what became, and it is not made
/// again at the other owner.
#[tokio::test(flavor = "multi_thread")]
async fn a_call_under_way_at_an_owner_that_is_killed_is_not_made_twice() {
    let mut replicas = Replicas::with("").await;
    let mut agent = operator(&replicas.desk).await;
    let params = json!({"name": replicas.slow(), "arguments": {"ms": 60_000}});
    let call = agent.start("tools/call", params).await;
    let gone = replicas.has_it(1).await;
    replicas.kill(gone).await;
    let lost = agent.answer_to(&call).await.error();
    assert_eq!(lost["data"]["outcome"], "unknown", "{lost:#}");
    let id = lost["data"]["callId"].as_str().unwrap();
    let told = replicas.desk.mgp_json(&["calls", "show", id]).await;
    assert_eq!(told["outcome"], "unknown", "{told:#}");
    let server = told["records"][0]["server_id"].as_str().unwrap();
    assert_eq!(server, format!("{gone}/demo"));
    let (left, _) = replicas.owners[0];
    assert_eq!(replicas.calls(left, "slow").await, Value::Null);
}

/// FED-066: where both operators say that twice is once, the other owner answers.
#[tokio::test(flavor = "multi_thread")]
async fn a_lost_call_of_an_idempotent_tool_is_answered_by_the_other_owner() {
    let mut replicas = Replicas::with("[servers.tools.slow]\nidempotent = true\n").await;
    let mut agent = operator(&replicas.desk).await;
    let params = json!({"name": replicas.slow(), "arguments": {"ms": 15_000}});
    let call = agent.start("tools/call", params).await;
    let gone = replicas.has_it(1).await;
    replicas.kill(gone).await;
    assert_eq!(agent.answer_to(&call).await.text(), "slept");
    let (left, _) = replicas.owners[0];
    assert_eq!(replicas.calls(left, "slow").await, 1);
    assert_eq!(node_of(&replicas.record("slow", 0).await), left);
}

/// FED-063: a server that remembers its callers is called where it does, however busy it
/// is there, until it is gone.
#[tokio::test(flavor = "multi_thread")]
async fn an_agent_stays_where_it_is_remembered() {
    const CALLS: u64 = 8;
    let mut replicas = Replicas::with("stateful = true\n").await;
    let mut agent = operator(&replicas.desk).await;
    let name = replicas.text.clone();
    for _ in 0..CALLS {
        let params = json!({"name": replicas.slow(), "arguments": {"ms": 60_000}});
        agent.start("tools/call", params).await;
    }
    let home = replicas.has_it(CALLS).await;
    assert!(text(&mut agent, &name).await.text().contains("simple text"));
    let called = replicas.record("test_simple_text", 0).await;
    assert_eq!(node_of(&called), home);
    assert_eq!(called["details"]["place"], "it remembers the agent");
    replicas.kill(home).await;
    replicas.is_away(home).await;
    assert!(text(&mut agent, &name).await.text().contains("simple text"));
    let (left, _) = replicas.owners[0];
    let moved = replicas.record("test_simple_text", 1).await;
    assert_eq!(node_of(&moved), left, "{moved:#}");
    let why = moved["details"]["place"].as_str().unwrap();
    assert!(why.contains("is not there"), "{why}");
}
