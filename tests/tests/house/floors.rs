//! Floors: which package may name which.

use std::fs;

use crate::workspace::{manifest, members, root};

/// The packages of one floor: folder and name.
type Floor = &'static [(&'static str, &'static str)];

/// From the ground up. Each room of the actors is a floor of its own: it names those to its right in
/// the picture of ARCHITECTURE.md, which are those below it here.
const FLOORS: [Floor; 16] = [
    &[
        ("kernel/json", "mgp-json"),
        ("kernel/sync", "mgp-sync"),
        ("platform", "mgp-platform"),
    ],
    &[("kernel/protocol", "mgp-protocol")],
    &[("kernel/screening", "mgp-screening")],
    &[
        ("kernel/engine", "mgp-engine"),
        ("transports", "mgp-transports"),
        ("transports/grpc", "mgp-grpc"),
        ("clients", "mgp-clients"),
        ("discovery", "mgp-discovery"),
        ("embedding", "mgp-embedding"),
    ],
    &[("kernel/mcpl", "mgp-mcpl-engine")],
    &[("actors/runtime", "mgp-runtime")],
    &[("actors/store", "mgp-store")],
    &[("actors/callers", "mgp-callers")],
    &[("actors/policy", "mgp-policy")],
    &[("actors/cluster", "mgp-cluster")],
    &[("actors/servers", "mgp-servers")],
    &[("actors/tools", "mgp-tools")],
    &[("actors/mcpl", "mgp-mcpl")],
    &[("actors/calls", "mgp-calls")],
    &[("actors/doors", "mgp-doors")],
    &[("kernel", "mgp-kernel")],
];

/// Packages that no other one names: they start what is built.
const OUTSIDE: [&str; 2] = ["tests", "xtask"];

/// CMCP-001: an import goes down, never sideways, never up.
#[test]
fn imports_point_down() {
    let found = upward(&FLOORS, imports);
    assert!(found.is_empty(), "{}", found.join("\n"));
    for lowest in ["kernel/json", "kernel/sync", "platform"] {
        assert!(imports(lowest).is_empty(), "{lowest}");
    }
    for member in members() {
        let importing = imports(&member).contains(&"mgp-kernel".to_owned());
        assert!(
            !importing || member == "tests",
            "{member} imports the kernel"
        );
        let placed = FLOORS.iter().any(|f| f.iter().any(|(at, _)| *at == member));
        assert!(
            placed || OUTSIDE.contains(&member.as_str()),
            "{member} has no floor"
        );
    }
}

/// ARCHITECTURE.md draws each package above those it imports, and the rooms of the actors in their order.
#[test]
fn the_floors_are_drawn_as_they_are() {
    let text = fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    let picture = text.split("```").nth(1).unwrap();
    let folders = FLOORS.iter().flat_map(|floor| floor.iter());
    let inner = folders.filter(|(folder, _)| !folder.starts_with("actors/"));
    let inner: Vec<_> = inner
        .map(|(folder, name)| (*name, drawn_line(picture, folder)))
        .collect();
    let line_of = |name: &str| {
        inner
            .iter()
            .find(|(other, _)| *other == name)
            .map(|(_, line)| *line)
    };
    for (folder, name) in FLOORS.iter().flat_map(|floor| floor.iter()) {
        for import in imports(folder) {
            if let (Some(above), Some(below)) = (line_of(name), line_of(&import)) {
                assert!(
                    above < below,
                    "{name} imports {import} and is drawn beside or below it"
                );
            }
        }
    }
    let row = text.lines().find(|line| line.contains("──▶")).unwrap();
    let rooms: Vec<String> = row
        .split("──▶")
        .map(|room| format!("actors/{}", room.trim()))
        .collect();
    let floors = FLOORS
        .iter()
        .rev()
        .flat_map(|floor| floor.iter().map(|(folder, _)| *folder));
    let rooms_of_table: Vec<_> = floors
        .filter(|folder| folder.starts_with("actors/"))
        .collect();
    assert_eq!(rooms, rooms_of_table);
}

/// The line of the picture where a package stands.
fn drawn_line(picture: &str, folder: &str) -> usize {
    let stands = |line: &str| line.split([' ', '│', '├']).any(|word| word == folder);
    let line = picture.lines().position(stands);
    line.unwrap_or_else(|| panic!("{folder} is not drawn"))
}

#[test]
fn an_import_up_or_sideways_is_found() {
    let planted = |folder: &str, import: &str| {
        let (folder, import) = (folder.to_owned(), import.to_owned());
        upward(&FLOORS, move |at| {
            if at == folder {
                vec![import.clone()]
            } else {
                Vec::new()
            }
        })
    };
    assert!(planted("actors/doors", "mgp-runtime").is_empty());
    assert_eq!(
        planted("actors/runtime", "mgp-doors"),
        ["mgp-runtime may not import mgp-doors"]
    );
    assert_eq!(
        planted("transports", "mgp-engine"),
        ["mgp-transports may not import mgp-engine"]
    );
    assert_eq!(
        planted("kernel", "mgp-kernel"),
        ["mgp-kernel may not import mgp-kernel"]
    );
}

/// Engines are told the time: nothing that has a clock, a thread or a socket is within their reach.
#[test]
fn engines_have_no_runtime() {
    for package in [
        "kernel/engine",
        "kernel/screening",
        "kernel/mcpl",
        "kernel/protocol",
        "kernel/json",
        "kernel/sync",
    ] {
        let manifest = fs::read_to_string(root().join(package).join("Cargo.toml")).unwrap();
        for banned in [
            "tokio",
            "getrandom",
            "hyper",
            "ractor",
            "nix",
            "mgp-platform",
        ] {
            assert!(!manifest.contains(banned), "{package} depends on {banned}");
        }
    }
    assert!(root().join("kernel/engine/clippy.toml").is_file());
    assert!(root().join("kernel/screening/clippy.toml").is_file());
    assert!(root().join("kernel/mcpl/clippy.toml").is_file());
}

/// The imports that do not go down, said in words.
fn upward(floors: &[Floor], imports: impl Fn(&str) -> Vec<String>) -> Vec<String> {
    let mut found = Vec::new();
    let mut below: Vec<&str> = Vec::new();
    for floor in floors {
        for (folder, name) in *floor {
            let wrong = imports(folder)
                .into_iter()
                .filter(|import| !below.contains(&import.as_str()));
            found.extend(wrong.map(|import| format!("{name} may not import {import}")));
        }
        below.extend(floor.iter().map(|(_, name)| *name));
    }
    found
}

/// Our own crates that a package depends on, wherever its manifest says so.
fn imports(package: &str) -> Vec<String> {
    let manifest = manifest(package);
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
