//! Which keys of the kernel's own sections changed since it was started, and which of them wait for its
//! next start.

use std::collections::{BTreeMap, BTreeSet};

use toml::{Table, Value};

use super::kernel::KernelConfig;

/// What the kernel's own sections say, key by key: section, then key, then the value as TOML. It may hold
/// secrets, and so shows none.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct WrittenKeys(BTreeMap<String, BTreeMap<String, String>>);

impl WrittenKeys {
    /// Takes over what a file says, over what weaker files said. One that cannot be read says nothing here.
    pub(super) fn add_file(&mut self, text: &str) {
        let table: Table = text.parse().unwrap_or_default();
        for (section, value) in &table {
            if let Value::Table(keys) = value {
                self.add_keys(section, keys);
            }
        }
    }

    fn add_keys(&mut self, section: &str, keys: &Table) {
        for (key, value) in keys {
            match value {
                Value::Table(inner) => {
                    self.add_keys(&format!("{section}.{}", table_key(key)), inner)
                }
                Value::String(_)
                | Value::Integer(_)
                | Value::Float(_)
                | Value::Boolean(_)
                | Value::Datetime(_)
                | Value::Array(_) => {
                    let keys = self.0.entry(section.to_owned()).or_default();
                    keys.insert(key.clone(), value.to_string());
                }
            }
        }
    }

    /// The keys that are not the same in both.
    fn changed_keys<'w>(&'w self, other: &'w Self) -> BTreeMap<&'w str, BTreeSet<&'w str>> {
        let mut changed: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for (one, another) in [(self, other), (other, self)] {
            for (section, keys) in &one.0 {
                let theirs = another.0.get(section);
                let differs =
                    |key: &&String| theirs.and_then(|keys| keys.get(*key)) != keys.get(*key);
                let keys = keys.keys().filter(differs).map(String::as_str);
                changed.entry(section).or_default().extend(keys);
            }
        }
        changed
    }
}

/// A key as it stands in the head of a table.
fn table_key(key: &str) -> String {
    let bare = |c: char| c.is_ascii_alphanumeric() || "-_".contains(c);
    if !key.is_empty() && key.chars().all(bare) {
        key.to_owned()
    } else {
        format!("{key:?}")
    }
}

/// What a kernel that runs by `running` does not do yet of what is written now: a line for each section, with
/// what to do. What is only written otherwise, or is what holds anyway, is no change.
#[must_use]
pub fn pending_restart(
    running: (&KernelConfig, &WrittenKeys),
    now: (&KernelConfig, &WrittenKeys),
) -> Vec<String> {
    let differing = changed_sections(running.0, now.0);
    let mut lines = Vec::new();
    for (section, keys) in running.1.changed_keys(now.1) {
        let top = section.split('.').next().unwrap_or(section);
        let waits = |key: &&str| differing.contains(&top) && !is_reloadable(section, key);
        let keys: Vec<&str> = keys.into_iter().filter(waits).collect();
        if !keys.is_empty() {
            let keys = keys.join(", ");
            lines.push(format!(
                "[{section}] {keys} changed: takes effect after `mgp down && mgp up`"
            ));
        }
    }
    lines
}

/// Keys that reach servers and agents with the next reading of the files.
fn is_reloadable(section: &str, key: &str) -> bool {
    match section {
        // Only the command line looks there.
        "registry" => true,
        "secrets" | "validation" | "permissions" | "pins" | "sandbox" => true,
        mcpl if mcpl == "mcpl" || mcpl.starts_with("mcpl.") => true,
        sets if sets.starts_with("sets.") => true,
        agents if agents.starts_with("agents.") => key == "set",
        "access" => key == "default_policy",
        "confirmation" => key == "enabled",
        // What holds for an agent is counted from the kernel's start on, and its doors keep their bound.
        "limits" => !key.starts_with("agent_") && key != "max_frame_bytes",
        _ => false,
    }
}

/// The sections that mean something else than before.
fn changed_sections(one: &KernelConfig, other: &KernelConfig) -> Vec<&'static str> {
    let all = [
        ("http", one.http != other.http),
        ("oauth", one.oauth != other.oauth),
        ("lite", one.lite != other.lite),
        ("socket", one.socket != other.socket),
        ("data", one.data != other.data),
        ("secrets", one.secrets != other.secrets),
        ("network", one.network != other.network),
        ("registry", one.registry != other.registry),
        ("streams", one.streams != other.streams),
        ("questions", one.questions != other.questions),
        ("lists", one.lists != other.lists),
        ("health", one.health != other.health),
        ("audit", one.audit != other.audit),
        ("mcpl", one.mcpl != other.mcpl),
        ("access", one.access != other.access),
        ("log", one.log != other.log),
        ("metrics", one.metrics != other.metrics),
        ("telemetry", one.telemetry != other.telemetry),
        ("agents", one.answering != other.answering),
        ("sets", one.sets != other.sets),
        (
            "limits",
            one.limits != other.limits || one.rates != other.rates,
        ),
        ("validation", one.tools != other.tools),
        (
            "confirmation",
            one.tools != other.tools || one.confirmation != other.confirmation,
        ),
        ("permissions", one.permissions != other.permissions),
        ("pins", one.pin != other.pin),
        ("sandbox", one.sandbox != other.sandbox),
        ("discovery", one.discovery != other.discovery),
        ("cluster", one.cluster != other.cluster),
    ];
    let differ = all.into_iter().filter(|(_, differs)| *differs);
    differ.map(|(section, _)| section).collect()
}
