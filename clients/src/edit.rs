//! Edits of clients' files that preserve all other lines and comments.

mod json;
#[cfg(test)]
mod tests;
mod toml;
pub(crate) mod undo;
mod yaml;

use serde_json::Value;

use crate::document::{DocumentError, DocumentForm};

/// Why an edit was rejected. The text is unchanged.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClientEditError {
    /// The text must be fixed before it can be edited.
    #[error(transparent)]
    Document(#[from] DocumentError),
    /// Its form cannot be edited without changing something else.
    #[error("it is written in a way that cannot be edited safely; edit it by hand")]
    UnsupportedStyle,
}

/// The form of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TableForm {
    /// Entries by name.
    Map,
    /// A list of entries, each with its `name`.
    List,
}

/// The location of an entry in a client's file.
#[derive(Clone, Copy, Debug)]
pub struct EntryLocation<'p> {
    /// The keys of the path to the table; empty for the document itself.
    pub table: &'p [String],
    /// The form of a table that does not exist yet.
    pub shape: TableForm,
    /// The entry's name.
    pub name: &'p str,
}

/// Adds or replaces the entry.
///
/// # Errors
/// [`ClientEditError`]; nothing is changed then.
pub fn put_entry(
    form: DocumentForm,
    text: &str,
    place: EntryLocation<'_>,
    entry: &Value,
) -> Result<String, ClientEditError> {
    apply_edit(form, text, place, Some(entry))
}

/// Removes the entry. A file without it stays unchanged.
///
/// # Errors
/// [`ClientEditError`]; nothing is changed then.
pub fn remove_entry(
    form: DocumentForm,
    text: &str,
    place: EntryLocation<'_>,
) -> Result<String, ClientEditError> {
    apply_edit(form, text, place, None)
}

/// Appends a value to the list `key`, at the top level of a JSON document.
///
/// # Errors
/// [`ClientEditError`]; nothing is changed then.
pub fn append_to_list(text: &str, key: &str, value: &Value) -> Result<String, ClientEditError> {
    let form = DocumentForm::Json;
    let mut target = form.parse(text)?;
    if target.is_null() {
        target = Value::Object(serde_json::Map::new());
    }
    let top = target
        .as_object_mut()
        .ok_or(ClientEditError::UnsupportedStyle)?;
    let list = top.entry(key).or_insert(Value::Array(Vec::new()));
    let list = list
        .as_array_mut()
        .ok_or(ClientEditError::UnsupportedStyle)?;
    list.push(value.clone());
    let edited = json::append(text, key, value).ok_or(ClientEditError::UnsupportedStyle)?;
    match form.parse(&edited) {
        Ok(read) if read == target => Ok(edited),
        Ok(_) | Err(_) => Err(ClientEditError::UnsupportedStyle),
    }
}

/// Parses the result again: unless it is the expected document, the edit is rejected.
fn apply_edit(
    form: DocumentForm,
    text: &str,
    place: EntryLocation<'_>,
    entry: Option<&Value>,
) -> Result<String, ClientEditError> {
    let document = form.parse(text)?;
    let target =
        expected_document(&document, place, entry).ok_or(ClientEditError::UnsupportedStyle)?;
    if target == document {
        return Ok(text.to_owned());
    }
    let edited = match form {
        DocumentForm::Json => json::edit(text, place, entry),
        DocumentForm::Toml => toml::edit(text, place, entry),
        DocumentForm::Yaml => yaml::edit(text, place, entry),
    };
    let edited = edited.ok_or(ClientEditError::UnsupportedStyle)?;
    let edited = keep_line_ends(text, edited);
    match form.parse(&edited) {
        Ok(read) if read == target => Ok(edited),
        Ok(_) | Err(_) => Err(ClientEditError::UnsupportedStyle),
    }
}

/// The edited text with the previous line endings, if those were uniform.
#[must_use]
pub fn keep_line_ends(before: &str, edited: String) -> String {
    let windows = before.matches("\r\n").count();
    if windows > 0 && windows == before.matches('\n').count() {
        edited.replace("\r\n", "\n").replace('\n', "\r\n")
    } else {
        edited
    }
}

fn expected_document(
    document: &Value,
    place: EntryLocation<'_>,
    entry: Option<&Value>,
) -> Option<Value> {
    let mut target = document.clone();
    if target.is_null() {
        target = Value::Object(serde_json::Map::new());
    }
    let mut table = &mut target;
    for (at, key) in place.table.iter().enumerate() {
        let object = table.as_object_mut()?;
        if entry.is_none() && !object.contains_key(key) {
            return Some(document.clone());
        }
        table = object.entry(key).or_insert(Value::Null);
        if table.is_null() && entry.is_some() {
            let is_last = at + 1 == place.table.len();
            *table = match place.shape {
                TableForm::List if is_last => Value::Array(Vec::new()),
                TableForm::List | TableForm::Map => Value::Object(serde_json::Map::new()),
            };
        }
    }
    let is_it = |item: &Value| item.get("name").and_then(Value::as_str) == Some(place.name);
    match (table, entry) {
        (Value::Object(table), Some(entry)) => {
            table.insert(place.name.to_owned(), entry.clone());
        }
        (Value::Object(table), None) => drop(table.shift_remove(place.name)),
        (Value::Array(list), Some(entry)) => match list.iter_mut().find(|item| is_it(item)) {
            Some(item) => *item = entry.clone(),
            None => list.push(entry.clone()),
        },
        (Value::Array(list), None) => list.retain(|item| !is_it(item)),
        (Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_), None) => {
            return Some(document.clone());
        }
        (Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_), Some(_)) => {
            return None;
        }
    }
    Some(target)
}
