//! Reads the modules of a package: what each one names, outside of its tests.
//!
//! A file is read as Rust's own tokens, so that nothing in a comment or a string counts.

mod tokens;
mod uses;

use std::collections::{BTreeMap, BTreeSet};

pub(crate) use uses::Use;

/// A module's way from the root of its package, or the segments of a path.
pub(crate) type Address = Vec<String>;

/// What one module says.
#[derive(Debug, Default)]
pub(crate) struct Module {
    pub(crate) file: String,
    pub(crate) uses: Vec<Use>,
    /// Every path of two segments or more outside of `use`.
    pub(crate) paths: Vec<Address>,
    /// The names of its structs, enums and traits.
    pub(crate) types: Vec<String>,
}

/// The modules of one package.
#[derive(Debug, Default)]
pub(crate) struct Package {
    pub(crate) modules: BTreeMap<Address, Module>,
    children: BTreeMap<Address, BTreeSet<String>>,
}

impl Package {
    /// Reads files by their path from the source folder. Tests are left out.
    pub(crate) fn read<'a>(files: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        let mut read = tokens::Read::default();
        for (file, text) in files {
            let address = address(file);
            if address.iter().any(|part| part == "tests") {
                continue;
            }
            read.file(file, &address, text);
        }
        let gated = |at: &Address| (1..=at.len()).any(|len| read.gated.contains(&at[..len]));
        let modules = read.modules.into_iter().filter(|(at, _)| !gated(at));
        let modules: BTreeMap<Address, Module> = modules.collect();
        let mut children: BTreeMap<Address, BTreeSet<String>> = BTreeMap::new();
        for at in modules.keys() {
            for (depth, child) in at.iter().enumerate() {
                let parent = at[..depth].to_vec();
                children.entry(parent).or_default().insert(child.clone());
            }
        }
        Self { modules, children }
    }

    /// Every module that another one names, with the path that names it: `(from, to, path)`.
    /// A name that a module imports and hands on leads to where it comes from.
    pub(crate) fn mentions(&self) -> Vec<(&Address, Address, &Address)> {
        let mut out = Vec::new();
        for (at, module) in &self.modules {
            let uses = module.uses.iter().map(|u| &u.path);
            for path in uses.chain(&module.paths) {
                let first = path.first().map_or("", String::as_str);
                if matches!(first, "crate" | "self" | "super") || self.is_child(at, first) {
                    let reached = self.resolve(at, path, &mut Vec::new());
                    out.extend(reached.into_iter().map(|to| (at, to, path)));
                }
            }
        }
        out
    }

    fn is_child(&self, at: &[String], name: &str) -> bool {
        self.children.get(at).is_some_and(|all| all.contains(name))
    }

    /// The modules a path leads through at its end: where the name stands, and where it comes from.
    fn resolve(&self, at: &[String], path: &[String], seen: &mut Vec<Address>) -> Vec<Address> {
        match path.first().map(String::as_str) {
            Some("crate") => self.find(&[], &path[1..], seen),
            Some("self") => self.find(at, &path[1..], seen),
            Some("super") => {
                let above = &at[..at.len().saturating_sub(1)];
                match path.get(1).map(String::as_str) {
                    Some("super") => self.resolve(above, &path[1..], seen),
                    Some(_) | None => self.find(above, &path[1..], seen),
                }
            }
            Some(_) | None => self.find(at, path, seen),
        }
    }

    fn find(&self, at: &[String], path: &[String], seen: &mut Vec<Address>) -> Vec<Address> {
        let here = at.to_vec();
        let Some((name, rest)) = path.split_first() else {
            return vec![here];
        };
        let mut inner = here.clone();
        inner.push(name.clone());
        if self.is_child(at, name) {
            return self.find(&inner, rest, seen);
        }
        if seen.contains(&inner) {
            return vec![here];
        }
        seen.push(inner);
        let uses = self.modules.get(at).map_or(&[][..], |m| &m.uses);
        let mut out = vec![here];
        for import in uses.iter().filter(|import| &import.name == name) {
            let onward: Address = import.path.iter().chain(rest).cloned().collect();
            out.extend(self.resolve(at, &onward, seen));
        }
        out
    }
}

/// `a/b.rs` is `a::b`; `lib.rs`, `main.rs` and `mod.rs` are the folder they lie in.
fn address(file: &str) -> Address {
    let parts = file.trim_end_matches(".rs").split('/');
    let mut address: Address = parts.map(str::to_owned).collect();
    let root = address.len() == 1 && matches!(address[0].as_str(), "lib" | "main");
    if root || address.last().is_some_and(|last| last == "mod") {
        address.pop();
    }
    address
}
