//! Python: what names are bound to, what expressions may be, and what nodes do.

mod calls;
pub(super) mod danger;
mod values;

use tree_sitter::Node;
use unicode_normalization::UnicodeNormalization;

use super::policy::Level;
use super::rejection::Rule;
use super::rules::write;
use super::scan::{Reader, Scan};
use super::tree::{bare, children, field, fields};
use super::value::{Root, Value, texts};

pub(super) struct Python<'s> {
    pub(super) scan: Scan<'s>,
}

impl<'s> Reader<'s> for Python<'s> {
    fn scan(&mut self) -> &mut Scan<'s> {
        &mut self.scan
    }

    fn bind(&mut self, node: Node<'_>, _: &[Node<'_>]) {
        match node.kind() {
            "assignment" => {
                if let (Some(left), Some(right)) = (field(node, "left"), field(node, "right")) {
                    self.assign(left, right);
                }
            }
            "named_expression" => self.bind_value(node, "name", false),
            "default_parameter" | "typed_default_parameter" => self.bind_value(node, "name", true),
            "augmented_assignment" | "for_statement" | "for_in_clause" => {
                fields(node, "left")
                    .into_iter()
                    .for_each(|left| self.bind_unknown(left));
            }
            "parameters" | "lambda_parameters" => {
                let plain = children(node);
                let plain = plain.into_iter().filter(|p| field(*p, "value").is_none());
                plain.for_each(|p| self.bind_unknown(p));
            }
            "as_pattern_target" | "case_pattern" => self.bind_unknown(node),
            "function_definition" | "class_definition" => {
                fields(node, "name")
                    .into_iter()
                    .for_each(|name| self.bind_unknown(name));
            }
            "import_statement" | "import_from_statement" => self.bind_imports(node),
            _ => {}
        }
    }

    fn look(&mut self, node: Node<'_>, above: &[Node<'_>]) {
        match node.kind() {
            "import_statement" | "import_from_statement" => self.look_at_import(node),
            "exec_statement" => {
                let broken = self.scan.rules.path(Root::Global, &["exec".to_owned()]);
                self.scan.report_all(node, broken);
            }
            "identifier" if is_reference(node, above) => self.judge(node, above),
            "attribute" | "subscript" | "boolean_operator" | "conditional_expression" => {
                self.judge(node, above);
            }
            "call" => {
                self.judge(node, above);
                self.look_at_call(node);
            }
            _ => {}
        }
    }
}

impl<'s> Python<'s> {
    pub(super) fn new(scan: Scan<'s>) -> Self {
        Self { scan }
    }

    /// A name as Python compares it: `ｅｖａｌ` is `eval`.
    fn name(&self, node: Node<'_>) -> String {
        let text = self.scan.text(node);
        if text.is_ascii() {
            text.to_owned()
        } else {
            text.nfkc().collect()
        }
    }

    fn assign(&mut self, left: Node<'_>, right: Node<'_>) {
        let (left, right) = (bare(left), bare(right));
        if left.kind() == "identifier" {
            let (name, values) = (self.name(left), self.values(right, 0));
            self.scan.bind(&name, values);
            return;
        }
        if !is_tuple(left) {
            return;
        }
        let (lefts, rights) = (children(left), children(right));
        if is_tuple(right) && pairs(&lefts, &rights) {
            lefts
                .into_iter()
                .zip(rights)
                .for_each(|(l, r)| self.assign(l, r));
        } else {
            self.bind_unknown(left);
        }
    }

    fn bind_value(&mut self, node: Node<'_>, name: &str, or_unknown: bool) {
        if let (Some(name), Some(value)) = (field(node, name), field(node, "value")) {
            let (name, mut values) = (self.name(name), self.values(value, 0));
            values.extend(or_unknown.then_some(Value::Unknown));
            self.scan.bind(&name, values);
        }
    }

    /// Every name in a target, to something unknown.
    fn bind_unknown(&mut self, target: Node<'_>) {
        let mut left = vec![target];
        while let Some(node) = left.pop() {
            match node.kind() {
                "identifier" => {
                    let name = self.name(node);
                    self.scan.bind(&name, [Value::Unknown]);
                }
                // Names in these are used, not bound.
                "attribute" | "subscript" | "type" | "call" => {}
                _ => left.extend(children(node)),
            }
        }
    }

