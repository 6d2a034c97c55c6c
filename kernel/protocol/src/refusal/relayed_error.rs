//! Errors of the other end of a request, as relayed by the kernel. The origin is determined by the variant
//! of the refusal, never by the contents.

use serde::Deserialize;

use super::{HEADER_MISMATCH, MISSING_CAPABILITY, Refusal, UNSUPPORTED_VERSION};
use crate::jsonrpc::METHOD_NOT_FOUND;

impl Refusal {
    /// The error object of the other end, as JSON text; `None` for the kernel's own refusals.
    #[must_use]
    pub fn relayed_error(&self) -> Option<&str> {
        if let Self::Peer(error) | Self::Unattributed(error) = self {
            return Some(error.get());
        }
        if let Self::Owner(refusal) = self {
            return refusal.error();
        }
        None
    }

    /// True if the other end answered with an error.
    #[must_use]
    pub fn is_answer(&self) -> bool {
        matches!(self, Self::Peer(_) | Self::Owner(_) | Self::Unattributed(_))
    }
}

/// The HTTP status of a peer's error, as if it were the kernel's.
pub(super) fn peer_http_status(error: &str) -> u16 {
    #[derive(Deserialize)]
    struct OnlyCode {
        code: i64,
    }
    match serde_json::from_str::<OnlyCode>(error).map(|e| e.code) {
        Ok(HEADER_MISMATCH | MISSING_CAPABILITY | UNSUPPORTED_VERSION) => 400,
        Ok(METHOD_NOT_FOUND) => 404,
        _ => 200,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::value::RawValue;

    use super::*;
    use crate::refusal::owner_refusal::{OwnerAnswer, OwnerRefusal, OwnerRefusalCause};
    use crate::refusal::{CallOutcome, Rendered};

    /// The agent receives the same for any origin: without MGP members if it does not support MGP.
    #[test]
    fn relayed_error_is_rendered_alike_for_any_origin() {
        let text = r#"{"code":2000,"message":"m","data":{"_mgp":{"retryable":true},"x":1}}"#;
        let raw = RawValue::from_string(text.to_owned()).unwrap();
        let owner = OwnerRefusal {
            cause: OwnerRefusalCause::Unavailable,
            outcome: CallOutcome::NotExecuted,
            answer: OwnerAnswer::Error(text.to_owned()),
        };
        let plain = r#"{"code":-32603,"message":"m","data":{"x":1}}"#;
        for refusal in [
            Refusal::Peer(raw.clone()),
            Refusal::Unattributed(raw),
            Refusal::Owner(Box::new(owner.clone())),
        ] {
            assert!(refusal.is_answer());
            let version = crate::dialect::Version::STATELESS;
            let rendered = |rendered| match rendered {
                Rendered::Error(error) => error,
                Rendered::Result(result) => panic!("{result}"),
            };
            assert_eq!(rendered(refusal.render(version)), plain);
            assert_eq!(rendered(refusal.render_mgp(version)), text);
        }
        let result = OwnerRefusal {
            answer: OwnerAnswer::Result("{}".to_owned()),
            ..owner
        };
        let refusal = Refusal::Owner(Box::new(result));
        let version = crate::dialect::Version::STATELESS;
        for rendered in [refusal.render(version), refusal.render_mgp(version)] {
            assert!(matches!(rendered, Rendered::Result(result) if result == "{}"));
        }
    }
}
