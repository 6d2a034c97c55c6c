//! A patch of a state is applied whole or not at all, what comes is JSON, and a test of the whole holds.
#![no_main]

use libfuzzer_sys::fuzz_target;
use mgp_mcpl_engine::state::patch::{patched, whole};
use serde_json::Value;

fuzz_target!(|texts: (&str, &str)| {
    let (data, patch) = texts;
    let Ok(before) = whole(data) else {
        let _ = patched(data, patch);
        return;
    };
    let value: Value = serde_json::from_str(&before).expect("a state is JSON");
    assert_eq!(value, serde_json::from_str::<Value>(data).expect("so is what was sent"));
    let test = format!(r#"[{{"op":"test","path":"","value":{before}}}]"#);
    assert_eq!(patched(data, &test).as_deref(), Ok(&*before));
    if let Ok(after) = patched(data, patch) {
        serde_json::from_str::<Value>(&after).expect("a patched state is JSON");
    }
});