    fn bind_imports(&mut self, node: Node<'_>) {
        let from = field(node, "module_name").map(|m| self.module(m));
        for (name, alias) in self.imported(node) {
            let path = match &from {
                Some(module) => Value::module(&format!("{module}.{name}")),
                None if alias.is_some() => Value::module(&name),
                None => Value::module(first(&name)),
            };
            let bound = alias.unwrap_or_else(|| match &from {
                Some(_) => name.clone(),
                None => first(&name).to_owned(),
            });
            self.scan.bind(&bound, [self.settled(path)]);
        }
    }

    /// The imported names of a statement, each with its alias.
    fn imported(&self, node: Node<'_>) -> Vec<(String, Option<String>)> {
        let names = fields(node, "name").into_iter().map(|name| {
            if name.kind() == "aliased_import" {
                let alias = field(name, "alias").map(|a| self.name(a));
                (
                    field(name, "name").map_or_else(String::new, |n| self.module(n)),
                    alias,
                )
            } else {
                (self.module(name), None)
            }
        });
        names.collect()
    }

    /// A dotted name without the spaces that may stand in it.
    fn module(&self, node: Node<'_>) -> String {
        match node.kind() {
            "dotted_name" => {
                let parts: Vec<String> = children(node).into_iter().map(|n| self.name(n)).collect();
                parts.join(".")
            }
            _ => super::rules::squeezed(&self.name(node)),
        }
    }

    fn look_at_import(&mut self, node: Node<'_>) {
        let names: Vec<String> = self
            .imported(node)
            .into_iter()
            .map(|(name, _)| name)
            .collect();
        let Some(module) = field(node, "module_name").map(|m| self.module(m)) else {
            for name in names {
                let broken = self.scan.rules.import(&name, &[]);
                self.scan.report_all(node, broken);
            }
            return;
        };
        let broken = self.scan.rules.import(&module, &names);
        self.scan.report_all(node, broken);
        for name in &names {
            if let Value::Path(root, path) =
                self.settled(Value::module(&format!("{module}.{name}")))
            {
                let broken = self.scan.rules.path(root, &path);
                self.scan.report_all(node, broken);
            }
        }
        let star = children(node).iter().any(|n| n.kind() == "wildcard_import");
        if star && self.scan.rules.watched(&Value::module(&module)) {
            let hint = format!("name what is taken from {module}");
            self.scan.report(
                node,
                (Rule::HandedOn, format!("from {module} import *"), hint),
            );
        }
    }

