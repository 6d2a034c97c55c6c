//! Undoes `mgp connect`: removed entries are restored, added ones removed, and the client's later changes
//! preserved.

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{ClientEditError, EntryLocation, put_entry, remove_entry};
use crate::client::Client;
use crate::document::DocumentForm;
use crate::kernel_entry::{entry_url, is_kernel_entry};
use crate::tables::{entry_tables, value_at};

/// A connected file.
#[derive(Clone, Copy, Debug)]
pub struct ConnectedFile<'t> {
    /// Its client.
    pub client: Client,
    /// The name of this kernel's entry.
    pub kernel_entry: &'t str,
    /// The text before connecting; `None` if there was no file.
    pub before: Option<&'t str>,
    /// The text after connecting; `None` if unknown.
    pub after: Option<&'t str>,
    /// The current text.
    pub current: &'t str,
    /// The kernel's HTTP endpoint.
    pub endpoint: &'t str,
    /// Entries that an earlier undo could not restore.
    pub blocked: &'t [BlockedEntry],
}

/// A removed entry whose name the client has given to another server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlockedEntry {
    /// The keys of the path to its table.
    pub table: Vec<String>,
    /// Its name there.
    pub name: String,
    /// Its previous value.
    pub entry: Value,
}

/// The result of an undo.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UndoResult {
    /// The new text; `None` if the file is to be removed.
    pub text: Option<String>,
    /// Restored entries.
    pub restored: Vec<String>,
    /// Entries that cannot be restored: their names are taken.
    pub blocked: Vec<BlockedEntry>,
    /// Whether this kernel's entry was found or is known to be gone; otherwise it may exist in an unknown form.
    pub is_kernel_entry_known: bool,
}

/// Undoes what connecting changed.
///
/// # Errors
/// [`ClientEditError`]; nothing is changed then.
pub fn undo(file: &ConnectedFile<'_>) -> Result<UndoResult, ClientEditError> {
    let whole = |text: Option<&str>| UndoResult {
        text: text.map(str::to_owned),
        restored: Vec::new(),
        blocked: Vec::new(),
        is_kernel_entry_known: true,
    };
    let merge = Merge::new(file)?;
    let mut undone = if file.after == Some(file.current) {
        let mut undone = whole(file.before);
        undone.restored = merge.missing_entries();
        undone
    } else {
        merge.run(whole(Some(file.current)))?
    };
    merge.unblock(&mut undone)?;
    Ok(undone)
}

/// An entry that connecting changed.
struct ChangedEntry {
    table: Vec<String>,
    name: String,
    before: Option<Value>,
    after: Option<Value>,
    current: Option<Value>,
    /// Whether the current entry is this kernel's.
    is_kernel_entry: bool,
}

struct Merge<'f> {
    file: &'f ConnectedFile<'f>,
    form: DocumentForm,
    before: Value,
    current: Value,
    entries: Vec<ChangedEntry>,
    is_kernel_entry_known: bool,
}

impl<'f> Merge<'f> {
    fn new(file: &'f ConnectedFile<'f>) -> Result<Self, ClientEditError> {
        let form = file.client.document_form();
        let before = form.parse(file.before.unwrap_or_default())?;
        let now = form.parse(file.current)?;
        let after = file.after.map(|after| form.parse(after)).transpose()?;
        let mut merge = Self {
            file,
            form,
            before,
            current: now,
            entries: Vec::new(),
            is_kernel_entry_known: true,
        };
        merge.entries = merge.changed_entries(after.as_ref());
        let table = file.client.table_path(&merge.current);
        let was_there =
            after.is_none_or(|after| find_entry(&after, &table, file.kernel_entry).is_some());
        merge.is_kernel_entry_known =
            !was_there || merge.entries.iter().any(|entry| entry.is_kernel_entry);
        Ok(merge)
    }

    /// Whether an entry is this kernel's; the user may have renamed or extended it.
    fn is_kernel_entry(&self, after: Option<&Value>, table: &[String], name: &str) -> bool {
        let get = |document: &Value, name: &str| find_entry(document, table, name);
        let Some(now) = get(&self.current, name) else {
            return false;
        };
        let written = after.and_then(|after| get(after, self.file.kernel_entry));
        let has_name = name == self.file.kernel_entry;
        if has_name
            && written
                .as_ref()
                .is_some_and(|own| has_same_target(own, &now))
        {
            return true;
        }
        let door = written
            .as_ref()
            .and_then(entry_url)
            .unwrap_or(self.file.endpoint);
        let leads = |entry: &Value| {
            is_kernel_entry(entry, self.file.endpoint) || is_kernel_entry(entry, door)
        };
        // An entry that led here before connecting is the user's.
        let was_own = !has_name && get(&self.before, name).is_some_and(|before| leads(&before));
        table == self.file.client.table_path(&self.current) && leads(&now) && !was_own
    }

