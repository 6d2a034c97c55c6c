//! A copy of the sources for mutants. Its location is fixed, so that builds are incremental; of the engine it contains
//! only the modules that a batch needs, which makes a mutant three times as fast.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::workspace;

/// The crate that is split by modules.
const ENGINE: &str = "kernel/engine/src";

/// Recreates the copy in this folder. `module` of the crate in the folder `package` is the mutated one.
pub(crate) fn create_copy(folder: &Path, package: &str, module: &str) -> Result<(), String> {
    let failed = |path: &Path, error| format!("{}: {error}", path.display());
    if folder.exists() {
        fs::remove_dir_all(folder).map_err(|error| failed(folder, error))?;
    }
    for file in list_sources()? {
        let (from, to) = (workspace().join(&file), folder.join(&file));
        let parent = to.parent().unwrap_or(folder);
        fs::create_dir_all(parent).map_err(|error| failed(parent, error))?;
        // A deleted file is listed until the deletion is committed.
        if from.is_file() {
            copy_file(&from, &to).map_err(|error| failed(&from, error))?;
        }
    }
    let path = folder.join(package).join("src/lib.rs");
    let mut text = fs::read_to_string(&path).map_err(|error| failed(&path, error))?;
    if let Some(room) = engine_crate_of(module) {
        let needed = needed_modules(room, &declared_modules(&text), &|room| {
            module_text(&folder.join(ENGINE), room)
        });
        text = trim_root(&text, &needed);
    }
    // Written now: what was built last is a mutant, and newer than all other files.
    fs::write(&path, text).map_err(|error| failed(&path, error))
}

/// Preserves the modification time: unchanged files are not rebuilt.
fn copy_file(from: &Path, to: &Path) -> std::io::Result<()> {
    fs::copy(from, to)?;
    let changed = fs::metadata(from)?.modified()?;
    fs::File::options()
        .write(true)
        .open(to)?
        .set_modified(changed)
}

/// All files of the project that git does not ignore.
fn list_sources() -> Result<Vec<PathBuf>, String> {
    let mut list = Command::new("git");
    list.current_dir(workspace());
    list.args([
        "ls-files",
        "-z",
        "--cached",
        "--others",
        "--exclude-standard",
    ]);
    let output = list.output().map_err(|error| format!("git: {error}"))?;
    if !output.status.success() {
        let why = String::from_utf8_lossy(&output.stderr);
        return Err(format!("git ls-files failed: {why}"));
    }
    let names = String::from_utf8_lossy(&output.stdout);
    let names = names.split('\0').filter(|name| !name.is_empty());
    Ok(names.map(PathBuf::from).collect())
}

/// The top-level module of the engine that a module is in.
fn engine_crate_of(module: &str) -> Option<&str> {
    let path = module.strip_prefix(ENGINE)?.strip_prefix('/')?;
    path.split('/').next()
}

/// The top-level modules that the crate's root declares.
fn declared_modules(root: &str) -> BTreeSet<&str> {
    root.lines().filter_map(parse_module).collect()
}

fn parse_module(line: &str) -> Option<&str> {
    line.strip_prefix("pub mod ")?.strip_suffix(" {")
}

/// A top-level module with all modules that it uses, directly or not.
fn needed_modules<'a>(
    room: &'a str,
    all: &BTreeSet<&'a str>,
    text_of: &dyn Fn(&str) -> String,
) -> BTreeSet<&'a str> {
    let mut needed = BTreeSet::new();
    // The modules without a parent are always included.
    let mut open = vec![room, ""];
    while let Some(room) = open.pop() {
        if needed.insert(room) {
            let text = text_of(room);
            let names = |other: &&&str| text.contains(&format!("crate::{other}::"));
            open.extend(all.iter().filter(names));
        }
    }
    needed
}

/// The text of a top-level module or, without a name, of the modules without a parent.
fn module_text(root: &Path, room: &str) -> String {
    let mut open = vec![root.join(room)];
    let mut text = String::new();
    while let Some(path) = open.pop() {
        let entries = fs::read_dir(&path).into_iter().flatten().flatten();
        for path in entries.map(|entry| entry.path()) {
            match path.is_dir() {
                true if !room.is_empty() => open.push(path),
                true => {}
                false => text.push_str(&fs::read_to_string(path).unwrap_or_default()),
            }
        }
    }
    text
}

/// The root without unneeded modules.
fn trim_root(root: &str, needed: &BTreeSet<&str>) -> String {
    let mut kept = String::new();
    let mut is_left_out = false;
    for line in root.lines() {
        is_left_out |= parse_module(line).is_some_and(|room| !needed.contains(room));
        if !is_left_out {
            kept.push_str(line);
            kept.push('\n');
        }
        is_left_out &= line != "}";
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOT: &str = "pub mod calls {\n    pub mod rates;\n}\n\n/// What is allowed.\npub mod policy {\n    pub mod pins;\n}\n\npub mod store {\n    pub mod journal;\n}\n\npub mod env;\n";

    #[test]
    fn a_batch_has_only_the_modules_that_it_needs() {
        let all = declared_modules(ROOT);
        assert_eq!(Vec::from_iter(&all), [&"calls", &"policy", &"store"]);
        let text_of = |room: &str| match room {
            "calls" => "use crate::policy::pins;".to_owned(),
            "" => "use crate::store::journal;".to_owned(),
            _ => String::new(),
        };
        let of_policy = needed_modules("policy", &all, &text_of);
        assert!(of_policy.contains("store") && !of_policy.contains("calls"));
        assert!(needed_modules("calls", &all, &text_of).contains("policy"));
        let text = trim_root(ROOT, &of_policy);
        assert!(!text.contains("rates"), "{text}");
        assert!(
            text.contains("pub mod policy {\n    pub mod pins;\n}"),
            "{text}"
        );
        assert!(text.ends_with("pub mod env;\n"), "{text}");
    }

    #[test]
    fn modules_of_the_engine_have_a_parent() {
        assert_eq!(
            engine_crate_of("kernel/engine/src/policy/access"),
            Some("policy")
        );
        assert_eq!(engine_crate_of("kernel/engine/src"), None);
        assert_eq!(engine_crate_of("kernel/mcpl/src/policy"), None);
    }
}
