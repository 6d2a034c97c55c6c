//! Changes of the kernel's own sections since its start, and which of them need a restart.

use std::collections::{BTreeMap, BTreeSet};

use toml::{Table, Value};

use super::kernel::KernelConfig;

/// The keys of the kernel's own sections: section, then key, then the value as TOML. Values may be secrets, so `Debug`
/// shows none.
#[derive(Clone, Default, PartialEq, Eq)]
pub(crate) struct WrittenKeys(BTreeMap<String, BTreeMap<String, String>>);

impl WrittenKeys {
    /// Overrides the keys of weaker files. A file that cannot be parsed adds nothing.
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

    /// The keys whose values differ.
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

/// A key, quoted as in the head of a table.
fn table_key(key: &str) -> String {
    let bare = |c: char| c.is_ascii_alphanumeric() || "-_".contains(c);
    if !key.is_empty() && key.chars().all(bare) {
        key.to_owned()
    } else {
        format!("{key:?}")
    }
}

/// The changes that need a restart of a kernel started with `running`: a line for each section, with the remedy. Values
/// written differently with the same meaning, and explicit defaults, are no changes.
#[must_use]
pub(crate) fn pending_restart(
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

/// Keys that are applied when the files are read again.
fn is_reloadable(section: &str, key: &str) -> bool {
    match section {
        // Used only by the command line.
        "registry" => true,
        "secrets" | "validation" | "permissions" | "pins" | "sandbox" => true,
        mcpl if mcpl == "mcpl" || mcpl.starts_with("mcpl.") => true,
        sets if sets.starts_with("sets.") => true,
        agents if agents.starts_with("agents.") => key == "set",
        "access" => key == "default_policy",
        "confirmation" => key == "enabled",
        // Limits of agents count from the start, and listeners keep their bounds.
        "limits" => !key.starts_with("agent_") && key != "max_frame_bytes",
        _ => false,
    }
}

/// The sections whose values differ.
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
