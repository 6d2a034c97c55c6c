//! `use` declarations, with every name in their braces.

use proc_macro2::{Delimiter, Ident, TokenTree};

use super::Address;

/// One name a module imports.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Use {
    pub(crate) path: Address,
    /// What the module calls it; `*` for all that stands there.
    pub(crate) name: String,
}

/// Reads the trees between `use` and its semicolon.
pub(super) fn read(trees: &[TokenTree]) -> Vec<Use> {
    let mut out = Vec::new();
    branches(trees, &[], &mut out);
    out
}

fn branches(trees: &[TokenTree], before: &[String], out: &mut Vec<Use>) {
    for branch in trees.split(|tree| is(tree, ',')) {
        one(branch, before, out);
    }
}

fn one(branch: &[TokenTree], before: &[String], out: &mut Vec<Use>) {
    let mut path = before.to_vec();
    let mut renamed = None;
    let mut trees = branch.iter();
    while let Some(tree) = trees.next() {
        match tree {
            TokenTree::Ident(word) if word == "as" => {
                renamed = trees.next().map(ToString::to_string);
            }
            TokenTree::Ident(word) => path.push(plain(word)),
            TokenTree::Group(inner) if inner.delimiter() == Delimiter::Brace => {
                let inner: Vec<TokenTree> = inner.stream().into_iter().collect();
                return branches(&inner, &path, out);
            }
            TokenTree::Punct(star) if star.as_char() == '*' => path.push("*".to_owned()),
            TokenTree::Punct(_) | TokenTree::Group(_) | TokenTree::Literal(_) => {}
        }
    }
    if path.len() > 1 && path.last().is_some_and(|last| last == "self") {
        path.pop();
    }
    if path.len() == before.len() && branch.is_empty() {
        return;
    }
    let Some(last) = path.last().cloned() else {
        return;
    };
    if last == "*" {
        path.pop();
    }
    out.push(Use {
        path,
        name: renamed.unwrap_or(last),
    });
}

pub(super) fn is(tree: &TokenTree, sign: char) -> bool {
    matches!(tree, TokenTree::Punct(punct) if punct.as_char() == sign)
}

/// A word without `r#`.
pub(super) fn plain(word: &Ident) -> String {
    let word = word.to_string();
    word.strip_prefix("r#").map_or(word.clone(), str::to_owned)
}
