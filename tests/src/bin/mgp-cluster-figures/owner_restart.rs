//! An owner that is restarted in good order while agents of another node call its server.

use std::cell::Cell as Shared;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use mgp_tests::harness::kernel::network::Network;
use mgp_tests::harness::{Agent, Program};
use mgp_tests::load::{Cell, Table};
use serde_json::json;

use crate::Options;
use crate::node::{Node, unite};
use crate::times::{COLUMNS, Rounds, Times, never, until};

/// How many agents call at the same time.
const CALLERS: usize = 4;
/// How long its server takes to start.
const STARTS: Duration = Duration::from_secs(1);
/// A call is answered within this time after the owner is there again: its server has to start, and a node may be linked
/// late.
const FIRST: Duration = Duration::from_secs(3);
/// When a round is given up.
const GIVEN_UP: Duration = Duration::from_secs(30);
/// The tool as the others call it.
const TOOL: &str = "nas__demo__echo";

pub(crate) async fn table(options: &Options) -> Table {
    let network = Network::new(2).expect("a network was made a moment ago");
    let rounds = Rounds {
        most: options.rounds(20),
        time: options.time(150),
    };
    Table {
        title: "An owner that is restarted in good order",
        columns: COLUMNS,
        rows: rows(&network, rounds).await,
    }
}

/// What the callers were told in one round.
#[derive(Debug, Default)]
struct Called {
    answered: usize,
    failed: Vec<String>,
    longest: Duration,
    /// When the first call was answered of those that were answered after the owner was there again.
    first: Option<Instant>,
}

async fn rows(network: &Network, rounds: Rounds) -> Vec<Vec<Cell>> {
    let (mut nas, desk) = started(network).await;
    let mut agents = join_all((0..CALLERS).map(|_| desk.agent())).await;
    let [mut first, mut longest] = [(); 2].map(|()| Times::default());
    let (mut failed, mut unknown) = (0, 0);
    for _ in rounds.each() {
        let (over, there) = (Shared::new(false), Shared::new(None));
        let calling = join_all(agents.iter_mut().map(|agent| call(agent, &over, &there)));
        let restarting = async {
            let dead = nas.shut_down().await;
            let nas = dead.again().await;
            let back = Instant::now();
            there.set(Some(back));
            nas.kernel.connected(&["demo"]).await;
            tokio::time::sleep(STARTS).await;
            over.set(true);
            (nas, back)
        };
        let ((again, back), called) = tokio::join!(restarting, calling);
        nas = again;
        for one in called {
            first.add(one.first.map(|at| at.saturating_duration_since(back)));
            longest.add((one.answered > 0).then_some(one.longest));
            failed += one.failed.len();
            unknown += one
                .failed
                .iter()
                .filter(|it| it.contains("Unknown"))
                .count();
            one.failed.iter().take(3).for_each(|it| eprintln!("{it}"));
        }
    }
    vec![
        first.row("owner there again, until a call is answered", Some(FIRST)),
        longest.row("the longest call meanwhile", None),
        never("calls that failed", failed),
        never("calls that were told of an unknown tool", unknown),
    ]
}

/// Two nodes: one has the agents of the other call its slow server.
async fn started(network: &Network) -> (Node, Node) {
    let fixture = Program::fixture(&[]).command;
    let script = format!("sleep {}; exec {fixture} --stdio", STARTS.as_secs());
    let server = Program::new("sh", ["-c", &script]).entry("demo");
    let mut nodes = [
        Node::start(network, 0, "nas", &server).await,
        Node::start(network, 1, "desk", "").await,
    ];
    nodes[0].kernel.connected(&["demo"]).await;
    unite(&mut nodes).await;
    let [mut nas, mut desk] = nodes;
    nas.share("demo", true).await;
    let grant = json!({
        "entry_type": "server_grant", "agent_id": "local@desk", "server_id": "demo",
        "permission": "allow"
    });
    nas.ask("mgp/access/grant", grant).await;
    let answered = async || desk.call(TOOL, json!({"text": "x"})).await;
    let answered = until(Instant::now(), GIVEN_UP, answered).await;
    assert!(answered.is_some(), "the tool is not called");
    (nas, desk)
}

/// Calls until it is over.
async fn call(agent: &mut Agent, over: &Shared<bool>, there: &Shared<Option<Instant>>) -> Called {
    let mut called = Called::default();
    while !over.get() {
        let begun = Instant::now();
        let answer = agent.call(TOOL, json!({"text": "x"})).await;
        called.longest = called.longest.max(begun.elapsed());
        if answer.is_error() || answer.result()["isError"] == true {
            called.failed.push(answer.frame);
            continue;
        }
        called.answered += 1;
        if there.get().is_some() {
            called.first.get_or_insert_with(Instant::now);
        }
    }
    called
}
