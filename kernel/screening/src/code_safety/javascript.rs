//! The JavaScript check: resolves names, and finds blocked constructs.

mod strict;
mod writes;

use std::collections::{HashMap, HashSet};
use std::sync::LazyLock;

use tree_sitter::{Node, Query, Tree};

use super::lists::javascript::{GLOBAL_OBJECTS, TIMERS};
use super::path::{Import, MAX_CHAIN, Path, Root};
use super::policy::Level;
use super::rejection::CodeRule;
use super::rules::{RuleViolation, contains_word};
use super::scan::Scan;
use super::syntax_tree::{children, field, strip_parentheses, walk};

/// The query that assigns roles to nodes.
pub(super) static ROLES: LazyLock<Query> = LazyLock::new(|| {
    let language = tree_sitter_javascript::LANGUAGE.into();
    let query = include_str!("javascript/roles.scm");
    Query::new(&language, query).expect("the query is one of the grammar")
});

/// A check of JavaScript code.
struct JavaScript<'r, 's, 't> {
    scan: &'r mut Scan<'s, 't>,
    /// The imports that each name may refer to.
    imports: HashMap<String, Vec<Import>>,
    /// Names that the code defines.
    defined_names: HashSet<String>,
    /// The last token, without comments.
    last_token: Option<Node<'t>>,
}

/// Checks the code.
pub(super) fn check<'t>(scan: &mut Scan<'_, 't>, tree: &'t Tree) {
    let mut javascript = JavaScript {
        scan,
        imports: HashMap::new(),
        defined_names: HashSet::new(),
        last_token: None,
    };
    walk(tree.root_node(), |node, _| {
        javascript.collect_bindings(node);
        true
    });
    walk(tree.root_node(), |node, above| {
        javascript.check_node(node, above);
        javascript.check_ambiguous_slash(node);
        true
    });
}

impl<'t> JavaScript<'_, '_, 't> {
    fn collect_bindings(&mut self, node: Node<'t>) {
        match (node.kind(), self.scan.roles.role(node)) {
            ("identifier" | "shorthand_property_identifier_pattern", Some("made" | "written")) => {
                self.defined_names.insert(self.node_name(node));
            }
            ("import_statement", _) => self.collect_imports(node),
            _ => {}
        }
    }

    fn collect_imports(&mut self, node: Node<'t>) {
        let Some(module) = field(node, "source").and_then(|s| self.string_literal(s)) else {
            return;
        };
        let module = module.strip_prefix("node:").unwrap_or(&module).to_owned();
        let mut left = children(node);
        while let Some(part) = left.pop() {
            let (bound, member) = match part.kind() {
                "import_clause" | "named_imports" | "namespace_import" => {
                    left.extend(children(part));
                    continue;
                }
                "identifier" => (Some(part), None),
                "import_specifier" => {
                    let name = field(part, "name");
                    (
                        field(part, "alias").or(name),
                        name.map(|n| self.node_name(n)),
                    )
                }
                _ => continue,
            };
            let Some(bound) = bound.map(|b| self.node_name(b)) else {
                continue;
            };
            let member = member.filter(|member| member != "default");
            let module = module.clone();
            self.imports
                .entry(bound)
                .or_default()
                .push(Import { module, member });
        }
    }

