//! JavaScript from `strict` on: every global, and every member of one or of a module, is on a list, or
//! it is refused; members are named where they are used.

use tree_sitter::Node;

use super::JavaScript;
use crate::code_safety::lists::javascript::TIMERS;
use crate::code_safety::path::{Path, Root};
use crate::code_safety::policy::Level;
use crate::code_safety::rejection::CodeRule;
use crate::code_safety::rules::{Broken, Use, has};
use crate::code_safety::tree::{bare, children, field};

/// Operators whose result is a number.
const NUMERIC: &str = "- * / % ** | & ^ << >> >>>";

impl<'t> JavaScript<'_, '_, 't> {
    pub(super) fn look_strictly(&mut self, node: Node<'t>, above: &[Node<'t>]) {
        let role = self.scan.roles.of_node(node);
        match node.kind() {
            "import_specifier" => self.look_at_taken(node, above),
            "identifier" | "shorthand_property_identifier" if role.is_none() => {
                self.look_at_name(node, above);
            }
            "identifier" | "shorthand_property_identifier_pattern" => self.look_at_made(node, role),
            "member_expression" => self.look_at_member(node, above),
            "subscript_expression" => {
                self.look_at_index(node);
                self.look_at_member(node, above);
            }
            "property_identifier" | "private_property_identifier" => self.look_at_word(node, above),
            "string" if above.last().is_some_and(|n| field(*n, "key") == Some(node)) => {
                self.look_at_word(node, above);
            }
            "this" if !above.iter().any(|n| n.kind() == "class_body") => {
                let hint =
                    "outside of a class it may be the global object; use a class, or a parameter";
                self.refuse(node, "this", hint);
            }
            "meta_property" => {
                let url = above.last().and_then(|n| field(*n, "property"));
                if !url.is_some_and(|p| has("url dirname filename", self.scan.text(p))) {
                    self.refuse(
                        node,
                        self.scan.text(node),
                        "of import.meta only url, dirname and filename",
                    );
                }
            }
            _ => {}
        }
        if self.scan.at_least(Level::Readonly) {
            self.look_for_writes(node, above);
        }
    }

    fn refuse(&mut self, node: Node<'t>, construct: &str, hint: &str) {
        self.scan.report(
            node,
            (CodeRule::Construct, construct.to_owned(), hint.to_owned()),
        );
    }

    /// `import { member } from "module"`.
    fn look_at_taken(&mut self, node: Node<'t>, above: &[Node<'t>]) {
        let statement = above.iter().find(|n| n.kind() == "import_statement");
        let source = statement.and_then(|s| field(*s, "source"));
        let module = source.and_then(|s| self.literal(s)).unwrap_or_default();
        let name = field(node, "name")
            .map(|n| self.name(n))
            .unwrap_or_default();
        let path = Path {
            root: Root::Module,
            module: module.strip_prefix("node:").unwrap_or(&module).to_owned(),
            names: vec![name.trim_matches(['"', '\'']).to_owned()],
        };
        if name != "default" {
            let broken = self.scan.rules.listed(&path).err();
            self.scan.report_all(node, broken);
        }
    }

    /// A name that the code makes.
    fn look_at_made(&mut self, node: Node<'t>, role: Option<&str>) {
        let name = self.name(node);
        if role == Some("import") {
            // `import { member as name }`: the member was judged with its module.
            return;
        }
        let taken = has("Object process", &name)
            || role.is_some() && self.scan.rules.refused(&name).is_some();
        if taken && role != Some("word") {
            let hint = format!("{name} is a name of the runtime; choose another one");
            self.scan.report(node, (CodeRule::NotListed, name, hint));
        }
        if node.kind() == "shorthand_property_identifier_pattern" {
            self.look_at_word(node, &[]);
        }
    }

    /// The name of a member, wherever it stands.
    fn look_at_word(&mut self, node: Node<'t>, above: &[Node<'t>]) {
        let text = self.name(node);
        let word = text.trim_matches(['"', '\'']);
        let parent = above.last();
        let method = parent.is_some_and(|n| n.kind() == "method_definition")
            && above
                .iter()
                .rev()
                .nth(1)
                .is_some_and(|n| n.kind() == "class_body");
        // A member was judged with what it is of.
        let member = parent.is_some_and(|n| n.kind() == "member_expression");
        let path = Path {
            root: Root::Value,
            module: String::new(),
            names: vec![word.to_owned()],
        };
        if !(member || method && word == "constructor") {
            let broken = self.scan.rules.listed(&path).err();
            self.scan.report_all(node, broken);
        }
        if text.contains('\\') {
            self.refuse(node, &text, "write the key without escapes");
        }
        let private = word.starts_with('_') && word != "_" && !self.own.contains(word);
        if member && private {
            let hint = "private members are those that the code makes itself; use what is public";
            self.scan.report(
                node,
                (CodeRule::NotListed, word.to_owned(), hint.to_owned()),
            );
        }
    }

    /// A name that is read.
    fn look_at_name(&mut self, node: Node<'t>, above: &[Node<'t>]) {
        let name = self.name(node);
        if self.imports.contains_key(&name) {
            return self.look_at_member(node, above);
        }
        if name == "require" {
            let hint = "use an import statement at the beginning".to_owned();
            return self.scan.report(node, (CodeRule::NotListed, name, hint));
        }
        if let Some(broken) = self.scan.rules.refused(&name) {
            return self.scan.report(node, broken);
        }
        let parent = above
            .iter()
            .rev()
            .find(|n| n.kind() != "parenthesized_expression");
        let is = |of: &str| parent.and_then(|p| field(*p, of)).map(bare) == Some(node);
        if self.made.contains_key(&name) {
            return;
        }
        if has(TIMERS, &name) {
            let arguments = parent
                .and_then(|call| field(*call, "arguments"))
                .map(children);
            let first = arguments.and_then(|a| a.first().copied());
            if !is("function") || !first.is_some_and(|f| self.is_function(f)) {
                let hint = format!("give it a function: {name}(() => …, milliseconds)");
                self.refuse(node, &name, &hint);
            }
            return;
        }
        match self.scan.rules.provided(&name, &[]) {
            Ok(Use::Module) if !is("object") => {
                let hint = format!("it is no value: write {name}.member where it is needed");
                self.scan.report(node, (CodeRule::HandedOn, name, hint));
            }
            Ok(_) => {}
            Err(broken) => self.scan.report(node, broken),
        }
    }

    fn is_function(&self, node: Node<'t>) -> bool {
        let node = bare(node);
        match node.kind() {
            "arrow_function" | "function_expression" => true,
            "identifier" => self.made.get(self.scan.text(node)) == Some(&true),
            _ => false,
        }
    }

    fn look_at_member(&mut self, node: Node<'t>, above: &[Node<'t>]) {
        let parent = above
            .iter()
            .rev()
            .find(|n| n.kind() != "parenthesized_expression");
        let is_object = parent.and_then(|p| field(*p, "object")).map(bare) == Some(node);
        for path in self.paths(node) {
            let found = match path.names.as_slice() {
                [name, members @ ..]
                    if path.root == Root::Global && !self.made.contains_key(name) =>
                {
                    match members {
                        [_] => self.scan.rules.provided(name, members).map(Some),
                        _ => self.scan.rules.listed(&path),
                    }
                }
                _ => self.scan.rules.listed(&path),
            };
            let broken: Option<Broken> = match found {
                Ok(Some(Use::Module)) if !is_object => {
                    let name = path.whole().join(".");
                    let hint =
                        format!("a module is no value: write {name}.member where it is needed");
                    Some((CodeRule::HandedOn, name, hint))
                }
                Ok(_) => None,
                Err(broken) => Some(broken),
            };
            self.scan.report_all(node, broken);
        }
    }

    /// `x[k]`: the key is a text that is written out, a number, or a symbol of the language.
    fn look_at_index(&mut self, node: Node<'t>) {
        let Some(index) = field(node, "index").map(bare) else {
            return;
        };
        let operator = field(index, "operator").map_or("", |o| self.scan.text(o));
        let known = match index.kind() {
            "number" | "update_expression" => true,
            "string" => self.literal(index).is_some(),
            "unary_expression" => has("+ - ~", operator),
            "binary_expression" => has(NUMERIC, operator),
            "member_expression" => {
                self.scan.text(index).starts_with("Symbol.") && !self.made.contains_key("Symbol")
            }
            _ => false,
        };
        if !known {
            let hint = "name the member; for lists use at(i), [+i], for … of or splice(i, 1, value), for what is looked up by key a Map";
            let construct = "a computed member".to_owned();
            self.scan
                .report(index, (CodeRule::DynamicName, construct, hint.to_owned()));
        }
    }
}
