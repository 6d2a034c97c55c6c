//! TOML.

use serde_json::Value;
use toml_edit::{DocumentMut, Item, Table, TableLike};

use super::EntryLocation;

pub(super) fn edit(text: &str, place: EntryLocation<'_>, entry: Option<&Value>) -> Option<String> {
    let mut document: DocumentMut = text.parse().ok()?;
    let Some((first, deeper)) = place.table.split_first() else {
        document.remove(place.name)?;
        return Some(document.to_string());
    };
    // No client that uses TOML has nested tables of servers.
    if !deeper.is_empty() {
        return None;
    }
    let Some(entry) = entry else {
        let table = document.get_mut(first)?;
        table.as_table_like_mut()?.remove(place.name)?;
        // A table that only its entries' headers imply would vanish with the last one.
        if let Some(table) = table.as_table_mut().filter(|table| table.is_empty()) {
            table.set_implicit(false);
        }
        return Some(document.to_string());
    };
    let table = document.entry(first).or_insert_with(|| {
        let mut table = Table::new();
        table.set_implicit(true);
        Item::Table(table)
    });
    let table: &mut dyn TableLike = table.as_table_like_mut()?;
    table.insert(place.name, to_item(entry)?);
    Some(document.to_string())
}

fn to_item(entry: &Value) -> Option<Item> {
    let mut table = Table::new();
    for (key, value) in entry.as_object()? {
        table.insert(key, Item::Value(to_toml_value(value)?));
    }
    Some(Item::Table(table))
}

fn to_toml_value(value: &Value) -> Option<toml_edit::Value> {
    Some(match value {
        Value::Null => return None,
        Value::Bool(flag) => (*flag).into(),
        Value::Number(number) => number.as_i64()?.into(),
        Value::String(text) => text.as_str().into(),
        Value::Array(values) => {
            let values = values
                .iter()
                .map(to_toml_value)
                .collect::<Option<Vec<_>>>()?;
            toml_edit::Value::Array(values.into_iter().collect())
        }
        Value::Object(table) => {
            let mut inline = toml_edit::InlineTable::new();
            for (key, value) in table {
                inline.insert(key, to_toml_value(value)?);
            }
            inline.into()
        }
    })
}
