//! The table of batches: files that are mutated together, and the fewest tests that guard them, as these run once for
//! each mutant.

use std::fmt;
use std::path::{Path, PathBuf};

use super::workspace;

/// A module with its submodules, except those with their own batches.
pub(crate) struct Batch {
    /// Its path without `.rs`.
    pub(crate) module: &'static str,
    /// Filters of the unit tests that guard it; all tests if empty.
    pub(crate) tests: &'static [&'static str],
    pub(crate) kind: Kind,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Every survivor needs a reason.
    Decision,
    /// Survivors are counted.
    Other,
}

/// The folders and names of the packages.
const PACKAGES: [(&str, &str); 4] = [
    ("kernel/engine", "mgp-engine"),
    ("kernel/screening", "mgp-screening"),
    ("kernel/mcpl", "mgp-mcpl-engine"),
    ("kernel/protocol", "mgp-protocol"),
];

const fn decision(module: &'static str, tests: &'static [&'static str]) -> Batch {
    let kind = Kind::Decision;
    Batch {
        module,
        tests,
        kind,
    }
}

const fn other(module: &'static str, tests: &'static [&'static str]) -> Batch {
    let kind = Kind::Other;
    Batch {
        module,
        tests,
        kind,
    }
}

/// All tests of validators, except those that measure time.
const VALIDATORS: &[&str] = &[
    "validators::",
    "--skip=long_run_of_separators_is_read_once",
    "--skip=fast_check_misses_nothing",
    "--skip=hostile_texts_are_checked_in_bounded_time",
];

/// All tests of MCPL but those of the memory of pushed events, which take half a minute.
const MCPL: &[&str] = &["--skip=push::memory"];

/// In the order of importance.
pub(crate) const BATCHES: [Batch; 57] = [
    decision("kernel/engine/src/policy/access", &["policy::access"]),
    decision(
        "kernel/engine/src/policy/grants",
        &["policy::grants", "policy::access"],
    ),
    decision(
        "kernel/engine/src/policy/grants/conflicts",
        &["policy::grants", "policy::access"],
    ),
    decision(
        "kernel/engine/src/policy/grants/log",
        &["policy::grants", "policy::access"],
    ),
    decision(
        "kernel/engine/src/policy/grants/operation",
        &["policy::grants", "policy::access"],
    ),
    decision("kernel/engine/src/policy/pins", &["policy::pins"]),
    decision(
        "kernel/engine/src/replication/lease",
        &["replication::lease"],
    ),
    decision("kernel/engine/src/store/journal", &["store::journal"]),
    decision(
        "kernel/engine/src/servers/lifecycle",
        &["servers::lifecycle"],
    ),
    decision("kernel/engine/src/servers/restart", &["servers::restart"]),
    decision("kernel/screening/src/validators", VALIDATORS),
    decision("kernel/screening/src/validators/addresses", VALIDATORS),
    decision("kernel/screening/src/validators/arguments", VALIDATORS),
    decision("kernel/screening/src/validators/commands", VALIDATORS),
    decision(
        "kernel/screening/src/validators/dangerous_commands",
        VALIDATORS,
    ),
    decision(
        "kernel/screening/src/validators/network",
        &["validators::network", "attacks_"],
    ),
    decision("kernel/screening/src/validators/paths", VALIDATORS),
    decision("kernel/screening/src/validators/programs", VALIDATORS),
    decision("kernel/screening/src/validators/readonly", VALIDATORS),
    decision("kernel/screening/src/validators/sandbox", VALIDATORS),
    decision("kernel/screening/src/validators/scripts", VALIDATORS),
    decision(
        "kernel/screening/src/validators/sql",
        &["validators::sql", "attacks_"],
    ),
    decision("kernel/engine/src/policy/risk", &["policy::risk"]),
    decision(
        "kernel/engine/src/policy/requirements",
        &["policy::requirements"],
    ),
    decision("kernel/engine/src/policy/tool_pattern", &["policy::"]),
    decision("kernel/engine/src/tools/schema", &["tools::schema"]),
    decision(
        "kernel/engine/src/tools/registration",
        &["tools::registration"],
    ),
    decision("kernel/mcpl/src/policy", MCPL),
    decision("kernel/mcpl/src/feature_sets", MCPL),
    decision("kernel/mcpl/src/scopes", MCPL),
    other(
        "kernel/screening/src/code_safety",
        &["code_safety::", "--skip=parsing_is_bounded"],
    ),
    other("kernel/screening/src", &[]),
    other("kernel/mcpl/src/channels", &[]),
    other("kernel/mcpl/src/hooks", &[]),
    other("kernel/mcpl/src/inference", &[]),
    other("kernel/mcpl/src/push", &[]),
    other("kernel/mcpl/src/state", &[]),
    other("kernel/mcpl/src", &[]),
    other("kernel/engine/src/policy", &["policy::"]),
    other("kernel/engine/src/replication", &["replication::"]),
    other("kernel/engine/src/store", &["store::"]),
    other("kernel/engine/src/servers", &["servers::"]),
    other("kernel/engine/src/callers", &["callers::"]),
    other("kernel/engine/src/calls", &["calls::"]),
    other("kernel/engine/src/cluster", &["cluster::"]),
    other("kernel/engine/src/doors", &["doors::"]),
    other("kernel/engine/src/tools", &["tools::"]),
    other("kernel/engine/src", &[]),
    other("kernel/protocol/src/jsonrpc", &[]),
    other("kernel/protocol/src/federation", &["federation::"]),
    other("kernel/protocol/src/versions", &[]),
    other("kernel/protocol/src/lite", &["lite::"]),
    other("kernel/protocol/src/mcp", &["mcp::"]),
    other("kernel/protocol/src/mcpl", &["mcpl::"]),
    other("kernel/protocol/src/mgp", &["mgp::"]),
    other("kernel/protocol/src/refusal", &["refusal::"]),
    other("kernel/protocol/src", &[]),
];

impl Batch {
    /// Its module's path, without common parts.
    pub(crate) fn name(&self) -> String {
        let module = self.module.strip_prefix("kernel/").unwrap_or(self.module);
        let name = module.replace("/src/", "/");
        name.strip_suffix("/src")
            .map_or(name.clone(), str::to_owned)
    }

    /// The name of its package.
    pub(crate) fn package(&self) -> &'static str {
        self.package_entry().1
    }

    /// The folder of its package.
    pub(crate) fn package_folder(&self) -> &'static str {
        self.package_entry().0
    }

    fn package_entry(&self) -> (&'static str, &'static str) {
        PACKAGES
            .into_iter()
            .find(|(folder, _)| is_below(self.module, folder))
            .expect("every batch lies in a package")
    }

    /// Its files, as globs.
    pub(crate) fn files(&self) -> [String; 2] {
        [
            format!("{}.rs", self.module),
            format!("{}/**/*.rs", self.module),
        ]
    }

    /// The files of inner batches.
    pub(crate) fn excluded_files(&self) -> impl Iterator<Item = String> {
        let inner = BATCHES
            .iter()
            .filter(|batch| batch.module != self.module && is_below(batch.module, self.module));
        inner.flat_map(Self::files)
    }

    fn contains(&self, file: &str) -> bool {
        let module = file.strip_suffix(".rs").unwrap_or(file);
        is_below(module, self.module)
    }
}

