//! Walks the tokens of a file: its modules, its paths, and what only tests see.

use std::collections::{BTreeMap, BTreeSet};

use proc_macro2::{Delimiter, TokenStream, TokenTree};

use super::uses::{self, is, plain};
use super::{Address, Module};

/// What has been read so far.
#[derive(Default)]
pub(super) struct Read {
    pub(super) modules: BTreeMap<Address, Module>,
    /// Modules that exist for tests only.
    pub(super) gated: BTreeSet<Address>,
}

/// The words that begin an item, as opposed to a field, a variant or an argument.
const ITEMS: [&str; 14] = [
    "pub",
    "fn",
    "impl",
    "struct",
    "enum",
    "trait",
    "mod",
    "use",
    "const",
    "static",
    "async",
    "type",
    "extern",
    "macro_rules",
];

impl Read {
    pub(super) fn file(&mut self, file: &str, at: &Address, text: &str) {
        let stream: TokenStream = text
            .parse()
            .unwrap_or_else(|error| panic!("{file}: {error}"));
        self.modules.entry(at.clone()).or_default().file = file.to_owned();
        self.walk(stream, at);
    }

    fn walk(&mut self, stream: TokenStream, at: &Address) {
        let trees: Vec<TokenTree> = stream.into_iter().collect();
        let mut i = 0;
        while i < trees.len() {
            i = self.step(&trees, i, at);
        }
    }

    /// Reads what begins at `i`, and answers where the next thing begins.
    fn step(&mut self, trees: &[TokenTree], i: usize, at: &Address) -> usize {
        let module = self.modules.entry(at.clone()).or_default();
        let next = trees.get(i + 1);
        let word = match &trees[i] {
            TokenTree::Group(group) => {
                self.walk(group.stream(), at);
                return i + 1;
            }
            TokenTree::Punct(sign) if sign.as_char() == '#' => {
                let Some(attribute) = next.and_then(bracketed) else {
                    return i + 1;
                };
                if !for_tests(&attribute) {
                    return i + 2;
                }
                let (end, name) = item(trees, i + 2);
                if let Some(name) = name {
                    self.gated.insert([&at[..], &[name]].concat());
                }
                return end;
            }
            TokenTree::Punct(_) | TokenTree::Literal(_) => return i + 1,
            TokenTree::Ident(word) => word,
        };
        let after_colons = i >= 2 && is(&trees[i - 1], ':') && is(&trees[i - 2], ':');
        match (word.to_string().as_str(), next, trees.get(i + 2)) {
            ("mod", Some(TokenTree::Ident(name)), Some(TokenTree::Group(inner))) => {
                let inner_at = [&at[..], &[plain(name)]].concat();
                let file = module.file.clone();
                self.modules.entry(inner_at.clone()).or_default().file = file;
                self.walk(inner.stream(), &inner_at);
                i + 3
            }
            ("use", Some(first), _) if !is(first, '<') => {
                let rest = &trees[i + 1..];
                let len = rest.iter().position(|tree| is(tree, ';'));
                let len = len.unwrap_or(rest.len());
                module.uses.extend(uses::read(&rest[..len]));
                i + 2 + len
            }
            ("struct" | "enum" | "trait", Some(TokenTree::Ident(name)), _) => {
                module.types.push(name.to_string());
                i + 2
            }
            _ => {
                let (path, end) = path(trees, i);
                if path.len() > 1 && !after_colons {
                    module.paths.push(path);
                }
                end
            }
        }
    }
}

/// The path whose first segment is at `i`, and where it ends.
fn path(trees: &[TokenTree], i: usize) -> (Address, usize) {
    let mut path = Address::new();
    let mut at = i;
    while let Some(TokenTree::Ident(word)) = trees.get(at) {
        path.push(plain(word));
        let more = matches!(trees.get(at + 3), Some(TokenTree::Ident(_)));
        let colons = trees.get(at + 1..at + 3);
        if !more || !colons.is_some_and(|two| two.iter().all(|tree| is(tree, ':'))) {
            return (path, at + 1);
        }
        at += 3;
    }
    (path, at)
}

/// Where the item that begins at `i` ends, and its name if it is a module.
fn item(trees: &[TokenTree], mut i: usize) -> (usize, Option<String>) {
    while trees.get(i).is_some_and(|tree| is(tree, '#')) {
        i += 2;
    }
    let words = |from: usize| trees[from..].iter();
    let first = trees.get(i).map(ToString::to_string).unwrap_or_default();
    let is_item = ITEMS.contains(&first.as_str());
    let import = words(i).take(3).any(|tree| tree.to_string() == "use");
    let end = words(i).position(|tree| match tree {
        TokenTree::Group(group) => group.delimiter() == Delimiter::Brace && !import,
        TokenTree::Punct(sign) => sign.as_char() == ';' || sign.as_char() == ',' && !is_item,
        TokenTree::Ident(_) | TokenTree::Literal(_) => false,
    });
    let end = end.map_or(trees.len(), |len| i + len + 1);
    let within = trees.get(i..end).unwrap_or_default();
    let name = within.windows(2).find_map(|pair| match pair {
        [TokenTree::Ident(word), TokenTree::Ident(name)] if word == "mod" => Some(plain(name)),
        _ => None,
    });
    (end, name)
}

fn bracketed(tree: &TokenTree) -> Option<String> {
    match tree {
        TokenTree::Group(group) if group.delimiter() == Delimiter::Bracket => {
            Some(group.stream().to_string().replace(' ', ""))
        }
        TokenTree::Group(_) | TokenTree::Ident(_) | TokenTree::Punct(_) | TokenTree::Literal(_) => {
            None
        }
    }
}

/// `test`, or `cfg` of something with `test` in it that is not `not(test)`.
fn for_tests(attribute: &str) -> bool {
    let conditions = attribute.strip_prefix("cfg(");
    let mut words = conditions
        .into_iter()
        .flat_map(|all| all.split(|c: char| !c.is_alphanumeric() && c != '_'));
    attribute == "test" || !attribute.contains("not(test") && words.any(|word| word == "test")
}
