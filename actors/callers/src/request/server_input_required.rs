//! `input_required` of a stateless server: the input it needs to continue a call, and the params of the
//! next round (MCP 2026-07-28, multi round-trip requests).

use std::borrow::Cow;
use std::collections::BTreeMap;

use mgp_json::{Splice, can_contain_string, lookalike};
use serde::Deserialize;
use serde_json::value::RawValue;

/// The most rounds of one call, which ends endless callbacks.
pub const MAX_ROUNDS: usize = 64;

/// The input that a server needs to continue.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct InputRequired<'a> {
    #[serde(borrow, default)]
    result_type: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    /// Its callbacks, each under the server's own key.
    pub input_requests: BTreeMap<String, InputRequest<'a>>,
    #[serde(borrow, default)]
    /// The server's state, to be returned with the next round.
    pub request_state: Option<&'a RawValue>,
}

/// One callback.
#[derive(Debug, Deserialize)]
pub struct InputRequest<'a> {
    /// Its method.
    pub method: String,
    #[serde(borrow, default)]
    /// Its params, as JSON text.
    pub params: Option<&'a RawValue>,
}

/// Parses the input that the result requires; `None` when it is final.
pub fn parse_input_required(result: &str) -> Option<InputRequired<'_>> {
    if !can_contain_string(result.as_bytes(), "\"input_required\"") {
        return None;
    }
    let needs: InputRequired<'_> = lookalike::from_object(result).ok()?;
    (needs.result_type.as_deref() == Some("input_required")).then_some(needs)
}

/// Renders the params of the next round: the first params, with the answers and the server's state.
pub fn render_next_round(first: &str, responses: &str, state: Option<&RawValue>) -> String {
    let mut splice = Splice::new(first);
    splice.insert_member(first, "inputResponses", responses);
    let next = splice.finish();
    match state {
        None => next.into_owned(),
        Some(state) => {
            let mut splice = Splice::new(&next);
            splice.insert_member(&next, "requestState", state.get());
            splice.finish().into_owned()
        }
    }
}

#[cfg(test)]
mod tests {
    use mgp_json::member;

    use super::*;

    #[test]
    fn next_round_repeats_first_params_with_answers() {
        let state: Box<RawValue> = RawValue::from_string("\"s\\u0041\"".into()).unwrap();
        let next = render_next_round(r#"{"name":"a"}"#, r#"{"k":{}}"#, Some(&state));
        assert_eq!(member(&next, "inputResponses"), Some(r#"{"k":{}}"#));
        assert_eq!(member(&next, "requestState"), Some("\"s\\u0041\""));
        assert_eq!(member(&next, "name"), Some("\"a\""));
    }
}
