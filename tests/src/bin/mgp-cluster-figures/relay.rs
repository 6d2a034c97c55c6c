//! Two admins that reach a third node, and not each other.

use std::time::{Duration, Instant};

use mgp_tests::harness::kernel::network::Network;
use mgp_tests::harness::{DEADLINE, Program};
use mgp_tests::load::{Cell, Table};
use serde_json::{Value, json};

use crate::Options;
use crate::node::{Node, linked};
use crate::times::{COLUMNS, Times, never, until};

/// Two nodes that cannot link directly are linked through a third one within this time.
const LINKED: Duration = Duration::from_secs(5);
/// What is revoked is refused within this time, where there are links.
const REVOKE: Duration = Duration::from_secs(1);
/// The lease of this part: the shortest there is.
const LEASE: Duration = Duration::from_secs(10);
/// What the machine may be late.
const LATE: Duration = Duration::from_secs(1);
/// When a lapse is given up.
const LEASES: Duration = Duration::from_secs(25);
/// In the configuration of each node.
const SETTINGS: &str = "lease_secs = 10\nrelay = true\n";

/// The tool of `desk`, as `den` calls it.
const TOOL: &str = "desk__demo__echo";

pub(crate) async fn table(options: &Options) -> Table {
    let mut scene = Scene::start().await;
    let mut rows = Vec::new();
    rows.push(scene.links().await);
    rows.extend(scene.works(options.rounds(20)).await);
    rows.extend(scene.lapses().await);
    rows.extend(scene.switched_off().await);
    Table {
        title: "Two nodes that reach a third one alone",
        columns: COLUMNS,
        rows,
    }
}

/// `nas` founded the cluster and reaches both others; `desk` has a server, `den` has agents, and both are admins.
struct Scene {
    network: Network,
    nas: Option<Node>,
    ends: [Node; 2],
}

impl Scene {
    async fn start() -> Self {
        let network = Network::new(3).expect("a network was made a moment ago");
        let demo = format!("{SETTINGS}{}", Program::fixture(&[]).entry("demo"));
        let mut nas = Node::start(&network, 0, "nas", SETTINGS).await;
        let mut ends = [
            Node::start(&network, 1, "desk", &demo).await,
            Node::start(&network, 2, "den", SETTINGS).await,
        ];
        ends[0].kernel.connected(&["demo"]).await;
        network.set_apart(1, true);
        network.set_apart(2, true);
        for guest in &mut ends {
            nas.admit_as(guest, "admin").await;
        }
        let nas = Some(nas);
        Self { network, nas, ends }
    }

    fn nas(&mut self) -> &mut Node {
        self.nas
            .as_mut()
            .expect("it runs in this part of the story")
    }

    /// From the last admission on.
    async fn links(&mut self) -> Vec<Cell> {
        let since = Instant::now();
        let mut times = Times::default();
        times.add(linked(&mut self.ends, 3, since, DEADLINE).await);
        for end in &mut self.ends {
            assert!(is_relayed(end).await, "{:#?}", end.nodes().await);
        }
        let [desk, _] = &mut self.ends;
        desk.share("demo", true).await;
        self.nas().ask("mgp/access/grant", grant()).await;
        times.row("let in, until linked through the third one", Some(LINKED))
    }

