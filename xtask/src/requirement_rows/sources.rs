//! The doc lines of tests: `///` above a test, `//!` of a file or module of tests.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::{fs, io};

/// The text of a doc line, and its test: `file::name`, or the file for a `//!` line.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct DocLine {
    pub(super) text: String,
    pub(super) test: String,
}

/// The folders with the project's code.
const FOLDERS: [&str; 6] = [
    "kernel",
    "actors",
    "discovery",
    "transports",
    "tests",
    "xtask",
];

/// Every doc line of every test below `root`.
pub(super) fn doc_lines(root: &Path) -> io::Result<Vec<DocLine>> {
    let mut sources = Vec::new();
    for folder in FOLDERS {
        for path in files(&root.join(folder), "rs")? {
            let text = fs::read_to_string(&path)?;
            sources.push((path, text));
        }
    }
    let declared: BTreeSet<PathBuf> = sources
        .iter()
        .flat_map(|(at, text)| test_modules(at, text))
        .collect();
    let lines = sources.iter().flat_map(|(path, text)| {
        let name = path.strip_prefix(root).unwrap_or(path);
        let whole = is_test_file(name)
            || path
                .ancestors()
                .any(|at| declared.contains(&at.with_extension("")));
        parse_doc_lines(&name.display().to_string(), text, whole)
    });
    Ok(lines.collect())
}

/// The files below a folder with this extension, sorted by name.
pub(super) fn files(folder: &Path, extension: &str) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            found.extend(files(&path, extension)?);
        } else if path.extension() == Some(OsStr::new(extension)) {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

/// Whether a file is in a `tests` folder; `tests/src` contains helpers, not tests.
fn is_test_file(path: &Path) -> bool {
    let parts: Vec<&OsStr> = path.iter().collect();
    let helps = parts.starts_with(&[OsStr::new("tests"), OsStr::new("src")]);
    let below_tests = parts
        .iter()
        .skip(1)
        .any(|part| *part == "tests" || *part == "tests.rs");
    below_tests && !helps
}

/// Modules in separate files that are only for tests, without their extension.
fn test_modules(path: &Path, text: &str) -> Vec<PathBuf> {
    let folder = match path.file_stem().and_then(OsStr::to_str) {
        Some("lib" | "main" | "mod") | None => path.with_file_name(""),
        Some(_) => path.with_extension(""),
    };
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    let pairs = lines.windows(2).filter(|pair| is_test_gate(pair[0]));
    let names = pairs.filter_map(|pair| pair[1].strip_suffix(';')?.split("mod ").nth(1));
    names.map(|name| folder.join(name)).collect()
}

/// `#[cfg(test)]`, alone or among other conditions.
fn is_test_gate(line: &str) -> bool {
    line.starts_with("#[cfg(") && line.contains("test")
}

/// The doc lines of a file; those outside of its test module, too, if it is a test file as a `whole`.
fn parse_doc_lines(file: &str, text: &str, whole: bool) -> Vec<DocLine> {
    let mut said = Vec::new();
    let (mut docs, mut is_test, mut within, mut gated) = (Vec::new(), false, whole, false);
    for line in text.lines() {
        let bare = line.trim();
        if let Some(doc) = bare.strip_prefix("///") {
            docs.push(doc.trim().to_owned());
        } else if let Some(doc) = bare.strip_prefix("//!") {
            if within {
                said.push(DocLine {
                    text: doc.trim().to_owned(),
                    test: file.to_owned(),
                });
            }
        } else if bare.starts_with("#[") {
            is_test |= bare.ends_with("test]") || bare.contains("test(");
            gated = is_test_gate(bare);
        } else if !bare.is_empty() {
            if within && is_test {
                let name = bare
                    .split("fn ")
                    .nth(1)
                    .and_then(|rest| rest.split(['(', '<']).next());
                let test = format!("{file}::{}", name.unwrap_or("?"));
                said.extend(docs.drain(..).map(|text| DocLine {
                    text,
                    test: test.clone(),
                }));
            }
            let opens = gated && bare.contains("mod ") && bare.ends_with('{');
            within = whole || opens || (within && line != "}");
            docs.clear();
            (is_test, gated) = (false, false);
        }
    }
    said
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "//! MGP-001\n/// MGP-002\nfn f() {\n}\n#[cfg(test)]\nmod tests {\n    //! MGP-003\n\n    /// MGP-004\n    /// MGP-005\n    #[test]\n    fn first() {}\n    /// MGP-006\n    fn below() {}\n    /// MGP-007\n    #[tokio::test(start_paused = true)]\n    async fn second() {}\n}\n/// MGP-008\n#[test]\nfn outside() {}\n";

    fn texts(whole: bool) -> Vec<String> {
        parse_doc_lines("f.rs", FILE, whole)
            .into_iter()
            .map(|said| format!("{} {}", said.text, said.test))
            .collect()
    }

    #[test]
    fn only_the_doc_lines_of_tests_count() {
        assert_eq!(
            texts(false),
            [
                "MGP-003 f.rs",
                "MGP-004 f.rs::first",
                "MGP-005 f.rs::first",
                "MGP-007 f.rs::second"
            ]
        );
        assert_eq!(texts(true).first().unwrap(), "MGP-001 f.rs");
        assert_eq!(texts(true).last().unwrap(), "MGP-008 f.rs::outside");
    }

    #[test]
    fn test_files_and_helpers_are_distinguished() {
        for path in [
            "tests/tests/mgp/health.rs",
            "kernel/engine/src/policy/access/tests.rs",
            "kernel/screening/tests/validators.rs",
        ] {
            assert!(is_test_file(Path::new(path)), "{path}");
        }
        for path in [
            "tests/src/harness/kernel.rs",
            "kernel/engine/src/policy/access.rs",
        ] {
            assert!(!is_test_file(Path::new(path)), "{path}");
        }
        let gated = "#[cfg(test)]\npub(crate) mod scripted;\n";
        assert_eq!(
            test_modules(Path::new("src/link.rs"), gated),
            [Path::new("src/link/scripted")]
        );
        assert_eq!(
            test_modules(Path::new("src/lib.rs"), gated),
            [Path::new("src/scripted")]
        );
    }
}
