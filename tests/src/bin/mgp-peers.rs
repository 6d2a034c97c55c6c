//! Installs the third-party servers and clients of the suites into the user's cache.

use std::process::ExitCode;

use mgp_tests::harness::Peers;

fn main() -> ExitCode {
    let failed = Peers::install();
    for why in &failed {
        eprintln!("not installed: {why}");
    }
    ExitCode::from(u8::from(!failed.is_empty()))
}
