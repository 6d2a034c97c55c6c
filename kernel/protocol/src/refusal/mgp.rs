//! A refusal as an MGP caller reads it: a code of MGP §14.3 and `data._mgp`, which says whether and how
//! to try again. The same words are read where the kernel is the client.

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::json;
use serde_json::value::RawValue;

pub use super::code::{Category, Code};
use super::{Denial, Refusal, Rendered};
use crate::dialect::Version;
use crate::jsonrpc::{ErrorObject, INTERNAL_ERROR, INVALID_PARAMS};

/// How often a caller is told to try again at most. What lasts longer than that is not mended by waiting.
pub(crate) const MAX_RETRIES: u32 = 3;
/// What a caller is told to wait where the kernel knows of no better time, in milliseconds.
pub(crate) const RETRY_AFTER_MS: u64 = 1_000;

/// How the waits between tries grow (MGP §14.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Strategy {
    /// Not at all: try again at once.
    Immediate,
    /// Each as long as the first.
    FixedDelay,
    /// Each twice the one before.
    ExponentialBackoff,
}

impl<'de> Deserialize<'de> for Strategy {
    /// A strategy of a later version backs off: the one that does least harm.
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let word = String::deserialize(d)?;
        let known = [
            ("immediate", Self::Immediate),
            ("fixed_delay", Self::FixedDelay),
        ];
        let named = known.into_iter().find(|(name, _)| *name == word);
        Ok(named.map_or(Self::ExponentialBackoff, |(_, strategy)| strategy))
    }
}

/// `data._mgp` of an error (MGP §14.5).
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Recovery {
    /// What kind of error it is. A peer that leaves it out, or says another, is judged by its code.
    #[serde(
        default,
        deserialize_with = "known_category",
        skip_serializing_if = "Option::is_none"
    )]
    pub(crate) category: Option<Category>,
    /// Whether trying again may help. Absent means no.
    #[serde(default)]
    pub retryable: bool,
    /// The least time to wait, in milliseconds.
    #[serde(
        default,
        deserialize_with = "whole",
        skip_serializing_if = "Option::is_none"
    )]
    pub retry_after_ms: Option<u64>,
    /// How the waits grow.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_strategy: Option<Strategy>,
    /// How often to try again at most.
    #[serde(
        default,
        deserialize_with = "whole",
        skip_serializing_if = "Option::is_none"
    )]
    pub max_retries: Option<u64>,
    /// Another tool to try when all is done, under the name its server knows it by.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fallback_tool: Option<String>,
    /// What the error's maker says about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub details: Option<Box<RawValue>>,
}

/// A category that is in the document; any other says nothing.
fn known_category<'de, D: Deserializer<'de>>(d: D) -> Result<Option<Category>, D::Error> {
    let said = Option::<Box<RawValue>>::deserialize(d)?;
    Ok(said.and_then(|raw| serde_json::from_str(raw.get()).ok()))
}

/// A number of JSON as a whole one: a fraction is taken up to the next, so that no wait gets shorter;
/// what is negative or no number says nothing.
fn whole<'de, D: Deserializer<'de>>(d: D) -> Result<Option<u64>, D::Error> {
    let number = Option::<serde_json::Number>::deserialize(d)?;
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "`as` saturates, and the sign is looked at"
    )]
    let rounded = |n: f64| (n >= 0.0).then(|| n.ceil() as u64);
    Ok(number.and_then(|n| n.as_u64().or_else(|| n.as_f64().and_then(rounded))))
}

/// An error of a peer that speaks MGP.
#[derive(Clone, Debug)]
pub struct PeerError {
    /// Its code, as it is.
    pub code: i64,
    /// What it says about trying again.
    pub recovery: Recovery,
}

impl PeerError {
    /// Reads the `error` member of an answer; `None` for an error without a readable `data._mgp`, which
    /// promises nothing and is not tried again.
    #[must_use]
    pub fn parse(error: &RawValue) -> Option<Self> {
        #[derive(Deserialize)]
        struct PeerErrorText {
            code: i64,
            data: Extended,
        }
        #[derive(Deserialize)]
        struct Extended {
            #[serde(rename = "_mgp")]
            recovery: Recovery,
        }
        let told: PeerErrorText = serde_json::from_str(error.get()).ok()?;
        Some(Self {
            code: told.code,
            recovery: told.data.recovery,
        })
    }
}

