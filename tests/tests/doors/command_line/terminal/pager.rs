//! Long output goes through a pager on a terminal, and nowhere else.

use mgp_tests::harness::{Kernel, Program};

use super::Terminal;

/// As git has it: what is long is shown by the pager that the person chose; not with `--no-pager`, not what is no
/// long output, and not where nobody sits at a terminal.
#[tokio::test]
async fn long_output_is_paged_on_a_terminal_alone() {
    let kernel = Kernel::start(&Program::fixture(&[]).entry("it")).await;
    kernel.connected(&["it"]).await;
    let pager = "sed s/^/PAGED:/; echo the end";
    let typed = |args: &[&str]| {
        let mut terminal = Terminal::open();
        terminal.start(&kernel.program(args).env("MGP_PAGER", pager));
        terminal
    };
    let status = typed(&["status"]);
    status.shows("the end").await;
    assert!(status.shown().contains("PAGED:"), "{}", status.shown());
    assert!(status.shown().contains("connected"), "{}", status.shown());
    for args in [&["status", "--no-pager"][..], &["servers", "list"]] {
        let plain = typed(args);
        plain.shows("connected").await;
        assert!(!plain.shown().contains("PAGED:"), "{}", plain.shown());
    }
    let piped = kernel.program(&["status"]).env("MGP_PAGER", pager);
    let piped = piped.output(mgp_tests::harness::DEADLINE).await.stdout;
    assert!(!String::from_utf8_lossy(&piped).contains("PAGED:"));
}
