//! The open questions of a server in the course of one call (MRTR, SEP-2322).
//!
//! A modern caller gets these as `inputRequests` and answers any of them under the same keys; the others
//! are sent again.

use std::fmt;

use mgp_protocol::splice::{members, quoted};

/// Most open questions in one call. Further ones are refused, which the server is told.
pub const OPEN_MAX: usize = 64;
/// Most bytes of their params together, because all of them go into one result.
pub const BYTES_MAX: usize = 8 << 20;

/// The name of a question within its call, such as `elicitation-1`. Never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct QuestionKey {
    about: &'static str,
    number: u64,
}

impl fmt::Display for QuestionKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.about, self.number)
    }
}

/// Why a question was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unaskable {
    /// Clients can be asked three methods only.
    #[error("a client can only be asked elicitation/create, sampling/createMessage and roots/list")]
    Method,
    /// [`OPEN_MAX`] questions, or [`BYTES_MAX`] bytes of them.
    #[error("the call has too many open questions")]
    TooMany,
}

/// The answers in one `inputResponses`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answered {
    /// The questions answered by it, with the results as the client wrote them.
    pub taken: Vec<(QuestionKey, String)>,
    /// How many entries answer no open question, or are no JSON object.
    pub unknown: usize,
}

#[derive(Debug)]
struct AskedQuestion {
    key: QuestionKey,
    method: &'static str,
    params: Option<String>,
}

/// The open questions of one call, in the order they came.
#[derive(Debug, Default)]
pub struct PendingQuestions {
    open: Vec<AskedQuestion>,
    asked: u64,
}

impl PendingQuestions {
    /// Adds a question with its `params` as JSON text, and names it.
    ///
    /// # Errors
    /// [`Unaskable`]; nothing changes then.
    pub fn ask(&mut self, method: &str, params: Option<&str>) -> Result<QuestionKey, Unaskable> {
        let (method, about) = match method {
            "elicitation/create" => ("elicitation/create", "elicitation"),
            "sampling/createMessage" => ("sampling/createMessage", "sampling"),
            "roots/list" => ("roots/list", "roots"),
            _ => return Err(Unaskable::Method),
        };
        let params = params.map(str::to_owned);
        let bytes: usize = self.open.iter().map(AskedQuestion::bytes).sum();
        if self.open.len() >= OPEN_MAX || bytes + params.as_ref().map_or(0, String::len) > BYTES_MAX
        {
            return Err(Unaskable::TooMany);
        }
        self.asked += 1;
        let key = QuestionKey {
            about,
            number: self.asked,
        };
        self.open.push(AskedQuestion {
            key,
            method,
            params,
        });
        Ok(key)
    }

    /// The `inputRequests` object: all open questions.
    #[must_use]
    pub fn input_requests(&self) -> String {
        let open: Vec<String> = self.open.iter().map(AskedQuestion::render).collect();
        format!("{{{}}}", open.join(","))
    }

    /// Takes the answers from the JSON text of an `inputResponses`. Entries under other keys are ignored,
    /// and questions without an entry stay open.
    pub fn answer(&mut self, input_responses: &str) -> Answered {
        let mut answered = Answered::default();
        for (name, value) in members(input_responses).unwrap_or_default() {
            let named = |question: &AskedQuestion| question.key.to_string() == name;
            let open = self.open.iter().position(named);
            match open.filter(|_| value.get().starts_with('{')) {
                Some(at) => {
                    let key = self.open.remove(at).key;
                    answered.taken.push((key, value.get().to_owned()));
                }
                None => answered.unknown += 1,
            }
        }
        answered
    }

    /// The server has withdrawn the question; false when it was not open.
    pub fn withdraw(&mut self, key: QuestionKey) -> bool {
        let before = self.open.len();
        self.open.retain(|question| question.key != key);
        self.open.len() < before
    }

    /// True when nothing is open.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    /// The open questions, in order.
    #[cfg(test)]
    pub(crate) fn open(&self) -> impl Iterator<Item = QuestionKey> {
        self.open.iter().map(|question| question.key)
    }
}

impl AskedQuestion {
    fn bytes(&self) -> usize {
        self.params.as_ref().map_or(0, String::len)
    }

    fn render(&self) -> String {
        let Self {
            key,
            method,
            params,
        } = self;
        let key = quoted(&key.to_string());
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

    /// MRTR: several questions go into one result, as the server wrote them.
    #[test]
    fn open_questions_are_shown_under_readable_names() {
        let mut questions = PendingQuestions::default();
        assert!(questions.is_empty());
        assert_eq!(questions.input_requests(), "{}");
        let first = questions.ask("elicitation/create", Some(FORM)).unwrap();
        questions.ask("sampling/createMessage", Some("{}")).unwrap();
        questions.ask("roots/list", None).unwrap();
        assert_eq!(
            questions.input_requests(),
            format!(
                r#"{{"elicitation-1":{{"method":"elicitation/create","params":{FORM}}},"sampling-2":{{"method":"sampling/createMessage","params":{{}}}},"roots-3":{{"method":"roots/list"}}}}"#
            )
        );
        assert!(questions.withdraw(first) && !questions.withdraw(first));
        assert!(!questions.input_requests().contains("elicitation"));
        assert_eq!(questions.ask("tools/call", None), Err(Unaskable::Method));
    }

    #[test]
    fn answers_find_their_questions_and_others_are_ignored() {
        let mut questions = PendingQuestions::default();
        let first = questions.ask("elicitation/create", Some(FORM)).unwrap();
        let second = questions.ask("elicitation/create", Some(FORM)).unwrap();
        let third = questions.ask("roots/list", None).unwrap();
        let answer = r#"{ "action" : "accept", "content":{"n":1.0e2}}"#;
        let answered = questions.answer(&format!(
            r#"{{"roots-3":["no object"],"elicitation-01":{{}},"elicitation-2":{answer},"other":{{}},"elicitation-2":{{}}}}"#
        ));
        assert_eq!(answered.taken, [(second, answer.to_owned())]);
        assert_eq!(answered.unknown, 4);
        assert_eq!(questions.open().collect::<Vec<_>>(), [first, third]);
        for nothing in ["{}", "[]", "7", "null", "", "{"] {
            assert_eq!(questions.answer(nothing), Answered::default(), "{nothing}");
        }
        let both = questions.answer(r#"{"roots-3":{"roots":[]},"elicitation-1":{}}"#);
        assert_eq!((both.taken.len(), both.unknown), (2, 0));
        assert!(questions.is_empty());
        // A name is not given again when its question is gone.
        let next = questions.ask("roots/list", None).unwrap();
        assert_eq!(next.to_string(), "roots-4");
    }

    #[test]
    fn open_questions_are_bounded() {
        let mut questions = PendingQuestions::default();
        for _ in 0..OPEN_MAX {
            questions.ask("roots/list", None).unwrap();
        }
        let more = questions.ask("roots/list", None);
        assert_eq!(more, Err(Unaskable::TooMany));
        let first = questions.open().next().unwrap();
        questions.withdraw(first);
        let large = format!("\"{}\"", "x".repeat(BYTES_MAX / 2));
        assert!(questions.ask("roots/list", Some(&large)).is_ok());
        let first = questions.open().next().unwrap();
        questions.withdraw(first);
        let more = questions.ask("roots/list", Some(&large));
        assert_eq!(more, Err(Unaskable::TooMany));
        assert!(questions.ask("roots/list", None).is_ok());
    }
}
