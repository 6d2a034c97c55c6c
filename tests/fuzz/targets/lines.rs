//! A message on one line ends no line for any reader, and says the same.
#![no_main]

use libfuzzer_sys::fuzz_target;
use mgp_protocol::framing::to_one_line_bytes;
use serde_json::Value;

fuzz_target!(|bytes: &[u8]| {
    let line = to_one_line_bytes(bytes);
    let ends = |byte: &u8| matches!(byte, b'\n' | b'\r' | 0x0b | 0x0c | 0x1c..=0x1e);
    assert!(!line.iter().any(ends));
    if let Ok(text) = std::str::from_utf8(&line) {
        assert!(!text.contains(['\u{85}', '\u{2028}', '\u{2029}']));
    }
    if let Ok(before) = serde_json::from_slice::<Value>(bytes) {
        assert_eq!(
            before,
            serde_json::from_slice::<Value>(&line).expect("it stays JSON")
        );
    }
});
