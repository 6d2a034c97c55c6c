//! Times of shares and revokes in a cluster of three without faults.

use mgp_tests::load::Table;

use crate::Options;
use crate::three_nodes::ThreeNodes;
use crate::times::{COLUMNS, Rounds};

pub(crate) async fn table(options: &Options) -> Table {
    let mut cluster = ThreeNodes::start().await;
    let rounds = Rounds {
        most: options.rounds(1000),
        time: options.time(90),
    };
    let mut rows = cluster.shares(rounds).await;
    rows.extend(cluster.revokes(rounds).await);
    Table {
        title: "A standing cluster of three",
        columns: COLUMNS,
        rows,
    }
}
