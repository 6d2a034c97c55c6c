//! JavaScript from `strict` on: names and members by which code gets at what is blocked.

use tree_sitter::Node;

use super::JavaScript;
use crate::code_safety::path::{Path, Root};
use crate::code_safety::policy::Level;
use crate::code_safety::rejection::CodeRule;
use crate::code_safety::rules::{Broken, has};
use crate::code_safety::tree::{bare, field};

/// Operators whose result is a number.
const NUMERIC: &str = "- * / % ** | & ^ << >> >>>";

impl<'t> JavaScript<'_, '_, 't> {
    pub(super) fn look_strictly(&mut self, node: Node<'t>, above: &[Node<'t>]) {
        let role = self.scan.roles.of_node(node);
        let broken: Vec<Broken> = match node.kind() {
            "identifier" | "shorthand_property_identifier" if role.is_none() => {
                let name = self.name(node);
                match self.imports.contains_key(&name) {
                    true => self.members(&self.paths(node)),
                    false => self.scan.rules.name(&name).into_iter().collect(),
                }
            }
            "member_expression" => self.members(&self.paths(node)),
            "subscript_expression" => {
                let computed = self.computed(node);
                let members = self.members(&self.paths(node));
                computed.into_iter().chain(members).collect()
            }
            "property_identifier" | "string" | "shorthand_property_identifier_pattern" => {
                self.key(node, above).into_iter().collect()
            }
            "import_specifier" => {
                let paths = field(node, "alias").or(field(node, "name"));
                paths.map_or_else(Vec::new, |bound| self.members(&self.paths(bound)))
            }
            _ => Vec::new(),
        };
        let any = self.scan.report_all(node, broken);
        if !any && self.scan.at_least(Level::Readonly) {
            self.look_for_writes(node, above);
        }
    }

    fn members(&self, paths: &[Path]) -> Vec<Broken> {
        paths
            .iter()
            .filter_map(|p| self.scan.rules.member(p))
            .collect()
    }

    /// The key of an object, of a pattern or of a class; the constructor of a class is none.
    fn key(&self, node: Node<'t>, above: &[Node<'t>]) -> Option<Broken> {
        let parent = above.last()?;
        let keyed = field(*parent, "key") == Some(node) || field(*parent, "name") == Some(node);
        let text = self.name(node);
        let name = text.trim_matches(['"', '\'']);
        let method = parent.kind() == "method_definition" && name == "constructor";
        if !keyed && node.kind() != "shorthand_property_identifier_pattern" || method {
            return None;
        }
        self.scan.rules.member(&Path {
            root: Root::Value,
            module: String::new(),
            names: vec![name.to_owned()],
        })
    }

    /// `x[k]`: the key is a text that is written out, a number, or a symbol that makes lists.
    fn computed(&self, node: Node<'t>) -> Option<Broken> {
        let index = bare(field(node, "index")?);
        let operator = field(index, "operator").map_or("", |o| self.scan.text(o));
        let known = match index.kind() {
            "number" | "update_expression" => true,
            "string" => self.literal(index).is_some(),
            "unary_expression" => has("+ - ~", operator),
            "binary_expression" => has(NUMERIC, operator),
            "member_expression" => has(
                "Symbol.iterator Symbol.asyncIterator",
                self.scan.text(index),
            ),
            _ => false,
        };
        let hint = "name the member; for lists use at(i), [+i], for … of or splice(i, 1, value), for what is looked up by key a Map";
        let construct = "a computed member".to_owned();
        (!known).then(|| (CodeRule::DynamicName, construct, hint.to_owned()))
    }
}
