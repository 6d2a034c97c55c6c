//! The open input requests of a server in one call (MRTR, SEP-2322).
//!
//! A stateless client gets them as `inputRequests` and answers any of them under the same keys; the others are sent
//! again.

use std::fmt;

use mgp_json::{members, quote};

/// Most open input requests in one call. Further ones are rejected with an error to the server.
pub(crate) const PENDING_MAX: usize = 64;
/// Most bytes of their params together, because all of them go into one result.
pub(crate) const BYTES_MAX: usize = 8 << 20;

/// The key of an input request within its call, such as `elicitation-1`. Never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct InputRequestKey {
    kind: &'static str,
    number: u64,
}

impl fmt::Display for InputRequestKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.kind, self.number)
    }
}

/// Why an input request is rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InputRequestError {
    /// Only three methods can be sent to clients.
    #[error("a client can only be asked elicitation/create, sampling/createMessage and roots/list")]
    UnsupportedMethod,
    /// The limit of [`PENDING_MAX`] requests or of [`BYTES_MAX`] bytes is reached.
    #[error("the call has too many open questions")]
    TooMany,
}

/// The answers in one `inputResponses`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InputResponses {
    /// The input requests that were answered, with the results as the client wrote them.
    pub accepted: Vec<(InputRequestKey, String)>,
    /// Entries that match no open input request, or are no JSON object.
    pub(crate) unknown: usize,
}

#[derive(Debug)]
struct InputRequest {
    key: InputRequestKey,
    method: &'static str,
    params: Option<String>,
}

/// The open input requests of one call, in order of arrival.
#[derive(Debug, Default)]
pub struct InputRequests {
    pending: Vec<InputRequest>,
    last_number: u64,
}

impl InputRequests {
    /// Adds an input request with its `params` as JSON text, and assigns its key.
    ///
    /// # Errors
    /// [`InputRequestError`]; nothing changes then.
    pub fn add(
        &mut self,
        method: &str,
        params: Option<&str>,
    ) -> Result<InputRequestKey, InputRequestError> {
        let (method, about) = match method {
            "elicitation/create" => ("elicitation/create", "elicitation"),
            "sampling/createMessage" => ("sampling/createMessage", "sampling"),
            "roots/list" => ("roots/list", "roots"),
            _ => return Err(InputRequestError::UnsupportedMethod),
        };
        let params = params.map(str::to_owned);
        let bytes: usize = self.pending.iter().map(InputRequest::bytes).sum();
        if self.pending.len() >= PENDING_MAX
            || bytes + params.as_ref().map_or(0, String::len) > BYTES_MAX
        {
            return Err(InputRequestError::TooMany);
        }
        self.last_number += 1;
        let key = InputRequestKey {
            kind: about,
            number: self.last_number,
        };
        self.pending.push(InputRequest {
            key,
            method,
            params,
        });
        Ok(key)
    }

    /// The `inputRequests` object with all open input requests.
    #[must_use]
    pub fn render_input_requests(&self) -> String {
        let open: Vec<String> = self.pending.iter().map(InputRequest::render).collect();
        format!("{{{}}}", open.join(","))
    }

    /// Reads the answers from the JSON text of an `inputResponses`. Entries under other keys are ignored, and input
    /// requests without an entry stay open.
    pub fn accept_responses(&mut self, input_responses: &str) -> InputResponses {
        let mut answered = InputResponses::default();
        for (name, value) in members(input_responses).unwrap_or_default() {
            let named = |question: &InputRequest| question.key.to_string() == name;
            let open = self.pending.iter().position(named);
            match open.filter(|_| value.get().starts_with('{')) {
                Some(at) => {
                    let key = self.pending.remove(at).key;
                    answered.accepted.push((key, value.get().to_owned()));
                }
                None => answered.unknown += 1,
            }
        }
        answered
    }

    /// Withdraws an input request for the server; false when it was not open.
    pub fn withdraw(&mut self, key: InputRequestKey) -> bool {
        let before = self.pending.len();
        self.pending.retain(|question| question.key != key);
        self.pending.len() < before
    }

