//! Systems: which code may name one, and which packages may depend on one.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::process::Command;

use crate::workspace::{Sources, manifest, root, sources};

/// The crate that names systems.
const PLATFORM: &str = "platform/";
/// Folders that are not part of the program.
const OUTSIDE: [&str; 2] = ["tests/", "xtask/"];

/// What only some systems have: conditions, files, calls and packages.
const OF_ONE_SYSTEM: &[&str] = &[
    "target_os",
    "cfg!(",
    "feature = \"portable\"",
    "\"/proc",
    "/proc/",
    "\"/sys/",
    "os::linux",
    "pidfd",
    "prctl",
    "signalfd",
    "memfd",
    "inotify::",
    "notify::Watcher",
    "notify::Recommended",
    "landlock::",
    "seccompiler",
    "caps::",
    "dbus",
    "CloneFlags",
    "nix::mount",
    "setresuid",
    "PeerCredentials",
    "SOCK_CLOEXEC",
    "O_PATH",
    "OFlags::PATH",
    "O_TMPFILE",
    "F_OFD_",
    "PIPE_SZ",
    "RenameFlags",
    "renameat_with",
    "ClockId::Boottime",
    // rustix has it for all systems, nix for some.
    "nix::sys::wait::waitid",
];

/// Where one is named all the same, and why.
const ALLOWED: &[(&str, &str)] = &[
    (
        "kernel/engine/src/servers/sandbox/paths.rs",
        "the paths that a policy opens are data, which the launcher of Linux reads",
    ),
    (
        "kernel/screening/src/definitions/words.rs",
        "words that a definition of a tool should not have, of whatever system",
    ),
    (
        "kernel/screening/src/validators/paths.rs",
        "folders that arguments should not name, of whatever system",
    ),
];

/// PRJ-032: only the platform crate names a system.
#[test]
fn a_system_is_named_in_the_platform_crate_only() {
    let found = named(&sources());
    let allowed = |file: &str| ALLOWED.iter().any(|(at, _)| *at == file);
    let strays: Vec<_> = found.iter().filter(|(file, _)| !allowed(file)).collect();
    assert!(strays.is_empty(), "{strays:?}");
    let idle = ALLOWED.iter().find(|(at, _)| !found.contains_key(*at));
    assert_eq!(idle, None);
}

#[test]
fn a_system_named_elsewhere_is_found() {
    let planted = |file: &str, text: &str| {
        let sources = Sources::from([(file.to_owned(), text.to_owned())]);
        named(&sources).len()
    };
    let condition = "#[cfg(target_os = \"linux\")]\nfn f() {}";
    assert_eq!(planted("kernel/src/a.rs", condition), 1);
    assert_eq!(planted("platform/src/lib.rs", condition), 0);
    assert_eq!(planted("tests/src/a.rs", condition), 0);
    let call = "fn f() {\n    let s = fs::read(\"/proc/self/stat\");\n}";
    assert_eq!(planted("transports/src/child.rs", call), 1);
    assert_eq!(planted("transports/src/child/tests.rs", call), 0);
    let test = format!("fn g() {{}}\n#[cfg(test)]\nmod tests {{\n{call}\n}}");
    assert_eq!(planted("transports/src/child.rs", &test), 0);
    assert_eq!(
        planted("transports/src/child.rs", "// See /proc/self.\n"),
        0
    );
}

/// The files that name a system, with the words.
fn named(sources: &Sources) -> BTreeMap<String, BTreeSet<&'static str>> {
    let mut found = BTreeMap::new();
    for (file, text) in sources {
        let is_outside = |top: &&str| file.starts_with(*top);
        let is_test = file.contains("/tests/") || file.ends_with("/tests.rs");
        let is_own = file.contains("/benches/") || file.contains("/examples/");
        if file.starts_with(PLATFORM) || OUTSIDE.iter().any(is_outside) {
            continue;
        }
        let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap();
        let code = code
            .lines()
            .filter(|line| !line.trim_start().starts_with("//"));
        let code: String = code.flat_map(|line| [line, "\n"]).collect();
        let words = OF_ONE_SYSTEM.iter().filter(|word| code.contains(**word));
        let words: BTreeSet<_> = words.copied().collect();
        if !is_test && !is_own && !words.is_empty() {
            found.insert(file.clone(), words);
        }
    }
    found
}

