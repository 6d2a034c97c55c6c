//! A JSON object that crosses gRPC is the same object, to the last digit.
#![no_main]

use libfuzzer_sys::fuzz_target;
use mgp_grpc::exact::Struct;
use serde_json::Value;

fuzz_target!(|text: &str| {
    let Ok(object) = Struct::from_json(text, 1 << 20) else {
        return;
    };
    let back = match object.to_json(1 << 20) {
        // A whole number beyond 2^53 may be that of somebody who rounded.
        Err(NotExact {
            why: WhyNotExact::Ambiguous(_),
            ..
        }) => return,
        back => back.expect("what was taken is given back"),
    };
    let before: Value = serde_json::from_str(text).expect("what is taken is JSON");
    let after: Value = serde_json::from_str(&back).expect("what is given is JSON");
    assert_eq!(before, after, "{text}");
});
