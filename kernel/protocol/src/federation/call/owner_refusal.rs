//! What the kernel of the called node refuses by itself, in the place of its server: a frame of its own, so that
//! nothing is ever inferred from the error of a server.

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;

use crate::federation::message::{BadMessage, decode, encode};
use crate::mgp::audit::Outcome;
use crate::refusal::{CallOutcome, Refusal, Rendered};

/// Why the owner's kernel refused a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OwnerRefusalCause {
    /// The agent is not let in there. Another owner of the same may let it in.
    Closed,
    /// There is no such tool, prompt or resource for the agent.
    NotFound,
    /// Policy or a person denied it.
    Denied,
    /// A validator or a limit blocked it, or it is malformed.
    Blocked,
    /// The server is away, busy, or went away.
    Unavailable,
    /// Nothing came in time.
    TimedOut,
    /// Anything else, also causes of later versions.
    #[serde(other)]
    Failed,
}

/// A call that the owner's kernel refused. Only what stands here decides anything; the answer is for the agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OwnerRefusal {
    /// Why.
    pub cause: OwnerRefusalCause,
    /// Whether the call took effect. A word of a later version says nothing.
    #[serde(deserialize_with = "known_or_unknown")]
    pub outcome: CallOutcome,
    /// What the agent is answered.
    pub answer: OwnerAnswer,
}

/// JSON text for the agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OwnerAnswer {
    /// The `error` member.
    Error(String),
    /// The `result` member: a failure that the model can mend.
    Result(String),
}

fn known_or_unknown<'de, D: Deserializer<'de>>(d: D) -> Result<CallOutcome, D::Error> {
    let word = String::deserialize(d)?;
    let all = [CallOutcome::NotExecuted, CallOutcome::Done];
    let known = all.into_iter().find(|outcome| outcome.as_str() == word);
    Ok(known.unwrap_or(CallOutcome::Unknown))
}

impl OwnerRefusalCause {
    /// The cause of a refusal by this kernel.
    #[must_use]
    pub fn new(refusal: &Refusal) -> Self {
        if let Refusal::Unanswered(call) = refusal {
            return Self::new(&call.why);
        }
        let is_away = matches!(
            refusal,
            Refusal::NotReady { .. }
                | Refusal::Lost { .. }
                | Refusal::HeldUp { .. }
                | Refusal::Overloaded { .. }
                | Refusal::UnknownServer(_)
        );
        let is_not_found = matches!(
            refusal,
            Refusal::UnknownTool(_) | Refusal::UnknownPrompt(_) | Refusal::UnknownResource(_)
        );
        if is_away {
            return Self::Unavailable;
        }
        if is_not_found {
            return Self::NotFound;
        }
        match Outcome::of_refusal(refusal).0 {
            Outcome::Denied if matches!(refusal, Refusal::Closed(_)) => Self::Closed,
            Outcome::Denied => Self::Denied,
            Outcome::Blocked => Self::Blocked,
            Outcome::Timeout => Self::TimedOut,
            Outcome::Success | Outcome::Failure | Outcome::Cancelled => Self::Failed,
        }
    }

    /// For people, after "the node".
    #[must_use]
    pub fn as_words(self) -> &'static str {
        match self {
            Self::Closed => "does not let the agent in",
            Self::NotFound => "has nothing of that name for the agent",
            Self::Denied => "denied it",
            Self::Blocked => "blocked it",
            Self::Unavailable => "could not reach its server, or lost it",
            Self::TimedOut => "waited too long for it",
            Self::Failed => "failed at it",
        }
    }
}

impl OwnerRefusal {
    /// As on the wire.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        encode(self)
    }

    /// The answer, as JSON text.
    #[must_use]
    pub fn text(&self) -> &str {
        let (OwnerAnswer::Error(text) | OwnerAnswer::Result(text)) = &self.answer;
        text
    }

    /// The error for the agent; `None` where it is answered with a result.
    #[must_use]
    pub fn error(&self) -> Option<&str> {
        match &self.answer {
            OwnerAnswer::Error(error) => Some(error),
            OwnerAnswer::Result(_) => None,
        }
    }

    /// Reads one.
    ///
    /// # Errors
    /// [`BadMessage`], also where the answer is no JSON object.
    pub fn decode(bytes: &[u8]) -> Result<Self, BadMessage> {
        let refusal: Self = decode(bytes)?;
        let object = serde_json::from_str::<&RawValue>(refusal.text());
        match object.is_ok_and(|json| json.get().starts_with('{')) {
            true => Ok(refusal),
            false => Err(BadMessage("its answer is no JSON object".to_owned())),
        }
    }
}

impl From<Rendered> for OwnerAnswer {
    fn from(rendered: Rendered) -> Self {
        match rendered {
            Rendered::Error(error) => Self::Error(error),
            Rendered::Result(result) => Self::Result(result),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::ServerId;

    fn refusal() -> OwnerRefusal {
        OwnerRefusal {
            cause: OwnerRefusalCause::Unavailable,
            outcome: CallOutcome::NotExecuted,
            answer: OwnerAnswer::Error(r#"{"code":-32603,"message":"away"}"#.to_owned()),
        }
    }

    #[test]
    fn an_owner_refusal_is_read_as_it_was_written() {
        let mut other = refusal();
        other.answer = OwnerAnswer::Result(r#"{"isError":true,"content":[]}"#.to_owned());
        other.outcome = CallOutcome::Done;
        for refusal in [refusal(), other] {
            assert_eq!(OwnerRefusal::decode(&refusal.encode()), Ok(refusal));
        }
        let mut bad = refusal();
        bad.answer = OwnerAnswer::Error("not JSON".to_owned());
        assert!(OwnerRefusal::decode(&bad.encode()).is_err());
    }

    /// A cause that is not known never lets the call move on, and an outcome that is not known is unknown.
    #[test]
    fn words_of_a_later_version_decide_nothing() {
        let written = refusal().encode();
        let replace = |from: &[u8], to: &[u8]| {
            let at = written.windows(from.len()).position(|part| part == from);
            let mut bytes = written.clone();
            bytes[at.unwrap()..][..to.len()].copy_from_slice(to);
            OwnerRefusal::decode(&bytes).unwrap()
        };
        let later = replace(b"unavailable", b"inundation!");
        assert_eq!(later.cause, OwnerRefusalCause::Failed);
        let later = replace(b"not_executed", b"not_imagined");
        assert_eq!(later.outcome, CallOutcome::Unknown);
    }

    /// What another owner may do better is told apart from a decision about this call.
    #[test]
    fn a_refusal_is_told_by_its_cause() {
        let away = Refusal::NotReady {
            server: ServerId::new("s"),
            state: "draining",
            reason: None,
            retry_after_ms: None,
            unreachable: false,
        };
        let cases = [
            (away, OwnerRefusalCause::Unavailable),
            (Refusal::Closed("no".into()), OwnerRefusalCause::Closed),
            (Refusal::Forbidden("no".into()), OwnerRefusalCause::Denied),
            (
                Refusal::UnknownTool("t".into()),
                OwnerRefusalCause::NotFound,
            ),
            (Refusal::BadParams("p".into()), OwnerRefusalCause::Blocked),
            (Refusal::Cancelled, OwnerRefusalCause::Failed),
        ];
        for (refusal, cause) in cases {
            assert_eq!(OwnerRefusalCause::new(&refusal), cause, "{refusal}");
        }
    }
}
