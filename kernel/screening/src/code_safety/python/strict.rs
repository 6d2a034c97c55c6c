//! Python from `strict` on: every name, and every member of a module, is on a list, or it is refused.

use std::collections::HashSet;

use tree_sitter::Node;

use super::{Python, is_pattern};
use crate::code_safety::lists::python::{DEFINED, INHERITED, PROVIDED, READ, SET};
use crate::code_safety::path::{Path, Root};
use crate::code_safety::policy::Level;
use crate::code_safety::rejection::CodeRule;
use crate::code_safety::rules::{Broken, Use, has};
use crate::code_safety::tree::{bare, children, field};

impl<'t> Python<'_, '_, 't> {
    pub(super) fn look_strictly(&mut self, node: Node<'t>, above: &[Node<'t>]) {
        match node.kind() {
            "import_statement" | "import_from_statement" => self.look_at_taken(node, above),
            "identifier" => {
                let role = self.scan.roles.of_node(node);
                let in_row = above.last().is_some_and(|n| is_pattern(*n, above));
                match role {
                    Some(role) => self.look_at_word(node, role, above),
                    None if in_row => {}
                    None => self.look_at_name(node, above),
                }
            }
            "attribute" => self.look_at_member(node, above),
            "dotted_name" if is_pattern(node, above) => self.look_at_member(node, above),
            "type" if !above.iter().any(|n| n.kind() == "type") => self.look_at_type(node),
            _ => {}
        }
        if self.scan.at_least(Level::Readonly) {
            self.look_for_writes(node, above);
        }
    }

    /// `from module import member`, and where an import stands.
    fn look_at_taken(&mut self, node: Node<'t>, above: &[Node<'t>]) {
        let mut around = above.iter().rev();
        let around = around.find(|n| n.kind().ends_with("_definition"));
        if around.is_some_and(|n| n.kind() == "class_definition") {
            let hint = "a module is no member of a class; import at the beginning of the code";
            let construct = "import in a class".to_owned();
            self.scan
                .report(node, (CodeRule::Construct, construct, hint.to_owned()));
        }
        if node.kind() == "import_statement" {
            return;
        }
        for (_, import) in self.imported(node) {
            let path = Path {
                root: Root::Module,
                module: import.module,
                names: import.member.into_iter().collect(),
            };
            let broken = self.scan.rules.listed(&path).err();
            self.scan.report_all(node, broken);
        }
    }

    /// Special and private names, wherever they stand.
    fn look_at_word(&mut self, node: Node<'t>, role: &str, above: &[Node<'t>]) {
        let name = self.name(node);
        let special = is_special(&name);
        let listed = match role {
            "import" => true,
            "member" if special => {
                has(READ, &name) || has(INHERITED, &name) && self.is_of_super(above)
            }
            "member" if name.starts_with('_') => self.own.contains(&name) || has(PROVIDED, &name),
            "function" if special => has(DEFINED, &name),
            _ if special => role == "made" && has(SET, &name),
            _ => true,
        };
        if !listed {
            let hint = match special {
                true => {
                    "special names reach what is not listed; use functions such as type(x) or len(x), and super().__init__()"
                }
                false => "private members are those that the code makes itself; use what is public",
            };
            self.scan
                .report(node, (CodeRule::NotListed, name, hint.to_owned()));
        }
    }

    fn is_of_super(&self, above: &[Node<'t>]) -> bool {
        let object = above.last().and_then(|member| field(*member, "object"));
        let function = object
            .filter(|o| o.kind() == "call")
            .and_then(|o| field(o, "function"));
        function.is_some_and(|f| self.name(f) == "super")
    }

    /// A name that is read.
    fn look_at_name(&mut self, node: Node<'t>, above: &[Node<'t>]) {
        let name = self.name(node);
        if self.imports.contains_key(&name) {
            return self.look_at_member(node, above);
        }
        let refused = self.scan.rules.refused(&name);
        let provided = self.scan.rules.provided(&name, &[]);
        if refused.is_none() && matches!(provided, Ok(Use::Value))
            || self.is_parameter(&name, node, above)
        {
            return;
        }
        if let Some(broken) = refused {
            return self.scan.report(node, broken);
        }
        match provided {
            Ok(found @ Use::Called(_)) => self.look_at_use(node, above, found, &name),
            // What runs the code may provide names of its own, but neither modules nor special names.
            Err(broken) if is_special(&name) || self.scan.rules.is_module(&name) => {
                let made = self.made.contains_key(&name) || self.classes.contains(&name);
                self.scan.report_all(node, (!made).then_some(broken));
            }
            Ok(_) | Err(_) => {}
        }
    }

    /// A member of a module or of a value, or an imported name.
    fn look_at_member(&mut self, node: Node<'t>, above: &[Node<'t>]) {
        for path in self.paths(node) {
            let whole = path.whole();
            match self.scan.rules.listed(&path) {
                Err(broken) => self.scan.report(node, broken),
                Ok(Some(found)) => {
                    self.look_at_use(node, above, found, &whole.join("."));
                    self.look_at_typing(node, above, &whole);
                }
                Ok(None) => {}
            }
            let last = whole.last().map_or("", String::as_str);
            if ["format", "format_map"].contains(&last) && !self.is_plain_format(node, above) {
                let hint = "write an f-string, or \"…{}…\".format(value) with fields that have no . and no [";
                let construct = format!("{last} of a computed text");
                self.scan
                    .report(node, (CodeRule::Construct, construct, hint.to_owned()));
            }
        }
    }

    /// Is it used as it may be?
    fn look_at_use(&mut self, node: Node<'t>, above: &[Node<'t>], found: Use, name: &str) {
        let parent = above
            .iter()
            .rev()
            .find(|n| n.kind() != "parenthesized_expression");
        let is = |of: &str| parent.and_then(|p| field(*p, of)).map(bare) == Some(node);
        let broken: Option<Broken> = match found {
            Use::Module if !is("object") => {
                let hint = format!("a module is no value: write {name}.member where it is needed");
                Some((CodeRule::HandedOn, name.to_owned(), hint))
            }
            Use::Called(most) if !self.is_called(is("function"), parent, above, most) => {
                let hint = format!(
                    "call it by its name, as {name}(x) with {most} plain arguments at most"
                );
                Some((CodeRule::Construct, name.to_owned(), hint))
            }
            Use::Module | Use::Called(_) | Use::Value | Use::Writes => None,
        };
        self.scan.report_all(node, broken);
    }

    /// Is it called with few plain arguments, or asked about as a type?
    fn is_called(
        &self,
        called: bool,
        parent: Option<&Node<'t>>,
        above: &[Node<'t>],
        most: usize,
    ) -> bool {
        if called {
            let arguments = parent.and_then(|call| field(*call, "arguments"));
            let arguments = arguments.map(children).unwrap_or_default();
            let odd = ["keyword_argument", "list_splat", "dictionary_splat"];
            return arguments.len() <= most && !arguments.iter().any(|a| odd.contains(&a.kind()));
        }
        let asks = |call: &Node<'t>| {
            let function = field(*call, "function").map(|f| self.name(f));
            function.is_some_and(|f| f == "isinstance" || f == "issubclass")
        };
        let calls = above.iter().rev().take(3).filter(|n| n.kind() == "call");
        above.iter().any(|n| n.kind() == "type") || calls.into_iter().any(asks)
    }

    /// Types that are called make types of texts, which are read as code later.
    fn look_at_typing(&mut self, node: Node<'t>, above: &[Node<'t>], path: &[String]) {
        let [module, name] = path else { return };
        let called = above.last().and_then(|call| field(*call, "function")) == Some(node);
        if module == "typing" && called && !["cast", "assert_never"].contains(&name.as_str()) {
            let hint = format!("write it as a class, such as class Point({name}):");
            let construct = format!("{name}(…)");
            self.scan
                .report(node, (CodeRule::Construct, construct, hint));
        }
    }

    /// `"{} and {name:>3}".format(…)`: fields of a text that is written out, without a way into values.
    fn is_plain_format(&self, node: Node<'t>, above: &[Node<'t>]) -> bool {
        let called = above.last().and_then(|call| field(*call, "function")) == Some(node);
        let text = field(node, "object")
            .map(bare)
            .filter(|o| o.kind() == "string");
        let parts = text.map(children).unwrap_or_default();
        let plain = |n: &Node<'t>| match n.kind() {
            "string_start" | "string_end" => true,
            "string_content" => fields_are_plain(self.scan.text(*n)),
            _ => false,
        };
        called && !parts.is_empty() && parts.iter().all(plain)
    }

    /// Is the name a parameter here, so that it hides what the language provides?
    fn is_parameter(&self, name: &str, node: Node<'t>, above: &[Node<'t>]) -> bool {
        if self.global.contains(name) {
            return false;
        }
        let below = above.iter().skip(1).chain([&node]);
        above.iter().zip(below).any(|(function, inside)| {
            let functions = ["function_definition", "lambda"];
            functions.contains(&function.kind())
                && field(*function, "body") == Some(*inside)
                && field(*function, "parameters")
                    .and_then(|p| self.parameters.get(&p.id()))
                    .is_some_and(|names| names.contains(name))
        })
    }

    /// The names of the parameters in this list.
    pub(super) fn parameters_in(&self, list: Node<'t>) -> HashSet<String> {
        let named = children(list).into_iter().filter_map(named);
        named.map(|name| self.name(name)).collect()
    }
}

