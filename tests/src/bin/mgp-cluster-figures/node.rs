//! A kernel on a machine of the network, and its operator.

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use mgp_tests::harness::kernel::network::Network;
use mgp_tests::harness::{Agent, DEADLINE, Kernel};
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::times::until;

/// The newest version with sessions.
const NEWEST: &str = "2025-11-25";
/// A door for the load, and tools by their names alone: what the model costs is measured elsewhere.
const DOOR: &str = "[http]\nlisten = \"127.0.0.1:0\"\nauth = \"none\"\n";

/// A node of a cluster.
pub(crate) struct Node {
    pub(crate) name: String,
    pub(crate) kernel: Kernel,
    operator: Agent,
    /// What it was started behind.
    behind: Vec<String>,
}

/// A node that lost its power, or was shut down: what is on its disk.
pub(crate) struct DeadNode {
    name: String,
    folder: TempDir,
    behind: Vec<String>,
}

impl Node {
    /// Starts one on a machine, with more of `mgp.toml`.
    pub(crate) async fn start(network: &Network, machine: usize, name: &str, more: &str) -> Self {
        let config = config(name, "[::]:7332", more);
        let folder = TempDir::new().expect("a temporary folder");
        Self::behind(network.on(machine), folder, name, &config).await
    }

    /// Starts one on the loopback.
    pub(crate) async fn on_loopback(name: &str, more: &str) -> Self {
        let config = config(name, "127.0.0.1:0", more);
        let folder = TempDir::new().expect("a temporary folder");
        Self::behind(Vec::new(), folder, name, &config).await
    }

    async fn behind(behind: Vec<String>, folder: TempDir, name: &str, config: &str) -> Self {
        let words: Vec<&str> = behind.iter().map(String::as_str).collect();
        let kernel = Kernel::behind(&words, folder, config, &[]).await;
        let operator = agent(&kernel).await;
        Self {
            name: name.to_owned(),
            kernel,
            operator,
            behind,
        }
    }

    /// Pulls its plug. What it was comes back once it is gone.
    pub(crate) fn unplug(&mut self) -> Instant {
        self.kernel.process().signal(Signal::SIGKILL);
        Instant::now()
    }

    /// Shuts it down gracefully; what is on its disk.
    pub(crate) async fn shut_down(self) -> DeadNode {
        DeadNode {
            name: self.name,
            folder: self.kernel.end(Signal::SIGTERM, DEADLINE).await,
            behind: self.behind,
        }
    }

    /// What an unplugged node leaves.
    pub(crate) async fn gone(self) -> DeadNode {
        DeadNode {
            name: self.name,
            folder: self.kernel.end(Signal::SIGKILL, DEADLINE).await,
            behind: self.behind,
        }
    }

    /// One more client at its socket.
    pub(crate) async fn agent(&self) -> Agent {
        agent(&self.kernel).await
    }

    /// The same, with a person whom servers may ask.
    pub(crate) async fn asking_agent(&self) -> Agent {
        let mut agent = Agent::over_socket(&self.kernel.socket()).await;
        let capabilities = r#"{"elicitation":{}}"#;
        agent.initialize(NEWEST, capabilities).await.result();
        agent
    }

    /// What a tool of its own answers.
    pub(crate) async fn read(&mut self, tool: &str, arguments: Value) -> Value {
        let params = json!({"name": tool, "arguments": arguments});
        let answer = self.operator.request("tools/call", params).await;
        if answer.is_error() {
            Value::Null
        } else {
            answer.result()
        }
    }

    /// Asks the kernel as its operator.
    ///
    /// # Panics
    /// When it refuses.
    pub(crate) async fn ask(&mut self, method: &str, params: Value) -> Value {
        let answer = self.operator.request(method, params).await;
        assert!(
            !answer.is_error(),
            "{}: {method}: {}",
            self.name,
            answer.frame
        );
        answer.result()
    }

    /// The nodes of its cluster.
    pub(crate) async fn nodes(&mut self) -> Vec<Value> {
        let status = self.ask("mgp/kernel/nodes/list", json!({})).await;
        status["nodes"].as_array().cloned().unwrap_or_default()
    }

    /// How it sees the node of this name: linked, away.
    pub(crate) async fn sees(&mut self, name: &str, standing: &str) -> bool {
        let nodes = self.nodes().await;
        nodes
            .iter()
            .any(|node| node["name"] == name && node["standing"] == standing)
    }

    /// That it is linked to all others of a cluster of so many.
    pub(crate) async fn is_linked(&mut self, of: usize) -> bool {
        let nodes = self.nodes().await;
        nodes.len() == of && nodes.iter().all(|node| node["standing"] != "away")
    }

