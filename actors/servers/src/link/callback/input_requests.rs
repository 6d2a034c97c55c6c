//! Parses the input requests in a server's answer strictly, so that no other parser can find more in it.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Mutex, PoisonError};

use mgp_json::{find_duplicate, lookalike, members};
use mgp_protocol::refusal::URL_ELICITATION_REQUIRED;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::link::server_methods::find_callback;

/// The maximum of remembered permits for one server. The oldest are dropped; their clients may answer again
/// after the next `tasks/get`.
const MAX_PERMITS: usize = 1024;

/// The input requests of tasks that clients may answer.
#[derive(Debug, Default)]
pub(in crate::link) struct AnswerPermits {
    known: Mutex<VecDeque<u64>>,
    hasher: RandomState,
}

impl AnswerPermits {
    /// Allows answers to these input requests of a task.
    pub(in crate::link) fn allow<'k>(&self, task: &str, keys: impl Iterator<Item = &'k str>) {
        for key in keys {
            let permit = self.hasher.hash_one((task, key));
            let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
            if !known.contains(&permit) {
                if known.len() == MAX_PERMITS {
                    known.pop_front();
                }
                known.push_back(permit);
            }
        }
    }

    /// True if this input request may be answered.
    pub(in crate::link) fn allows(&self, task: &str, key: &str) -> bool {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.contains(&self.hasher.hash_one((task, key)))
    }
}

/// One input request.
#[derive(Deserialize)]
pub(in crate::link) struct InputRequest<'a> {
    /// One of the callback methods.
    #[serde(borrow)]
    pub(in crate::link) method: Cow<'a, str>,
    #[serde(borrow, default)]
    params: Option<&'a RawValue>,
}

impl InputRequest<'_> {
    pub(in crate::link) fn params(&self) -> Option<&str> {
        self.params.map(RawValue::get)
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct InputRequired<'a> {
    #[serde(borrow, default)]
    input_requests: Option<&'a RawValue>,
}

/// Parses the input requests of a result or a task event.
///
/// # Errors
/// A description of what parsers could read differently.
pub(in crate::link) fn parse(text: &str) -> Result<Vec<(String, InputRequest<'_>)>, String> {
    let parse_error = |why: &dyn fmt::Display| format!("its questions cannot be read: {why}");
    let needs: InputRequired<'_> = lookalike::from_str(text).map_err(|why| parse_error(&why))?;
    let requests = needs.input_requests.map_or("{}", RawValue::get);
    let requests = members(requests).ok_or_else(|| parse_error(&"they are no object"))?;
    let mut keys: Vec<&str> = requests.iter().map(|(key, _)| &**key).collect();
    if let Some(key) = find_duplicate(&mut keys) {
        return Err(parse_error(&format_args!("duplicate key {key:?}")));
    }
    let requests = requests.into_iter().map(|(key, request)| {
        let request = lookalike::from_str(request.get()).map_err(|why| parse_error(&why))?;
        Ok((key.into_owned(), request))
    });
    let requests: Vec<(String, InputRequest<'_>)> = requests.collect::<Result<_, String>>()?;
    match requests
        .iter()
        .find(|(_, one)| find_callback(&one.method).is_none())
    {
        Some((_, one)) => Err(format!("it asks {:?}, which no server may", one.method)),
        None => Ok(requests),
    }
}

/// Parses the URL elicitations that an error object requires; empty for other errors.
///
/// # Errors
/// A description of what parsers could read differently.
pub(in crate::link) fn parse_url_elicitations(error: &str) -> Result<Vec<&str>, String> {
    #[derive(Deserialize)]
    struct ErrorObject<'a> {
        #[serde(default)]
        code: Option<serde_json::Number>,
        #[serde(borrow, default)]
        data: Option<&'a RawValue>,
    }
    #[derive(Deserialize)]
    struct Data<'a> {
        #[serde(borrow)]
        elicitations: Vec<&'a RawValue>,
    }
    let parse_error = |error| format!("its error cannot be read: {error}");
    let object: ErrorObject<'_> = lookalike::from_str(error).map_err(parse_error)?;
    let wanted = URL_ELICITATION_REQUIRED as f64;
    if object.code.and_then(|code| code.as_f64()) != Some(wanted) {
        return Ok(Vec::new());
    }
    let data = object.data.map_or("{}", RawValue::get);
    let data: Data<'_> = lookalike::from_str(data).map_err(parse_error)?;
    Ok(data.elicitations.into_iter().map(RawValue::get).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// CMCP-084: input requests that parsers could read differently are refused.
    #[test]
    fn ambiguous_input_requests_are_refused() {
        for text in [
            r#"{"InputRequests":{"a":{"method":"elicitation/create"}}}"#,
            r#"{"inputReque\u017fts":{"a":{"method":"elicitation/create"}}}"#,
            r#"{"inputRequests":{"a":{"method":"Elicitation/create"}}}"#,
            r#"{"inputRequests":{"a":{"Method":"elicitation/create","method":"roots/list"}}}"#,
            r#"{"inputRequests":{"a":{"method":"roots/list"},"\u0061":{"method":"roots/list"}}}"#,
            r#"{"inputRequests":{},"inputRequests":{"a":{"method":"elicitation/create"}}}"#,
            r#"{"inputRequests":[{"method":"elicitation/create"}]}"#,
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
        let plain = r#"{"\u0069nputRequests":{"a":{"method":"elicitation\u002fcreate"}},"x":1}"#;
        let requests = parse(plain).unwrap_or_default();
        assert_eq!(
            (&*requests[0].0, &*requests[0].1.method),
            ("a", "elicitation/create")
        );
        for nothing in ["{}", r#"{"inputRequests":null,"content":[]}"#] {
            assert!(
                parse(nothing).is_ok_and(|requests| requests.is_empty()),
                "{nothing}"
            );
        }
        assert_eq!(
            parse_url_elicitations(r#"{"code":-32603,"data":7}"#),
            Ok(Vec::new())
        );
        assert!(parse_url_elicitations(r#"{"code":-32603,"Code":-32042}"#).is_err());
        let visit = r#"{"code":-32042.0,"data":{"elicitations":[{"url":"u"}]}}"#;
        assert_eq!(parse_url_elicitations(visit), Ok(vec![r#"{"url":"u"}"#]));
    }

    #[test]
    fn oldest_permits_are_evicted() {
        let permits = AnswerPermits::default();
        permits.allow("t", ["a"].into_iter());
        assert!(permits.allows("t", "a") && !permits.allows("t", "b") && !permits.allows("u", "a"));
        let many: Vec<String> = (0..MAX_PERMITS).map(|n| n.to_string()).collect();
        permits.allow("t", many.iter().map(String::as_str));
        assert!(!permits.allows("t", "a") && permits.allows("t", "0"));
    }
}
