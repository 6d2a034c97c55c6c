//! Finds unknown members that other readers take for known ones (CVE-2026-27896).
//!
//! Go's encoding/json and its like match members without regard to case, by Unicode's simple folding:
//! `Name`, `NAME` and, with the long s, `argument\u{17f}`. What the kernel passed over as unknown would
//! be the very name and arguments that such a server reads.

mod strict_deserializer;

use serde::Deserialize;
use serde::de::{Error as _, Unexpected};
use serde_json::value::RawValue;

use self::strict_deserializer::Strict;
use crate::accepted::Accepted;

/// Prefix of the error message about a lookalike.
const MESSAGE_PREFIX: &str = "member ";

/// Any value: declares a member as known, so that it is unique and has no lookalikes.
#[derive(Clone, Copy, Debug, Default)]
pub struct AnyMember;

impl<'de> Deserialize<'de> for AnyMember {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        serde::de::IgnoredAny::deserialize(d).map(|_| Self)
    }
}

/// True for a present member of any value, `null` included.
///
/// # Errors
/// As serde_json.
pub fn is_there<'de, D: serde::Deserializer<'de>>(d: D) -> Result<bool, D::Error> {
    AnyMember::deserialize(d).map(|AnyMember| true)
}

/// The known member that this one differs from, but may be taken for. Known ones are ASCII.
#[must_use]
pub fn find_lookalike<'k>(member: &str, known: &[&'k str]) -> Option<&'k str> {
    if known.contains(&member) {
        return None;
    }
    let alike = |known: &&&str| fold_case(member).eq(fold_case(known));
    known.iter().find(alike).copied()
}

/// True when two names are equal to a reader that ignores case.
#[must_use]
pub fn are_alike(one: &str, other: &str) -> bool {
    fold_case(one).eq(fold_case(other))
}

/// Folds case as such readers do: the long s, the kelvin sign and, in some of them, the Turkish i's become ASCII.
fn fold_case(name: &str) -> impl Iterator<Item = char> {
    name.chars().map(|c| match c {
        '\u{17f}' => 's',
        '\u{212a}' => 'k',
        '\u{130}' | '\u{131}' => 'i',
        'A'..='Z' => c.to_ascii_lowercase(),
        _ if c.is_ascii() => c,
        // Simple folding is one to one; expansions stay unfolded.
        _ => {
            let mut lower = c.to_lowercase();
            let first = lower.next().unwrap_or(c);
            lower.next().map_or(first, |_| c)
        }
    })
}

/// Parses a struct as serde_json does, but rejects lookalikes of its members and of nested structs' members. A struct
/// is read only from an object, never from an array by position. Raw values are not checked.
///
/// # Errors
/// As serde_json, for an array in place of a struct, and for a lookalike, whose error [`as_lookalike_message`] knows.
pub fn from_str<'a, T: Deserialize<'a>>(text: &'a str) -> Result<T, serde_json::Error> {
    parse(text, true)
}

/// The same for texts with harmless lookalikes.
///
/// # Errors
/// As serde_json, and for an array in place of a struct.
pub fn from_object<'a, T: Deserialize<'a>>(text: &'a str) -> Result<T, serde_json::Error> {
    parse(text, false)
}

/// The same as [`from_str`] for text that serde_json has accepted before, as part of a larger message. It costs little
/// where long values are not read. Of other text the result is unspecified.
///
/// # Errors
/// As [`from_str`].
pub fn from_accepted<'a, T: Deserialize<'a>>(text: &'a str) -> Result<T, serde_json::Error> {
    T::deserialize(Strict::new(Accepted(text), true))
}

fn parse<'a, T: Deserialize<'a>>(text: &'a str, names: bool) -> Result<T, serde_json::Error> {
    let mut json = serde_json::Deserializer::from_str(text);
    let read = T::deserialize(Strict::new(&mut json, names))?;
    json.end()?;
    Ok(read)
}