/// A peer's MGP error for a caller that knows MCP only: a JSON-RPC code, and no `_mgp` (MGP-283).
/// `None` when nothing in it is MGP's, so that it goes on as it is.
#[must_use]
pub(crate) fn strip_mgp(error: &str) -> Option<String> {
    let mut object: ErrorObject = serde_json::from_str(error).ok()?;
    let data = object.data.take()?;
    let mut members: std::collections::BTreeMap<String, Box<RawValue>> =
        serde_json::from_str(data.get()).ok()?;
    members.remove("_mgp")?;
    if let Some(code) = Code::parse(object.code) {
        object.code = match code.category() {
            Category::Validation => INVALID_PARAMS,
            Category::Security | Category::Lifecycle | Category::Resource | Category::External => {
                INTERNAL_ERROR
            }
        };
    }
    if !members.is_empty() {
        object.data = serde_json::value::to_raw_value(&members).ok();
    }
    serde_json::to_string(&object).ok()
}

impl Refusal {
    /// The MGP code; `None` for what JSON-RPC and MCP have words of their own for, and for a peer's error.
    #[must_use]
    pub(crate) fn mgp_code(&self) -> Option<Code> {
        self.spec().mgp
    }

    /// When the same request may do better, in milliseconds from now; `None` when it will not. What may
    /// have taken effect already is never said to be worth another try.
    fn retry_hint(&self) -> Option<(u64, Strategy)> {
        let backoff = Strategy::ExponentialBackoff;
        if let Self::Unanswered(call) = self {
            return call.refusal.retry_hint();
        }
        if let Self::NotReady {
            state,
            retry_after_ms,
            ..
        } = self
        {
            let passing = matches!(*state, "connecting" | "draining" | "restarting");
            return match retry_after_ms {
                Some(after) => Some((*after, Strategy::FixedDelay)),
                None => passing.then_some((RETRY_AFTER_MS, backoff)),
            };
        }
        if let Self::Denied(denial) = self {
            if let Denial::RateLimited { retry_after_ms, .. } = denial.as_ref() {
                return Some((*retry_after_ms, backoff));
            }
            return None;
        }
        // Neither has reached the server.
        let unmade = matches!(self, Self::Overloaded { .. } | Self::QueueTimeout { .. });
        unmade.then_some((RETRY_AFTER_MS, backoff))
    }

    /// What an MGP caller is told about trying again; `None` where there is no MGP code.
    #[must_use]
    pub(crate) fn recovery(&self) -> Option<Recovery> {
        let code = self.mgp_code()?;
        let retry = self.retry_hint();
        let details = if matches!(self, Self::Cancelled) {
            Some(json!({"reason": "cancelled"}))
        } else if let Self::Unanswered(call) = self {
            Some(call.data("call_id"))
        } else {
            self.data()
        };
        Some(Recovery {
            category: Some(code.category()),
            retryable: retry.is_some(),
            retry_after_ms: retry.map(|(after, _)| after),
            retry_strategy: retry.map(|(_, strategy)| strategy),
            max_retries: retry.map(|_| u64::from(MAX_RETRIES)),
            fallback_tool: None,
            details: details.and_then(|d| serde_json::value::to_raw_value(&d).ok()),
        })
    }

    /// Renders it for a caller that negotiated MGP: its code and `data._mgp` where MGP has one, else as
    /// a plain caller of this version reads it. A peer's own error goes on as it is.
    #[must_use]
    pub(crate) fn render_mgp(&self, version: Version) -> Rendered {
        let (Some(code), Some(recovery)) = (self.mgp_code(), self.recovery()) else {
            if let Some(error) = self.relayed_error() {
                return Rendered::Error(error.to_owned());
            }
            return self.render(version);
        };
        let mut message = self.to_string();
        // An MGP caller is told by the code that it is denied; the words shall not say otherwise.
        if let Self::Denied(denial) = self
            && let Denial::NotGranted { tool, .. } = denial.as_ref()
        {
            message = format!("Access denied: {tool}");
        }
        let error = ErrorObject::new(code.number(), message).with_data(&json!({"_mgp": recovery}));
        Rendered::Error(serde_json::to_string(&error).expect("an error object is always JSON"))
    }
}

#[cfg(test)]
mod tests;