    /// True when nothing is open.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.pending.is_empty()
    }

    /// The open input requests, in order.
    #[cfg(test)]
    pub(crate) fn open(&self) -> impl Iterator<Item = InputRequestKey> {
        self.pending.iter().map(|question| question.key)
    }
}

impl InputRequest {
    fn bytes(&self) -> usize {
        self.params.as_ref().map_or(0, String::len)
    }

    fn render(&self) -> String {
        let Self {
            key,
            method,
            params,
        } = self;
        let key = quote(&key.to_string());
        match params {
            Some(params) => format!(r#"{key}:{{"method":"{method}","params":{params}}}"#),
            None => format!(r#"{key}:{{"method":"{method}"}}"#),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FORM: &str = r#"{"message":"name?","requestedSchema":{"maximum":1.0e2}}"#;

    /// MRTR: one result contains several, unchanged.
    #[test]
    fn input_requests_have_readable_keys() {
        let mut questions = InputRequests::default();
        assert!(questions.is_empty());
        assert_eq!(questions.render_input_requests(), "{}");
        let first = questions.add("elicitation/create", Some(FORM)).unwrap();
        questions.add("sampling/createMessage", Some("{}")).unwrap();
        questions.add("roots/list", None).unwrap();
        assert_eq!(
            questions.render_input_requests(),
            format!(
                r#"{{"elicitation-1":{{"method":"elicitation/create","params":{FORM}}},"sampling-2":{{"method":"sampling/createMessage","params":{{}}}},"roots-3":{{"method":"roots/list"}}}}"#
            )
        );
        assert!(questions.withdraw(first) && !questions.withdraw(first));
        assert!(!questions.render_input_requests().contains("elicitation"));
        assert_eq!(
            questions.add("tools/call", None),
            Err(InputRequestError::UnsupportedMethod)
        );
    }

    #[test]
    fn answers_match_their_requests_and_others_are_ignored() {
        let mut questions = InputRequests::default();
        let first = questions.add("elicitation/create", Some(FORM)).unwrap();
        let second = questions.add("elicitation/create", Some(FORM)).unwrap();
        let third = questions.add("roots/list", None).unwrap();
        let answer = r#"{ "action" : "accept", "content":{"n":1.0e2}}"#;
        let answered = questions.accept_responses(&format!(
            r#"{{"roots-3":["no object"],"elicitation-01":{{}},"elicitation-2":{answer},"other":{{}},"elicitation-2":{{}}}}"#
        ));
        assert_eq!(answered.accepted, [(second, answer.to_owned())]);
        assert_eq!(answered.unknown, 4);
        assert_eq!(questions.open().collect::<Vec<_>>(), [first, third]);
        for nothing in ["{}", "[]", "7", "null", "", "{"] {
            assert_eq!(
                questions.accept_responses(nothing),
                InputResponses::default(),
                "{nothing}"
            );
        }
        let both = questions.accept_responses(r#"{"roots-3":{"roots":[]},"elicitation-1":{}}"#);
        assert_eq!((both.accepted.len(), both.unknown), (2, 0));
        assert!(questions.is_empty());
        // A name is not given again when its question is gone.
        let next = questions.add("roots/list", None).unwrap();
        assert_eq!(next.to_string(), "roots-4");
    }

    #[test]
    fn input_requests_are_bounded() {
        let mut questions = InputRequests::default();
        for _ in 0..PENDING_MAX {
            questions.add("roots/list", None).unwrap();
        }
        let more = questions.add("roots/list", None);
        assert_eq!(more, Err(InputRequestError::TooMany));
        let first = questions.open().next().unwrap();
        questions.withdraw(first);
        let large = format!("\"{}\"", "x".repeat(BYTES_MAX / 2));
        assert!(questions.add("roots/list", Some(&large)).is_ok());
        let first = questions.open().next().unwrap();
        questions.withdraw(first);
        let more = questions.add("roots/list", Some(&large));
        assert_eq!(more, Err(InputRequestError::TooMany));
        assert!(questions.add("roots/list", None).is_ok());
    }
}
