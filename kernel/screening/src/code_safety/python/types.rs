//! Types in Python code. What stands in an annotation is run by those who read it, texts in it too; so
//! from `strict` on an annotation is a type and nothing else.

use std::collections::HashSet;

use tree_sitter::Node;

use super::Python;
use crate::code_safety::path::{Path, Root};
use crate::code_safety::rejection::CodeRule;
use crate::code_safety::rules::Use;
use crate::code_safety::tree::{bare, children, field};

impl<'t> Python<'_, '_, 't> {
    pub(super) fn look_at_type(&mut self, node: Node<'t>) {
        let mut left = vec![node];
        let mut seen = HashSet::new();
        while let Some(node) = left.pop() {
            let parts = match node.kind() {
                "none" | "true" | "false" | "ellipsis" | "integer" => Some(Vec::new()),
                "type"
                | "parenthesized_expression"
                | "union_type"
                | "constrained_type"
                | "splat_type"
                | "list_splat"
                | "list"
                | "tuple"
                | "expression_list" => Some(children(node)),
                "binary_operator" => {
                    let operator = field(node, "operator").map(|o| self.scan.text(o));
                    (operator == Some("|")).then(|| children(node))
                }
                "generic_type" | "subscript" => Some(self.parts_of_generic(node)),
                "identifier" => self.parts_of_alias(&self.name(node), &mut seen),
                "attribute" | "member_type" => {
                    let module = self.paths(node).iter().all(|p| p.root == Root::Module);
                    module.then(Vec::new)
                }
                "string" | "concatenated_string" => {
                    let named = self.literal(node).map(|text| text.trim().to_owned());
                    let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
                    let named = named.filter(|name| name.chars().all(word));
                    named.and_then(|name| self.parts_of_alias(&name, &mut seen))
                }
                _ => None,
            };
            match parts {
                Some(parts) => left.extend(parts),
                None => {
                    let hint = "an annotation names types: classes, list[int], A | B, one name in quotes; no calls, variables or longer texts";
                    let construct = self.scan.text(node).to_owned();
                    self.scan
                        .report(node, (CodeRule::Construct, construct, hint.to_owned()));
                }
            }
        }
    }

    /// The types in brackets; of `Literal` none is one, of `Annotated` the first.
    fn parts_of_generic(&self, node: Node<'t>) -> Vec<Node<'t>> {
        let mut parts = children(node).into_iter();
        let Some(head) = parts.next() else {
            return Vec::new();
        };
        let parts = parts.flat_map(|part| match part.kind() {
            "type_parameter" => children(part),
            _ => vec![part],
        });
        let typing = |name: &str| {
            let paths = self.paths(head);
            let is = |p: &[String]| matches!(p, [module, last] if module.starts_with("typing") && last == name);
            !paths.is_empty()
                && paths
                    .iter()
                    .all(|p| p.root == Root::Module && is(&p.whole()))
        };
        let kept = match (typing("Literal"), typing("Annotated")) {
            (true, _) => 0,
            (_, true) => 1,
            (false, false) => usize::MAX,
        };
        std::iter::once(head).chain(parts.take(kept)).collect()
    }

    /// What a name in a type stands for: nothing more to look at, or what it is assigned.
    fn parts_of_alias(&self, name: &str, seen: &mut HashSet<String>) -> Option<Vec<Node<'t>>> {
        if !seen.insert(name.to_owned()) {
            return Some(Vec::new());
        }
        let known = self.classes.contains(name)
            || self.imports.contains_key(name)
            || self.made.contains_key(name)
            || self.scan.rules.provided(name, &[]).is_ok();
        let is_module = |path: &Path| self.scan.rules.listed(path) == Ok(Some(Use::Module));
        let module = self.paths_of(vec![name.to_owned()]).iter().any(is_module);
        if !known || module || self.scan.rules.refused(name).is_some() {
            return None;
        }
        let made = self.made.get(name).map(Vec::as_slice).unwrap_or_default();
        let assigned = |node: &Node<'t>| {
            let statement = node.parent()?;
            let left = field(statement, "left").map(bare) == Some(*node);
            match statement.kind() {
                "assignment" if left => field(statement, "right").map(bare),
                // The right side of `type X = …` is a type that is looked at where it stands.
                "type" => Some(statement),
                _ => None,
            }
        };
        let parts: Option<Vec<Node<'t>>> = made.iter().map(assigned).collect();
        parts.map(|parts| parts.into_iter().filter(|p| p.kind() != "type").collect())
    }
}
