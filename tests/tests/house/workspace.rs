//! The workspace as its files say it: packages, manifests and sources.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// The text of each Rust file, by its path from the root.
pub(crate) type Sources = BTreeMap<String, String>;

pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("..")
        .canonicalize()
        .unwrap()
}

/// Every Rust file of ours.
pub(crate) fn sources() -> Sources {
    let mut out = Sources::new();
    for top in [
        "kernel",
        "actors",
        "clients",
        "discovery",
        "embedding",
        "platform",
        "transports",
        "tests",
        "xtask",
    ] {
        collect(&root().join(top), &mut out);
    }
    out
}

/// The folders of the packages, as the workspace lists them.
pub(crate) fn members() -> Vec<String> {
    let workspace = manifest("");
    let members = workspace["workspace"]["members"].as_array().unwrap();
    let names = members.iter().map(|member| member.as_str().unwrap());
    names.map(str::to_owned).collect()
}

pub(crate) fn manifest(package: &str) -> toml::Table {
    let text = fs::read_to_string(root().join(package).join("Cargo.toml")).unwrap();
    text.parse().unwrap()
}

/// The files below a folder, by their path from it.
pub(crate) fn below<'a>(
    folder: &'a str,
    sources: &'a Sources,
) -> impl Iterator<Item = (&'a str, &'a str)> {
    sources.iter().filter_map(move |(path, text)| {
        let rest = path.strip_prefix(folder)?.strip_prefix('/')?;
        Some((rest, text.as_str()))
    })
}

fn collect(folder: &Path, out: &mut Sources) {
    for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
        let path = entry.path();
        if path.is_dir() {
            collect(&path, out);
        } else if path.extension().is_some_and(|e| e == "rs") {
            let name = path.strip_prefix(root()).unwrap().display().to_string();
            out.insert(name, fs::read_to_string(&path).unwrap());
        }
    }
}
