//! What is read of a message that was cut, is read of the whole one, too.
#![no_main]

use libfuzzer_sys::fuzz_target;
use mgp_protocol::jsonrpc::partial_message::{self, PartialMessage};
use serde_json::Value;

fuzz_target!(|bytes: &[u8]| {
    let cut = PartialMessage::scan(bytes);
    let _ = (
        cut.id(),
        cut.has_method(),
        cut.is_response(),
        partial_message::find_trailing_id(bytes),
    );
    let Ok(Value::Object(whole)) = serde_json::from_slice::<Value>(bytes) else {
        return;
    };
    let text = std::str::from_utf8(bytes).expect("JSON is text");
    let several = mgp_json::members(text).is_none_or(|all| all.len() != whole.len());
    if several {
        return;
    }
    for (name, value) in &whole {
        if let Some(first) = mgp_json::partial::first_member(bytes, name) {
            assert_eq!(
                &serde_json::from_slice::<Value>(first).expect("a member is JSON"),
                value
            );
        }
    }
    // A name that only looks like `method` counts here, too: what has one is no message that is taken.
    if let (Some(cut), Some(method)) = (cut.method(), whole.get("method")) {
        assert_eq!(method.as_str(), Some(cut));
    }
});
