//! A JSON object that crosses gRPC is the same object, to the last digit.
#![no_main]

use libfuzzer_sys::fuzz_target;
use mgp_grpc::exact::{Struct, StructError, StructErrorKind};
use serde_json::Value;

fuzz_target!(|text: &str| {
    let Ok(object) = Struct::from_json(text, 1 << 20) else {
        return;
    };
    let back = match object.to_json(1 << 20) {
        // A whole number beyond 2^53 may be that of somebody who rounded.
        Err(StructError {
            why: StructErrorKind::Ambiguous(_),
            ..
        }) => return,
        back => back.expect("what was taken is given back"),
    };
    let before: Value = serde_json::from_str(text).expect("what is taken is JSON");
    let after: Value = serde_json::from_str(&back).expect("what is given is JSON");
    assert!(is_same(&before, &after), "{text}\n{back}");
});

/// The same value; a number may be written otherwise.
fn is_same(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Number(one), Value::Number(other)) => {
            one == other || one.as_f64() == other.as_f64()
        }
        (Value::Array(one), Value::Array(other)) => {
            one.len() == other.len() && one.iter().zip(other).all(|(a, b)| is_same(a, b))
        }
        (Value::Object(one), Value::Object(other)) => {
            let same =
                |(name, a): (&String, &Value)| other.get(name).is_some_and(|b| is_same(a, b));
            one.len() == other.len() && one.iter().all(same)
        }
        _ => one == other,
    }
}
