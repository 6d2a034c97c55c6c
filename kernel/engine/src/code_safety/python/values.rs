//! What a Python expression may be.

use tree_sitter::Node;

use super::Python;
use crate::code_safety::fold;
use crate::code_safety::tree::{children, field};
use crate::code_safety::value::{MAX_TEXT, Root, Value, Values, joined, merge, texts};

/// Names that stay what they are, whatever else of that name the code makes.
const LASTING: [&str; 13] = [
    "eval",
    "exec",
    "execfile",
    "compile",
    "__import__",
    "__builtins__",
    "__loader__",
    "__spec__",
    "getattr",
    "open",
    "globals",
    "locals",
    "vars",
];

impl Python<'_> {
    /// All that the expression may be, as far as that matters.
    pub(super) fn values(&self, node: Node<'_>, depth: usize) -> Values {
        if !self.scan.step(depth) {
            return vec![Value::Unknown];
        }
        let part =
            |name: &str| field(node, name).map_or_else(Values::new, |n| self.values(n, depth + 1));
        match node.kind() {
            "identifier" => self.named(&self.name(node)),
            "attribute" => {
                let mut out = self.member_values(node, depth);
                merge(&mut out, self.same_named(node));
                out
            }
            "subscript" => self.subscript(node, depth),
            "call" => self.answers(node, depth),
            "string" => vec![self.string(node, depth)],
            "concatenated_string" => {
                let parts = children(node)
                    .into_iter()
                    .map(|n| self.values(n, depth + 1));
                parts
                    .reduce(|all, next| joined(&all, &next))
                    .unwrap_or_default()
            }
            "binary_operator" => self.operated(node, part("left"), part("right")),
            "parenthesized_expression" | "boolean_operator" => {
                let mut out = Values::new();
                children(node)
                    .into_iter()
                    .for_each(|n| merge(&mut out, self.values(n, depth + 1)));
                out
            }
            "conditional_expression" => {
                let mut out = Values::new();
                let branches = children(node)
                    .into_iter()
                    .enumerate()
                    .filter(|(i, _)| *i != 1);
                branches.for_each(|(_, n)| merge(&mut out, self.values(n, depth + 1)));
                out
            }
            "named_expression" => part("value"),
            "assignment" => part("right"),
            _ => vec![Value::Unknown],
        }
    }

    /// A member, as far as what it belongs to is known.
    pub(super) fn member_values(&self, node: Node<'_>, depth: usize) -> Values {
        let name = field(node, "attribute")
            .map(|a| self.name(a))
            .unwrap_or_default();
        let object = field(node, "object").map_or_else(Values::new, |n| self.values(n, depth + 1));
        object
            .iter()
            .map(|v| self.settled(v.member(&name)))
            .collect()
    }

    /// Modules of the member's name: names of a class or of the code itself are members as well.
    fn same_named(&self, node: Node<'_>) -> Values {
        let name = field(node, "attribute")
            .map(|a| self.name(a))
            .unwrap_or_default();
        let bound = self.scan.names.get(&name).into_iter().flatten();
        bound
            .filter(|v| matches!(v, Value::Path(Root::Module, _)))
            .cloned()
            .collect()
    }

    fn named(&self, name: &str) -> Values {
        let bound = self.scan.names.get(name);
        let mut out = bound.cloned().unwrap_or_default();
        if bound.is_none() || LASTING.contains(&name) {
            merge(&mut out, [Value::global(name)]);
        }
        out
    }

    /// A path in its shortest form: `builtins.eval` is `eval`.
    pub(super) fn settled(&self, value: Value) -> Value {
        match value {
            Value::Path(root @ (Root::Module | Root::Global), names) if names.len() > 1 => {
                let parent = names[names.len() - 2].as_str();
                if parent == "builtins" || parent == "__builtins__" {
                    return Value::global(names.last().map_or("", String::as_str));
                }
                Value::Path(root, names)
            }
            Value::Path(..) | Value::Text(_) | Value::Unknown => value,
        }
    }

    fn subscript(&self, node: Node<'_>, depth: usize) -> Values {
        let base = field(node, "value")
            .map(|n| self.values(n, depth + 1))
            .unwrap_or_default();
        let Some(key) = field(node, "subscript") else {
            return vec![Value::Unknown];
        };
        if key.kind() == "slice" {
            let backwards = crate::code_safety::rules::squeezed(self.scan.text(key)) == "::-1";
            return mapped(&base, |t| backwards.then(|| t.chars().rev().collect()));
        }
        self.looked_up(&base, &self.values(key, depth + 1))
    }

    /// What tables of names answer to a key.
    fn looked_up(&self, base: &[Value], keys: &[Value]) -> Values {
        let mut out = Values::new();
        for value in base {
            let Value::Path(root, names) = value else {
                continue;
            };
            for key in texts(keys).unwrap_or_default() {
                let Some((last, holder)) = names.split_last() else {
                    continue;
                };
                match (last.as_str(), holder) {
                    ("__dict__", []) => merge(&mut out, self.named(key)),
                    ("__dict__", holder) => {
                        let holder = Value::Path(*root, holder.to_vec());
                        merge(&mut out, [self.settled(holder.member(key))]);
                    }
                    ("modules", [.., sys]) if sys == "sys" => merge(&mut out, [Value::module(key)]),
                    _ => {}
                }
            }
        }
        if out.is_empty() {
            vec![Value::Unknown]
        } else {
            out
        }
    }

    fn string(&self, node: Node<'_>, depth: usize) -> Value {
        let parts = children(node);
        let start = parts
            .first()
            .map(|n| self.scan.text(*n).to_ascii_lowercase())
            .unwrap_or_default();
        let mut out = vec![Value::Text(String::new())];
        for part in &parts {
            let next = match part.kind() {
                "string_content" => self.content(*part, start.contains('r'), start.contains('b')),
                "interpolation" => match children(*part).as_slice() {
                    [inner] => self.values(*inner, depth + 1),
                    _ => vec![Value::Unknown],
                },
                "string_start" | "string_end" => continue,
                _ => vec![Value::Unknown],
            };
            out = joined(&out, &next);
        }
        match out.as_slice() {
            [one] => one.clone(),
            _ => Value::Unknown,
        }
    }

    fn content(&self, node: Node<'_>, raw: bool, bytes: bool) -> Values {
        let text = self.scan.text(node);
        let text = match raw {
            true => Some(text.to_owned()),
            false => fold::python(text, bytes),
        };
        vec![text.map_or(Value::Unknown, Value::Text)]
    }

    fn operated(&self, node: Node<'_>, left: Values, right: Values) -> Values {
        let operator = field(node, "operator")
            .map(|o| self.scan.text(o))
            .unwrap_or_default();
        match operator {
            "+" => joined(&left, &right),
            "%" => match texts(&right).as_deref() {
                Some([word]) => {
                    let word = (*word).to_owned();
                    mapped(&left, |t| Some(t.replacen("%s", &word, 1)))
                }
                _ => vec![Value::Unknown],
            },
            _ => vec![Value::Unknown],
        }
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
        let mut out = Values::new();
        for value in self.values(function, depth + 1) {
            let Value::Path(root, names) = &value else {
                continue;
            };
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            let answer = match (root, names.as_slice()) {
                (Root::Global, ["getattr"]) => self.members(&argument(0), &argument(1)),
                (Root::Global, ["vars"]) if !arguments.is_empty() => {
                    argument(0).iter().map(|v| v.member("__dict__")).collect()
                }
                (Root::Global, ["vars" | "globals" | "locals"]) => vec![Value::global("__dict__")],
                (Root::Global, ["str"]) => argument(0),
                (Root::Global, ["chr"]) => arguments
                    .first()
                    .map_or_else(Values::new, |n| self.letter(*n)),
                (Root::Global, ["__import__"]) => modules(&argument(0), true),
                (_, [.., "importlib", "__import__" | "import_module"]) => {
                    modules(&argument(0), false)
                }
                (_, [holder @ .., "get" | "pop" | "setdefault" | "__getitem__"])
                    if !holder.is_empty() =>
                {
                    let holder = holder.iter().map(|&n| n.to_owned()).collect();
                    self.looked_up(&[Value::Path(*root, holder)], &argument(0))
                }
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

    fn members(&self, base: &[Value], names: &[Value]) -> Values {
        let names = texts(names).unwrap_or_default();
        let each = base
            .iter()
            .flat_map(|v| names.iter().map(|n| self.settled(v.member(n))));
        each.collect()
    }

    fn letter(&self, node: Node<'_>) -> Values {
        let digits = self.scan.text(node).replace('_', "");
        let code = match digits.strip_prefix("0x") {
            Some(hex) => u32::from_str_radix(hex, 16).ok(),
            None => digits.parse().ok(),
        };
        let letter = code.and_then(char::from_u32);
        letter
            .map(|c| Value::Text(c.to_string()))
            .into_iter()
            .collect()
    }

    /// Methods of texts that often hide a name.
    fn text_method(&self, function: Node<'_>, arguments: &[Node<'_>], depth: usize) -> Values {
        if function.kind() != "attribute" {
            return Values::new();
        }
        let method = field(function, "attribute")
            .map(|a| self.name(a))
            .unwrap_or_default();
        let base = field(function, "object")
            .map(|n| self.values(n, depth + 1))
            .unwrap_or_default();
        if texts(&base).is_none() {
            return Values::new();
        }
        let argument = |i: usize| {
            let values = arguments
                .get(i)
                .map_or_else(Values::new, |n| self.values(*n, depth + 1));
            match texts(&values).as_deref() {
                Some([one]) => Some((*one).to_owned()),
                _ => None,
            }
        };
        match method.as_str() {
            "decode" | "encode" => base,
            "lower" | "casefold" => mapped(&base, |t| Some(t.to_lowercase())),
            "upper" => mapped(&base, |t| Some(t.to_uppercase())),
            "strip" if arguments.is_empty() => mapped(&base, |t| Some(t.trim().to_owned())),
            "replace" => mapped(&base, |t| Some(t.replace(&argument(0)?, &argument(1)?))),
            "format" if arguments.len() == 1 => mapped(&base, |t| {
                Some(t.replace("{0}", "{}").replace("{}", &argument(0)?))
            }),
            "join" => match arguments {
                [list] if ["list", "tuple"].contains(&list.kind()) => {
                    let parts = children(*list)
                        .into_iter()
                        .map(|n| self.values(n, depth + 1));
                    parts
                        .reduce(|all, next| joined(&joined(&all, &base), &next))
                        .unwrap_or_default()
                }
                _ => vec![Value::Unknown],
            },
            _ => vec![Value::Unknown],
        }
    }
}

/// `__import__("a.b")` answers `a`; `import_module` answers `a.b`.
fn modules(names: &[Value], first_only: bool) -> Values {
    let names = texts(names).unwrap_or_default();
    let module = |n: &&str| Value::module(if first_only { super::first(n) } else { n });
    names.iter().map(module).collect()
}

fn mapped(values: &[Value], change: impl Fn(&str) -> Option<String>) -> Values {
    let one = |value: &Value| match value {
        Value::Text(text) => change(text)
            .filter(|t| t.len() <= MAX_TEXT)
            .map_or(Value::Unknown, Value::Text),
        Value::Unknown | Value::Path(..) => Value::Unknown,
    };
    let mut out = Values::new();
    merge(&mut out, values.iter().map(one));
    out
}