/// The name of a parameter.
fn named(parameter: Node<'_>) -> Option<Node<'_>> {
    let name = match parameter.kind() {
        "identifier" => Some(parameter),
        "default_parameter" | "typed_default_parameter" => field(parameter, "name"),
        "list_splat_pattern" | "dictionary_splat_pattern" => parameter.named_child(0),
        "typed_parameter" => parameter.named_child(0).and_then(named),
        _ => None,
    };
    name.filter(|name| name.kind() == "identifier")
}

fn is_special(name: &str) -> bool {
    name.len() > 4 && name.starts_with("__") && name.ends_with("__")
}

/// No field leads into a value, and no escape hides one.
fn fields_are_plain(text: &str) -> bool {
    let mut rest = text;
    while let Some(at) = rest.find(['{', '\\']) {
        let (sign, behind) = rest[at..].split_at(1);
        rest = match (sign, behind.chars().next()) {
            ("\\", Some('n' | 't' | '\\' | '\'' | '"')) => &behind[1..],
            ("{", Some('{')) => &behind[1..],
            ("{", _) => {
                let Some((field, after)) = behind.split_once('}') else {
                    return false;
                };
                let name = field.split([':', '!']).next().unwrap_or(field);
                if name.contains(['.', '[']) || field.contains(['{', '\\']) {
                    return false;
                }
                after
            }
            _ => return false,
        };
    }
    true
}
