//! JavaScript: what names are bound to, and what nodes do.

mod calls;
pub(super) mod danger;
mod values;

use tree_sitter::Node;

use super::fold;
use super::policy::Level;
use super::rejection::Rule;
use super::rules::Broken;
use super::scan::{Reader, Scan};
use super::tree::{bare, children, field};
use super::value::{Root, Value, Values, texts};
use values::{members, module, settled};

pub(super) struct JavaScript<'s> {
    pub(super) scan: Scan<'s>,
}

impl<'s> Reader<'s> for JavaScript<'s> {
    fn scan(&mut self) -> &mut Scan<'s> {
        &mut self.scan
    }

    fn bind(&mut self, node: Node<'_>, _: &[Node<'_>]) {
        match node.kind() {
            "variable_declarator" => self.bind_parts(field(node, "name"), field(node, "value")),
            "assignment_expression" => self.bind_parts(field(node, "left"), field(node, "right")),
            "augmented_assignment_expression" | "for_in_statement" => {
                self.bind_parts(field(node, "left"), None)
            }
            "formal_parameters" => children(node)
                .into_iter()
                .for_each(|p| self.bind_pattern(p, vec![Value::Unknown])),
            "arrow_function" | "catch_clause" => self.bind_parts(field(node, "parameter"), None),
            "function_declaration"
            | "generator_function_declaration"
            | "class_declaration"
            | "function_expression"
            | "class" => self.bind_parts(field(node, "name"), None),
            "import_statement" => self.bind_imports(node),
            _ => {}
        }
    }

    fn look(&mut self, node: Node<'_>, above: &[Node<'_>]) {
        match node.kind() {
            "import_statement" | "export_statement" => {
                let source = field(node, "source").map(|s| self.values(s, 0));
                let broken = source.map(|s| self.imported(&s)).unwrap_or_default();
                self.scan.report_all(node, broken);
            }
            "identifier" | "shorthand_property_identifier" if is_reference(node, above) => {
                self.judge(node, above)
            }
            "member_expression" | "subscript_expression" => {
                self.judge(node, above);
                self.look_at_member(node, above);
            }
            "call_expression" | "new_expression" => {
                self.judge(node, above);
                self.look_at_call(node);
            }
            "ternary_expression" | "binary_expression" => self.judge(node, above),
            "pair_pattern" | "shorthand_property_identifier_pattern" => self.look_at_pattern(node),
            "with_statement" => {
                let hint = "its names cannot be followed; name the object".to_owned();
                self.scan
                    .report(node, (Rule::BlockedPattern, "with (".to_owned(), hint));
            }
            "html_comment" => {
                let hint = "it is a comment in a script and code in a module; use //".to_owned();
                self.scan
                    .report(node, (Rule::HiddenText, "<!--".to_owned(), hint));
            }
            _ => {}
        }
    }
}

impl<'s> JavaScript<'s> {
    pub(super) fn new(scan: Scan<'s>) -> Self {
        Self { scan }
    }

    /// A name without its escapes: `\u0065val` is `eval`.
    fn name(&self, node: Node<'_>) -> String {
        let text = self.scan.text(node);
        let escaped = text
            .contains('\\')
            .then(|| fold::javascript(text))
            .flatten();
        escaped.unwrap_or_else(|| text.to_owned())
    }

    fn bind_parts(&mut self, target: Option<Node<'_>>, value: Option<Node<'_>>) {
        let Some(target) = target else { return };
        let values = value.map_or_else(|| vec![Value::Unknown], |v| self.values(v, 0));
        self.bind_pattern(target, values);
    }

    /// Binds the names in a pattern to the parts of what it is given.
    fn bind_pattern(&mut self, target: Node<'_>, values: Values) {
        let mut left = vec![(target, values)];
        while let Some((node, values)) = left.pop() {
            match node.kind() {
                "identifier" | "shorthand_property_identifier_pattern" => {
                    let name = self.name(node);
                    self.scan.bind(&name, values);
                }
                "parenthesized_expression" => left.push((bare(node), values)),
                "object_pattern" => {
                    for part in children(node) {
                        let key = self.key(part);
                        let of_key = members(&values, &key);
                        let inner = field(part, "value")
                            .or_else(|| field(part, "left"))
                            .unwrap_or(part);
                        if part.kind() == "object_assignment_pattern" {
                            left.push((part, of_key));
                        } else {
                            left.push((inner, of_key));
                        }
                    }
                }
                "assignment_pattern" | "object_assignment_pattern" => {
                    let mut all = values;
                    all.extend(
                        field(node, "right")
                            .map(|d| self.values(d, 0))
                            .unwrap_or_default(),
                    );
                    left.extend(field(node, "left").map(|inner| (inner, all)));
                }
                "array_pattern" | "rest_pattern" => {
                    left.extend(
                        children(node)
                            .into_iter()
                            .map(|n| (n, vec![Value::Unknown])),
                    );
                }
                _ => {}
            }
        }
    }

