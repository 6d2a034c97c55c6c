//! The names in conditions, and the nearest one to a misspelt one.

use super::syntax::Fact;

/// Every fact by its path.
const FACTS: [(&str, Fact); 13] = [
    ("args", Fact::Arguments),
    ("agent", Fact::Agent),
    ("node", Fact::Node),
    ("time", Fact::Time),
    ("trust", Fact::Trust),
    ("tool.name", Fact::ToolName),
    ("tool.server", Fact::ToolServer),
    ("tool.risk", Fact::ToolRisk),
    ("tool.effect", Fact::ToolEffect),
    ("tool.annotations.readOnlyHint", Fact::ReadOnlyHint),
    ("tool.annotations.destructiveHint", Fact::DestructiveHint),
    ("tool.annotations.idempotentHint", Fact::IdempotentHint),
    ("tool.annotations.openWorldHint", Fact::OpenWorldHint),
];

/// Least similarity of a suggestion.
const SIMILARITY_MIN: f64 = 0.6;

/// What a path names.
pub(super) enum FactLookup {
    Fact(Fact),
    /// Something with members, by their names.
    Folder(String),
    /// Nothing, as text.
    Unknown(String),
}

pub(super) fn find_fact(path: &str) -> FactLookup {
    if let Some((_, fact)) = FACTS.iter().find(|(name, _)| *name == path) {
        return FactLookup::Fact(*fact);
    }
    let members = members_of(path);
    if !members.is_empty() {
        return FactLookup::Folder(members.join(", "));
    }
    let (folder, last) = path.rsplit_once('.').unwrap_or(("", path));
    let hint = nearest(last, members_of(folder).into_iter());
    FactLookup::Unknown(format!("there is no {path}{hint}"))
}

fn members_of(folder: &str) -> Vec<&'static str> {
    let mut all = Vec::new();
    for (name, _) in FACTS {
        let rest = match folder {
            "" => Some(name),
            _ => name
                .strip_prefix(folder)
                .and_then(|rest| rest.strip_prefix('.')),
        };
        let member = rest.and_then(|rest| rest.split('.').next());
        all.extend(member.filter(|member| all.last() != Some(member)));
    }
    all
}

/// A suggestion for a misspelt name, as the end of a sentence; else the known names, where they are few.
pub(super) fn nearest<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> String {
    let known: Vec<&str> = known.collect();
    let similarity = |other: &str| strsim::jaro_winkler(name, other);
    let best = known
        .iter()
        .copied()
        .map(|other| (similarity(other), other));
    let best = best.max_by(|(one, _), (other, _)| one.total_cmp(other));
    match best {
        Some((similarity, other)) if similarity >= SIMILARITY_MIN => {
            format!("; did you mean {other}?")
        }
        Some(_) if known.len() <= 12 => format!("; there is {}", known.join(", ")),
        Some(_) | None => String::new(),
    }
}
