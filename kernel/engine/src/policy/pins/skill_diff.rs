//! Renders changes of skills for people, and the form of their entries that is pinned.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use mgp_json::{elements, member, members, set_members};
use serde::Deserialize;
use serde_json::value::RawValue;

#[derive(PartialEq, Eq, Deserialize)]
struct FileRecord {
    uri: String,
    digest: String,
    size: u64,
}

/// What is pinned of an entry: the same text for the same skill, in whatever order its files are listed.
pub(super) fn canonical_entry(entry: &str) -> String {
    let Some(files) = member(entry, "resources").and_then(elements) else {
        return entry.to_owned();
    };
    let mut files: Vec<&str> = files.iter().map(|file| file.get()).collect();
    files.sort_unstable_by_key(|file| member(file, "uri"));
    set_members(entry, &[("resources", &format!("[{}]", files.join(",")))])
}

/// Most lines of a difference.
const DIFF_LINES_MAX: usize = 100;
/// Most characters of a member in it.
const DIFF_CHARS_MAX: usize = 160;

/// What changed in a skill, line by line: members of its frontmatter, and its files. `old` is `None` for a nested skill that
/// nobody approved, and for an entry that was too long to store.
pub(super) fn render_diff(skill: &str, old: Option<&str>, new: &str) -> Vec<String> {
    let Some(old) = old else {
        let mut lines = vec![format!("{skill}: not approved yet")];
        lines
            .extend(member(new, "frontmatter").map(|text| format!("  frontmatter: {}", cut(text))));
        return lines;
    };
    let mut lines = vec![format!("{skill}: changed")];
    let fields = |entry| {
        member(entry, "frontmatter")
            .and_then(members)
            .unwrap_or_default()
    };
    let (before, now) = (fields(old), fields(new));
    let names: BTreeSet<&str> = before.iter().chain(&now).map(|(name, _)| &**name).collect();
    for name in names {
        let value = |of: &[(Cow<'_, str>, &RawValue)]| {
            let field = of.iter().find(|(it, _)| it == name);
            field.map_or("(none)".to_owned(), |(_, value)| cut(value.get()))
        };
        let (before, now) = (value(&before), value(&now));
        if before != now {
            lines.push(format!("  {name} was: {before}"));
            lines.push(format!("  {name} is:  {now}"));
        }
    }
    match (files(old), files(new)) {
        (Some(before), Some(now)) => {
            let names: BTreeSet<&str> = before.keys().chain(now.keys()).map(|it| &**it).collect();
            lines.extend(names.into_iter().filter_map(|name| {
                let size = |file: &FileRecord| format!("{} bytes", file.size);
                match (before.get(name), now.get(name)) {
                    (Some(before), Some(now)) if before == now => None,
                    (Some(before), Some(now)) => Some(format!(
                        "  changed {name}: {}, {} before",
                        size(now),
                        size(before)
                    )),
                    (None, Some(now)) => Some(format!("  added {name}: {}", size(now))),
                    (Some(_), None) => Some(format!("  removed {name}")),
                    (None, None) => None,
                }
            }));
        }
        (Some(_), None) => lines.push("  its content is dynamic now, without digests".into()),
        (None, Some(_)) => lines.push("  its files have digests now".into()),
        (None, None) => {}
    }
    if let Some(more) = lines.len().checked_sub(DIFF_LINES_MAX).filter(|n| *n > 0) {
        lines.truncate(DIFF_LINES_MAX);
        lines.push(format!("  and {more} more lines"));
    }
    lines
}

/// The files of an entry by URI; `None` for a dynamic skill.
fn files(entry: &str) -> Option<BTreeMap<String, FileRecord>> {
    let files = member(entry, "resources").and_then(elements)?;
    let files = files.iter().filter_map(|file| {
        let file: FileRecord = serde_json::from_str(file.get()).ok()?;
        Some((file.uri.clone(), file))
    });
    Some(files.collect())
}

fn cut(text: &str) -> String {
    let mut shown: String = text.chars().take(DIFF_CHARS_MAX).collect();
    if shown.len() < text.len() {
        shown.push('…');
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const FILE: &str = "skill://a/SKILL.md";

    /// EXT-047: the order of files is no change, and a difference is shown by member and by file.
    #[test]
    fn differences_are_shown_by_file() {
        let entry = |description: &str, files: &[(&str, &str)]| {
            let files: Vec<_> = files
                .iter()
                .map(|(name, text)| json!({"uri": format!("skill://a/{name}"), "digest": text, "size": text.len()}))
                .collect();
            json!({"uri": FILE, "frontmatter": {"name": "a", "description": description}, "resources": files})
                .to_string()
        };
        let old = entry("good", &[("SKILL.md", "x"), ("b", "y"), ("c", "z")]);
        let turned = entry("good", &[("c", "z"), ("b", "y"), ("SKILL.md", "x")]);
        assert_ne!(old, turned);
        assert_eq!(canonical_entry(&old), canonical_entry(&turned));
        let new = entry("evil", &[("SKILL.md", "xx"), ("c", "z"), ("d", "w")]);
        assert_eq!(
            render_diff(FILE, Some(&old), &new),
            [
                "skill://a/SKILL.md: changed",
                r#"  description was: "good""#,
                r#"  description is:  "evil""#,
                "  changed skill://a/SKILL.md: 2 bytes, 1 bytes before",
                "  removed skill://a/b",
                "  added skill://a/d: 1 bytes",
            ]
        );
        assert_eq!(render_diff(FILE, None, &new).len(), 2);
        let many: Vec<String> = (0..300).map(|n| n.to_string()).collect();
        let many: Vec<(&str, &str)> = many.iter().map(|name| (&**name, "x")).collect();
        assert_eq!(
            render_diff(FILE, Some(&old), &entry("good", &many)).len(),
            DIFF_LINES_MAX + 1
        );
    }
}
