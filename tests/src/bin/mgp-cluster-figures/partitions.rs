//! Cables that are pulled and put back.

use std::time::{Duration, Instant};

use mgp_tests::load::{Cell, Table};

use crate::Options;
use crate::node::linked;
use crate::three_nodes::ThreeNodes;
use crate::times::{COLUMNS, Rounds, Times, until};

/// A cluster that was cut in two is whole within this time.
const WHOLE: Duration = Duration::from_secs(5);
/// A node that is cut off is noticed within this time.
const NOTICED: Duration = Duration::from_secs(3);
/// When a round is given up.
const GIVEN_UP: Duration = Duration::from_secs(30);

pub(crate) async fn table(options: &Options) -> Table {
    let mut cluster = ThreeNodes::start().await;
    let rounds = Rounds {
        most: options.rounds(20),
        time: options.time(150),
    };
    Table {
        title: "Cables that are pulled",
        columns: COLUMNS,
        rows: rows(&mut cluster, rounds).await,
    }
}

/// `desk` is cut off, for a longer time in each round; meanwhile `nas` shares a tool or shares it no longer.
pub(crate) async fn rows(cluster: &mut ThreeNodes, rounds: Rounds) -> Vec<Vec<Cell>> {
    let [mut noticed, mut whole, mut news] = [(); 3].map(|()| Times::default());
    for round in rounds.each() {
        let shared = round % 2 == 0;
        let ThreeNodes { network, nodes } = cluster;
        network.cut(1);
        let since = Instant::now();
        let [nas, desk, den] = &mut *nodes;
        let (at_nas, at_desk, at_den) = tokio::join!(
            until(since, GIVEN_UP, async || nas.sees("desk", "away").await),
            until(since, GIVEN_UP, async || desk.sees("nas", "away").await),
            until(since, GIVEN_UP, async || den.sees("desk", "away").await),
        );
        for took in [at_nas, at_desk, at_den] {
            noticed.add(took);
        }
        nas.share("demo", shared).await;
        tokio::time::sleep(Duration::from_millis(700) * (round as u32 % 4)).await;
        network.heal(1);
        let since = Instant::now();
        whole.add(linked(nodes, 3, since, GIVEN_UP).await);
        let desk = &mut nodes[1];
        let told = until(since, GIVEN_UP, async || {
            desk.shows("nas__demo__echo").await == shared
        });
        news.add(told.await);
    }
    vec![
        noticed.row(
            "cut off, until the other side is seen as away",
            Some(NOTICED),
        ),
        whole.row("put back, until all are linked", Some(WHOLE)),
        news.row(
            "put back, until what was shared meanwhile is seen",
            Some(WHOLE),
        ),
    ]
}
