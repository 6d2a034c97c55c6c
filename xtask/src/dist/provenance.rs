//! From what the artefacts were built, and how: an in-toto statement with the predicate of SLSA 1.0. It is not signed:
//! whoever publishes a release signs it.

use std::fs;
use std::process::Command;

use serde_json::{Value, json};

use super::{Release, VERSION, digest, output_of, read, write};
use crate::cargo_command;

const FILE: &str = "provenance.json";

pub(super) fn make(release: &Release) -> Result<String, String> {
    let git = |args: &[&str]| {
        let said = output_of(Command::new("git").args(args)).ok()?;
        Some(said.trim().to_owned())
    };
    let commit = git(&["rev-parse", "HEAD"]);
    let is_clean = git(&["status", "--porcelain"]).is_some_and(|changes| changes.is_empty());
    let compiler = output_of(cargo_command(&["--version"]).arg("--verbose"))?;
    let mut subjects = Vec::new();
    for entry in fs::read_dir(&release.folder).map_err(|why| why.to_string())? {
        let path = entry.map_err(|why| why.to_string())?.path();
        if path.is_file() {
            let name = path
                .file_name()
                .map(|name| name.to_string_lossy().into_owned());
            subjects
                .push(json!({"name": name, "digest": {"sha256": digest::sha256(&read(&path)?)}}));
        }
    }
    subjects.sort_by_key(|subject| subject["name"].to_string());
    let lock = digest::sha256(&read("Cargo.lock".as_ref())?);
    let source = commit.map_or(Value::Null, |commit| {
        json!({"name": "source", "digest": {"gitCommit": commit},
            "annotations": {"changed": !is_clean}})
    });
    let statement = json!({
        "_type": "https://in-toto.io/Statement/v1",
        "subject": subjects,
        "predicateType": "https://slsa.dev/provenance/v1",
        "predicate": {
            "buildDefinition": {
                "buildType": "cargo xtask dist",
                "externalParameters": {"version": VERSION, "url": release.url},
                "internalParameters": {"compiler": compiler.trim()},
                "resolvedDependencies": [
                    source, {"name": "Cargo.lock", "digest": {"sha256": lock}},
                ],
            },
            "runDetails": {"builder": {"id": "cargo xtask dist"}},
        },
    });
    let text = serde_json::to_string_pretty(&statement).expect("a statement is JSON") + "\n";
    write(&release.folder.join(FILE), text)?;
    Ok(FILE.into())
}