/// Reads a present member verbatim, `null` included.
///
/// # Errors
/// As serde_json.
pub fn raw_value<'de: 'a, 'a, D: serde::Deserializer<'de>>(
    d: D,
) -> Result<Option<&'a RawValue>, D::Error> {
    <&RawValue>::deserialize(d).map(Some)
}

/// Reads a member that is an object, verbatim; `null` counts as none.
///
/// # Errors
/// For any other value.
pub fn object<'de: 'a, 'a, D: serde::Deserializer<'de>>(
    d: D,
) -> Result<Option<&'a RawValue>, D::Error> {
    let raw = Option::<&RawValue>::deserialize(d)?;
    match raw.map(|raw| raw.get().as_bytes()[0]) {
        None | Some(b'{') => Ok(raw),
        Some(b'[') => Err(D::Error::invalid_type(Unexpected::Seq, &"an object")),
        Some(_) => Err(D::Error::invalid_type(
            Unexpected::Other("value"),
            &"an object",
        )),
    }
}

/// The same for a required member; `null` is an error.
///
/// # Errors
/// For any other value.
pub fn required_object<'de: 'a, 'a, D: serde::Deserializer<'de>>(
    d: D,
) -> Result<&'a RawValue, D::Error> {
    let none = || D::Error::invalid_type(Unexpected::Unit, &"an object");
    object(d)?.ok_or_else(none)
}

/// The error message for the sender of a lookalike.
fn lookalike_message(member: &str, known: &str) -> String {
    format!(
        "{MESSAGE_PREFIX}{member:?} is not {known:?}, but some readers take it for that; leave it out"
    )
}

/// Serde's message without the position: params are part of a frame, where a column means nothing.
#[must_use]
pub fn strip_position(error: &serde_json::Error) -> String {
    let mut text = error.to_string();
    text.truncate(text.rfind(" at line ").unwrap_or(text.len()));
    text
}

