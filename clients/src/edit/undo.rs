//! The way back of `mgp connect`: what was taken out comes back, what came in goes, and what the client changed since
//! stays.

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

use serde_json::Value;

use super::{ClientEditError, EntryPlace, put, remove};
use crate::client::Client;
use crate::document::DocumentForm;
use crate::tables::{at, entry_tables};

/// A file that was connected.
#[derive(Clone, Copy, Debug)]
pub struct ConnectedFile<'t> {
    /// Whose it is.
    pub client: Client,
    /// What this kernel's entry is called.
    pub own: &'t str,
    /// Before it was connected; `None` where there was no file.
    pub before: Option<&'t str>,
    /// As it was written then; `None` where nobody knows any more.
    pub after: Option<&'t str>,
    /// As it is.
    pub now: &'t str,
}

/// The same file afterwards.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UndoneFile {
    /// Its text; `None` where there is to be no file.
    pub text: Option<String>,
    /// Entries that come back.
    pub restored: Vec<String>,
    /// Entries that cannot come back: the client has other ones by their names now.
    pub blocked: Vec<String>,
}

/// Undoes what connecting changed.
///
/// # Errors
/// [`ClientEditError`]; nothing is half done.
pub fn undo(file: &ConnectedFile<'_>) -> Result<UndoneFile, ClientEditError> {
    let whole = |text: Option<&str>| UndoneFile {
        text: text.map(str::to_owned),
        restored: Vec::new(),
        blocked: Vec::new(),
    };
    if file.after == Some(file.now) {
        let mut undone = whole(file.before);
        undone.restored = Merge::new(file)?.missing();
        return Ok(undone);
    }
    Merge::new(file)?.run(whole(Some(file.now)))
}

/// One entry that connecting changed.
struct ChangedEntry {
    table: Vec<String>,
    name: String,
    before: Option<Value>,
    after: Option<Value>,
    now: Option<Value>,
}

struct Merge<'f> {
    file: &'f ConnectedFile<'f>,
    form: DocumentForm,
    before: Value,
    now: Value,
    entries: Vec<ChangedEntry>,
}

impl<'f> Merge<'f> {
    fn new(file: &'f ConnectedFile<'f>) -> Result<Self, ClientEditError> {
        let form = file.client.form();
        let before = form.read(file.before.unwrap_or_default())?;
        let now = form.read(file.now)?;
        let after = file.after.map(|after| form.read(after)).transpose()?;
        let mut merge = Self {
            file,
            form,
            before,
            now,
            entries: Vec::new(),
        };
        merge.entries = merge.changed(after.as_ref());
        Ok(merge)
    }

    fn changed(&self, after: Option<&Value>) -> Vec<ChangedEntry> {
        let documents = [Some(&self.before), after, Some(&self.now)];
        let documents = documents.into_iter().flatten();
        let mut tables: Vec<Vec<String>> = documents
            .flat_map(|document| entry_tables(document, Some(self.file.client)))
            .collect();
        tables.sort();
        tables.dedup();
        let mut changed = Vec::new();
        for table in tables {
            let names = |document: &Value| -> BTreeSet<String> {
                let table = at(document, &table).unwrap_or(&Value::Null);
                let names = Client::entries(table).into_iter();
                names.map(|(name, _)| name.to_owned()).collect()
            };
            let mut all = names(&self.before);
            all.extend(after.map(names).unwrap_or_default());
            if after.is_none() {
                all.insert(self.file.own.to_owned());
            }
            for name in all {
                let get = |document: &Value| entry(document, &table, &name);
                let (before, now) = (get(&self.before), get(&self.now));
                let after = match after {
                    Some(after) => get(after),
                    // Of what is not there now nobody knows who took it out: it comes back.
                    None => now.clone(),
                };
                // An entry that only the client changed is the client's.
                let own = after.is_some() && name == self.file.own;
                let theirs = self.file.after.is_none() && now.is_some() && !own;
                if before != after && !theirs {
                    changed.push(ChangedEntry {
                        table: table.clone(),
                        name,
                        before,
                        after,
                        now,
                    });
                }
            }
        }
        changed
    }

    /// What was taken out and is not there.
    fn missing(&self) -> Vec<String> {
        let missing = self.entries.iter();
        let missing = missing.filter(|entry| entry.before.is_some() && entry.now.is_none());
        missing.map(|entry| entry.name.clone()).collect()
    }

    fn run(&self, mut undone: UndoneFile) -> Result<UndoneFile, ClientEditError> {
        let mut text = self.file.now.to_owned();
        for entry in &self.entries {
            let place = EntryPlace {
                table: &entry.table,
                shape: self.file.client.shape(),
                name: &entry.name,
            };
            match entry.way_back() {
                WayBack::Done => {}
                WayBack::Restore(value) => {
                    text = put(self.form, &text, place, value)?;
                    undone.restored.push(entry.name.clone());
                }
                WayBack::Remove => text = remove(self.form, &text, place)?,
                WayBack::Blocked => undone.blocked.push(entry.name.clone()),
            }
        }
        text = self.without_new_tables(text)?;
        let rest = self.form.read(&text)?;
        let empty = rest.is_null() || rest.as_object().is_some_and(serde_json::Map::is_empty);
        undone.text = (self.file.before.is_some() || !empty).then_some(text);
        Ok(undone)
    }

    /// A table that came with the entry goes with it.
    fn without_new_tables(&self, mut text: String) -> Result<String, ClientEditError> {
        let tables: BTreeSet<&Vec<String>> =
            self.entries.iter().map(|entry| &entry.table).collect();
        for table in tables {
            let (Some((name, above)), None) = (table.split_last(), at(&self.before, table)) else {
                continue;
            };
            let document = self.form.read(&text)?;
            let is_empty = match at(&document, table) {
                Some(Value::Object(table)) => table.is_empty(),
                Some(Value::Array(list)) => list.is_empty(),
                Some(_) | None => false,
            };
            if is_empty {
                let place = EntryPlace {
                    table: above,
                    shape: self.file.client.shape(),
                    name,
                };
                text = remove(self.form, &text, place)?;
            }
        }
        Ok(text)
    }
}

/// What is to become of an entry.
enum WayBack<'e> {
    Done,
    Restore(&'e Value),
    Remove,
    Blocked,
}

impl ChangedEntry {
    fn way_back(&self) -> WayBack<'_> {
        match (&self.before, &self.after, &self.now) {
            (before, _, now) if before == now => WayBack::Done,
            (Some(before), after, now) if after == now || now.is_none() => WayBack::Restore(before),
            // The client may have added something to the entry; it is ours as long as it leads to the same.
            (Some(before), Some(after), Some(now)) if leads_to_same(after, now) => {
                WayBack::Restore(before)
            }
            (Some(_), _, _) => WayBack::Blocked,
            (None, Some(after), Some(now)) if leads_to_same(after, now) => WayBack::Remove,
            (None, _, _) => WayBack::Done,
        }
    }
}

/// Whether two entries start the same program, or have the same address.
fn leads_to_same(one: &Value, other: &Value) -> bool {
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

fn entry(document: &Value, table: &[String], name: &str) -> Option<Value> {
    let entries = Client::entries(at(document, table)?);
    let mut named = entries.into_iter().rev().filter(|(own, _)| *own == name);
    named.next().map(|(_, entry)| entry.clone())
}
