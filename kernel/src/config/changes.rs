//! Changes of the kernel's own sections since its start, and which of them need a restart.

use std::collections::{BTreeMap, BTreeSet};

use toml::{Table, Value};

use super::kernel::KernelConfig;
use super::parsing::{table_key, tuning_path};

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
                    // A key of `[tuning]` is the same key in its old place.
                    let moved = tuning_path(&format!("{section}.{key}"));
                    let section = match moved {
                        Some(_) => format!("tuning.{section}"),
                        None => section.to_owned(),
                    };
                    let keys = self.0.entry(section).or_default();
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

/// The changes that need a restart of a kernel started with `running`: a line for each section, with the remedy. Values
/// written differently with the same meaning, and explicit defaults, are no changes.
#[must_use]
pub(crate) fn pending_restart(
    running: (&KernelConfig, &WrittenKeys),
    now: (&KernelConfig, &WrittenKeys),
) -> Vec<String> {
    let changed = running.0.changed_sections(now.0);
    let mut lines = Vec::new();
    for (section, keys) in running.1.changed_keys(now.1) {
        let meant = section.strip_prefix("tuning.").unwrap_or(section);
        let top = meant.split('.').next().unwrap_or(meant);
        let Some(is_reloadable) = changed.get(top) else {
            continue;
        };
        let keys: Vec<&str> = keys.into_iter().filter(|key| !is_reloadable(key)).collect();
        if !keys.is_empty() {
            let keys = keys.join(", ");
            lines.push(format!(
                "[{section}] {keys} changed: takes effect after `mgp down && mgp up`"
            ));
        }
    }
    lines
}
