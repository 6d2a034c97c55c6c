//! The syntax tree: parsed within limits, walked without recursion.

use std::collections::HashMap;
use std::ops::ControlFlow;

use tree_sitter::{Node, ParseOptions, Parser, Query, QueryCursor, StreamingIterator, Tree};

use super::Language;

/// The most nodes of a tree. Code of [`super::MAX_CODE_BYTES`] has about half as many; it bounds the time.
pub(super) const MAX_NODES: usize = 200_000;
/// Maximum nesting depth of nodes. Code written by hand stays below 100.
pub(super) const MAX_DEPTH: usize = 600;
/// The most progress reports of the parser, one every 100 steps. Valid code of [`super::MAX_CODE_BYTES`]
/// takes a tenth of it; only error recovery takes more.
const MAX_PROGRESS: usize = 40_000;
/// The most open matches of a query. Its patterns are a few nodes deep: code has a dozen.
const MAX_OPEN: u32 = 4_096;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ParseError {
    TooComplex,
    /// Byte offset of the first syntax error.
    Syntax(usize),
}

/// Parses the whole code, or returns the position of the first syntax error.
pub(super) fn parse(language: Language, code: &str) -> Result<Tree, ParseError> {
    let mut parser = Parser::new();
    let grammar = match language {
        Language::Python => tree_sitter_python::LANGUAGE,
        Language::JavaScript => tree_sitter_javascript::LANGUAGE,
    };
    parser
        .set_language(&grammar.into())
        .map_err(|_| ParseError::TooComplex)?;
    let mut steps = 0;
    let mut progress = |_: &_| {
        steps += 1;
        if steps > MAX_PROGRESS {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    };
    let options = ParseOptions::new().progress_callback(&mut progress);
    let bytes = code.as_bytes();
    let mut read = |at: usize, _| bytes.get(at..).unwrap_or_default();
    let tree = parser
        .parse_with_options(&mut read, None, Some(options))
        .ok_or(ParseError::TooComplex)?;
    let mut nodes = 0;
    let mut wrong = None;
    let deep = walk(tree.root_node(), |node, above| {
        nodes += 1;
        if wrong.is_none() && (node.is_error() || node.is_missing()) {
            wrong = Some(node.start_byte());
        }
        nodes <= MAX_NODES && above.len() <= MAX_DEPTH
    });
    match (deep, wrong) {
        (false, _) => Err(ParseError::TooComplex),
        (true, Some(at)) => Err(ParseError::Syntax(at)),
        (true, None) => Ok(tree),
    }
}

/// The roles of the nodes of a tree, assigned by a query.
#[derive(Debug, Default)]
pub(super) struct Roles<'t> {
    by_node: HashMap<usize, &'static str>,
    /// Nodes that the query itself rejects, with the minimum level and the reason.
    pub(super) refused: Vec<RefusedNode<'t>>,
}

/// A node that the query itself rejects.
#[derive(Debug)]
pub(super) struct RefusedNode<'t> {
    pub(super) node: Node<'t>,
    /// `strict`: from that level on; `always`; `hidden`: always, as misleading text.
    pub(super) min_level: &'static str,
    pub(super) construct: &'static str,
    pub(super) hint: &'static str,
}

impl<'t> Roles<'t> {
    /// Runs the query. `None`: the code is too complex.
    pub(super) fn from_query(query: &'static Query, tree: &'t Tree, source: &str) -> Option<Self> {
        let mut out = Self::default();
        let mut cursor = QueryCursor::new();
        cursor.set_match_limit(MAX_OPEN);
        let mut matches = cursor.matches(query, tree.root_node(), source.as_bytes());
        while let Some(found) = matches.next() {
            let property = |key: &str| {
                let settings = query.property_settings(found.pattern_index).iter();
                let mut settings = settings.filter(|setting| &*setting.key == key);
                settings.next().and_then(|setting| setting.value.as_deref())
            };
            for capture in found.captures {
                let role = query.capture_names()[capture.index as usize];
                match property("hint") {
                    _ if role.starts_with('_') => {}
                    Some(hint) => out.refused.push(RefusedNode {
                        node: capture.node,
                        min_level: role,
                        construct: property("construct").unwrap_or_default(),
                        hint,
                    }),
                    None => {
                        // The first role counts: patterns around a node come before those of the node.
                        out.by_node.entry(capture.node.id()).or_insert(role);
                    }
                }
            }
        }
        drop(matches);
        (!cursor.did_exceed_match_limit()).then_some(out)
    }

    /// The role of the node; `None`: it is read.
    pub(super) fn role(&self, node: Node<'_>) -> Option<&'static str> {
        self.by_node.get(&node.id()).copied()
    }
}

/// Visits each node before its children, with its ancestors, the nearest last. Stops when the visitor
/// returns `false`, and returns that.
pub(super) fn walk<'t>(
    root: Node<'t>,
    mut visit: impl FnMut(Node<'t>, &[Node<'t>]) -> bool,
) -> bool {
    let mut cursor = root.walk();
    let mut above = Vec::new();
    loop {
        let node = cursor.node();
        if !visit(node, &above) {
            return false;
        }
        if cursor.goto_first_child() {
            above.push(node);
            continue;
        }
        while !cursor.goto_next_sibling() {
            if !cursor.goto_parent() {
                return true;
            }
            above.pop();
        }
    }
}

/// The named children, without comments.
pub(super) fn children(node: Node<'_>) -> Vec<Node<'_>> {
    let mut cursor = node.walk();
    let named = node.named_children(&mut cursor);
    named.filter(|n| !n.is_extra() || n.is_error()).collect()
}

/// The child in this field.
pub(super) fn field<'t>(node: Node<'t>, name: &str) -> Option<Node<'t>> {
    node.child_by_field_name(name)
}

/// The expression within parentheses.
pub(super) fn strip_parentheses(mut node: Node<'_>) -> Node<'_> {
    while node.kind() == "parenthesized_expression" {
        match children(node).as_slice() {
            [inner] => node = *inner,
            _ => break,
        }
    }
    node
}
