//! The two edges: where code may ask which protocol family of MCP somebody speaks.

use std::collections::BTreeSet;

use crate::reader::Package;
use crate::workspace::{Sources, below, sources};

/// The rooms where messages come in and leave.
const EDGES: [&str; 2] = ["actors/doors/", "actors/servers/"];

/// Where a protocol family is named all the same, and why.
const ALLOWED: &[(&str, &str)] = &[
    (
        "kernel/src/routes.rs",
        "the table of methods says which clients know each",
    ),
    (
        "actors/calls/src/answer.rs",
        "the kernel's own results are written once, as their caller reads them",
    ),
    (
        "actors/calls/src/mcp/tasks.rs",
        "the tasks of 2025-11-25 and those of the extension are two families of methods",
    ),
];

/// A dialect is named at the edges only: between them a request has one form.
#[test]
fn a_protocol_family_is_named_at_the_edges() {
    let found = named(&sources());
    let allowed = |file: &String| ALLOWED.iter().any(|(at, _)| at == file);
    let strays: Vec<_> = found.iter().filter(|file| !allowed(file)).collect();
    assert!(strays.is_empty(), "{strays:?}");
    let idle: Vec<_> = ALLOWED
        .iter()
        .filter(|(at, _)| !found.contains(*at))
        .collect();
    assert!(idle.is_empty(), "{idle:?}");
}

#[test]
fn a_protocol_family_between_the_edges_is_found() {
    let planted = |file: &str, text: &str| {
        let sources = Sources::from([(file.to_owned(), text.to_owned())]);
        named(&sources).len()
    };
    let calls = "actors/calls/src/mcp/prompts.rs";
    let import = "use mgp_protocol::dialect::{ProtocolFamily, Version};";
    assert_eq!(planted(calls, import), 1);
    assert_eq!(planted("actors/servers/src/upstream.rs", import), 0);
    let renamed = "use mgp_protocol::dialect::ProtocolFamily as Family; fn f(family: Family) {}";
    assert_eq!(planted(calls, renamed), 1);
    let path =
        "fn f(v: Version) -> bool { v.family() == mgp_protocol::dialect::ProtocolFamily::Legacy }";
    assert_eq!(planted(calls, path), 1);
    let method = "fn f(v: Version) -> bool {\n    v.is_legacy()\n}";
    assert_eq!(planted(calls, method), 1);
    assert_eq!(
        planted(
            calls,
            "/// Not `is_legacy()`, no `ProtocolFamily`.\nfn f() {}"
        ),
        0
    );
    assert_eq!(planted(calls, "fn f(v: Version) { form(v.family()); }"), 0);
    let tests = "#[cfg(test)] mod tests { use mgp_protocol::dialect::ProtocolFamily; }";
    assert_eq!(planted(calls, tests), 0);
}

/// The files of the actors and the kernel between the edges that name a protocol family, or ask for one. Who only
/// hands on what `family()` answered does not.
fn named(sources: &Sources) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for folder in folders(sources) {
        for module in Package::read(below(&folder, sources)).modules.values() {
            let file = format!("{folder}/{}", module.file);
            let uses = module.uses.iter().map(|import| &import.path);
            let mut paths = uses.chain(&module.paths);
            if paths.any(|path| path.iter().any(|part| part == "ProtocolFamily"))
                || asks(&sources[&file])
            {
                found.insert(file);
            }
        }
    }
    found.retain(|file| !EDGES.iter().any(|edge| file.starts_with(edge)));
    found
}

fn asks(text: &str) -> bool {
    let lines = text.lines().map(str::trim_start);
    let mut code = lines.filter(|line| !line.starts_with("//"));
    code.any(|line| line.contains(".is_legacy()"))
}

/// The source folders of the actors and the kernel.
fn folders(sources: &Sources) -> BTreeSet<String> {
    let all = sources.keys().filter_map(|path| path.split_once("/src/"));
    let folders = all.map(|(package, _)| package);
    folders
        .filter(|package| package.starts_with("actors/") || *package == "kernel")
        .map(|package| format!("{package}/src"))
        .collect()
}
