//! Modules: no circles among siblings, and no imports of all of a module.

use std::collections::{BTreeMap, BTreeSet};

use crate::reader::{Address, Package};
use crate::workspace::{self, below, sources};

/// No modules beside each other need each other in a circle, at any level of any package.
#[test]
fn siblings_name_each_other_in_one_direction() {
    let found = offences(circles);
    assert!(found.is_empty(), "{}", found.join("\n"));
}

/// What a module imports is said by name, so that it can be followed. Files of a suite may take all of
/// the one they continue.
#[test]
fn no_module_imports_all_of_another() {
    let mut found = offences(globs);
    found.retain(|offence| !offence.starts_with("tests/tests/"));
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn a_circle_is_found_at_every_level_and_through_what_a_parent_hands_on() {
    let planted = [
        ("lib.rs", "mod a; mod b; mod c; pub use b::Thing;"),
        ("a.rs", "mod inner; mod other; use crate::c::{d::E, self};"),
        ("a/inner.rs", "fn f() { vec![super::other::g()]; }"),
        (
            "a/other.rs",
            "use super::inner::f; fn g() -> crate::Thing {}",
        ),
        ("b.rs", "pub struct Thing; use self::nothing;"),
        ("b/deep.rs", "impl crate::a::Of for super::Thing {}"),
        ("c.rs", "use crate::{b, c};"),
    ];
    let found = circles(&Package::read(planted));
    assert_eq!(found.len(), 2, "{found:#?}");
    assert!(
        found[0].starts_with("circle of a, b, c at the root"),
        "{found:#?}"
    );
    assert!(
        found[1].starts_with("circle of inner, other in a"),
        "{found:#?}"
    );
}

#[test]
fn tests_comments_strings_and_ones_own_parent_make_no_circle() {
    let harmless = [
        ("main.rs", "mod a; mod b; #[cfg(test)] mod scene; use a::A;"),
        (
            "a.rs",
            "mod child; use crate::b::B; pub struct A; use child::C;",
        ),
        ("a/child.rs", "use super::A; use crate::main;"),
        (
            "b.rs",
            "//! crate::a::A\n/* crate::a */ const S: &str = \"crate::a::A\"; const R: &str = r#\"crate::a::A\"#;\n#[cfg(test)] fn f<T, U>(t: T) { crate::a::f() }\n#[cfg(test)] use crate::a::{A, C};\n#[cfg(all(test, unix))] mod tests { use crate::a::A; }\npub struct B { #[cfg(test)] a: crate::a::A, b: u8 }",
        ),
        ("b/tests.rs", "use crate::a::A;"),
        ("scene.rs", "use crate::a::A;"),
        ("scene/deep.rs", "use crate::b::B;"),
    ];
    let found = circles(&Package::read(harmless));
    assert!(found.is_empty(), "{found:#?}");
}

#[test]
fn an_import_of_everything_is_found() {
    let planted = [
        ("lib.rs", "mod a; pub use a::*;"),
        ("a.rs", "use serde::*;"),
    ];
    assert_eq!(globs(&Package::read(planted)), ["lib.rs: use a::*"]);
}

/// What a rule finds in the packages and in each suite of tests.
fn offences(rule: fn(&Package) -> Vec<String>) -> Vec<String> {
    let sources = sources();
    let packages = workspace::members().into_iter();
    let mut folders: BTreeSet<String> = packages.map(|at| format!("{at}/src")).collect();
    let suites = below("tests/tests", &sources).filter_map(|(file, _)| file.split_once('/'));
    folders.extend(suites.map(|(suite, _)| format!("tests/tests/{suite}")));
    let told = folders.iter().flat_map(|folder| {
        let found = rule(&Package::read(below(folder, &sources)));
        found
            .into_iter()
            .map(move |offence| format!("{folder}: {offence}"))
    });
    told.collect()
}

/// Which siblings name which, and by what, below one parent.
type Edges<'a> = BTreeMap<(&'a str, String), BTreeSet<String>>;

fn circles(package: &Package) -> Vec<String> {
    let mut levels: BTreeMap<Address, Edges<'_>> = BTreeMap::new();
    for (from, to, path) in package.mentions() {
        let shared = from.iter().zip(&to).take_while(|(a, b)| a == b).count();
        if let (Some(one), Some(other)) = (from.get(shared), to.get(shared)) {
            let edges = levels.entry(from[..shared].to_vec()).or_default();
            let why = format!("{} ({})", path.join("::"), package.modules[from].file);
            edges.entry((one, other.clone())).or_default().insert(why);
        }
    }
    let told = levels.iter().flat_map(|(parent, edges)| {
        let place = match parent.as_slice() {
            [] => "at the root".to_owned(),
            parent => format!("in {}", parent.join("::")),
        };
        let rings = rings(edges).into_iter();
        rings.map(move |ring| format!("circle of {} {place}{}", join(&ring), told(&ring, edges)))
    });
    told.collect()
}

/// The sets of siblings that reach each other.
fn rings<'a>(edges: &'a Edges<'_>) -> BTreeSet<BTreeSet<&'a str>> {
    let reached = |from: &'a str| {
        let mut seen: BTreeSet<&str> = BTreeSet::new();
        let mut open = vec![from];
        while let Some(at) = open.pop() {
            let next = edges.keys().filter(|(one, _)| *one == at);
            open.extend(next.map(|(_, to)| to.as_str()).filter(|to| seen.insert(to)));
        }
        seen
    };
    let all: BTreeMap<&str, BTreeSet<&str>> = edges
        .keys()
        .map(|(from, _)| (*from, reached(from)))
        .collect();
    let ring = |from: &str, to: &BTreeSet<&'a str>| -> BTreeSet<&'a str> {
        let back = |name: &&&str| all.get(**name).is_some_and(|there| there.contains(from));
        to.iter().filter(back).copied().collect()
    };
    all.iter()
        .map(|(from, to)| ring(from, to))
        .filter(|ring| ring.len() > 1)
        .collect()
}

/// Every edge of a circle, and one path that makes it.
fn told(ring: &BTreeSet<&str>, edges: &Edges<'_>) -> String {
    let inside = edges
        .iter()
        .filter(|((from, to), _)| ring.contains(from) && ring.contains(to.as_str()));
    inside
        .map(|((from, to), why)| format!("\n    {from} -> {to}: {}", why.first().unwrap()))
        .collect()
}

fn join(names: &BTreeSet<&str>) -> String {
    names.iter().copied().collect::<Vec<_>>().join(", ")
}

fn globs(package: &Package) -> Vec<String> {
    let mut found = Vec::new();
    for module in package.modules.values() {
        for import in module.uses.iter().filter(|import| import.name == "*") {
            let first = import.path.first().map_or("", String::as_str);
            let ours = package.modules.contains_key(&[first.to_owned()][..]);
            if ours || matches!(first, "crate" | "self" | "super") {
                found.push(format!(
                    "{}: use {}::*",
                    module.file,
                    import.path.join("::")
                ));
            }
        }
    }
    found
}
