//! A message is JSON to every other reader, and its parts are what they read.
#![no_main]

use libfuzzer_sys::fuzz_target;
use mgp_protocol::jsonrpc::{self, Message};
use serde_json::Value;
use serde_json::value::RawValue;

fuzz_target!(|frame: &[u8]| {
    let other = serde_json::from_slice::<Value>(frame);
    let _ = jsonrpc::split_batch(frame);
    match jsonrpc::parse(frame) {
        Err(malformed) => drop((
            malformed.code(),
            malformed.to_frame(),
            malformed.to_frame_without_id(),
        )),
        Ok(message) => {
            // Half of a surrogate pair is JSON, but no text that serde_json can hold.
            let raw = serde_json::from_slice::<&RawValue>(frame);
            assert!(raw.is_ok(), "what is taken is JSON");
            let Ok(other) = other else { return };
            let part = |raw: &str| serde_json::from_str::<Value>(raw).expect("a part is JSON");
            match &message {
                Message::Request { method, .. } | Message::Notification { method, .. } => {
                    assert_eq!(other["method"].as_str(), Some(&**method));
                    if let Some(params) = message.params() {
                        assert_eq!(other["params"], part(params));
                    }
                }
                Message::Response { outcome, .. } => {
                    let (name, raw) = match outcome {
                        Ok(raw) => ("result", raw),
                        Err(raw) => ("error", raw),
                    };
                    assert_eq!(other[name], part(raw.get()));
                }
            }
        }
    }
});
