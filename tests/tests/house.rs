//! The house rules: floors, names that are addresses, what no file may say.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("..")
        .canonicalize()
        .unwrap()
}

/// Our own crates that a package depends on, wherever its manifest says so.
fn imports(package: &str) -> Vec<String> {
    let text = fs::read_to_string(root().join(package).join("Cargo.toml")).unwrap();
    let manifest: toml::Table = text.parse().unwrap();
    let targets = manifest.get("target").and_then(|t| t.as_table());
    let targets = targets.into_iter().flat_map(|all| all.values());
    let tables = targets
        .filter_map(|t| t.as_table())
        .chain([&manifest])
        .flat_map(|t| ["dependencies", "dev-dependencies", "build-dependencies"].map(|k| t.get(k)));
    let names = tables
        .flatten()
        .filter_map(|t| t.as_table())
        .flat_map(|t| t.keys());
    let ours = names.filter(|name| name.starts_with("mgp-"));
    ours.cloned().collect()
}

/// Every Rust file of ours, by its path from the root.
fn sources() -> Vec<(String, String)> {
    let mut out = Vec::new();
    for top in [
        "kernel",
        "actors",
        "discovery",
        "embedding",
        "transports",
        "tests",
        "xtask",
    ] {
        collect(&root().join(top), &mut out);
    }
    out
}

fn collect(folder: &Path, out: &mut Vec<(String, String)>) {
    for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
        let path = entry.path();
        if path.is_dir() {
            collect(&path, out);
        } else if path.extension().is_some_and(|e| e == "rs") {
            let name = path.strip_prefix(root()).unwrap().display().to_string();
            out.push((name, fs::read_to_string(&path).unwrap()));
        }
    }
}

/// CMCP-001: an import goes down, never sideways, never up.
#[test]
fn imports_point_down() {
    let floors: [&[(&str, &str)]; 12] = [
        &[
            ("kernel/protocol", "mgp-protocol"),
            ("kernel/sync", "mgp-sync"),
        ],
        &[("kernel/screening", "mgp-screening")],
        &[
            ("kernel/engine", "mgp-engine"),
            ("transports", "mgp-transports"),
            ("discovery", "mgp-discovery"),
            ("embedding", "mgp-embedding"),
        ],
        &[("actors/runtime", "mgp-runtime")],
        &[("actors/store", "mgp-store")],
        &[("actors/callers", "mgp-callers")],
        &[("actors/policy", "mgp-policy")],
        &[("actors/servers", "mgp-servers")],
        &[("actors/tools", "mgp-tools")],
        &[("actors/calls", "mgp-calls")],
        &[("actors/doors", "mgp-doors")],
        &[("kernel", "mgp-kernel")],
    ];
    for (height, floor) in floors.iter().enumerate() {
        let below: Vec<&str> = floors[..height]
            .iter()
            .flat_map(|f| f.iter().map(|p| p.1))
            .collect();
        for (folder, name) in *floor {
            for import in imports(folder) {
                assert!(
                    below.contains(&import.as_str()),
                    "{name} may not import {import}"
                );
            }
        }
    }
    assert!(imports("kernel/sync").is_empty());
    let workspace = fs::read_to_string(root().join("Cargo.toml")).unwrap();
    let workspace: toml::Table = workspace.parse().unwrap();
    for member in workspace["workspace"]["members"].as_array().unwrap() {
        let member = member.as_str().unwrap();
        let importing = imports(member).contains(&"mgp-kernel".to_owned());
        assert!(
            !importing || member == "tests",
            "{member} imports the kernel"
        );
        let placed = floors
            .iter()
            .any(|floor| floor.iter().any(|(at, _)| *at == member));
        assert!(
            placed || ["tests", "xtask"].contains(&member),
            "{member} has no floor"
        );
    }
}

/// Engines are told the time: nothing that has a clock, a thread or a socket is within their reach.
#[test]
fn engines_have_no_runtime() {
    for package in [
        "kernel/engine",
        "kernel/screening",
        "kernel/protocol",
        "kernel/sync",
    ] {
        let manifest = fs::read_to_string(root().join(package).join("Cargo.toml")).unwrap();
        for banned in ["tokio", "getrandom", "hyper", "ractor", "nix"] {
            assert!(!manifest.contains(banned), "{package} depends on {banned}");
        }
    }
    for package in ["kernel/engine", "kernel/screening"] {
        assert!(root().join(package).join("clippy.toml").is_file());
    }
}