impl fmt::Display for Batch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.kind {
            Kind::Decision => "decision",
            Kind::Other => "",
        };
        let name = self.name();
        write!(f, "{name:<32} {kind:<9} {}", self.tests.join(" "))
    }
}

/// The innermost batch of a file.
fn find_batch(file: &str) -> Option<&'static Batch> {
    let all = BATCHES.iter().filter(|batch| batch.contains(file));
    all.max_by_key(|batch| batch.module.len())
}

/// The batches that contain these paths, and those inside them.
pub(crate) fn select_batches(paths: &[PathBuf]) -> Result<Vec<&'static Batch>, String> {
    if paths.is_empty() {
        return Ok(BATCHES.iter().collect());
    }
    let mut wanted: Vec<&Batch> = Vec::new();
    for path in paths {
        let text = path.to_string_lossy();
        let text = text.trim_start_matches("./").trim_end_matches('/');
        let inner = BATCHES.iter().filter(|batch| is_below(batch.module, text));
        let inner: Vec<&Batch> = inner.collect();
        let found = if inner.is_empty() {
            Vec::from_iter(find_batch(text).filter(|_| workspace().join(text).exists()))
        } else {
            inner
        };
        if found.is_empty() {
            let known = PACKAGES.map(|(folder, _)| folder).join(", ");
            return Err(format!(
                "{} is in no batch. Batches are below {known}; --list shows them",
                path.display()
            ));
        }
        wanted.extend(found);
    }
    let is_wanted = |batch: &&Batch| wanted.iter().any(|other| other.module == batch.module);
    Ok(BATCHES.iter().filter(is_wanted).collect())
}

