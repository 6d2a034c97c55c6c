//! Preserves comments that do not belong to the removed entry below them.

use toml_edit::{DocumentMut, Item, Table};

/// A comment separated from its entry by a blank line does not belong to it: it moves to the next element.
pub(super) fn preserve_comments(document: &mut DocumentMut, removed: &Table) {
    let above = leading_comment(removed);
    let kept = above.rfind("\n\n").map_or("", |blank| &above[..=blank]);
    if kept.trim().is_empty() {
        return;
    }
    match next_table(
        document.as_table_mut(),
        removed.position().unwrap_or_default(),
    ) {
        Some(next) => {
            let joined = format!("{kept}{}", leading_comment(next));
            next.decor_mut().set_prefix(joined);
        }
        None => {
            let joined = format!("{kept}{}", document.trailing().as_str().unwrap_or_default());
            document.set_trailing(joined);
        }
    }
}

fn leading_comment(table: &Table) -> String {
    let prefix = table.decor().prefix().and_then(|p| p.as_str());
    prefix.unwrap_or_default().to_owned()
}

/// The first table after `position`, at any depth.
fn next_table(table: &mut Table, position: isize) -> Option<&mut Table> {
    let below = |t: &&mut Table| t.position().is_some_and(|p| p > position);
    let nested = table.iter_mut().flat_map(|(_, item)| -> Vec<&mut Table> {
        match item {
            Item::Table(inner) => vec![inner],
            Item::ArrayOfTables(list) => list.iter_mut().collect(),
            Item::None | Item::Value(_) => Vec::new(),
        }
    });
    let mut best: Option<&mut Table> = None;
    for inner in nested {
        let found = if below(&inner) && !inner.is_implicit() {
            Some(inner)
        } else {
            next_table(inner, position)
        };
        let nearer = |b: &Table, f: &Table| f.position() < b.position();
        if let Some(found) = found
            && best.as_ref().is_none_or(|b| nearer(b, found))
        {
            best = Some(found);
        }
    }
    best
}
