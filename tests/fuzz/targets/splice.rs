//! What is put into a text, taken out and replaced is there, gone and replaced for every reader, and nothing else changes.
#![no_main]

use libfuzzer_sys::fuzz_target;
use mgp_json::{Splice, member, members};
use serde_json::Value;

fuzz_target!(|text: &str| {
    let Ok(Value::Object(before)) = serde_json::from_str::<Value>(text) else {
        let _ = (members(text), member(text, "a"));
        return;
    };
    let all = members(text).expect("it is an object");
    // Of a name that is there twice readers differ on which one counts.
    if all.len() != before.len() {
        return;
    }
    let object = text.trim();
    for (name, raw) in &all {
        let value: Value = serde_json::from_str(raw.get()).expect("a member is JSON");
        assert_eq!(value, before[&**name]);
        assert_eq!(member(text, name), Some(raw.get()));

        let mut replaced = Splice::new(text);
        replaced.replace(raw.get(), "[1]");
        let mut wanted = before.clone();
        wanted[&**name] = serde_json::json!([1]);
        assert_eq!(read(&replaced.finish()), wanted);

        let mut removed = Splice::new(text);
        removed.remove_members(object, &[name]);
        let mut wanted = before.clone();
        wanted.remove(&**name);
        assert_eq!(read(&removed.finish()), wanted);
    }
    if !before.contains_key("new") {
        let mut inserted = Splice::new(text);
        inserted.insert_member(object, "new", "{}");
        let mut wanted = before;
        wanted.insert("new".into(), serde_json::json!({}));
        assert_eq!(read(&inserted.finish()), wanted);
    }
});

fn read(text: &str) -> serde_json::Map<String, Value> {
    match serde_json::from_str(text) {
        Ok(Value::Object(object)) => object,
        other => panic!("{text}: {other:?}"),
    }
}
