//! The readers of JSON text agree with each other and with serde_json: on the pieces of a text, on the members of an
//! object, on what was edited in it, and on what crosses gRPC, to the last digit.
#![no_main]

use libfuzzer_sys::fuzz_target;
use mgp_grpc::exact::{Struct, StructError, StructErrorKind};
use mgp_json::{
    Splice, Token, Tokens, can_contain_string, find_duplicate, member, members, number, partial,
    quote, remove_members, render_object, unescape, unquote,
};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

fuzz_target!(|text: &str| {
    let value = serde_json::from_str::<Value>(text).ok();
    check_tokens(text, value.as_ref());
    assert_eq!(unquote(&quote(text)).as_deref(), Some(text));
    let quoted = quote(text);
    assert_eq!(unescape(&quoted[1..quoted.len() - 1]), text);
    let Some(Value::Object(object)) = value else {
        // Half of a surrogate pair is text to a reader that keeps it, and none to one that needs its value.
        let is_accepted = serde_json::from_str::<&RawValue>(text).is_ok();
        let is_kept = is_accepted && text.trim_start().starts_with('{');
        assert!(is_kept || members(text).is_none() && member(text, "a").is_none());
        return;
    };
    let all = members(text).expect("it is an object");
    let mut names: Vec<_> = all.iter().map(|(name, _)| &**name).collect();
    let twice = find_duplicate(&mut names).is_some();
    // Of a name that is there twice readers differ on which one counts.
    assert_eq!(twice, all.len() != object.len());
    if !twice {
        check_members(text, &object);
        check_edits(text, object);
    }
    check_grpc(text);
});

/// Nothing but white space is left out, and each piece is what serde_json reads there.
fn check_tokens(text: &str, value: Option<&Value>) {
    let mut joined = String::new();
    let mut last_number: Option<&str> = None;
    for token in Tokens::new(text) {
        match token {
            Token::Mark(mark) => joined.push(char::from(mark)),
            Token::String(raw) | Token::Scalar(raw) => joined.push_str(raw),
        }
        if value.is_none() {
            continue;
        }
        match token {
            Token::Mark(_) => {}
            Token::String(raw) => assert_eq!(token.as_text(), unquote(raw)),
            Token::Scalar(raw) => {
                let read: Value = serde_json::from_str(raw).expect("a scalar is JSON");
                if let (Some(one), Some(last)) = (read.as_f64(), last_number) {
                    let same = serde_json::from_str::<f64>(last).ok() == Some(one);
                    assert!(same || !number::are_equal(raw, last), "{raw} {last}");
                }
                last_number = read.is_number().then_some(raw).or(last_number);
            }
        }
    }
    match value {
        Some(value) => assert_eq!(
            serde_json::from_str::<Value>(&joined).ok().as_ref(),
            Some(value)
        ),
        None => assert!(joined.len() <= text.len()),
    }
}

/// Each reader finds the same members, with the same values.
fn check_members(text: &str, object: &Map<String, Value>) {
    let all = members(text).expect("it is an object");
    let rendered = render_object(all.iter().map(|(name, raw)| (name, raw.get())));
    assert_eq!(&read(&rendered), object);
    let torn: Vec<_> = partial::members(text.as_bytes()).collect();
    assert_eq!(torn.len(), all.len());
    for ((name, raw), (torn_name, torn_value, whole)) in all.iter().zip(torn) {
        let value: Value = serde_json::from_str(raw.get()).expect("a member is JSON");
        assert_eq!(value, object[&**name]);
        assert_eq!(member(text, name), Some(raw.get()));
        assert_eq!((&torn_name, whole), (name, true));
        assert_eq!(torn_value.trim_ascii(), raw.get().as_bytes());
        assert_eq!(
            partial::first_member(text.as_bytes(), name),
            Some(torn_value)
        );
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'/';
        if name.bytes().all(plain) {
            assert!(can_contain_string(text.as_bytes(), name), "{name}");
        }
    }
}

/// What is put into a text, taken out and replaced is there, gone and replaced, and nothing else changes.
fn check_edits(text: &str, before: Map<String, Value>) {
    let object = text.trim();
    for (name, raw) in &members(text).expect("it is an object") {
        let mut replaced = Splice::new(text);
        replaced.replace(raw.get(), "[1]");
        let mut wanted = before.clone();
        wanted[&**name] = serde_json::json!([1]);
        assert_eq!(read(&replaced.finish()), wanted);

        let mut wanted = before.clone();
        wanted.remove(&**name);
        assert_eq!(read(&remove_members(object, &[name])), wanted);
    }
    if !before.contains_key("new") {
        let mut inserted = Splice::new(text);
        inserted.insert_member(object, "new", "{}");
        let mut wanted = before;
        wanted.insert("new".into(), serde_json::json!({}));
        assert_eq!(read(&inserted.finish()), wanted);
    }
}

fn read(text: &str) -> Map<String, Value> {
    match serde_json::from_str(text) {
        Ok(Value::Object(object)) => object,
        other => panic!("{text}: {other:?}"),
    }
}

/// An object that crosses gRPC is the same object.
fn check_grpc(text: &str) {
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
}

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
