//! Files of other programs: an entry that was put in is what is read there, taken out the file is as it was, and the rest
//! stays. Where that cannot be, nothing is changed.
#![no_main]

use libfuzzer_sys::fuzz_target;
use mgp_clients::{DocumentForm, EntryLocation, TableForm, put_entry, read_document, remove_entry};
use serde_json::{Value, json};

fuzz_target!(|input: (u8, &str)| {
    let (which, text) = input;
    let forms = [DocumentForm::Json, DocumentForm::Toml, DocumentForm::Yaml];
    let form = forms[usize::from(which) % 3];
    let Ok(before) = form.parse(text) else {
        return;
    };
    let _ = read_document(&before, None);
    let table = ["mcpServers".to_owned()];
    let place = EntryLocation {
        table: &table,
        shape: TableForm::Map,
        name: "mgp",
    };
    let entry = json!({"command": "mgp", "args": ["stdio"]});
    let Ok(edited) = put_entry(form, text, place, &entry) else {
        return;
    };
    let after = form.parse(&edited).expect("it stays what it was");
    assert_eq!(after["mcpServers"]["mgp"], entry);
    assert_eq!(without(after), without(before));
    // A form that cannot be edited is left alone, and what to do is said.
    if let Ok(gone) = remove_entry(form, &edited, place) {
        let gone = form.parse(&gone).expect("it stays what it was");
        assert!(gone["mcpServers"]["mgp"].is_null());
    }
});

/// All but the entry, and the table where nothing else is in it.
fn without(mut document: Value) -> Value {
    if let Some(table) = document
        .get_mut("mcpServers")
        .and_then(Value::as_object_mut)
    {
        table.remove("mgp");
    }
    if let Some(top) = document.as_object_mut()
        && top
            .get("mcpServers")
            .is_some_and(|it| it.is_null() || *it == json!({}))
    {
        top.remove("mcpServers");
    }
    match document.as_object().is_some_and(serde_json::Map::is_empty) {
        true => Value::Null,
        false => document,
    }
}
