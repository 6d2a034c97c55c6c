//! The same over bad ways: slow ones that lose packets and bring them in another order.

use mgp_tests::harness::kernel::network::{BadCable, Network};
use mgp_tests::load::Table;

use crate::times::{COLUMNS, Rounds, not_run};
use crate::trio::Trio;
use crate::{Options, partitions};

/// What is wrong with them, each way: some of the packets overtake those that are held up.
const ROUGH: BadCable = BadCable {
    delay_ms: 50,
    spread_ms: 10,
    lost: 5,
    early: 25,
};
const TITLE: &str = "Bad ways: 50 ms each way, 5 % lost, a quarter overtakes";

pub(crate) async fn table(options: &Options) -> Table {
    let rows = match can_be_made() {
        Err(why) => vec![not_run("all of it", &why, COLUMNS.len())],
        Ok(_) => {
            let mut trio = Trio::start().await;
            for machine in 0..3 {
                trio.network.worsen(machine, ROUGH).await;
            }
            let rounds = |most, seconds| Rounds {
                most: options.rounds(most),
                time: options.time(seconds),
            };
            let mut rows = trio.shares(rounds(50, 45)).await;
            rows.extend(trio.revokes(rounds(50, 45)).await);
            rows.extend(partitions::rows(&mut trio, rounds(10, 60)).await);
            rows
        }
    };
    Table {
        title: TITLE,
        columns: COLUMNS,
        rows,
    }
}

/// Whether this machine can make ways bad.
pub(crate) fn can_be_made() -> Result<&'static str, String> {
    Network::new(1)?.can_worsen()
}
