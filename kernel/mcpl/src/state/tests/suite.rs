//! The public test suite of RFC 6902 (`tests/corpus/json_patch`).

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::state::patch::apply_patch;

const GENERAL: &str = include_str!("../../../../../tests/corpus/json_patch/tests.json");
const OF_THE_RFC: &str = include_str!("../../../../../tests/corpus/json_patch/spec_tests.json");

#[derive(Deserialize)]
struct Case<'a> {
    #[serde(default)]
    comment: String,
    #[serde(borrow)]
    doc: &'a RawValue,
    #[serde(borrow)]
    patch: &'a RawValue,
    #[serde(borrow, default, deserialize_with = "mgp_json::lookalike::raw_value")]
    expected: Option<&'a RawValue>,
    #[serde(default)]
    error: Option<String>,
    #[serde(default)]
    disabled: bool,
}

/// MCPL-065, MCPL-066: every case of the suite ends as it says, and what fails leaves nothing.
#[test]
fn the_public_suite_of_json_patch_passes() {
    let mut run = 0;
    for text in [GENERAL, OF_THE_RFC] {
        let cases: Vec<Case<'_>> = serde_json::from_str(text).unwrap();
        for case in cases.iter().filter(|case| !case.disabled) {
            run += 1;
            let outcome = apply_patch(case.doc.get(), case.patch.get());
            let told = format!("{} {}: {outcome:?}", case.comment, case.patch.get());
            match (case.expected, &case.error) {
                (_, Some(_)) => assert!(outcome.is_err(), "{told}"),
                (Some(expected), None) => {
                    assert_same(&outcome.expect(&told), expected.get(), &told)
                }
                (None, None) => assert!(outcome.is_ok(), "{told}"),
            }
        }
    }
    assert_eq!(run, 91);
}

/// Equal, and in the same order of members.
fn assert_same(one: &str, other: &str, told: &str) {
    let value = |text: &str| serde_json::from_str::<serde_json::Value>(text).unwrap();
    assert_eq!(value(one), value(other), "{told}");
}

/// MCPL-065: what a reader makes of numbers, of their spelling, of spaces and of the order of members stays the
/// server's own; what readers disagree on is not kept.
#[test]
fn what_is_not_patched_stays_as_it_was_written() {
    let data = r#"{ "n":12345678901234567890123, "f":1.50, "e":1E400, "s":"\u0061\/", "b":{"z":1,"a":2} }"#;
    let add = r#"[{"op":"add","path":"/new~1name","value":0.10},{"op":"replace","path":"/b/z","value":-0}]"#;
    assert_eq!(
        apply_patch(data, add).unwrap(),
        r#"{"n":12345678901234567890123,"f":1.50,"e":1E400,"s":"\u0061\/","b":{"z":-0,"a":2},"new/name":0.10}"#
    );
    for (test, holds) in [
        (
            r#"{"op":"test","path":"/n","value":12345678901234567890124}"#,
            false,
        ),
        (r#"{"op":"test","path":"/f","value":15e-1}"#, true),
        (r#"{"op":"test","path":"/s","value":"a/"}"#, true),
        (r#"{"op":"test","path":"/b","value":{"a":2.0,"z":1}}"#, true),
    ] {
        assert_eq!(
            apply_patch(data, &format!("[{test}]")).is_ok(),
            holds,
            "{test}"
        );
    }
    for twice in [r#"{"a":1,"a":2}"#, r#"[{"a":1,"\u0061":2}]"#] {
        assert!(apply_patch(twice, "[]").is_err(), "{twice}");
    }
    assert!(apply_patch(r#"{"\ud800":1}"#, "[]").is_err());
}
