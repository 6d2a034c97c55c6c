//! The rules of `strict` for JavaScript: names and members that give access to blocked objects.

use tree_sitter::Node;

use super::JavaScript;
use crate::code_safety::path::{Path, Root};
use crate::code_safety::policy::Level;
use crate::code_safety::rejection::CodeRule;
use crate::code_safety::rules::{RuleViolation, contains_word};
use crate::code_safety::syntax_tree::{field, strip_parentheses};

/// Operators whose result is a number.
const NUMERIC: &str = "- * / % ** | & ^ << >> >>>";

impl<'t> JavaScript<'_, '_, 't> {
    pub(super) fn check_strict(&mut self, node: Node<'t>, above: &[Node<'t>]) {
        let role = self.scan.roles.role(node);
        let broken: Vec<RuleViolation> = match node.kind() {
            "identifier" | "shorthand_property_identifier" if role.is_none() => {
                let name = self.node_name(node);
                if self.imports.contains_key(&name) {
                    self.member_violations(&self.resolve_paths(node))
                } else {
                    self.scan.rules.check_name(&name).into_iter().collect()
                }
            }
            "member_expression" => self.member_violations(&self.resolve_paths(node)),
            "subscript_expression" => {
                let computed = self.check_computed_access(node);
                let members = self.member_violations(&self.resolve_paths(node));
                computed.into_iter().chain(members).collect()
            }
            "property_identifier" | "string" | "shorthand_property_identifier_pattern" => {
                self.check_key(node, above).into_iter().collect()
            }
            "import_specifier" => {
                let paths = field(node, "alias").or(field(node, "name"));
                paths.map_or_else(Vec::new, |bound| {
                    self.member_violations(&self.resolve_paths(bound))
                })
            }
            _ => Vec::new(),
        };
        let any = self.scan.report_all(node, broken);
        if !any && self.scan.is_at_least(Level::Readonly) {
            self.check_writes(node, above);
        }
    }

    fn member_violations(&self, paths: &[Path]) -> Vec<RuleViolation> {
        paths
            .iter()
            .filter_map(|p| self.scan.rules.check_member(p))
            .collect()
    }

    /// Checks the key of an object, of a pattern or of a class; the constructor of a class is allowed.
    fn check_key(&self, node: Node<'t>, above: &[Node<'t>]) -> Option<RuleViolation> {
        let parent = above.last()?;
        let keyed = field(*parent, "key") == Some(node) || field(*parent, "name") == Some(node);
        let text = self.node_name(node);
        let name = text.trim_matches(['"', '\'']);
        let method = parent.kind() == "method_definition" && name == "constructor";
        if !keyed && node.kind() != "shorthand_property_identifier_pattern" || method {
            return None;
        }
        self.scan.rules.check_member(&Path {
            root: Root::Value,
            module: String::new(),
            names: vec![name.to_owned()],
        })
    }

    /// Checks `x[k]`: the key must be a literal string, a number, or one of the allowed symbols.
    fn check_computed_access(&self, node: Node<'t>) -> Option<RuleViolation> {
        let index = strip_parentheses(field(node, "index")?);
        let operator = field(index, "operator").map_or("", |o| self.scan.text(o));
        let known = match index.kind() {
            "number" | "update_expression" => true,
            "string" => self.string_literal(index).is_some(),
            "unary_expression" => contains_word("+ - ~", operator),
            "binary_expression" => contains_word(NUMERIC, operator),
            "member_expression" => contains_word(
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
