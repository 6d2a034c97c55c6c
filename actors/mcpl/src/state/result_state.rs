//! The view of a state in results for callers, without the state itself. An agent that is an MCPL host gets its checkpoint
//! in `_meta`; any other one gets a text if something was not stored.

use mgp_json::{Splice, member, members, quote, remove_members, set_members};
use mgp_protocol::mcpl::state::{STATE_META_KEY, StateMeta};

/// The member of a result with its state.
const STATE: &str = "state";

/// The result without its state, and the state; `None` without a state.
#[must_use]
pub fn split_state(result: &str) -> Option<(String, String)> {
    let state = member(result, STATE)?.to_owned();
    Some((remove_members(result, &[STATE]).into_owned(), state))
}

/// Adds a note to `_meta`, which replaces one of that name from the server.
#[must_use]
pub fn with_note(result: &str, note: &StateMeta) -> String {
    let note = serde_json::to_string(note).expect("a note is always JSON");
    let there = member(result, "_meta").filter(|meta| meta.starts_with('{'));
    let meta = set_members(there.unwrap_or("{}"), &[(STATE_META_KEY, &note)]);
    set_members(result, &[("_meta", &meta)])
}

/// Adds a text to the end of the content, for clients without MCPL.
#[must_use]
pub fn with_text(result: &str, why: &str) -> String {
    let text = format!(
        "The state of this tool was not kept: {why}. The next call goes on from the one before."
    );
    let block = format!(r#"{{"type":"text","text":{}}}"#, quote(&text));
    let content = member(result, "content").filter(|content| content.starts_with('['));
    let mut splice = Splice::new(result);
    match content {
        Some(content) => {
            let open = content.trim_end().trim_end_matches(']').trim_end();
            let comma = if open == "[" { "" } else { "," };
            splice.replace(content, format!("{open}{comma}{block}]"));
        }
        None if members(result).is_some() => {
            splice.insert_member(result, "content", &format!("[{block}]"));
        }
        None => {}
    }
    splice.finish().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// MCPL-071: exactly the state is removed from the result.
    #[test]
    fn the_state_is_removed_from_a_result() {
        let result = r#"{"content":[],"state":{"checkpoint":"a","data":[1]},"x":1}"#;
        let (rest, state) = split_state(result).unwrap();
        assert_eq!(rest, r#"{"content":[],"x":1}"#);
        assert_eq!(state, r#"{"checkpoint":"a","data":[1]}"#);
        assert!(split_state(r#"{"content":[{"state":1}]}"#).is_none());
    }

    /// MCPL-063, MCPL-067: the position, and the reason if the state was not stored.
    #[test]
    fn a_caller_is_informed_in_meta_or_content() {
        let note = StateMeta {
            feature_set: "notes.edit".into(),
            checkpoint: Some("a".into()),
            refused: None,
        };
        let own = r#"{"_meta":{"x":1,"mcpl/state":{"checkpoint":"forged"}},"content":[]}"#;
        let told = r#"{"featureSet":"notes.edit","checkpoint":"a"}"#;
        assert_eq!(
            with_note(own, &note),
            format!(r#"{{"_meta":{{"mcpl/state":{told},"x":1}},"content":[]}}"#)
        );
        assert_eq!(
            with_note("{}", &note),
            format!(r#"{{"_meta":{{"mcpl/state":{told}}}}}"#)
        );
        for (result, begins) in [
            (r#"{"content":[]}"#, r#"{"content":[{"type":"text""#),
            (r#"{"content":[1] }"#, r#"{"content":[1,{"type":"text""#),
            (r#"{"a":1}"#, r#"{"content":[{"type":"text""#),
        ] {
            let spoken = with_text(result, "why \"so\"");
            assert!(spoken.starts_with(begins), "{spoken}");
            assert!(serde_json::from_str::<serde_json::Value>(&spoken).is_ok());
        }
    }
}
