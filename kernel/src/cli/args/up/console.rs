//! `mgp console`.

use clap::Args;

/// `mgp console`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  mgp console             # opens your browser, signed in
  mgp console --print     # shows the link instead: over ssh, or for another browser
  mgp console --sign-out  # ends it in every browser

The link is good once, and for a minute: whoever opens it first is the operator. A browser stays \
signed in for 12 hours, until it is signed out, or until the kernel ends.")]
pub struct OpenConsole {
    /// Show the link, and open no browser.
    #[arg(long)]
    pub(crate) print: bool,
    /// Sign every browser out instead.
    #[arg(long, conflicts_with = "print")]
    pub(crate) sign_out: bool,
}
