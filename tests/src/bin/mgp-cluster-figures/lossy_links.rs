//! The same over slow links that lose and reorder packets.

use mgp_tests::harness::kernel::network::{BadCable, Network};
use mgp_tests::load::Table;

use crate::three_nodes::ThreeNodes;
use crate::times::{COLUMNS, Rounds, not_run};
use crate::{Options, partitions};

/// In each direction; some packets overtake the delayed ones.
const LOSSY: BadCable = BadCable {
    delay_ms: 50,
    spread_ms: 10,
    lost: 5,
    early: 25,
};
const TITLE: &str = "Bad ways: 50 ms each way, 5 % lost, a quarter overtakes";

pub(crate) async fn table(options: &Options) -> Table {
    let rows = match is_supported() {
        Err(why) => vec![not_run("all of it", &why, COLUMNS.len())],
        Ok(_) => {
            let mut cluster = ThreeNodes::start().await;
            for machine in 0..3 {
                cluster.network.worsen(machine, LOSSY).await;
            }
            let rounds = |most, seconds| Rounds {
                most: options.rounds(most),
                time: options.time(seconds),
            };
            let mut rows = cluster.shares(rounds(50, 45)).await;
            rows.extend(cluster.revokes(rounds(50, 45)).await);
            rows.extend(partitions::rows(&mut cluster, rounds(10, 60)).await);
            rows
        }
    };
    Table {
        title: TITLE,
        columns: COLUMNS,
        rows,
    }
}

/// Whether this machine can degrade links.
pub(crate) fn is_supported() -> Result<&'static str, String> {
    Network::new(1)?.can_worsen()
}
