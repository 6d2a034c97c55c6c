//! The Python check: resolves names, and finds blocked constructs.

mod writes;

use std::collections::{HashMap, HashSet};
use std::sync::LazyLock;

use tree_sitter::{Node, Query, Tree};
use unicode_normalization::UnicodeNormalization;

use super::lists::python::ALLOWED_DUNDERS;
use super::path::{Import, MAX_CHAIN, Path, Root};
use super::policy::Level;
use super::rejection::CodeRule;
use super::rules::{RuleViolation, contains_word, escape_violation};
use super::scan::Scan;
use super::syntax_tree::{children, field, strip_parentheses, walk};

/// The query that assigns roles to nodes.
pub(super) static ROLES: LazyLock<Query> = LazyLock::new(|| {
    let language = tree_sitter_python::LANGUAGE.into();
    Query::new(&language, include_str!("python/roles.scm"))
        .expect("the query is one of the grammar")
});

/// A check of Python code.
struct Python<'r, 's, 't> {
    scan: &'r mut Scan<'s, 't>,
    /// The imports that each name may refer to.
    imports: HashMap<String, Vec<Import>>,
    /// Names that the code defines.
    defined_names: HashSet<String>,
}

/// Checks the code.
pub(super) fn check<'t>(scan: &mut Scan<'_, 't>, tree: &'t Tree) {
    let mut python = Python {
        scan,
        imports: HashMap::new(),
        defined_names: HashSet::new(),
    };
    walk(tree.root_node(), |node, _| {
        python.collect_bindings(node);
        true
    });
    walk(tree.root_node(), |node, above| {
        python.check_node(node, above);
        true
    });
}

impl<'t> Python<'_, '_, 't> {
    /// Collects the bindings that the node makes.
    fn collect_bindings(&mut self, node: Node<'t>) {
        match node.kind() {
            "identifier" => {
                let role = self.scan.roles.role(node);
                if matches!(role, Some("made" | "function" | "class")) {
                    self.defined_names.insert(self.normalized_name(node));
                }
            }
            "import_statement" | "import_from_statement" => {
                for (bound, import) in self.import_bindings(node) {
                    self.imports.entry(bound).or_default().push(import);
                }
            }
            _ => {}
        }
    }

