//! Malicious patches.

use std::fmt::Write;

use crate::state::document::{MAX_BYTES, MAX_DEPTH, PatchError};
use crate::state::patch::{MAX_OPERATIONS, apply_patch};

fn operations(list: &[String]) -> String {
    format!("[{}]", list.join(","))
}

/// MCPL-065: a patch that doubles its document with each operation is stopped early.
#[test]
fn a_patch_that_copies_itself_to_gigabytes_ends_at_the_bound() {
    let doubles: Vec<String> = (0..64)
        .map(|n| format!(r#"{{"op":"copy","from":"","path":"/{n}"}}"#))
        .collect();
    let flat: Vec<String> = (0..64)
        .map(|_| r#"{"op":"copy","from":"/a","path":"/a/-"}"#.to_owned())
        .collect();
    for bomb in [operations(&doubles), operations(&flat)] {
        let data = format!(r#"{{"a":["{}"]}}"#, "x".repeat(1000));
        let fault = apply_patch(&data, &bomb).unwrap_err();
        assert!(
            matches!(fault, PatchError::TooLarge | PatchError::TooDeep),
            "{fault}"
        );
    }
}

/// MCPL-065: no value is nested deeper than the bound, by any operation.
#[test]
fn nothing_is_nested_deeper_than_the_bound() {
    let nested = |depth: usize| format!("{}1{}", "[".repeat(depth), "]".repeat(depth));
    assert!(apply_patch(&nested(MAX_DEPTH), "[]").is_ok());
    assert_eq!(
        apply_patch(&nested(MAX_DEPTH + 1), "[]"),
        Err(PatchError::TooDeep)
    );
    // Far beyond what a reader that recurses can stand.
    assert_eq!(
        apply_patch(&nested(100_000), "[]"),
        Err(PatchError::TooDeep)
    );
    let within = format!(r#"{{"a":{},"b":{{}}}}"#, nested(40));
    let move_to = |path: &str| format!(r#"[{{"op":"move","from":"/a","path":"{path}"}}]"#);
    assert!(apply_patch(&within, &move_to("/b/c")).is_ok());
    let deep = format!(r#"{{"a":{},"b":{}}}"#, nested(40), nested(40));
    let path = format!("/b{}", "/0".repeat(39));
    assert_eq!(
        apply_patch(&deep, &move_to(&path)),
        Err(PatchError::TooDeep)
    );
    let long = format!(
        r#"[{{"op":"add","path":"{}","value":1}}]"#,
        "/a".repeat(100_000)
    );
    assert_eq!(apply_patch("{}", &long), Err(PatchError::TooDeep));
}

/// MCPL-065: patches are rejected by size or by work.
#[test]
fn huge_patches_are_refused_by_size_and_by_work() {
    let large = format!("\"{}\"", "x".repeat(MAX_BYTES));
    assert_eq!(apply_patch(&large, "[]"), Err(PatchError::TooLarge));
    assert_eq!(
        apply_patch("1", &format!("[{large}]")),
        Err(PatchError::TooLarge)
    );
    let many = vec!["{}".to_owned(); MAX_OPERATIONS + 1];
    assert_eq!(
        apply_patch("1", &operations(&many)),
        Err(PatchError::NotAPatch)
    );
    let mut array = String::from("[0");
    for _ in 0..200_000 {
        array.push_str(",0");
    }
    array.push(']');
    let fronts: Vec<String> = (0..MAX_OPERATIONS)
        .map(|_| r#"{"op":"add","path":"/0","value":1}"#.to_owned())
        .collect();
    let fault = apply_patch(&array, &operations(&fronts)).unwrap_err();
    assert!(
        matches!(fault, PatchError::TooMuchWork | PatchError::TooLarge),
        "{fault}"
    );
    let index = r#"[{"op":"add","path":"/18446744073709551616","value":1}]"#;
    assert!(apply_patch("[]", index).is_err());
}

/// MCPL-065: a value cannot be put into itself, so there is no circle.
#[test]
fn a_value_does_not_move_into_itself() {
    let into = r#"[{"op":"move","from":"/a","path":"/a/b"}]"#;
    assert!(apply_patch(r#"{"a":{}}"#, into).is_err());
    assert!(apply_patch(r#"{"a":{}}"#, r#"[{"op":"move","from":"","path":"/a"}]"#).is_err());
    // Copying into itself copies the former value.
    let copy = r#"[{"op":"copy","from":"/a","path":"/a/b"}]"#;
    assert_eq!(
        apply_patch(r#"{"a":{}}"#, copy).unwrap(),
        r#"{"a":{"b":{}}}"#
    );
}

/// The size limit applies to the current document, not to the sum of all additions.
#[test]
fn many_small_changes_of_a_large_document_are_applied() {
    let mut data = String::from("{");
    for n in 0..1000 {
        let _ = write!(data, r#""{n}":"{}","#, "x".repeat(400));
    }
    data.push_str(r#""last":0}"#);
    let name = "n".repeat(60);
    let each =
        format!(r#"{{"op":"add","path":"/{name}","value":1}},{{"op":"remove","path":"/{name}"}}"#);
    let patch = operations(&vec![each; 2000]);
    assert_eq!(apply_patch(&data, &patch).unwrap(), data);
}
