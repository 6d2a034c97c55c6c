//! Edits of clients' files that leave every other line, and every comment, as it was.

mod json;
#[cfg(test)]
mod tests;
mod toml;
mod yaml;

use serde_json::Value;

use crate::document::{DocumentError, DocumentForm};

/// Why an edit was not made. The text is as it was.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClientEditError {
    /// The text cannot be edited before it is mended.
    #[error(transparent)]
    Unread(#[from] DocumentError),
    /// It is written in a way this cannot edit without changing something else.
    #[error("it is written in a way that cannot be edited safely; edit it by hand")]
    OtherForm,
}

/// An entry of a table of a client's file.
#[derive(Clone, Copy, Debug)]
pub struct EntryPlace<'p> {
    /// The table, at the top.
    pub table: &'p str,
    /// The entry's name.
    pub name: &'p str,
}

/// Puts the entry there, or in place of the one that is there.
///
/// # Errors
/// [`ClientEditError`]; nothing is half done.
pub fn put(
    form: DocumentForm,
    text: &str,
    place: EntryPlace<'_>,
    entry: &Value,
) -> Result<String, ClientEditError> {
    edited(form, text, place, Some(entry))
}

/// Takes the entry out. A file without it stays as it is.
///
/// # Errors
/// [`ClientEditError`]; nothing is half done.
pub fn remove(
    form: DocumentForm,
    text: &str,
    place: EntryPlace<'_>,
) -> Result<String, ClientEditError> {
    edited(form, text, place, None)
}

/// Puts a value at the end of the list `key`, at the top of a document in JSON.
///
/// # Errors
/// [`ClientEditError`]; nothing is half done.
pub fn append(text: &str, key: &str, value: &Value) -> Result<String, ClientEditError> {
    let form = DocumentForm::Json;
    let mut wanted = form.read(text)?;
    if wanted.is_null() {
        wanted = Value::Object(serde_json::Map::new());
    }
    let top = wanted.as_object_mut().ok_or(ClientEditError::OtherForm)?;
    let list = top.entry(key).or_insert(Value::Array(Vec::new()));
    let list = list.as_array_mut().ok_or(ClientEditError::OtherForm)?;
    list.push(value.clone());
    let edited = json::append(text, key, value).ok_or(ClientEditError::OtherForm)?;
    match form.read(&edited) {
        Ok(read) if read == wanted => Ok(edited),
        Ok(_) | Err(_) => Err(ClientEditError::OtherForm),
    }
}

/// What an edit makes is read again: it is the document it should be, or the edit is not made.
fn edited(
    form: DocumentForm,
    text: &str,
    place: EntryPlace<'_>,
    entry: Option<&Value>,
) -> Result<String, ClientEditError> {
    let document = form.read(text)?;
    let wanted = changed(&document, place, entry).ok_or(ClientEditError::OtherForm)?;
    if wanted == document {
        return Ok(text.to_owned());
    }
    let edited = match form {
        DocumentForm::Json => json::edit(text, place, entry),
        DocumentForm::Toml => toml::edit(text, place, entry),
        DocumentForm::Yaml => yaml::edit(text, place, entry),
    };
    let edited = edited.ok_or(ClientEditError::OtherForm)?;
    match form.read(&edited) {
        Ok(read) if read == wanted => Ok(edited),
        Ok(_) | Err(_) => Err(ClientEditError::OtherForm),
    }
}

fn changed(document: &Value, place: EntryPlace<'_>, entry: Option<&Value>) -> Option<Value> {
    let mut wanted = document.clone();
    if wanted.is_null() {
        wanted = Value::Object(serde_json::Map::new());
    }
    let top = wanted.as_object_mut()?;
    match entry {
        Some(entry) => {
            let table = top.entry(place.table).or_insert(Value::Null);
            if table.is_null() {
                *table = Value::Object(serde_json::Map::new());
            }
            table
                .as_object_mut()?
                .insert(place.name.to_owned(), entry.clone());
        }
        None => {
            if let Some(table) = top.get_mut(place.table).and_then(Value::as_object_mut) {
                table.shift_remove(place.name);
            } else {
                return Some(document.clone());
            }
        }
    }
    Some(wanted)
}