/// A method's name is its address: all but the last word is the file, the last word the type.
#[test]
fn a_methods_name_is_its_address() {
    let mut seen = 0;
    for (file, text) in sources() {
        let Some(within) = file.strip_prefix("kernel/protocol/src/") else {
            continue;
        };
        let mut module = within.trim_end_matches(".rs").to_owned();
        for line in text.lines().map(str::trim) {
            if let Some(inner) = line
                .strip_prefix("pub mod ")
                .and_then(|l| l.strip_suffix(" {"))
            {
                module = format!("{module}/{inner}");
            }
            let Some((name, word)) = method(line) else {
                continue;
            };
            seen += 1;
            assert_eq!(address(name), (module.clone(), word), "{name} in {file}");
        }
    }
    assert!(seen > 25, "only {seen} methods were found");
}

/// `"tools/call" => Call<'_>,` gives the method and its type.
fn method(line: &str) -> Option<(&str, String)> {
    let at = line.find('"')?;
    let (name, rest) = line[at + 1..].split_once("\" => ")?;
    let wordy = |c: char| c.is_ascii_alphabetic() || matches!(c, '/' | '.' | '_');
    if name.is_empty() || !name.chars().all(wordy) {
        return None;
    }
    let word = rest.split(['<', ',', ' ', '}']).next()?;
    Some((name, word.to_owned()))
}

fn address(method: &str) -> (String, String) {
    let name = method.strip_prefix("notifications/").unwrap_or(method);
    let name = name.replace("mgp.", "mgp/").replace('.', "/");
    let family = if name.starts_with("mgp/") { "" } else { "mcp/" };
    let path = format!("{family}{name}");
    let (module, word) = path.rsplit_once('/').unwrap();
    (module.to_owned(), camel(word))
}

fn camel(word: &str) -> String {
    let mut out = String::new();
    let mut upper = true;
    for c in word.chars() {
        match (c, upper) {
            ('_', _) => upper = true,
            (c, true) => {
                out.extend(c.to_uppercase());
                upper = false;
            }
            (c, false) => out.push(c),
        }
    }
    out
}

/// Every page a reader is sent to exists.
#[test]
fn links_in_the_docs_resolve() {
    let mut pages = vec![root().join("README.md"), root().join("ARCHITECTURE.md")];
    for folder in ["docs", "docs/decisions", "docs/requirements"] {
        let entries = fs::read_dir(root().join(folder)).unwrap();
        let paths = entries.map(|e| e.unwrap().path());
        pages.extend(paths.filter(|p| p.extension().is_some_and(|e| e == "md")));
    }
    for page in pages {
        let text = fs::read_to_string(&page).unwrap();
        for link in text
            .split("](")
            .skip(1)
            .filter_map(|rest| rest.split(')').next())
        {
            if !link.contains("://") && !link.starts_with('#') {
                let target = page.parent().unwrap().join(link.split('#').next().unwrap());
                assert!(target.exists(), "{}: {link}", page.display());
            }
        }
    }
}

/// The words of unfinished work, and names that say nothing, stand nowhere.
#[test]
fn no_file_says_what_it_should_not() {
    let unfinished = [
        concat!("to", "do!("),
        concat!("unimple", "mented!("),
        concat!("#[ig", "nore"),
    ];
    let empty_names = [
        "Manager", "Service", "Helper", "Util", "Impl", "Data", "Info",
    ];
    let machine = [concat!("/wo", "rk/"), concat!("/ro", "ot/")];
    let naps = [concat!("thread::", "sleep"), concat!("time::", "sleep")];
    for (file, text) in sources() {
        for word in unfinished.iter().chain(&machine) {
            assert!(!text.contains(word), "{file} says {word}");
        }
        let test = file.starts_with("tests/tests/");
        assert!(
            !test || !naps.iter().any(|nap| text.contains(nap)),
            "{file} sleeps"
        );
        assert!(
            text.lines().count() <= 600,
            "{file} is too long for one noun"
        );
        for line in text.lines().filter(|l| !l.trim_start().starts_with("//")) {
            let Some(name) = ["struct ", "enum ", "trait "].into_iter().find_map(|word| {
                line.trim_start()
                    .trim_start_matches("pub ")
                    .strip_prefix(word)
            }) else {
                continue;
            };
            let name = name.split(|c: char| !c.is_alphanumeric()).next().unwrap();
            for empty in empty_names {
                assert!(
                    !name.ends_with(empty) || name.len() == empty.len(),
                    "{file}: {name}"
                );
            }
        }
    }
}