    /// Judges what an expression may be.
    fn judge(&mut self, node: Node<'_>, above: &[Node<'_>]) {
        for value in self.values(node, 0) {
            let Value::Path(root, names) = &value else {
                continue;
            };
            let broken = self.scan.rules.path(*root, names);
            let found = broken.is_some();
            self.scan.report_all(node, broken);
            if *root == Root::Module && ["call", "subscript"].contains(&node.kind()) {
                let broken = self.scan.rules.import(&names.join("."), &[]);
                self.scan.report_all(node, broken);
            }
            let opens = *root == Root::Global && names == &["open"]
                || names.ends_with(&["io".to_owned(), "open".to_owned()]);
            if opens && self.scan.rules.level() == Level::Readonly {
                let called = above.last().and_then(|call| field(*call, "function")) == Some(node);
                if !called && !self.is_used_well(node, above) {
                    self.scan.report(node, write("open, handed on"));
                }
            }
            let itself = node.kind() != "attribute" || self.member_values(node, 0).contains(&value);
            let careful = itself && (self.scan.rules.watched(&value) || is_table(*root, names));
            if !found && careful && !self.is_used_well(node, above) {
                let hint = "use its members by name where they are needed".to_owned();
                self.scan
                    .report(node, (Rule::HandedOn, names.join("."), hint));
            }
        }
    }

    /// Can what becomes of the module or its table be followed from here?
    fn is_used_well(&self, node: Node<'_>, above: &[Node<'_>]) -> bool {
        let mut above = above
            .iter()
            .rev()
            .skip_while(|n| n.kind() == "parenthesized_expression");
        let Some(parent) = above.next() else {
            return true;
        };
        let is = |name: &str| field(*parent, name).map(bare) == Some(node);
        match parent.kind() {
            "attribute" => self.is_member_used_well(node, *parent),
            "subscript" => is("value") && self.is_known_key(children(*parent).get(1).copied()),
            "named_expression" | "default_parameter" | "typed_default_parameter" => is("value"),
            "assignment" => {
                let to_name =
                    field(*parent, "left").is_some_and(|l| bare(l).kind() == "identifier");
                is("left") || to_name
            }
            "expression_list" | "tuple" => above.next().is_some_and(|statement| {
                let sides = (field(*statement, "left"), field(*statement, "right"));
                let (Some(left), Some(right)) = sides else {
                    return false;
                };
                bare(right) == *parent
                    && is_tuple(left)
                    && pairs(&children(left), &children(*parent))
            }),
            "argument_list" => above
                .next()
                .is_some_and(|call| self.is_looked_into(*call, node)),
            "boolean_operator"
            | "conditional_expression"
            | "comparison_operator"
            | "not_operator"
            | "expression_statement"
            | "if_statement"
            | "delete_statement"
            | "dotted_name" => true,
            _ => false,
        }
    }

    /// Members of a module are judged by themselves; a table of names only answers known ones.
    fn is_member_used_well(&self, node: Node<'_>, member: Node<'_>) -> bool {
        let table = |v: &Value| matches!(v, Value::Path(root, names) if is_table(*root, names));
        let name = field(member, "attribute")
            .map(|a| self.name(a))
            .unwrap_or_default();
        !self.values(node, 0).iter().any(table)
            || ["get", "keys", "pop", "setdefault", "__contains__"].contains(&name.as_str())
    }

    fn is_known_key(&self, key: Option<Node<'_>>) -> bool {
        key.is_some_and(|key| {
            texts(&self.values(key, 0)).is_some() || self.scan.text(key) == "__name__"
        })
    }

    /// `getattr(os, ...)` and the like, which are judged by what they answer.
    fn is_looked_into(&self, call: Node<'_>, node: Node<'_>) -> bool {
        let first = field(call, "arguments").and_then(|a| children(a).first().copied());
        let function = field(call, "function")
            .map(|f| self.values(f, 0))
            .unwrap_or_default();
        first.map(bare) == Some(node)
            && ["getattr", "hasattr", "vars", "dir"]
                .iter()
                .any(|f| function.contains(&Value::global(f)))
    }
}

/// `globals()`, `vars(os)`, `os.__dict__`, `sys.modules`: what they hold is found by key.
fn is_table(root: Root, names: &[String]) -> bool {
    let last = names.last().map_or("", String::as_str);
    root != Root::Unknown
        && (last == "__dict__" || names.ends_with(&["sys".to_owned(), "modules".to_owned()]))
}

fn is_tuple(node: Node<'_>) -> bool {
    [
        "pattern_list",
        "tuple_pattern",
        "list_pattern",
        "expression_list",
        "tuple",
        "list",
    ]
    .contains(&node.kind())
}

fn pairs(lefts: &[Node<'_>], rights: &[Node<'_>]) -> bool {
    let splat = |n: &Node<'_>| n.kind().contains("splat");
    lefts.len() == rights.len() && !lefts.iter().chain(rights).any(splat)
}

fn first(module: &str) -> &str {
    module.split('.').next().unwrap_or(module)
}

/// Is the name used here, and not made, or the name of a member or an argument?
fn is_reference(node: Node<'_>, above: &[Node<'_>]) -> bool {
    let Some(parent) = above.last() else {
        return true;
    };
    let is = |name: &str| field(*parent, name) == Some(node);
    match parent.kind() {
        "attribute" => is("object"),
        "keyword_argument" | "default_parameter" | "typed_default_parameter" => !is("name"),
        "assignment" => !is("left"),
        "function_definition" | "class_definition" | "named_expression" => !is("name"),
        "dotted_name" | "aliased_import" | "parameters" | "lambda_parameters"
        | "global_statement" | "nonlocal_statement" | "keyword_pattern" | "typed_parameter" => {
            false
        }
        _ => true,
    }
}