#[cfg(test)]
fn exists(module: &str) -> bool {
    let path = workspace().join(module);
    path.exists() || path.with_extension("rs").exists()
}

fn is_below(path: &str, folder: &str) -> bool {
    Path::new(path).starts_with(folder)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_batch_has_files() {
        for batch in &BATCHES {
            assert!(exists(batch.module), "{}", batch.module);
        }
    }

    /// All files of the four packages are covered.
    #[test]
    fn every_file_is_in_a_batch_of_its_package() {
        for (folder, package) in PACKAGES {
            let mut open = vec![PathBuf::from(folder).join("src")];
            while let Some(path) = open.pop() {
                let full = workspace().join(&path);
                if full.is_dir() {
                    let entries = std::fs::read_dir(full).unwrap();
                    open.extend(entries.map(|entry| path.join(entry.unwrap().file_name())));
                } else {
                    let batch = find_batch(path.to_str().unwrap());
                    assert_eq!(batch.map(Batch::package), Some(package), "{path:?}");
                }
            }
        }
    }

    #[test]
    fn a_path_selects_outer_and_inner_batches() {
        let names = |path: &str| {
            let chosen = select_batches(&[path.into()])?;
            Ok::<_, String>(chosen.into_iter().map(Batch::name).collect::<Vec<_>>())
        };
        let sets = "kernel/engine/src/policy/access/sets.rs";
        assert_eq!(names(sets).unwrap(), ["engine/policy/access"]);
        let grants = "kernel/engine/src/policy/grants.rs";
        assert_eq!(names(grants).unwrap(), ["engine/policy/grants"]);
        let grants = names("kernel/engine/src/policy/grants").unwrap();
        assert!(
            grants.contains(&"engine/policy/grants/log".to_owned()),
            "{grants:?}"
        );
        let permissions = "kernel/engine/src/policy/permissions.rs";
        assert_eq!(names(permissions).unwrap(), ["engine/policy"]);
        let policy = names("kernel/engine/src/policy/").unwrap();
        assert!(
            policy.contains(&"engine/policy/pins".to_owned()),
            "{policy:?}"
        );
        assert!(policy.contains(&"engine/policy".to_owned()), "{policy:?}");
        assert!(!policy.contains(&"engine/store".to_owned()), "{policy:?}");
        assert!(names("kernel/src/main.rs").is_err());
        assert!(names("kernel/engine/src/policy/nothing.rs").is_err());
    }

    #[test]
    fn an_outer_batch_excludes_inner_ones() {
        let policy = find_batch("kernel/engine/src/policy/permissions.rs").unwrap();
        let excluded: Vec<String> = policy.excluded_files().collect();
        assert!(excluded.contains(&"kernel/engine/src/policy/pins.rs".to_owned()));
        let pins = find_batch("kernel/engine/src/policy/pins/diff.rs").unwrap();
        assert_eq!(pins.excluded_files().count(), 0);
    }
}
