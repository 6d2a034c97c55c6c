//! A patch of a state is applied whole or not at all, what comes is JSON, and a test of the whole holds.
#![no_main]

use libfuzzer_sys::fuzz_target;
use mgp_mcpl_engine::state::patch::{apply_patch, normalize_state};
use serde_json::Value;

fuzz_target!(|texts: (&str, &str)| {
    let (data, patch) = texts;
    // What is read here was read as JSON before.
    let Ok(value) = serde_json::from_str::<Value>(data) else {
        return;
    };
    let Ok(before) = normalize_state(data) else {
        return;
    };
    assert_eq!(serde_json::from_str::<Value>(&before).ok(), Some(value));
    let test = format!(r#"[{{"op":"test","path":"","value":{before}}}]"#);
    assert_eq!(apply_patch(data, &test).as_deref(), Ok(&*before));
    if let Ok(after) = apply_patch(data, patch) {
        serde_json::from_str::<Value>(&after).expect("a patched state is JSON");
    }
});
