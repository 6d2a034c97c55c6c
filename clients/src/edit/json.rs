//! JSON with comments.

use jsonc_parser::ParseOptions;
use jsonc_parser::cst::{CstInputValue, CstRootNode};
use serde_json::Value;

use super::EntryLocation;

pub(super) fn edit(text: &str, place: EntryLocation<'_>, entry: Option<&Value>) -> Option<String> {
    let (mark, text) = match text.strip_prefix('\u{feff}') {
        Some(text) => ("\u{feff}", text),
        None => ("", text),
    };
    let root = CstRootNode::parse(text, &ParseOptions::default()).ok()?;
    let top = root.object_value_or_set();
    // The last one of duplicate keys counts.
    let last = |object: &jsonc_parser::cst::CstObject, key: &str| {
        let named = |property: &jsonc_parser::cst::CstObjectProp| {
            let name = property.name().and_then(|name| name.decoded_value().ok());
            name.as_deref() == Some(key)
        };
        object.properties().into_iter().rev().find(named)
    };
    let mut table = top;
    for key in place.table {
        table = match (last(&table, key), entry) {
            (Some(property), _) if property.object_value().is_some() => property.object_value()?,
            (_, None) => return None,
            (Some(property), Some(_)) => {
                property.set_value(CstInputValue::Object(Vec::new()));
                property.object_value()?
            }
            (None, Some(_)) => table
                .append(key, CstInputValue::Object(Vec::new()))
                .object_value()?,
        };
    }
    match (last(&table, place.name), entry) {
        (Some(property), Some(entry)) => property.set_value(to_cst_value(entry)),
        (None, Some(entry)) => drop(table.append(place.name, to_cst_value(entry))),
        (Some(property), None) => property.remove(),
        (None, None) => return None,
    }
    Some(format!("{mark}{root}"))
}

pub(super) fn append(text: &str, key: &str, value: &Value) -> Option<String> {
    let (mark, text) = match text.strip_prefix('\u{feff}') {
        Some(text) => ("\u{feff}", text),
        None => ("", text),
    };
    let root = CstRootNode::parse(text, &ParseOptions::default()).ok()?;
    let top = root.object_value_or_set();
    let list = match top.get(key) {
        Some(property) => property.array_value()?,
        None => top
            .append(key, CstInputValue::Array(Vec::new()))
            .array_value()?,
    };
    list.append(to_cst_value(value));
    Some(format!("{mark}{root}"))
}

fn to_cst_value(value: &Value) -> CstInputValue {
    match value {
        Value::Null => CstInputValue::Null,
        Value::Bool(flag) => CstInputValue::Bool(*flag),
        Value::Number(number) => CstInputValue::Number(number.to_string()),
        Value::String(text) => CstInputValue::String(text.clone()),
        Value::Array(values) => CstInputValue::Array(values.iter().map(to_cst_value).collect()),
        Value::Object(table) => {
            let entries = table
                .iter()
                .map(|(key, value)| (key.clone(), to_cst_value(value)));
            CstInputValue::Object(entries.collect())
        }
    }
}
