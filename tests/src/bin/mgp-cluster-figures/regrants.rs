//! An agent loses a grant on one side of a cut while it is granted again on the other side.

use std::time::{Duration, Instant};

use mgp_tests::harness::Program;
use mgp_tests::harness::kernel::network::Network;
use mgp_tests::load::Table;
use serde_json::{Value, json};

use crate::Options;
use crate::node::{Node, linked};
use crate::times::{COLUMNS, Times, never, until};

/// A cluster that was cut decides the same everywhere within this time.
const WHOLE: Duration = Duration::from_secs(5);
/// When something is given up.
const GIVEN_UP: Duration = Duration::from_secs(30);
/// The tool, as agents of `nas` call it.
const TOOL: &str = "den__demo__echo";

/// What happens on the two sides of a cut: who is cut off, and whether the revoke comes first.
struct CutOrder {
    cut_off: &'static [usize],
    revoke_first: bool,
}

/// `nas` (machine 0) grants, `desk` (machine 1) revokes, `den` (machine 2) has the server.
const ORDERS: [CutOrder; 6] = {
    const fn order(cut_off: &'static [usize], revoke_first: bool) -> CutOrder {
        CutOrder {
            cut_off,
            revoke_first,
        }
    }
    [
        order(&[0], true),
        order(&[0], false),
        order(&[1], true),
        order(&[1], false),
        order(&[0, 1], true),
        order(&[0, 1], false),
    ]
};

/// Two admins and the owner of a server.
struct AdminsApart {
    network: Network,
    /// nas, desk and den.
    nodes: [Node; 3],
}

/// What the rounds came to.
#[derive(Default)]
struct RegrantTimes {
    alike: Times,
    refused: Times,
    granted: Times,
    /// Calls that passed once all nodes showed the conflict.
    passed: usize,
}

pub(crate) async fn table(options: &Options) -> Table {
    let mut cluster = AdminsApart::start().await;
    let mut rounds = RegrantTimes::default();
    for _ in 0..options.rounds(10) {
        for order in &ORDERS {
            cluster.round(order, &mut rounds).await;
        }
    }
    Table {
        title: "Granted again on one side of a cut, revoked on the other one",
        columns: COLUMNS,
        rows: vec![
            rounds.alike.row(
                "put back, until all nodes show the grant as closed",
                Some(WHOLE),
            ),
            rounds
                .refused
                .row("put back, until a call is refused", Some(WHOLE)),
            rounds
                .granted
                .row("granted with knowledge of the revoke, until called", None),
            never("calls that passed after that", rounds.passed),
        ],
    }
}

impl AdminsApart {
    async fn start() -> Self {
        let network = Network::new(3).expect("a network was made a moment ago");
        let demo = Program::fixture(&[]).entry("demo");
        let mut nodes = [
            Node::start(&network, 0, "nas", "").await,
            Node::start(&network, 1, "desk", "").await,
            Node::start(&network, 2, "den", &demo).await,
        ];
        nodes[2].kernel.connected(&["demo"]).await;
        let [nas, desk, den] = &mut nodes;
        nas.admit_as(desk, "admin").await;
        nas.admit(den).await;
        let all = linked(&mut nodes, 3, Instant::now(), GIVEN_UP).await;
        all.expect("three nodes are linked");
        nodes[2].share("demo", true).await;
        Self { network, nodes }
    }

    async fn round(&mut self, order: &CutOrder, rounds: &mut RegrantTimes) {
        let Self { network, nodes } = self;
        let [nas, desk, den] = &mut *nodes;
        nas.ask("mgp/access/grant", grant()).await;
        let called = until(Instant::now(), GIVEN_UP, async || echo(nas).await);
        called.await.expect("a granted tool is called");
        until(Instant::now(), GIVEN_UP, async || {
            !entries(desk).await.is_empty()
        })
        .await
        .expect("the other admin hears of the grant");
        order.cut_off.iter().for_each(|at| network.cut(*at));
        let (seen_by, other) = if order.cut_off == [1] {
            (den, "desk")
        } else {
            (den, "nas")
        };
        until(Instant::now(), GIVEN_UP, async || {
            seen_by.sees(other, "away").await
        })
        .await
        .expect("a cut is noticed");
        if order.revoke_first {
            desk.ask("mgp/access/revoke", entry("local@nas")).await;
        }
        nas.ask("mgp/access/grant", grant()).await;
        if !order.revoke_first {
            desk.ask("mgp/access/revoke", entry("local@nas")).await;
        }
        order.cut_off.iter().for_each(|at| network.heal(*at));
        let since = Instant::now();
        let mut last = Some(Duration::ZERO);
        for node in nodes.iter_mut() {
            let closed = until(since, GIVEN_UP, async || is_closed(node).await).await;
            last = last.and_then(|last| Some(last.max(closed?)));
        }
        rounds.alike.add(last);
        let nas = &mut nodes[0];
        rounds
            .refused
            .add(until(since, GIVEN_UP, async || !echo(nas).await).await);
        for _ in 0..10 {
            rounds.passed += usize::from(echo(nas).await);
        }
        let all = linked(nodes, 3, Instant::now(), GIVEN_UP).await;
        all.expect("three nodes are linked again");
        let nas = &mut nodes[0];
        let since = Instant::now();
        nas.ask("mgp/access/grant", grant()).await;
        rounds
            .granted
            .add(until(since, GIVEN_UP, async || echo(nas).await).await);
        nas.ask("mgp/access/revoke", entry("agent.local")).await;
    }
}

async fn echo(caller: &mut Node) -> bool {
    caller.call(TOOL, json!({"text": "x"})).await
}

async fn entries(node: &mut Node) -> Vec<Value> {
    let listed = node.ask("mgp/access/list", json!({})).await;
    listed["entries"].as_array().cloned().unwrap_or_default()
}

/// Whether the node shows one grant, and that one as closed by the revoke.
async fn is_closed(node: &mut Node) -> bool {
    let entries = entries(node).await;
    let words = "in conflict with the revoke of desk";
    let closed = |entry: &Value| {
        let why = entry["conflict"].as_str();
        why.is_some_and(|why| why.starts_with(words))
    };
    entries.len() == 1 && closed(&entries[0])
}

/// The entry of the operator's own agent of `nas`, as it is named there or elsewhere.
fn entry(agent: &str) -> Value {
    json!({"entry_type": "server_grant", "agent_id": agent, "server_id": "den/demo"})
}

fn grant() -> Value {
    let mut grant = entry("agent.local");
    grant["permission"] = "allow".into();
    grant
}
