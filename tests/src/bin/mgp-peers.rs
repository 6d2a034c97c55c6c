//! Installs the third-party servers and clients of the suites into the user's cache; with `--newest`, the newest SDKs
//! of Python, and prints the folder they are in.

use std::process::ExitCode;

use mgp_tests::harness::Peers;

fn main() -> ExitCode {
    match std::env::args().nth(1).as_deref() {
        Some("--newest") => install_newest_sdks(),
        _ => install(),
    }
}

fn install() -> ExitCode {
    let failed = Peers::install();
    for why in &failed {
        eprintln!("not installed: {why}");
    }
    ExitCode::from(u8::from(!failed.is_empty()))
}

fn install_newest_sdks() -> ExitCode {
    match Peers::install_newest_sdks() {
        Ok((folder, versions)) => {
            eprintln!("installed mcp {}", versions.join(" and mcp "));
            println!("{}", folder.display());
            ExitCode::SUCCESS
        }
        Err(why) => {
            eprintln!("not installed: {why}");
            ExitCode::FAILURE
        }
    }
}