    /// The key that a part of an object pattern takes.
    fn key(&self, part: Node<'_>) -> Values {
        let key = field(part, "key")
            .or_else(|| field(part, "left"))
            .unwrap_or(part);
        match key.kind() {
            "computed_property_name" => children(key)
                .first()
                .map_or_else(Values::new, |n| self.values(*n, 0)),
            "string" => self.values(key, 0),
            "object_pattern" | "array_pattern" | "rest_pattern" => vec![Value::Unknown],
            _ => vec![Value::Text(self.name(key))],
        }
    }

    fn bind_imports(&mut self, node: Node<'_>) {
        let Some(source) = field(node, "source").map(|s| self.values(s, 0)) else {
            return;
        };
        let Some(&[source]) = texts(&source).as_deref() else {
            return;
        };
        let from = module(source);
        let mut left = children(node);
        while let Some(part) = left.pop() {
            match part.kind() {
                "identifier" => self.bind_pattern(part, vec![settled(from.clone())]),
                "namespace_import" => left.extend(children(part)),
                "import_specifier" => {
                    let name = field(part, "name")
                        .map(|n| self.name(n))
                        .unwrap_or_default();
                    let bound = field(part, "alias").or_else(|| field(part, "name"));
                    if let Some(bound) = bound {
                        let bound = self.name(bound);
                        self.scan.bind(
                            &bound,
                            [settled(from.member(name.trim_matches(['"', '\''])))],
                        );
                    }
                }
                "import_clause" | "named_imports" => left.extend(children(part)),
                _ => {}
            }
        }
    }

    /// What is wrong with importing this.
    fn imported(&self, source: &[Value]) -> Vec<Broken> {
        let Some(names) = texts(source) else {
            let hint = "name the module in an import statement".to_owned();
            return vec![(
                Rule::DynamicImport,
                "import of a computed name".to_owned(),
                hint,
            )];
        };
        let one = |name: &&str| {
            let lower = name.to_ascii_lowercase();
            if ["data:", "http:", "https:", "blob:", "file:"]
                .iter()
                .any(|s| lower.starts_with(s))
            {
                let hint = "import by the name of a package".to_owned();
                return Some((Rule::BlockedImport, (*name).to_owned(), hint));
            }
            self.scan
                .rules
                .import(name.strip_prefix("node:").unwrap_or(name), &[])
        };
        names.iter().filter_map(one).collect()
    }

    /// Judges what an expression may be.
    fn judge(&mut self, node: Node<'_>, above: &[Node<'_>]) {
        let harmless = is_harmless(node, above, &self.scan);
        let own = field(node, "object").is_some_and(|o| o.kind() == "this")
            && above
                .iter()
                .any(|n| ["class_body", "method_definition"].contains(&n.kind()));
        let made = node.kind() == "identifier" && self.scan.names.get(&self.name(node)).is_some();
        for value in self.values(node, 0) {
            let Value::Path(root, names) = &value else {
                continue;
            };
            if harmless || (own && *root == Root::Global && names.len() == 1) {
                continue;
            }
            let broken = self.scan.rules.path(*root, names);
            let found = broken.is_some();
            self.scan.report_all(node, broken);
            let made = made && *root == Root::Global;
            if !found && !made && self.scan.rules.watched(&value) && !is_used_well(node, above) {
                let hint = "use its members by name where they are needed".to_owned();
                self.scan
                    .report(node, (Rule::HandedOn, names.join("."), hint));
            }
        }
    }

    fn look_at_member(&mut self, node: Node<'_>, above: &[Node<'_>]) {
        let Some(object) = field(node, "object").map(bare) else {
            return;
        };
        if let Some(index) = field(node, "index") {
            let known = texts(&self.values(index, 0)).is_some() || bare(index).kind() == "number";
            let literal = [
                "function_expression",
                "arrow_function",
                "class",
                "regex",
                "generator_function",
            ];
            let empty = object.kind() == "array" && children(object).is_empty();
            let world = self
                .values(object, 0)
                .iter()
                .any(|v| self.scan.rules.watched(v));
            if !known && (world || empty || literal.contains(&object.kind())) {
                let hint = "name the member".to_owned();
                self.scan.report(
                    node,
                    (Rule::DynamicName, "a computed member".to_owned(), hint),
                );
            }
        }
        let constructor = |v: &Value| matches!(v, Value::Path(_, names) if names.last().is_some_and(|n| n == "constructor"));
        if self.values(node, 0).iter().any(constructor)
            && !self.is_plain_constructor(node, object, above)
        {
            self.scan.report(node, made_function());
        }
    }

    /// `x.constructor.name`, `x.constructor === Y`, `new this.constructor(...)`: not the way to `Function`.
    fn is_plain_constructor(&self, node: Node<'_>, object: Node<'_>, above: &[Node<'_>]) -> bool {
        let mut above = above
            .iter()
            .rev()
            .skip_while(|n| n.kind() == "parenthesized_expression");
        let Some(parent) = above.next() else {
            return true;
        };
        let is = |name: &str| field(*parent, name).map(bare) == Some(node);
        let own = object.kind() == "this" && self.scan.rules.level() < Level::Strict;
        match parent.kind() {
            "member_expression" => {
                is("object") && {
                    let next = field(*parent, "property")
                        .map(|p| self.name(p))
                        .unwrap_or_default();
                    !["constructor", "call", "apply", "bind", "__proto__"].contains(&next.as_str())
                }
            }
            "binary_expression" => {
                let operator = field(*parent, "operator").map_or("", |o| self.scan.text(o));
                ["===", "!==", "==", "!=", "instanceof"].contains(&operator)
            }
            "new_expression" => own && is("constructor"),
            "assignment_expression" => is("left"),
            "expression_statement" => true,
            "unary_expression" => {
                field(*parent, "operator").is_some_and(|o| self.scan.text(o) == "typeof")
            }
            _ => false,
        }
    }

    fn look_at_pattern(&mut self, node: Node<'_>) {
        let key = match node.kind() {
            "pair_pattern" => self.key(node),
            _ => vec![Value::Text(self.name(node))],
        };
        if texts(&key).is_some_and(|k| k.contains(&"constructor")) {
            self.scan.report(node, made_function());
        }
    }
}