    fn check_node(&mut self, node: Node<'t>, above: &[Node<'t>]) {
        let strict = self.scan.is_at_least(Level::Strict);
        let blocked = match node.kind() {
            "import_statement" | "import_from_statement" => self.check_import(node),
            "identifier" if self.scan.roles.role(node).is_none() => self.report_blocked(node),
            "attribute" => self.report_blocked(node),
            "dotted_name" if is_pattern(node, above) => self.report_blocked(node),
            "call" => self.check_call(node),
            _ => false,
        };
        if strict && !blocked {
            self.check_strict(node, above);
        }
    }

    /// The rules of `strict`: names, members and imported names that give access to blocked objects.
    fn check_strict(&mut self, node: Node<'t>, above: &[Node<'t>]) {
        let broken: Vec<RuleViolation> = match node.kind() {
            "identifier" if self.scan.roles.role(node).is_none() => {
                let name = self.normalized_name(node);
                let own = self.defined_names.contains(&name) || self.imports.contains_key(&name);
                if own {
                    self.member_violations(&self.resolve_paths(node))
                } else {
                    self.scan.rules.check_name(&name).into_iter().collect()
                }
            }
            "attribute" => self.member_violations(&self.resolve_paths(node)),
            // A class of the code itself may have any members, under an unqualified name.
            "class_pattern" if node.named_child_count() > 1 => {
                let name = node
                    .named_child(0)
                    .map(|n| self.dotted_name(n))
                    .unwrap_or_default();
                let own = self.defined_names.contains(&name) || self.imports.contains_key(&name);
                let hint =
                    "match the class alone, as in case int() as n, and read its members by name";
                let broken = (
                    CodeRule::Construct,
                    format!("case {name} with members"),
                    hint.to_owned(),
                );
                own.then_some(broken).into_iter().collect()
            }
            // Strings that name a way around the lists: format fields, annotations, names of members.
            "string_content" => {
                let text = self.scan.text(node);
                let mut words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
                let member = words
                    .find(|word| word.starts_with('_') && self.scan.rules.is_blocked_member(word));
                member.map(escape_violation).into_iter().collect()
            }
            "dotted_name" if is_pattern(node, above) => {
                self.member_violations(&self.resolve_paths(node))
            }
            "import_from_statement" => {
                let taken = self
                    .import_bindings(node)
                    .into_iter()
                    .map(|(_, import)| Path {
                        root: Root::Module,
                        module: import.module,
                        names: import.member.into_iter().collect(),
                    });
                self.member_violations(&taken.collect::<Vec<_>>())
            }
            _ => Vec::new(),
        };
        let any = self.scan.report_all(node, broken);
        if !any && self.scan.is_at_least(Level::Readonly) {
            self.check_writes(node, above);
        }
    }

    fn member_violations(&self, paths: &[Path]) -> Vec<RuleViolation> {
        let special = |name: &&String| {
            name.len() > 4
                && name.starts_with("__")
                && name.ends_with("__")
                && !contains_word(ALLOWED_DUNDERS, name)
        };
        let broken = paths.iter().filter_map(|path| {
            let special = path.names.last().filter(special);
            let broken = self.scan.rules.check_member(path);
            broken.or_else(|| special.map(|name| escape_violation(name)))
        });
        broken.collect()
    }

    /// A name in normal form (NFKC), as Python compares it: `ｅｖａｌ` is `eval`.
    fn normalized_name(&self, node: Node<'_>) -> String {
        let text = self.scan.text(node);
        if text.is_ascii() {
            text.to_owned()
        } else {
            text.nfkc().collect()
        }
    }

    /// A dotted name without the spaces that it may contain.
    fn dotted_name(&self, node: Node<'_>) -> String {
        match node.kind() {
            "dotted_name" => {
                let parts: Vec<String> = children(node)
                    .into_iter()
                    .map(|n| self.normalized_name(n))
                    .collect();
                parts.join(".")
            }
            _ => super::rules::strip_whitespace(&self.normalized_name(node)),
        }
    }

    /// The bindings of an import statement: each name with its import.
    fn import_bindings(&self, node: Node<'t>) -> Vec<(String, Import)> {
        let from = field(node, "module_name").map(|m| self.dotted_name(m));
        let mut out = Vec::new();
        for name in self.import_name_nodes(node) {
            let (name, alias) = match name.kind() {
                "aliased_import" => (field(name, "name"), field(name, "alias")),
                _ => (Some(name), None),
            };
            let name = name.map(|n| self.dotted_name(n)).unwrap_or_default();
            let alias = alias.map(|a| self.normalized_name(a));
            let first = name.split('.').next().unwrap_or_default().to_owned();
            let (bound, module, member) = match (&from, alias) {
                (Some(from), alias) => (alias.unwrap_or(first), from.clone(), Some(name)),
                (None, Some(alias)) => (alias, name, None),
                (None, None) => (first.clone(), first, None),
            };
            out.push((bound, Import { module, member }));
        }
        out
    }

    fn import_name_nodes(&self, node: Node<'t>) -> Vec<Node<'t>> {
        let module = field(node, "module_name");
        let names = children(node).into_iter();
        let names = names.filter(|n| ["dotted_name", "aliased_import"].contains(&n.kind()));
        names.filter(|n| Some(*n) != module).collect()
    }

    /// Resolves a chain of members, for each value that its first name may refer to.
    fn resolve_paths(&self, node: Node<'t>) -> Vec<Path> {
        if node.kind() == "dotted_name" {
            let names = children(node).into_iter().map(|n| self.normalized_name(n));
            return self.resolve_names(names.collect());
        }
        let (mut names, mut at) = (Vec::new(), strip_parentheses(node));
        while at.kind() == "attribute" && names.len() < MAX_CHAIN {
            names.extend(field(at, "attribute").map(|a| self.normalized_name(a)));
            let Some(object) = field(at, "object") else {
                break;
            };
            at = strip_parentheses(object);
        }
        let begins = at.kind() == "identifier";
        names.extend(begins.then(|| self.normalized_name(at)));
        names.reverse();
        if begins {
            self.resolve_names(names)
        } else {
            vec![Path {
                root: Root::Value,
                module: String::new(),
                names,
            }]
        }
    }

    fn resolve_names(&self, names: Vec<String>) -> Vec<Path> {
        let imports = names.first().and_then(|first| self.imports.get(first));
        let Some(imports) = imports else {
            return vec![Path {
                root: Root::Global,
                module: String::new(),
                names,
            }];
        };
        let path = |import: &Import| {
            let member = import.member.iter().cloned();
            Path {
                root: Root::Module,
                module: import.module.clone(),
                names: member.chain(names[1..].iter().cloned()).collect(),
            }
        };
        imports.iter().map(path).collect()
    }

    /// Reports a blocked name or member; true if it reported one.
    fn report_blocked(&mut self, node: Node<'t>) -> bool {
        let paths = self.resolve_paths(node);
        let broken: Vec<RuleViolation> = paths
            .iter()
            .filter_map(|p| self.scan.rules.check_path(p))
            .collect();
        self.scan.report_all(node, broken)
    }

    fn check_import(&mut self, node: Node<'t>) -> bool {
        let names = self.import_name_nodes(node).into_iter();
        let name = |n: Node<'t>| self.dotted_name(field(n, "name").unwrap_or(n));
        let names: Vec<String> = names.map(name).collect();
        let Some(module) = field(node, "module_name").map(|m| self.dotted_name(m)) else {
            let broken = names
                .iter()
                .filter_map(|name| self.scan.rules.check_import(name, &[]));
            let broken: Vec<RuleViolation> = broken.collect();
            return self.scan.report_all(node, broken);
        };
        let broken = self.scan.rules.check_import(&module, &names);
        if self.scan.report_all(node, broken) {
            return true;
        }
        let path = |name: String| Path {
            root: Root::Module,
            module: module.clone(),
            names: vec![name],
        };
        let paths: Vec<Path> = names.into_iter().map(path).collect();
        let broken: Vec<RuleViolation> = paths
            .iter()
            .filter_map(|p| self.scan.rules.check_path(p))
            .collect();
        self.scan.report_all(node, broken)
    }

    /// Checks modules and members that are named by a string.
    fn check_call(&mut self, node: Node<'t>) -> bool {
        let Some(function) = field(node, "function") else {
            return false;
        };
        let arguments = field(node, "arguments").map(children).unwrap_or_default();
        let text = |at: usize| arguments.get(at).and_then(|n| self.string_literal(*n));
        let mut broken = Vec::new();
        for path in self.resolve_paths(function) {
            match path
                .all_names()
                .iter()
                .map(String::as_str)
                .collect::<Vec<_>>()
                .as_slice()
            {
                ["__import__"] | [.., "importlib", "import_module"] => match text(0) {
                    Some(module) => broken.extend(self.scan.rules.check_import(&module, &[])),
                    None => broken.push(computed_import()),
                },
                ["getattr"] => {
                    let (Some(name), Some(object)) = (text(1), arguments.first()) else {
                        continue;
                    };
                    for mut path in self.resolve_paths(*object) {
                        path.names.push(name.clone());
                        broken.extend(self.scan.rules.check_path(&path));
                    }
                }
                _ => {}
            }
        }
        self.scan.report_all(node, broken)
    }

    /// The value of a literal string without escapes.
    fn string_literal(&self, node: Node<'t>) -> Option<String> {
        let node = strip_parentheses(node);
        if node.kind() == "concatenated_string" {
            let parts: Option<Vec<String>> = children(node)
                .into_iter()
                .map(|n| self.string_literal(n))
                .collect();
            return parts.map(|parts| parts.concat());
        }
        let parts = children(node);
        let plain =
            |n: &Node<'_>| ["string_start", "string_content", "string_end"].contains(&n.kind());
        if node.kind() != "string" || !parts.iter().all(plain) {
            return None;
        }
        let content = parts.iter().filter(|n| n.kind() == "string_content");
        let text: String = content.map(|n| self.scan.text(*n)).collect();
        (!text.contains('\\')).then_some(text)
    }
}

fn computed_import() -> RuleViolation {
    let hint = "name the module in an import statement".to_owned();
    let construct = "import of a computed name".to_owned();
    (CodeRule::DynamicImport, construct, hint)
}

/// True for a chain of members that a `case` compares with.
fn is_pattern(node: Node<'_>, above: &[Node<'_>]) -> bool {
    let imports = [
        "import_statement",
        "import_from_statement",
        "aliased_import",
    ];
    let imported = above.last().is_some_and(|n| imports.contains(&n.kind()));
    !imported && node.kind() == "dotted_name" && node.named_child_count() > 1
}
