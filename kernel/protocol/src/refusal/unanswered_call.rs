//! What is known of a call that got no answer of its server's: whether it was executed, and the id to ask
//! about it later.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::Refusal;

/// Whether a call took effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CallOutcome {
    /// It reached no server: it may be made again.
    NotExecuted,
    /// Its server answered it.
    Done,
    /// It was sent, and nobody can say what became of it.
    Unknown,
}

impl CallOutcome {
    /// As on the wire.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NotExecuted => "not_executed",
            Self::Done => "done",
            Self::Unknown => "unknown",
        }
    }
}

impl fmt::Display for CallOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotExecuted => "the call was not executed",
            Self::Done => "the server did answer the call",
            Self::Unknown => "whether the call took effect is unknown",
        })
    }
}

/// A call of a tool that ended without its server's answer.
#[derive(Clone, Debug)]
pub struct UnansweredCall {
    /// What kept the answer from coming.
    pub refusal: Refusal,
    /// What became of the call.
    pub outcome: CallOutcome,
    /// Its trace, by which it stands in the audit log.
    pub call_id: Box<str>,
}

impl UnansweredCall {
    /// `data` of the error: what the refusal says, whether the call took effect, and its id under this name.
    pub(super) fn data(&self, id: &str) -> Value {
        let mut data = self.refusal.data().unwrap_or_else(|| json!({}));
        data["outcome"] = self.outcome.as_str().into();
        data[id] = (*self.call_id).into();
        data
    }
}

impl fmt::Display for UnansweredCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (why, id) = (&self.refusal, &self.call_id);
        // These two say it themselves.
        match (why, self.outcome) {
            (Refusal::ServerLost { .. } | Refusal::InvalidAnswer { .. }, CallOutcome::Unknown) => {
                write!(f, "{why}")?;
            }
            (_, outcome) => write!(f, "{why}; {outcome}")?,
        }
        match self.outcome {
            CallOutcome::NotExecuted => Ok(()),
            CallOutcome::Done | CallOutcome::Unknown => {
                write!(f, "; `mgp calls show {id}` tells what is known of it")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dialect::Version;
    use crate::ids::ServerId;
    use crate::refusal::Rendered;

    const ID: &str = "550e8400-e29b-41d4-a716-446655440000";

    fn unanswered(why: Refusal, outcome: CallOutcome) -> Refusal {
        let call_id = ID.into();
        Refusal::Unanswered(Box::new(UnansweredCall {
            refusal: why,
            outcome,
            call_id,
        }))
    }

    fn lost() -> Refusal {
        Refusal::ServerLost {
            server: ServerId::new("it"),
            reason: "exited".into(),
        }
    }

    fn held_up() -> Refusal {
        Refusal::QueueTimeout {
            server: ServerId::new("it"),
            after_ms: 7,
        }
    }

    fn error(rendered: Rendered) -> Value {
        match rendered {
            Rendered::Error(error) => serde_json::from_str(&error).unwrap(),
            Rendered::Result(result) => panic!("{result}"),
        }
    }

    /// A plain caller reads it in the words and in `data`, and no word of MGP's.
    #[test]
    fn a_plain_caller_reads_what_became_of_its_call() {
        let said = error(unanswered(lost(), CallOutcome::Unknown).render(Version::V2025_11_25));
        let words = said["message"].as_str().unwrap();
        assert_eq!(words.matches("is unknown").count(), 1, "{words}");
        assert!(words.ends_with(&format!("`mgp calls show {ID}` tells what is known of it")));
        let data = json!({"server": "it", "reason": "exited", "outcome": "unknown", "callId": ID});
        assert_eq!((&said["code"], &said["data"]), (&json!(-32603), &data));
        let said =
            error(unanswered(held_up(), CallOutcome::NotExecuted).render(Version::STATELESS));
        let words = said["message"].as_str().unwrap();
        assert!(words.ends_with("; the call was not executed"), "{words}");
        assert_eq!(said["data"]["outcome"], "not_executed");
    }

    /// An MGP caller reads it in `_mgp.details`, beside the code and the advice of what kept the answer.
    #[test]
    fn an_mgp_caller_reads_what_became_of_its_call_in_the_details() {
        for (why, outcome, code, retryable) in [
            (lost(), CallOutcome::Unknown, 5002, false),
            (held_up(), CallOutcome::NotExecuted, 3003, true),
        ] {
            let said = error(unanswered(why, outcome).render_mgp(Version::STATELESS));
            let mgp = &said["data"]["_mgp"];
            assert_eq!(
                (&said["code"], &mgp["retryable"]),
                (&json!(code), &json!(retryable))
            );
            assert_eq!(mgp["details"]["outcome"], outcome.as_str());
            assert_eq!(mgp["details"]["call_id"], ID);
            assert!(mgp["details"].get("callId").is_none(), "{said}");
        }
    }
}
