//! Tables are as wide as the terminal, where it has a width.

use mgp_tests::harness::{Kernel, Program};

use super::arguments::typed;

/// Terminals of editors, of scripts and of containers say that they have no columns at all.
#[tokio::test]
async fn a_table_is_in_one_piece_on_a_terminal_without_a_width() {
    let kernel = Kernel::start(&Program::fixture(&[]).entry("it")).await;
    kernel.connected(&["it"]).await;
    let terminal = typed(&kernel, &["servers", "list"]);
    terminal.shows("SERVER").await;
    terminal.shows("connected").await;
}
