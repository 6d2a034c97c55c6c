//! A refusal by the kernel of another node for a call of one of its servers.

use serde::{Deserialize, Deserializer, Serialize};

use super::{CallOutcome, Rendered};

/// Why the owner's kernel refused a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OwnerRefusalCause {
    /// The agent has no access. Another owner of the same server may allow it.
    Closed,
    /// The tool, prompt or resource does not exist for the agent.
    NotFound,
    /// Policy or a person denied it.
    Denied,
    /// A validator or a limit blocked it, or it is malformed.
    Blocked,
    /// The server is unreachable, busy, or was lost.
    Unavailable,
    /// The deadline passed.
    TimedOut,
    /// Any other cause, including those of later versions.
    #[serde(other)]
    Failed,
}

/// A call that the owner's kernel refused. Decisions are based on these members only; the answer is for the
/// agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OwnerRefusal {
    /// The cause.
    pub cause: OwnerRefusalCause,
    /// Whether the call took effect. An unknown value counts as unknown.
    #[serde(deserialize_with = "known_or_unknown")]
    pub outcome: CallOutcome,
    /// The answer for the agent.
    pub answer: OwnerAnswer,
}

/// JSON text for the agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OwnerAnswer {
    /// The `error` member.
    Error(String),
    /// The `result` member: a failure that the model can correct.
    Result(String),
}

fn known_or_unknown<'de, D: Deserializer<'de>>(d: D) -> Result<CallOutcome, D::Error> {
    let word = String::deserialize(d)?;
    let all = [CallOutcome::NotExecuted, CallOutcome::Done];
    let known = all.into_iter().find(|outcome| outcome.as_str() == word);
    Ok(known.unwrap_or(CallOutcome::Unknown))
}

impl OwnerRefusalCause {
    /// The description for people, after "the node".
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

    /// The error for the agent; `None` if the answer is a result.
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