/// Packages that exist on Linux only.
const OF_LINUX: [&str; 10] = [
    "caps",
    "dbus",
    "dbus-secret-service",
    "inotify",
    "inotify-sys",
    "landlock",
    "libdbus-sys",
    "linux-raw-sys",
    "notify",
    "seccompiler",
];

/// PRJ-033: what depends on Linux is a dependency of the platform crate, and for that target alone.
#[test]
fn packages_of_linux_are_dependencies_of_one_crate_for_one_target() {
    let workspace = manifest("");
    for member in workspace["workspace"]["members"].as_array().unwrap() {
        let member = member.as_str().unwrap();
        if OUTSIDE
            .iter()
            .any(|top| top.trim_end_matches('/') == member)
        {
            continue;
        }
        let manifest = manifest(member);
        for table in ["dependencies", "build-dependencies"] {
            let named = manifest.get(table).and_then(|it| it.as_table());
            let wrong = named.into_iter().flat_map(|it| it.keys());
            let wrong: Vec<_> = wrong.filter(|name| is_of_linux(name)).collect();
            assert!(wrong.is_empty(), "{member}: {wrong:?}");
        }
        let by_target = manifest.get("target").and_then(|it| it.as_table());
        let conditions = by_target.into_iter().flat_map(|it| it.keys());
        let conditions: Vec<_> = conditions.filter(|it| *it != "cfg(mgp_loom)").collect();
        let wanted: &[&str] = match member {
            "platform" => &["cfg(target_os = \"linux\")"],
            _ => &[],
        };
        assert_eq!(conditions, wanted, "{member}");
    }
}

/// PRJ-033: the program has no package of Linux on other systems, as the lock file says.
#[test]
fn the_program_has_no_package_of_linux_on_other_systems() {
    for target in ["aarch64-apple-darwin", "x86_64-unknown-freebsd"] {
        let packages = packages(target);
        assert!(packages.contains("mgp-platform") && packages.contains("tokio"));
        let found: Vec<_> = packages.iter().filter(|it| is_of_linux(it)).collect();
        assert!(found.is_empty(), "{target}: {found:?}");
    }
    let here = packages("x86_64-unknown-linux-gnu");
    let missing = OF_LINUX.iter().find(|name| !here.contains(**name));
    assert_eq!(missing, None, "this list is out of date");
}

/// The packages that the program is built from for a target.
fn packages(target: &str) -> BTreeSet<String> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut tree = Command::new(cargo);
    tree.args(["tree", "--locked", "--target", target, "-e", "normal"]);
    tree.args(["-p", "mgp-kernel", "--prefix", "none", "-f", "{p}"]);
    let output = tree.current_dir(root()).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    let names = text.lines().filter_map(|line| line.split(' ').next());
    names.map(str::to_owned).collect()
}

fn is_of_linux(name: &str) -> bool {
    OF_LINUX.contains(&name) || name.contains("linux") || name.contains("systemd")
}

/// Each thing that other systems hold less of has a row in the documentation.
#[test]
fn each_weakness_of_other_systems_is_documented() {
    let source = fs::read_to_string(root().join("platform/src/unix.rs")).unwrap();
    let page = fs::read_to_string(root().join("docs/platforms.md")).unwrap();
    let quoted = |line: &str| Some(line.split('"').nth(1)?.to_owned());
    let mut lines = source.lines().map(str::trim).peekable();
    let mut areas = Vec::new();
    while let Some(line) = lines.next() {
        if line.starts_with("area:") {
            let text = lines.find(|line| line.contains('"')).unwrap();
            areas.push((quoted(line).unwrap(), quoted(text).unwrap()));
        }
    }
    assert!(areas.len() > 5, "{areas:?}");
    for (area, text) in areas {
        let row = format!("| {area} |");
        let row = page.lines().find(|line| line.starts_with(&row));
        let row = row.unwrap_or_else(|| panic!("no row begins with {area}"));
        assert!(row.contains(&text), "{row}: {text}");
    }
}
