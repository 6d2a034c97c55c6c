//! The rules of `readonly` for Python: constructs that write, besides the members in the lists.

use tree_sitter::Node;

use super::Python;
use crate::code_safety::rules::write_violation;
use crate::code_safety::syntax_tree::{children, field};

/// Modes of `open` that only read.
const READING_MODES: &str = "rbtU";
/// First words of SQL statements that only read.
const READING_SQL: [&str; 6] = ["select", "pragma", "explain", "show", "values", "with"];
/// Words of SQL that write, at any position.
const WRITING_SQL: [&str; 8] = [
    "insert", "update", "delete", "replace", "drop", "alter", "create", "into",
];
/// Arguments that distinguish a web request from putting a value into a queue.
const REQUEST_BODY_ARGUMENTS: [&str; 5] = ["json", "data", "content", "files", "headers"];

impl<'t> Python<'_, '_, 't> {
    pub(super) fn check_writes(&mut self, node: Node<'t>, above: &[Node<'t>]) {
        let role = self.scan.roles.role(node);
        let called = above.last().and_then(|call| field(*call, "function")) == Some(node);
        let name = match node.kind() {
            "identifier" if role.is_none() => self.normalized_name(node),
            "attribute" => field(node, "attribute")
                .map(|a| self.normalized_name(a))
                .unwrap_or_default(),
            _ => return,
        };
        let plain = node.kind() == "identifier";
        let arguments = above
            .last()
            .filter(|_| called)
            .and_then(|call| field(*call, "arguments"));
        let writes = match (name.as_str(), arguments) {
            ("open", None) => plain,
            ("open", Some(arguments)) => {
                let of_module = self
                    .resolve_paths(node)
                    .iter()
                    .any(|p| p.root == crate::code_safety::path::Root::Module);
                !self.is_reading_open(arguments, if plain || of_module { 1 } else { 0 })
            }
            ("execute", Some(arguments)) => !self.is_reading_query(arguments),
            ("put", Some(arguments)) => self.is_web_request(arguments),
            _ => false,
        };
        if writes {
            self.scan.report(node, write_violation(&name));
        }
    }

    /// The argument at this position or with this name; `Err` when that cannot be determined.
    fn argument(&self, list: Node<'t>, at: usize, name: &str) -> Result<Option<Node<'t>>, ()> {
        let all = children(list);
        if all.iter().any(|a| a.kind().contains("splat")) {
            return Err(());
        }
        let is_named =
            |a: &Node<'t>| field(*a, "name").is_some_and(|n| self.normalized_name(n) == name);
        let named = all.iter().filter(|a| a.kind() == "keyword_argument");
        let named = named
            .into_iter()
            .find(|a| is_named(a))
            .and_then(|a| field(*a, "value"));
        let mut plain = all.iter().filter(|a| a.kind() != "keyword_argument");
        Ok(named.or(plain.nth(at).copied()))
    }

    fn is_reading_open(&self, arguments: Node<'t>, at: usize) -> bool {
        match self.argument(arguments, at, "mode") {
            Ok(None) => true,
            Ok(Some(mode)) => {
                let mode = self.string_literal(mode);
                mode.is_some_and(|mode| mode.chars().all(|c| READING_MODES.contains(c)))
            }
            Err(()) => false,
        }
    }

    fn is_reading_query(&self, arguments: Node<'t>) -> bool {
        let Ok(Some(query)) = self.argument(arguments, 0, "sql") else {
            return false;
        };
        let Some(query) = self.string_literal(query) else {
            return false;
        };
        let query = query.to_lowercase();
        let mut words = query
            .split(|c: char| !c.is_alphanumeric() && c != '_')
            .filter(|w| !w.is_empty());
        words.next().is_some_and(|w| READING_SQL.contains(&w))
            && !words.any(|w| WRITING_SQL.contains(&w))
    }

    fn is_web_request(&self, arguments: Node<'t>) -> bool {
        let names = children(arguments)
            .into_iter()
            .filter_map(|a| field(a, "name"));
        let web = names
            .map(|n| self.normalized_name(n))
            .any(|n| REQUEST_BODY_ARGUMENTS.contains(&n.as_str()));
        let url = self.argument(arguments, 0, "url").ok().flatten();
        web || url
            .and_then(|u| self.string_literal(u))
            .is_some_and(|u| u.starts_with("http"))
    }
}
