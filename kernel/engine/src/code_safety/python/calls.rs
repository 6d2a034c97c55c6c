//! What a Python call does: imports and names made at run time, and, at `readonly`, writes.

use tree_sitter::Node;

use super::Python;
use super::danger::DANGER;
use crate::code_safety::policy::Level;
use crate::code_safety::rejection::Rule;
use crate::code_safety::rules::{Broken, write};
use crate::code_safety::tree::{bare, children, field};
use crate::code_safety::value::{Root, Value, Values, texts};

/// Modes of `open` that only read.
const READING: &str = "rbtU";
/// First words of SQL that only reads.
const READING_SQL: [&str; 6] = ["select", "pragma", "explain", "show", "values", "with"];
/// Words of SQL that write, wherever they stand.
const WRITING_SQL: [&str; 8] = [
    "insert", "update", "delete", "replace", "drop", "alter", "create", "into",
];

/// Positional arguments and those by name.
struct Arguments<'t> {
    plain: Vec<Node<'t>>,
    named: Vec<(String, Node<'t>)>,
    splat: bool,
}

impl Python<'_> {
    pub(super) fn look_at_call(&mut self, node: Node<'_>) {
        let Some(function) = field(node, "function") else {
            return;
        };
        let arguments = self.arguments(node);
        let mut found: Vec<Broken> = Vec::new();
        for value in self.values(function, 0) {
            let Value::Path(root, names) = &value else {
                continue;
            };
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            match (root, names.as_slice()) {
                (Root::Global, ["__import__"])
                | (_, [.., "importlib", "__import__" | "import_module"]) => {
                    found.extend(self.import_at_run_time(&arguments));
                }
                (Root::Global, ["getattr" | "setattr" | "delattr"])
                | (_, [.., "__getattribute__" | "__getattr__"]) => {
                    found.extend(self.name_at_run_time(&arguments, names.len() == 1));
                }
                (_, [.., "attrgetter" | "methodcaller"]) => found.extend(self.getter(&arguments)),
                (_, [.., "format" | "format_map"]) => found.extend(self.formatted(function)),
                _ => {}
            }
            if self.scan.rules.level() == Level::Readonly {
                found.extend(self.writing(*root, &names, &arguments));
            }
        }
        self.scan.report_all(node, found);
    }

    fn arguments<'t>(&self, call: Node<'t>) -> Arguments<'t> {
        let list = field(call, "arguments");
        let all = match list {
            Some(list) if list.kind() == "argument_list" => children(list),
            Some(generator) => vec![generator],
            None => Vec::new(),
        };
        let splat = all.iter().any(|a| a.kind().contains("splat"));
        let (named, plain): (Vec<_>, Vec<_>) = all
            .into_iter()
            .partition(|a| a.kind() == "keyword_argument");
        let named = named
            .into_iter()
            .filter_map(|a| Some((self.name(field(a, "name")?), field(a, "value")?)));
        Arguments {
            named: named.collect(),
            plain,
            splat,
        }
    }

    fn argument(&self, arguments: &Arguments<'_>, at: usize, name: &str) -> Option<Values> {
        let named = arguments
            .named
            .iter()
            .find(|(n, _)| n == name)
            .map(|(_, v)| *v);
        let node = named.or_else(|| arguments.plain.get(at).copied())?;
        Some(self.values(node, 0))
    }

    fn import_at_run_time(&self, arguments: &Arguments<'_>) -> Vec<Broken> {
        let module = self.argument(arguments, 0, "name").unwrap_or_default();
        match texts(&module) {
            Some(modules) => modules
                .iter()
                .filter_map(|m| self.scan.rules.import(m, &[]))
                .collect(),
            None => {
                let hint = "name the module in an import statement".to_owned();
                vec![(
                    Rule::DynamicImport,
                    "import of a computed name".to_owned(),
                    hint,
                )]
            }
        }
    }

    /// `getattr(x, name)`: a known name was judged with the answer; an unknown one is harmless only on
    /// what the code itself made.
    fn name_at_run_time(&self, arguments: &Arguments<'_>, plain: bool) -> Option<Broken> {
        let name = self.argument(
            arguments,
            usize::from(plain || arguments.plain.len() > 1),
            "name",
        );
        if !arguments.splat && name.as_ref().is_some_and(|n| texts(n).is_some()) {
            return None;
        }
        let on = arguments.plain.first().map(|n| bare(*n));
        let kinds = [
            "string",
            "tuple",
            "list",
            "dictionary",
            "set",
            "lambda",
            "integer",
        ];
        let literal = on.is_some_and(|n| kinds.contains(&n.kind()));
        let reaching = |v: &Value| matches!(v, Value::Path(Root::Module | Root::Global, _));
        let reaching = on.is_some_and(|n| self.values(n, 0).iter().any(reaching));
        let strict = self.scan.rules.level() >= Level::Strict;
        (literal || reaching || strict || arguments.splat).then(|| {
            let hint = "name the member, or choose it from a dictionary".to_owned();
            (
                Rule::DynamicName,
                "getattr with a computed name".to_owned(),
                hint,
            )
        })
    }

    fn getter(&self, arguments: &Arguments<'_>) -> Vec<Broken> {
        let paths: Vec<Values> = arguments.plain.iter().map(|n| self.values(*n, 0)).collect();
        let known: Option<Vec<Vec<&str>>> = paths.iter().map(|v| texts(v)).collect();
        let Some(known) = known else {
            let hint = "name the member".to_owned();
            return vec![(
                Rule::DynamicName,
                "attrgetter with a computed name".to_owned(),
                hint,
            )];
        };
        let members = known.iter().flatten().flat_map(|path| path.split('.'));
        let broken = members.filter_map(|m| self.scan.rules.path(Root::Unknown, &[m.to_owned()]));
        broken.collect()
    }

    /// Format strings reach members: `"{0.__globals__}".format(f)`.
    fn formatted(&self, function: Node<'_>) -> Option<Broken> {
        let base = field(function, "object").map(|n| self.values(n, 0))?;
        let reaches = |text: &&str| {
            text.split('{').skip(1).any(|f| {
                let name = f.split('}').next().unwrap_or(f);
                DANGER
                    .members
                    .iter()
                    .any(|m| name.contains(&format!(".{m}")))
            })
        };
        let texts = base.iter().filter_map(|v| match v {
            Value::Text(t) => Some(t.as_str()),
            Value::Unknown | Value::Path(..) => None,
        });
        let text = texts.into_iter().find(|t| reaches(t))?;
        let hint = "format plain values".to_owned();
        Some((Rule::BlockedPattern, text.to_owned(), hint))
    }

    fn writing(&self, root: Root, names: &[&str], arguments: &Arguments<'_>) -> Option<Broken> {
        match (root, names) {
            (Root::Global, ["open"]) | (_, [.., "io" | "codecs", "open"]) => {
                self.opened(arguments, 1)
            }
            (_, [.., "os" | "webbrowser", "open"]) => None,
            (_, [_, .., "open"]) | (Root::Unknown, ["open"]) => self.opened(arguments, 0),
            (_, [.., "execute"]) => self.queried(arguments),
            (_, [.., "put"]) => {
                let keywords = ["json", "data", "content", "files", "headers"];
                let web = arguments
                    .named
                    .iter()
                    .any(|(n, _)| keywords.contains(&n.as_str()));
                let url = self.argument(arguments, 0, "url").unwrap_or_default();
                let url = texts(&url).is_some_and(|t| t.iter().any(|t| t.starts_with("http")));
                (web || url).then(|| write("put"))
            }
            _ => None,
        }
    }

    fn opened(&self, arguments: &Arguments<'_>, at: usize) -> Option<Broken> {
        let mode = self.argument(arguments, at, "mode");
        let reads = match mode {
            None => !arguments.splat,
            Some(mode) => texts(&mode)
                .is_some_and(|modes| modes.iter().all(|m| m.chars().all(|c| READING.contains(c)))),
        };
        (!reads || arguments.splat).then(|| write("open for writing"))
    }

    fn queried(&self, arguments: &Arguments<'_>) -> Option<Broken> {
        let query = self
            .argument(arguments, 0, "sql")
            .or_else(|| self.argument(arguments, 0, "query"))?;
        let reads = |query: &&str| {
            let query = query.to_lowercase();
            let mut words = query
                .split(|c: char| !c.is_alphanumeric() && c != '_')
                .filter(|w| !w.is_empty());
            words.next().is_some_and(|w| READING_SQL.contains(&w))
                && !words.any(|w| WRITING_SQL.contains(&w))
        };
        let reads = texts(&query).is_some_and(|queries| queries.iter().all(reads));
        (!reads).then(|| write("execute"))
    }
}