    fn check_node(&mut self, node: Node<'t>, above: &[Node<'t>]) {
        let name = || self.scan.text(node).contains('\\');
        if node.kind().contains("identifier") && name() {
            let hint = "write the name without escapes".to_owned();
            let construct = self.scan.text(node).to_owned();
            self.scan
                .report(node, (CodeRule::HiddenText, construct, hint));
        }
        let blocked = match node.kind() {
            "import_statement" | "export_statement" => {
                let source = field(node, "source");
                source.is_some_and(|source| self.check_module_source(source))
            }
            "identifier" | "shorthand_property_identifier"
                if self.scan.roles.role(node).is_none()
                    && !self.is_inspection_only(node, above) =>
            {
                self.report_blocked(node)
            }
            "member_expression" | "subscript_expression" => {
                self.report_blocked(node) || self.check_constructor(node, above)
            }
            "pair_pattern" | "shorthand_property_identifier_pattern" => {
                let key = field(node, "key").unwrap_or(node);
                let constructor = self.node_name(key).trim_matches(['"', '\'']) == "constructor";
                self.scan
                    .report_all(node, constructor.then(generated_function))
            }
            "call_expression" => self.check_call(node),
            _ => false,
        };
        if self.scan.is_at_least(Level::Strict) && !blocked {
            self.check_strict(node, above);
        }
    }

    /// Reports a slash that this parser reads as a regular expression or an operator, and that a runtime
    /// may read as a division or a comment, which would hide the code in it.
    fn check_ambiguous_slash(&mut self, node: Node<'t>) {
        let from_here = self
            .scan
            .source
            .get(node.start_byte()..)
            .unwrap_or_default();
        let hint = match node.kind() {
            "regex"
                if self
                    .last_token
                    .is_some_and(|last| self.can_be_dividend(last)) =>
            {
                "end what stands before it with ;, or use new RegExp(\"…\")"
            }
            "<" if from_here.starts_with("<!--") => "write x < !(--y)",
            "--" if from_here.starts_with("-->") => "write x-- > y",
            _ => "",
        };
        if !hint.is_empty() {
            let construct = from_here.lines().next().unwrap_or_default().to_owned();
            self.scan
                .report(node, (CodeRule::HiddenText, construct, hint.to_owned()));
        }
        if node.child_count() == 0 && !node.is_extra() {
            self.last_token = Some(node);
        }
    }

    /// True if a value can end here, so that `/` divides it.
    fn can_be_dividend(&self, last: Node<'t>) -> bool {
        let text = self.scan.text(last);
        let word =
            |c: char| c.is_alphanumeric() || matches!(c, '_' | '$' | '"' | '\'' | '`' | '\\');
        let reserved = "return typeof case in delete void throw instanceof else do new";
        let named = last.kind().contains("identifier") || !contains_word(reserved, text);
        ["++", "--", ")", "]", "}"].contains(&text) || text.ends_with(word) && named
    }

    fn node_name(&self, node: Node<'_>) -> String {
        self.scan.text(node).to_owned()
    }

    /// The value of a literal string without escapes.
    fn string_literal(&self, node: Node<'_>) -> Option<String> {
        let text = self.scan.text(strip_parentheses(node));
        let inner = text.get(1..text.len().saturating_sub(1))?;
        let plain = match strip_parentheses(node).kind() {
            "string" => true,
            "template_string" => !inner.contains("${"),
            _ => false,
        };
        (plain && !inner.contains('\\')).then(|| inner.to_owned())
    }

    /// Resolves a chain of members, for each value that its first name may refer to.
    fn resolve_paths(&self, node: Node<'t>) -> Vec<Path> {
        let (mut names, mut at) = (Vec::new(), strip_parentheses(node));
        while names.len() < MAX_CHAIN {
            let name = match at.kind() {
                "member_expression" => field(at, "property").map(|p| self.node_name(p)),
                "subscript_expression" => field(at, "index").and_then(|i| self.string_literal(i)),
                _ => break,
            };
            let (Some(name), Some(object)) = (name, field(at, "object")) else {
                break;
            };
            names.push(name);
            at = strip_parentheses(object);
        }
        let begins = ["identifier", "shorthand_property_identifier"].contains(&at.kind());
        names.extend(begins.then(|| self.node_name(at)));
        names.reverse();
        if !begins {
            return vec![Path {
                root: Root::Value,
                module: String::new(),
                names,
            }];
        }
        let Some(imports) = self.imports.get(&names[0]) else {
            let known =
                |n: &String| !self.defined_names.contains(n) && contains_word(GLOBAL_OBJECTS, n);
            while names.len() > 1 && known(&names[0]) {
                names.remove(0);
            }
            return vec![Path {
                root: Root::Global,
                module: String::new(),
                names,
            }];
        };
        let path = |import: &Import| {
            let member = import.member.iter().cloned();
            let names = names[1..].iter().filter(|n| *n != "default").cloned();
            Path {
                root: Root::Module,
                module: import.module.clone(),
                names: member.chain(names).collect(),
            }
        };
        imports.iter().map(path).collect()
    }

    fn report_blocked(&mut self, node: Node<'t>) -> bool {
        let paths = self.resolve_paths(node);
        let broken: Vec<RuleViolation> = paths
            .iter()
            .filter_map(|p| self.scan.rules.check_path(p))
            .collect();
        self.scan.report_all(node, broken)
    }

    /// True if the node is only inspected: `typeof eval`, `x instanceof Function`,
    /// `Function.prototype.call`.
    fn is_inspection_only(&self, node: Node<'t>, above: &[Node<'t>]) -> bool {
        let Some(parent) = above
            .last()
            .filter(|_| !self.scan.is_at_least(Level::Strict))
        else {
            return false;
        };
        let operator = || field(*parent, "operator").map_or("", |o| self.scan.text(o));
        match parent.kind() {
            "unary_expression" => operator() == "typeof",
            "binary_expression" => ["===", "!==", "==", "!=", "instanceof"].contains(&operator()),
            "member_expression" => {
                let property = field(*parent, "property").map_or("", |p| self.scan.text(p));
                let then = above
                    .iter()
                    .rev()
                    .nth(1)
                    .and_then(|n| field(*n, "property"));
                let then = then.map_or("", |p| self.scan.text(p));
                let lent = ["call", "apply", "bind", "toString"].contains(&then);
                self.scan.text(node) == "Function"
                    && (property == "name" || property == "prototype" && lent)
            }
            _ => false,
        }
    }

    /// Reports the constructor of a function, which creates functions from text.
    fn check_constructor(&mut self, node: Node<'t>, above: &[Node<'t>]) -> bool {
        let path = self.resolve_paths(node).pop();
        if path.and_then(|mut p| p.names.pop()).as_deref() != Some("constructor") {
            return false;
        }
        let mut above = above
            .iter()
            .rev()
            .filter(|n| n.kind() != "parenthesized_expression");
        let harmless = above.next().is_none_or(|parent| {
            let is = |name: &str| field(*parent, name).map(strip_parentheses) == Some(node);
            let operator = field(*parent, "operator").map_or("", |o| self.scan.text(o));
            let own = field(node, "object").is_some_and(|o| o.kind() == "this");
            match parent.kind() {
                "member_expression" => {
                    let next = field(*parent, "property").map_or("", |p| self.scan.text(p));
                    is("object") && !contains_word("constructor call apply bind __proto__", next)
                }
                "binary_expression" => contains_word("=== !== == != instanceof", operator),
                "new_expression" => own && is("constructor"),
                "assignment_expression" => is("left"),
                "expression_statement" => true,
                "unary_expression" => operator == "typeof",
                _ => false,
            }
        });
        self.scan
            .report_all(node, (!harmless).then(generated_function))
    }

    fn check_call(&mut self, node: Node<'t>) -> bool {
        let Some(function) = field(node, "function") else {
            return false;
        };
        let first = field(node, "arguments").and_then(|a| children(a).first().copied());
        if function.kind() == "import" {
            return first.is_none_or(|first| self.check_module_source(first));
        }
        let mut paths = self.resolve_paths(function);
        let Some(path) = paths.pop().map(|p| p.all_names()) else {
            return false;
        };
        match path
            .iter()
            .map(String::as_str)
            .collect::<Vec<_>>()
            .as_slice()
        {
            ["require"] | [.., "module" | "mainModule" | "main", "require"] => {
                first.is_none_or(|first| self.check_module_source(first))
            }
            [timer] if contains_word(TIMERS, timer) => {
                let texts = ["string", "template_string", "binary_expression"];
                let text = first.is_some_and(|f| texts.contains(&strip_parentheses(f).kind()));
                let hint = "give the timer a function".to_owned();
                let broken = (CodeRule::BlockedPattern, format!("{timer} with text"), hint);
                self.scan.report_all(node, text.then_some(broken))
            }
            _ => false,
        }
    }

    /// Checks the module that is imported here.
    fn check_module_source(&mut self, source: Node<'t>) -> bool {
        let Some(name) = self.string_literal(source) else {
            let hint = "name the module in an import statement".to_owned();
            let construct = "import of a computed name".to_owned();
            self.scan
                .report(source, (CodeRule::DynamicImport, construct, hint));
            return true;
        };
        let lower = name.to_ascii_lowercase();
        let schemes = ["data:", "http:", "https:", "blob:", "file:"];
        if schemes.iter().any(|s| lower.starts_with(s)) {
            let hint = "import by the name of a package".to_owned();
            self.scan
                .report(source, (CodeRule::BlockedImport, name, hint));
            return true;
        }
        let broken = self
            .scan
            .rules
            .check_import(name.strip_prefix("node:").unwrap_or(&name), &[]);
        self.scan.report_all(source, broken)
    }
}

fn generated_function() -> RuleViolation {
    let hint = "the constructor of a function makes functions from text; name the class".to_owned();
    (CodeRule::BlockedPattern, "constructor".to_owned(), hint)
}