    /// Tools are called, the lease is confirmed anew, and a revoke arrives, for longer than two leases.
    async fn works(&mut self, rounds: usize) -> Vec<Vec<Cell>> {
        let [desk, den] = &mut self.ends;
        let called = until(Instant::now(), DEADLINE, async || echo(den).await).await;
        assert!(called.is_some(), "a tool is called through the relay");
        let (begun, mut refused) = (Instant::now(), 0);
        while begun.elapsed() < LEASE * 2 {
            refused += usize::from(!echo(den).await || !is_confirmed(desk).await);
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        let mut revoked = Times::default();
        for _ in 0..rounds {
            let since = Instant::now();
            den.ask("mgp/access/revoke", revoke()).await;
            revoked.add(until(since, DEADLINE, async || !echo(den).await).await);
            den.ask("mgp/access/grant", grant()).await;
            let called = until(Instant::now(), DEADLINE, async || echo(den).await).await;
            assert!(called.is_some(), "what was granted anew is called");
        }
        let passed = self.nas().ask("mgp/kernel/nodes/list", json!({})).await;
        let bytes = passed["relays"][0]["bytes"].as_u64().unwrap_or_default();
        assert!(bytes > 0, "the relay shows what it passes on: {passed:#}");
        vec![
            never("calls refused within two leases", refused),
            revoked.row(
                "revoked through the relay, until a call is refused",
                Some(REVOKE),
            ),
        ]
    }

    /// The relay dies, and it is an admin: `desk` closes, and says to those who reach it now whose lease lapsed.
    async fn lapses(&mut self) -> Vec<Vec<Cell>> {
        let mut nas = self.nas.take().expect("it runs");
        let since = nas.unplug();
        let dead = nas.gone().await;
        let [desk, den] = &mut self.ends;
        let mut closed = Times::default();
        closed.add(until(since, LEASES, async || !is_confirmed(desk).await).await);
        self.network.set_apart(1, false);
        self.network.set_apart(2, false);
        let met = until(Instant::now(), DEADLINE, async || {
            den.sees("desk", "linked").await
        })
        .await;
        assert!(met.is_some(), "they link directly as soon as they can");
        let mut words = String::new();
        let named = until(Instant::now(), DEADLINE, async || {
            words = den.refusal(TOOL, json!({"text": "x"})).await;
            words.contains("the lease of nas lapsed")
        });
        let unnamed = usize::from(named.await.is_none());
        if unnamed > 0 {
            eprintln!("refused with: {words}");
        }
        self.network.set_apart(1, true);
        self.network.set_apart(2, true);
        self.nas = Some(dead.again_with("relay = true", "relay = false").await);
        vec![
            closed.row("relay dead, until the lease has lapsed", Some(LEASE + LATE)),
            never("refusals that do not name the lease", unnamed),
        ]
    }

    /// The third node is back, and passes nothing on.
    async fn switched_off(&mut self) -> Vec<Vec<Cell>> {
        let since = Instant::now();
        for end in &mut self.ends {
            let back = until(since, DEADLINE, async || end.sees("nas", "linked").await).await;
            assert!(back.is_some(), "the third node is back");
        }
        let [desk, den] = &mut self.ends;
        let apart = until(since, DEADLINE, async || desk.sees("den", "away").await).await;
        assert!(apart.is_some(), "they are apart again");
        let (begun, mut used) = (Instant::now(), 0);
        while begun.elapsed() < LEASE {
            used += usize::from(is_relayed(desk).await || is_relayed(den).await);
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        let passed = self.nas().ask("mgp/kernel/nodes/list", json!({})).await;
        used += passed["relays"].as_array().map_or(0, Vec::len);
        vec![never("links through a node that relays nothing", used)]
    }
}

/// Whether it is linked to another one through `nas`.
async fn is_relayed(node: &mut Node) -> bool {
    let nodes = node.nodes().await;
    nodes
        .iter()
        .any(|other| other["relay"] == "nas" && other["address"].is_null())
}

async fn is_confirmed(node: &mut Node) -> bool {
    let status = node.ask("mgp/kernel/nodes/list", json!({})).await;
    status["confirmed"] == true
}

async fn echo(den: &mut Node) -> bool {
    den.call(TOOL, json!({"text": "x"})).await
}

fn grant() -> Value {
    json!({
        "entry_type": "server_grant", "agent_id": "local@den", "server_id": "desk/demo",
        "permission": "allow"
    })
}

fn revoke() -> Value {
    json!({"entry_type": "server_grant", "agent_id": "local@den", "server_id": "desk/demo"})
}
