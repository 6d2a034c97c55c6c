//! The client under test in the client scenarios of the conformance suite: a kernel in front of the
//! suite's server, and an agent at its door. The suite adds the URL and names the scenario.

use clap::Parser;
use mgp_tests::scenario::{Era, Scenario};

/// What the suite is told to start.
#[derive(Debug, Parser)]
struct Options {
    /// The era of the agent at the kernel's door.
    #[arg(long, value_enum, default_value = "legacy")]
    client: Era,
    /// The server of the scenario.
    url: String,
}

#[tokio::main]
async fn main() {
    let options = Options::parse();
    Scenario::from_environment()
        .play(options.client, &options.url)
        .await;
}