    /// That its agents are shown this tool.
    pub(crate) async fn shows(&mut self, tool: &str) -> bool {
        let listed = self.ask("tools/list", json!({})).await;
        let tools = listed["tools"].as_array();
        tools.is_some_and(|tools| tools.iter().any(|it| it["name"] == tool))
    }

    /// Calls a tool; true when it answered, false when that was refused.
    pub(crate) async fn call(&mut self, tool: &str, arguments: Value) -> bool {
        let params = json!({"name": tool, "arguments": arguments});
        let answer = self.operator.request("tools/call", params).await;
        !answer.is_error() && answer.result()["isError"] != true
    }

    /// Calls a tool that is refused; gives the words of the refusal, and nothing where it answered.
    pub(crate) async fn refusal(&mut self, tool: &str, arguments: Value) -> String {
        let params = json!({"name": tool, "arguments": arguments});
        let answer = self.operator.request("tools/call", params).await;
        if answer.is_error() || answer.result()["isError"] == true {
            answer.frame.to_string()
        } else {
            String::new()
        }
    }

    /// Shares the tool `echo` of a server with the cluster, or no longer.
    pub(crate) async fn share(&mut self, server: &str, shared: bool) {
        let (method, params) = if shared {
            (
                "add",
                json!({"server": server, "to": "cluster", "tools": "echo"}),
            )
        } else {
            ("remove", json!({"server": server}))
        };
        self.ask(&format!("mgp/kernel/shares/{method}"), params)
            .await;
    }

    /// Lets another one into its cluster, which it founds where there is none.
    ///
    /// # Panics
    /// When that is not done by the deadline.
    pub(crate) async fn admit(&mut self, guest: &mut Self) {
        self.admit_as(guest, "member").await;
    }

    /// The same, in another role.
    ///
    /// # Panics
    /// When that is not done by the deadline.
    pub(crate) async fn admit_as(&mut self, guest: &mut Self, role: &str) {
        let invite = json!({"approved": true, "role": role});
        let invited = self.ask("mgp/kernel/nodes/invite", invite).await;
        let join = json!({"ticket": invited["ticket"]});
        guest.ask("mgp/kernel/nodes/join", join).await;
        let mut told = Value::Null;
        let admitted = until(Instant::now(), DEADLINE, async || {
            told = guest.ask("mgp/kernel/nodes/admission", json!({})).await;
            told["stage"] == "admitted"
        });
        let admitted = admitted.await;
        assert!(admitted.is_some(), "{} is not let in: {told:#}", guest.name);
    }
}

impl DeadNode {
    /// Its power is back, and somebody wrote something else into its configuration meanwhile.
    pub(crate) async fn again_with(self, before: &str, after: &str) -> Node {
        let file = self.folder.path().join("mgp.toml");
        let config = std::fs::read_to_string(&file).expect("its disk is whole");
        assert!(config.contains(before), "{config}");
        std::fs::write(&file, config.replace(before, after)).expect("its disk is whole");
        self.again().await
    }

    /// It starts again.
    pub(crate) async fn again(self) -> Node {
        let file = self.folder.path().join("mgp.toml");
        let config = std::fs::read_to_string(file).expect("its disk is whole");
        Node::behind(self.behind, self.folder, &self.name, &config).await
    }
}

/// Makes a cluster of them: the first one founds it.
///
/// # Panics
/// When they are not all linked by the deadline.
pub(crate) async fn unite(nodes: &mut [Node]) {
    let all = nodes.len();
    if let Some((host, guests)) = nodes.split_first_mut() {
        for guest in guests {
            host.admit(guest).await;
        }
    }
    let linked = linked(nodes, all, Instant::now(), DEADLINE).await;
    assert!(
        linked.is_some(),
        "{all} nodes are not linked within {DEADLINE:?}"
    );
}

/// How long it takes until each of these is linked to all of a cluster of so many.
pub(crate) async fn linked(
    nodes: &mut [Node],
    of: usize,
    since: Instant,
    limit: Duration,
) -> Option<Duration> {
    let each = nodes.iter_mut();
    let each = each.map(|node| until(since, limit, async move || node.is_linked(of).await));
    let each: Option<Vec<Duration>> = join_all(each).await.into_iter().collect();
    each?.into_iter().max()
}

async fn agent(kernel: &Kernel) -> Agent {
    let mut agent = Agent::over_socket(&kernel.socket()).await;
    agent.initialize(NEWEST, "{}").await.result();
    agent
}

fn config(name: &str, listen: &str, more: &str) -> String {
    format!("{DOOR}[cluster]\nname = \"{name}\"\nlisten = \"{listen}\"\n{more}")
}
