//! A standing cluster of three: what is shared is seen, what is revoked is refused.

use mgp_tests::load::Table;

use crate::Options;
use crate::times::{COLUMNS, Rounds};
use crate::trio::Trio;

pub(crate) async fn table(options: &Options) -> Table {
    let mut trio = Trio::start().await;
    let rounds = Rounds {
        most: options.rounds(1000),
        time: options.time(90),
    };
    let mut rows = trio.shares(rounds).await;
    rows.extend(trio.revokes(rounds).await);
    Table {
        title: "A standing cluster of three",
        columns: COLUMNS,
        rows,
    }
}
