//! `cargo xtask fuzz`: fuzzes the parsers of foreign input (`tests/fuzz`).

use std::path::Path;
use std::process::Command;

use crate::step::Step;
use crate::target_folder;

/// The fuzz crate, from the root of the project.
const FOLDER: &str = "tests/fuzz";
/// The targets: one file in `targets` each.
const TARGETS: [&str; 17] = [
    "audit_log",
    "bearer_tokens",
    "client_files",
    "code_safety",
    "envelope",
    "events",
    "grants",
    "journal",
    "json",
    "lines",
    "links",
    "logins",
    "patch",
    "python",
    "tickets",
    "torn",
    "validators",
];
/// Longest input, in bytes: enough to show missing bounds.
const INPUT_BYTES_MAX: &str = "-max_len=8192";
/// Limit for one input, in seconds: some ten thousand times the expected time.
const INPUT_TIMEOUT_SECS: &str = "-timeout=10";

/// A step for each named target, or for all.
pub(crate) fn steps(named: &[String], seconds: u64) -> Result<Vec<Step>, String> {
    if let Some(unknown) = named.iter().find(|name| !TARGETS.contains(&name.as_str())) {
        let all = TARGETS.join(", ");
        return Err(format!("there is no target {unknown}; there are {all}"));
    }
    let chosen = TARGETS
        .into_iter()
        .filter(|target| named.is_empty() || named.iter().any(|name| name == target));
    let steps =
        chosen.map(|name| Step::new(name, fuzz(name, seconds)).with_required_program("cargo-fuzz"));
    Ok(steps.collect())
}

/// Earlier findings are run first; a failing input is stored in `artifacts`, for a test.
fn fuzz(name: &str, seconds: u64) -> Command {
    let corpus = Path::new(FOLDER).join("corpus").join(name);
    // If this fails, the program reports it.
    let _ = std::fs::create_dir_all(&corpus);
    let mut command = Command::new("cargo");
    // The kernel has no unsafe code: panics, differences and timeouts are the findings.
    command.args(["+nightly", "fuzz", "run", "--fuzz-dir", FOLDER]);
    command.args(["--sanitizer", "none", name]).arg(&corpus);
    command.arg(Path::new(FOLDER).join("seeds").join(name));
    let time = format!("-max_total_time={seconds}");
    command.args([
        "--",
        &time,
        INPUT_BYTES_MAX,
        INPUT_TIMEOUT_SECS,
        "-print_final_stats=1",
    ]);
    command.env("CARGO_TARGET_DIR", target_folder().join("fuzz"));
    // The toolchain differs from the one that runs this.
    command.env_remove("CARGO").env_remove("RUSTUP_TOOLCHAIN");
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Unlisted targets would never run; each starts with a valid seed.
    #[test]
    fn every_target_is_listed_and_has_a_seed() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("..")
            .join(FOLDER);
        let files = std::fs::read_dir(folder.join("targets")).unwrap();
        let stem = |path: &Path| path.file_stem().unwrap().to_str().unwrap().to_owned();
        let mut files: Vec<String> = files.map(|file| stem(&file.unwrap().path())).collect();
        files.sort_unstable();
        assert_eq!(files, TARGETS);
        for target in TARGETS {
            let seeds = std::fs::read_dir(folder.join("seeds").join(target));
            assert!(
                seeds.is_ok_and(|mut seeds| seeds.next().is_some()),
                "{target}"
            );
        }
    }
}