fn made_function() -> Broken {
    let hint = "the constructor of a function makes functions from text; name the class".to_owned();
    (Rule::BlockedPattern, "constructor".to_owned(), hint)
}

/// `typeof eval`, `x instanceof Function`, `Function.prototype.call`: asking about it does nothing.
fn is_harmless(node: Node<'_>, above: &[Node<'_>], scan: &Scan<'_>) -> bool {
    let Some(parent) = above.last() else {
        return false;
    };
    let operator = || field(*parent, "operator").map_or("", |o| scan.text(o));
    match parent.kind() {
        "unary_expression" => operator() == "typeof",
        "binary_expression" => ["===", "!==", "==", "!=", "instanceof"].contains(&operator()),
        "member_expression" => {
            let property = field(*parent, "property").map_or("", |p| scan.text(p));
            let then = above
                .iter()
                .rev()
                .nth(1)
                .and_then(|n| field(*n, "property"))
                .map_or("", |p| scan.text(p));
            scan.text(node) == "Function"
                && (property == "name"
                    || property == "prototype"
                        && ["call", "apply", "bind", "toString"].contains(&then))
        }
        _ => false,
    }
}

/// Can what becomes of it be followed from here?
fn is_used_well(node: Node<'_>, above: &[Node<'_>]) -> bool {
    let mut above = above
        .iter()
        .rev()
        .skip_while(|n| n.kind() == "parenthesized_expression");
    let Some(parent) = above.next() else {
        return true;
    };
    let is = |name: &str| field(*parent, name).map(bare) == Some(node);
    match parent.kind() {
        // A computed member is judged by its key.
        "member_expression" | "subscript_expression" => is("object"),
        "call_expression" => is("function"),
        "variable_declarator" => is("value"),
        "assignment_expression" => {
            let target = field(*parent, "left")
                .map(|l| bare(l).kind())
                .unwrap_or_default();
            is("left") || ["identifier", "object_pattern"].contains(&target)
        }
        "assignment_pattern" | "object_assignment_pattern" => is("right"),
        "binary_expression"
        | "ternary_expression"
        | "unary_expression"
        | "expression_statement"
        | "sequence_expression"
        | "if_statement"
        | "await_expression" => true,
        _ => false,
    }
}

/// Is the name used here, and not made?
fn is_reference(node: Node<'_>, above: &[Node<'_>]) -> bool {
    let Some(parent) = above.last() else {
        return true;
    };
    let is = |name: &str| field(*parent, name) == Some(node);
    match parent.kind() {
        "variable_declarator"
        | "function_declaration"
        | "generator_function_declaration"
        | "class_declaration"
        | "function_expression"
        | "generator_function"
        | "class" => !is("name"),
        "assignment_expression" | "assignment_pattern" | "for_in_statement" => !is("left"),
        "arrow_function" | "catch_clause" => !is("parameter"),
        "formal_parameters" | "array_pattern" | "rest_pattern" | "import_specifier"
        | "import_clause" | "namespace_import" => false,
        "pair_pattern" => false,
        _ => true,
    }
}
