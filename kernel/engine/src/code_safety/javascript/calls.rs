//! What a JavaScript call does: imports and code made at run time, and, at `readonly`, writes.

use tree_sitter::Node;

use super::JavaScript;
use crate::code_safety::policy::Level;
use crate::code_safety::rejection::Rule;
use crate::code_safety::rules::{Broken, write};
use crate::code_safety::tree::{children, field};
use crate::code_safety::value::{Root, Value, texts};

/// HTTP methods that only read.
const READING: [&str; 3] = ["GET", "HEAD", "OPTIONS"];

impl JavaScript<'_> {
    pub(super) fn look_at_call(&mut self, node: Node<'_>) {
        let function = field(node, "function").or_else(|| field(node, "constructor"));
        let Some(function) = function else { return };
        let arguments = field(node, "arguments").map(children).unwrap_or_default();
        let mut found: Vec<Broken> = Vec::new();
        if function.kind() == "import" {
            found.extend(self.import_at_run_time(&arguments));
        }
        for value in self.values(function, 0) {
            let Value::Path(root, names) = &value else {
                continue;
            };
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            match (root, names.as_slice()) {
                (Root::Global, ["require"]) | (_, [.., "module" | "mainModule", "require"]) => {
                    found.extend(self.import_at_run_time(&arguments));
                }
                (Root::Global, ["setTimeout" | "setInterval" | "setImmediate"]) => {
                    found.extend(self.timed_text(names[0], &arguments));
                }
                (Root::Global, ["Reflect", "get"]) => found.extend(self.reflected(&arguments)),
                _ => {}
            }
            if self.scan.rules.level() == Level::Readonly {
                found.extend(self.writing(*root, &names, &arguments));
            }
        }
        self.scan.report_all(node, found);
    }

    fn import_at_run_time(&self, arguments: &[Node<'_>]) -> Vec<Broken> {
        let source = arguments
            .first()
            .map(|n| self.values(*n, 0))
            .unwrap_or_default();
        self.imported(&source)
    }

    /// A timer that is given text runs it as code.
    fn timed_text(&self, timer: &str, arguments: &[Node<'_>]) -> Option<Broken> {
        let first = arguments.first()?;
        let text = ["string", "template_string", "binary_expression"].contains(&first.kind())
            || self
                .values(*first, 0)
                .iter()
                .any(|v| matches!(v, Value::Text(_)));
        text.then(|| {
            let hint = "give the timer a function".to_owned();
            (Rule::BlockedPattern, format!("{timer} with text"), hint)
        })
    }

    fn reflected(&self, arguments: &[Node<'_>]) -> Option<Broken> {
        let name = arguments
            .get(1)
            .map(|n| self.values(*n, 0))
            .unwrap_or_default();
        let known = texts(&name).is_some_and(|names| !names.contains(&"constructor"));
        (!known).then(|| {
            let hint = "name the member".to_owned();
            (
                Rule::DynamicName,
                "Reflect.get with a computed name".to_owned(),
                hint,
            )
        })
    }

    fn writing(&self, root: Root, names: &[&str], arguments: &[Node<'_>]) -> Option<Broken> {
        match (root, names) {
            (Root::Global, ["fetch"]) => self.fetched(arguments),
            (_, [.., "fs" | "promises", "open" | "openSync"]) => {
                let flags = arguments.get(1).map(|n| self.values(*n, 0));
                let reads = flags.is_none_or(|f| {
                    texts(&f).is_some_and(|f| f.iter().all(|f| ["r", "rs"].contains(f)))
                });
                (!reads).then(|| write("open for writing"))
            }
            (_, [.., "open"]) => {
                let method = arguments
                    .first()
                    .map(|n| self.values(*n, 0))
                    .unwrap_or_default();
                let writes = |m: &&str| {
                    ["POST", "PUT", "PATCH", "DELETE"].contains(&m.to_ascii_uppercase().as_str())
                };
                texts(&method)
                    .is_some_and(|m| m.iter().any(writes))
                    .then(|| write("open for writing"))
            }
            _ => None,
        }
    }

    /// `fetch` reads unless its options say otherwise, or cannot be told.
    fn fetched(&self, arguments: &[Node<'_>]) -> Option<Broken> {
        let options = arguments.get(1)?;
        if options.kind() != "object" {
            return Some(write("fetch"));
        }
        let reads = |part: &Node<'_>| match part.kind() {
            "pair" => {
                let key = field(*part, "key")
                    .map_or("", |k| self.scan.text(k))
                    .trim_matches(['"', '\'']);
                let method = || {
                    field(*part, "value")
                        .map(|v| self.values(v, 0))
                        .unwrap_or_default()
                };
                let known = |m: &&str| READING.contains(&m.to_ascii_uppercase().as_str());
                !key.starts_with('[')
                    && (key != "method" || texts(&method()).is_some_and(|m| m.iter().all(known)))
            }
            "shorthand_property_identifier" => self.scan.text(*part) != "method",
            _ => false,
        };
        (!children(*options).iter().all(reads)).then(|| write("fetch"))
    }
}
