//! Machines that lose their power, and get it back.

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use mgp_tests::harness::kernel::network::Network;
use mgp_tests::load::{Cell, Table};

use crate::Options;
use crate::node::{DeadNode, Node, linked, unite};
use crate::times::{COLUMNS, Rounds, Times, until};

/// The death of a node is seen within this time.
const SEEN: Duration = Duration::from_secs(3);
/// When a round is given up.
const GIVEN_UP: Duration = Duration::from_secs(20);
/// One that stays, and two pairs of which one loses its power at a time.
const NODES: usize = 5;

pub(crate) async fn table(options: &Options) -> Table {
    let network = Network::new(NODES).expect("a network was made a moment ago");
    let rounds = Rounds {
        most: options.rounds(50),
        time: options.time(200),
    };
    Table {
        title: "Machines that lose their power",
        columns: COLUMNS,
        rows: rows(&network, rounds).await,
    }
}

/// Two of five lose their power at a time, and get it back.
async fn rows(network: &Network, rounds: Rounds) -> Vec<Vec<Cell>> {
    let starts = (0..NODES).map(|at| async move {
        let name = format!("node{at}");
        Node::start(network, at, &name, "").await
    });
    let mut nodes = join_all(starts).await;
    unite(&mut nodes).await;
    let [mut seen, mut back] = [(); 2].map(|()| Times::default());
    for _ in rounds.each() {
        // The first one stays; the pair that was longest there goes, and comes back as the last.
        let mut victims: Vec<Node> = nodes.drain(1..3).collect();
        let unplugged: Vec<(String, Instant)> = victims
            .iter_mut()
            .map(|victim| (victim.name.clone(), victim.unplug()))
            .collect();
        let noticing = nodes.iter_mut().map(|witness| notices(witness, &unplugged));
        join_all(noticing)
            .await
            .into_iter()
            .flatten()
            .for_each(|took| seen.add(took));
        let dead = join_all(victims.into_iter().map(Node::gone)).await;
        let since = Instant::now();
        nodes.extend(join_all(dead.into_iter().map(DeadNode::again)).await);
        back.add(linked(&mut nodes, NODES, since, GIVEN_UP).await);
    }
    vec![
        seen.row("power lost, until another node sees it", Some(SEEN)),
        back.row("started again, until all are linked", None),
    ]
}

/// How long it takes a node to see the death of each.
async fn notices(witness: &mut Node, dead: &[(String, Instant)]) -> Vec<Option<Duration>> {
    let mut noticed = vec![None; dead.len()];
    let last = dead.iter().map(|(_, since)| *since).max();
    let since = last.unwrap_or_else(Instant::now);
    until(since, GIVEN_UP, async || {
        let nodes = witness.nodes().await;
        for ((name, since), noticed) in dead.iter().zip(&mut noticed) {
            let away = nodes
                .iter()
                .any(|node| node["name"] == **name && node["standing"] == "away");
            if noticed.is_none() && away {
                *noticed = Some(since.elapsed());
            }
        }
        noticed.iter().all(Option::is_some)
    })
    .await;
    noticed
}
