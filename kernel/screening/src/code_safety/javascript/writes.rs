//! The rules of `readonly` for JavaScript: constructs that write, besides the members in the lists.

use tree_sitter::Node;

use super::JavaScript;
use crate::code_safety::rules::write_violation;
use crate::code_safety::syntax_tree::{children, field, strip_parentheses};

/// HTTP methods that only read.
const READING: [&str; 3] = ["GET", "HEAD", "OPTIONS"];

impl<'t> JavaScript<'_, '_, 't> {
    pub(super) fn check_writes(&mut self, node: Node<'t>, above: &[Node<'t>]) {
        let parent = above.last();
        let called = parent
            .and_then(|call| field(*call, "function"))
            .map(strip_parentheses)
            == Some(node);
        let arguments = parent.and_then(|call| field(*call, "arguments"));
        let arguments = arguments.filter(|_| called).map(children);
        let fetch = node.kind() == "identifier"
            && self.scan.roles.role(node).is_none()
            && self.scan.text(node) == "fetch";
        let writes = match (node.kind(), arguments) {
            ("identifier", arguments) if fetch => {
                !arguments.is_some_and(|a| self.is_reading_fetch(&a))
            }
            ("member_expression", Some(arguments)) => {
                let name = field(node, "property").map_or("", |p| self.scan.text(p));
                let method = arguments
                    .first()
                    .and_then(|m| self.string_literal(*m))
                    .unwrap_or_default();
                name == "open"
                    && ["POST", "PUT", "PATCH", "DELETE"].contains(&&*method.to_ascii_uppercase())
            }
            _ => false,
        };
        if writes {
            let name = if fetch { "fetch" } else { "open for writing" };
            self.scan.report(node, write_violation(name));
        }
    }

    /// True for a `fetch` that only reads: its options must be literal and without a writing method.
    fn is_reading_fetch(&self, arguments: &[Node<'t>]) -> bool {
        let Some(options) = arguments.get(1) else {
            return arguments.iter().all(|a| a.kind() != "spread_element");
        };
        let reads = |part: &Node<'t>| match part.kind() {
            "pair" => {
                let key = field(*part, "key");
                let computed = key.is_none_or(|k| k.kind() == "computed_property_name");
                let key = key
                    .map_or("", |k| self.scan.text(k))
                    .trim_matches(['"', '\'']);
                let method = || field(*part, "value").and_then(|v| self.string_literal(v));
                let known = |m: String| READING.contains(&&*m.to_ascii_uppercase());
                !computed && (key != "method" || method().is_some_and(known))
            }
            "shorthand_property_identifier" => self.scan.text(*part) != "method",
            _ => false,
        };
        options.kind() == "object" && children(*options).iter().all(reads)
    }
}
