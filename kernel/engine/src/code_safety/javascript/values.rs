//! What a JavaScript expression may be.

use tree_sitter::Node;

use super::JavaScript;
use crate::code_safety::fold;
use crate::code_safety::tree::{bare, children, field};
use crate::code_safety::value::{Root, Value, Values, joined, merge, texts};

/// Names that stay what they are, whatever else of that name the code makes.
const LASTING: [&str; 5] = ["eval", "Function", "require", "globalThis", "process"];
/// The global object, by its names.
const WORLD: [&str; 8] = [
    "globalThis",
    "global",
    "window",
    "self",
    "GLOBAL",
    "root",
    "top",
    "frames",
];
/// Globals that are dangerous as members of something that may be the global object.
const OF_WORLD: [&str; 5] = ["eval", "Function", "process", "require", "globalThis"];

impl JavaScript<'_> {
    /// All that the expression may be, as far as that matters.
    pub(super) fn values(&self, node: Node<'_>, depth: usize) -> Values {
        if !self.scan.step(depth) {
            return vec![Value::Unknown];
        }
        let part =
            |name: &str| field(node, name).map_or_else(Values::new, |n| self.values(n, depth + 1));
        let united = |names: [&str; 2]| {
            let mut out = Values::new();
            names.iter().for_each(|n| merge(&mut out, part(n)));
            out
        };
        match node.kind() {
            "identifier" | "shorthand_property_identifier" => self.named(&self.name(node)),
            // Outside a method it is the global object.
            "this" => vec![Value::Path(Root::Unknown, vec!["globalThis".to_owned()])],
            "member_expression" => {
                let name = field(node, "property")
                    .map(|p| self.name(p))
                    .unwrap_or_default();
                let mut out: Values = part("object")
                    .iter()
                    .map(|v| settled(v.member(&name)))
                    .collect();
                if out.contains(&Value::global(&name)) {
                    merge(&mut out, self.named(&name));
                }
                out
            }
            "subscript_expression" => members(&part("object"), &part("index")),
            "call_expression" => self.answers(node, depth),
            "string" => {
                let text = self.scan.text(node);
                let text = text
                    .get(1..text.len().saturating_sub(1))
                    .and_then(fold::javascript);
                vec![text.map_or(Value::Unknown, Value::Text)]
            }
            "template_string" => self.template(node, depth),
            "binary_expression" => {
                match field(node, "operator").map_or("", |o| self.scan.text(o)) {
                    "+" => joined(&part("left"), &part("right")),
                    "||" | "&&" | "??" => united(["left", "right"]),
                    _ => vec![Value::Unknown],
                }
            }
            "ternary_expression" => united(["consequence", "alternative"]),
            "assignment_expression" => part("right"),
            "parenthesized_expression" | "sequence_expression" | "await_expression" => {
                children(node)
                    .last()
                    .map_or_else(Values::new, |n| self.values(*n, depth + 1))
            }
            _ => vec![Value::Unknown],
        }
    }

    fn named(&self, name: &str) -> Values {
        let bound = self.scan.names.get(name);
        let mut out = bound.cloned().unwrap_or_default();
        if bound.is_none() || LASTING.contains(&name) {
            merge(&mut out, [Value::global(name)]);
        }
        out
    }

    fn template(&self, node: Node<'_>, depth: usize) -> Values {
        let parts = children(node).into_iter().map(|part| match part.kind() {
            "template_substitution" => children(part)
                .last()
                .map_or_else(Values::new, |n| self.values(*n, depth + 1)),
            _ => vec![fold::javascript(self.scan.text(part)).map_or(Value::Unknown, Value::Text)],
        });
        parts.fold(vec![Value::Text(String::new())], |all, next| {
            joined(&all, &next)
        })
    }

    /// What a call answers.
    fn answers(&self, node: Node<'_>, depth: usize) -> Values {
        let Some(function) = field(node, "function") else {
            return vec![Value::Unknown];
        };
        let arguments = field(node, "arguments").map(children).unwrap_or_default();
        let argument = |i: usize| {
            arguments
                .get(i)
                .map_or_else(Values::new, |n| self.values(*n, depth + 1))
        };
        if function.kind() == "import" {
            return modules(&argument(0));
        }
        if bare(function).kind().contains("function") {
            return vec![Value::Path(Root::Unknown, vec!["globalThis".to_owned()])];
        }
        let mut out = Values::new();
        for value in self.values(function, depth + 1) {
            let Value::Path(root, names) = &value else {
                continue;
            };
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            let answer = match (root, names.as_slice()) {
                (Root::Global, ["require"]) | (_, [.., "module" | "mainModule", "require"]) => {
                    modules(&argument(0))
                }
                (Root::Global, ["Reflect", "get"]) => members(&argument(0), &argument(1)),
                (Root::Global, ["String", "fromCharCode" | "fromCodePoint"]) => {
                    self.letters(&arguments)
                }
                (Root::Global, ["String"]) => argument(0),
                _ => Values::new(),
            };
            merge(&mut out, answer);
        }
        merge(&mut out, self.text_method(function, &arguments, depth));
        if out.is_empty() {
            vec![Value::Unknown]
        } else {
            out
        }
    }

    fn letters(&self, arguments: &[Node<'_>]) -> Values {
        let letter = |n: &Node<'_>| {
            let digits = self.scan.text(*n);
            let code = match digits.strip_prefix("0x") {
                Some(hex) => u32::from_str_radix(hex, 16).ok(),
                None => digits.parse().ok(),
            };
            code.and_then(char::from_u32)
        };
        let text: Option<String> = arguments.iter().map(letter).collect();
        vec![text.map_or(Value::Unknown, Value::Text)]
    }

    /// Methods of texts and lists of texts that often hide a name.
    fn text_method(&self, function: Node<'_>, arguments: &[Node<'_>], depth: usize) -> Values {
        if function.kind() != "member_expression" {
            return Values::new();
        }
        let method = field(function, "property")
            .map(|p| self.name(p))
            .unwrap_or_default();
        let Some(object) = field(function, "object").map(bare) else {
            return Values::new();
        };
        let of = |n: &Node<'_>| self.values(*n, depth + 1);
        match (method.as_str(), object.kind()) {
            ("join", "array") => {
                let between = arguments
                    .first()
                    .map_or_else(|| vec![Value::Text(",".to_owned())], of);
                let parts = children(object)
                    .into_iter()
                    .map(|n| self.values(n, depth + 1));
                parts
                    .reduce(|all, next| joined(&joined(&all, &between), &next))
                    .unwrap_or_default()
            }
            ("concat", _) => {
                let base = self.values(object, depth + 1);
                match texts(&base).is_some() {
                    true => arguments
                        .iter()
                        .map(of)
                        .fold(base, |all, next| joined(&all, &next)),
                    false => Values::new(),
                }
            }
            ("toString" | "trim" | "valueOf", _) => {
                let base = self.values(object, depth + 1);
                if texts(&base).is_some() {
                    base
                } else {
                    Values::new()
                }
            }
            _ => Values::new(),
        }
    }
}

/// The members of these names.
pub(super) fn members(base: &[Value], names: &[Value]) -> Values {
    let Some(names) = texts(names) else {
        return vec![Value::Unknown];
    };
    let mut out = Values::new();
    merge(
        &mut out,
        base.iter()
            .flat_map(|v| names.iter().map(|n| settled(v.member(n)))),
    );
    out
}

fn modules(names: &[Value]) -> Values {
    texts(names)
        .unwrap_or_default()
        .iter()
        .map(|n| module(n))
        .collect()
}

/// The module of an import: `node:fs/promises` is `fs`, member `promises`.
pub(super) fn module(name: &str) -> Value {
    Value::module(name.strip_prefix("node:").unwrap_or(name))
}

/// A path in its shortest form: `globalThis.process` is `process`, `fs.default` is `fs`.
pub(super) fn settled(value: Value) -> Value {
    let Value::Path(mut root, mut names) = value else {
        return value;
    };
    names.retain(|n| n != "default");
    while names.len() > 1 && WORLD.contains(&names[0].as_str()) && root != Root::Module {
        let known = root == Root::Global || OF_WORLD.contains(&names[1].as_str());
        if !known {
            break;
        }
        names.remove(0);
        root = Root::Global;
    }
    Value::Path(root, names)
}
