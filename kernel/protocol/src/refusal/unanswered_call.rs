//! A call without an answer of its server: its outcome, and the id for querying it later.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::Refusal;

/// Whether a call took effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CallOutcome {
    /// It reached no server: it may be repeated.
    NotExecuted,
    /// Its server answered it.
    Done,
    /// It was sent, and its outcome is unknown.
    Unknown,
}

impl CallOutcome {
    /// The value on the wire.
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

/// A tool call that ended without its server's answer.
#[derive(Clone, Debug)]
pub struct UnansweredCall {
    /// The cause.
    pub refusal: Refusal,
    /// The outcome of the call.
    pub outcome: CallOutcome,
    /// Its trace, which identifies it in the audit log.
    pub call_id: Box<str>,
}

impl UnansweredCall {
    /// The `data` of the error: that of the refusal, the outcome of the call, and its id under this name.
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
        // These two state it themselves.
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

    fn queue_timeout() -> Refusal {
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

    /// A caller without MGP receives it in the message and in `data`, without MGP members.
    #[test]
    fn caller_without_mgp_receives_the_call_outcome() {
        let rendered = error(unanswered(lost(), CallOutcome::Unknown).render(Version::V2025_11_25));
        let message = rendered["message"].as_str().unwrap();
        assert_eq!(message.matches("is unknown").count(), 1, "{message}");
        assert!(message.ends_with(&format!("`mgp calls show {ID}` tells what is known of it")));
        let data = json!({"server": "it", "reason": "exited", "outcome": "unknown", "callId": ID});
        assert_eq!(
            (&rendered["code"], &rendered["data"]),
            (&json!(-32603), &data)
        );
        let rendered =
            error(unanswered(queue_timeout(), CallOutcome::NotExecuted).render(Version::STATELESS));
        let message = rendered["message"].as_str().unwrap();
        assert!(
            message.ends_with("; the call was not executed"),
            "{message}"
        );
        assert_eq!(rendered["data"]["outcome"], "not_executed");
    }

    /// An MGP caller receives it in `_mgp.details`, beside the code and the retry information of the cause.
    #[test]
    fn mgp_caller_receives_the_call_outcome_in_details() {
        for (why, outcome, code, retryable) in [
            (lost(), CallOutcome::Unknown, 5002, false),
            (queue_timeout(), CallOutcome::NotExecuted, 3003, true),
        ] {
            let rendered = error(unanswered(why, outcome).render_mgp(Version::STATELESS));
            let mgp = &rendered["data"]["_mgp"];
            assert_eq!(
                (&rendered["code"], &mgp["retryable"]),
                (&json!(code), &json!(retryable))
            );
            assert_eq!(mgp["details"]["outcome"], outcome.as_str());
            assert_eq!(mgp["details"]["call_id"], ID);
            assert!(mgp["details"].get("callId").is_none(), "{rendered}");
        }
    }
}
