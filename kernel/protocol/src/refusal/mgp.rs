//! Renders refusals for an MGP caller: a code of MGP §14.3 and `data._mgp`, with retry information. The
//! same types are parsed where the kernel is the client.

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::json;
use serde_json::value::RawValue;

pub use super::code::{Category, Code};
use super::{Denial, Refusal, Rendered};
use crate::dialect::Version;
use crate::jsonrpc::{ErrorObject, INTERNAL_ERROR, INVALID_PARAMS};

/// The most retries suggested to a caller. A longer failure is not solved by waiting.
pub(crate) const MAX_RETRIES: u32 = 3;
/// The suggested delay in milliseconds, if no better one is known.
pub(crate) const RETRY_AFTER_MS: u64 = 1_000;

/// The growth of retry delays (MGP §14.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Strategy {
    /// No delay.
    Immediate,
    /// A constant delay.
    FixedDelay,
    /// Each delay is twice the one before.
    ExponentialBackoff,
}

impl<'de> Deserialize<'de> for Strategy {
    /// An unknown strategy counts as exponential backoff: the least harmful one.
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
    /// The category. If missing or inconsistent, it is derived from the code.
    #[serde(
        default,
        deserialize_with = "known_category",
        skip_serializing_if = "Option::is_none"
    )]
    pub(crate) category: Option<Category>,
    /// True if a retry may help. Absent means false.
    #[serde(default)]
    pub retryable: bool,
    /// The minimum delay, in milliseconds.
    #[serde(
        default,
        deserialize_with = "whole",
        skip_serializing_if = "Option::is_none"
    )]
    pub retry_after_ms: Option<u64>,
    /// The growth of the delays.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_strategy: Option<Strategy>,
    /// The most retries.
    #[serde(
        default,
        deserialize_with = "whole",
        skip_serializing_if = "Option::is_none"
    )]
    pub max_retries: Option<u64>,
    /// A fallback tool, by its server's own name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fallback_tool: Option<String>,
    /// Further details of the error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub details: Option<Box<RawValue>>,
}

/// Parses a known category; any other counts as absent.
fn known_category<'de, D: Deserializer<'de>>(d: D) -> Result<Option<Category>, D::Error> {
    let said = Option::<Box<RawValue>>::deserialize(d)?;
    Ok(said.and_then(|raw| serde_json::from_str(raw.get()).ok()))
}

/// Parses a JSON number as an integer: a fraction is rounded up, so that no delay gets shorter; negative
/// and non-numeric values count as absent.
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

/// An error of an MGP peer.
#[derive(Clone, Debug)]
pub struct PeerError {
    /// Its code, unchanged.
    pub code: i64,
    /// Its retry information.
    pub recovery: Recovery,
}

impl PeerError {
    /// Parses the `error` member of an answer; `None` for an error without a readable `data._mgp`, which is
    /// not retried.
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
        let parsed: PeerErrorText = serde_json::from_str(error.get()).ok()?;
        Some(Self {
            code: parsed.code,
            recovery: parsed.data.recovery,
        })
    }
}

/// Converts a peer's MGP error for a caller without MGP: a JSON-RPC code, and no `_mgp` (MGP-283). `None`
/// if it contains no MGP, so that it is relayed unchanged.
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
    /// The MGP code; `None` if JSON-RPC or MCP has a code of its own, and for a peer's error.
    #[must_use]
    pub(crate) fn mgp_code(&self) -> Option<Code> {
        self.spec().mgp
    }

    /// The delay after which a retry may succeed; `None` if it will not. A request that may have taken
    /// effect is never suggested for a retry.
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

    /// The retry information for an MGP caller; `None` without an MGP code.
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

    /// Renders it for an MGP caller: with its MGP code and `data._mgp` if MGP has one, otherwise as for
    /// other callers. A peer's own error is relayed unchanged.
    #[must_use]
    pub(crate) fn render_mgp(&self, version: Version) -> Rendered {
        if let Self::Rejected(rejection) = self {
            return Rendered::Result(rejection.render(version));
        }
        let (Some(code), Some(recovery)) = (self.mgp_code(), self.recovery()) else {
            if let Some(error) = self.relayed_error() {
                return Rendered::Error(error.to_owned());
            }
            return self.render(version);
        };
        let mut message = self.to_string();
        // An MGP caller sees the denial by the code; the message must be consistent with that.
        if let Self::Denied(denial) = self
            && let Some(tool) = denial.shown_as_denied()
        {
            message = format!("Access denied: {tool}");
        }
        let error = ErrorObject::new(code.number(), message).with_data(&json!({"_mgp": recovery}));
        Rendered::Error(serde_json::to_string(&error).expect("an error object is always JSON"))
    }
}

#[cfg(test)]
mod tests;
