//! What the kernel of another node refused of a call of one of its servers.

use serde::{Deserialize, Deserializer, Serialize};

use super::{CallOutcome, Rendered};

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
    /// For people, after "the node".
    #[must_use]
    pub fn description(self) -> &'static str {
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
    /// The answer, as JSON text.
    #[must_use]
    pub fn as_json(&self) -> &str {
        let (OwnerAnswer::Error(text) | OwnerAnswer::Result(text)) = &self.answer;
        text
    }

    /// The error for the agent; `None` where it is answered with a result.
    #[must_use]
    pub(crate) fn error(&self) -> Option<&str> {
        match &self.answer {
            OwnerAnswer::Error(error) => Some(error),
            OwnerAnswer::Result(_) => None,
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
