//! YAML as programs write it: a table or a list at the top level, with its entries indented below. Other forms are not
//! edited.

use std::fmt::Write as _;

use serde_json::Value;

use super::{EntryLocation, TableForm};

pub(super) fn edit(text: &str, place: EntryLocation<'_>, entry: Option<&Value>) -> Option<String> {
    let Some((table, [])) = place.table.split_first() else {
        return remove_empty_table(text, place, entry);
    };
    let end = if text.contains("\r\n") { "\r\n" } else { "\n" };
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    let (head, empty) = (format!("{table}:"), empty_table(table, place.shape));
    let is_head = |line: &&mut String| [&head, &empty].contains(&&line.trim_end().to_owned());
    if let Some(line) = lines.iter_mut().find(is_head) {
        line.clone_from(&head);
    }
    let at = lines.iter().position(|line| line.trim_end() == head);
    let (at, indent) = match at {
        Some(at) => (at, indent_below(&lines, at, place.shape).unwrap_or(2)),
        None => {
            entry?;
            lines.push(head);
            (lines.len() - 1, 2)
        }
    };
    let block = find_entry_lines(&lines, at, indent, place);
    if let Some((from, to)) = block {
        lines.drain(from..to);
    }
    if let Some(entry) = entry {
        let written = render_entry(place, entry, indent)?;
        // New items are appended to a list.
        let place = match (place.shape, block) {
            (TableForm::List, Some((from, _))) => from,
            (TableForm::List, None) => table_end(&lines, at, indent, place.shape),
            (TableForm::Map, _) => at + 1,
        };
        lines.splice(place..place, written);
    }
    // A key without a value is null, which some readers do not accept as a table.
    if indent_below(&lines, at, place.shape).is_none() {
        lines[at] = empty;
    }
    let mut edited = lines.join(end);
    edited.push_str(end);
    Some(edited)
}

fn empty_table(table: &str, shape: TableForm) -> String {
    match shape {
        TableForm::Map => format!("{table}: {{}}"),
        TableForm::List => format!("{table}: []"),
    }
}

/// Removes an empty table from the document.
fn remove_empty_table(
    text: &str,
    place: EntryLocation<'_>,
    entry: Option<&Value>,
) -> Option<String> {
    if !place.table.is_empty() || entry.is_some() {
        return None;
    }
    let empty = [TableForm::Map, TableForm::List].map(|shape| empty_table(place.name, shape));
    let is_it = |line: &&str| empty.iter().any(|empty| line.trim_end() == empty);
    let lines = text.split_inclusive('\n');
    Some(lines.filter(|line| !is_it(line)).collect())
}

/// The indentation of the table's entries.
fn indent_below(lines: &[String], at: usize, shape: TableForm) -> Option<usize> {
    let mut below = lines[at + 1..].iter().filter(|line| is_content(line));
    let first = below.next()?;
    let indent = indentation(first);
    match shape {
        TableForm::Map => (indent > 0).then_some(indent),
        TableForm::List => is_item(first).then_some(indent),
    }
}

/// The index after the last line of the table with content.
fn table_end(lines: &[String], at: usize, indent: usize, shape: TableForm) -> usize {
    let inside = |line: &String| match shape {
        _ if !is_content(line) => true,
        TableForm::List if indentation(line) == indent => is_item(line),
        TableForm::Map | TableForm::List => indentation(line) >= indent,
    };
    let end = lines[at + 1..].iter().position(|line| !inside(line));
    let end = end.map_or(lines.len(), |end| at + 1 + end);
    trim_comments(lines, at, end)
}

/// Trailing comments and empty lines of a block belong to what follows.
fn trim_comments(lines: &[String], from: usize, to: usize) -> usize {
    let last = (from + 1..to).rev().find(|at| is_content(&lines[*at]));
    last.map_or(from + 1, |last| last + 1)
}

/// The lines of the entry of this name.
fn find_entry_lines(
    lines: &[String],
    at: usize,
    indent: usize,
    place: EntryLocation<'_>,
) -> Option<(usize, usize)> {
    let end = table_end(lines, at, indent, place.shape);
    let starts = |at: &usize| is_content(&lines[*at]) && indentation(&lines[*at]) <= indent;
    let starts: Vec<usize> = (at + 1..end).filter(starts).collect();
    let to = |from: usize| {
        let next = starts.iter().copied().find(|next| *next > from);
        trim_comments(lines, from, next.unwrap_or(end))
    };
    let is_it = |from: &usize| match place.shape {
        TableForm::Map => {
            let key = lines[*from].trim().strip_suffix(':');
            key.is_some_and(|key| key.trim_matches(['"', '\'']) == place.name)
        }
        TableForm::List => item_name(&lines[*from..to(*from)]) == Some(place.name),
    };
    let from = starts.iter().copied().find(|from| is_it(from))?;
    Some((from, to(from)))
}

/// The `name` of a list item.
fn item_name(lines: &[String]) -> Option<&str> {
    let within = lines.iter().filter(|line| is_content(line));
    let mut keys = within.map(|line| line.trim_start().trim_start_matches("- ").trim_start());
    let name = keys.find_map(|key| key.strip_prefix("name:"))?;
    let name = name.split(" #").next()?;
    Some(name.trim().trim_matches(['"', '\'']))
}

fn is_item(line: &str) -> bool {
    line.trim_start().starts_with("- ")
}

fn is_content(line: &str) -> bool {
    let text = line.trim_start();
    !text.is_empty() && !text.starts_with('#')
}

fn indentation(line: &str) -> usize {
    line.len() - line.trim_start_matches(' ').len()
}

/// The entry's lines. Values are written as JSON, which is valid YAML.
fn render_entry(place: EntryLocation<'_>, entry: &Value, indent: usize) -> Option<Vec<String>> {
    let mut lines = Vec::new();
    if place.shape == TableForm::Map {
        lines.push(format!("{:indent$}{}:", "", place.name));
    }
    for (at, (key, value)) in entry.as_object()?.iter().enumerate() {
        let mut line = match place.shape {
            TableForm::Map => format!("{:deeper$}{key}: ", "", deeper = indent * 2),
            TableForm::List if at == 0 => format!("{:indent$}- {key}: ", ""),
            TableForm::List => format!("{:deeper$}{key}: ", "", deeper = indent + 2),
        };
        write!(line, "{}", serde_json::to_string(value).ok()?).ok()?;
        lines.push(line);
    }
    Some(lines)
}
