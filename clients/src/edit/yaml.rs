//! YAML of the kind that programs write: a table at the top, its entries indented below it. Anything else is
//! not edited.

use std::fmt::Write as _;

use serde_json::Value;

use super::EntryPlace;

pub(super) fn edit(text: &str, place: EntryPlace<'_>, entry: Option<&Value>) -> Option<String> {
    let end = if text.contains("\r\n") { "\r\n" } else { "\n" };
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    let head = format!("{}:", place.table);
    let at = lines.iter().position(|line| line.trim_end() == head);
    let (at, indent) = match at {
        Some(at) => (at, indent_below(&lines, at).unwrap_or(2)),
        None => {
            entry?;
            lines.push(head);
            (lines.len() - 1, 2)
        }
    };
    if let Some((from, to)) = block(&lines, at, indent, place.name) {
        lines.drain(from..to);
    }
    if let Some(entry) = entry {
        let written = written(place.name, entry, indent)?;
        lines.splice(at + 1..at + 1, written);
    }
    let mut edited = lines.join(end);
    edited.push_str(end);
    Some(edited)
}

/// By how much the entries of the table are indented.
fn indent_below(lines: &[String], at: usize) -> Option<usize> {
    let mut below = lines[at + 1..].iter().filter(|line| is_content(line));
    let indent = indent_of(below.next()?);
    (indent > 0).then_some(indent)
}

/// The lines of the entry of this name.
fn block(lines: &[String], at: usize, indent: usize, name: &str) -> Option<(usize, usize)> {
    let inside = |line: &String| !is_content(line) || indent_of(line) >= indent;
    let end = lines[at + 1..].iter().position(|line| !inside(line));
    let end = end.map_or(lines.len(), |end| at + 1 + end);
    let head = |line: &String| {
        let key = line.trim().strip_suffix(':')?;
        Some(indent_of(line) == indent && key.trim_matches(['"', '\'']) == name)
    };
    let from = (at + 1..end).find(|at| head(&lines[*at]) == Some(true))?;
    let to = (from + 1..end).find(|at| is_content(&lines[*at]) && indent_of(&lines[*at]) <= indent);
    Some((from, to.unwrap_or(end)))
}

fn is_content(line: &str) -> bool {
    let text = line.trim_start();
    !text.is_empty() && !text.starts_with('#')
}

fn indent_of(line: &str) -> usize {
    line.len() - line.trim_start_matches(' ').len()
}

/// The entry's lines. Values are written as JSON, which is YAML.
fn written(name: &str, entry: &Value, indent: usize) -> Option<Vec<String>> {
    let mut lines = vec![format!("{:indent$}{name}:", "")];
    let deeper = indent * 2;
    for (key, value) in entry.as_object()? {
        let mut line = format!("{:deeper$}{key}: ", "");
        write!(line, "{}", serde_json::to_string(value).ok()?).ok()?;
        lines.push(line);
    }
    Some(lines)
}
