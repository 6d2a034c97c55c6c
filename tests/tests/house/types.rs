//! Type names: one name means one thing.

use std::collections::{BTreeMap, BTreeSet};

use crate::reader::Package;
use crate::workspace::{self, Sources, below, sources};

/// Names that stand for two things all the same, and why.
const ALLOWED: &[(&str, &str)] = &[];

/// Where a type's name is not its own choice, and why.
const NAMED_BY_OTHERS: &[(&str, &str)] = &[
    (
        "kernel/protocol/src/mcp",
        "a method's name is its address: `tools::Call`, `prompts::List`",
    ),
    (
        "kernel/protocol/src/mgp",
        "a method's name is its address: `servers::List`",
    ),
    (
        "kernel/protocol/src/mcpl",
        "a method's name is its address: `push::Event`, `inference::Request`",
    ),
    ("kernel/src/cli/args", "the words a person types"),
];

/// A struct, enum or trait has a name of its own; the same noun in files of the same name on several
/// floors is one thing.
#[test]
fn one_type_name_means_one_thing() {
    let mut sources = sources();
    sources.retain(|path, _| !path.starts_with("tests/") && !path.starts_with("xtask/"));
    let found = ambiguous(&sources, &workspace::members());
    let (allowed, found): (Vec<_>, Vec<_>) = found
        .into_iter()
        .partition(|(name, _)| ALLOWED.iter().any(|(allowed, _)| allowed == name));
    assert!(found.is_empty(), "{}", told(&found));
    assert_eq!(allowed.len(), ALLOWED.len(), "only {}", told(&allowed));
}

#[test]
fn a_name_with_two_meanings_is_found() {
    let planted = |files: &[(&str, &str)]| {
        let own = |(file, text): &(&str, &str)| ((*file).to_owned(), (*text).to_owned());
        let sources: Sources = files.iter().map(own).collect();
        let found = ambiguous(&sources, &["a".to_owned(), "b".to_owned()]);
        found.into_iter().map(|(name, _)| name).collect::<Vec<_>>()
    };
    let two_files = [
        ("a/src/x.rs", "pub struct Place;"),
        ("a/src/y.rs", "fn f() {} enum Place {}"),
    ];
    assert_eq!(planted(&two_files), ["Place"]);
    let two_packages = [
        ("a/src/x.rs", "struct Place;"),
        ("b/src/y.rs", "pub(crate) trait Place {}"),
    ];
    assert_eq!(planted(&two_packages), ["Place"]);
    let same_file_name = [
        ("a/src/p/x.rs", "struct Place;"),
        ("a/src/q/x.rs", "struct Place;"),
    ];
    assert_eq!(planted(&same_file_name), ["Place"]);
    let same_noun = [
        ("a/src/grants.rs", "pub struct Grants;"),
        ("b/src/policy/grants.rs", "pub struct Grants;"),
    ];
    assert!(planted(&same_noun).is_empty());
    let in_tests = [
        ("a/src/x.rs", "struct Place;"),
        ("a/src/y.rs", "#[cfg(test)] mod tests { struct Place; }"),
        ("a/src/y/tests.rs", "struct Place;"),
    ];
    assert!(planted(&in_tests).is_empty());
}

/// Each name that is defined in several places, with these places.
fn ambiguous(sources: &Sources, members: &[String]) -> Vec<(String, BTreeSet<String>)> {
    let mut names: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for member in members {
        let folder = format!("{member}/src");
        for module in Package::read(below(&folder, sources)).modules.into_values() {
            let file = format!("{folder}/{}", module.file);
            if NAMED_BY_OTHERS.iter().any(|(at, _)| file.starts_with(at)) {
                continue;
            }
            for name in module.types {
                names.entry(name).or_default().insert(file.clone());
            }
        }
    }
    names.retain(|_, files| !one_noun(files));
    names.into_iter().collect()
}

/// True if every file has the same name and a package of its own.
fn one_noun(files: &BTreeSet<String>) -> bool {
    let nouns: BTreeSet<_> = files.iter().map(|file| file.rsplit('/').next()).collect();
    let packages: BTreeSet<_> = files
        .iter()
        .map(|file| file.split("/src/").next())
        .collect();
    nouns.len() == 1 && packages.len() == files.len()
}

fn told(found: &[(String, BTreeSet<String>)]) -> String {
    let lines = found.iter().map(|(name, files)| {
        let files: Vec<&str> = files.iter().map(String::as_str).collect();
        format!("{name}: {}", files.join(", "))
    });
    lines.collect::<Vec<_>>().join("\n")
}