    fn changed_entries(&self, after: Option<&Value>) -> Vec<ChangedEntry> {
        let documents = [Some(&self.before), after, Some(&self.current)];
        let documents = documents.into_iter().flatten();
        let mut tables: Vec<Vec<String>> = documents
            .flat_map(|document| entry_tables(document, Some(self.file.client)))
            .collect();
        tables.sort();
        tables.dedup();
        let mut changed = Vec::new();
        for table in tables {
            let names = |document: &Value| -> BTreeSet<String> {
                let table = value_at(document, &table).unwrap_or(&Value::Null);
                let names = Client::entries(table).into_iter();
                names.map(|(name, _)| name.to_owned()).collect()
            };
            let mut all = names(&self.before);
            all.extend(after.map(names).unwrap_or_default());
            let now = names(&self.current).into_iter();
            all.extend(now.filter(|name| self.is_kernel_entry(after, &table, name)));
            for name in all {
                let is_own = self.is_kernel_entry(after, &table, &name);
                let get = |document: &Value| find_entry(document, &table, &name);
                let (before, now) = (get(&self.before), get(&self.current));
                let after = match after {
                    Some(after) => get(after),
                    // If the text after connecting is unknown, missing entries are restored, whoever removed them.
                    None => now.clone(),
                };
                // An entry that only the client changed is the client's.
                let theirs = self.file.after.is_none() && now.is_some();
                if is_own || (before != after && !theirs) {
                    changed.push(ChangedEntry {
                        table: table.clone(),
                        name,
                        before,
                        after,
                        current: now,
                        is_kernel_entry: is_own,
                    });
                }
            }
        }
        changed
    }

    /// Removed entries that are missing.
    fn missing_entries(&self) -> Vec<String> {
        let missing = self.entries.iter();
        let missing = missing.filter(|entry| entry.before.is_some() && entry.current.is_none());
        missing.map(|entry| entry.name.clone()).collect()
    }

    fn run(&self, mut undone: UndoResult) -> Result<UndoResult, ClientEditError> {
        let mut text = self.file.current.to_owned();
        for entry in &self.entries {
            let place = EntryLocation {
                table: &entry.table,
                shape: self.file.client.table_form(),
                name: &entry.name,
            };
            match entry.undo_action() {
                UndoAction::Done => {}
                UndoAction::Restore(value) => {
                    text = put_entry(self.form, &text, place, value)?;
                    undone.restored.push(entry.name.clone());
                }
                UndoAction::Remove => text = remove_entry(self.form, &text, place)?,
                UndoAction::Blocked(value) => undone.blocked.push(BlockedEntry {
                    table: entry.table.clone(),
                    name: entry.name.clone(),
                    entry: value.clone(),
                }),
            }
        }
        text = self.remove_new_tables(text)?;
        let rest = self.form.parse(&text)?;
        let empty = rest.is_null() || rest.as_object().is_some_and(serde_json::Map::is_empty);
        undone.text = (self.file.before.is_some() || !empty).then_some(text);
        undone.is_kernel_entry_known = self.is_kernel_entry_known;
        Ok(undone)
    }

    /// Restores earlier blocked entries whose names are free.
    fn unblock(&self, undone: &mut UndoResult) -> Result<(), ClientEditError> {
        for blocked in self.file.blocked {
            let text = undone.text.clone().unwrap_or_default();
            match find_entry(&self.form.parse(&text)?, &blocked.table, &blocked.name) {
                Some(now) if now == blocked.entry => {}
                Some(_) => undone.blocked.push(blocked.clone()),
                None => {
                    let place = EntryLocation {
                        table: &blocked.table,
                        shape: self.file.client.table_form(),
                        name: &blocked.name,
                    };
                    undone.text = Some(put_entry(self.form, &text, place, &blocked.entry)?);
                    undone.restored.push(blocked.name.clone());
                }
            }
        }
        Ok(())
    }

    /// Removes tables that were created for the entry.
    fn remove_new_tables(&self, mut text: String) -> Result<String, ClientEditError> {
        let tables: BTreeSet<&Vec<String>> =
            self.entries.iter().map(|entry| &entry.table).collect();
        for table in tables {
            let (Some((name, above)), None) = (table.split_last(), value_at(&self.before, table))
            else {
                continue;
            };
            let document = self.form.parse(&text)?;
            let is_empty = match value_at(&document, table) {
                Some(Value::Object(table)) => table.is_empty(),
                Some(Value::Array(list)) => list.is_empty(),
                Some(_) | None => false,
            };
            if is_empty {
                let place = EntryLocation {
                    table: above,
                    shape: self.file.client.table_form(),
                    name,
                };
                text = remove_entry(self.form, &text, place)?;
            }
        }
        Ok(text)
    }
}

/// What to do with an entry.
enum UndoAction<'e> {
    Done,
    Restore(&'e Value),
    Remove,
    Blocked(&'e Value),
}

impl ChangedEntry {
    fn undo_action(&self) -> UndoAction<'_> {
        match (&self.before, &self.after, &self.current) {
            (before, _, now) if before == now => UndoAction::Done,
            (Some(before), after, now) if after == now || now.is_none() => {
                UndoAction::Restore(before)
            }
            // The client may have extended the entry; it is this kernel's as long as its target is the same.
            (Some(before), _, _) if self.is_kernel_entry => UndoAction::Restore(before),
            (Some(before), _, _) => UndoAction::Blocked(before),
            (None, _, _) if self.is_kernel_entry => UndoAction::Remove,
            (None, _, _) => UndoAction::Done,
        }
    }
}

/// Whether two entries start the same program, or have the same URL.
fn has_same_target(one: &Value, other: &Value) -> bool {
    let keys = [
        "command",
        "cmd",
        "args",
        "url",
        "serverUrl",
        "httpUrl",
        "uri",
    ];
    keys.iter().all(|key| one.get(key) == other.get(key))
}

fn find_entry(document: &Value, table: &[String], name: &str) -> Option<Value> {
    let entries = Client::entries(value_at(document, table)?);
    let mut named = entries.into_iter().rev().filter(|(own, _)| *own == name);
    named.next().map(|(_, entry)| entry.clone())
}
