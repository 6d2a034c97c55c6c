//! What goes on until somebody ends it.

use mgp_tests::harness::{Kernel, Program};

use super::arguments::typed;

/// One Ctrl-C ends what is followed, also while nothing is asked.
#[tokio::test]
async fn one_ctrl_c_ends_a_followed_output() {
    let kernel = Kernel::start(&Program::fixture(&[]).entry("it")).await;
    kernel.connected(&["it"]).await;
    for followed in [&["audit", "tail", "-f"][..], &["top", "--json"]] {
        let mut terminal = typed(&kernel, followed);
        terminal.shows("it").await;
        terminal.keys("\u{3}");
        terminal.shows("ended <130>").await;
    }
}