/// The message of an error about a lookalike; `None` for every other error.
#[must_use]
pub fn as_lookalike_message(error: &serde_json::Error) -> Option<String> {
    let text = strip_position(error);
    (error.is_data() && text.starts_with(MESSAGE_PREFIX)).then_some(text)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[derive(Debug, Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Inner {
        #[serde(default)]
        task_id: Option<String>,
    }

    #[derive(Debug, Deserialize)]
    struct Outer<'a> {
        #[serde(borrow)]
        name: &'a RawValue,
        #[serde(borrow, default)]
        arguments: Option<&'a RawValue>,
        #[serde(default, rename = "ref")]
        reference: Option<Inner>,
        #[serde(default)]
        task: Option<AnyMember>,
    }

    fn read(text: &str) -> Result<Outer<'_>, serde_json::Error> {
        from_str(text)
    }

    #[test]
    fn lookalikes_are_reported_with_the_known_member() {
        for (text, member, known) in [
            (r#"{"name":"a","Name":"b"}"#, "Name", "name"),
            (r#"{"NAME":"b"}"#, "NAME", "name"),
            (
                r#"{"name":"a","argument\u017f":{}}"#,
                "argument\u{17f}",
                "arguments",
            ),
            (r#"{"name":"a","TAS\u212a":{}}"#, "TAS\u{212a}", "task"),
            (r#"{"name":"a","ref":{"taskID":"x"}}"#, "taskID", "taskId"),
            (r#"{"name":"a","\u004eame":1}"#, "Name", "name"),
        ] {
            let message = as_lookalike_message(&read(text).unwrap_err()).unwrap();
            assert_eq!(message, lookalike_message(member, known));
        }
    }

    /// Serde reads a struct from an array too: its members by position.
    #[test]
    fn an_array_is_not_read_as_a_struct() {
        type Several = std::collections::BTreeMap<String, Vec<Option<Inner>>>;
        for text in [r#"["a",{},["t"]]"#, r#"{"name":"a","ref":["t"]}"#, "[]"] {
            for error in [
                read(text).unwrap_err(),
                from_object::<Outer<'_>>(text).unwrap_err(),
            ] {
                let words = error.to_string();
                assert!(words.contains("expected an object"), "{words}");
            }
        }
        for text in [r#"{"a":[["t"]]}"#, r#"{"a":[{},["t"]]}"#] {
            assert!(from_str::<Several>(text).is_err(), "{text}");
        }
        assert!(from_str::<Several>(r#"{"a":[{"taskID":"t"}]}"#).is_err());
        let several: Several = from_object(r#"{"a":[{"taskID":"t"},null,{}]}"#).unwrap();
        assert_eq!(several["a"].len(), 3);
    }

    #[test]
    fn all_else_is_read_as_by_serde_json() {
        let text = r#"{"other":1,"naem":2,"\uff4eame":3,"n\u0061me":"a","ref":{"taskId":"t","x":{}},
            "arguments":{"Name":1,"NAME":{"Arguments":2}},"task":{"Name":1}}"#;
        let outer = read(text).unwrap();
        assert_eq!(outer.name.get(), "\"a\"");
        assert_eq!(
            outer.arguments.unwrap().get(),
            r#"{"Name":1,"NAME":{"Arguments":2}}"#
        );
        assert_eq!(outer.reference.unwrap().task_id.as_deref(), Some("t"));
        assert!(outer.task.is_some());
        for (text, other) in [
            (r#"{"name":1,"name":2}"#, "duplicate field `name`"),
            (r#"{"name":1,"task":1,"task":2}"#, "duplicate field `task`"),
            (r#"{}"#, "missing field `name`"),
            (r#"{"name":1}x"#, "trailing characters"),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.to_string().starts_with(other), "{error}");
            assert_eq!(as_lookalike_message(&error), None);
        }
        assert!(find_lookalike("m\u{308}", &["name"]).is_none());
        assert!(are_alike("Stra\u{df}e", "stra\u{df}E") && !are_alike("\u{ff4e}", "n"));
    }

    /// JSON values in which the names of [`Outer`] are frequent.
    fn json() -> impl Strategy<Value = String> {
        let name = prop::sample::select(vec![
            r#""name""#,
            r#""arguments""#,
            r#""ref""#,
            r#""task""#,
            r#""taskId""#,
            r#""Name""#,
            r#""n\u0061me""#,
            r#""\\""#,
            r#""other""#,
            r#""\ud83d\ude00""#,
            r#""{""#,
        ]);
        let leaf = prop_oneof![
            name.clone().prop_map(String::from),
            prop::sample::select(vec!["null", "true", "-1.0e+2", "7", "\"\"", "[]", "{}"])
                .prop_map(String::from),
            "[a-z\"\\\\{}\\[\\],:é]{0,40}".prop_map(|text| crate::quote(&text)),
        ];
        let space = prop::sample::select(vec!["", "", " ", "\n\t"]);
        leaf.prop_recursive(4, 40, 5, move |inner| {
            let member = (name.clone(), space.clone(), inner.clone(), space.clone());
            let member =
                member.prop_map(|(name, a, value, b)| format!("{a}{name}{b}:{a}{value}{b}"));
            let members = prop::collection::vec(member, 0..5);
            let items = prop::collection::vec(inner, 0..5);
            prop_oneof![
                members.prop_map(|members| format!("{{{}}}", members.join(","))),
                items.prop_map(|items| format!("[{}]", items.join(", "))),
            ]
        })
    }

    proptest! {
        /// Text that serde_json accepts is read the same with and without validation.
        #[test]
        fn accepted_text_reads_the_same(text in json()) {
            prop_assume!(serde_json::from_str::<&RawValue>(&text).is_ok());
            let describe = |read: Result<Outer<'_>, serde_json::Error>| match read {
                Ok(outer) => format!("{outer:?}"),
                Err(error) => strip_position(&error),
            };
            prop_assert_eq!(describe(from_accepted(&text)), describe(from_str(&text)));
        }

        /// Other text is an error or is read somehow, without a panic.
        #[test]
        fn text_that_was_not_accepted_does_no_harm(text in "[a-z\"\\\\{}\\[\\],: é]{0,60}") {
            let _ = from_accepted::<Outer<'_>>(&text);
        }
    }
}
